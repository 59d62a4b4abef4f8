"""Pieces of the journal for followers: what is written, what a thread reads again, what matches."""

from __future__ import annotations

import pytest

from ternmq.journal.disk.memory import MemoryDisk
from ternmq.journal.log.checkpoint import Checkpoint
from ternmq.journal.log.journal import Journal
from ternmq.journal.log.pieces import MatchRead, PieceRead, cut
from ternmq.journal.log.scan import RawRecord, scan
from ternmq.journal.log.segment import segment_name
from ternmq.model.errors import CorruptJournal, FileMissing
from ternmq.model.types import Epoch, Position
from ternmq.record.fact.header import HEADER, HEADER_BYTES, MAGIC, VERSION, Kind, header_of
from tests.unit.journal.kit import SEGMENT, body, filled, make_spares, open_views


@pytest.fixture(scope="module")
def disk() -> MemoryDisk:
    return filled(400, size=200)


@pytest.fixture(scope="module")
def found(disk: MemoryDisk) -> list[RawRecord]:
    found = list(scan(disk, 0))
    pads = [one.length for one in found if one.kind == Kind.PAD]
    assert max(pads) > HEADER_BYTES
    return found


def expected(disk: MemoryDisk, found: list[RawRecord]) -> bytes:
    parts: list[bytes] = []
    for one in found:
        base = one.position - one.position % SEGMENT
        size = HEADER_BYTES if one.kind == Kind.PAD else one.length
        parts.append(disk.open(segment_name(base)).pread(size, one.position - base))
    return b"".join(parts)


def read(disk: MemoryDisk, position: int, written: int, most: int) -> PieceRead:
    job = PieceRead(disk, SEGMENT, Position(position), Position(written), most)
    job.run()
    return job


@pytest.mark.parametrize("most", [48, 200, 1000, 5000, 1 << 20])
def test_pieces_are_the_journal(disk, found, most):
    end = found[-1].end
    at, parts = 0, []
    while at < end:
        job = read(disk, at, end, most)
        assert len(job.data) <= max(most, 300)
        assert (at // SEGMENT) == (job.end - 1) // SEGMENT, "a piece ends within a segment"
        parts.append(job.data)
        at = job.end
    assert at == end
    assert b"".join(parts) == expected(disk, found)


def test_nothing_above_what_was_written_is_read(disk, found):
    third = found[3]
    assert read(disk, 0, third.end, 1 << 20).end == third.end
    with pytest.raises(CorruptJournal):
        read(disk, third.position, third.position + 48, 1 << 20)


def test_a_position_within_a_record_is_refused(disk, found):
    with pytest.raises(CorruptJournal, match="no record begins"):
        read(disk, found[3].position + 8, found[-1].end, 1 << 20)


def test_a_segment_that_is_gone(disk, found):
    with pytest.raises(FileMissing):
        read(MemoryDisk(), 0, found[-1].end, 100)


def test_cut_stops_before_what_is_not_whole(disk, found):
    data = expected(disk, found[:5])
    ends = [one.end for one in found[:5]]
    for size in range(len(data) + 1):
        assert cut(data[:size], 0, 1 << 20).stop == max([0, *[end for end in ends if end <= size]])
        assert cut(data, 0, size) == cut(data[:size], 0, 1 << 20)


# ------------------------------------------------------------------------------ the sink


def test_the_sink_gets_what_is_written():
    disk = MemoryDisk()
    journal, _, _ = open_views(disk)
    make_spares(journal)
    start = journal.end
    got: list[tuple[int, bytes]] = []
    journal.sink = lambda position, data: got.append((position, data))
    for number in range(200):
        journal.append(Kind.COUNTS, body(number, 100 + number % 90), 2000)
        if number % 7 == 0:
            journal.flush()
            make_spares(journal)
    journal.flush()
    journal.sync_now()
    assert b"".join(data for _, data in got) == expected(disk, list(scan(disk, start)))
    for position, data in got:
        assert header_of(data).position == position
        base = position - position % SEGMENT
        assert position + len(data) <= base + SEGMENT
        assert disk.open(segment_name(base)).pread(len(data), position - base) == data
    assert len({position // SEGMENT for position, _ in got}) > 2


def test_the_sink_comes_before_the_sync():
    journal = Journal.create(MemoryDisk(), segment_size=SEGMENT)
    seen: list[bool] = []
    journal.sink = lambda *_: seen.append(journal.next_sync() is None)
    journal.append(Kind.COUNTS, body(1), 2000)
    journal.flush()
    assert len(seen) == 1
    journal.close()


# ------------------------------------------------------------------------------ what matches


def name_of(record: RawRecord) -> Checkpoint:
    return Checkpoint(record.position, Epoch(record.epoch), record.crc)


def match(disk: MemoryDisk, written: int, *names: Checkpoint, first: int = 0) -> object:
    job = MatchRead(disk, SEGMENT, Position(first), Position(written), names)
    job.run()
    return job.found


def test_the_first_record_that_is_here_matches(disk, found):
    end = found[-1].end
    strange = Checkpoint(found[9].position, Epoch(1), found[9].crc ^ 1)
    for one in (found[0], found[9], found[-1], *[one for one in found if one.kind == Kind.PAD]):
        assert match(disk, end, strange, name_of(one)) == (one.position, one.end)
        assert match(disk, end, name_of(one), name_of(found[5])) == (one.position, one.end)


def test_what_does_not_match(disk, found):
    end, one = found[-1].end, found[9]
    assert match(disk, end) is None
    assert match(disk, end, name_of(one)._replace(epoch=Epoch(2))) is None
    assert match(disk, end, name_of(one)._replace(position=Position(one.position + 8))) is None
    assert match(disk, end, name_of(one)._replace(position=Position(1 << 60))) is None
    assert match(disk, one.end - 8, name_of(one)) is None, "it is not written yet"
    assert match(disk, end, name_of(one), first=SEGMENT) is None, "it is removed"
    assert match(MemoryDisk(), end, name_of(one)) is None


def test_a_message_that_looks_like_a_record_does_not_match():
    disk = MemoryDisk()
    journal, _, _ = open_views(disk)
    make_spares(journal)
    inner = journal.end + HEADER_BYTES
    crafted = HEADER.pack(
        7, MAGIC, 64, VERSION, Kind.COUNTS, 0, inner, 0, 1, 1, 12345
    )  # fmt: skip
    journal.append(Kind.COUNTS, crafted + bytes(100), 2000)
    journal.flush()
    name = Checkpoint(Position(inner), Epoch(1), 7)
    assert match(disk, journal.written, name) is None
