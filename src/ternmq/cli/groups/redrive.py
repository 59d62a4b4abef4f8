"""``ternmq deadletter redrive``: delivers dead letters to their group again."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence

import click

from ternmq.cli.commands import Command
from ternmq.cli.groups.failed import chosen, rows_of
from ternmq.cli.groups.selection import WAYS, agreed, query_options, whole_query
from ternmq.cli.pipeline.parts import installed
from ternmq.cli.reach.arguments import group_argument, topic_argument
from ternmq.cli.reach.connection import asks_broker, confirm, yes_option
from ternmq.cli.reach.finding import known
from ternmq.cli.reach.parameters import QUEUE, Real, check_one
from ternmq.cli.reach.places import some
from ternmq.cli.terminal import output
from ternmq.cli.terminal.exits import ExitCode, Failed
from ternmq.cli.terminal.problems import code_of, not_found, text_of
from ternmq.client.admin.failedmessage import FailedMessage
from ternmq.client.admin.failedquery import FailedQuery
from ternmq.client.admin.redriving import Redriven
from ternmq.client.client import Client
from ternmq.client.forms.failures import said
from ternmq.model.errors import TernMQError, UnknownTopic
from ternmq.model.words import counted, verb

_PIECE = 1000


@click.command(cls=Command)
@topic_argument()
@group_argument()
@click.argument("offsets", metavar="[OFFSET]...", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Select all dead letters.")
@click.option(
    "--reason",
    metavar="TEXT",
    help="Select dead letters whose last failure has a reason that contains this text.",
)
@click.option(
    "--fingerprint",
    "cause",
    metavar="ID",
    help="Select dead letters whose last failure has this fingerprint; `ternmq pipeline report` "
    "shows the fingerprints.",
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
    help="Maximum number of dead letters per second. Default: no limit.",
)
@query_options(dead=True)
@click.option(
    "--to",
    metavar="TOPIC",
    help="Send the dead letters to this topic instead, as new messages with the header "
    "ternmq-redriven. Each dead letter is deleted when its new message is stored.",
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
    query: FailedQuery | None,
    to: str | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Deliver dead letters to their group again. Other groups do not receive them.

    With --to, all groups of the other topic receive them. Select dead letters by offset (7), range
    (10-12) or place (1/7), by options, or use --all. Attempts are counted from 1; the earlier
    failures stay recorded. With --reason or --fingerprint, the command reads all dead letters of
    the group to find the ones that match.
    """  # fmt: skip
    wanted = reason if reason is not None else cause
    check_one(
        bool(offsets), everything, reason is not None, cause is not None, query is not None,
        of=f"offsets, --reason, --fingerprint, {WAYS} and --all",
    )  # fmt: skip
    if wanted == "":  # usually a variable that is empty
        option = "--reason" if reason is not None else "--fingerprint"
        raise click.UsageError(
            f"{option} is empty, which would select all dead letters: use --all for that",
            click.get_current_context(),
        )
    if to is not None:  # a topic that is not there is said before anything is read or asked
        await client.deadletters.redrive(topic, group, (), to=to, dry_run=True)
    if query is not None or (everything and to is not None):
        asked = query or whole_query(dead=True)
        await known(client, topic, group, queue)
        await _redrive_matching(
            client, topic, group, asked, queue, rate, to, dry_run=dry_run, yes=yes, as_json=as_json
        )
        return
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
        told = await _redrive(client, topic, group, found, rate, total, to, dry_run=True)
        there = sum([one.done for one in told])
    if not dry_run and there and not yes:
        _ask(_question(topic, group, to), found, told, as_json=as_json)
    if there:
        told = await _redrive(client, topic, group, found, rate, total, to, dry_run=dry_run)
    _report(topic, group, told, to, dry_run=dry_run, as_json=as_json)


