"""``ternmq bench``: a first impression of a broker, with one client.

It measures one Python process that shares its machine with other work. The time of a send is from
the call to the answer; a time of ``latency`` starts when a message was due to be sent, so that a
broker that stalls affects all messages that were due meanwhile, not only a few.
"""

from __future__ import annotations

import asyncio
import secrets
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import click

from ternmq.cli.commands import Group
from ternmq.cli.reach.connection import asks_broker
from ternmq.cli.reach.parameters import NAME, POSITIVE_DURATION, SIZE, Whole
from ternmq.cli.terminal import output, percentiles
from ternmq.cli.terminal.exits import ExitCode, Failed
from ternmq.cli.terminal.output import Cell
from ternmq.client.client import Client
from ternmq.model.errors import Forbidden, TernMQError
from ternmq.model.specs import Durability
from ternmq.model.words import counted
from ternmq.wire.commands import Command
from ternmq.wire.control import RightsQuestion

if TYPE_CHECKING:
    from collections.abc import Callable

_NOT: Final = (
    "This measures one Python client on this machine, beside everything else that runs here. It is "
    "neither the limit of the broker nor a promise.\nThe folder bench/ of the source has careful "
    "measurements, with their spread."
)
_MADE: Final = "bench-"
"""Beginning of the names of topics and groups that are made for a run."""
_PATTERN: Final = f"{_MADE}*"
_FILL: Final = 5000
_MOST_BYTES: Final = 16 << 20
_PATIENCE_S: Final = 30.0
_UNDER_WAY_S: Final = 5.0


@click.group(cls=Group)
def bench() -> None:
    """Run small benchmarks with one client.

    They show what to expect on this machine, within a factor of two or so.
    """


def _sane(context: click.Context, option: click.Parameter, size: int) -> int:
    if size > _MOST_BYTES:
        raise click.BadParameter("a body has at most 16MiB", context, option)
    return size


def _options(function: Any) -> Any:
    for option in (
        output.json_option,
        click.option("--durability", type=click.Choice([one.value for one in Durability]),
                     default="normal", help="Durability of the temporary topic. Default: normal."),
        click.option("--topic", type=NAME,
                     help="Topic to use; the messages stay in it. Default: a temporary topic."),
        click.option("--size", type=SIZE, default="1KiB", metavar="SIZE", callback=_sane,
                     help="Size of each body, at most 16MiB. Default: 1KiB."),
    ):  # fmt: skip
        function = option(function)
    return function


@bench.command()
@click.option(
    "--duration",
    type=POSITIVE_DURATION,
    default="5s",
    metavar="DURATION",
    help="Duration of the measurement. Default: 5s.",
)
@click.option(
    "--in-flight",
    type=Whole(1, 10_000),
    default=256,
    help="Maximum number of unanswered sends. Default: 256.",
)
@_options
@asks_broker
async def send(
    client: Client,
    duration: timedelta,
    in_flight: int,
    size: int,
    topic: str | None,
    durability: str,
    as_json: bool,
) -> None:
    """Measure sends of single messages, each answered when it is stored."""
    body = secrets.token_bytes(size)
    times: list[float] = []
    async with _topic(client, topic, durability, groups=False) as name:
        await client.send(name, body)
        total = duration.total_seconds()
        began = time.perf_counter()
        until = began + total

        async def one_after_another() -> None:
            start = time.perf_counter()
            while True:  # at least once, even on a slow machine
                await client.send(name, body)
                now = time.perf_counter()
                times.append(now - start)
                if now >= until:
                    return
                start = now

        with _progress("sending", total) as advance:
            tasks = [asyncio.ensure_future(one_after_another()) for _ in range(in_flight)]
            try:
                while not all(task.done() for task in tasks):
                    await asyncio.wait(tasks, timeout=0.2)
                    advance(min(total, time.perf_counter() - began))
                await asyncio.gather(*tasks)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
        took = time.perf_counter() - began
    _tell("send", len(times), took, size, times, {"in flight": in_flight}, as_json=as_json)


