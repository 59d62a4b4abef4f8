"""The columns of the rows of pages of records, each made at once for all rows.

The pages, back to back, are cut into *pieces*: neighbouring rows of one batch (``pieces``). Each
piece has numbers (where its batch begins, how many rows it has); an array with a value per row is
made only for values that differ from row to row. A batch's flags determine which entry of its
column table is a column's start; the pages have few different flags, so this is worked out once for
each. Used by ``record.coalesce``.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from ternmq.record.batch.layout import (
    APPLICATION_ID,
    BODIES,
    CONSTANT,
    CONSTANT_MASK,
    CONTENT_TYPE,
    DUE_US,
    EXPIRY_US,
    HEADERS,
    KEY,
    ORDERING_KEY,
    PRIORITY,
    TAG_CODES,
    TAG_DICTIONARY,
)
from ternmq.record.batch.reader import Batch
from ternmq.record.page.pieces import I64, Pieces

if TYPE_CHECKING:
    import pyarrow as pa

TEXTS: Final = {
    "key": KEY,
    "ordering_key": ORDERING_KEY,
    "content_type": CONTENT_TYPE,
    "application_id": APPLICATION_ID,
}
BINARIES: Final = {"headers": HEADERS, "key_bytes": KEY, "ordering_key_bytes": ORDERING_KEY}
TIMES: Final = {"due_time": DUE_US, "expiry_time": EXPIRY_US}


class Page:
    """The columns of the rows of pages. An index into a view counts the view's elements."""

    def __init__(self, records: bytes, pieces: Pieces) -> None:
        self.records = records
        self._pieces = pieces
        counts = pieces.rows
        self.rows = int(counts.sum())
        self._single = len(counts) == self.rows
        self._counts = counts
        self._starts = np.cumsum(counts) - counts
        # numpy's views of the pages; every column begins at a multiple of 8 bytes.
        size = len(records) & ~7
        self._u4 = np.frombuffer(records, "<u4", size // 4)
        self._i4 = self._u4.view("<i4")
        self._i8 = np.frombuffer(records, "<i8", size // 8)
        self._u2 = self._u4.view("<u2")
        self._u1 = np.frombuffer(records, np.uint8)
        self._row: I64 | None = None
        self._flags = self._pieces.flags
        self._kinds: list[int] = np.unique(self._flags).tolist()

    # -- helpers over pieces and rows

    def _spread(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return a value per row, given one per piece."""
        return values if self._single else values.repeat(self._counts)

    def _rows_within(self) -> I64:
        """Return, for every row, its number in its batch."""
        if self._row is None:
            first = self._pieces.row
            self._row = first if self._single else self._counted(first)
        return self._row

    def _growing(self, name: str) -> I64:
        """Return a number per row that grows by 1 within a piece."""
        first: I64 = getattr(self._pieces, name)
        return first if self._single else self._counted(first)

    def _counted(self, first: I64) -> I64:
        """Return a number per row: ``first`` of its piece, and 1 more for each next row."""
        numbers: I64 = np.arange(self.rows) + self._spread(first - self._starts)
        return numbers

    def _column(self, column: int) -> tuple[I64, I64]:
        """Return, per piece, (start of the column in the page or -1: absent; 1 if constant)."""
        starts = np.full(len(self._flags), -1, np.int64)
        constant = np.zeros(len(self._flags), np.int64)
        for flags in self._kinds:
            if not flags >> column & 1:
                continue
            before = (flags & (1 << column) - 1).bit_count()
            of_kind = slice(None) if len(self._kinds) == 1 else self._flags == flags
            at = self._pieces.at[of_kind]
            starts[of_kind] = at + self._u4[(at + 48 + 4 * before) >> 2]
            if flags >> CONSTANT & CONSTANT_MASK & 1 << column:
                constant[of_kind] = 1
        return starts, constant

    # -- the columns

    def record_batch(self, names: pa.Schema, topic: str) -> pa.RecordBatch:
        """Return the rows as a record batch of this schema."""
        import pyarrow as pa

        arrays = [self._array(field.name, field.type, topic) for field in names]
        return pa.RecordBatch.from_arrays(arrays, schema=names)

    def _array(self, name: str, kind: pa.DataType, topic: str) -> pa.Array:
        import pyarrow as pa

        pieces = self._pieces
        match name:
            case "topic":
                return pa.repeat(pa.scalar(topic or None, pa.string()), self.rows)
            case "queue":
                return pa.array(self._spread(pieces.queue.astype(np.int32)))
            case "offset" | "sequence":
                return _numbers(self._growing(name), kind)
            case "stored_time":
                return _numbers(self._spread(pieces.stored_us), kind)
            case "born_time":
                return _numbers(self._spread(pieces.born_us), kind)
            case "position":
                return _numbers(self._spread(pieces.position), kind)
            case "producer_id":
                return _numbers(self._spread(pieces.producer), kind)
            case "priority":
                return self._priorities()
            case "tag":
                return self._tags()
            case "body":
                return self._bodies(kind)
            case "body_bytes":
                return pa.array(self._body_lengths())
            case _ if name in TIMES:
                return self._times(TIMES[name], kind)
            case _:
                return self._texts((TEXTS | BINARIES)[name], kind)

    def _priorities(self) -> pa.Array:
        import pyarrow as pa

        starts, constant = self._column(PRIORITY)
        if (starts < 0).all():
            return pa.array(np.zeros(self.rows, np.int16))
        begin, fixed = self._spread(starts), self._spread(constant)
        places = np.maximum(begin, 0) + np.where(fixed == 1, 0, self._rows_within())
        return pa.array(np.where(begin < 0, 0, self._u1[np.where(begin < 0, 0, places)]).astype(
            np.int16))  # fmt: skip

    def _times(self, column: int, kind: pa.DataType) -> pa.Array:
        import pyarrow as pa

        starts, constant = self._column(column)
        if (starts < 0).all():
            return pa.nulls(self.rows, kind)
        begin, fixed = self._spread(starts), self._spread(constant)
        places = (begin >> 3) + np.where(fixed == 1, 0, self._rows_within())
        times = np.where(begin < 0, 0, self._i8[np.where(begin < 0, 0, places)])
        return pa.array(times, pa.int64(), mask=times == 0).view(kind)

    def _tags(self) -> pa.Array:
        """Return the tags; equal dictionaries are decoded once, as most of a page are the same."""
        import pyarrow as pa

        starts, constant = self._column(TAG_CODES)
        if (starts < 0).all():
            return pa.nulls(self.rows, pa.string())
        begin, fixed = self._spread(starts), self._spread(constant)
        places = (begin >> 1) + np.where(fixed == 1, 0, self._rows_within())
        codes = np.where(begin < 0, 0, self._u2[np.where(begin < 0, 0, places)]).astype(np.int64)
        dictionaries, _ = self._column(TAG_DICTIONARY)
        known: dict[bytes, int] = {}
        tags: list[str | None] = [None]
        shifts = np.zeros(len(dictionaries), np.int64)
        records = self.records
        for index, at in enumerate(dictionaries.tolist()):
            if at < 0:
                continue
            entries = int(self._u4[at >> 2])
            texts = at + 8 + 4 * (entries + 1)
            packed = records[at : texts + int(self._i4[(texts >> 2) - 1])]
            shift = known.get(packed)
            if shift is None:
                shift = known[packed] = len(tags) - 1
                offsets = self._i4[(at + 8) >> 2 : texts >> 2].tolist()
                tags += [
                    records[texts + low : texts + high].decode()
                    for low, high in itertools.pairwise(offsets[1:])
                ]
            shifts[index] = shift
        shifted = np.where(codes == 0, 0, codes + self._spread(shifts))
        return pa.array(tags, pa.string()).take(pa.array(shifted))

    # -- texts and bytes

    def _texts(self, column: int, kind: pa.DataType) -> pa.Array:
        """Return a text or binary column; empty entries are null."""
        import pyarrow as pa

        starts, constant = self._column(column)
        if (starts < 0).all():
            return pa.nulls(self.rows, kind)
        entries = np.where(constant == 1, 1, self._pieces.batch_rows)
        lengths = self._lengths(starts, constant)
        base = starts + 4 * (entries + 1)
        first = (starts >> 2) + np.where(constant == 1, 0, self._pieces.row)
        begin = base + self._i4[np.where(starts < 0, 0, first)]
        last = first + np.where(constant == 1, 1, self._counts)
        end = base + self._i4[np.where(starts < 0, 0, last)]
        times = np.where(constant == 1, self._counts, 1)
        data = self._joined(begin, end, starts >= 0, times)
        return _binary(kind, lengths, data, nulls=lengths == 0)

    def _lengths(self, starts: I64, constant: I64) -> npt.NDArray[np.int32]:
        """Return the length of each row's entry in a binary column, 0 where it is absent."""
        begin = self._spread(starts)
        row = self._rows_within()
        if constant.any():
            row = np.where(self._spread(constant) == 1, 0, row)
        places = (begin >> 2) + row
        if (starts < 0).any():
            absent = begin < 0
            places = np.where(absent, 0, places)
            return np.where(absent, 0, self._i4[places + 1] - self._i4[places])
        lengths: npt.NDArray[np.int32] = self._i4[places + 1] - self._i4[places]
        return lengths

    def _joined(self, begin: I64, end: I64, present: npt.NDArray[np.bool_], times: I64) -> bytes:
        """Return stretches of the page joined, each repeated ``times`` times."""
        records = self.records
        low, high = begin.tolist(), end.tolist()
        if present.all() and (times == 1).all():
            return b"".join([records[a:b] for a, b in zip(low, high, strict=True)])
        return b"".join(
            [
                records[a:b] * n
                for a, b, n, there in zip(low, high, times.tolist(), present.tolist(), strict=True)
                if there
            ]
        )

    def _body_lengths(self) -> I64:
        starts, constant = self._column(BODIES)
        return self._lengths(starts, constant).astype(np.int64)

    def _bodies(self, kind: pa.DataType) -> pa.Array:
        starts, constant = self._column(BODIES)
        lengths = self._lengths(starts, constant)
        pieces = self._pieces
        base = starts + 4 * (pieces.batch_rows + 1)
        first = (starts >> 2) + pieces.row
        low, high = self._i4[first], self._i4[first + self._counts]
        made, compressed = pieces.made != 0, pieces.compressed != 0
        if not made.any() and not compressed.any():
            data = self._joined(base + low, base + high, starts >= 0, np.ones_like(starts))
            return _binary(kind, lengths, data)
        parts: list[bytes] = []
        inflated: tuple[int, bytes] = (-1, b"")
        for index, at in enumerate(pieces.at.tolist()):
            if made[index]:
                continue
            if compressed[index]:
                if inflated[0] != at:
                    length = int(self._u4[(at >> 2) + 2])
                    inflated = at, b"".join(Batch(self.records[at : at + length]).bodies())
                parts.append(inflated[1][low[index] : high[index]])
            else:
                place = int(base[index])
                parts.append(self.records[place + low[index] : place + high[index]])
        gone = self._spread(made)
        return _binary(kind, np.where(gone, 0, lengths), b"".join(parts), nulls=gone)


def _numbers(values: npt.NDArray[Any], kind: pa.DataType) -> pa.Array:
    import pyarrow as pa

    data = np.ascontiguousarray(values, np.int64)
    return pa.Array.from_buffers(kind, len(data), [None, pa.py_buffer(data)], null_count=0)


def _binary(
    kind: pa.DataType,
    lengths: npt.NDArray[Any],
    data: bytes,
    nulls: npt.NDArray[np.bool_] | None = None,
) -> pa.Array:
    """Return a column of texts or bytes."""
    import pyarrow as pa

    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    bitmap, missing = None, 0
    if nulls is not None:
        missing = int(np.count_nonzero(nulls))
        if missing:
            bitmap = pa.py_buffer(np.packbits(~nulls, bitorder="little"))
    return pa.Array.from_buffers(
        kind,
        len(lengths),
        [bitmap, pa.py_buffer(offsets), pa.py_buffer(data)],
        null_count=missing,
    )
