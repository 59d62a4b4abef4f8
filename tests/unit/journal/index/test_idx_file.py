"""The file of a run: golden bytes, every byte guarded, blocks and sections."""

from __future__ import annotations

import struct
from array import array
from pathlib import Path

import numpy as np
import pytest

from ternmq.journal.cache.cold import ColdCache
from ternmq.journal.disk.memory import MemoryDisk
from ternmq.journal.index import idx_file
from ternmq.journal.index.batch_facts import CopyFacts
from ternmq.journal.index.columns import Columns, difference, merge, of_tail
from ternmq.journal.index.idx_encode import encode
from ternmq.journal.index.idx_file import NO_HINT, Head, StaleRun, StateHint, part_name, run_name
from ternmq.journal.index.index import Index
from ternmq.journal.index.run_content import read_columns
from ternmq.journal.index.run_file import open_run, read_head
from ternmq.model.types import Position
from ternmq.record.fact.transactions import DuePart, Part

GOLDEN = Path(__file__).parents[3] / "golden" / "index_v2.idx"
BASE = Position(1 << 20)


def sample(start: int = BASE + 80, count: int = 6) -> Index:
    """Return an index of a few records with one of everything."""
    index = Index(MemoryDisk(), segment_size=1 << 20, start=BASE)
    position = start
    for number in range(count):
        key = struct.pack("<2Q", 0, 0xABCD + number % 2)
        ids = struct.pack("<4Q", 0, 0, 5 + number, 6)
        index.add(
            3,
            number % 2,
            100 + 2 * (number // 2),
            2,
            position,
            304,
            number % 3,
            0x1122334455667788,
            2 * number,
            key if number % 2 else b"",
            ids if number % 3 == 0 else b"",
            1_700_000_000_000_000 + number,
        )
        position += 304
    copies = CopyFacts(
        3,
        1,
        array("Q", [90, 7]),
        array("Q", [0x55, 0x44]),
        array("Q", [12, 900]),
        struct.pack("<2Q", 0, 0xABCD),
        struct.pack("<4Q", 8, 9, 0, 0),
    )
    index.add_moved(copies, position, 1_700_000_000_000_100)
    index.add_unseen(3, 4, position + 304, 0x66, 77, b"", b"", 1_700_000_000_000_101)
    parts = [Part(80, 106, 1, 3, 1, 4, 248), Part(position + 304, 0, 0, 4, 0, 4, 256)]
    index.add_resolved(position + 608, 1_700_000_000_000_102, parts, [88])
    due = [DuePart(96, 700, 3, 0, (1_800_000_000_000_000,), 256)]
    index.add_resolved(position + 800, 1_700_000_000_000_103, (), (), due, 9, committed=True)
    index.add_resolved(position + 920, 1_700_000_000_000_103, (), (), (), 7)
    return index


def content(index: Index) -> Columns:
    return of_tail(index.tail)


def encoded(columns: Columns, stop: int = BASE + 4096) -> bytes:
    return b"".join(
        encode(
            columns,
            base=BASE,
            start=BASE,
            stop=Position(stop),
            chain_crc=0xCAFEBABE,
            hint=StateHint(Position(BASE + 8), Position(BASE + 80)),
        )
    )


def read(data: bytes) -> tuple[Head, Columns]:
    disk = MemoryDisk({"index/x": data})
    file = disk.open("index/x")
    head = read_head(file)
    run, _ = open_run(ColdCache(disk), file, head)
    return head, read_columns(disk, run)


def test_a_row_of_a_scheduled_batch_is_found_when_a_part_of_the_batch_has_come_due():
    index = Index(MemoryDisk(), segment_size=1 << 20, start=BASE)
    time_us = 1_700_000_000_000_000
    index.add_unseen(3, 6, BASE + 80, 7, 10, b"", b"", time_us)
    index.add_unseen(3, 2, BASE + 160, 7, 16, b"", b"", time_us)
    for number, (first, count) in enumerate(((11, 1), (13, 2), (10, 1))):
        position = BASE + 240 + 80 * number
        index.add(3, 0, number, count, position, 80, 0, 7, first, b"", b"", time_us)
        index.note_fulfilled()
    disk = MemoryDisk({"index/x": encoded(content(index))})
    file = disk.open("index/x")
    run, _ = open_run(ColdCache(disk), file, read_head(file))
    deliveries = {11: (240, 0), 13: (320, 0), 14: (320, 1), 10: (400, 0)}
    for sequence in range(10, 18):
        stored = (80, sequence - 10) if sequence < 16 else (160, sequence - 16)
        expected = [(BASE + at, row) for at, row in (deliveries.get(sequence, stored), stored)]
        for source in (index.tail, run):
            places = source.message_id(7, sequence)
            found = [(place.position, place.row) for place in places]
            assert found == list(dict.fromkeys(expected))
    assert not run.message_id(7, 9)
    assert not run.message_id(7, 18)


def test_the_golden_file_is_what_is_written_and_read():
    data = encoded(content(sample()))
    assert GOLDEN.read_bytes() == data
    head, columns = read(GOLDEN.read_bytes())
    assert (head.base, head.start, head.stop) == (BASE, BASE, BASE + 4096)
    assert head.chain_crc == 0xCAFEBABE
    assert head.hint == StateHint(Position(BASE + 8), Position(BASE + 80))
    assert head.first_time_us == 1_700_000_000_000_000
    assert head.last_time_us == 1_700_000_000_000_102
    assert difference(columns, content(sample())) is None


def test_the_golden_file_reads_as_the_document_says():
    """By hand, with nothing of the package."""
    data = GOLDEN.read_bytes()
    magic, version, count, length = struct.unpack_from("<IHHI", data, 4)
    assert (magic, version, count) == (0x31584D54, 2, 15)
    sections = {
        number: (row_bytes, offset, size)
        for number, row_bytes, offset, size, _, _ in struct.iter_unpack(
            "<IIQQII", data[104 : 104 + 32 * count]
        )
    }
    assert min(offset for _, offset, _ in sections.values()) == length
    _, offset, size = sections[1]
    assert list(struct.iter_unpack("<QQQII", data[offset : offset + size])) == [
        (3 << 32, 100, 106, 0, 3),
        (3 << 32 | 1, 100, 110, 3, 4),
        (4 << 32, 0, 4, 7, 1),
    ]
    _, offset, size = sections[2]
    batches = list(struct.iter_unpack("<QII", data[offset : offset + size]))
    assert batches[:2] == [(100, 10, 304), (102, 10 + 2 * 38, 304)]
    _, offset, size = sections[3]
    assert struct.unpack(f"<{size // 8}Q", data[offset : offset + size]) == (
        0, 2, 1, 1, 0, 2, 1, 0,
    )  # fmt: skip
    _, offset, size = sections[5]
    prepared = (BASE + 80 + 7 * 304) - BASE >> 3
    assert list(struct.iter_unpack("<QQII", data[offset : offset + size]))[:2] == [
        (0x66, 77, 4, prepared),
        (0x1122334455667788, 0, 2, 10),
    ]
    _, offset, size = sections[6]
    assert list(struct.iter_unpack("<IIQII", data[offset : offset + size]))[:2] == [
        (3, 10 + 6 * 38, 0xABCD, 1, 0),
        (3, 10 + 38, 0xABCE, 1, 0),
    ]
    _, offset, size = sections[7]
    assert next(struct.iter_unpack("<QQIIII", data[offset : offset + size])) == (
        5, 6, 3, 10, 1, 0,
    )  # fmt: skip
    _, offset, size = sections[8]
    assert list(struct.iter_unpack("<QQII", data[offset : offset + size])) == [
        (3 << 32 | 1, 7, 10 + 6 * 38, 1),
        (3 << 32 | 1, 90, 10 + 6 * 38, 0),
    ]
    _, offset, size = sections[9]
    assert list(struct.iter_unpack("<QQII", data[offset : offset + size])) == [
        (0x44, 900, 10 + 6 * 38, 1),
        (0x55, 12, 10 + 6 * 38, 0),
    ]
    _, offset, size = sections[12]
    bodies = struct.unpack(f"<{size // 8}Q", data[offset : offset + size])
    assert bodies == (0, 0, 0, 0, 0, 0, 80, BASE + 8 * prepared)
    _, offset, size = sections[13]
    assert list(struct.iter_unpack("<QQII", data[offset : offset + size])) == [
        (80, 106, prepared + 38, 0),
        (88, 2**64 - 1, prepared + 38, 0),
        (96, 1 << 63 | 700, prepared + 62, 0),
        (BASE + 8 * prepared, 0, prepared + 38, 0),
    ]
    _, offset, size = sections[15]
    assert list(struct.iter_unpack("<QII", data[offset : offset + size])) == [
        (7, prepared + 77, 0),
        (9, prepared + 62, 1),
    ]
    assert struct.unpack_from("<QQ", data, 88) == (7, 9)


def test_decisions_are_found_in_tails_and_in_run_files():
    index = sample()
    disk = MemoryDisk({"index/x": encoded(content(index))})
    file = disk.open("index/x")
    run, _ = open_run(ColdCache(disk), file, read_head(file))
    for source in (index.tail, run):
        found = {number: source.decision(number) for number in range(12)}
        assert [number for number, one in found.items() if one is not None] == [7, 9]
        assert found[9] is not None
        assert found[9].committed
        assert found[7] is not None
        assert not found[7].committed
        assert found[7].position == found[9].position + 120
        scheduled = source.settlement(96)
        assert scheduled is not None
        assert (scheduled.first_offset, scheduled.first_entry) == (None, 700)
        gone = source.settlement(88)
        assert gone is not None
        assert (gone.first_offset, gone.first_entry) == (None, None)


def test_every_flipped_byte_is_noticed():
    """All bytes but the padding behind sections are under some checksum."""
    data = encoded(content(sample()))
    whole = read(data)[1]
    unguarded = 0
    for at in range(len(data)):
        changed = data[:at] + bytes([data[at] ^ 0x40]) + data[at + 1 :]
        try:
            columns = read(changed)[1]
        except StaleRun:
            continue
        assert difference(columns, whole) is None
        unguarded += 1
    head = Head.decode(data)
    bloom = head.sections[idx_file.BLOOM].length  # checked block by block when a look-up reads it
    assert unguarded == bloom + sum(-one.length % 8 for one in head.sections.values())


@pytest.mark.parametrize("step", [1, 7])
def test_every_shortened_file_is_refused(step):
    data = encoded(content(sample()))
    for length in range(0, len(data), step):
        with pytest.raises(StaleRun):
            read(data[:length])


def test_trailing_bytes_do_not_matter():
    data = encoded(content(sample()))
    assert difference(read(data + b"junk")[1], content(sample())) is None


def test_an_empty_run():
    index = Index(MemoryDisk(), segment_size=1 << 20, start=BASE)
    head, columns = read(encoded(content(index)))
    assert (head.first_time_us, head.last_time_us) == (0, 0)
    assert [len(columns.queues), len(columns.batches), len(columns.producers)] == [0, 0, 0]


def test_many_blocks_are_split_on_whole_rows():
    index = Index(MemoryDisk(), segment_size=1 << 30, start=Position(0))
    for number in range(5000):
        index.add(
            1, number % 3, number // 3, 1, 80 + 200 * number, 200, 1, 7, number,
            struct.pack("<Q", number + 1), b"", 5,
        )  # fmt: skip
    data = b"".join(
        encode(
            content(index), base=Position(0), start=Position(0), stop=Position(1 << 30), chain_crc=1
        )
    )
    head, columns = read(data)
    assert head.hint == NO_HINT
    assert difference(columns, content(index)) is None
    for section in head.sections.values():
        assert section.block_bytes % section.row_bytes == 0
        assert section.offset % 8 == 0
    masks, batches = head.sections[idx_file.MASKS], head.sections[idx_file.BATCHES]
    assert masks.block_bytes // masks.row_bytes == batches.block_bytes // batches.row_bytes
    fences = head.sections[idx_file.FENCES]
    assert fences.rows == -(-5000 // idx_file.BATCHES_PER_BLOCK)


def test_merging_parts_is_the_same_as_one_whole():
    whole = Index(MemoryDisk(), segment_size=1 << 30)
    parts = [Index(MemoryDisk(), segment_size=1 << 30) for _ in range(3)]
    for number in range(60):
        values = (
            number % 2,
            number % 5,
            number // 10,
            1,
            80 + 200 * number,
            200,
            int(20 <= number < 40),
            100 - number % 7,
            number,
            struct.pack("<Q", number % 11),
            struct.pack("<QQ", number % 13, 1),
            1000 + number,
        )
        whole.add(*values)
        parts[number // 20].add(*values)
    merged = merge([content(part) for part in parts])
    assert difference(merged, content(whole)) is None
    assert (np.diff(merged.queues["key"].astype(np.int64)) > 0).all()


def test_names_sort_as_positions_do():
    assert run_name(5) == "index/00000000000000000005.idx"
    assert part_name(5, 17) == "index/00000000000000000005-00000000000000000017.part"
    assert sorted([run_name(100), run_name(20)]) == [run_name(20), run_name(100)]
