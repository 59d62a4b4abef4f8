"""Records of the journal as rows of a table: one row for each fact and run of offsets.

``COLUMNS`` is the schema, version ``SCHEMA_VERSION``. Which columns a fact fills stands in the
table of ``docs/reference/tables.md``; all others are null. Facts that come later (scheduled,
prepared, resolved, replayed) fill columns that are there. No row holds a body, a token's hash, or
a client's whole name.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from ternmq.record import control, facts, messages, moved
from ternmq.record.batch import Batch
from ternmq.record.batch_layout import HEADER as BATCH
from ternmq.record.header import Kind
from ternmq.spark import schema
from ternmq.spark.journal_names import Names

if TYPE_CHECKING:
    import pyarrow as pa

SCHEMA_VERSION: Final = 1
COLUMNS: Final[dict[str, str]] = {
    "position": "bigint",  # of the record
    "row": "int",  # among those of the record; (position, row) names a row for ever
    "event": "string",
    "time": "timestamp",  # broker time
    "epoch": "int",
    "topic": "string",
    "topic_id": "bigint",
    "partition": "int",
    "start": "bigint",  # offsets [start, end)
    "end": "bigint",
    "count": "bigint",  # messages
    "bytes": "bigint",  # of the record's batch
    "group": "string",
    "group_id": "bigint",
    "session": "bigint",
    "app": "string",
    "client": "string",
    "lease": "bigint",
    "lease_epoch": "int",
    "round": "int",
    "attempt": "int",
    "deliveries": "int",
    "outcome": "string",
    "cause": "string",
    "reason": "string",
    "due": "timestamp",  # when the lease ends, or the next attempt, or delivery, comes
    "cursor": "bigint",  # of the group, after it
    "refers_to": "bigint",  # position of an earlier record
    "producer": "string",
    "sequence": "bigint",  # of the row with offset ``start``: message_id = producer:hex(sequence)
    "born": "timestamp",  # of the messages; of counts: beginning of the bucket
    "sent": "bigint",
    "given_up": "bigint",
    "writer": "string",  # of a transaction that its writer named
    "writer_batch": "bigint",
    "details": "string",  # JSON: what was set, what was found at a start
}
"""All columns, with their types in Spark's words."""
LEFT_OUT: Final = frozenset({Kind.SEGMENT, Kind.PAD, Kind.STATE, Kind.MARK})
"""Records that tell of the journal, not of messages."""

_AT: Final = {name: number for number, name in enumerate(COLUMNS)}
_WIDTH: Final = len(COLUMNS)
_NAMES_OF_KINDS: Final = {int(kind): kind.name.lower() for kind in Kind}
_OUTCOMES: Final = {int(one): one.name.lower() for one in facts.Outcome}
_CAUSES: Final = {int(one): one.name.lower() for one in facts.Cause}
_MOVES: Final = {int(one): one.name.lower() for one in facts.Move}
_SIGN: Final = 2**63


class Record(NamedTuple):
    """A record of the journal, as far as events need it."""

    position: int
    kind: int
    epoch: int
    time_us: int
    body: bytes


Row = list[Any]


class Events:
    """Gathers rows of records; gives Arrow batches.

    Args:
        names: What numbers stand for before the first record; learns from the records.
    """

    def __init__(self, names: Names) -> None:
        self.names = names
        self._rows: list[Row] = []

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, record: Record) -> None:
        """Take the facts of a record. Records come in the order of the journal.

        Raises:
            struct.error, ValueError: It holds what no record does.
        """
        self.names.learn(record.kind, record.body)
        if record.kind in LEFT_OUT:
            return
        make = _MAKERS.get(record.kind, _other)
        for number, (event, told) in enumerate(make(record)):
            self._rows.append(self._row(record, number, event, told))

    def _row(self, record: Record, number: int, event: str, told: Mapping[str, Any]) -> Row:
        row: Row = [None] * _WIDTH
        row[0:5] = record.position, number, event, record.time_us, record.epoch
        for name, value in told.items():
            row[_AT[name]] = value
        names = self.names
        if "topic_id" in told:
            row[_TOPIC] = names.topics.get(told["topic_id"])
        if "group_id" in told:
            row[_GROUP] = names.groups.get(told["group_id"])
        if "session" in told:
            client = names.sessions.get(told["session"])
            if client is not None:
                row[_APP], row[_CLIENT] = client.app, client.client
        return row

    def table(self, columns: Sequence[str]) -> pa.RecordBatch:
        """Return the rows that were gathered, and forget them."""
        import pyarrow as pa

        kinds = schema.arrow({name: COLUMNS[name] for name in columns})
        rows, self._rows = self._rows, []
        if not columns:
            return pa.RecordBatch.from_struct_array(pa.array([{}] * len(rows), pa.struct([])))
        values = list(zip(*rows, strict=True)) if rows else [()] * _WIDTH
        return pa.RecordBatch.from_arrays(
            [pa.array(values[_AT[one.name]], one.type) for one in kinds], schema=kinds
        )


