"""The search for damage, and what is mended: a journal in memory, other brokers that answer."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial

import pytest

from ternmq.journal.disk.memory import MemoryDisk
from ternmq.journal.disk.port import Disk
from ternmq.journal.log.pieces import PieceRead
from ternmq.journal.log.segment import segment_bases, segment_name
from ternmq.journal.log.worker import Job
from ternmq.journal.mending.progress import FILE, load
from ternmq.journal.mending.scrub import ScrubRead
from ternmq.model.errors import DiskError
from ternmq.model.types import Epoch, Position
from ternmq.server.engine.coldreads import Awaited
from ternmq.server.scrub import scrubber as module
from ternmq.server.scrub.donors import Donor, DonorFailed
from ternmq.server.scrub.figures import Extent
from ternmq.server.scrub.scrubber import NotNow, Scrubber
from tests.asynchronous import until
from tests.unit.journal.kit import SEGMENT
from tests.unit.journal.mending.kit import contents, copy_of, flip, journal, records_of

END = records_of(journal())[-1].end
ROUND_US = 1
"""A round as short as it may be."""


class Copy:
    """Another broker, whose copy is on a disk."""

    def __init__(self, disk: Disk, name: str = "b") -> None:
        self.name = name
        self.disk = disk
        self.asked = 0
        self.failure = ""

    async def read(self, position: Position, segment_bytes: int) -> bytes:
        self.asked += 1
        await asyncio.sleep(0)
        if self.failure:
            raise DonorFailed(self.failure)
        read = PieceRead(self.disk, segment_bytes, position, Position(1 << 40), 1 << 20)
        read.run()
        return read.data


class Bench:
    """A scrubber, and what it tells others."""

    def __init__(
        self,
        disk: Disk,
        donors: Sequence[Donor] | None = (),
        *,
        period_us: int = ROUND_US,
        run: Callable[[Job], Awaitable[None]] | None = None,
    ) -> None:
        self.disk = disk
        self.jobs: list[Job] = []
        self.renewed: list[Position] = []
        self.released: list[Awaited] = []
        self.donors = donors
        self.extent = Extent(SEGMENT, Position(0), END, Epoch(1))
        self.scrubber = Scrubber(
            disk,
            lambda: self.extent,
            run or self.run,
            period_us=period_us,
            wall_us=lambda: 1234,
            donors=None if donors is None else lambda: self.donors or (),
            renewed=self.renewed.append,
            released=self.released.append,
        )

    async def run(self, job: Job) -> None:
        self.jobs.append(job)
        await asyncio.sleep(0)
        job.run()

    @property
    def begun(self) -> list[Position]:
        """Where reads began."""
        return [one.begin.position for one in self.jobs if isinstance(one, ScrubRead)]


@asynccontextmanager
async def working(bench: Bench) -> AsyncIterator[Scrubber]:
    task = asyncio.create_task(bench.scrubber.work())
    try:
        yield bench.scrubber
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Rounds that end at once, and what cannot be mended is tried again at once."""
    monkeypatch.setattr(module, "MOST_A_SECOND", 1 << 40)
    monkeypatch.setattr(module, "_IDLE_S", 0.01)
    monkeypatch.setattr(module, "_AGAIN_S", 0.01)


@pytest.fixture
def good() -> MemoryDisk:
    return journal()


def bench_of(disk: MemoryDisk, *donors: Donor, period_us: int = ROUND_US) -> Bench:
    return Bench(disk, donors, period_us=period_us)


async def test_a_sound_journal_is_read_again_and_again(good):
    bench = bench_of(good)
    async with working(bench) as one:
        await until(lambda: bench.begun.count(Position(0)) > 2)
    assert one.figures.completed_us == 1234
    assert (one.figures.found, one.figures.mended, one.figures.damaged) == (0, 0, 0)
    sealed = segment_bases(good)[-1] - SEGMENT
    assert one.figures.read_bytes >= 2 * sealed
    assert max(bench.begun) < bench.extent.safe - bench.extent.safe % SEGMENT


async def test_damage_is_mended_from_the_first_broker_that_has_it(good):
    """The others cannot be reached, are damaged there, or have another journal."""
    disk, record = copy_of(good), records_of(good)[5]
    flip(disk, record.position + 20, 8)
    away, broken, other = Copy(good, "away"), Copy(copy_of(good), "broken"), Copy(good, "b")
    away.failure = "it does not run"
    flip(broken.disk, record.end - 1)
    bench = bench_of(disk, away, broken, other)
    async with working(bench) as one:
        await until(lambda: one.figures.completed_us > 0)
    assert contents(disk) == contents(good)
    assert (one.figures.found, one.figures.mended, one.figures.damaged) == (1, 1, 0)
    assert Position(0) in bench.renewed
    (told,) = one.mended
    assert told.file == segment_name(0)
    assert "copy of b" in told.text
    assert "repair/" in told.text
    assert one.wrong() == {}


