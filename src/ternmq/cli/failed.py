"""What ``retry`` and ``deadletter`` share: how rows that failed are shown, and which are meant."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Final

import click

from ternmq.cli import output
from ternmq.cli.commands import Command
from ternmq.cli.connection import asks_broker
from ternmq.cli.output import Cell
from ternmq.cli.parameters import (
    COUNT,
    OFFSET,
    QUEUE,
    group_argument,
    ranges_of,
    topic_argument,
)
from ternmq.cli.problems import not_found
from ternmq.cli.shapes import details, plain, shown
from ternmq.client.client import Client
from ternmq.client.deadletters import FailedMessage

COLUMNS: Final = ("place", "attempts", "when", "key", "reason")
MOST: Final = 10_000
"""Rows that one request names."""


def rows_of(
    client: Client, topic: str, group: str, queue: int | None, *, dead: bool
) -> AsyncIterator[FailedMessage]:
    """Return dead letters, or what waits."""
    letters = client.deadletters
    return (letters.browse if dead else letters.waiting)(topic, group, queue=queue)


async def known(client: Client, topic: str, group: str, queue: int | None) -> int:
    """See that a group consumes a topic that has such a queue; return how many queues it has."""
    info = await client.admin.group(topic, group)
    if queue is not None and queue >= len(info.queues):
        raise not_found(f"topic {topic!r} has no queue {queue}: it has {len(info.queues)}")
    return len(info.queues)


def cells(one: FailedMessage) -> tuple[Cell, ...]:
    """Return the cells of ``COLUMNS``."""
    when = "held" if one.held else output.iso(one.when)
    key = one.message.key if one.message is not None else ""
    return (f"{one.queue}/{one.offset}", one.attempts, when, key, said(one))


def said(one: FailedMessage) -> str:
    """Return why it failed the last time, in the consumer's words or the broker's."""
    if not one.failures:
        return ""
    last = one.failures[-1]
    return last.reason or last.cause


def plain_failed(topic: str, group: str, one: FailedMessage) -> dict[str, object]:
    """Return a row that failed as JSON has it."""
    return {
        "topic": topic,
        "group": group,
        "queue": one.queue,
        "offset": one.offset,
        "attempts": one.attempts,
        "deliveries": one.deliveries,
        "when": one.when,
        "held": one.held,
        "reason": said(one),
        "failures": [
            {
                "time": output.of_us(failure.time_us),
                "attempt": failure.attempt,
                "outcome": failure.outcome,
                "cause": failure.cause,
                "reason": failure.reason,
            }
            for failure in one.failures
        ],
        "message": None if one.message is None else plain(shown(one.message)),
    }


def listing(about: str, *, dead: bool) -> click.Command:
    """Return the command ``list``: of dead letters, or of what waits."""

    @click.command("list", cls=Command, help=about)
    @topic_argument()
    @group_argument()
    @click.option("--queue", type=QUEUE, help="Only this queue.")
    @click.option(
        "-n", "--limit", type=COUNT, default=100, help="Most that are shown; default 100."
    )
    @output.ndjson_option
    @asks_broker
    async def list_(
        client: Client, topic: str, group: str, queue: int | None, limit: int, as_json: bool
    ) -> None:
        await _list_rows(client, topic, group, queue, limit, dead=dead, as_json=as_json)

    return list_


async def _list_rows(
    client: Client,
    topic: str,
    group: str,
    queue: int | None,
    limit: int,
    *,
    dead: bool,
    as_json: bool,
) -> None:
    await known(client, topic, group, queue)
    found: list[FailedMessage] = []
    more = False
    async for one in rows_of(client, topic, group, queue, dead=dead):
        if len(found) >= limit:
            more = True
            break
        found.append(one)
    if as_json:
        for one in found:
            output.json_line(plain_failed(topic, group, one))
    else:
        what = "dead letters" if dead else "messages that wait for a retry"
        output.table(COLUMNS, map(cells, found), f"group {group} has no {what} on {topic}")
    if more:
        output.note(f"these are the first {limit:,}; there are more (--limit)")


def showing(about: str, *, dead: bool) -> click.Command:
    """Return the command ``show``: of a dead letter, or of a message that waits."""

    @click.command("show", cls=Command, help=about)
    @topic_argument()
    @group_argument()
    @click.argument("offset", type=OFFSET)
    @click.option("--queue", type=QUEUE, default=0, help="The queue; default 0.")
    @output.json_option
    @asks_broker
    async def show(
        client: Client, topic: str, group: str, offset: int, queue: int, as_json: bool
    ) -> None:
        await _show_row(client, topic, group, offset, queue, dead=dead, as_json=as_json)

    return show


async def _show_row(
    client: Client,
    topic: str,
    group: str,
    offset: int,
    queue: int,
    *,
    dead: bool,
    as_json: bool,
) -> None:
    await known(client, topic, group, queue)
    found = None
    async for one in rows_of(client, topic, group, queue, dead=dead):
        if one.offset >= offset:
            found = one if one.offset == offset else None
            break
    if found is None:
        what = "is no dead letter" if dead else "does not wait for a retry"
        raise not_found(f"{topic}/{queue}/{offset} {what} of {group}")
    if as_json:
        output.document(plain_failed(topic, group, found))
        return
    output.details(
        [
            ("group", group),
            ("attempts", found.attempts),
            ("deliveries", found.deliveries),
            ("dead since" if dead else "next attempt",
             "held: `ternmq retry now` lets it go" if found.held else output.iso(found.when)),
        ]
    )  # fmt: skip
    click.echo()
    output.table(
        ("time", "attempt", "outcome", "cause", "reason"),
        [
            (output.iso(output.of_us(one.time_us)), one.attempt, one.outcome, one.cause, one.reason)
            for one in found.failures
        ],
    )
    click.echo()
    if found.message is None:
        output.note("its content is not kept any more")
    else:
        details(shown(found.message))


async def chosen(
    client: Client,
    topic: str,
    group: str,
    offsets: Sequence[str],
    queue: int | None,
    *,
    everything: bool,
    dead: bool,
) -> dict[int, list[int]]:
    """Return the offsets that are meant, by queue.

    Raises:
        click.UsageError: Both or neither are named; the queue is not clear.
    """
    context = click.get_current_context()
    if bool(offsets) is everything:
        raise click.UsageError("say either offsets or --all", context)
    count = await known(client, topic, group, queue)
    if not everything:
        if queue is None and count > 1:
            raise click.UsageError(f"{topic} has {count} queues: say which with --queue", context)
        return {queue or 0: ranges_of(offsets)}
    found: dict[int, list[int]] = {}
    async for one in rows_of(client, topic, group, queue, dead=dead):
        found.setdefault(one.queue, []).append(one.offset)
    return found


def pieces(offsets: list[int]) -> list[list[int]]:
    """Return offsets in lists that one request can name."""
    return [offsets[at : at + MOST] for at in range(0, len(offsets), MOST)]


def some(offsets: list[int]) -> str:
    """Return offsets as text, the first of them if they are many."""
    text = ", ".join(map(str, offsets[:10]))
    return f"{text} and {len(offsets) - 10:,} more" if len(offsets) > 10 else text
