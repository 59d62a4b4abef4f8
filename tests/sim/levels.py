"""Topics with levels: in which queue rows may be stored, and which level a pull may hand out.

A row is in a queue of its level. A pull hands out a row of a level only if no level that it had to
try before had one (P1): it tries them from the highest down; each sixteenth pull of a group in an
epoch begins at a lower level instead, these in turn, and goes on from the lowest up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ternmq.model.errors import InvalidBatch, InvalidRequest
from ternmq.model.specs import Mode
from ternmq.record.batch.batch import Row, encode
from tests.sim.delays import Delayer
from tests.sim.history import Stored, Tried
from tests.sim.producers import Producer
from tests.sim.tape import Violation

if TYPE_CHECKING:
    from ternmq.journal.log.scan import RawRecord
    from ternmq.record.fact.facts import Pulled
    from tests.sim.reference import Reference, RefTopic
    from tests.sim.world import World

EACH: Final = 16


class Levels:
    """The levels of all topics, as the reference sees them."""

    def __init__(self, reference: Reference) -> None:
        self._reference = reference
        self._pulls: dict[int, tuple[int, int]] = {}
        """Group -> (epoch, number of its pulls that got rows in it)."""

    def check_stored(
        self, where: str, topic: RefTopic, queue: int, rows: Sequence[Row], at: Sequence[int]
    ) -> None:
        """Rows were stored in a queue.

        Raises:
            Violation: it is of another level than one of them.
        """
        levels = topic.spec.levels
        for one in at:
            if levels > 1 and rows[one].priority != queue % levels:
                raise Violation(
                    f"{where}: queue {queue} is of level {queue % levels}, a row has priority "
                    f"{rows[one].priority}"
                )

    def pulled(self, where: str, record: RawRecord, fact: Pulled, topic: RefTopic) -> None:
        """Rows of a queue are handed out; what other records before say is known.

        Raises:
            Violation: a level that comes before has some, too.
        """
        levels = topic.spec.levels
        subscription = topic.subscriptions[fact.group]
        if levels == 1 or not fact.leased:
            return
        epoch, number = self._pulls.get(fact.group, (record.epoch, 0))
        if epoch != record.epoch:
            number = 0
        self._pulls[fact.group] = record.epoch, number + 1
        if subscription.spec.mode is not Mode.SHARED or subscription.filtered:
            return
        level = fact.queue % levels
        order = order_of(levels, number)
        for before in order[: order.index(level)]:
            for queue in range(before, len(topic.queues), levels):
                if self._some(record, fact.group, topic, queue):
                    raise Violation(
                        f"{where}: pull {number} hands out level {level}; queue {queue} of level "
                        f"{before} has rows"
                    )
        self._count(record, fact, topic, order, level)

    def _count(
        self, record: RawRecord, fact: Pulled, topic: RefTopic, order: Sequence[int], level: int
    ) -> None:
        levels, count = len(order), self._reference.count
        behind = {
            one
            for one in range(levels)
            for queue in range(one, len(topic.queues), levels)
            if one != level and self._some(record, fact.group, topic, queue)
        }
        if order[0] == levels - 1 and any(one < level for one in behind):
            count("a higher level passed others")
        if order[0] != levels - 1 and any(one > level for one in behind):
            count("a lower level had its turn")
            if level:
                count("a level between had its turn")
        if any(attempt > 1 for _, _, attempt, _ in fact.leased):
            count("retried in its level")

    def _some(self, record: RawRecord, group: int, topic: RefTopic, queue: int) -> bool:
        """Return whether a pull could hand out a row of a queue."""
        reference = self._reference
        held = reference.groups[group, topic.number, queue]
        leased = sum(row.state == "leased" for row in held.rows.values())
        if leased >= topic.subscriptions[group].spec.window:
            return False
        for row in held.rows.values():
            if row.state == "ready" or (row.state == "waiting" and row.when_us <= record.time_us):
                return True
        stored: Sequence[Stored] = topic.queues[queue]
        for offset in range(held.cursor, len(stored)):
            if offset in held.ahead or offset in held.rows:
                continue
            if stored[offset].position >= reference.first:
                return stored[offset].end <= record.durable
        return False


def order_of(levels: int, number: int) -> list[int]:
    """Return the levels in the order in which a group's pull of that number, from 0, tries them."""
    if number % EACH != EACH - 1:
        return list(reversed(range(levels)))
    first = number // EACH % (levels - 1)
    return [first, *(one for one in range(levels) if one != first)]


class Ranked(Delayer):
    """Sends batches of one priority each to a topic with levels, at times such as must be refused.

    Args:
        wrong: Share of its acts that try what must be refused.
        high: Share of the batches that are not of the lowest level.
    """

    def __init__(
        self,
        world: World,
        topic: str,
        number: int,
        *,
        wrong: float = 0.1,
        high: float = 0.4,
        **more: float,
    ) -> None:
        super().__init__(world, topic, number, **more)  # type: ignore[arg-type]
        self.wrong = wrong
        self.high = high

    def _levels(self) -> int:
        found = self.world.broker.views.catalog.by_name.get(self.topic)
        return 1 if found is None else found.spec.levels

    def _act(self) -> None:
        if not self.world.calm and self.world.chance.random() < self.wrong:
            self._refusals()
        super()._act()

    def _made_rows(self) -> list[Row]:
        chance, levels = self.world.chance, self._levels()
        rows = super()._made_rows()
        priority = chance.randrange(1, levels) if chance.random() < self.high else 0
        return [replace(row, priority=priority) for row in rows]

    def _make(self) -> Tried:
        tried = Producer._make(self)
        found = self.world.broker.views.catalog.by_name.get(self.topic)
        if found is not None and self.world.chance.random() < self.wishes:
            index = self.world.chance.randrange(found.spec.queues)
            tried.queue = index * found.spec.levels + tried.rows[0].priority
        return tried

    def _refusals(self) -> None:
        """Send what must be refused, under sequences that the next good batch uses."""
        world, chance = self.world, self.world.chance
        levels = self._levels()
        if levels == 1:
            return
        rows = Delayer._made_rows(self)
        low = chance.randrange(levels - 1)
        rows = [replace(row, priority=low) for row in rows]
        wish: int | None = None
        what = chance.choice(("mixed", "unknown", "elsewhere"))
        if what == "mixed":
            rows = [*rows, replace(rows[-1], priority=low + 1)]
        elif what == "unknown":
            rows = [replace(row, priority=chance.choice((levels, 8, 255))) for row in rows]
        else:
            wish = low + 1
        batch = encode(
            rows,
            topic_seed=self.seed,
            producer_id=self.number,
            first_sequence=self.sequence,
            born_us=world.monotonic_us,
        )
        end = world.broker.journal.end
        if chance.random() < 0.7:
            reply: object = world.command(
                lambda: world.broker.send(world.now_us(), self.topic, batch, wish)
            )
        else:
            reply = world.command(
                lambda: world.broker.prepare(
                    world.now_us(), "sim", self.topic, batch, "wrong", 1, queue=wish
                )
            )
        if not isinstance(reply, InvalidBatch | InvalidRequest):
            raise Violation(f"a batch with {what} priorities was answered {reply!r}")
        if world.broker.journal.end != end:
            raise Violation(f"a batch with {what} priorities was refused, and a record was written")
        world.reached(f"priorities refused: {what}")
