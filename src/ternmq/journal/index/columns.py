"""The content of run files as numpy columns: made from tails, merged, compared.

Only worker threads and the checker use this; the hot path does not use numpy. Structured arrays
have exactly the layout of the sections in the file (``idx_file``). A *place* is a record's distance
from its segment's base in units of 8 bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ternmq.journal.index.tail import HashTail, QueueTail, Tail

Rows = npt.NDArray[np.void]
U64 = npt.NDArray[np.uint64]

QUEUE: Final = np.dtype(
    [
        ("key", "<u8"),
        ("first_offset", "<u8"),
        ("next_offset", "<u8"),
        ("first_batch", "<u4"),
        ("batch_count", "<u4"),
    ]
)
BATCH: Final = np.dtype([("first_offset", "<u8"), ("place", "<u4"), ("length", "<u4")])
MASK: Final = np.dtype("<u8")
PRODUCER: Final = np.dtype(
    [("producer", "<u8"), ("sequence", "<u8"), ("rows", "<u4"), ("place", "<u4")]
)
KEY: Final = np.dtype(
    [("topic", "<u4"), ("place", "<u4"), ("hash", "<u8"), ("row", "<u4"), ("zero", "<u4")]
)
ID: Final = np.dtype(
    [
        ("low", "<u8"),
        ("high", "<u8"),
        ("topic", "<u4"),
        ("place", "<u4"),
        ("row", "<u4"),
        ("zero", "<u4"),
    ]
)
MOVED: Final = np.dtype([("key", "<u8"), ("offset", "<u8"), ("place", "<u4"), ("row", "<u4")])
MOVED_ID: Final = np.dtype(
    [("producer", "<u8"), ("sequence", "<u8"), ("place", "<u4"), ("row", "<u4")]
)
BODY: Final = np.dtype("<u8")
RESOLVED: Final = np.dtype(
    [("prepared", "<u8"), ("first_offset", "<u8"), ("place", "<u4"), ("zero", "<u4")]
)
DECISION: Final = np.dtype([("transaction", "<u8"), ("place", "<u4"), ("flags", "<u4")])

_MANY: Final = 1000
_BY_OFFSET: Final = ("key", "offset", "place", "row")
_BY_ID: Final = ("producer", "sequence", "place", "row")


@dataclass(slots=True)
class Columns:
    """The content of one source or of several, each array sorted as in the file.

    Attributes:
        queues: Sorted by key.
        batches: Sorted by queue, then offset.
        masks: Tag bloom of each batch; empty when all are zero.
        bodies: Position of the PREPARED that holds each batch, 0: none; empty when all are zero.
        producers: Sorted by producer, sequence, place.
        keys: Sorted by topic, hash, place, row.
        ids: Sorted by topic, low, high, place, row.
        moved: Sorted by key, offset, place, row.
        moved_ids: Rows of MOVED records, and of scheduled batches that came due: they are parts of
            batches, and a search in ``producers`` relies on batches that do not overlap. Sorted by
            producer, sequence, place, row.
        resolved: Sorted by position of the PREPARED.
        decisions: Sorted by number of the transaction.
        first_time_us: Broker time of the first indexed record, 0 if there is none.
        last_time_us: Broker time of the last one.
    """

    queues: Rows
    batches: Rows
    masks: U64
    bodies: U64
    producers: Rows
    keys: Rows
    ids: Rows
    moved: Rows
    moved_ids: Rows
    resolved: Rows
    decisions: Rows
    first_time_us: int
    last_time_us: int


def _joined(parts: Sequence[Any], dtype: str) -> npt.NDArray[Any]:
    if not parts or len(parts) > _MANY:
        return np.frombuffer(b"".join(parts), dtype)
    # If there are few parts, they may be large: numpy lets other threads run while it copies,
    # ``join`` does not.
    return np.concatenate([np.frombuffer(part, dtype) for part in parts])


def _by(rows: Rows, *fields: str) -> Rows:
    """Return the rows sorted by the fields, the first field first; stable."""
    if len(rows) < 2:
        return rows
    return rows[np.lexsort([rows[field] for field in reversed(fields)])]


def _hash_rows(found: HashTail, base: int, dtype: np.dtype[np.void]) -> Rows:
    """Return a row of ``dtype`` per hash; the hash columns are not set yet."""
    ends = _joined([found.ends], "<u8").astype(np.int64) // found.width
    counts = np.diff(ends, prepend=0)
    rows = np.zeros(int(counts.sum()), dtype)
    rows["topic"] = np.repeat(_joined([found.topics], "<u4"), counts)
    rows["place"] = np.repeat(_places([found.positions], base), counts)
    rows["row"] = np.arange(len(rows)) - np.repeat(ends - counts, counts)
    return rows


def _places(parts: Sequence[Any], base: int) -> U64:
    return (_joined(parts, "<u8") - np.uint64(base)) >> np.uint64(3)


def of_tail(tail: Tail) -> Columns:
    """Return the content of a tail; it must not change meanwhile."""
    base = tail.base
    keys = sorted(tail.queues)
    tails: list[QueueTail] = [tail.queues[key] for key in keys]
    counts = np.array([len(queue.lengths) for queue in tails], dtype=np.uint32)
    queues = np.zeros(len(keys), QUEUE)
    queues["key"] = np.array(keys, dtype=np.uint64)
    queues["first_offset"] = np.array([queue.first_offsets[0] for queue in tails], dtype=np.uint64)
    queues["next_offset"] = np.array([queue.next_offset for queue in tails], dtype=np.uint64)
    queues["batch_count"] = counts
    queues["first_batch"] = np.cumsum(counts) - counts
    batches = np.zeros(int(counts.sum()), BATCH)
    batches["first_offset"] = _joined([queue.first_offsets for queue in tails], "<u8")
    batches["place"] = _places([queue.positions for queue in tails], base)
    batches["length"] = _joined([queue.lengths for queue in tails], "<u4")
    masks = np.zeros(0, MASK)
    if any(queue.masks is not None for queue in tails):
        masks = _joined(
            [bytes(8 * len(q.lengths)) if q.masks is None else q.masks for q in tails], "<u8"
        )
    bodies = np.zeros(0, BODY)
    if any(queue.bodies is not None for queue in tails):
        bodies = _joined(
            [bytes(8 * len(q.lengths)) if q.bodies is None else q.bodies for q in tails], "<u8"
        )
    producers = np.zeros(len(tail.producers), PRODUCER)
    producers["producer"] = _joined([tail.producers], "<u8")
    producers["sequence"] = _joined([tail.sequences], "<u8")
    producers["rows"] = _joined([tail.counts], "<u4")
    producers["place"] = _places([tail.positions], base)
    fulfilled = producers[:0]
    if tail.fulfilled:
        at = _joined([tail.fulfilled], "<u4")
        fulfilled = producers[at]
        producers = np.delete(producers, at)
    key_rows = _hash_rows(tail.keys, base, KEY)
    key_rows["hash"] = _joined([tail.keys.hashes], "<u8")
    key_rows = key_rows[key_rows["hash"] != 0]
    id_rows = _hash_rows(tail.ids, base, ID)
    halves = _joined([tail.ids.hashes], "<u8")
    id_rows["low"] = halves[0::2]
    id_rows["high"] = halves[1::2]
    id_rows = id_rows[(id_rows["low"] != 0) | (id_rows["high"] != 0)]
    return Columns(
        queues,
        batches,
        masks,
        bodies,
        _by(producers, "producer", "sequence", "place"),
        _by(key_rows, "topic", "hash", "place", "row"),
        _by(id_rows, "topic", "low", "high", "place", "row"),
        _by(_moved_rows(tail), *_BY_OFFSET),
        _by(np.concatenate([_moved_id_rows(tail), _rows_of(fulfilled)]), *_BY_ID),
        _by(_resolved_rows(tail), "prepared"),
        _by(_decision_rows(tail), "transaction"),
        tail.first_time_us,
        tail.last_time_us,
    )


def _moved_rows(tail: Tail) -> Rows:
    rows, counts = _copy_rows(tail, MOVED)
    keys = [facts.topic << 32 | facts.queue for _, facts in tail.copies]
    rows["key"] = np.repeat(np.array(keys, np.uint64), counts)
    rows["offset"] = _joined([facts.offsets for _, facts in tail.copies], "<u8")
    return rows


def _moved_id_rows(tail: Tail) -> Rows:
    rows, _ = _copy_rows(tail, MOVED_ID)
    rows["producer"] = _joined([facts.producers for _, facts in tail.copies], "<u8")
    rows["sequence"] = _joined([facts.sequences for _, facts in tail.copies], "<u8")
    return rows


def _rows_of(batches: Rows) -> Rows:
    """Return a row of MOVED_ID for each row of some batches."""
    counts = batches["rows"].astype(np.int64)
    rows = np.zeros(int(counts.sum()), MOVED_ID)
    rows["row"] = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    for field in ("producer", "place"):
        rows[field] = np.repeat(batches[field], counts)
    rows["sequence"] = np.repeat(batches["sequence"], counts) + rows["row"]
    return rows


def _resolved_rows(tail: Tail) -> Rows:
    rows = np.zeros(len(tail.prepared), RESOLVED)
    rows["prepared"] = _joined([tail.prepared], "<u8")
    rows["first_offset"] = _joined([tail.prepared_offsets], "<u8")
    rows["place"] = _places([tail.prepared_at], tail.base)
    return rows


def _decision_rows(tail: Tail) -> Rows:
    rows = np.zeros(len(tail.decided), DECISION)
    rows["transaction"] = _joined([tail.decided], "<u8")
    rows["place"] = _places([tail.decided_at], tail.base)
    rows["flags"] = _joined([tail.decided_flags], "<u4")
    return rows


def _copy_rows(tail: Tail, dtype: np.dtype[np.void]) -> tuple[Rows, npt.NDArray[np.int64]]:
    """Return a row of ``dtype`` per copy with place and row set, and the count of each MOVED."""
    counts = np.array([len(facts.offsets) for _, facts in tail.copies], dtype=np.int64)
    rows = np.zeros(int(counts.sum()), dtype)
    places = np.array([(at - tail.base) >> 3 for at, _ in tail.copies], np.uint32)
    rows["place"] = np.repeat(places, counts)
    rows["row"] = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    return rows, counts


def merge(parts: Sequence[Columns]) -> Columns:
    """Return the content of several sources of one segment, given in the order of the journal."""
    if len(parts) == 1:
        return parts[0]
    queues = np.concatenate([part.queues for part in parts])
    batches = np.concatenate([part.batches for part in parts])
    # Sources are in journal order, so a stable sort by queue leaves each queue in offset order.
    order = np.argsort(np.repeat(queues["key"], queues["batch_count"]), kind="stable")
    masks = _column([part.masks for part in parts], parts, order)
    bodies = _column([part.bodies for part in parts], parts, order)
    times = [part for part in parts if part.last_time_us]
    return Columns(
        _merged_queues(queues),
        batches[order],
        masks,
        bodies,
        _by(np.concatenate([part.producers for part in parts]), "producer", "sequence", "place"),
        _by(np.concatenate([part.keys for part in parts]), "topic", "hash", "place", "row"),
        _by(np.concatenate([part.ids for part in parts]), "topic", "low", "high", "place", "row"),
        _by(np.concatenate([part.moved for part in parts]), *_BY_OFFSET),
        _by(np.concatenate([part.moved_ids for part in parts]), *_BY_ID),
        _by(np.concatenate([part.resolved for part in parts]), "prepared"),
        _by(np.concatenate([part.decisions for part in parts]), "transaction"),
        times[0].first_time_us if times else 0,
        times[-1].last_time_us if times else 0,
    )


def _column(columns: Sequence[U64], parts: Sequence[Columns], order: npt.NDArray[np.intp]) -> U64:
    """Return a column of the batches in their new order; empty if all parts' are empty."""
    if not any(len(one) for one in columns):
        return np.zeros(0, np.uint64)
    whole = [
        one if len(one) else np.zeros(len(part.batches), np.uint64)
        for one, part in zip(columns, parts, strict=True)
    ]
    joined: U64 = np.concatenate(whole)[order]
    return joined


