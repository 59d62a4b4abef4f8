"""Records of the journal as rows of a table: one row for each fact and run of offsets.

``COLUMNS`` is the schema, version ``SCHEMA_VERSION``. The table in ``docs/reference/tables.md``
lists the columns that each kind of fact fills; all others are null. No row contains a body, a
token's hash, or a client's whole name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ternmq.record.fact.header import Kind
from ternmq.record.page.frames import I64, Frames
from ternmq.spark import schema
from ternmq.spark.journal.columns import FAST, Block, Numbers, Texts
from ternmq.spark.journal.facts import MAKERS, other
from ternmq.spark.journal.names import Client, Names
from ternmq.spark.journal.record import Record

if TYPE_CHECKING:
    import pyarrow as pa

SCHEMA_VERSION: Final = 2
"""Version 2 has the columns ``entry``, ``transaction``, ``producer_group`` and ``query_id``, and
the kinds of events of scheduled messages and of transactions with check-back."""
COLUMNS: Final[dict[str, str]] = {
    "position": "bigint",  # of the record
    "part": "int",  # row within the record; (position, part) identifies a row for ever
    "time": "timestamp",  # broker time
    "epoch": "int",
    "kind": "string",
    "topic_number": "int",
    "topic": "string",
    "queue": "int",
    "group_number": "int",
    "group": "string",
    "start": "bigint",  # offsets [start, stop)
    "stop": "bigint",
    "producer_id": "bigint",  # the u64's bits
    "sequence": "bigint",  # of the row at ``start``; later rows have the next numbers
    "born_time": "timestamp",  # of the messages; for counts: beginning of the window
    "bytes": "bigint",  # of the record's batch, on the first of its runs
    "session": "bigint",
    "app": "string",
    "client": "string",
    "lease_epoch": "int",
    "lease": "bigint",
    "attempt": "int",
    "deliveries": "int",
    "until": "timestamp",  # when the lease ends
    "round": "int",
    "outcome": "string",
    "cause": "string",
    "reason": "string",
    "due": "timestamp",  # time of the next attempt, or at which a scheduled message is due
    "cursor": "bigint",  # of the group, after the fact
    "writer": "string",  # of a transaction with a named writer
    "batch_id": "bigint",
    "transaction": "bigint",  # number of a transaction; t- and its hex digits are the public id
    "producer_group": "string",  # of a transaction with check-back
    "query_id": "string",
    "decision": "string",
    "name": "string",  # of the setting, of the alarm
    "detail": "string",  # JSON with the rest
    "rows": "bigint",  # number of rows, also where there are no offsets
    "refers_to": "bigint",  # position of an earlier record
    "sent": "bigint",  # the producer's count in a window, since the window began
    "given_up": "bigint",
    "entry": "bigint",  # number of the first scheduled row; later rows have the next numbers
    "schema_version": "int",
}
"""All columns, with their types as Spark writes them."""
LEFT_OUT: Final = frozenset({Kind.SEGMENT, Kind.PAD, Kind.STATE, Kind.MARK})
"""Records about the journal itself, not about messages."""
_BASE: Final = ("position", "part", "time", "epoch")
"""Columns of every row, from the record's header or its place in it."""
_NAMED: Final = {
    "topic": "topic_number",
    "group": "group_number",
    "app": "session",
    "client": "session",
}
"""Columns that are names, and the columns with their numbers."""


class _Placed(NamedTuple):
    """A block, and the indexes of its rows in the result."""

    block: Block
    rows: I64


class Events:
    """Collects rows of records; returns Arrow batches.

    Args:
        names: Names of numbers before the first record; extended from the records.
    """

    def __init__(self, names: Names) -> None:
        self.names = names
        self._count = 0
        self._placed: list[_Placed] = []
        self._base: dict[str, list[I64]] = {name: [] for name in _BASE}

    def __len__(self) -> int:
        return self._count

    def add(self, page: Frames) -> None:
        """Add the facts of a page of records. Pages come in the order of the journal.

        Raises:
            struct.error, ValueError: A record is not valid.
        """
        blocks: list[Block] = []
        left: list[I64] = []
        for kind in np.flatnonzero(np.bincount(page.kinds)).tolist():
            if kind in LEFT_OUT:
                continue
            which = np.flatnonzero(page.kinds == kind)
            fast = FAST.get(kind)
            if fast is None:
                left.append(which)
                continue
            decoded = fast(page, which)
            blocks += decoded.blocks
            left.append(decoded.records_left())
        if left:
            blocks += self._one_by_one(page, np.sort(np.concatenate(left)))
        self._place(page, blocks)

    def _one_by_one(self, page: Frames, which: I64) -> list[Block]:
        rows: dict[tuple[str, ...], list[tuple[Any, ...]]] = {}
        word, long = page.at >> 2, page.at >> 3
        for number in which.tolist():
            record = Record(
                int(page.i8[long[number] + 2]), int(page.kinds[number]),
                int(page.u4[word[number] + 10]), int(page.i8[long[number] + 4]), page.body(number),
            )  # fmt: skip
            self.names.learn(record.kind, record.body)
            for part, (event, told) in enumerate(MAKERS.get(record.kind, other)(record)):
                rows.setdefault((event, *told), []).append((number, part, *told.values()))
        found: list[Block] = []
        for (event, *columns), block in rows.items():
            records, parts, *values = zip(*block, strict=True)
            told = {name: _column(name, one) for name, one in zip(columns, values, strict=True)}
            found.append(Block(event, np.array(records), np.array(parts), told))
        return found

    def _place(self, page: Frames, blocks: Sequence[Block]) -> None:
        """Compute the index of each row: after earlier records, in the order of its record."""
        counts = np.zeros(len(page), np.int64)
        for block in blocks:
            counts += np.bincount(block.record, minlength=len(page))
        before = np.cumsum(counts) - counts
        for block in blocks:
            self._placed.append(_Placed(block, before[block.record] + block.part + self._count))
        total = int(counts.sum())
        record = np.arange(len(page)).repeat(counts)
        self._base["position"].append(page.positions()[record])
        self._base["time"].append(page.i8[(page.at >> 3) + 4][record])
        self._base["epoch"].append(page.u4[(page.at >> 2) + 10][record].astype(np.int64))
        self._base["part"].append(np.arange(total) - before[record])
        self._count += total

    def table(self, columns: Sequence[str]) -> pa.RecordBatch:
        """Return the collected rows, and drop them."""
        import pyarrow as pa

        kinds = schema.arrow({name: COLUMNS[name] for name in columns})
        made = _Table(self.names, self._placed, self._base, self._count)
        self._placed, self._count = [], 0
        self._base = {name: [] for name in _BASE}
        if not columns:
            return pa.RecordBatch.from_struct_array(pa.array([{}] * made.rows, pa.struct([])))
        arrays = [made.column(one.name, one.type) for one in kinds]
        return pa.RecordBatch.from_arrays(arrays, schema=kinds)


