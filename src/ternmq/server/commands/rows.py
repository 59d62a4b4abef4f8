"""Records for the answers to pulls and reads: stored records as they are, or slices of them.

A record is sent as it is stored if all its rows are requested, or if it is small or compressed. Of
a large uncompressed batch only the requested rows are sent: as a MESSAGES record made for this
answer, with the position and time of the stored one, around a slice of its batch. Copies in MOVED
records are always sent in such made records, so that clients get only one kind of record. Bodies of
messages are not read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from ternmq.broker.catalog.catalog import Topic
from ternmq.broker.query.held import Held
from ternmq.journal.index.tail import Places
from ternmq.model.errors import MessageNotFound
from ternmq.record.batch.batch import Batch, Compression, slice_batch
from ternmq.record.fact import messages, moved
from ternmq.record.fact.header import HEADER_BYTES, KIND_AT, Kind, header_of, kind_of
from ternmq.record.fact.messages import PREFIX
from ternmq.wire.bodies import LastFailure, pack_failures

SMALL_BYTES: Final = 4096
"""Records up to this size are sent whole: a slice costs more than it saves."""

REASON_BYTES: Final = 256 * 1024
"""Most bytes of reasons in one answer; the failures beyond are sent without a reason."""

_MESSAGES: Final = int(Kind.MESSAGES)

Span = tuple[int, int]


def records_of(
    held: Held, topic: Topic, queue: int, spans: Sequence[Span], places: Sequence[Places]
) -> list[bytes]:
    """Return the records that hold the rows of ``spans``, ready for the wire.

    Args:
        held: What is read.
        topic: The topic.
        queue: Number of the queue.
        spans: Requested offsets, each ``[start, stop)``.
        places: Positions of the batches, from the core.

    Raises:
        WouldBlock: The disk is needed; nothing was changed, call again after its job.
        MessageNotFound: Retention has removed these rows meanwhile.
    """
    store = held.store
    try:
        if len(places) == 1:
            records = store.gather(places[0])
        else:
            # Runs of one batch, or copies in one MOVED record, have the same record.
            by_position: dict[int, bytes] = {}
            for one in places:
                by_position.update(zip(one.positions, store.gather(one), strict=True))
            records = list(by_position.values())
    except MessageNotFound:
        records = _found_again(held, topic, queue, spans)
    if len(spans) == 1 and len(records) > 2 and _all_singles(records):
        return records
    return [part for record in records for part in _parts(record, topic, spans)]


def pack_last_failures(found: Sequence[tuple[int, int, int, bytes]]) -> bytes:
    """Return the earlier failures for a delivery, from the result of ``LastFailures.find``."""
    room = REASON_BYTES
    told: list[LastFailure] = []
    for start, rows, cause, reason in found:
        room -= len(reason)
        text = reason.decode("utf-8", "replace") if room >= 0 else ""
        told.append(LastFailure(start, rows, cause, text))
    return pack_failures(told)


def _all_singles(records: Sequence[bytes]) -> bool:
    """Return whether all records are small MESSAGES records: those are sent as they are."""
    for record in (records[0], records[-1]):
        if len(record) > SMALL_BYTES:
            return False
    return all(len(record) <= SMALL_BYTES and record[KIND_AT] == _MESSAGES for record in records)


def _found_again(held: Held, topic: Topic, queue: int, spans: Sequence[Span]) -> list[bytes]:
    """Look every row up again: its segment was removed since the decision, and it was copied."""
    found: dict[int, bytes] = {}
    for start, stop in spans:
        for offset in range(start, stop):
            places = held.index.locate(topic.number, queue, offset, offset + 1, 1)
            if places.positions:
                position = places.positions[0]
                if position not in found:
                    found[position] = held.store.at_place(places, 0)
                continue
            copy = held.index.moved(topic.number, queue, offset)
            if copy is None:
                raise MessageNotFound(f"offset {offset} of queue {queue} is not kept any more")
            if copy.position not in found:
                found[copy.position] = held.store.get(copy.position)
    return list(found.values())


def _parts(record: bytes, topic: Topic, spans: Sequence[Span]) -> Iterator[bytes]:
    """Yield the records to send for one stored record."""
    if kind_of(record) == Kind.MOVED:
        yield from _copies(record, topic, spans)
        return
    if len(record) <= SMALL_BYTES:
        yield record
        return
    _, _, first, count, run_count, _, _, _ = PREFIX.unpack_from(record, HEADER_BYTES)
    inside = _inside(first, first + count, spans)
    if not inside:
        return  # the core's places may include records that hold none of the spans
    if inside == [(first, first + count)]:
        yield record
        return
    stored = messages.of_record(record)
    if Batch(stored.batch).compression is not Compression.NONE:
        yield record
        return
    for start, stop in inside:
        rows = _rows(stored, start, stop) if run_count else [(start - first, stop - first)]
        for low, high in rows:
            part = slice_batch(stored.batch, low, high, topic.seed)
            offset = stored.offset_of(low)
            assert offset is not None
            yield _made(record, stored.topic, stored.queue, offset, high - low, part)


def _rows(stored: messages.Messages, start: int, stop: int) -> Iterator[Span]:
    """Yield the runs of a batch's rows that have the offsets ``[start, stop)``."""
    offset = stored.first_offset
    for low, high in stored.runs:
        end = offset + high - low
        first, last = max(start, offset), min(stop, end)
        if first < last:
            yield low + first - offset, low + last - offset
        offset = end


def _copies(record: bytes, topic: Topic, spans: Sequence[Span]) -> Iterator[bytes]:
    copies = moved.unpack(record[HEADER_BYTES:])
    for piece in copies.pieces:
        first, count = piece.first_offset, piece.row_count
        batch = Batch(piece.batch)
        for start, stop in _inside(first, first + count, spans):
            low = piece.row_start + start - first
            high = low + stop - start
            if batch.compression is Compression.NONE:
                part = slice_batch(piece.batch, low, high, topic.seed)
                runs: tuple[Span, ...] = ()
            else:
                part, runs = piece.batch, ((low, high),)
            yield _made(
                record, copies.topic, copies.queue, start, stop - start, part, runs, piece.time_us
            )


def _inside(first: int, end: int, spans: Sequence[Span]) -> list[Span]:
    """Return the parts of the spans that lie in ``[first, end)``; adjacent ones are joined."""
    found: list[Span] = []
    for start, stop in sorted(spans):
        low, high = max(start, first), min(stop, end)
        if low >= high:
            continue
        if found and found[-1][1] >= low:
            found[-1] = (found[-1][0], max(found[-1][1], high))
        else:
            found.append((low, high))
    return found


def _made(
    record: bytes,
    topic: int,
    queue: int,
    first_offset: int,
    count: int,
    batch: bytes,
    runs: tuple[Span, ...] = (),
    time_us: int | None = None,
) -> bytes:
    """Return a MESSAGES record for the wire, with the position of the stored record."""
    body = messages.pack(topic, queue, first_offset, count, batch, runs)
    stored = header_of(record)
    return messages.made(
        record, body, stored.position, stored.time_us if time_us is None else time_us
    )