def _merged_queues(queues: Rows) -> Rows:
    """Return one row per key, from rows in journal order."""
    queues = queues[np.argsort(queues["key"], kind="stable")]
    if not len(queues):
        return queues
    starts = np.flatnonzero(np.concatenate([[True], queues["key"][1:] != queues["key"][:-1]]))
    merged = queues[starts]
    merged["next_offset"] = np.maximum.reduceat(queues["next_offset"], starts)
    counts = np.add.reduceat(queues["batch_count"], starts)
    merged["batch_count"] = counts
    merged["first_batch"] = np.cumsum(counts) - counts
    return merged


def difference(ours: Columns, theirs: Columns) -> str | None:
    """Return a description of the first difference between two contents, None if equal."""
    for name in (
        "queues", "batches", "masks", "bodies", "producers", "keys", "ids", "moved", "moved_ids",
        "resolved", "decisions",
    ):  # fmt: skip
        left, right = getattr(ours, name), getattr(theirs, name)
        if len(left) != len(right):
            return f"{name}: {len(left)} rows here, {len(right)} there"
        for row in np.flatnonzero(left != right)[:1]:
            return f"{name} row {row}: {left[row]} here, {right[row]} there"
    for name in ("first_time_us", "last_time_us"):
        here, there = getattr(ours, name), getattr(theirs, name)
        if here != there:
            return f"{name}: {here} here, {there} there"
    return None
