"""``ternmq top``: live rates, topics, groups and connections."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

import click

from ternmq.cli.broker.broker import Numbers
from ternmq.cli.commands import Command
from ternmq.cli.groups.group_lag import COLUMNS, Rates, by_backlog, row_of, spare_of
from ternmq.cli.reach.connection import asks_broker
from ternmq.cli.reach.parameters import COUNT, POSITIVE_DURATION
from ternmq.cli.terminal import output
from ternmq.cli.terminal.live import KEYS, TURN, Screen, Seen, every, watch
from ternmq.cli.terminal.output import Cell
from ternmq.cli.terminal.page import Page, Part, lay_out
from ternmq.client.client import Client
from ternmq.client.forms import values
from ternmq.client.forms.topics import messages_kept
from ternmq.model.words import counted
from ternmq.wire.control import GroupInfo, Status, TopicInfo

_COUNTERS: Final = {
    "stored": ("messages_sent_total", "messages_committed_total"),
    "delivered": ("messages_delivered_total",),
    "in": ("received_bytes_total",),
    "out": ("written_bytes_total",),
    "syncs": ("syncs_total",),
    "sync_s": ("sync_seconds_total",),
    "cpu": ("cpu_seconds",),
}
_TOPIC_COLUMNS: Final = ("topic", "queues", "messages", "in/s")
_GROUP_COLUMNS: Final = (*COLUMNS[:7], "out/s", *COLUMNS[7:])


@dataclass(slots=True)
class View:
    """The state of a broker, with rates since the previous look."""

    at: datetime
    status: Status
    topics: list[TopicInfo]
    groups: list[GroupInfo]
    rates: dict[str, float]
    topic_rates: dict[str, float]
    group_rates: dict[tuple[str, str], tuple[float, ...]]
    delivered: float


@dataclass(slots=True)
class Watcher:
    """Reads the state of a broker repeatedly."""

    client: Client
    _counts: dict[str, float] = field(default_factory=dict)
    _ends: dict[str, int] = field(default_factory=dict)
    _groups: Rates = field(default_factory=Rates)
    _at: float = 0.0

    async def look(self) -> View:
        """Read everything from the broker."""
        admin = self.client.admin
        status, topics, groups = await asyncio.gather(
            admin.status(), admin.topics(), admin.groups()
        )
        now = time.monotonic()
        read = Numbers(status.metrics)
        counts = {name: sum(map(read, metrics)) for name, metrics in _COUNTERS.items()}
        ends = {one.spec.name: sum([queue.next for queue in one.queues]) for one in topics}
        passed = now - self._at
        rates: dict[str, float] = {}
        topic_rates: dict[str, float] = {}
        if self._counts and passed > 0:
            rates = {name: max(0.0, counts[name] - self._counts[name]) / passed for name in counts}
            topic_rates = {
                name: max(0, end - self._ends[name]) / passed
                for name, end in ends.items()
                if name in self._ends
            }
        group_rates = self._groups.of(groups, now)
        self._counts, self._ends, self._at = counts, ends, now
        return View(
            datetime.fromtimestamp(time.time(), UTC), status, topics, groups, rates, topic_rates,
            group_rates, counts["delivered"],
        )  # fmt: skip


@click.command(cls=Command)
@click.option(
    "--interval",
    type=POSITIVE_DURATION,
    default="1s",
    metavar="DURATION",
    help="Time between updates. Default: 1s.",
)
@click.option("-n", "--count", type=COUNT, help="Stop after this number of updates.")
@output.ndjson_option
@asks_broker
async def top(client: Client, interval: timedelta, count: int | None, as_json: bool) -> None:
    """Watch rates, topics, groups and connections. Press q or Ctrl-C to quit.

    If the terminal has too few lines for all topics and groups, the space bar shows the next ones.
    "Longest loop delay" is the maximum since the broker started, or since /metrics was last read.

    If the output is not a terminal, the command reads the figures twice and prints tables;
    --count and --interval change this.
    """
    watcher = Watcher(client)
    with Screen(not as_json, whole=True) as screen:
        if screen.on:

            def draw(seen: Seen[View], turned: int) -> None:
                screen.draw(lay_out(_page(seen.view, seen.below, turned), screen.size))

            await watch(watcher.look, interval.total_seconds(), draw, count)
            return
        looks = count if count is not None else None if as_json else 2
        async for turn in every(interval.total_seconds()):
            view = await watcher.look()
            if as_json:
                output.json_line(_plain(view))
            elif turn + 1 == looks or turn:
                _print(view)
            if looks is not None and turn + 1 >= looks:
                return


def _lines(view: View) -> list[tuple[str, Cell]]:
    read, rates = Numbers(view.status.metrics), view.rates

    def rate(name: str) -> str:
        return f"{output.number(rates[name])}/s" if rates else output.NOTHING

    def speed(name: str) -> str:
        return f"{output.size(rates[name])}/s" if rates else output.NOTHING

    syncs = rates.get("syncs", 0.0)
    sync = output.span(rates["sync_s"] / syncs) if syncs else output.NOTHING
    cpu = f"{rates['cpu']:.0%}" if rates else output.NOTHING
    status = view.status
    kept = read("journal_durable") - read("journal_first")
    up = output.span(status.uptime_us / 1e6)
    worst = output.span(read("loop_lag_seconds"))
    room, held = output.size(read("journal_room")), output.size(read("resident_bytes"))
    connections = counted(int(read("connections")), "connection")
    return [
        ("broker", f"{status.broker} {status.version}, up {up}, epoch {status.epoch}"),
        ("messages", f"{rate('stored')} stored, {rate('delivered')} delivered"),
        ("traffic", f"{speed('in')} in, {speed('out')} out, {connections}"),
        (
            "disk",
            f"{rate('syncs')} syncs, {sync} each, journal {output.size(kept)}, room for {room}",
        ),
        ("process", f"{cpu} cpu, {held} memory, longest loop delay {worst}"),
    ]


def _topic_rows(view: View) -> list[tuple[Cell, ...]]:
    """Return the topics, those with the highest rate first."""
    rows: list[tuple[Cell, ...]] = [
        (one.spec.name, one.spec.queues, messages_kept(one), view.topic_rates.get(one.spec.name))
        for one in view.topics
    ]
    return sorted(rows, key=lambda row: (-(_float(row[3])), str(row[0])))


def _group_rows(view: View) -> list[tuple[Cell, ...]]:
    """Return the groups, those with the most waiting messages first."""
    rows: list[tuple[Cell, ...]] = []
    for one in by_backlog(view.groups, view.group_rates):
        row = row_of(one)
        speed = view.group_rates.get((one.topic, one.group))
        rows.append((*row[:7], speed[1] if speed else None, *row[7:]))
    return rows


def _float(cell: Cell) -> float:
    return float(cell) if isinstance(cell, int | float) else 0.0


def _page(view: View, stale: str, turned: int) -> Page:
    """Return the page for the screen, after ``turned`` turns of the page."""
    below = f"{values.iso(view.at)}  {KEYS}"
    return Page(
        _lines(view),
        (
            Part(_TOPIC_COLUMNS, _topic_rows(view)),
            Part(_GROUP_COLUMNS, _group_rows(view), spare_of(view.groups)),
        ),
        below,
        stale,
        turned,
        turn=TURN,
    )


def _print(view: View) -> None:
    output.details([("time", values.iso(view.at)), *_lines(view)])
    click.echo()
    output.table(_TOPIC_COLUMNS, _topic_rows(view))
    click.echo()
    output.table(_GROUP_COLUMNS, _group_rows(view))


def _plain(view: View) -> dict[str, object]:
    def named(columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> list[dict[str, Cell]]:
        keys_ = [name.replace("/s", "_per_s") for name in columns]
        return [dict(zip(keys_, row, strict=True)) for row in rows]

    read = Numbers(view.status.metrics)
    return {
        "time": view.at,
        "broker": view.status.broker,
        "epoch": view.status.epoch,
        "uptime_s": view.status.uptime_us / 1e6,
        "connections": int(read("connections")),
        "rates": {f"{name}_per_s": value for name, value in view.rates.items()},
        "topics": named(_TOPIC_COLUMNS, _topic_rows(view)),
        "groups": named(_GROUP_COLUMNS, _group_rows(view)),
    }