_TOPIC, _GROUP, _APP, _CLIENT = (_AT[name] for name in ("topic", "group", "app", "client"))
Told = Iterator[tuple[str, Mapping[str, Any]]]


def _signed(number: int) -> int:
    """Return the i64 with the bits of a u64: Spark knows no unsigned numbers."""
    return number - 2 * _SIGN if number >= _SIGN else number


def _json(value: object) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, default=repr)


def _stored(record: Record) -> Told:
    """Yield a row for each run of rows that follow each other in their batch."""
    body = record.body
    topic, queue, offset, count, run_count, *_ = messages.PREFIX.unpack_from(body)
    at = messages.PREFIX_BYTES + messages.RUN.size * run_count
    # Of the batch the head alone: a broker need not send the bodies.
    _, _, size, _, _, _, _, rows, producer, first, born_us = BATCH.unpack_from(body, at)
    told = {
        "topic_id": topic,
        "partition": queue,
        "producer": f"{producer:016x}",
        "born": born_us,
    }
    runs = list(messages.RUN.iter_unpack(body[messages.PREFIX_BYTES : at])) or [(0, count)]
    row = 0
    for start, stop in runs:
        if start > row:
            yield "duplicate", {**told, "count": start - row, "sequence": _signed(first + row)}
        yield (
            "stored",
            {
                **told,
                "start": offset,
                "end": offset + stop - start,
                "count": stop - start,
                "bytes": size * (stop - start) // rows,
                "sequence": _signed(first + start),
            },
        )
        offset, row = offset + stop - start, stop
    if row < rows:
        yield "duplicate", {**told, "count": rows - row, "sequence": _signed(first + row)}


def _pulled(record: Record) -> Told:
    for fact in facts.unpack_pulled(record.body):
        told = {
            "topic_id": fact.topic, "partition": fact.queue, "group_id": fact.group,
            "session": fact.session, "lease": _signed(fact.lease), "lease_epoch": record.epoch,
            "cursor": fact.cursor,
        }  # fmt: skip
        for start, stop, attempt, deliveries in fact.leased:
            yield "delivered", {
                **told, "start": start, "end": stop, "count": stop - start, "attempt": attempt,
                "deliveries": deliveries, "due": fact.until_us,
            }  # fmt: skip
        for event, spans in (("skipped", fact.skipped), ("parked", fact.parked)):
            for start, stop in spans:
                yield event, {**told, "start": start, "end": stop, "count": stop - start}


def _settled(event: str) -> Callable[[Record], Told]:
    def make(record: Record) -> Told:
        for fact in facts.unpack_settled(record.body):
            told = {
                "topic_id": fact.topic, "partition": fact.queue, "group_id": fact.group,
                "session": fact.session, "lease": _signed(fact.lease),
                "lease_epoch": fact.lease_epoch, "round": fact.round,
                "outcome": _OUTCOMES[fact.outcome], "cause": _CAUSES[fact.cause],
                "reason": fact.reason.decode(errors="replace") or None,
                "due": fact.due_us if fact.outcome == facts.Outcome.RETRY else None,
            }  # fmt: skip
            previous = fact.previous or (None,) * len(fact.runs)
            for (start, stop, attempt, deliveries), before in zip(fact.runs, previous, strict=True):
                yield event, {
                    **told, "start": start, "end": stop, "count": stop - start,
                    "attempt": attempt, "deliveries": deliveries,
                    "refers_to": _signed(before) if before else None,
                }  # fmt: skip

    return make


