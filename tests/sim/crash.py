"""Which crash images there are: every prefix of a log, some draws each; again in recovery."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from typing import Final

from ternmq.record.fact.header import Kind
from tests.sim.checks import Judged, Known, judge, start
from tests.sim.damage import damage, stale, stale_index
from tests.sim.disk import UNLINK, WRITE, Op
from tests.sim.history import History
from tests.sim.medium import Draw, Medium
from tests.sim.tape import Tape, Violation
from tests.sim.world import Reign

EXHAUSTIVE: Final = 64
"""Crash points with at most so many outcomes are swept whole when a sweep is exhaustive."""


GRACE_S: Final = 1.0
_STATE_END: Final = 4
DAMAGED: Final = 0.05
"""Share of the images that are damaged at rest besides."""
NEAR: Final = 3
"""So many crash points from a segment's removal on are swept more densely, the first always."""
NEAR_POINTS: Final = 0.5
SET_POINTS: Final = 0.2
"""Share of the crash points right behind the END of a STATE set that are swept: the next start
rests on that set, and another one may follow soon."""
_NO_SEGMENT: Final = "journal/99999999999999999999.seg"


class Plan:
    """How densely a log is swept."""

    __slots__ = ("deep", "double", "draws", "exhaustive", "points", "triple")

    def __init__(
        self,
        *,
        points: float = 1.0,
        draws: int = 3,
        exhaustive: bool = False,
        double: float = 0.0,
        triple: float = 0.0,
        deep: float = 0.0,
    ) -> None:
        self.points = points
        self.draws = draws
        self.exhaustive = exhaustive
        self.double = double
        self.triple = triple
        self.deep = deep


class Count:
    """Crash images run, by sort."""

    __slots__ = ("deep", "double", "images", "repeats", "triple")

    def __init__(self) -> None:
        self.images = 0
        self.double = 0
        self.triple = 0
        self.deep = 0
        self.repeats = 0


