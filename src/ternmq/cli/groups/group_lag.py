"""``ternmq group lag``: how far groups are behind, once or continuously."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Final

import click

from ternmq.cli.commands import Command
from ternmq.cli.groups.hold import plain
from ternmq.cli.groups.hold import row_of as row_of_hold
from ternmq.cli.reach.arguments import group_argument, topic_argument
from ternmq.cli.reach.connection import administers
from ternmq.cli.reach.parameters import POSITIVE_DURATION
from ternmq.cli.terminal import output
from ternmq.cli.terminal.live import KEYS, TURN, Screen, Seen, every, watch
from ternmq.cli.terminal.output import Cell
from ternmq.cli.terminal.page import Page, Part, lay_out
from ternmq.client.admin.admin_client import AdminClient
from ternmq.client.forms import values
from ternmq.model.specs import Exhausted
from ternmq.model.words import counted, verb
from ternmq.wire.control import GroupInfo, HoldInfo, TopicInfo

COLUMNS: Final = (
    "topic", "group", "lag", "ready", "leased", "retrying", "dead", "members", "state",
)  # fmt: skip
RATES: Final = ("in/s", "out/s", "left")
_RUNNING: Final = "running"
_SPARE: Final = ("members", "state", "retrying", "leased", "dead", "ready")
_SPARE_OF_OTHERS: Final = ("members", "leased", "retrying", "dead", "ready", "state")
_INTERVAL: Final = timedelta(seconds=1)
_SPARE_OF_QUEUES: Final = ("floor", "cursor", "end", "retrying", "leased", "dead", "ready")


@dataclass(slots=True)
class Rates:
    """Changes per second since the previous look.

    A message comes in when it is stored, and goes out when it no longer waits: a consumer has it,
    or it was passed over. A message behind another of its ordering key waits all the time.
    """

    _before: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)
    _at: float = 0.0

    def of(
        self, groups: Iterable[GroupInfo], now: float
    ) -> dict[tuple[str, str], tuple[float, ...]]:
        """Return messages in and out a second, by topic and group."""
        found = {
            (one.topic, one.group): (
                sum([queue.end for queue in one.queues]),
                sum([queue.cursor - queue.ready for queue in one.queues]),
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
@click.option("--queues", "by_queue", is_flag=True, help="Show one row per queue.")
@click.option(
    "-w", "--watch", is_flag=True, help="Update the output, with rates, until q or Ctrl-C."
)
@click.option(
    "--interval",
    type=POSITIVE_DURATION,
    metavar="DURATION",
    help="Time between updates, with --watch. Default: 1s.",
)
@output.ndjson_option
@administers
async def lag(
    client: AdminClient,
    topic: str | None,
    group: str | None,
    by_queue: bool,
    watch: bool,
    interval: timedelta | None,
    as_json: bool,
) -> None:
    """Show how many messages each group has not consumed yet.

    Lag and ready both count messages that wait for a consumer. Lag: messages that were never
    delivered to the group. Ready: messages that the group has reached already and that no consumer
    holds, because they were returned, or wait behind another message of their ordering key; on an
    ordered topic, many messages of a backlog can be ready. Failed messages that wait for their
    retry, and dead letters, are counted separately. A retry that is due counts as retrying until a
    consumer fetches it, also in a group without members. Holds on the journal are listed with the
    bytes that they keep.

    With --watch, the column `left` estimates the time until no message waits: `done` if none waits,
    `grows` if the number increases, `unchanged` if it does not change. In a terminal, the groups
    with the most waiting messages come first, and the space bar shows the groups that do not fit.
    """
    if interval is not None and not watch:
        raise click.UsageError("--interval is for --watch", click.get_current_context())
    between = (interval or _INTERVAL).total_seconds()
    known: TopicInfo | None = None
    if topic is not None and group is not None:
        await client.admin.group(topic, group)
    elif topic is not None:
        known = await client.admin.topic(topic)
    rates = Rates()
    noted: set[tuple[str, str]] = set()
    with Screen(watch and not as_json) as screen:
        if screen.on:
            await _live(client, topic, group, screen, between, by_queue=by_queue)
            return
        async for turn in every(between if watch else None):
            found, holds = await _look(client, topic, group)
            at = datetime.fromtimestamp(time.time(), UTC)
            if as_json:
                for one in found:
                    output.json_line({"time": at, **_plain(one)})
                for hold in holds:
                    output.json_line({"time": at, **plain(hold)})
                continue
            speed = rates.of(found, time.monotonic())
            columns, rows = _table(found, holds, speed, by_queue=by_queue, watch=watch)
            if watch:
                stamp = values.iso(at)
                rows = [(stamp, *row) for row in rows]
                output.table(("time", *columns), rows, header=turn == 0)
            else:
                spare = _SPARE_OF_QUEUES if by_queue else spare_of(found)
                output.table(columns, rows, no_groups(client.admin.app, known), spare=spare)
            notes = _unasked(found)
            for name, text in notes.items():
                if name not in noted:
                    output.folded_note(text)
            noted = set(notes)


def no_groups(app: str, topic: TopicInfo | None) -> str:
    """Return the text for an empty list of groups, of all topics or of one."""
    if topic is not None and (topic.spec.broadcast or topic.instances):
        name, count = topic.spec.name, topic.instances
        has = f"topic {name} has no groups, but {counted(count, 'broadcast instance')}"
        if not count:
            return f"{name} is a broadcast topic: its consumers are instances, and it has none now"
        return f"{has}; `ternmq group list {name} --broadcast` lists them"
    return f"{output.none_of('groups', app)}; a consumer creates one, or `ternmq group create`"


async def _live(
    client: AdminClient,
    topic: str | None,
    group: str | None,
    screen: Screen,
    seconds: float,
    *,
    by_queue: bool,
) -> None:
    """Draw until q or Ctrl-C, the largest backlogs first."""
    rates = Rates()

    async def look() -> Page:
        found, holds = await _look(client, topic, group)
        speed = rates.of(found, time.monotonic())
        found = by_backlog(found, speed)
        columns, rows = _table(found, holds, speed, by_queue=by_queue, watch=True)
        part = Part(columns, rows, _SPARE_OF_QUEUES if by_queue else spare_of(found))
        below = f"{values.iso(datetime.fromtimestamp(time.time(), UTC))}  {KEYS}"
        first, *others = list(_unasked(found).values()) or [""]
        more = f" ({counted(len(others), 'more such group')})" if others else ""
        return Page((), (part,), below, note=first + more, turn=TURN)

    def draw(seen: Seen[Page], turned: int) -> None:
        page = replace(seen.view, stale=seen.below, turned=turned)
        screen.draw(lay_out(page, screen.size, fill=False))

    await watch(look, seconds, draw)


def _unasked(groups: Iterable[GroupInfo]) -> dict[tuple[str, str], str]:
    """Return notes on groups without members that have retries: nobody asks for those due."""
    found: dict[tuple[str, str], str] = {}
    for one in groups:
        retrying = sum([queue.waiting for queue in one.queues])
        if retrying and not one.members:
            found[one.topic, one.group] = (
                f"group {one.group} on {one.topic} has no members: its "
                f"{counted(retrying, 'retrying message')} {verb(retrying, 'stays', 'stay')} "
                "undelivered until a consumer asks for messages, even if the retry is due"
            )
            if one.spec.retry.exhausted is Exhausted.HOLD:
                found[one.topic, one.group] += "; held messages also need `ternmq retry now`"
    return found


async def _look(
    client: AdminClient, topic: str | None, group: str | None
) -> tuple[list[GroupInfo], list[HoldInfo]]:
    """Return groups, and holds if no topic is named."""
    if topic is not None:
        return await client.admin.groups(topic, group), []
    found = await client.admin.standing(group)
    return found.groups, found.holds


def _table(
    groups: list[GroupInfo],
    holds: list[HoldInfo],
    speed: dict[tuple[str, str], tuple[float, ...]],
    *,
    by_queue: bool,
    watch: bool,
) -> tuple[tuple[str, ...], list[tuple[Cell, ...]]]:
    if by_queue:
        return ("topic", "group", "queue", "lag", "ready", "leased", "retrying", "dead", "floor",
                "cursor", "end"), [
            (one.topic, one.group, at, queue.lag, queue.ready, queue.leased, queue.waiting,
             queue.dead, queue.floor, queue.cursor, queue.end)
            for one in groups
            for at, queue in enumerate(one.queues)
        ]  # fmt: skip
    rows: list[tuple[Cell, ...]] = []
    for one in groups:
        row = row_of(one)
        if watch:
            row = (*row, *speed_of(one, speed.get((one.topic, one.group))))
        rows.append(row)
    columns = (*COLUMNS, *RATES) if watch else COLUMNS
    blank = (None,) * (len(columns) - len(COLUMNS))
    rows += [(*row_of_hold(hold), *blank) for hold in holds]
    return columns, rows


def row_of(one: GroupInfo) -> tuple[Cell, ...]:
    """Return the cells of ``COLUMNS``."""
    queues = one.queues
    return (
        one.topic,
        one.group,
        sum([queue.lag for queue in queues]),
        sum([queue.ready for queue in queues]),
        sum([queue.leased for queue in queues]),
        sum([queue.waiting for queue in queues]),
        sum([queue.dead for queue in queues]),
        len(one.members),
        "paused" if one.spec.paused else _RUNNING,
    )


def spare_of(groups: Sequence[GroupInfo]) -> Sequence[str]:
    """Return the columns that are dropped on a narrow terminal, the first one first.

    The state is dropped early only if it says nothing: all groups are running.
    """
    states = {row_of(one)[-1] for one in groups}
    return _SPARE if states <= {_RUNNING} else _SPARE_OF_OTHERS


def waiting_of(one: GroupInfo) -> int:
    """Return how many messages wait for a consumer; without members, no retry is asked for."""
    waiting = sum([queue.lag + queue.ready for queue in one.queues])
    return waiting if one.members else waiting + sum([queue.waiting for queue in one.queues])


def by_backlog(
    groups: Iterable[GroupInfo], speed: Mapping[tuple[str, str], tuple[float, ...]]
) -> list[GroupInfo]:
    """Return groups, those with the most waiting messages first; of equal ones the fastest."""

    def place(one: GroupInfo) -> tuple[float, float, str, str]:
        _, out = speed.get((one.topic, one.group), (0.0, 0.0))
        return -waiting_of(one), -out, one.topic, one.group

    return sorted(groups, key=place)


def speed_of(one: GroupInfo, speed: tuple[float, ...] | None) -> tuple[Cell, ...]:
    """Return messages in and out per second, and how long the waiting ones last at these rates."""
    if speed is None:
        return (None, None, None)
    into, out = speed
    gain = out - into
    waits = waiting_of(one)
    left = "done" if not waits else output.span(waits / gain) if gain > 0 else "grows"
    if waits and gain == 0:
        left = "unchanged"
    return (into, out, left)


def _plain(one: GroupInfo) -> dict[str, object]:
    row = row_of(one)
    told = dict(zip(COLUMNS, row, strict=True))
    return {
        **told,
        "queues": [
            {"queue": at, "lag": queue.lag, "ready": queue.ready, "leased": queue.leased,
             "retrying": queue.waiting, "dead": queue.dead, "floor": queue.floor,
             "cursor": queue.cursor, "end": queue.end}
            for at, queue in enumerate(one.queues)
        ],
    }  # fmt: skip
