"""``ternmq apply module:client``: make topics and groups what an application declares."""

from __future__ import annotations

from dataclasses import asdict
from typing import Final

import click

from ternmq.cli import output
from ternmq.cli.commands import Command
from ternmq.cli.connection import asks_broker
from ternmq.cli.exits import ExitCode, Failed
from ternmq.cli.worker import find
from ternmq.client.client import Client
from ternmq.client.topology import Change, advice
from ternmq.model.words import counted, verb

_SIGNS: Final = {"create": "+", "change": "~", "conflict": "!"}


@click.command(cls=Command)
@click.argument("target", metavar="MODULE:CLIENT")
@click.option("--dry-run", is_flag=True, help="Only compare; exit status 8 if anything differs.")
@output.json_option
@asks_broker
async def apply(client: Client, target: str, dry_run: bool, as_json: bool) -> None:
    """Make topics and groups what is declared on a client.

    Topics are declared with `client.declare(ternmq.Topic(...))`, groups by handlers. What is not
    declared is left alone, and so is every setting that is not stated. Queues that would go away,
    the order of a topic, and the mode and start of a group cannot be changed: then nothing is.

    Where the broker is and as whom to ask is said here, not by the application's client: whoever
    may change topics need not be whoever consumes them.
    """
    topology = find(target).topology
    if topology.is_empty:
        raise Failed(
            f"nothing is declared on {target}: no topic, and no handler; does another module of "
            "the application declare them?",
            ExitCode.USAGE,
        )
    changes = await topology.plan(client.admin)
    conflicts = [one for one in changes if one.action == "conflict"]
    if not dry_run and changes and not conflicts:
        await topology.apply(client.admin)
    created = "created"
    if conflicts:
        created = "not created"
    elif dry_run:
        created = "would be created"
    if as_json:
        output.document([asdict(one) for one in changes])
    else:
        for one in changes:
            click.echo(f"{_SIGNS[one.action]} {one.told(created)}")
    _end(changes, conflicts, dry_run=dry_run, app=client.admin.app)


def _end(changes: list[Change], conflicts: list[Change], *, dry_run: bool, app: str) -> None:
    number = len(changes)
    if conflicts:
        raise Failed(
            f"{len(conflicts)} of {counted(number, 'difference')} cannot be changed: nothing was "
            f"changed; {advice(conflicts)}",
            ExitCode.UNSOUND,
        )
    if not changes:
        output.note("all is as declared")
    elif dry_run:
        are = verb(number, "it is", "they are")
        text = f"{counted(number, 'difference')}; without --dry-run {are} made"
        if app:
            text += f" if app {app!r} has the rights, which was not checked"
            if any(one.action == "create" and not one.group for one in changes):
                text += "; a topic on which it has no right looks as if it were missing"
        raise Failed(text, ExitCode.UNSOUND)
    else:
        output.note(f"made {counted(number, 'change')}")
