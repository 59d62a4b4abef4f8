"""``ternmq apply module:client``: make topics and groups what an application declares."""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import Final

import click

from ternmq.cli.commands import Command
from ternmq.cli.reach.connection import asks_broker
from ternmq.cli.terminal import output
from ternmq.cli.terminal.exits import ExitCode, Failed
from ternmq.cli.worker.worker import find
from ternmq.client.client import Client
from ternmq.client.declaration.changes import Change, advice
from ternmq.model.errors import Forbidden, TopologyMismatch
from ternmq.model.words import counted, verb

_SIGNS: Final = {"create": "+", "change": "~", "conflict": "!"}
_AS_DECLARED: Final = "everything is as declared"
_REMEDY: Final = re.compile("`ternmq app set [^`]*` gives it")
"""A part of the broker's text about a missing right."""


@click.command(cls=Command)
@click.argument("target", metavar="MODULE:CLIENT")
@click.option(
    "--dry-run",
    is_flag=True,
    help="Only show the differences and check the rights; exit status 8 if there are differences.",
)
@output.json_option
@asks_broker
async def apply(client: Client, target: str, dry_run: bool, as_json: bool) -> None:
    """Create and change topics and groups as declared on a client.

    Topics are declared with `client.declare(ternmq.Topic(...))`, groups by handlers. Topics and
    groups that are not declared, and settings that are not stated, stay as they are.

    `apply` cannot reduce the number of queues of a topic. On an ordered topic, it cannot change
    this number at all. It cannot change whether a topic is ordered, the levels of a topic, or the
    start of a group. If a declaration requires one of these changes, nothing is changed.
    `apply` can change the mode of a group; a worker cannot.

    `apply` finds the address, app and token as every other command, never in the program. The app
    needs the right `manage` on the topics and groups that are created or changed. This is checked
    before anything is changed, also with --dry-run (exit status 5 if a right is missing).

    `apply` imports MODULE, also with --dry-run. If the module sends messages at import, it sends
    them with its own address, app and token.
    """
    topology = find(target).topology
    if topology.is_empty:
        raise Failed(
            f"nothing is declared on {target}: no topic, and no handler; does another module of "
            "the application declare them?",
            ExitCode.USAGE,
        )
    made: list[Change] = []

    def tell(one: Change) -> None:
        made.append(one)
        if not as_json:
            click.echo(f"{_SIGNS[one.action]} {one}")

    changes = await topology.plan(client.admin)
    conflicts = [one for one in changes if one.action == "conflict"]
    if not dry_run and not conflicts:
        try:
            await topology.apply(client.admin, told=tell)
        except TopologyMismatch as error:
            if isinstance(error.__cause__, Forbidden):
                # The app of this command needs the right to manage, which the broker suggests.
                remedies = _REMEDY.findall(str(error.__cause__.args[0]))
                error.hint = "; ".join(remedies) or error.__cause__.hint
            raise
        finally:
            if as_json:
                output.document([asdict(one) for one in made])
        output.note(f"made {counted(len(made), 'change')}" if made else _AS_DECLARED)
        return
    if as_json:
        output.document([asdict(one) for one in changes])
    else:
        for one in changes:
            created = "not created" if conflicts else "would be created"
            click.echo(f"{_SIGNS[one.action]} {one.told(created)}")
    if conflicts:
        raise Failed(
            f"{len(conflicts)} of {counted(len(changes), 'difference')} cannot be changed: nothing "
            f"was changed; {advice(conflicts)}",
            ExitCode.UNSOUND,
        )
    if not changes:
        output.note(_AS_DECLARED)
        return
    raise _differs(changes, await topology.refusals(client.admin, changes), client.admin.app)


def _differs(changes: list[Change], lacks: list[str] | None, app: str) -> Failed:
    """Return the end of a dry run: that of the real run if the app lacks a right."""
    number = len(changes)
    text = counted(number, "difference")
    if lacks:
        text += f", and without --dry-run nothing would be changed: {'. '.join(lacks)}"
        if any(one.action == "create" and not one.group for one in changes):
            text += ". A topic on which the app has no right looks as if it did not exist"
        return Failed(text, ExitCode.NOT_ALLOWED)
    text += f"; run it without --dry-run to make {verb(number, 'it', 'them')}"
    if lacks is None and app:
        text += f" if app {app!r} has the rights, which this older broker does not report"
    return Failed(text, ExitCode.UNSOUND)
