"""Reads the journal again, a little at a time, and mends what is damaged from another copy.

    a read fails ----> the record is looked at, at once --+
    a suspect segment, as fast as 64 MiB/s ---------------+--> sound: go on
    the round, spread over the setting ``scrub`` ---------+--> damaged: ask the other brokers
                                                               |  checked, and written in place
                                                               +--> mended: it is read again
                                                               +--> not mended: an alarm; tried
                                                                    again each minute

One task does all of it; its files are read and written in a thread. A command whose record is
damaged waits for it, but not for long, and not again and again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from ternmq.journal.disk.port import Disk
from ternmq.journal.log.segment import segment_name
from ternmq.journal.mending.patch import Patch
from ternmq.journal.mending.progress import Progress, Save, load
from ternmq.journal.mending.rounds import Rounds, Span
from ternmq.journal.mending.scrub import DamagedRange, FindBefore, ScrubRead
from ternmq.model.errors import DiskError
from ternmq.model.types import SECOND_US, Position
from ternmq.model.words import counted
from ternmq.server.engine.coldreads import Awaited
from ternmq.server.scrub.beside import Run
from ternmq.server.scrub.donors import Donor, DonorFailed
from ternmq.server.scrub.figures import Extent, MendedRange, ScrubFigures

log = logging.getLogger("ternmq.scrub")

PIECE_BYTES: Final = 64 << 10
"""Bytes of one read: it takes the interpreter for less than a millisecond."""
MOST_A_SECOND: Final = 16 << 20
"""Most bytes that rounds read in a second, however short they are to be."""
_SUSPECTS_A_SECOND: Final = 64 << 20
_IDLE_S: Final = 10.0
"""Longest pause between two looks at whether there is something to read."""
_FRAME_BYTES: Final = 1 << 20
"""Bytes that a follower is sent at once, and takes as a whole."""
_AGAIN_S: Final = 60.0
"""Interval at which what could not be mended is tried again."""
_ALONE_S: Final = 5.0
"""How much later a broker without other copies reads a segment again of which a read failed."""
_WAIT_S: Final = 3.0
"""Longest that a command waits for its damaged record."""
_WAITS: Final = 3
"""How often commands wait for the same record within ``_AGAIN_S``: it may be a cache that is
stale, and is read from before it is emptied."""
_SOME: Final = 10
"""Most ranges that are tried again at once."""
_MOST_AWAITED: Final = 1000


class NotNow(Exception):
    """No job may work on the journal now; it is tried again soon."""


class _Waits(NamedTuple):
    """How often commands have waited for a record, and until when that counts."""

    times: int
    until: float


class _Job:
    """A call as a job of a thread."""

    def __init__(self, call: Callable[[], None]) -> None:
        self._call = call

    def run(self) -> None:
        self._call()


class Scrubber:
    """Finds and mends damaged bytes of one journal. Loop only.

    Args:
        disk: The data root.
        extent: Returns which bytes may be read and mended; None: none now.
        run: Runs a job in a thread.
        period_us: How long a round takes; 0: only what a failed read points at is looked at.
        wall_us: The wall clock.
        donors: Returns the other brokers that may have the bytes, the best first. None: the broker
            belongs to no broker group.
        renewed: Called with the base of a segment whose bytes have changed, or may have: what is
            cached of it is to be forgotten.
        released: Called with the jobs for which commands need not wait any more.

    Attributes:
        mended: What was mended and is not taken note of yet, the oldest first.
    """

    def __init__(
        self,
        disk: Disk,
        extent: Callable[[], Extent | None],
        run: Run,
        *,
        period_us: int,
        wall_us: Callable[[], int],
        donors: Callable[[], Sequence[Donor]] | None = None,
        renewed: Callable[[Position], None] = lambda _: None,
        released: Callable[[Awaited], None] = lambda _: None,
    ) -> None:
        self.mended: deque[MendedRange] = deque(maxlen=100)
        self._disk = disk
        self._extent = extent
        self._run = run
        self._period_us = period_us
        self._wall_us = wall_us
        self._donors = donors
        self._renewed = renewed
        self._released = released
        self._rounds: Rounds | None = None
        self._later: set[Position] = set()
        """Segments that are suspects in a while."""
        self._early: set[Position] = set()
        """Segments that were suspected before the rounds began."""
        self._wake = asyncio.Event()
        self._wanted: dict[Position, Awaited] = {}
        """Records for which commands wait."""
        self._frames: set[Position] = set()
        """Those of them behind which a follower could not go on."""
        self._waits: dict[Position, _Waits] = {}
        self._why: dict[Position, str] = {}
        """Begin of a damaged range -> why it could not be mended."""
        self._count = 0
        self._again_at = self._round_at = 0.0
        self._twice: Position | None = None
        """Begin of the range that was mended last."""
        self._saved: Progress | None = None

    # -- told by others ---------------------------------------------------------------------------

    def suspect(self, position: Position) -> None:
        """Have the segment of a position read soon: a read there has failed.

        Where nobody could mend it, it is read a while later: a disk that has just failed at some
        bytes is not asked for them again at once.
        """
        extent = self._extent()
        if extent is None:
            return
        base = Position(position - position % extent.segment_size)
        if self._donors is not None:
            self._read_soon(base)
        elif base not in self._later:
            self._later.add(base)
            asyncio.get_running_loop().call_later(_ALONE_S, self._read_soon, base)

    def _read_soon(self, base: Position) -> None:
        self._later.discard(base)
        if self._rounds is None:
            self._early.add(base)
        else:
            self._rounds.suspect(base)
        self._wake.set()

    def look_at(self, position: Position) -> None:
        """Have the records from a position on looked at soon; what is damaged is mended.

        A follower did not take them: one of the next ``_FRAME_BYTES`` may be damaged.
        """
        extent = self._extent()
        if extent is not None and extent.first <= position < extent.safe:
            if position not in self._wanted:
                self._want(position)
            self._frames.add(position)
            self._wake.set()

    def mends(self, position: int) -> Awaited | None:
        """Return what a command waits for whose record at ``position`` cannot be read.

        None: it is not waited for, since there is no other copy, or it was in vain just now.
        """
        extent = self._extent()
        at = Position(position)
        if extent is None or not extent.first <= at < extent.safe:
            return None
        awaited = self._wanted.get(at)
        if awaited is not None:
            return awaited
        self.suspect(at)
        now = asyncio.get_running_loop().time()
        before = self._waits.get(at, _Waits(0, 0.0))
        if before.until < now:
            before = _Waits(0, now + _AGAIN_S)
        if before.times >= _WAITS or not self._others():
            return None
        if len(self._waits) >= _MOST_AWAITED:
            self._waits.clear()
        self._waits[at] = before._replace(times=before.times + 1)
        return self._want(at)

    def _want(self, at: Position) -> Awaited:
        """Have a record looked at; commands wait for it at most ``_WAIT_S``."""
        awaited = self._wanted[at] = Awaited()
        asyncio.get_running_loop().call_later(_WAIT_S, self._release, at, awaited)
        return awaited

    def _release(self, at: Position, awaited: Awaited) -> None:
        """Let the commands go on that wait for a record."""
        if self._wanted.get(at) is awaited:
            del self._wanted[at]
            self._released(awaited)

    def _others(self) -> Sequence[Donor]:
        return () if self._donors is None else self._donors()

    # -- figures ----------------------------------------------------------------------------------

    @property
    def figures(self) -> ScrubFigures:
        """What was done."""
        rounds = self._rounds
        if rounds is None:
            return ScrubFigures(on=self._period_us > 0)
        return ScrubFigures(
            on=self._period_us > 0,
            completed_us=rounds.completed_us,
            read_bytes=rounds.read_bytes,
            found=rounds.found,
            mended=self._count,
            damaged=len(rounds.damaged),
        )

    def wrong(self) -> Mapping[str, str]:
        """Return the segment files that are damaged and could not be mended, and what is wrong."""
        rounds, extent = self._rounds, self._extent()
        found: dict[str, list[DamagedRange]] = {}
        if rounds is None or extent is None:
            return {}
        for damage in rounds.damaged.values():
            if damage.start in self._why:
                base = damage.start - damage.start % extent.segment_size
                found.setdefault(segment_name(base), []).append(damage)
        return {name: self._text(some, extent.segment_size) for name, some in found.items()}

    def _text(self, some: list[DamagedRange], segment_size: int) -> str:
        first = min(some, key=lambda one: one.start)
        more = "" if len(some) == 1 else f"{counted(len(some), 'range')} are damaged, the first: "
        return (
            f"{more}{first.stop - first.start:,} bytes from byte {first.start % segment_size:,} on "
            f"are damaged ({first.reason}); {self._why[first.start]}"
        )

    # -- the task ---------------------------------------------------------------------------------

    async def work(self) -> None:
        """Find and mend, until it is cancelled."""
        said = ""
        while True:
            pause_s = _IDLE_S
            try:
                pause_s = await self._step()
                said = ""
            except NotNow:
                pause_s = 1.0
            except DiskError as error:
                if str(error) != said:
                    log.warning("the journal cannot be read again now: %s", error)
                said = str(error)
            await self._rest(pause_s)

    async def _rest(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            return  # the pause is over
        self._wake.clear()

    async def _step(self) -> float:
        """Read a piece, and mend what is damaged right behind it; return how long to pause."""
        extent = self._extent()
        if extent is None:
            return 1.0
        rounds = self._rounds
        if rounds is None:
            sealed = extent.safe - extent.safe % extent.segment_size
            if not self._early and not self._wanted and extent.first >= sealed:
                return _IDLE_S  # a thread for nothing
            rounds = self._rounds = await self._begin(extent)
        if self._wanted:
            at = next(iter(self._wanted))
            awaited = self._wanted[at]
            try:
                await self._look_at(extent, at)
            finally:
                self._release(at, awaited)
            return 0.0
        now = asyncio.get_running_loop().time()
        if rounds.damaged and now >= self._again_at and self._others():
            self._again_at = now + _AGAIN_S
            await self._try_again(rounds, extent)
        span = rounds.next(extent.first, extent.safe)
        if span is None:
            return _IDLE_S if self._period_us else _AGAIN_S
        if span.suspect is None and now < self._round_at:
            return min(self._round_at - now, _AGAIN_S)
        return await self._read(rounds, extent, span)

    async def _begin(self, extent: Extent) -> Rounds:
        loaded: list[Progress | None] = []
        await self._run(_Job(lambda: loaded.append(load(self._disk))))
        progress = loaded[0]
        if progress is None:
            log.warning("the file SCRUB is damaged: the journal is read again from its beginning")
            progress = Progress()
        self._saved = progress
        rounds = Rounds(extent.segment_size, progress, on=self._period_us > 0)
        for base in self._early:
            rounds.suspect(base)
        return rounds

    async def _read(self, rounds: Rounds, extent: Extent, span: Span) -> float:
        size = extent.segment_size
        read = ScrubRead(self._disk, size, span.place, span.stop, PIECE_BYTES)
        await self._run(read)
        first = (self._extent() or extent).first  # retention may have removed it meanwhile
        damage = read.damage
        ended = rounds.took(span, read, first, self._wall_us())
        if (
            damage is not None
            and damage.stop > first
            and not rounds.lacks_link(span, damage, first)
        ):
            if rounds.remember(damage):
                base = damage.start - damage.start % size
                log.error(
                    "%s is damaged from byte %d to %d: %s",
                    segment_name(base), damage.start - base, damage.stop - base, damage.reason,
                )  # fmt: skip
            mended = False
            if damage.start == self._twice:
                self._why[damage.start] = "it was mended, and is damaged again: replace the disk"
            else:
                mended = await self._mend(extent, damage)
            self._twice = damage.start if mended else None
            if mended:
                rounds.damaged.pop(damage.start, None)
            else:
                ended = rounds.leave(span, damage, first, self._wall_us())
        if ended and span.suspect is not None:
            self._renewed(span.suspect)  # what was cached of it may have caused the suspicion
        await self._save(rounds)
        if span.suspect is not None:
            return read.read_bytes / _SUSPECTS_A_SECOND
        whole = max(1, extent.safe - extent.first)
        round_s = max(whole / MOST_A_SECOND, self._period_us / SECOND_US)
        now = asyncio.get_running_loop().time()
        self._round_at = now + round_s * read.read_bytes / whole
        return 0.0

    async def _save(self, rounds: Rounds) -> None:
        progress = rounds.progress
        if progress != self._saved:
            await self._run(Save(self._disk, progress))
            self._saved = progress

    async def _try_again(self, rounds: Rounds, extent: Extent) -> None:
        """Mend what could not be mended before, some ranges at a time."""
        for damage in list(rounds.damaged.values())[:_SOME]:
            read = ScrubRead(self._disk, extent.segment_size, damage.place, extent.safe, 1)
            await self._run(read)
            mended = read.damage is not None and await self._mend(extent, read.damage)
            rounds.damaged.pop(damage.start, None)
            if mended:
                self.suspect(damage.start)  # what follows it may have to lead from there
            elif read.damage is not None:  # else it is sound by now
                rounds.damaged[damage.start] = read.damage  # behind the others

    # -- mending ----------------------------------------------------------------------------------

    async def _look_at(self, extent: Extent, at: Position) -> None:
        """Look at one record that could not be read, and mend it."""
        find = FindBefore(self._disk, extent.segment_size, at)
        await self._run(find)
        if find.place is None:
            self.suspect(at)  # its segment is read from the beginning next
            return
        most = _FRAME_BYTES if at in self._frames else 1
        self._frames.discard(at)
        read = ScrubRead(self._disk, extent.segment_size, find.place, extent.safe, most)
        await self._run(read)
        if read.damage is None:  # it is sound now
            self._renewed(Position(at - at % extent.segment_size))
        elif not await self._mend(extent, read.damage):
            self.suspect(at)  # so that it is remembered
        elif self._rounds is not None:
            self._rounds.found += 1

    async def _mend(self, extent: Extent, damage: DamagedRange) -> bool:
        """Mend a damaged range from the first broker that has it; return whether that was done."""
        reasons: list[str] = []
        for donor in self._others():
            try:
                patch = await self._patch(donor, extent, damage)
                await self._run(patch)
            except (DonorFailed, DiskError) as error:
                reasons.append(f"{donor.name}: {error}")
                continue
            self._note(patch, donor, extent.segment_size)
            return True
        why = "not mended: " + "; ".join(reasons)
        if self._donors is None:
            why = "there is no other copy: stop the broker, and repair the journal from a backup"
        elif not reasons:
            why = "no other broker runs that could have the bytes"
        if self._why.get(damage.start) != why:
            log.error("the journal is damaged from %d to %d: %s", damage.start, damage.stop, why)
        if len(self._why) >= _MOST_AWAITED:
            self._why.clear()
        self._why[damage.start] = why
        self._again_at = asyncio.get_running_loop().time() + _AGAIN_S
        return False

    async def _patch(self, donor: Donor, extent: Extent, damage: DamagedRange) -> Patch:
        """Return the patch for a damaged range.

        Raises:
            DonorFailed: This one has none.
            DiskError: The own journal cannot be read.
        """
        # A broker without other copies comes not here, and imports nothing of a cluster.
        from ternmq.cluster.replication.mending import BadDonor, Mending

        found: list[Patch | None] = [None]
        try:
            mending = Mending(
                self._disk, extent.segment_size, damage, newest=extent.epoch, limit=extent.safe
            )
            while found[-1] is None:
                records = await donor.read(mending.next, extent.segment_size)
                await self._run(_Job(lambda data=records: found.append(mending.take(data))))  # type: ignore[misc]
        except BadDonor as error:
            raise DonorFailed(str(error)) from error
        now = self._extent()
        if now is None or damage.start < now.first or found[-1].stop > now.safe:
            raise DonorFailed("the journal has changed meanwhile")
        return found[-1]

    def _note(self, patch: Patch, donor: Donor, segment_size: int) -> None:
        self._count += 1
        self._why.pop(patch.start, None)
        for base in range(patch.start - patch.start % segment_size, patch.stop, segment_size):
            self._renewed(Position(base))
        base = patch.start - patch.start % segment_size
        kept = f"; the damaged bytes are in {patch.kept[0]}" if patch.kept else ""
        text = (
            f"{patch.stop - patch.start:,} bytes from byte {patch.start - base:,} on were damaged, "
            f"and were mended from the copy of {donor.name}{kept}"
        )
        log.warning("%s: %s", segment_name(base), text)
        self.mended.append(MendedRange(segment_name(base), text))


def scrub_ended(task: asyncio.Task[None]) -> None:
    """Log that a task of ``Scrubber.work`` has ended by an error that nobody expected."""
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("the scrub has failed: damage is not found any more", exc_info=error)
