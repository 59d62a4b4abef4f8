"""``ternmq deadletter``: messages that failed for good."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import click

from ternmq import files
from ternmq.cli.commands import Group
from ternmq.cli.groups.failed import deleting, listing, rows_of, showing
from ternmq.cli.groups.redrive import redrive
from ternmq.cli.reach.arguments import group_argument, topic_argument
from ternmq.cli.reach.connection import asks_broker
from ternmq.cli.reach.finding import known
from ternmq.cli.reach.parameters import QUEUE
from ternmq.cli.terminal import output
from ternmq.client.client import Client
from ternmq.client.forms.failures import plain
from ternmq.model.words import counted


@click.group(cls=Group)
def deadletter() -> None:
    """List, export, delete and redrive dead letters."""


deadletter.add_command(
    listing("List the dead letters of a group, with their last failure.", dead=True)
)
deadletter.add_command(showing("Show a dead letter, with all its failures.", dead=True))


@deadletter.command()
@topic_argument()
@group_argument()
@click.option(
    "-o",
    "--output",
    "file",
    type=click.Path(dir_okay=False, allow_dash=True, path_type=Path),
    metavar="FILE",
    help="File to write. Default: standard output. The file is complete and synced to disk "
    "when the command ends.",
)
@click.option("--queue", type=QUEUE, help="Only this queue.")
@asks_broker
async def export(
    client: Client, topic: str, group: str, file: Path | None, queue: int | None
) -> None:
    """Export all dead letters as JSON, one object per line, with content and failures.

    `ternmq send TOPIC --json-in --lines FILE` sends them again, as new messages to all groups. They
    are sent without the ids that the application gave: with such an id, the broker could treat a
    message as a duplicate.
    """
    await known(client, topic, group, queue)
    rows = rows_of(client, topic, group, queue, dead=True)
    count = 0
    if file is None or str(file) == "-":
        async for one in rows:
            count += 1
            output.json_line(plain(topic, group, one))
    else:
        with _opened(file) as out:
            live = sys.stderr.isatty()
            async for one in rows:
                count += 1
                out.write(output.encoded_plain(plain(topic, group, one)) + b"\n")
                if live and count % 500 == 0:
                    click.echo(f"\r\x1b[K{count:,} written", err=True, nl=False)
            if live:
                click.echo("\r\x1b[K", err=True, nl=False)
    output.note(f"exported {counted(count, 'dead letter')} of {group} on {topic}")


@contextlib.contextmanager
def _opened(file: Path) -> Iterator[BinaryIO]:
    """Yield the file. It is durable and whole, or not there: the user may delete afterwards."""
    with contextlib.ExitStack() as stack:
        try:
            out = stack.enter_context(files.writing(file, files.SHARED))
        except OSError as error:
            raise click.BadParameter(f"{file}: {error.strerror}", param_hint="-o") from error
        yield out


deadletter.add_command(
    deleting(
        "Delete dead letters. Export them first to keep a copy.\n\n"
        "Select dead letters by offset (7), range (10-12) or place (1/7), by options, or use "
        "--all.",
        dead=True,
    )
)
deadletter.add_command(redrive)
