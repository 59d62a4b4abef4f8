"""A page of scheduled rows: 1,024 consecutive entries, and its form in STATE.

Ruler of the object SCHEDULED_ROWS::

     0  u32 rows, u32 0
     8  i64 due_us   of each row
     .  u64 position of its record
     .  u32 row      in the record's batch
     .  u32 topic
     .  u32 queue    that the producer asked for; 2^32-1: none
     .  u16 slot     entry & 1023; then zero padding to 8
"""

from __future__ import annotations

from array import array
from collections.abc import Container, Sequence
from typing import Final, NamedTuple

from ternmq.record.fact.state import SCHEDULED_ROWS_HEAD

PAGE_BITS: Final = 10
"""Entries of a page, as a power of two."""
SLOTS: Final = 1 << PAGE_BITS
SLOT_MASK: Final = SLOTS - 1
NEVER: Final = 1 << 63


class Columns(NamedTuple):
    """The rows of a page as STATE holds them: one array for each column."""

    due: array[int]
    position: array[int]
    row: array[int]
    topic: array[int]
    queue: array[int]
    slot: array[int]


_CODES: Final = Columns(*[array(code) for code in "qQIIIH"])


class Page:
    """Rows by slot; due time 0: the row is not pending. 32 bytes for each slot.

    Not thread-safe: call it from the broker's loop.

    Attributes:
        left: Number of pending rows.
        earliest_us: No row that is due at or behind the horizon is due before this time.
        lowest: No row is stored below this position.
    """

    __slots__ = ("due", "earliest_us", "left", "lowest", "position", "queue", "row", "topic")

    def __init__(self) -> None:
        self.due = array("q", bytes(8 * SLOTS))
        self.position = array("Q", bytes(8 * SLOTS))
        self.row = array("I", bytes(4 * SLOTS))
        self.topic = array("I", bytes(4 * SLOTS))
        self.queue = array("I", bytes(4 * SLOTS))
        self.left = 0
        self.earliest_us = NEVER
        self.lowest = NEVER

    def put(self, slot: int, due_us: int, position: int, row: int, topic: int, queue: int) -> bool:
        """Add a row; return False if it is known."""
        if self.due[slot]:
            return False
        self.due[slot] = due_us
        self.position[slot] = position
        self.row[slot] = row
        self.topic[slot] = topic
        self.queue[slot] = queue
        self.left += 1
        if due_us < self.earliest_us:
            self.earliest_us = due_us
        if position < self.lowest:
            self.lowest = position
        return True

    def encode(self, gone: Container[int]) -> bytes:
        """Return the page for STATE, without the rows of some topics; empty if it has none."""
        slots = [
            slot for slot, due_us in enumerate(self.due) if due_us and self.topic[slot] not in gone
        ]
        if not slots:
            return b""
        columns: Sequence[array[int]] = (
            self.due, self.position, self.row, self.topic, self.queue
        )  # fmt: skip
        if len(slots) < SLOTS:
            columns = [
                array(column.typecode, [column[slot] for slot in slots]) for column in columns
            ]
        parts = [SCHEDULED_ROWS_HEAD.pack(len(slots), 0)]
        parts += [column.tobytes() for column in columns]
        parts.append(array("H", slots).tobytes())
        payload = b"".join(parts)
        return payload + bytes(-len(payload) % 8)

    def load(self, payload: bytes) -> None:
        """Add the rows of a payload that are not known."""
        for due_us, position, row, topic, queue, slot in zip(*columns_of(payload), strict=True):
            self.put(slot, due_us, position, row, topic, queue)


def columns_of(payload: bytes) -> Columns:
    """Return the columns of a payload; it is not empty."""
    count, _ = SCHEDULED_ROWS_HEAD.unpack_from(payload)
    at = SCHEDULED_ROWS_HEAD.size
    columns: list[array[int]] = []
    for empty in _CODES:
        column = array(empty.typecode)
        column.frombytes(payload[at : at + count * column.itemsize])
        at += count * column.itemsize
        columns.append(column)
    return Columns(*columns)