async def test_damage_that_nobody_can_mend_stays_and_is_told(good):
    disk, records = copy_of(good), records_of(good)
    flip(disk, records[5].position + 20, 8)
    flip(disk, records[-60].position + 20, 8)
    before = contents(disk)
    other = Copy(copy_of(disk), "b")
    bench = bench_of(disk, other)
    async with working(bench) as one:
        await until(lambda: one.figures.completed_us > 0)
        assert one.figures.damaged == 2
        assert contents(disk) == before
        wrong = one.wrong()
        assert segment_name(0) in wrong
        assert "b: " in wrong[segment_name(0)]
        other.disk = good  # somebody has brought the other one a good disk
        await until(lambda: one.figures.damaged == 0)
    assert contents(disk) == contents(good)
    assert one.wrong() == {}
    assert (one.figures.found, one.figures.mended) == (2, 2)


async def test_a_broker_that_is_alone_says_what_to_do(good):
    disk = copy_of(good)
    flip(disk, records_of(good)[5].position + 20, 8)
    before = contents(disk)
    bench = Bench(disk, None)
    async with working(bench) as one:
        await until(lambda: one.figures.completed_us > 0)
        assert "repair the journal from a backup" in one.wrong()[segment_name(0)]
        assert one.mends(records_of(good)[5].position) is None, "nobody waits in vain"
        assert contents(disk) == before
        flip(disk, records_of(good)[5].position + 20, 8)
        await until(lambda: one.figures.damaged == 0)
    assert one.wrong() == {}


@pytest.mark.parametrize("mendable", [True, False])
async def test_a_record_that_a_follower_does_not_take_is_looked_at(good, mendable):
    disk, record = copy_of(good), records_of(good)[5]
    flip(disk, record.position + 20, 8)
    bench = bench_of(disk, *[Copy(good)] * mendable, period_us=0)
    async with working(bench) as one:
        one.look_at(record.position)
        one.look_at(records_of(good)[6].position)
        one.look_at(bench.extent.safe)
        await until(lambda: one.figures.found == 1)
        assert one.figures.damaged == (not mendable)
    assert (contents(disk) == contents(good)) == mendable


async def test_a_broker_that_is_alone_looks_at_a_failed_read_a_while_later(good, monkeypatch):
    """A disk that has just failed is not asked for the same bytes again at once."""
    monkeypatch.setattr(module, "_ALONE_S", 0.1)
    disk = copy_of(good)
    flip(disk, records_of(good)[5].position + 20, 8)
    bench = Bench(disk, None, period_us=0)
    async with working(bench) as one:
        assert one.mends(records_of(good)[5].position) is None
        assert one.mends(records_of(good)[6].position) is None
        await asyncio.sleep(0)
        assert not bench.begun
        await until(lambda: one.figures.damaged == 1)
    assert bench.begun.count(Position(0)) == 1


async def test_rounds_can_be_off_and_a_failed_read_is_looked_at_all_the_same(good):
    disk, records = copy_of(good), records_of(good)
    record = records[5]
    flip(disk, record.position + 20, 8)
    flip(disk, records[-1].position - SEGMENT, 1)
    bench = bench_of(disk, Copy(good), period_us=0)
    async with working(bench) as one:
        awaited = one.mends(record.position)
        assert awaited is not None
        assert one.mends(record.position) is awaited
        await until(lambda: awaited in bench.released)
        assert contents(disk)[0] == contents(good)[0]
        assert Position(0) in bench.renewed
        await until(lambda: one.figures.read_bytes >= SEGMENT, "its segment is read")
        assert not one.figures.on
        assert max(bench.begun) < SEGMENT, "and nothing else"


async def test_a_command_does_not_wait_again_and_again(good, monkeypatch):
    """Its record is sound here, so what the command reads is something else."""
    monkeypatch.setattr(module, "_AGAIN_S", 60.0)
    record = records_of(good)[5]
    bench = bench_of(copy_of(good), Copy(good))
    async with working(bench) as one:
        for _ in range(3):
            awaited = one.mends(record.position)
            assert awaited is not None
            await until(partial(bench.released.__contains__, awaited))
        assert one.mends(record.position) is None
        assert one.mends(records_of(good)[6].position) is not None
        assert one.mends(bench.extent.safe) is None, "it is not committed"


