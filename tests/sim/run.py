"""One case: a seed, a workload, several reigns of the broker, and the sweep of each."""

from __future__ import annotations

import random
from typing import Final

from tests.sim import deep
from tests.sim.checks import Judged
from tests.sim.crash import Count, Plan, Sweep
from tests.sim.crowded import Removals
from tests.sim.delays import DAY_US
from tests.sim.medium import Medium
from tests.sim.tape import Violation
from tests.sim.workloads import KINDS
from tests.sim.world import FREED_US, Stopped, World

ROTATION: Final = (
    "tiny", "lanes", "expiring", "faulty", "transactions", "rolls", "emptied", "crowded", "filled",
    "replayed", "numbered",
    "failures", "delayed", "cancels", "checked", "parked", "keyed", "locked", "owned",
    "broadcast", "switching", "returning", "pinned", "transactions", "old_rows", "rolls", "ordered",
    "filtered", "filters", "shared",
    "burst", "due_copies", "due_filled", "lanes", "filters", "failures", "expiring",
    "old_rows", "transactions", "consumed", "aged", "settings", "faulty", "filled", "replayed",
    "failures", "delayed",
    "given_ids", "fast", "transactions", "emptied", "crowded", "faulty", "pinned", "rolls",
    "replayed", "shared", "rolls", "faulty", "returning", "ordered", "settings", "replayed",
    "numbered", "keyed", "checked", "parked", "overtaken", "overtaken", "lanes", "filters",
    "locked", "owned",
    "expiring", "switching", "copied", "copied_checked", "copied_rolls", "copied",
)  # fmt: skip
"""Kinds in the order in which cases take them."""


CALM_US: Final = 400_000
"""How long a run goes on after a full disk; a timer that found no room comes again in 100 ms."""
QUIET_START: Final = 0.3
"""Share of the starts behind which nobody does anything for a while."""
DIES_AT_REMOVAL: Final = 0.9
"""Share of the reigns of ``crowded`` that end as soon as a removal is not durable."""
SCHEDULING: Final = ("delayed", "cancels", "burst", "due_copies")
"""Kinds with scheduled rows: some of them also have a faulty disk."""
FAULTY: Final = 0.15
"""Share of the reigns of these in which the disk is."""
PARTED: Final = ("ordered", "locked", "owned", "replayed", "returning", "shared", "switching")
"""Kinds whose reigns go on, when they are over, until a client has left and still holds rows."""
PARTED_OPERATIONS: Final = 200
"""For so long at most."""
FORWARD: Final = 2 * len(ROTATION)
"""So many cases at the beginning of a run are run forward and not swept, but for ``tiny``: a sweep
takes ten times as long, and a bug that needs no crash is to be found within seconds."""
FIRST: Final = FORWARD + len(ROTATION)
"""The cases behind them, up to this one, are swept very thinly, so that a run has crashed every
kind early."""
EARLY: Final = FIRST + 2 * len(ROTATION)
"""The cases behind these, up to this one, are swept thinly."""


