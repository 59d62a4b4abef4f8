"""Pages of records: those that are read one by one, whatever is damaged."""

from __future__ import annotations

import random

import pytest
from google_crc32c import value as crc32c

from ternmq.journal.disk.memory import MemoryDisk
from ternmq.journal.log.scan import Scanner
from ternmq.journal.log.segment import segment_name
from ternmq.journal.reader.page_scan import PageScanner
from ternmq.model.errors import UnknownRecordKind
from ternmq.record.fact.header import HEADER, HEADER_BYTES, MAGIC, VERSION, Kind
from tests.unit.journal.kit import SEGMENT, commit, fill, filled, open_views

OWN = {Kind.SEGMENT, Kind.PAD}


def one_by_one(disk, start=0):
    """Return the records that are valid from a position on, where they end, and why."""
    scanner = Scanner(disk, start, segment_size=SEGMENT)
    records = list(scanner)
    found = [(one.position, one.kind, one.body) for one in records if one.kind not in OWN]
    return found, records[-1].end if records else start, scanner.fault


def in_pages(disk, start=0):
    scanner = PageScanner(disk, start, segment_size=SEGMENT)
    found = [
        (int(page.positions()[number]), int(page.kinds[number]), page.body(number))
        for page in scanner
        for number in range(len(page))
    ]
    return found, scanner.position, scanner.fault


@pytest.mark.parametrize("size", [24, 700, 5000])
def test_pages_have_all_records(size):
    """Of several segments; of the large ones one at most fits where a read begins."""
    disk = filled(120, size, every=1)
    wanted = one_by_one(disk)
    assert len({position // SEGMENT for position, *_ in wanted[0]}) > 1
    assert in_pages(disk) == wanted
    for position, *_ in wanted[0][::7]:
        assert in_pages(disk, position) == one_by_one(disk, position)


def test_what_is_durable_is_known():
    disk = filled(60)
    scanner = PageScanner(disk, 0, segment_size=SEGMENT)
    for _ in scanner:
        pass
    assert scanner.durable == max(one.durable for one in Scanner(disk, 0, segment_size=SEGMENT))


def test_reigns_that_follow_each_other():
    disk = filled(30)
    for number in range(3):
        journal, _, _ = open_views(disk)
        fill(journal, range(100 * number, 100 * number + 20))
        commit(journal)
        journal.close()
    assert in_pages(disk) == one_by_one(disk)
    assert in_pages(disk)[2] == ""


@pytest.mark.parametrize("seed", range(8))
def test_damage_ends_both_at_the_same_place(seed):
    """Any byte; in a header, a body, or in what is blank behind the last record."""
    chance = random.Random(seed)
    whole = filled(90, 60).image()
    for _ in range(40):
        name = chance.choice([name for name in whole if name.endswith(".seg")])
        at = chance.randrange(SEGMENT)
        bent = bytearray(whole[name])
        bent[at] ^= 1 << chance.randrange(8)
        disk = MemoryDisk({**whole, name: bytes(bent)})
        seen = []
        for way in (one_by_one, in_pages):
            try:
                seen.append(way(disk))
            except UnknownRecordKind as error:
                seen.append(str(error))
        assert seen[0] == seen[1]


def test_a_record_of_another_history_is_not_believed():
    """It is whole, and stands in its place; but what is before it is something else."""
    ours, theirs = filled(50, 60).image(), filled(50, 60, every=1).image()
    (name, *_) = [name for name in sorted(ours) if name.endswith(".seg")]
    for cut in [position for position, *_ in one_by_one(MemoryDisk(ours))[0][5:40:9]]:
        disk = MemoryDisk({**ours, name: ours[name][:cut] + theirs[name][cut:]})
        assert in_pages(disk) == one_by_one(disk)
        assert in_pages(disk)[1] < one_by_one(MemoryDisk(ours))[1]


@pytest.mark.parametrize("wrong", ["nothing", "position", "epoch", "version", "room"])
def test_a_record_that_only_its_header_gives_away(wrong):
    """Its checksum and the chain are right."""
    disk = filled(40, 60)
    *_, last = Scanner(disk, 0, segment_size=SEGMENT)
    base = last.end - last.end % SEGMENT
    made, position, prev = b"", int(last.end), last.crc
    for number in range(2):
        bad = wrong if number else "nothing"
        rest = HEADER.pack(
            0, MAGIC, 64, VERSION, Kind.COUNTS, 0, position + 8 * (bad == "position"), 0, 1,
            last.epoch - (bad == "epoch"), prev,
        )[4:] + bytes(16)  # fmt: skip
        if bad == "version":
            rest = rest[:8] + bytes([9]) + rest[9:]
        prev = crc32c(rest)
        made += prev.to_bytes(4, "little") + rest
        position += 64
    name = segment_name(base)
    at = last.end - base
    if wrong == "room":  # a record that leaves too little behind it in the segment
        length = SEGMENT - at - 64 - 8
        rest = HEADER.pack(0, MAGIC, length, VERSION, Kind.COUNTS, 0, last.end + 64, 0, 1,
                           last.epoch, int.from_bytes(made[:4], "little"))[4:]  # fmt: skip
        rest += bytes(length - HEADER_BYTES)
        made = made[:64] + crc32c(rest).to_bytes(4, "little") + rest
    whole = disk.image()[name]
    disk = MemoryDisk({**disk.image(), name: (whole[:at] + made).ljust(SEGMENT, b"\0")})
    seen = []
    for way in (one_by_one, in_pages):
        try:
            seen.append(way(disk)[:2])
        except UnknownRecordKind as error:
            seen.append(str(error))
    assert seen[0] == seen[1]
    if wrong != "version":
        assert seen[1][1] == last.end + (128 if wrong == "nothing" else 64)


def test_nothing_there():
    disk = filled(5)
    assert in_pages(disk, 8 * SEGMENT) == ([], 8 * SEGMENT, "the segment file is missing")
    end = one_by_one(disk)[1]
    assert in_pages(disk, end) == ([], end, "")
    assert in_pages(disk, end + HEADER_BYTES)[0] == []
