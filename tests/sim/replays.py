"""Operators that hand rows to a group again, and look at once whether just these are ready."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from ternmq.broker.delivery.replays import ReplayPlan
from ternmq.broker.gate.replies import DoneReply, ValueReply
from ternmq.broker.group.keyorder import KeyOrder
from ternmq.broker.group.progress import Progress
from ternmq.broker.group.queueorder import QueueOrder
from ternmq.model.errors import TernMQError
from ternmq.record.fact.facts import Span
from tests.sim.history import GroupKey
from tests.sim.operators import Operator
from tests.sim.reference import DEAD, LEASED, READY, rows_of
from tests.sim.tape import Violation

Command = Callable[[bool], DoneReply]
"""A replay or redrive, dry or not."""
Rows = dict[int, tuple[object, ...]]


class Replayer(Operator):
    """Asks for replays and redrives, dry at times."""

    def _replay(self) -> None:
        at = self._queue()
        if at is None:
            return
        chance = self.world.chance
        key, group, next_ = at
        low = max(0, group.cursor - self.back) if chance.random() < 0.8 else 0
        spans = []
        for _ in range(chance.randint(1, 3)):
            start = chance.randint(low, max(low, next_))
            spans.append((start, start + chance.randint(1, 6)))
        self._span(key, spans)

    def _ahead(self) -> None:
        """Replay what was settled ahead of the cursor, if anything was."""
        at = self._queue()
        if at is not None and at[1].ahead:
            first = min(at[1].ahead)
            self._span(at[0], [(max(0, first - 2), first + self.world.chance.randint(1, 3))])

    def _doomed(self) -> None:
        """Replay a row that stands in the segment which retention is about to remove, most of all
        when everything that was owed was looked at."""
        at = self._queue()
        world = self.world
        moving = world.started.upkeep.moving
        looked = moving._looked_end > 0
        if at is None or not moving._active or world.chance.random() < (0.2 if looked else 0.7):
            return
        key, group, _ = at
        journal = world.broker.journal
        rows = world.reference.topics[key[1]].queues[key[2]]
        end = journal.first + journal.segment_size
        doomed = [
            offset
            for offset, row in enumerate(rows[: group.cursor])
            if journal.first <= row.position < end and offset not in group.rows
        ]
        if doomed:
            world.reached("replayed out of a segment that is being emptied")
            if looked and rows[group.cursor - 1].position >= end:
                world.reached("replayed to a group that had nothing left in a segment")
            offset = world.chance.choice(doomed)
            self._span(key, [(offset, offset + 1)])

    def _span(self, key: GroupKey, spans: list[Span]) -> None:
        world = self.world
        asked = {offset for start, stop in spans for offset in range(start, stop)}
        self._ask(key, asked, lambda dry_run: world.broker.operating.replay(
            world.now_us(), 0, self.topic, self.group, {key[2]: spans}, dry_run=dry_run
        ), "replay")  # fmt: skip

    def _redrive(self) -> None:
        at = self._queue()
        if at is None:
            return
        world, chance = self.world, self.world.chance
        key, group, _ = at
        dead = sorted(one for one, row in group.rows.items() if row.state == DEAD)
        if len(dead) < 3 and chance.random() < 0.6:
            return  # let more come, so that some are apart from each other
        named = [one for one in dead if chance.random() < 0.7]
        if group.cursor and chance.random() < 0.3:
            named.append(chance.randrange(group.cursor))
        if named:
            self._ask(key, set(named), lambda dry_run: world.broker.operating.redrive(
                world.now_us(), 0, self.topic, self.group, key[2], named, dry_run=dry_run
            ), "redrive", only_told=chance.random() < 0.6)  # fmt: skip

    def _ask(
        self, key: GroupKey, asked: set[int], ask: Command, name: str, *, only_told: bool = False
    ) -> None:
        """Ask, dry before at times; ``only_told``: dry and no more."""
        world = self.world
        progress = world.broker.views.progress[key]
        before, cursor = rows_of(progress), progress.cursor
        ahead = {one for start, stop in progress.ahead for one in range(start, stop)}
        told: DoneReply | None = None
        if only_told or world.chance.random() < 0.3:
            end = world.broker.journal.end
            found = world.command(lambda: ask(True))
            if isinstance(found, DoneReply):
                told = found
                world.reached("a replay told beforehand")
            if world.broker.journal.end != end or rows_of(progress) != before:
                raise Violation(f"a dry {name} has changed something")
            if only_told:
                return
        world.history.replayed(key, asked)
        reply = world.command(lambda: ask(False))
        if isinstance(reply, TernMQError):
            world.tell("operator refused", name, type(reply).__name__)
            return
        world.reached(f"operator {name}")
        world.hold(reply, lambda told: world.history.rely(world.disk.at, told.position))
        plan = _plan(reply)
        if told is not None and _figures(_plan(told)) != _figures(plan):
            raise Violation(f"a {name} did {_figures(plan)}, beforehand {_figures(_plan(told))}")
        left = {offset for start, stop in plan.rest for offset in range(start, stop)}
        if left:
            world.reached("a replay in pieces")
        wanted = self._wanted(
            key, progress, before, cursor, asked - left, redrive=name == "redrive"
        )
        _check(name, rows_of(progress), before, wanted)
        _check_offered(progress)
        now = {one for start, stop in progress.ahead for one in range(start, stop)}
        if name == "replay" and now != ahead - (asked - left - before.keys()):
            raise Violation(f"a replay leaves {sorted(now)} settled ahead of the cursor")

    def _wanted(
        self,
        key: GroupKey,
        progress: Progress,
        before: Rows,
        cursor: int,
        asked: set[int],
        *,
        redrive: bool,
    ) -> Rows:
        """Return what must be known of every row now that was asked for, or that must make way."""
        world = self.world
        topic = world.reference.topics[key[1]]
        stored = topic.queues[key[2]]
        subscription = topic.subscriptions[key[0]]
        first = world.broker.views.catalog.topics[key[1]].queues[key[2]].first
        wanted: Rows = {}
        for offset in sorted(asked):
            row = before.get(offset)
            given = 0 if row is None else cast("int", row[2])
            if redrive:
                if row is not None and row[0] == DEAD:
                    wanted[offset] = (READY, 1, max(given, 1), 0, 0, row[5])
            elif row is not None:  # a dead one that expired was never handed out
                known = max(given, 1) if row[0] == DEAD else given
                wanted[offset] = (READY, 1, known, 0, 0, row[5])
            elif offset >= cursor:
                continue
            elif offset < first:
                world.reached("a replay's rows are gone")
            elif subscription.filtered and not subscription.passes(stored[offset].row()):
                world.reached("a replay's rows are not for the group")
            else:
                wanted[offset] = (READY, 1, 0, 0, 0, 0)
        if isinstance(progress.order, KeyOrder):
            self._make_way(wanted, before, lambda offset: stored[offset].ordering_hash(), "key")
        elif isinstance(progress.order, QueueOrder):
            self._make_way(wanted, before, lambda offset: 0, "queue")
        return wanted

    def _make_way(
        self, wanted: Rows, before: Rows, line_of: Callable[[int], int], what: str
    ) -> None:
        """Add the leased rows behind the first replayed row of their line: they are released."""
        heads: dict[int, int] = {}
        for offset in sorted(wanted):
            heads.setdefault(line_of(offset), offset)
        for offset, row in before.items():
            head = heads.get(line_of(offset), offset)
            if row[0] == LEASED and head < offset and offset not in wanted:
                wanted[offset] = (READY, row[1], row[2], 0, 0, row[5])
                self.world.reached(f"released behind a replayed row of its {what}")


def _check(name: str, after: Rows, before: Rows, wanted: Rows) -> None:
    should = before | wanted
    for offset in sorted({*should, *after}):
        if should.get(offset) != after.get(offset):
            raise Violation(
                f"after a {name} {offset} is {after.get(offset)}, should be {should.get(offset)}; "
                f"it was {before.get(offset)}"
            )


def _check_offered(progress: Progress) -> None:
    """Of an ordered group, a key whose first row is ready and that nobody holds is free to go."""
    if not isinstance(progress.order, KeyOrder):
        return
    lines = progress.order.lines
    for hash_, line in lines.by_hash.items():
        head = line.offsets[0]
        if not line.leased and progress.ready.find(head) and (head, hash_) not in lines._free:
            raise Violation(f"{head} is ready, and no pull will be offered it")


def _plan(reply: object) -> ReplayPlan:
    assert isinstance(reply, ValueReply)
    plan = reply.value[0] if isinstance(reply.value, list) else reply.value
    assert isinstance(plan, ReplayPlan)
    return plan


def _figures(plan: ReplayPlan) -> tuple[object, ...]:
    return plan.rows, plan.unread, plan.expired, plan.filtered, plan.rest, plan.refused
