"""The first record at or after any byte, whatever the bodies of messages hold."""

from __future__ import annotations

from bisect import bisect_left

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ternmq.journal.disk.memory import MemoryDisk
from ternmq.journal.log.journal import Journal
from ternmq.journal.log.scan import parse, scan
from ternmq.journal.log.segment import segment_name
from ternmq.journal.reader import starts
from ternmq.journal.reader.starts import RecordStarts
from ternmq.model.errors import CorruptJournal, FileMissing
from ternmq.model.types import Position
from ternmq.record.fact.header import HEADER_BYTES, MAGIC, VERSION, Header, Kind, crc_of, framed

SEGMENT = 64 << 10


def forged(position: int, count: int, size: int) -> bytes:
    """Return records for this very position, each valid by itself and chained to the one before."""
    made, crc = b"", 7
    for _ in range(count):
        own = position + len(made)
        header = Header(0, MAGIC, 0, VERSION, Kind.MARK, 0, own, 0, 5, 1, crc)
        record = framed(header, bytes(size))
        assert parse(record, 0, own) is not None
        made, crc = made + record, crc_of(record)
    return made


def filled(plan: list[tuple[int, int]]) -> Journal:
    """Return a journal with a record for each (bytes of the body, forged records in it)."""
    journal = Journal.create(MemoryDisk(), segment_size=SEGMENT, reserve_bytes=0)
    for size, count in plan:
        body = forged(journal.end + HEADER_BYTES, count, 8) + bytes(size)
        journal.append(Kind.STATE, body, 10)
        journal.flush()
        journal.sync_now()
        while (job := journal.wants_spare()) is not None:
            job.run()
            journal.spare_ready(job)
    return journal


def positions(journal: Journal) -> list[int]:
    return [one.position for one in scan(journal._disk, 0, segment_size=SEGMENT)]


PLANS = st.lists(
    st.tuples(st.integers(0, 300) | st.integers(0, 40_000), st.integers(0, 40)), max_size=40
)


@settings(max_examples=60, deadline=None)
@given(PLANS, st.lists(st.integers(0, 1 << 20), min_size=1, max_size=40), st.integers(6, 16))
def test_as_a_reading_of_everything_finds_it(
    plan: list[tuple[int, int]], bytes_: list[int], step: int
) -> None:
    journal = filled(plan)
    known = [*positions(journal), journal.end]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(starts, "STEP", 1 << step)
        patch.setattr(starts, "PIECE", 1 << step + 1)
        patch.setattr(starts, "_FIRST_BYTES", 64)
        found = RecordStarts(journal._disk, SEGMENT)
        for byte in bytes_:
            wanted = byte % (journal.end + 8)
            at = bisect_left(known, wanted)
            expected = known[at] if at < len(known) else journal.end
            assert found.at_or_after(wanted, journal.end) == expected


def test_a_body_full_of_records_is_never_one() -> None:
    journal = filled([(0, 600), (100, 3), (0, 600)])
    known = positions(journal)
    found = RecordStarts(journal._disk, SEGMENT)
    for byte in range(0, journal.end, 8):
        first = found.at_or_after(byte, journal.end)
        assert first in known or first == journal.end


def test_the_end_is_as_far_as_a_reader_may_go() -> None:
    journal = filled([(100, 0)] * 20)
    known = positions(journal)
    found = RecordStarts(journal._disk, SEGMENT)
    assert found.at_or_after(known[5] + 1, known[6]) == known[6]
    assert found.at_or_after(known[5] + 1, known[4]) == known[4]
    assert found.at_or_after(known[3], known[9]) == known[3]
    assert found.at_or_after(journal.end + 100, journal.end) == journal.end


def test_what_was_walked_is_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starts, "STEP", 1024)
    journal = filled([(100, 0)] * 300)
    found = RecordStarts(journal._disk, SEGMENT)
    late = positions(journal)[250]
    passed = found._passed
    assert found.at_or_after(late - 4, journal.end) == late
    offsets = list(passed[0])
    assert offsets == sorted(set(offsets))
    assert len(offsets) > 20
    assert {*offsets} <= {*positions(journal)}
    assert found.at_or_after(late - 4, journal.end) == late
    assert list(passed[0]) == offsets


def test_damage_and_what_is_gone_are_said() -> None:
    journal = filled([(100, 0)] * 20)
    known, disk = positions(journal), journal._disk
    name = segment_name(0)
    file = disk.open(name)
    file.pwrite(b"\xff" * 4, known[8] + 4)
    found = RecordStarts(disk, SEGMENT)
    assert found.at_or_after(known[7], journal.end) == known[7]
    with pytest.raises(CorruptJournal, match=f"no valid record at position {known[8]}"):
        found.at_or_after(known[10], journal.end)
    with pytest.raises(FileMissing):
        found.at_or_after(SEGMENT * 9 + 8, SEGMENT * 10)


def test_places_of_so_many_segments_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starts, "SEGMENTS", 2)
    journal = filled([(20_000, 0)] * 12)
    found = RecordStarts(journal._disk, SEGMENT)
    for base in range(0, journal.end - SEGMENT, SEGMENT):
        assert found.at_or_after(base + 90, journal.end) in positions(journal)
    assert len(found._passed) == 2


def test_what_retention_removed_is_forgotten() -> None:
    journal = filled([(20_000, 0)] * 14)
    disk = journal._disk
    found = RecordStarts(disk, SEGMENT)
    bases = list(range(0, journal.end, SEGMENT))
    assert len(bases) > 4
    for base in bases[:-1]:
        found.at_or_after(base + 90, journal.end)
    found.oldest = bases[2]
    found.at_or_after(bases[-1] + 90, journal.end)
    assert list(found._passed) == bases[2:]
    disk.remove(segment_name(Position(bases[2])))
    with pytest.raises(FileMissing):
        found.at_or_after(bases[2] + 90, journal.end)
    assert list(found._passed) == bases[3:]


def test_memory_for_a_segment_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starts, "STEP", 4096)
    journal = filled([(8, 0)] * 2500)
    found = RecordStarts(journal._disk, SEGMENT)
    for byte in range(journal.end, 0, -777):
        found.at_or_after(byte, journal.end)
    assert all(len(one) <= SEGMENT // 4096 + 1 for one in found._passed.values())
