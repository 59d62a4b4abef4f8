"""``ternmq delay``: scheduled messages, which are not due yet."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

import click

from ternmq.cli.commands import Group
from ternmq.cli.reach.arguments import topic_argument
from ternmq.cli.reach.connection import administers, asks_broker
from ternmq.cli.reach.parameters import AHEAD, COUNT, check_span
from ternmq.cli.terminal import output
from ternmq.cli.terminal.exits import ExitCode, Failed
from ternmq.cli.terminal.problems import code_of, not_found, text_of
from ternmq.client.admin.admin_client import AdminClient
from ternmq.client.client import Client
from ternmq.client.forms import values
from ternmq.client.forms.scheduled import plain
from ternmq.model.errors import AlreadyDelivered, MessageNotFound, TernMQError
from ternmq.model.words import counted
from ternmq.wire.control import ScheduledHour, ScheduledInfo

_HOUR: Final = timedelta(hours=1)
SORTED: Final = 100_000
"""Most messages that are read to print the next ones due in their order."""
_AT_ONCE: Final = 100
"""Most cancels under way at a time."""
_FINAL: Final = (AlreadyDelivered, MessageNotFound)
"""Errors that say something about one message; others concern all."""


@click.group(cls=Group)
def delay() -> None:
    """List and cancel scheduled messages.

    A scheduled message was sent with a due time and is not due yet; `ternmq send --delay` sends
    one. `ternmq message get` shows it.
    """


@delay.command("list")
@topic_argument()
@click.option(
    "--since",
    type=AHEAD,
    metavar="TIME",
    help="List the messages due at or after this time: now, 10m (from now), 14:30, 2026-01-31.",
)
@click.option("--until", type=AHEAD, metavar="TIME", help="List the messages due before this time.")
@click.option(
    "-n",
    "--limit",
    type=COUNT,
    default=100,
    help="Maximum number of hours or messages to show. Default: 100.",
)
@output.ndjson_option
@administers
async def list_(
    client: AdminClient,
    topic: str,
    since: datetime | None,
    until: datetime | None,
    limit: int,
    as_json: bool,
) -> None:
    """Count the scheduled messages of a topic by the hour in which they are due.

    With --since or --until, list the messages themselves, the next one due first.
    """
    check_span(since, until, ahead=True)
    hours = await client.admin.scheduled(topic)
    if since is None and until is None:
        _print_hours(topic, hours, limit, as_json=as_json)
        return
    found, more = await _next(client, topic, hours, since, until, limit)
    if as_json:
        for one in found:
            output.json_line(plain(one))
    else:
        output.table(
            ("due", "id", "application id", "key", "ordering key"),
            [
                (values.iso(one.due_at), one.id, one.application_id, one.key, one.ordering_key)
                for one in found
            ],
            f"no message of {topic} is due in this time",
            spare=("ordering key", "application id"),
        )
    if more:
        output.note(more)


@delay.command()
@topic_argument()
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@output.json_option
@asks_broker
async def cancel(client: Client, topic: str, ids: Sequence[str], as_json: bool) -> None:
    """Cancel scheduled messages: they are never delivered.

    Select messages by the id in the receipt, or by your own id, as in `message get`. It is not an
    error if a message is cancelled already. If a message was delivered, it cannot be cancelled: the
    exit status is 1. If there is no such message, the exit status is 4.
    """
    ids = list(dict.fromkeys(ids))
    cancelled: list[str] = []
    failed: dict[str, TernMQError] = {}
    for at in range(0, len(ids), _AT_ONCE):
        some = ids[at : at + _AT_ONCE]
        results = await asyncio.gather(
            *[client.cancel(topic, one) for one in some], return_exceptions=True
        )
        for one, result in zip(some, results, strict=True):
            if isinstance(result, TernMQError):
                failed[one] = result
            elif result is not None:
                raise result
            else:
                cancelled.append(one)
        if any(not isinstance(error, _FINAL) for error in failed.values()):
            break  # such as a lost connection: the others would fail too
    if as_json:
        output.document(_outcome(cancelled, failed))
    elif cancelled or not failed:
        output.note(f"cancelled {counted(len(cancelled), 'message')} of {topic}")
    if failed:
        raise _failure(len(ids), cancelled, failed)


def _outcome(cancelled: list[str], failed: dict[str, TernMQError]) -> dict[str, list[str]]:
    """Return the ids by outcome, in the form of the JSON output."""
    return {
        "cancelled": cancelled,
        "delivered": [id_ for id_, error in failed.items() if isinstance(error, AlreadyDelivered)],
        "unknown": [id_ for id_, error in failed.items() if isinstance(error, MessageNotFound)],
    }


def _failure(asked: int, cancelled: list[str], failed: dict[str, TernMQError]) -> Exception:
    """Return the error with which the command ends: the most important one of several."""
    worst = min(failed.values(), key=_rank)
    if asked == 1 or not isinstance(worst, _FINAL):
        return worst
    for id_, error in failed.items():
        output.note(f"{id_}: {text_of(error)}")
    left = asked - len(cancelled)
    text = f"{left:,} of {counted(asked, 'message')} {'was' if left == 1 else 'were'} not cancelled"
    return not_found(text) if code_of(worst) is ExitCode.NOT_FOUND else Failed(text, code_of(worst))


def _rank(error: TernMQError) -> int:
    if not isinstance(error, _FINAL):
        return 0
    return 2 if isinstance(error, MessageNotFound) else 1


def _print_hours(topic: str, hours: list[ScheduledHour], limit: int, *, as_json: bool) -> None:
    if as_json:
        for one in hours[:limit]:
            output.json_line({"hour": one.hour, "messages": one.messages})
    else:
        output.table(
            ("hour", "messages"),
            [(f"{one.hour:%Y-%m-%dT%H:%MZ}", one.messages) for one in hours[:limit]],
            f"no message of {topic} is scheduled",
        )
    if len(hours) > limit:
        total = counted(sum([one.messages for one in hours]), "message")
        output.note(
            f"showing the first {limit:,} of {len(hours):,} hours with {total} in all (--limit)"
        )


async def _next(
    client: AdminClient,
    topic: str,
    hours: list[ScheduledHour],
    since: datetime | None,
    until: datetime | None,
    limit: int,
) -> tuple[list[ScheduledInfo], str]:
    """Return the messages of a span that are due next, and a note if there are others.

    The broker lists messages in the order in which they were sent. So all messages of the first
    hours that have enough are read, and sorted.
    """
    enough = count = 0
    end = until
    for hour in hours:
        if (since is not None and hour.hour + _HOUR <= since) or (
            until is not None and hour.hour >= until
        ):
            continue
        if enough > limit:
            end = hour.hour
            break
        count += hour.messages
        if since is None or hour.hour >= since:  # else part of them are due before
            enough += hour.messages
    most = max(limit, min(count, SORTED)) + 1
    found = await client.admin.scheduled_messages(topic, since=since, until=end, limit=most)
    if count > SORTED and len(found) == most:
        before = "" if end is None else f" before {values.iso(end)}"
        note = (
            f"more than {SORTED:,} messages are due{before}: showing the first {limit:,} of them "
            "that were sent; an earlier --until shows the next ones due"
        )
        return found[:limit], note
    found.sort(key=lambda one: one.due_us)
    if len(found) <= limit and end == until:
        return found, ""
    return found[:limit], f"showing the first {limit:,}; there are more (--limit)"
