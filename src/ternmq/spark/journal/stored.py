"""Decodes the records that hold messages: MESSAGES, SCHEDULED; and CANCELLED.

Of a batch, the columns of bodies are not read: a broker need not send them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise
from typing import Any, Final, NamedTuple

from ternmq.model.errors import UnknownRecordKind
from ternmq.record.batch.layout import (
    APPLICATION_ID,
    FLAGS_AT,
    U32,
    U32_PAIR,
    due_times_of,
    start_at,
)
from ternmq.record.batch.layout import HEADER as BATCH
from ternmq.record.fact import messages, schedule
from ternmq.spark.journal.record import Events, Record, as_json, signed

_CANCEL_CAUSES: Final = {int(one): one.name.lower() for one in schedule.CancelCause}


class _Stored(NamedTuple):
    """A MESSAGES or SCHEDULED body.

    Attributes:
        told: Columns of all its rows.
        first: Offset, or entry, of the first row that counts.
        runs: Rows of the batch that count.
        rows: Number of rows of the batch.
        sequence: Of the first row of the batch.
        at: Where the batch begins.
        extra: Where the bytes behind the batch begin, of a record with flags.
        size: Bytes of the batch as it was stored.
        flags: Of the record.
    """

    told: dict[str, Any]
    first: int
    runs: list[tuple[int, int]]
    rows: int
    sequence: int
    at: int
    extra: int
    size: int
    flags: int


def _read(record: Record) -> _Stored:
    body = record.body
    topic, queue, first, count, run_count, flags, length, _ = messages.PREFIX.unpack_from(body)
    at = messages.PREFIX_BYTES + messages.RUN.size * run_count
    _, _, size, _, _, _, _, rows, producer, sequence, born_us = BATCH.unpack_from(body, at)
    told = {
        "topic_number": topic,
        "queue": queue,
        "producer_id": signed(producer),
        "born_time": born_us,
    }
    runs = list(messages.RUN.iter_unpack(body[messages.PREFIX_BYTES : at])) or [(0, count)]
    extra = at + length + -length % 8
    return _Stored(told, first, runs, rows, sequence, at, extra, size, flags)


def _duplicates(content: _Stored) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the rows that do not count, with the row of the batch at which they end."""
    row = 0
    for start, stop in [*content.runs, (content.rows, content.rows)]:
        if start > row:
            sequence = signed(content.sequence + row)
            yield start, {**content.told, "rows": start - row, "sequence": sequence}
        row = stop


def messages_of(record: Record) -> Events:
    """Yield a row for each run of consecutive rows of a MESSAGES record.

    Raises:
        UnknownRecordKind: A newer version wrote it.
        struct.error: It is cut short.
    """
    content = _read(record)
    told: dict[str, Any] = content.told
    if content.flags == messages.FULFILS:
        source, entry, due_us, _ = messages.FULFILMENT.unpack_from(record.body, content.extra)
        told = {**told, "entry": signed(entry), "due": due_us, "refers_to": signed(source)}
    elif content.flags:
        raise UnknownRecordKind(f"MESSAGES with flags {content.flags}")
    left_out = dict(_duplicates(content))
    offset = content.first
    for start, stop in content.runs:
        if start in left_out:
            yield "duplicate", left_out.pop(start)
        yield (
            "stored",
            {
                **told,
                "start": offset,
                "stop": offset + stop - start,
                "rows": stop - start,
                "bytes": content.size if offset == content.first else 0,
                "sequence": signed(content.sequence + start),
            },
        )
        offset += stop - start
    for one in left_out.values():
        yield "duplicate", one


def scheduled(record: Record) -> Events:
    """Yield a row for each run of neighbours of a SCHEDULED record that have one due time.

    Raises:
        UnknownRecordKind: A newer version wrote it.
        struct.error: It is cut short.
    """
    content = _read(record)
    if content.flags & ~messages.COPY:
        raise UnknownRecordKind(f"SCHEDULED with flags {content.flags}")
    kind, told, stored_us = "scheduled", dict(content.told), record.time_us
    if told["queue"] == schedule.NO_QUEUE:
        told["queue"] = None
    if content.flags:
        origin, stored_us, *_ = messages.ORIGIN.unpack_from(record.body, content.extra)
        kind = "copied"
        told["refers_to"] = signed(origin)
    batch = record.body[content.at :]
    due = due_times_of(batch)
    names = _application_ids(batch)
    left_out = dict(_duplicates(content))
    size, entry = content.size, content.first
    for start, stop in content.runs:
        if start in left_out:
            yield "duplicate", {**left_out.pop(start), "queue": told["queue"]}
        for due_us, rows in groupby(range(start, stop), lambda row: max(due[row], stored_us)):
            some = [*rows]
            detail: dict[str, Any] = {}
            if names:
                detail["application_ids"] = [names[row] for row in some]
            if kind == "copied":
                detail["scheduled_us"] = stored_us
            yield (
                kind,
                {
                    **told,
                    "rows": len(some),
                    "bytes": size,
                    "sequence": signed(content.sequence + some[0]),
                    "due": due_us,
                    "entry": signed(entry),
                    "detail": as_json(detail) if detail else None,
                },
            )
            size, entry = 0, entry + len(some)
    for one in left_out.values():
        yield "duplicate", {**one, "queue": told["queue"]}


def _application_ids(batch: bytes) -> Sequence[str | None]:
    """Return the application id of each row; nothing if the batch has none."""
    flags, rows = U32_PAIR.unpack_from(batch, FLAGS_AT)
    if not flags >> APPLICATION_ID & 1:
        return ()
    (start,) = U32.unpack_from(batch, start_at(flags, APPLICATION_ID))
    ends = struct.unpack_from(f"<{rows + 1}i", batch, start)
    base = start + 4 * len(ends)
    return [batch[base + low : base + high].decode() or None for low, high in pairwise(ends)]


def cancelled(record: Record) -> Events:
    """Yield a row for each run of neighbours of a CANCELLED record that have one due time.

    Raises:
        UnknownRecordKind: A newer version wrote it.
        struct.error, ValueError: It is cut short, or its cause is unknown.
    """
    content = schedule.unpack_cancelled(record.body)
    cause = _CANCEL_CAUSES[content.cause]
    numbered = enumerate(content.rows)
    for (topic, due_us, entry), some in groupby(
        numbered, lambda one: (one[1].topic, one[1].due_us, one[1].entry - one[0])
    ):
        first, *others = some
        yield (
            "cancelled",
            {
                "topic_number": topic,
                "due": due_us,
                "entry": signed(entry + first[0]),
                "rows": 1 + len(others),
                "cause": cause,
            },
        )