async def test_a_command_does_not_wait_for_a_broker_that_hangs(good, monkeypatch):
    monkeypatch.setattr(module, "_WAIT_S", 0.01)
    disk, record = copy_of(good), records_of(good)[5]
    flip(disk, record.position + 20, 8)
    hangs = Copy(good)

    async def never(position: Position, segment_bytes: int) -> bytes:
        await asyncio.Event().wait()
        return b""

    monkeypatch.setattr(hangs, "read", never)
    bench = bench_of(disk, hangs, period_us=0)
    async with working(bench) as one:
        awaited = one.mends(record.position)
        await until(lambda: awaited in bench.released)


async def test_a_restart_goes_on_where_the_round_was(good, monkeypatch):
    monkeypatch.setattr(module, "PIECE_BYTES", 1000)
    bench = bench_of(good, period_us=1_000_000)
    third = segment_bases(good)[2]
    async with working(bench):
        await until(lambda: any(one > third for one in bench.begun))
    kept = load(good)
    assert kept is not None
    assert kept.position >= third
    again = bench_of(good)
    async with working(again):
        await until(lambda: bool(again.begun))
    assert again.begun[0] == kept.position


async def test_a_restart_looks_at_what_was_damaged_first(good):
    disk = copy_of(good)
    flip(disk, records_of(good)[5].position + 20, 8)
    bench = bench_of(disk)
    async with working(bench) as one:
        await until(lambda: one.figures.completed_us > 0)
    again = bench_of(disk, Copy(good), period_us=0)
    async with working(again) as one:
        await until(lambda: one.figures.mended == 1)
    assert contents(disk) == contents(good)


async def test_a_damaged_file_of_the_progress_is_no_harm(good, caplog):
    good.open(FILE, create=True).pwrite(b"rubbish" * 600, 0)
    bench = bench_of(good)
    async with working(bench) as one:
        await until(lambda: one.figures.completed_us > 0)
    assert "begin" in caplog.text
    assert load(good) is not None


async def test_the_first_record_of_a_segment_that_a_restart_begins_with(good):
    """What comes before it is looked up: the patch has to lead from there."""
    disk = copy_of(good)
    second = segment_bases(good)[1]
    flip(disk, second + 20, 8)
    bench = bench_of(disk, Copy(good), period_us=0)
    async with working(bench) as one:
        one.suspect(Position(second + 700))
        await until(lambda: one.figures.mended == 1)
    assert contents(disk) == contents(good)


async def test_a_disk_that_does_not_keep_what_is_mended(good, monkeypatch):
    """It is not mended for ever: the round goes on, and an alarm says so."""
    disk, record = copy_of(good), records_of(good)[5]
    flip(disk, record.position + 20, 8)

    async def run(job: Job) -> None:
        await asyncio.sleep(0)
        job.run()
        if type(job).__name__ == "Patch":
            flip(disk, record.position + 20, 8)

    bench = Bench(disk, [Copy(good)], run=run)
    async with working(bench) as one:
        await until(lambda: one.figures.completed_us > 0)
        await until(lambda: "replace the disk" in one.wrong().get(segment_name(0), ""))


async def test_what_retention_removes_is_no_damage_any_more(good):
    disk = copy_of(good)
    flip(disk, records_of(good)[5].position + 20, 8)
    bench = bench_of(disk)
    async with working(bench) as one:
        await until(lambda: one.figures.damaged == 1)
        disk.remove(segment_name(0))
        bench.extent = bench.extent._replace(first=Position(SEGMENT))
        await until(lambda: one.figures.damaged == 0)
    assert one.wrong() == {}


async def test_it_goes_on_when_the_disk_or_the_moment_was_bad(good):
    errors: list[Exception] = [NotNow(), DiskError("no descriptor is left"), NotNow()]

    async def run(job: Job) -> None:
        await asyncio.sleep(0)
        if errors:
            raise errors.pop()
        job.run()

    bench = Bench(good, run=run)
    async with working(bench) as one:
        await until(lambda: one.figures.completed_us > 0)
    assert not errors


async def test_a_patch_is_not_written_when_the_journal_has_changed_meanwhile(good):
    """A copy may be cut, or its segment removed, while another broker is asked."""
    disk, record = copy_of(good), records_of(good)[5]
    flip(disk, record.position + 20, 8)
    before = contents(disk)
    other = Copy(good)
    bench = bench_of(disk, other)
    answer = other.read

    async def read(position: Position, segment_bytes: int) -> bytes:
        bench.extent = bench.extent._replace(first=Position(SEGMENT))
        return await answer(position, segment_bytes)

    other.read = read  # type: ignore[method-assign]
    async with working(bench) as one:
        await until(lambda: other.asked > 0 and one.figures.completed_us > 0)
    assert contents(disk) == before
