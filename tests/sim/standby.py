"""A follower's views beside a simulated broker: equal to a replay at every point, and promoted.

The journal that they follow is the broker's own: a copy has the same bytes. The follower has a disk
of its own for the files of its index, as in another machine. When the broker is killed, the next
one often begins with the views of the follower, in the place of a recovery.
"""

from __future__ import annotations

import random

from ternmq.broker.standby import Standby
from ternmq.broker.start import Started, open_broker
from ternmq.journal.disk.memory import MemoryDisk
from ternmq.journal.disk.port import File
from ternmq.journal.recovery.ending import find_end
from ternmq.journal.recovery.recovery import mend
from ternmq.model.types import Position
from tests.sim.portrait import aged, difference, portrait
from tests.sim.tape import Violation
from tests.sim.world import World


class _Disk(MemoryDisk):
    """The journal of a world, and files of the index that only the follower has."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def open(self, name: str, *, create: bool = False) -> File:  # type: ignore[override]
        if name.startswith("journal/"):
            return self._world.disk.open(name)
        return super().open(name, create=create)

    def names(self, folder: str) -> list[str]:
        return self._world.disk.names(folder) if folder == "journal" else super().names(folder)


class Beside:
    """A follower beside a world. It takes the place of the world's ``end_turn`` and ``opened``.

    Attributes:
        promotions: How many brokers began with its views.
        compared: How often its views were compared with a replay.
        loads: How often it loaded them.
    """

    def __init__(self, world: World, seed: str) -> None:
        self.promotions = self.compared = self.loads = 0
        self._world = world
        self._chance = random.Random(f"{seed} beside")
        self._disk = _Disk(world)
        self._standby: Standby | None = None
        self._turn, self._open = world.end_turn, world.opened
        world.end_turn = self._end_turn  # type: ignore[method-assign]
        world.opened = self._opened  # type: ignore[method-assign]

    @property
    def _commit(self) -> Position:
        return self._world.broker.journal.committed

    def _end_turn(self) -> None:
        self._turn()
        if self._world.dead:
            return
        standby, chance = self._standby, self._chance
        if standby is None:
            if chance.random() < 0.02 and self._commit:
                self._load()
            return
        if chance.random() < 0.5:
            left = chance.choice((0, 0, 1, 5, 1000))

            def may_go_on() -> bool:
                nonlocal left
                left -= 1
                return left >= 0

            standby.apply(self._commit, may_go_on)
        first = self._world.broker.journal.first
        if first > standby.first and standby.applied >= first:
            standby.removed(first)
        if chance.random() < 0.3 and (job := standby.next_job()) is not None:
            job.run()
            standby.finished(job, None)
        if chance.random() < 0.01:
            self.compare()
        if first > standby.applied or chance.random() < 0.003:  # what it would read next is gone
            self._standby = None

    def _load(self) -> None:
        journal = self._world.broker.journal
        standby = Standby(
            self._disk, self._world.options.limits, segment_size=journal.segment_size,
            first=journal.first,
        )  # fmt: skip
        standby.load(self._commit)
        self._standby = standby
        self.loads += 1

    def compare(self) -> None:
        """Compare the views with a replay of the records below ``applied``.

        Raises:
            Violation: They differ, or more is applied than is committed.
        """
        standby = self._standby
        if standby is None:
            return
        if standby.applied > self._commit:
            raise Violation(f"{standby.applied} is applied, and {self._commit} is committed")
        world = self._world
        reign = world.reign
        replayed = reign.portraits[reign.tape.count_below(standby.applied)]
        now_us, idle_us = standby.time_us, world.options.limits.producer_idle_us
        found = difference(aged(replayed, now_us, idle_us), portrait(standby.views, now_us))
        if found is not None:
            raise Violation(f"a follower's views differ from a replay: {found}")
        self.compared += 1

    def _opened(self, wall_us: int) -> Started:
        """Begin the next reign, often with the views of the follower."""
        standby, self._standby = self._standby, None
        world = self._world
        if standby is None or self._chance.random() < 0.2:
            return self._open(wall_us)
        ending = find_end(world.disk)
        assert ending is not None
        if ending.first != standby.first or ending.first > standby.applied:
            return self._open(wall_us)
        mend(world.disk, ending)
        standby.catch_up(ending.valid_end)
        again = Standby(
            _Disk(world), world.options.limits, segment_size=ending.segment_size, first=ending.first
        )
        again.load(ending.valid_end)
        different = standby.views.index.coverage.equal(again.views.index.coverage)
        if different is not None:
            raise Violation(f"a follower's index differs from one that is made anew: {different}")
        ready = standby.ready(ending)
        found = find_end(world.disk)
        assert found is not None
        if (ready.replayed.ending.clean, ready.replayed.ending.last) != (found.clean, found.last):
            raise Violation("a follower does not know how the journal ends")
        self.promotions += 1
        return open_broker(
            world.disk, wall_us=wall_us, chance=world.chance, options=world.options, ready=ready
        )
