"""The format of a run file: an immutable index of the records in ``[start, stop)`` of one segment.

Ruler (little-endian; the same text is in ``docs/format/index.md``)::

     0  u32 crc32c        of bytes 4..head_length
     4  u32 magic         0x31584D54, "TMX1"
     8  u16 version       2
    10  u16 section_count 15
    12  u32 head_length   bytes of the head, a multiple of 8
    16  u64 base          of the segment
    24  u64 start         first position covered
    32  u64 stop          first position not covered
    40  u32 chain_crc     crc32c field of the last record before stop
    44  u32 block_count
    48  u64 state_begin   BEGIN of the newest complete STATE set when this was cut, 2**64-1: none
    56  u64 state_end     position of that set's END record, 2**64-1: none
    64  i64 first_time_us broker time of the first indexed record, 0: there is none
    72  i64 last_time_us  of the last
    80  u64 file_length
    88  u64 first_decided lowest number of a transaction in DECISIONS, 0: there is none
    96  u64 last_decided  highest
   104  section_count x (u32 id, u32 row_bytes, u64 offset, u64 length, u32 block_bytes,
        u32 first_block)
     .  block_count x u32 crc32c of a block, section after section
     .  zero padding to 8, end of the head; then the sections, each padded to 8

A section is cut into blocks of ``block_bytes`` (the last may be shorter); a block is what is read,
checked and cached at once, and holds whole rows. Sections, in this order; a *place* is a record's
distance from the base in units of 8 bytes::

    1 QUEUES     u64 key (topic << 32 | queue), u64 first_offset, u64 next_offset, u32 first_batch,
                 u32 batch_count; sorted by key
    2 BATCHES    u64 first_offset, u32 place, u32 length of the record; by queue, then offset
    3 MASKS      u64 tag bloom of each batch; empty when all are 0
    4 FENCES     u64 first_offset of the first batch of each block of BATCHES
    5 PRODUCERS  u64 producer, u64 first sequence, u32 rows, u32 place; sorted by producer, sequence
    6 KEYS       u32 topic, u32 place, u64 hash, u32 row, u32 0; sorted by topic, hash, place, row
    7 IDS        u64 low, u64 high, u32 topic, u32 place, u32 row, u32 0; sorted by topic, low,
                 high, place, row
    8 MOVED      u64 key, u64 offset, u32 place, u32 row; sorted by key, offset, place, row
    9 MOVED_IDS  u64 producer, u64 sequence, u32 place, u32 row; sorted by producer, sequence,
                 place, row
   10 BLOOM      three filters of 64-byte lines, one after the other: producers, keys, ids
   11 BLOOMS     u64 lines of each of the three filters
   12 BODIES     u64 position of the PREPARED that holds each batch of BATCHES, 0: it is in the
                 record at the batch's own place; empty when all are 0
   13 RESOLVED   u64 position of a PREPARED, u64 offset of its first row (2**64-1: dropped; with
                 bit 63, the entry of its first row: the rows were scheduled), u32
                 place of the RESOLVED, u32 0; sorted by position
   14 SUMS       u64 bytes of the records of all batches before each block of BATCHES, then of all
   15 DECISIONS  u64 transaction, u32 place of its RESOLVED, u32 flags (1: committed); sorted by
                 transaction

Changing this layout: raise ``VERSION`` and let ``Head.decode`` refuse older files: the index is a
cache and is rebuilt. Replace the golden file under ``tests/golden`` and say so in
``docs/format/index.md``.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from google_crc32c import value as crc32c

from ternmq.journal.index import bloom
from ternmq.model.types import NO_POSITION, Position

MAGIC: Final = 0x31584D54
VERSION: Final = 2
FOLDER: Final = "index"
RUN_SUFFIX: Final = ".idx"
PART_SUFFIX: Final = ".part"
TEMPORARY_SUFFIX: Final = ".tmp"

HEAD: Final = struct.Struct("<IIHHIQQQIIQQqqQQQ")
SECTION: Final = struct.Struct("<IIQQII")
PREFIX: Final = struct.Struct("<IIHHI")
LINES: Final = struct.Struct("<QQQ")
QUEUE_ROW: Final = struct.Struct("<QQQII")
"""A row of the section QUEUES."""

BATCHES_PER_BLOCK: Final = 1024

QUEUES: Final = 1
BATCHES: Final = 2
MASKS: Final = 3
FENCES: Final = 4
PRODUCERS: Final = 5
KEYS: Final = 6
IDS: Final = 7
MOVED: Final = 8
MOVED_IDS: Final = 9
BLOOM: Final = 10
BLOOMS: Final = 11
BODIES: Final = 12
RESOLVED: Final = 13
SUMS: Final = 14
DECISIONS: Final = 15

ROW_BYTES: Final = {
    QUEUES: 32,
    BATCHES: 16,
    MASKS: 8,
    FENCES: 8,
    PRODUCERS: 24,
    KEYS: 24,
    IDS: 32,
    MOVED: 24,
    MOVED_IDS: 24,
    BLOOM: bloom.LINE_BYTES,
    BLOOMS: 8,
    BODIES: 8,
    RESOLVED: 24,
    SUMS: 8,
    DECISIONS: 16,
}


class StaleRun(Exception):
    """A run file is damaged, or describes other records than the journal holds: rebuild it."""


@dataclass(slots=True, frozen=True)
class StateHint:
    """The positions of the newest complete STATE set; recovery checks them."""

    begin: Position
    end: Position


NO_HINT: Final = StateHint(NO_POSITION, NO_POSITION)


@dataclass(slots=True, frozen=True)
class Section:
    """The place of a section in the file.

    Blocks are numbered through the whole file; the section's first one is ``first_block``.
    """

    offset: int
    length: int
    row_bytes: int
    block_bytes: int
    first_block: int

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self.length // self.row_bytes


@dataclass(slots=True, frozen=True)
class Head:
    """The head of a run file.

    Attributes:
        base: Base of its segment.
        start: First position covered.
        stop: First position not covered.
        chain_crc: CRC of the last record before ``stop``.
        hint: The newest complete STATE set when the run was cut.
        first_time_us: Broker time of the first indexed record, 0 if there is none.
        last_time_us: Broker time of the last one.
        sections: Id -> section.
        block_crcs: CRC of each block.
        file_length: Bytes of the file.
        first_decided: Lowest number in DECISIONS, 0 if there is none.
        last_decided: Highest number in it.
    """

    base: Position
    start: Position
    stop: Position
    chain_crc: int
    hint: StateHint
    first_time_us: int
    last_time_us: int
    sections: dict[int, Section]
    block_crcs: memoryview
    file_length: int
    first_decided: int
    last_decided: int

    @classmethod
    def decode(cls, data: bytes) -> Head:
        """Return the head from a file's first bytes, at least ``head_length`` of them.

        Raises:
            StaleRun: The head is damaged or of another version.
        """
        length = head_length(data)
        if len(data) < length or crc32c(data[4:length]) != PREFIX.unpack_from(data)[0]:
            raise StaleRun("damaged head")
        (
            *_,
            base,
            start,
            stop,
            chain_crc,
            block_count,
            begin,
            end,
            first_time_us,
            last_time_us,
            file_length,
            first_decided,
            last_decided,
        ) = HEAD.unpack_from(data)
        count = PREFIX.unpack_from(data)[3]
        sections: dict[int, Section] = {}
        for index in range(count):
            number, row_bytes, offset, size, block_bytes, first_block = SECTION.unpack_from(
                data, HEAD.size + index * SECTION.size
            )
            sections[number] = Section(offset, size, row_bytes, block_bytes, first_block)
        if sections.keys() != ROW_BYTES.keys():
            raise StaleRun("other sections than this version writes")
        crcs_at = HEAD.size + count * SECTION.size
        crcs = memoryview(data)[crcs_at : crcs_at + 4 * block_count].cast("I")
        hint = StateHint(Position(begin), Position(end))
        return cls(
            Position(base),
            Position(start),
            Position(stop),
            chain_crc,
            hint,
            first_time_us,
            last_time_us,
            sections,
            crcs,
            file_length,
            first_decided,
            last_decided,
        )


def head_length(data: bytes) -> int:
    """Return the length of a file's head, from the file's first bytes (16 are enough).

    Raises:
        StaleRun: The bytes are not the beginning of a run file of this version.
    """
    if len(data) < PREFIX.size:
        raise StaleRun("shorter than a head")
    _, magic, version, _, length = PREFIX.unpack_from(data)
    if magic != MAGIC or version != VERSION or length < HEAD.size:
        raise StaleRun("not a run file of this version")
    return int(length)


def run_name(base: int) -> str:
    """Return the name of the run file of a sealed segment."""
    return f"{FOLDER}/{base:020d}{RUN_SUFFIX}"


def part_name(start: int, stop: int) -> str:
    """Return the name of the part run that covers ``[start, stop)``."""
    return f"{FOLDER}/{start:020d}-{stop:020d}{PART_SUFFIX}"
