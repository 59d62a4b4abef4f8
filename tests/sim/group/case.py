"""One case: a group that begins, lives through a nemesis, and is well when it is left alone."""

from __future__ import annotations

from typing import Final

from tests.sim.group.nemesis import Nemesis
from tests.sim.group.world import World
from tests.sim.tape import Violation

KINDS: Final = {
    "pair": 2, "trio": 3, "synced": 3, "loss": 2, "rot": 2, "applied": 3, "lease": 2,
}  # fmt: skip
"""How many brokers there are. ``synced``: those that acknowledge what their disks have. ``loss``:
an operator accepts losses, again and again. ``rot``: disks damage bytes, again and again.
``applied``: as ``loss``, and followers keep views. ``lease``: the lease changes again and again;
every second case is ``synced``, too."""
ROTATION: Final = ("pair", "trio", "pair", "synced", "loss", "rot", "applied", "lease")
"""Kinds in the order in which cases take them."""
BEGIN_US: Final = (100_000, 2_000_000, 2_000_000)
"""How long it is left alone at the beginning, one of these."""
HEALED_US: Final = 30_000_000
"""A group that is left alone answers and is whole again within it: two leases, two deadlines of the
coordinator, a promotion, and time to copy."""
QUIET_US: Final = 1_000_000


class Case:
    """A case; its name says everything: ``kind/seed.number``.

    Attributes:
        where: What was going on when it failed.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.kind = name.partition("/")[0]
        odd = int(name.rpartition(".")[2]) % 2 == 1
        synced = self.kind == "synced" or (self.kind == "lease" and odd)
        applies = self.kind == "applied"
        self.world = World(f"group {name}", KINDS[self.kind], synced=synced, applies=applies)
        self.nemesis = Nemesis(
            self.world,
            losses=self.kind in ("loss", "applied"),
            rots=self.kind == "rot",
            leases=self.kind == "lease",
        )

    @property
    def where(self) -> str:
        """Return what was done to the group last."""
        return f"{self.world.heap.time_us} us: " + "; ".join(self.nemesis.done[-12:])

    @property
    def paths(self) -> dict[str, int]:
        """Return what was reached, and how often."""
        return self.world.heap.paths

    def totals(self) -> dict[str, int]:
        """Return how much was run."""
        world = self.world
        return {
            "cases": 1,
            "crashes": world.crashes,
            "images": world.oracle.images,
            "answers": world.oracle.answers,
            "simulated_us": world.heap.time_us,
        }

    def digest(self) -> str:
        """Return the hash of the event log."""
        return self.world.heap.digest.hexdigest()

    def run(self) -> None:
        """Run the case.

        Raises:
            Violation: Something does not hold.
        """
        world, heap = self.world, self.world.heap
        for name in world.machines:
            heap.after(heap.chance.randrange(50_000), lambda name=name: world.boot(name))  # type: ignore[misc]
        world.begin_load()
        heap.run(heap.chance.choice(BEGIN_US))
        self.nemesis.run()
        heap.run(heap.time_us + heap.chance.randrange(10_000_000, 60_000_000))
        self.nemesis.end()
        self._heals()

    def _heals(self) -> None:
        world, heap = self.world, self.world.heap
        before, began_us = world.oracle.answers, heap.time_us
        while heap.time_us < began_us + HEALED_US:
            heap.run(heap.time_us + 500_000)
            record = world.oracle.record
            if world.oracle.answers > before and record and self._whole():
                break
        else:
            what = "is not whole" if world.oracle.answers > before else "does not answer"
            raise Violation(f"the group {what} {HEALED_US // 1_000_000} s after all was well")
        heap.reached("whole again")
        world.pace_us, pace_us = 1 << 40, world.pace_us
        heap.run(heap.time_us + pace_us + QUIET_US)
        world.oracle.at_rest()

    def _whole(self) -> bool:
        world, record = self.world, self.world.oracle.record
        assert record is not None
        there = {broker.me for broker in world.brokers.values()}
        return set(record.members) == there and len(there) == len(world.machines)
