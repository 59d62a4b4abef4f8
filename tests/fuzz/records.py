"""What lies in the journal, and what producers send to be laid there: records and batches."""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec
from google_crc32c import extend, value

from ternmq.journal.disk.memory import MemoryDisk
from ternmq.journal.log.scan import RawRecord, Scanner, parse, scan
from ternmq.journal.log.segment import segment_name
from ternmq.journal.reader.page import without_bodies
from ternmq.journal.recovery.ending import find_end
from ternmq.journal.state.sets import StateKey, directory_of, load
from ternmq.model.errors import CorruptJournal
from ternmq.model.types import Position
from ternmq.record.batch.batch import (
    Batch,
    BatchError,
    slice_batch,
    topic_seed,
    uncompressed,
    verify,
)
from ternmq.record.fact import (
    checked,
    control,
    facts,
    messages,
    moved,
    numbers,
    replay,
    schedule,
    transactions,
)
from ternmq.record.fact.header import HEADER, HEADER_BYTES, Kind
from tests.fuzz.engine import Input, Target
from tests.unit.record import test_batch_golden, test_records_golden

INVARIANT: Final = (
    "Whatever bytes lie in a journal or come as a batch: a scan yields only records that prove"
    " themselves and ends, or says CorruptJournal; what verify accepts can be read, sliced and"
    " verified again; every body is read, or refused with struct.error, ValueError or a"
    " DecodeError; memory follows what is there, not what it promises."
)
SEGMENT: Final = test_records_golden.SEGMENT
SEED: Final = topic_seed(test_batch_golden.TOPIC)
_CAP: Final = 1 << 20
_BODY: Final = (struct.error, ValueError, msgspec.DecodeError)


# ---------------------------------------------------------------------------------------- journals


def _disk(data: bytes) -> MemoryDisk:
    return MemoryDisk(
        {segment_name(base): data[base : base + SEGMENT] for base in range(0, len(data), SEGMENT)}
    )


def journal(data: bytes) -> None:
    """Scan a journal, and look for its end."""
    disk = _disk(data)
    scanner = Scanner(disk, 0, segment_size=SEGMENT, prev_crc=0)
    end = 0
    for record in scanner:
        assert record.position == end
        end = record.end
        if record.kind != Kind.PAD:
            whole = data[record.position : record.end].ljust(record.length, b"\0")
            assert value(whole[4:]) == record.crc
            assert parse(whole, 0, record.position) == record
    assert end <= len(data) + SEGMENT
    ending = find_end(disk)
    assert ending is None or ending.valid_end <= len(data) + SEGMENT
    list(scan(disk, 0))
    for _, position in ending.sets if ending is not None else ():
        directory, _ = directory_of(disk, SEGMENT, position)
        load(disk, SEGMENT, directory, _Nobody())


class _Nobody:
    """Views that believe everything and keep nothing."""

    def load_object(self, key: StateKey, payload: bytes, stamp: Position) -> None:
        """Take an object."""

    def loaded(self, begin: Position) -> None:
        """Take note."""

    def apply(self, record: RawRecord) -> None:
        """Take a record."""

    def finish(self, end: Position) -> None:
        """Take note."""


# ----------------------------------------------------------------------------------------- batches


def batch(data: bytes) -> None:
    """Judge a batch; read what is accepted in every way."""
    verify(data, SEED)
    found = Batch(data, output_cap=_CAP)
    words = ""
    try:
        rows = found.rows()
        assert rows[:50] == [found.row(row) for row in range(min(found.count, 50))]
    except BatchError as error:
        words = error.reason
    assert words in {"", "headers", "blocks"}
    for read in (
        found.key_hashes, found.ordering_hashes, found.application_ids, found.body_hashes,
        found.keys, found.ordering_keys, found.tags, found.content_types, found.due_times_us,
        found.expiry_times_us, found.priorities, found.application_id_texts,
    ):  # fmt: skip
        read()
    if found.compression:
        try:
            plain = uncompressed(data, SEED)
        except BatchError:
            return
    else:
        plain = data
    middle = found.count // 2
    for start, stop in ((0, middle), (middle, found.count)):
        if start < stop:
            part = slice_batch(plain, start, stop, SEED)
            verify(part, SEED)
            assert Batch(part).bodies() == Batch(plain).bodies()[start:stop]