def _extended(record: Record) -> Told:
    for fact in facts.unpack_extended(record.body):
        yield "extended", {
            "topic_id": fact.topic, "partition": fact.queue, "group_id": fact.group,
            "session": fact.session, "lease": _signed(fact.lease),
            "lease_epoch": fact.lease_epoch, "due": fact.until_us,
        }  # fmt: skip


def _cursor(record: Record) -> Told:
    fact = facts.unpack_cursor(record.body)
    yield "cursor", {
        "topic_id": fact.topic, "partition": fact.queue, "group_id": fact.group,
        "cause": _MOVES[fact.move], "cursor": fact.cursor, "round": fact.round,
    }  # fmt: skip


def _moved(record: Record) -> Told:
    content = moved.unpack(record.body)
    for piece in content.pieces:
        batch = Batch(piece.batch)
        yield "moved", {
            "topic_id": content.topic, "partition": content.queue, "start": piece.first_offset,
            "end": piece.first_offset + piece.row_count, "count": piece.row_count,
            "bytes": len(piece.batch), "producer": f"{batch.producer_id:016x}",
            "sequence": _signed(batch.first_sequence + piece.row_start), "born": batch.born_us,
        }  # fmt: skip


def _config(record: Record) -> Told:
    change = control.unpack_config(record.body)
    told: dict[str, Any] = {}
    kept = change
    if isinstance(change, control.App):
        kept = msgspec.structs.replace(change, salt=b"", hash=b"")
        told["app"] = change.name
    elif isinstance(change, control.AppDeleted):
        told["app"] = change.name
    elif isinstance(
        change, control.Subscribed | control.SubscriptionChanged | control.Unsubscribed
    ):
        told |= {"topic_id": change.topic, "group_id": change.group}
    elif hasattr(change, "number"):
        told["topic_id"] = change.number
    shown = msgspec.to_builtins(kept)
    if isinstance(change, control.App):
        shown.pop("salt", None)
        shown.pop("hash", None)
    yield "config", {**told, "cause": shown.pop("type", None), "details": _json(shown)}


def _joined(record: Record) -> Told:
    joined = control.unpack_joined(record.body)
    details = {
        "address": joined.address, "pid": joined.pid, "version": joined.version,
        "since_us": joined.since_us,
    }  # fmt: skip
    yield "joined", {"session": joined.session, "details": _json(details)}


def _left(record: Record) -> Told:
    left = control.unpack_left(record.body)
    yield "left", {"session": left.session, "reason": left.reason or None}


def _counts(record: Record) -> Told:
    counts = control.unpack_counts(record.body)
    for entry in counts.entries:
        yield "counts", {
            "topic_id": counts.topic, "producer": f"{counts.producer:016x}",
            "born": entry.bucket_us, "sent": entry.sent, "given_up": entry.given_up,
        }  # fmt: skip


def _alarm(record: Record) -> Told:
    alarm = control.unpack_alarm(record.body)
    yield "alarm", {"cause": alarm.name, "reason": alarm.text}


def _started(record: Record) -> Told:
    epoch, flags, end, found = control.EPOCH.unpack_from(record.body)
    details = {
        "epoch": epoch, "clean": bool(flags & control.EPOCH_CLEAN),
        "first": bool(flags & control.EPOCH_FIRST), "valid_end": end, "durable_found": found,
    }  # fmt: skip
    yield "started", {"details": _json(details)}


def _other(record: Record) -> Told:
    """A fact that this version knows by name only."""
    yield _NAMES_OF_KINDS.get(record.kind, f"kind-{record.kind}"), {}


_MAKERS: Final[dict[int, Callable[[Record], Told]]] = {
    Kind.MESSAGES: _stored,
    Kind.PULLED: _pulled,
    Kind.SETTLED: _settled("settled"),
    Kind.ENDED: _settled("ended"),
    Kind.EXTENDED: _extended,
    Kind.CURSOR: _cursor,
    Kind.MOVED: _moved,
    Kind.CONFIG: _config,
    Kind.JOINED: _joined,
    Kind.LEFT: _left,
    Kind.COUNTS: _counts,
    Kind.ALARM: _alarm,
    Kind.EPOCH: _started,
}