class _Table:
    """Builds each column from all blocks at once."""

    def __init__(
        self, names: Names, placed: Sequence[_Placed], base: dict[str, list[I64]], rows: int
    ) -> None:
        self.rows = rows
        self._names = names
        self._placed = placed
        self._base = base
        self._looked_up: dict[str, pa.DictionaryArray] = {}

    def column(self, name: str, kind: pa.DataType) -> pa.Array:
        """Return a column."""
        import pyarrow as pa

        if name in self._base:
            values = np.concatenate(self._base[name]) if self._base[name] else np.zeros(0)
            return _array(values, kind, None)
        if name == "kind":
            return self._texts([(Texts([one.block.kind], np.zeros(1, np.int64)), one.rows)
                                for one in self._placed])  # fmt: skip
        if name == "schema_version":
            return pa.repeat(pa.scalar(SCHEMA_VERSION, kind), self.rows)
        filled = [
            (one.block.columns[name], one.rows) for one in self._placed if name in one.block.columns
        ]
        told = self._named(name) if name in _NAMED else None
        if filled:
            texts = [(one, rows) for one, rows in filled if isinstance(one, Texts)]
            if texts:
                return self._texts(texts, told)
            return self._numbers([one for one in filled if isinstance(one[0], Numbers)], kind)
        return pa.nulls(self.rows, kind) if told is None else told

    def _numbers(self, filled: Sequence[tuple[Any, I64]], kind: pa.DataType) -> pa.Array:
        values = np.zeros(self.rows, np.int32 if kind.bit_width == 32 else np.int64)
        there = np.zeros(self.rows, np.bool_)
        for one, rows in filled:
            values[rows] = one.values
            there[rows] = True if one.there is None else one.there
        return _array(values, kind, there)

    def _texts(self, filled: Sequence[tuple[Texts, I64]], told: pa.Array | None = None) -> pa.Array:
        """Return a column of texts; rows that no block fills get the looked-up names."""
        import pyarrow as pa
        import pyarrow.compute as pc

        known: list[str | None] = [None]
        codes = np.zeros(self.rows, np.int64)
        shifts: dict[int, int] = {}
        for one, rows in filled:
            shift = shifts.setdefault(id(one.known), len(known))
            if shift == len(known):
                known += one.known
            codes[rows] = one.codes.astype(np.int64) + shift  # its own type may be too small
        found = pa.array(known, pa.string()).take(pa.array(codes))
        return found if told is None else pc.coalesce(found, told)

    def _named(self, name: str) -> pa.Array:
        """Return the names of numbers."""
        import pyarrow as pa

        numbers = _NAMED[name]
        found = self._looked_up.get(numbers)
        if found is None:
            found = self.column(numbers, pa.int64()).dictionary_encode()
            self._looked_up[numbers] = found
        known = self._names
        named: list[str | None]
        if name in {"topic", "group"}:
            of = known.topics if name == "topic" else known.groups
            named = [of.get(number) for number in found.dictionary.to_pylist()]
        else:
            at, nobody = 0 if name == "app" else 1, Client("", "")
            named = [
                known.sessions.get(number, nobody)[at] or None
                for number in found.dictionary.to_pylist()
            ]
        return pa.array(named, pa.string()).take(found.indices)


def _column(name: str, values: Sequence[Any]) -> Numbers | Texts:
    """Return a column of values that were decoded one by one."""
    if COLUMNS[name] == "string":
        return Texts(values, np.arange(len(values)))
    there = np.array([one is not None for one in values])
    numbers = np.array([0 if one is None else one for one in values], np.int64)
    return Numbers(numbers, None if there.all() else there)


def _array(
    values: npt.NDArray[Any], kind: pa.DataType, there: npt.NDArray[np.bool_] | None
) -> pa.Array:
    import pyarrow as pa

    data = np.ascontiguousarray(values, np.int32 if kind.bit_width == 32 else np.int64)
    missing = 0 if there is None else len(values) - int(np.count_nonzero(there))
    bitmap = None
    if there is not None and missing:
        bitmap = pa.py_buffer(np.packbits(there, bitorder="little"))
    return pa.Array.from_buffers(kind, len(data), [bitmap, pa.py_buffer(data)], null_count=missing)