def unverified(data: bytes) -> None:
    """Read a batch that nobody verified: exceptions or nonsense, but neither hangs nor memory."""
    found = Batch(data, output_cap=_CAP)
    found.rows()


# ------------------------------------------------------------------------------------------ bodies


def _messages(data: bytes) -> None:
    _stored(data, messages.unpack_messages)


def _stored(data: bytes, unpack: Callable[[bytes], messages.Messages]) -> messages.Messages:
    found = unpack(data)
    assert not (found.runs and (found.fulfils or found.origin))
    assert not (found.fulfils and found.origin)
    place = found.topic, found.queue, found.first_offset, found.count, found.batch
    if found.fulfils is not None:
        packed = messages.pack_fulfilled(*place, found.fulfils)
    elif found.origin is not None:
        packed = messages.pack_copy(*place, found.origin)
    else:
        packed = messages.pack(*place, found.runs)
    assert unpack(packed) == found
    for offset in range(found.first_offset, found.first_offset + min(found.count, 20)):
        found.row_of(offset)
    return found


def _scheduled(data: bytes) -> None:
    """Read SCHEDULED, and when its rows come due."""
    found = _stored(data, messages.unpack_scheduled)
    try:
        verify(found.batch, SEED)
    except BatchError:
        return  # only what was verified is stored
    due = schedule.due_times_us(found, 5)
    since_us = 5 if found.origin is None else found.origin.time_us
    assert len(due) == Batch(found.batch).count
    assert min(due) >= since_us
    light = messages.unpack(without_bodies(data))
    assert (light.fulfils, light.origin) == (found.fulfils, found.origin)


def _cancelled(data: bytes) -> None:
    found = schedule.unpack_cancelled(data)
    assert schedule.unpack_cancelled(schedule.pack_cancelled(found)) == found


def _numbers(data: bytes) -> None:
    found = numbers.unpack(data)
    assert numbers.pack(found) == data[: numbers.BODY.size]


def _facts(unpack: Callable[[bytes], list[Any]], pack: Callable[[Any], bytes]) -> Any:
    def run(data: bytes) -> None:
        found = unpack(data)
        assert unpack(pack(found)) == found

    return run


def _cursor(data: bytes) -> None:
    found = facts.unpack_cursor(data)
    assert facts.unpack_cursor(facts.pack_cursor(found)) == found


def _replay(data: bytes) -> None:
    found = replay.unpack(data)
    assert replay.unpack(replay.pack(found)) == found


def _moved(data: bytes) -> None:
    found = moved.unpack(data)
    assert moved.unpack(moved.pack(found)) == found


def _prepared(data: bytes) -> None:
    found = transactions.unpack_prepared(data)
    assert data[transactions.batch_start(data) :].startswith(found.batch)
    assert transactions.unpack_prepared(transactions.pack_prepared(found)) == found


def _resolved(data: bytes) -> None:
    found = transactions.unpack_resolved(data)
    assert transactions.unpack_resolved(transactions.pack_resolved(found)) == found


def _checked(data: bytes) -> None:
    found = checked.unpack_checked(data)
    assert checked.unpack_checked(checked.pack_checked(found)) == found


def _config(data: bytes) -> None:
    found = control.unpack_config(data)
    assert control.unpack_config(control.pack(found)) == found or "nan" in repr(found)


def _alarm(data: bytes) -> None:
    found = control.unpack_alarm(data)
    assert control.unpack_alarm(control.pack(found)) == found


def _counts(data: bytes) -> None:
    found = control.unpack_counts(data)
    assert control.unpack_counts(control.pack_counts(found)) == found


