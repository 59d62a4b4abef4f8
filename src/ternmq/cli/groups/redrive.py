"""``ternmq deadletter redrive``: delivers dead letters to their group again."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence

import click

from ternmq.cli.commands import Command
from ternmq.cli.groups.failed import chosen, rows_of, said
from ternmq.cli.pipeline.parts import installed
from ternmq.cli.reach.arguments import group_argument, topic_argument
from ternmq.cli.reach.connection import asks_broker, confirm, yes_option
from ternmq.cli.reach.parameters import QUEUE, Real, check_one
from ternmq.cli.reach.places import some
from ternmq.cli.terminal import output
from ternmq.cli.terminal.exits import Failed
from ternmq.cli.terminal.problems import not_found
from ternmq.client.admin.deadletters import FailedMessage, Redriven
from ternmq.client.client import Client
from ternmq.model.words import counted, verb

_PIECE = 1000


@click.command(cls=Command)
@topic_argument()
@group_argument()
@click.argument("offsets", metavar="[OFFSET]...", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Select all of them.")
@click.option(
    "--reason", metavar="TEXT", help="Select those whose last failure reason contains this text."
)
@click.option(
    "--fingerprint",
    "cause",
    metavar="ID",
    help="Select those with this failure cause, as `ternmq pipeline report` shows it.",
)
@click.option(
    "--queue",
    type=QUEUE,
    help="Only this queue; required with offsets (7) if the topic has several queues.",
)
@click.option(
    "--rate",
    type=Real(min=0, min_open=True),
    metavar="NUMBER",
    help="Maximum number to redrive per second. Default: no limit.",
)
@click.option("--dry-run", is_flag=True, help="Only show what would happen.")
@yes_option
@output.json_option
@asks_broker
async def redrive(
    client: Client,
    topic: str,
    group: str,
    offsets: Sequence[str],
    everything: bool,
    reason: str | None,
    cause: str | None,
    queue: int | None,
    rate: float | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Deliver dead letters to their group again. Other groups do not receive them.

    Select dead letters by offset (7), range (10-12) or place (1/7), or with options. Attempts are
    counted from 1; the earlier failures stay recorded.
    """  # fmt: skip
    wanted = reason if reason is not None else cause
    check_one(
        bool(offsets), everything, reason is not None, cause is not None,
        of="offsets, --reason, --fingerprint and --all",
    )  # fmt: skip
    if wanted == "":  # usually a variable that is empty
        option = "--reason" if reason is not None else "--fingerprint"
        raise click.UsageError(
            f"{option} is empty, which would select all dead letters: use --all for that",
            click.get_current_context(),
        )
    found: dict[int, list[int]] = {}
    if wanted is not None:
        suits = _by_fingerprint(wanted) if cause is not None else _by_reason(wanted)
        async for one in rows_of(client, topic, group, queue, dead=True):
            if suits(one):
                found.setdefault(one.queue, []).append(one.offset)
    elif everything:
        for row in await client.deadletters.redrive(topic, group, queue=queue, dry_run=True):
            found.setdefault(row.queue, []).append(row.offset)
    else:
        found = await chosen(client, topic, group, offsets, queue, everything=False, dead=True)
    total = there = sum(map(len, found.values()))
    told: list[Redriven] = []
    if offsets and not dry_run and not yes:  # ask only about those that are dead letters
        told = await _redrive(client, topic, group, found, rate, total, dry_run=True)
        there = sum([one.done for one in told])
    if not dry_run and there and not yes:
        _ask(f"of {topic} to {group}", found, told, as_json=as_json)
    if there:
        told = await _redrive(client, topic, group, found, rate, total, dry_run=dry_run)
    missing = [(one.queue, one.offset) for one in told if not one.done]
    count = len(told) - len(missing)
    if as_json:
        output.document(
            {
                "done": not dry_run,
                "redriven": count,
                "messages": [
                    {
                        "queue": one.queue,
                        "offset": one.offset,
                        "outcome": "redriven" if one.done else "no dead letter",
                    }
                    for one in told
                ],
            }
        )
    elif count or not missing:
        comes = "would be" if dry_run else verb(count, "is", "are")
        output.note(
            f"{counted(count, 'dead letter')} of {topic} {comes} delivered to {group} again"
        )
    if missing:
        raise not_found(f"these messages are not dead letters: {some(missing)}")


def _ask(
    whose: str, found: dict[int, list[int]], told: Sequence[Redriven], *, as_json: bool
) -> None:
    """Show what would be redriven, and ask: what a dry run found, or else all that is selected."""
    if as_json:
        raise Failed("nothing was done: --json does not prompt: add --yes or --dry-run")
    rows = [(one.queue, one.offset) for one in told if one.done]
    rows = rows or [(queue, offset) for queue, offsets in found.items() for offset in offsets]
    count = counted(len(rows), "dead letter")
    output.note(f"{count}: {some(rows)}")
    confirm(f"deliver {count} {whose} again?", yes=False)


def _by_reason(text: str) -> Callable[[FailedMessage], bool]:
    return lambda one: text in said(one)


def _by_fingerprint(wanted: str) -> Callable[[FailedMessage], bool]:
    """Return a test: whether the last failure of a message has a fingerprint."""
    with installed():
        from ternmq.pipeline.deadletters.deadletters import fingerprint

    def suits(one: FailedMessage) -> bool:
        last = one.failures[-1] if one.failures else None
        if last is None:
            return fingerprint(None, None).id == wanted
        return fingerprint(last.reason, last.cause).id == wanted

    return suits


async def _redrive(
    client: Client,
    topic: str,
    group: str,
    found: dict[int, list[int]],
    rate: float | None,
    total: int,
    *,
    dry_run: bool,
) -> list[Redriven]:
    """Redrive them piece by piece, with progress if there are many."""
    most = _PIECE if rate is None or dry_run else max(1, min(_PIECE, int(rate / 5)))
    live = sys.stderr.isatty() and total > most
    told: list[Redriven] = []
    for queue, named in found.items():
        for at in range(0, len(named), most):
            piece = named[at : at + most]
            if told and rate is not None and not dry_run:
                await asyncio.sleep(len(piece) / rate)
            told += await client.deadletters.redrive(
                topic, group, piece, queue=queue, dry_run=dry_run
            )
            if live:
                click.echo(f"\r\x1b[K{len(told):,} of {total:,}", err=True, nl=False)
    if live:
        click.echo("\r\x1b[K", err=True, nl=False)
    return told