def _report(
    topic: str,
    group: str,
    told: Sequence[Redriven],
    to: str | None,
    *,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Show what was done.

    Raises:
        Failed: Some are no dead letters, or could not be sent.
    """
    missing = [(one.queue, one.offset) for one in told if not one.done and one.error is None]
    unsent = [one for one in told if one.error is not None]
    gone = [(one.queue, one.offset) for one in told if one.gone]
    count = sum([one.done for one in told])
    if as_json:
        output.document(
            {
                "done": not dry_run,
                "redriven": count,
                "messages": [_plain(one, to) for one in told],
            }
        )
    elif count or not (missing or unsent):
        comes = "would be" if dry_run else verb(count, "is", "are")
        letters = f"{counted(count, 'dead letter')} of {topic}"
        if to is None:
            output.note(f"{letters} {comes} delivered to {group} again")
        else:
            before = sum([one.receipt is not None and one.receipt.duplicate for one in told])
            note = f"; {before:,} of them had been sent before" if before else ""
            output.note(f"{letters} of {group} {comes} moved to {to}{note}")
    if gone:
        output.note(
            f"these were sent to {to}, but somebody redrove or deleted them meanwhile, so {group} "
            f"may have received them, too: {some(gone)}"
        )
    if unsent:
        places = some([(one.queue, one.offset) for one in unsent])
        stay = "would stay" if dry_run else "stay"
        raise _unsent(unsent[0].error, f"these {stay} dead letters: {places}")
    if missing:
        raise not_found(f"these messages are not dead letters: {some(missing)}")


def _unsent(error: Exception | None, text: str) -> Failed:
    """Return a failure for messages that another topic did not take.

    A message that does not fit the topic is no wrong usage: its key is not an option.
    """
    if not isinstance(error, TernMQError):
        return Failed(f"{text}: {error}")
    code = code_of(error)
    unfit = code in (ExitCode.USAGE, ExitCode.NOT_FOUND) and not isinstance(error, UnknownTopic)
    return Failed(f"{text}: {text_of(error)}", ExitCode.FAILED if unfit else code)


def _plain(one: Redriven, to: str | None) -> dict[str, object]:
    """Return an outcome in the form of the JSON output."""
    found: dict[str, object] = {"queue": one.queue, "offset": one.offset}
    if one.error is not None:
        return {**found, "outcome": "not sent", "error": str(one.error)}
    found["outcome"] = "redriven" if one.done else "no dead letter"
    if one.gone:
        found["gone"] = True
    if one.receipt is not None:
        found["to"] = {
            "topic": to,
            "queue": one.receipt.queue,
            "offset": one.receipt.offset,
            "duplicate": one.receipt.duplicate,
        }
    return found


async def _redrive_matching(
    client: Client,
    topic: str,
    group: str,
    query: FailedQuery,
    queue: int | None,
    rate: float | None,
    to: str | None,
    *,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Redrive what a query selects."""
    question = _question(topic, group, to)
    told: Sequence[Redriven] = ()
    if await agreed(
        client, topic, group, query, queue, question, "dead letter",
        yes=yes or dry_run, as_json=as_json,
    ):  # fmt: skip
        told = await client.deadletters.redrive_matching(
            topic, group, query, queue=queue, to=to, rate=rate, dry_run=dry_run
        )
    _report(topic, group, told, to, dry_run=dry_run, as_json=as_json)


def _question(topic: str, group: str, to: str | None) -> str:
    """Return what a redrive asks; ``{}`` is the number of dead letters."""
    if to is not None:
        return f"move {{}} of {group} on {topic} to {to}?"
    return f"deliver {{}} of {topic} to {group} again?"


def _ask(
    question: str, found: dict[int, list[int]], told: Sequence[Redriven], *, as_json: bool
) -> None:
    """Show what would be redriven, and ask: what a dry run found, or else all that is selected."""
    if as_json:
        raise Failed("nothing was done: --json does not prompt: add --yes or --dry-run")
    rows = [(one.queue, one.offset) for one in told if one.done]
    rows = rows or [(queue, offset) for queue, offsets in found.items() for offset in offsets]
    count = counted(len(rows), "dead letter")
    output.note(f"{count}: {some(rows)}")
    confirm(question.replace("{}", count), yes=False)


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
    to: str | None,
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
                topic, group, piece, queue=queue, to=to, dry_run=dry_run
            )
            if live:
                click.echo(f"\r\x1b[K{len(told):,} of {total:,}", err=True, nl=False)
    if live:
        click.echo("\r\x1b[K", err=True, nl=False)
    return told