@bench.command()
@click.option(
    "--count",
    type=Whole(1, 10_000_000),
    default=50_000,
    help="Number of messages. Default: 50000.",
)
@click.option(
    "--batch",
    type=Whole(1, 10_000),
    default=500,
    help="Maximum number of messages per pull. Default: 500.",
)
@_options
@asks_broker
async def consume(
    client: Client,
    count: int,
    batch: int,
    size: int,
    topic: str | None,
    durability: str,
    as_json: bool,
) -> None:
    """Measure pulls; each batch is acked before the next pull."""
    body = secrets.token_bytes(size)
    times: list[float] = []
    group = f"{_MADE}{secrets.token_hex(4)}"
    async with _topic(client, topic, durability, groups=True) as name:
        await client.admin.create_group(name, group, start="latest" if topic else "earliest")
        try:
            with _progress("storing", count) as advance:
                for at in range(0, count, _FILL):
                    await client.send_many(name, [body] * min(_FILL, count - at))
                    advance(at + min(_FILL, count - at))
            got = 0
            began = time.perf_counter()
            with _progress("consuming", count) as advance:
                while got < count:
                    start = time.perf_counter()
                    found = await client.pull(name, group=group, max_messages=batch, wait=5)
                    got += len(found)
                    if not found:
                        break
                    _ = found.bodies
                    await found.ack()
                    times.append(time.perf_counter() - start)
                    advance(got)
            took = time.perf_counter() - began
        finally:
            with suppress(TernMQError):
                await client.admin.delete_group(name, group)
    _tell("consume", got, took, size, times, {"pulls of": batch}, as_json=as_json)


@bench.command()
@click.option(
    "--rate",
    type=Whole(1, 100_000),
    default=500,
    help="Messages per second. Default: 500.",
)
@click.option(
    "--duration",
    type=POSITIVE_DURATION,
    default="5s",
    metavar="DURATION",
    help="Duration of the measurement. Default: 5s.",
)
@_options
@asks_broker
async def latency(
    client: Client,
    rate: int,
    duration: timedelta,
    size: int,
    topic: str | None,
    durability: str,
    as_json: bool,
) -> None:
    """Measure the latency from producer to consumer, at a steady rate."""
    total = max(1, int(rate * duration.total_seconds()))
    mark = secrets.token_bytes(8)
    padding = bytes(max(0, size - 16))
    times: list[float] = []
    group = f"{_MADE}{secrets.token_hex(4)}"
    due: list[float] = []
    arrived = asyncio.Event()

    async def receive(name: str) -> None:
        async with client.consume(name, group=group) as deliveries:
            async for delivery in deliveries:
                now = time.perf_counter()
                body = delivery.body
                async with delivery.process():
                    if body[:8] == mark:
                        times.append(now - due[int.from_bytes(body[8:16])])
                if len(times) >= total:
                    arrived.set()

    async with _topic(client, topic, durability, groups=True) as name:
        await client.admin.create_group(name, group, start="latest" if topic else "earliest")
        receiver = asyncio.ensure_future(receive(name))
        began = time.perf_counter()
        try:
            with _progress("sending", total) as advance:
                for at in range(total):
                    due.append(began + at / rate)
                    wait = due[at] - time.perf_counter()
                    if wait > 0 or at % 100 == 0:
                        await asyncio.sleep(max(0.0, wait))
                        advance(at)
                    client.send_soon(name, mark + at.to_bytes(8) + padding)
                await client.flush()
                done = asyncio.ensure_future(arrived.wait())
                await asyncio.wait({done, receiver}, timeout=_PATIENCE_S,
                                   return_when=asyncio.FIRST_COMPLETED)  # fmt: skip
                done.cancel()
            took = time.perf_counter() - began
        finally:
            receiver.cancel()
            with suppress(asyncio.CancelledError):
                await receiver
            with suppress(TernMQError):
                await client.admin.delete_group(name, group)
    _tell("latency", len(times), took, size, times, {"asked for": f"{rate}/s"}, as_json=as_json)