class Sweep:
    """Runs the images of one reign.

    Args:
        reign: What the forward run left.
        plan: How densely.
        chance: Seeded.
        count: Where images are counted.
        deep: What to do with a sampled image that was found lawful.
    """

    def __init__(
        self,
        reign: Reign,
        plan: Plan,
        chance: random.Random,
        count: Count,
        deep: Callable[[Judged, dict[str, bytes]], None] | None = None,
        note: Callable[[str], None] | None = None,
        until: float | None = None,
    ) -> None:
        self.reign = reign
        self.plan = plan
        self.chance = chance
        self.count = count
        self.deep = deep
        self.note = note or (lambda path: None)
        self.known = Known(
            reign.tape, reign.portraits, reign.suspects, reign.options, reign.wall_us
        )
        self.where = ""
        self._until = until

    def run(self) -> None:
        """Sweep the whole log.

        Raises:
            Violation: with ``where`` telling the image.
        """
        reign, chance = self.reign, self.chance
        medium = reign.medium.clone()
        seen: set[object] = set()
        begin = medium.at
        limit = reign.tape.ends[reign.kept_records]
        removed = -NEAR
        ends = self._set_ends()
        for at in range(len(reign.disk.log) + 1):
            if at:
                op = reign.disk.log[at - 1]
                medium.feed(op)
                limit = max(limit, written_to(medium, op))
                if op[0] == UNLINK and str(op[1]).startswith("journal/"):
                    removed = at
            near = at < removed + NEAR
            points = max(self.plan.points, NEAR_POINTS) if near else self.plan.points
            if at == removed:
                points = 1.0
            while ends and ends[-1] <= limit:
                ends.pop()
                points = max(points, SET_POINTS)
            if self._until is not None and time.monotonic() > self._until + GRACE_S:
                return  # the run is over; this case was one of its last
            if points < 1.0 and chance.random() >= points:
                continue
            if near:
                self.note("crash right after a segment's removal")
            demand = self._demand(begin + at)
            whole = whole_below(medium, reign)
            for draw in self._draws(medium):
                self.where = f"op {at} draw {draw}"
                key = medium.key(draw)
                if key in seen:
                    self.count.repeats += 1
                    continue
                seen.add(key)
                self._image(medium, draw, whole, limit, demand)

    def _set_ends(self) -> list[int]:
        """Return where the STATE sets of this reign end, the first one last."""
        tape = self.reign.tape
        records = tape.records[self.reign.kept_records :]
        return [
            record.end
            for record in reversed(records)
            if record.kind == Kind.STATE and record.body[8] == _STATE_END
        ]

    def _demand(self, at: int) -> int:
        found = 0
        for length, position in self.reign.demands:
            if length > at:
                break
            found = position
        return found

    def _draws(self, medium: Medium) -> Iterator[Draw]:
        ways = 1
        for width in medium.widths():
            ways *= width
            if ways > EXHAUSTIVE:
                break
        if ways == 1:
            yield medium.everything()
        elif self.plan.exhaustive and ways <= EXHAUSTIVE:
            yield from medium.all_draws()
        else:
            yield medium.none()
            yield medium.everything()
            if medium.name_ops:
                yield medium.only_names()
            if len(medium.name_ops) > 1:
                yield medium.last_name()
            for _ in range(self.plan.draws):
                yield medium.draw(self.chance)

    def _image(self, medium: Medium, draw: Draw, whole: int, limit: int, demand: int) -> None:
        files = medium.image(draw)
        judged = judge(self.known, files, whole, limit, demand, self.chance)
        self.count.images += 1
        self._paths(judged, files)
        if self.chance.random() < DAMAGED:
            self.note(damage(self.known, files, judged.end, self.chance))
            if self.chance.random() < 0.2:
                self.note(stale(self.known, files, judged.end, self.chance))
            self.note(stale_index(self.known, files, self.chance))
        if self.deep is not None and self.chance.random() < self.plan.deep:
            self.count.deep += 1
            self.deep(judged, files)
        if self.chance.random() < self.plan.double:
            below = Medium(files)
            if self.chance.random() < 0.3 and draw == medium.everything():
                below = medium.clone()  # the process died, the page cache lives on
                self.note("kill, then power cut in recovery")
            self._again(below, limit, demand, 2)

    def _paths(self, judged: Judged, files: dict[str, bytes]) -> None:
        report = judged.started.report
        if report.cut is not None:
            self.note("tail cut")
        if report.durable < report.valid_end:
            self.note("end beyond the durable mark")
        if report.clean:
            self.note("clean start")
        if report.fresh:
            self.note("fresh start")
        if report.loaded_set is not None:
            self.note("loaded a STATE set")
        if self._incomplete(judged):
            self.note("incomplete STATE set at the end")
        if any(name.startswith("index/") and name not in judged.disk.cells for name in files):
            self.note("index file not believed")
        if report.fault:
            self.note(f"fault: {report.fault.split(' ')[0]}")

    def _incomplete(self, judged: Judged) -> bool:
        """Return whether the records end within a STATE set."""
        tape = self.known.tape
        for record in reversed(tape.records[: tape.count_below(judged.end)]):
            if record.kind == Kind.STATE:
                return record.body[8] != _STATE_END
        return False

    def _again(self, medium: Medium, limit: int, demand: int, depth: int) -> None:
        """Crash during the recovery of an image."""
        known = self.known
        outer = self.where
        files = medium.image(medium.everything())
        first = min(int(name[8:28]) for name in [*files, _NO_SEGMENT] if name.endswith(".seg"))
        end = known.tape.valid_end(files, first, limit)
        tape = known.tape.prefix(end)
        disk = medium.disk(on_write=tape.write)
        start(disk, known, self.chance)
        count = len(known.portraits) - 1
        kept = min(count, known.tape.count_below(end))
        inner = Known(
            tape,
            known.portraits[: kept + 1],
            known.suspects[: kept + 1],
            known.options,
            known.wall_us,
        )
        seen: set[object] = set()
        now = medium.clone()
        limit = end
        for at in range(len(disk.log) + 1):
            if at:
                now.feed(disk.log[at - 1])
                limit = max(limit, written_to(now, disk.log[at - 1]))
            whole = whole_of(now, tape)
            for draw in self._draws(now):
                key = now.key(draw)
                if key in seen:
                    continue
                seen.add(key)
                self.where = f"{outer}; again at op {at} of recovery, draw {draw}"
                image = now.image(draw)
                judge(inner, image, whole, limit, demand, self.chance)
                if depth == 2:
                    self.count.double += 1
                    self.note("crash in recovery")
                    if self.chance.random() < self.plan.triple:
                        saved, self.known = self.known, inner
                        try:
                            self._again(Medium(image), limit, demand, 3)
                        finally:
                            self.known = saved
                else:
                    self.count.triple += 1
                    self.note("second crash in recovery")
        self.where = outer


def whole_below(medium: Medium, reign: Reign) -> int:
    """Return a position below which the medium surely holds the journal as it was written."""
    return whole_of(medium, reign.tape)


def whole_of(medium: Medium, tape: Tape) -> int:
    """Return a position below which the medium holds what is on the tape, whatever is drawn."""
    del tape
    low = 1 << 62
    for name, offset in medium.pending_from("journal/").items():
        if name.endswith(".seg"):
            low = min(low, int(name[8:28]) + offset)
    return low


def written_to(medium: Medium, op: Op) -> int:
    """Return where the records end that an operation wrote, 0 if it wrote none."""
    what, inode, offset, data = op
    if what != WRITE:
        return 0
    assert isinstance(inode, int)
    assert isinstance(offset, int)
    assert isinstance(data, bytes)
    name = medium.name_of[inode]
    if not name.startswith("journal/") or not any(data):
        return 0
    return int(name[8:28]) + offset + len(data)


def demands_of(history: History) -> list[tuple[int, int]]:
    """Return a copy of what answers rest on."""
    return list(history.demands)


__all__ = ["Count", "Plan", "Sweep", "Violation"]
