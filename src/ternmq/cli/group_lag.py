"""``ternmq group lag``: how far groups are behind, once or as it changes."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

import click

from ternmq.cli import output
from ternmq.cli.commands import Command
from ternmq.cli.connection import asks_broker
from ternmq.cli.hold import plain
from ternmq.cli.hold import row_of as row_of_hold
from ternmq.cli.live import Screen, every
from ternmq.cli.output import Cell
from ternmq.cli.parameters import POSITIVE_DURATION, group_argument, topic_argument
from ternmq.client.client import Client
from ternmq.wire.control import GroupInfo, HoldInfo

COLUMNS: Final = ("topic", "group", "lag", "leased", "retrying", "dead", "members", "state")
RATES: Final = ("in/s", "out/s", "left")


@dataclass(slots=True)
class Rates:
    """What changed since the look before, a second."""

    _before: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)
    _at: float = 0.0

    def of(
        self, groups: Iterable[GroupInfo], now: float
    ) -> dict[tuple[str, str], tuple[float, ...]]:
        """Return messages in and out a second, by topic and group."""
        found = {
            (one.topic, one.group): (
                sum([queue.end for queue in one.queues]),
                sum([queue.cursor for queue in one.queues]),
            )
            for one in groups
        }
        passed, before = now - self._at, self._before
        self._before, self._at = found, now
        if not before or passed <= 0:
            return {}
        return {
            name: tuple(max(0, one - two) / passed
                        for one, two in zip(found[name], before[name], strict=True))
            for name in found if name in before
        }  # fmt: skip


@click.command(cls=Command)
@topic_argument(required=False)
@group_argument(required=False)
@click.option("--queues", "by_queue", is_flag=True, help="One row for each queue.")
@click.option("-w", "--watch", is_flag=True, help="Go on, with rates, until Ctrl-C.")
@click.option(
    "--interval",
    type=POSITIVE_DURATION,
    default="1s",
    metavar="DURATION",
    help="Time between two looks; default 1s.",
)
@output.ndjson_option
@asks_broker
async def lag(
    client: Client,
    topic: str | None,
    group: str | None,
    by_queue: bool,
    watch: bool,
    interval: timedelta,
    as_json: bool,
) -> None:
    """Show how many messages groups have before them.

    Lag counts what was never handed out; what failed and waits for a retry, and dead letters, are
    counted aside. Holds on the journal are shown with the bytes that they keep.
    """
    if topic is not None:
        await client.admin.topic(topic)
    rates = Rates()
    with Screen(watch and not as_json) as screen:
        async for turn in every(interval.total_seconds() if watch else None):
            found, holds = await _look(client, topic, group)
            at = datetime.fromtimestamp(time.time(), UTC)
            if as_json:
                for one in found:
                    output.json_line({"time": at, **_plain(one)})
                for hold in holds:
                    output.json_line({"time": at, **plain(hold)})
                continue
            speed = rates.of(found, time.monotonic())
            columns, rows = _table(found, speed, by_queue=by_queue, watch=watch)
            if not by_queue:
                blank = (None,) * (len(columns) - len(COLUMNS))
                rows += [(*row_of_hold(hold), *blank) for hold in holds]
            if screen.on:
                screen.show(columns, rows, f"{output.iso(at)}, Ctrl-C ends it")
            elif watch:
                stamp = output.iso(at)
                rows = [(stamp, *row) for row in rows]
                output.table(("time", *columns), rows, header=turn == 0)
            else:
                output.table(columns, rows, "no groups; consuming makes one")


async def _look(
    client: Client, topic: str | None, group: str | None
) -> tuple[list[GroupInfo], list[HoldInfo]]:
    """Return groups, and the holds where no topic is named."""
    if topic is not None:
        return await client.admin.groups(topic, group), []
    found = await client.admin.standing(group)
    return found.groups, found.holds


def _table(
    groups: list[GroupInfo],
    speed: dict[tuple[str, str], tuple[float, ...]],
    *,
    by_queue: bool,
    watch: bool,
) -> tuple[tuple[str, ...], list[tuple[Cell, ...]]]:
    if by_queue:
        columns = ("topic", "group", "queue", "lag", "leased", "retrying", "dead", "floor",
                   "cursor", "end")  # fmt: skip
        return columns, [
            (one.topic, one.group, at, queue.lag, queue.leased, queue.ready + queue.waiting,
             queue.dead, queue.floor, queue.cursor, queue.end)
            for one in groups
            for at, queue in enumerate(one.queues)
        ]  # fmt: skip
    rows: list[tuple[Cell, ...]] = []
    for one in groups:
        row = row_of(one)
        if watch:
            row = (*row, *_speed(row[2], speed.get((one.topic, one.group))))
        rows.append(row)
    return (*COLUMNS, *RATES) if watch else COLUMNS, rows


def row_of(one: GroupInfo) -> tuple[Cell, ...]:
    """Return the cells of ``COLUMNS``."""
    queues = one.queues
    return (
        one.topic,
        one.group,
        sum([queue.lag for queue in queues]),
        sum([queue.leased for queue in queues]),
        sum([queue.ready + queue.waiting for queue in queues]),
        sum([queue.dead for queue in queues]),
        len(one.members),
        "paused" if one.spec.paused else "running",
    )


def _speed(lag: Cell, speed: tuple[float, ...] | None) -> tuple[Cell, ...]:
    """Return messages in and out a second, and how long the lag lasts at that."""
    if speed is None or not isinstance(lag, int):
        return (None, None, None)
    into, out = speed
    gain = out - into
    left = "done" if not lag else output.span(lag / gain) if gain > 0 else "grows"
    if lag and gain == 0:
        left = "stands"
    return (into, out, left)


def _plain(one: GroupInfo) -> dict[str, object]:
    row = row_of(one)
    told = dict(zip(COLUMNS, row, strict=True))
    return {
        **told,
        "queues": [
            {"queue": at, "lag": queue.lag, "leased": queue.leased, "floor": queue.floor,
             "cursor": queue.cursor, "end": queue.end}
            for at, queue in enumerate(one.queues)
        ],
    }  # fmt: skip
