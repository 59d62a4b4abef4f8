"""``ternmq deadletter``: messages that failed for good."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import BinaryIO

import click

from ternmq.cli import output
from ternmq.cli.commands import Group
from ternmq.cli.connection import asks_broker, confirm, yes_option
from ternmq.cli.failed import (
    chosen,
    known,
    listing,
    pieces,
    plain_failed,
    rows_of,
    showing,
    some,
)
from ternmq.cli.parameters import QUEUE, group_argument, topic_argument
from ternmq.cli.problems import not_found
from ternmq.cli.redrive import redrive
from ternmq.client.client import Client


@click.group(cls=Group)
def deadletter() -> None:
    """Messages that failed for good."""


deadletter.add_command(listing("List the dead letters of a group, and why they failed.", dead=True))
deadletter.add_command(showing("Show a dead letter, with every failure.", dead=True))


@deadletter.command()
@topic_argument()
@group_argument()
@click.option(
    "-o",
    "--output",
    "file",
    type=click.File("wb", lazy=False, atomic=True),
    help="The file to write; by default standard output.",
)
@click.option("--queue", type=QUEUE, help="Only this queue.")
@asks_broker
async def export(
    client: Client, topic: str, group: str, file: BinaryIO | None, queue: int | None
) -> None:
    """Write all dead letters as JSON, one object a line, with content and failures.

    `ternmq send TOPIC --json-in --lines FILE` sends them again, as new messages to every group.
    """
    await known(client, topic, group, queue)
    count = 0
    live = file is not None and sys.stderr.isatty()
    async for one in rows_of(client, topic, group, queue, dead=True):
        count += 1
        told = plain_failed(topic, group, one)
        if file is None:
            output.json_line(told)
        else:
            file.write(output.encoded_plain(told) + b"\n")
            if live and count % 500 == 0:
                click.echo(f"\r\x1b[K{count:,} written", err=True, nl=False)
    if live:
        click.echo("\r\x1b[K", err=True, nl=False)
    output.note(f"exported {count:,} dead letters of {group} on {topic}")


@deadletter.command()
@topic_argument()
@group_argument()
@click.argument("offsets", metavar="[OFFSET]...", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="All of them.")
@click.option("--queue", type=QUEUE, help="The queue; needed where a topic has several.")
@yes_option
@output.json_option
@asks_broker
async def delete(
    client: Client,
    topic: str,
    group: str,
    offsets: Sequence[str],
    everything: bool,
    queue: int | None,
    yes: bool,
    as_json: bool,
) -> None:
    """Forget dead letters: offsets (7), ranges (10-12), or --all. Export them first."""
    found = await chosen(client, topic, group, offsets, queue, everything=everything, dead=True)
    total = sum(map(len, found.values()))
    if total:
        confirm(f"delete {total:,} dead letters of {group} on {topic}?", yes=yes)
    missing: list[int] = []
    for number, rows in found.items():
        for piece in pieces(rows):
            missing += await client.deadletters.delete(topic, group, piece, queue=number)
    if as_json:
        output.document({"done": total - len(missing), "missing": missing})
    else:
        output.note(f"deleted {total - len(missing):,} dead letters of {group} on {topic}")
    if missing and not everything:
        raise not_found(f"these were no dead letters: {some(missing)}")


deadletter.add_command(redrive)