PARTS: Final[dict[str, Callable[[bytes], object]]] = {
    "journal": journal,
    "batch": batch,
    "unverified": unverified,
    "messages": _messages,
    "scheduled": _scheduled,
    "cancelled": _cancelled,
    "numbers": _numbers,
    "checked": _checked,
    "pulled": _facts(facts.unpack_pulled, facts.pack_pulled),
    "settled": _facts(facts.unpack_settled, facts.pack_settled),
    "extended": _facts(facts.unpack_extended, facts.pack_extended),
    "cursor": _cursor,
    "replay": _replay,
    "moved": _moved,
    "prepared": _prepared,
    "resolved": _resolved,
    "config": _config,
    "joined": control.unpack_joined,
    "left": control.unpack_left,
    "alarm": _alarm,
    "counts": _counts,
}
_KINDS: Final = {
    Kind.MESSAGES: "messages", Kind.PULLED: "pulled", Kind.SETTLED: "settled",
    Kind.ENDED: "settled", Kind.EXTENDED: "extended", Kind.CURSOR: "cursor", Kind.MOVED: "moved",
    Kind.CONFIG: "config", Kind.JOINED: "joined", Kind.LEFT: "left", Kind.ALARM: "alarm",
    Kind.COUNTS: "counts", Kind.REPLAY: "replay",
    Kind.PREPARED: "prepared", Kind.RESOLVED: "resolved",
    Kind.SCHEDULED: "scheduled", Kind.CANCELLED: "cancelled", Kind.CHECKED: "checked",
    Kind.NUMBERS: "numbers",
}  # fmt: skip


# ------------------------------------------------------------------------------------------ target


@functools.cache
def _golden() -> tuple[bytes, ...]:
    return tuple(one.bytes.read_bytes() for one in test_records_golden.GOLDEN)


def sown() -> Iterator[Input]:
    """Yield sound inputs, of the golden files."""
    for data in _golden():
        yield Input("journal", data)
        for record in scan(_disk(data), 0):
            if (part := _KINDS.get(Kind(record.kind))) is not None:
                yield Input(part, record.body)
    for name in test_batch_golden.MAKERS:
        data = test_batch_golden.golden(name)
        yield Input("batch", data)
        yield Input("unverified", data)


def mend(part: str, data: bytes) -> bytes:
    """Give a batch its length and checksum, a journal its records' positions, chain and CRCs."""
    if part in {"batch", "unverified"} and len(data) >= HEADER_BYTES:
        data = data + bytes(-len(data) % 8)
        data = data[:8] + struct.pack("<I", len(data)) + data[12:]
        return data[:4] + struct.pack("<I", extend(SEED, data[8:])) + data[8:]
    if part == "journal":
        return _mended(data)
    return data


def _mended(data: bytes) -> bytes:
    """Walk the records by their lengths and seal each; stop where a length leads nowhere."""
    image = bytearray(data)
    at, prev = 0, 0
    while at + HEADER_BYTES <= len(image):
        _, magic, length, version, kind, flags, _, durable, time_us, epoch, _ = HEADER.unpack_from(
            image, at
        )
        if length < HEADER_BYTES or length % 8 or at % SEGMENT + length > SEGMENT:
            break
        HEADER.pack_into(
            image, at, 0, magic, length, version, kind, flags, at, durable, time_us, epoch, prev
        )
        stop = at + (HEADER_BYTES if kind == Kind.PAD else length)
        prev = value(bytes(image[at + 4 : stop]))
        struct.pack_into("<I", image, at, prev)
        at += length
    return bytes(image)


TARGET: Final = Target(
    name="records",
    invariant=INVARIANT,
    parts=PARTS,
    allowed={
        **dict.fromkeys(PARTS, _BODY),
        "journal": (CorruptJournal,),  # UnknownRecordKind is one
        # UnknownRecordKind is one
        **dict.fromkeys(
            ("prepared", "resolved", "messages", "scheduled", "cancelled", "checked", "numbers"),
            (*_BODY, CorruptJournal),
        ),
        # Only the broker itself writes these; a body that nests is damage behind a right CRC.
        **dict.fromkeys(("config", "joined", "left", "alarm"), (*_BODY, RecursionError)),
        "batch": (BatchError,),
        "unverified": (Exception,),
    },
    modules=(
        "ternmq.record",
        "ternmq.journal.log.scan",
        "ternmq.journal.recovery.ending",
        "ternmq.journal.state.sets",
    ),
    sown=sown,
    mend=mend,
)
