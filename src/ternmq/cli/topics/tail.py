"""``ternmq tail``: the newest messages of a topic, without a group."""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import sys
from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import Final

import click

from ternmq.cli.commands import Command
from ternmq.cli.reach.arguments import topic_argument
from ternmq.cli.reach.connection import connection_told, reads_broker
from ternmq.cli.reach.parameters import OFFSET, QUEUE, WHEN, unchangeable
from ternmq.cli.terminal import output
from ternmq.cli.terminal.shapes import line
from ternmq.client.client import Client
from ternmq.client.consumer.delivery import Delivery
from ternmq.client.forms.messages import plain
from ternmq.model.errors import MessageNotFound, OffsetExpired, UnknownQueue

_COUNT: Final = 10
INDENT: Final = 4
"""Blanks before the further lines of a message that is folded."""


class Printer:
    """Prints messages: lines for people, JSON, or bare bodies."""

    def __init__(self, *, as_json: bool, raw: bool) -> None:
        self._as_json = as_json
        self._raw = raw

    def print(self, message: Delivery, **more: object) -> None:
        """Print a message; it is flushed at return."""
        if self._raw:
            sys.stdout.flush()
            sys.stdout.buffer.write(message.body + b"\n")
            sys.stdout.buffer.flush()
        elif self._as_json:
            output.json_line({**plain(message), **more})
        else:
            click.echo(output.folded(line(message), INDENT))


raw_option = click.option(
    "--raw", is_flag=True, help="Print only the bodies, unchanged, one per line."
)


@click.command(cls=Command)
@topic_argument()
@click.option(
    "-n", "--lines", "count", type=OFFSET, help="Number of messages to show. Default: 10."
)
@click.option(
    "--since",
    type=WHEN,
    metavar="TIME",
    help="Show all messages stored at or after this time: 10m (ago), 14:30, 2026-01-31T14:30Z.",
)
@click.option(
    "-f", "--follow", is_flag=True, help="Also print new messages as they arrive, until Ctrl-C."
)
@unchangeable(
    "--until",
    "tail shows messages up to the newest one; for a range of time use `ternmq message find TOPIC "
    "--since TIME --until TIME`",
)
@click.option("--queue", type=QUEUE, help="Only this queue.")
@raw_option
@output.ndjson_option
@reads_broker
async def tail(
    client: Client,
    topic: str,
    count: int | None,
    since: datetime | None,
    follow: bool,
    queue: int | None,
    raw: bool,
    as_json: bool,
) -> None:
    """Show the newest messages of a topic, oldest first.

    No message is acked, and no group is affected. Messages of several queues are shown in the order
    in which they were stored.
    """
    if count is not None and since is not None:
        raise click.UsageError("give only one of -n and --since", click.get_current_context())
    if raw and as_json:
        raise click.UsageError("give only one of --raw and --json", click.get_current_context())
    printer = Printer(as_json=as_json, raw=raw)
    infos = (await client.admin.topic(topic)).queues
    if queue is not None and queue >= len(infos):
        raise UnknownQueue(f"topic {topic!r} has no queue {queue}")
    numbers = range(len(infos)) if queue is None else (queue,)
    most = _COUNT if count is None else count
    start = since
    streams: list[AsyncIterator[Delivery]] = []
    total = 0
    for number in numbers:
        first, stop = infos[number].first, infos[number].next
        begin = max(first, stop - most) if start is None else start
        if start is None:
            total += stop - max(first, stop - most)
        streams.append(client.read(topic, start=begin, stop=stop, queue=number))
    dropped = max(0, total - most) if start is None else 0
    if not follow and all(one.next == one.first for one in infos):
        # Nothing would be read from empty queues, so check the right to read with a request.
        with contextlib.suppress(MessageNotFound, OffsetExpired):
            await client.get(topic, offset=infos[numbers[0]].next, queue=numbers[0])
    async for message in merged(streams):
        if dropped:
            dropped -= 1
        else:
            printer.print(message)
    if follow:
        ends = [infos[number].next for number in numbers]
        with connection_told():
            async for message in followed(client, topic, list(numbers), ends):
                printer.print(message)


async def merged(streams: Sequence[AsyncIterator[Delivery]]) -> AsyncIterator[Delivery]:
    """Merge the messages of queues in the order in which they were stored."""
    heads: list[tuple[datetime, int, int, Delivery]] = []

    async def advance(at: int) -> None:
        message = await anext(streams[at], None)
        if message is not None:
            heapq.heappush(heads, (message.stored_at, at, message.offset, message))

    for at in range(len(streams)):
        await advance(at)
    while heads:
        _, at, _, message = heapq.heappop(heads)
        yield message
        await advance(at)


async def followed(
    client: Client, topic: str, numbers: Sequence[int], starts: Sequence[int]
) -> AsyncIterator[Delivery]:
    """Yield new messages of queues as they arrive."""
    if len(numbers) == 1:
        async for message in client.read(topic, start=starts[0], queue=numbers[0], follow=True):
            yield message
        return
    come: asyncio.Queue[Delivery] = asyncio.Queue(1000)

    async def follow(number: int, start: int) -> None:
        async for message in client.read(topic, start=start, queue=number, follow=True):
            await come.put(message)

    tasks = [asyncio.ensure_future(follow(number, start))
             for number, start in zip(numbers, starts, strict=True)]  # fmt: skip
    try:
        while True:
            getting = asyncio.ensure_future(come.get())
            done, _ = await asyncio.wait({getting, *tasks}, return_when=asyncio.FIRST_COMPLETED)
            if getting in done:
                yield getting.result()
                continue
            getting.cancel()
            for task in done:
                task.result()
            return
    finally:
        for task in tasks:
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*tasks, return_exceptions=True)
