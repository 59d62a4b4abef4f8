"""Records of the journal as rows of a table: one row for each fact and run of offsets.

``COLUMNS`` is the schema, version ``SCHEMA_VERSION``. Which columns a fact fills stands in the
table of ``docs/reference/tables.md``; all others are null. Facts that come later (scheduled,
prepared, resolved, replayed) fill columns that are there. No row holds a body, a token's hash, or
a client's whole name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from ternmq.record.header import Kind
from ternmq.spark import schema
from ternmq.spark.journal_facts import MAKERS, SIMPLE, Record, other
from ternmq.spark.journal_names import Client, Names

if TYPE_CHECKING:
    import pyarrow as pa

SCHEMA_VERSION: Final = 1
COLUMNS: Final[dict[str, str]] = {
    "position": "bigint",  # of the record
    "part": "int",  # among the rows of the record; (position, part) names a row for ever
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
    "sequence": "bigint",  # of the row at ``start``; the others follow
    "born_time": "timestamp",  # of the messages; of counts: beginning of the bucket
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
    "due": "timestamp",  # when the next attempt, or delivery, comes
    "cursor": "bigint",  # of the group, after it
    "writer": "string",  # of a transaction that its writer named
    "batch_id": "bigint",
    "decision": "string",
    "name": "string",  # of what was set, of the alarm
    "detail": "string",  # JSON of what has no column
    "rows": "bigint",  # how many it is about, also where there are no offsets
    "refers_to": "bigint",  # position of an earlier record
    "sent": "bigint",  # what a producer says of a bucket, since it began
    "given_up": "bigint",
    "schema_version": "int",
}
"""All columns, with their types in Spark's words."""
LEFT_OUT: Final = frozenset({Kind.SEGMENT, Kind.PAD, Kind.STATE, Kind.MARK})
"""Records that tell of the journal, not of messages."""
_BASE: Final = ("position", "part", "kind", "time", "epoch")
"""Columns of every row."""
_NAMED: Final = {
    "topic": "topic_number",
    "group": "group_number",
    "app": "session",
    "client": "session",
}
"""Columns that are looked up, and by what."""


class Events:
    """Gathers rows of records; gives Arrow batches.

    Rows that fill the same columns are kept together, as tuples; in ``table`` each column is made
    of all of them at once, and put in order.

    Args:
        names: What numbers stand for before the first record; learns from the records.
    """

    def __init__(self, names: Names) -> None:
        self.names = names
        self._rows: dict[tuple[str, ...], list[tuple[Any, ...]]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, record: Record) -> None:
        """Take the facts of a record. Records come in the order of the journal.

        Raises:
            struct.error, ValueError: It holds what no record does.
        """
        position, kind, epoch, time_us, body = record
        if kind in LEFT_OUT:
            return
        simple = SIMPLE.get(kind)
        values = None if simple is None else simple.values(body, epoch)
        if simple is not None and values is not None:
            self._put(simple.columns, (position, 0, simple.kind, time_us, epoch, *values))
            return
        self.names.learn(kind, body)
        make = MAKERS.get(kind, other)
        for number, (event, told) in enumerate(make(record)):
            row = (position, number, event, time_us, epoch, *told.values())
            self._put(tuple(told), row)

    def _put(self, columns: tuple[str, ...], row: tuple[Any, ...]) -> None:
        rows = self._rows.get(columns)
        if rows is None:
            rows = self._rows[columns] = []
        rows.append((self._count, *row))
        self._count += 1

    def table(self, columns: Sequence[str]) -> pa.RecordBatch:
        """Return the rows that were gathered, and forget them."""
        import numpy as np
        import pyarrow as pa

        kinds = schema.arrow({name: COLUMNS[name] for name in columns})
        blocks, self._rows = self._rows, {}
        count, self._count = self._count, 0
        if not columns:
            return pa.RecordBatch.from_struct_array(pa.array([{}] * count, pa.struct([])))
        made: list[list[pa.Array]] = []
        orders: list[int] = []
        for filled, rows in blocks.items():
            order, *values = zip(*rows, strict=True)
            orders += order
            known = dict(zip((*_BASE, *filled), values, strict=True))
            made.append([self._column(one.name, one.type, known, len(rows)) for one in kinds])
        whole = [pa.concat_arrays(arrays) for arrays in zip(*made, strict=True)] or [
            pa.nulls(0, one.type) for one in kinds
        ]
        table = pa.RecordBatch.from_arrays(whole, schema=kinds)
        return table if len(made) < 2 else table.take(pa.array(np.argsort(orders)))

    def _column(
        self, name: str, kind: pa.DataType, known: Mapping[str, Sequence[Any]], count: int
    ) -> pa.Array:
        import pyarrow as pa

        values = known.get(name)
        if values is not None:
            return pa.array(values, kind)
        if name == "schema_version":
            return pa.repeat(pa.scalar(SCHEMA_VERSION, kind), count)
        numbers = known.get(_NAMED.get(name, ""))
        if numbers is None:
            return pa.nulls(count, kind)
        names = self.names
        found: Sequence[str | None]
        if name == "topic":
            found = [names.topics.get(number) for number in numbers]
        elif name == "group":
            found = [names.groups.get(number) for number in numbers]
        else:
            at = 0 if name == "app" else 1
            nobody = Client("", "")
            found = [names.sessions.get(number, nobody)[at] or None for number in numbers]
        return pa.array(found, kind)