@asynccontextmanager
async def _topic(
    client: Client, name: str | None, durability: str, *, groups: bool
) -> AsyncIterator[str]:
    """Yield the named topic, or a new one that is deleted afterwards; check rights before.

    ``groups``: a group is made on it and deleted, too.
    """
    if name is not None:
        info = await client.admin.topic(name)
        if info.spec.ordered:
            raise Failed(
                f"topic {name!r} is ordered, and bench sends no ordering keys: name another "
                f"topic, or leave out --topic",
                ExitCode.USAGE,
            )
        await _check_rights(client, name, groups=groups)
        yield name
        return
    await _check_rights(client, None, groups=groups)
    made = f"{_MADE}{secrets.token_hex(4)}"
    await client.admin.create_topic(made, durability=durability)
    try:
        yield made
    finally:
        # A send that arrives after the deletion could create the topic again.
        with suppress(TernMQError):
            await client.flush(_UNDER_WAY_S)
        with suppress(TernMQError):
            await client.admin.delete_topic(made)


async def _check_rights(client: Client, topic: str | None, *, groups: bool) -> None:
    """Check the rights for everything that a bench does, before it makes anything.

    The broker's own refusals would suggest a grant for the names of this run, which the next run
    does not use.

    Raises:
        Failed: A right is missing; the text names grants for the names of all runs.
        Forbidden: The app is denied one of them.
    """
    name = topic or f"{_MADE}0"
    asked: dict[str, RightsQuestion] = {}
    if topic is None:
        asked[f"manage:{_PATTERN}"] = RightsQuestion(command=Command.TOPIC_CREATE, topic=name)
    asked[f"produce:{topic or _PATTERN}"] = RightsQuestion(command=Command.SEND, topic=name)
    if groups:
        place = _PATTERN if topic is None else f"{topic}:{_PATTERN}"
        for right, command in (("consume", Command.PULL), ("manage", Command.GROUP_DELETE)):
            question = RightsQuestion(command=command, topic=name, group=f"{_MADE}0")
            asked.setdefault(f"{right}:{place}", question)
    refusals = await client.admin.refusals(asked.values())
    lacking = [(grant, text) for grant, text in zip(asked, refusals or (), strict=False) if text]
    if not lacking:
        return
    for _, text in lacking:
        if "--grant" not in text:  # a grant would not help: the app is denied it
            raise Forbidden(text.replace(f"'{_MADE}0'", f"'{_PATTERN}'"))
    grants = " ".join([f"--grant '{grant}'" for grant, _ in lacking])
    app = client.admin.app
    raise Failed(
        f"app {app!r} lacks {counted(len(lacking), 'right')} for this benchmark, which creates "
        f"topics and groups whose names begin with {_MADE}: "
        f"`ternmq app set {app} {grants}` gives {'it' if len(lacking) == 1 else 'them'}",
        ExitCode.NOT_ALLOWED,
    )


@contextmanager
def _progress(what: str, total: float) -> Iterator[Callable[[float], None]]:
    """Show the progress, in a terminal."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:.0f} %"),
               TimeRemainingColumn())  # fmt: skip
    with Progress(*columns, console=output.console(error=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.update(task, completed=done)


def _tell(
    what: str,
    count: int,
    took: float,
    size: int,
    times: list[float],
    how: dict[str, int | str],
    *,
    as_json: bool,
) -> None:
    rate = count / took if took else 0.0
    if as_json:
        output.document(
            {
                "bench": what,
                "messages": count,
                "seconds": took,
                "messages_per_s": rate,
                "bytes_per_s": rate * size,
                "body_bytes": size,
                **{name.replace(" ", "_"): value for name, value in how.items()},
                "times": percentiles.plain(times),
                "note": _NOT.replace("\n", " "),
            }
        )
        return
    each = {"send": "a send", "consume": "a pull with its ack", "latency": "from due to received"}
    pairs: list[tuple[str, Cell]] = [
        ("messages", f"{count:,} of {output.size(size)} in {output.span(took)}"),
        ("rate", f"{output.number(rate)}/s, {output.size(rate * size)}/s"),
        *how.items(),
        ("times of", each[what]),
        *percentiles.described(times),
    ]
    output.details(pairs)
    output.note(_NOT)