class Case:
    """A case; its name says everything: ``kind/seed``."""

    def __init__(self, name: str, until: float | None = None) -> None:
        self.name = name
        self.until = until
        self.from_large = 0
        self.kind = name.split("/", maxsplit=1)[0]
        self.chance = random.Random(f"case {name}")
        number = name.rpartition(".")[2]
        at = int(number) if number.isdecimal() else EARLY
        self.forward_only = at < FORWARD and self.kind != "tiny"
        self.first, self.early = at < FIRST, at < EARLY
        self.count = Count()
        self.world: World
        self.where = "forward"
        self.paths: dict[str, int] = {}
        self.reigns = 0
        self.reign = 0
        self._removal_pending = False
        """A segment was removed in the reign that ended, and the folder was not synced since."""
        self._killed_at_removal = False
        """So it was in the reign before this one, and the machine lived on."""
        self._parted = False
        """When the reign ended, a client had left, and still held rows."""

    def reached(self, path: str) -> None:
        """Note that a path was reached."""
        self.paths[path] = self.paths.get(path, 0) + 1

    def totals(self) -> dict[str, int]:
        """Return how many images of which sort were run."""
        count = self.count
        return {
            "images": count.images,
            "double": count.double,
            "triple": count.triple,
            "deep": count.deep,
            "from_large": self.from_large,
            "reigns": self.reigns,
        }

    def digest(self) -> str:
        """Return the hash of the event log."""
        return self.world.digest.hexdigest()

    def run(self, *, sweep: bool = True) -> None:
        """Run the case.

        Raises:
            Violation: an invariant does not hold; ``where`` says at which image.
        """
        chance = self.chance
        try:
            self.world = KINDS[self.kind](self.name)
            reigns = 1 + (self.kind != "tiny") * chance.choice((1, 2) if self.early else (0, 1, 2))
            reigns += {"returning": 1, "crowded": 3, "delayed": 1, "checked": 1, "parked": 1}.get(
                self.kind, 0
            )
            for reign in range(reigns):
                self.reign = reign
                self.where = f"reign {reign} forward"
                self._forward(chance, last=reign + 1 == reigns)
                if sweep and not self.forward_only:
                    self._sweep(reign, chance)
                if reign + 1 < reigns:
                    self.where = f"restart after reign {reign}"
                    if not self._restart(chance):
                        break
        finally:
            if hasattr(self, "world"):
                self._collect()

    def _forward(self, chance: random.Random, *, last: bool) -> None:
        world = self.world
        self._parted = False
        operations = chance.randint(15, 80) if self.kind == "tiny" else chance.randint(100, 500)
        if self.kind in (
            "rolls", "aged", "consumed", "filled", "replayed", "old_rows", "pinned", "due_filled",
            "parked", "lanes",
        ):  # fmt: skip
            operations = chance.randint(300, 700)
        if self.kind == "delayed":  # it has more reigns than others
            operations = chance.randint(80, 250)
        if self.kind == "emptied":  # its segments go from early on, and its images cost most
            operations = chance.randint(200, 450)
        if self.kind == "crowded":  # most reigns end long before
            operations = chance.randint(500, 800)
        if self.kind == "returning":  # at first so few that leases of both reigns share numbers
            operations = chance.choice((30, 60)) if not self.reign else chance.randint(120, 260)
        removals = Removals(world)
        die_early = self.kind == "crowded" and chance.random() < DIES_AT_REMOVAL
        # Not where clients are to have their say on old leases.
        quiet = self.reign and self.kind != "returning" and chance.random() < QUIET_START
        try:
            if quiet and not die_early:
                self._quiet_start()
            faulty = self.kind in SCHEDULING and chance.random() < FAULTY
            world.faults.plan(chance, on=faulty or self.kind == "faulty")
            world.run(operations, until=removals.look if die_early else None)
            world.check_live()
            if world.faults.fired.keys() & {"no room for a segment"}:
                self._calm(chance)
            if world.broker.views.schedule.pages.gone:
                self._wait_for_freeing()
            if self.kind in PARTED and not last:
                world.run(PARTED_OPERATIONS, until=self._parting)
                self._parted = not world.dead and self._parting()
            if chance.random() < 0.25 and not world.dead and not self._parted:
                world.close()
        except Stopped:
            pass
        removals.look()
        if self._killed_at_removal and removals.count:
            self.reached("segment removed first after a kill at a removal")
        self._removal_pending = removals.pending
        world.faults.plan(chance, on=False)

    def _parting(self) -> bool:
        """Return whether a session has left, as the disk was told, and has leases."""
        broker = self.world.broker
        if broker.journal.written < broker.journal.end:
            return False
        there = broker.views.sessions.by_number
        return any(
            drain.session not in there and broker.views.figures.leased_to(drain.session)
            for drain in self.world.drains
        )

    def _quiet_start(self) -> None:
        """Nobody does anything after a start: leases that were there must end all the same."""
        world = self.world
        leases = [one for group in world.reference.groups.values() for one in group.leases.values()]
        last_us = max((one.until_us for one in leases), default=0)
        until_us = max(world.now_us(), last_us) + CALM_US
        world.calm = True
        world.after(until_us - world.now_us(), lambda: None)
        world.run(3000, until=lambda: world.now_us() >= until_us)
        world.calm = False
        if world.now_us() >= until_us and not world.dead:
            if leases:
                self.reached("nobody came after a start with leases")
            world.check_live(calm=True)

    def _calm(self, chance: random.Random) -> None:
        """There is room again: whatever could not be recorded in time must have come since."""
        world = self.world
        world.faults.plan(chance, on=False)
        world.calm = True
        until = world.monotonic_us + CALM_US
        world.after(CALM_US, lambda: None)
        world.run(3000, until=lambda: world.monotonic_us >= until)
        world.calm = False
        if world.monotonic_us >= until:
            self.reached("calm after a full disk")
            world.check_live(calm=True)

    def _wait_for_freeing(self) -> None:
        """Scheduled rows of a deleted topic are freed by housekeeping."""
        world = self.world
        world.calm = True
        until_us = world.now_us() + FREED_US + 100_000
        world.after(until_us - world.now_us(), lambda: None)
        world.run(3000, until=lambda: world.now_us() >= until_us)
        world.calm = False
        if world.now_us() >= until_us and not world.dead:
            self.reached("scheduled rows of a deleted topic are freed")
            world.check_live()

    def _plan(self) -> Plan:
        if self.first and self.kind != "tiny":
            # Some bugs of transactions want a crash at one of few points: more of them.
            points = 0.04 if self.kind == "transactions" else 0.015
            return Plan(points=points, draws=1, double=0.01, triple=0.03, deep=0.03)
        if self.early:
            return Plan(
                points=0.04, draws=1, exhaustive=self.kind == "tiny", double=0.03, triple=0.03,
                deep=0.06,
            )  # fmt: skip
        if self.kind == "tiny":
            return Plan(exhaustive=True, double=0.06, triple=0.02, deep=0.004)
        return Plan(points=0.5, draws=2, double=0.008, triple=0.01, deep=0.003)

    def _sweep(self, number: int, chance: random.Random) -> None:
        reign = self.world.reign
        sweep = Sweep(reign, self._plan(), chance, self.count, note=self.reached, until=self.until)
        before = self._images()

        def use(judged: Judged, files: dict[str, bytes]) -> None:
            sweep.where += "; used"
            world = deep.use(reign, sweep.known, files, judged.end, chance)
            for path, count in world.paths.items():
                if path.startswith("deep") or path == "delivered from a MOVED record":
                    self.paths[path] = self.paths.get(path, 0) + count

        sweep.deep = use
        try:
            sweep.run()
        finally:
            self.where = f"reign {number} {sweep.where}"
            if self._large():
                self.from_large += self._images() - before

    def _images(self) -> int:
        return self.count.images + self.count.double + self.count.triple

    def _large(self) -> bool:
        """Return whether there were two rolls, two STATE sets, a MOVED and a dead letter so far."""
        world = self.world
        found = (
            world.paths.get("record SEGMENT", 0) >= 3
            and world.paths.get("STATE set complete", 0) >= 2
            and world.paths.get("record MOVED", 0) >= 1
            and world.dead_letters >= 1
        )
        if found:
            self.reached("two rolls, two STATE sets, a MOVED and a dead letter")
        return found

    def _restart(self, chance: random.Random) -> bool:
        """Let the broker die here and come back; return whether it did."""
        world, reign = self.world, self.world.reign
        medium = reign.medium.clone()
        for op in reign.disk.log:
            medium.feed(op)
        lives_on = world.faults.fired or self._removal_pending or self._parted
        if chance.random() < (0.8 if lives_on else 0.4):
            self._killed_at_removal = self._removal_pending
            files = medium.image(medium.everything())
            self.reached("restart after a kill")
        else:
            self._killed_at_removal = False
            files = medium.image(medium.draw(chance))
            medium = Medium(files)
            self.reached("restart after a power cut")
        first = min((int(name[8:28]) for name in files if name.endswith(".seg")), default=0)
        end = reign.tape.valid_end(files, first, reign.tape.end)
        if end < world.history.demand:
            raise Violation(f"loss: {end} of {world.history.demand} is there")
        down_us = chance.choice(world.down_us)
        world.monotonic_us += down_us
        if down_us > DAY_US:
            self.reached("down for more than a day")
        if chance.random() < 0.2:
            jump_us = chance.choice(world.start_jumps_us)
            world.wall_offset_us += jump_us
            self.reached("wall clock jumped")
            if jump_us > 1000 * DAY_US:
                world.start_jumps_us = (-DAY_US, DAY_US)  # once is enough
                self.reached("a start with a wall clock in 2099")
        try:
            world.begin(medium, reign.tape.prefix(end), reign)
        except Stopped:
            return False
        return True

    def _collect(self) -> None:
        world = self.world
        for path, count in world.paths.items():
            self.paths[path] = self.paths.get(path, 0) + count
        for path, count in (*world.counts.items(), *world.faults.fired.items()):
            self.paths[path] = self.paths.get(path, 0) + count
        if world.history.marked:
            self.paths["marked duplicate"] = world.history.marked
        self.reigns = world.reigns
