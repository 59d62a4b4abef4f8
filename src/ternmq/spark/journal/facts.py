"""Decodes records of the journal, fact by fact, into the columns that each fills.

``MAKERS`` has a function for each kind of record. ``columns`` decodes frequent kinds, many
records at once; tests compare its results with these.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from ternmq.record.batch.batch import Batch
from ternmq.record.batch.layout import HEADER as BATCH
from ternmq.record.fact import control, facts, messages, moved, replay, transactions
from ternmq.record.fact.header import Kind

_NAMES_OF_KINDS: Final = {int(kind): kind.name.lower() for kind in Kind} | {
    int(Kind.REPLAY): "replayed"
}
_OUTCOMES: Final = {int(one): one.name.lower() for one in facts.Outcome}
_CAUSES: Final = {int(one): one.name.lower() for one in facts.Cause}
_MOVES: Final = {int(one): one.name.lower() for one in facts.Move}
_SIGN: Final = 2**63


class Record(NamedTuple):
    """The parts of a journal record that events need."""

    position: int
    kind: int
    epoch: int
    time_us: int
    body: bytes


Events = Iterator[tuple[str, Mapping[str, Any]]]


def _signed(number: int) -> int:
    """Return the i64 with the bits of a u64: Spark has no unsigned numbers."""
    return number - 2 * _SIGN if number >= _SIGN else number


def _json(value: object) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, default=repr)


def _stored(record: Record) -> Events:
    """Yield a row for each run of consecutive rows of the batch."""
    body = record.body
    topic, queue, begin, count, run_count, *_ = messages.PREFIX.unpack_from(body)
    at = messages.PREFIX_BYTES + messages.RUN.size * run_count
    # Only the head of the batch is read: a broker need not send the bodies.
    _, _, size, _, _, _, _, rows, producer, first, born_us = BATCH.unpack_from(body, at)
    told = {
        "topic_number": topic,
        "queue": queue,
        "producer_id": _signed(producer),
        "born_time": born_us,
    }
    runs = list(messages.RUN.iter_unpack(body[messages.PREFIX_BYTES : at])) or [(0, count)]
    offset, row = begin, 0
    for start, stop in runs:
        if start > row:
            yield "duplicate", {**told, "rows": start - row, "sequence": _signed(first + row)}
        yield (
            "stored",
            {
                **told,
                "start": offset,
                "stop": offset + stop - start,
                "rows": stop - start,
                "bytes": size if offset == begin else 0,
                "sequence": _signed(first + start),
            },
        )
        offset, row = offset + stop - start, stop
    if row < rows:
        yield "duplicate", {**told, "rows": rows - row, "sequence": _signed(first + row)}


def _pulled(record: Record) -> Events:
    for fact in facts.unpack_pulled(record.body):
        told = {
            "topic_number": fact.topic, "queue": fact.queue, "group_number": fact.group,
            "session": fact.session, "lease": _signed(fact.lease), "lease_epoch": record.epoch,
            "cursor": fact.cursor,
        }  # fmt: skip
        for start, stop, attempt, deliveries in fact.leased:
            yield "pulled", {
                **told, "start": start, "stop": stop, "rows": stop - start, "attempt": attempt,
                "deliveries": deliveries, "until": fact.until_us,
            }  # fmt: skip
        for event, spans in (("skipped", fact.skipped), ("parked", fact.parked)):
            for start, stop in spans:
                yield event, {**told, "start": start, "stop": stop, "rows": stop - start}


def _settled(event: str) -> Callable[[Record], Events]:
    def make(record: Record) -> Events:
        for fact in facts.unpack_settled(record.body):
            told = {
                "topic_number": fact.topic, "queue": fact.queue, "group_number": fact.group,
                "session": fact.session, "lease": _signed(fact.lease),
                "lease_epoch": fact.lease_epoch, "round": fact.round,
                "outcome": _OUTCOMES[fact.outcome], "cause": _CAUSES[fact.cause],
                "reason": fact.reason.decode(errors="replace") or None,
                "due": fact.due_us if fact.outcome == facts.Outcome.RETRY else None,
            }  # fmt: skip
            previous = fact.previous or (None,) * len(fact.runs)
            for (start, stop, attempt, deliveries), before in zip(fact.runs, previous, strict=True):
                yield event, {
                    **told, "start": start, "stop": stop, "rows": stop - start,
                    "attempt": attempt, "deliveries": deliveries,
                    "refers_to": _signed(before) if before else None,
                }  # fmt: skip

    return make


def _extended(record: Record) -> Events:
    for fact in facts.unpack_extended(record.body):
        yield "extended", {
            "topic_number": fact.topic, "queue": fact.queue, "group_number": fact.group,
            "session": fact.session, "lease": _signed(fact.lease),
            "lease_epoch": fact.lease_epoch, "until": fact.until_us,
        }  # fmt: skip


def _cursor(record: Record) -> Events:
    fact = facts.unpack_cursor(record.body)
    yield "cursor", {
        "topic_number": fact.topic, "queue": fact.queue, "group_number": fact.group,
        "cause": _MOVES[fact.move], "cursor": fact.cursor, "round": fact.round,
    }  # fmt: skip


def _moved(record: Record) -> Events:
    content = moved.unpack(record.body)
    for piece in content.pieces:
        batch = Batch(piece.batch)
        yield "moved", {
            "topic_number": content.topic, "queue": content.queue, "start": piece.first_offset,
            "stop": piece.first_offset + piece.row_count, "rows": piece.row_count,
            "bytes": len(piece.batch), "producer_id": _signed(batch.producer_id),
            "sequence": _signed(batch.first_sequence + piece.row_start), "born_time": batch.born_us,
        }  # fmt: skip


def _replayed(record: Record) -> Events:
    """Yield a row for each run to deliver again, and for each run that is unread again."""
    fact = replay.unpack(record.body)
    told = {
        "topic_number": fact.topic, "queue": fact.queue, "group_number": fact.group,
        "session": fact.session, "round": fact.round, "cause": fact.cause.name.lower(),
    }  # fmt: skip
    for start, stop, attempt, deliveries in fact.runs:
        yield "replayed", {
            **told, "start": start, "stop": stop, "rows": stop - start, "attempt": attempt,
            "deliveries": deliveries,
        }  # fmt: skip
    for start, stop in fact.ahead:
        yield "replayed", {**told, "start": start, "stop": stop, "rows": stop - start}


def _config(record: Record) -> Events:
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
        told |= {"topic_number": change.topic, "group_number": change.group}
    elif hasattr(change, "number"):
        told["topic_number"] = change.number
    shown = msgspec.to_builtins(kept)
    if isinstance(change, control.App):
        shown.pop("salt", None)
        shown.pop("hash", None)
    yield "config", {**told, "name": shown.pop("type", None), "detail": _json(shown)}


def _prepared(record: Record) -> Events:
    content = transactions.unpack_prepared(record.body)
    _, _, size, _, _, _, _, _, producer, first, born_us = BATCH.unpack_from(content.batch)
    yield "prepared", {
        "topic_number": content.topic, "queue": content.queue, "rows": content.count,
        "bytes": size, "producer_id": _signed(producer), "sequence": _signed(first),
        "born_time": born_us, "app": content.app or None, "writer": content.writer_name,
        "batch_id": _signed(content.batch_id), "detail": _json({"part": content.part}),
    }  # fmt: skip


def _resolved(record: Record) -> Events:
    """Yield a row for each prepared batch: now visible at these offsets, or dropped."""
    content = transactions.unpack_resolved(record.body)
    told = {
        "app": content.app or None, "writer": content.writer_name,
        "batch_id": _signed(content.batch_id), "cause": content.why.name.lower(),
        "detail": _json({"digest": f"{content.digest:016x}", "rows": content.rows}),
    }  # fmt: skip
    decision = content.outcome.name.lower()
    for part in content.parts:
        yield "resolved", {
            **told, "decision": decision, "topic_number": part.topic, "queue": part.queue,
            "start": part.first_offset, "stop": part.first_offset + part.rows, "rows": part.rows,
            "bytes": part.length, "refers_to": _signed(part.position),
        }  # fmt: skip
    committed = content.outcome is transactions.Resolution.COMMITTED
    for position in content.dropped:
        yield "resolved", {
            **told, "decision": "dropped" if committed else decision,
            "refers_to": _signed(position),
        }  # fmt: skip
    if not content.parts and not content.dropped:
        yield "resolved", {**told, "decision": decision}


def _joined(record: Record) -> Events:
    joined = control.unpack_joined(record.body)
    details = {
        "address": joined.address, "pid": joined.pid, "version": joined.version,
        "since_us": joined.since_us,
    }  # fmt: skip
    yield "joined", {"session": joined.session, "detail": _json(details)}


def _left(record: Record) -> Events:
    left = control.unpack_left(record.body)
    yield "left", {"session": left.session, "reason": left.reason or None}


def _counts(record: Record) -> Events:
    counts = control.unpack_counts(record.body)
    for entry in counts.entries:
        yield "counts", {
            "topic_number": counts.topic, "producer_id": _signed(counts.producer),
            "born_time": entry.bucket_us, "sent": entry.sent, "given_up": entry.given_up,
            "sequence": _signed(entry.first), "detail": _json(
                {
                    "closed": entry.closed, "stop": entry.stop, "left_out": entry.left_out,
                    "runs": entry.runs,
                }
            ),
        }  # fmt: skip


def _alarm(record: Record) -> Events:
    alarm = control.unpack_alarm(record.body)
    yield "alarm", {"name": alarm.name, "reason": alarm.text}


def _started(record: Record) -> Events:
    epoch, flags, end, found = control.EPOCH.unpack_from(record.body)
    details = {
        "epoch": epoch, "clean": bool(flags & control.EPOCH_CLEAN),
        "first": bool(flags & control.EPOCH_FIRST), "valid_end": end, "durable_found": found,
    }  # fmt: skip
    yield "reign", {"detail": _json(details)}


def other(record: Record) -> Events:
    """Yield a row with only the name of the kind, for records that have no function here."""
    yield _NAMES_OF_KINDS.get(record.kind, f"kind-{record.kind}"), {}


MAKERS: Final[dict[int, Callable[[Record], Events]]] = {
    Kind.MESSAGES: _stored,
    Kind.PULLED: _pulled,
    Kind.SETTLED: _settled("settled"),
    Kind.ENDED: _settled("ended"),
    Kind.EXTENDED: _extended,
    Kind.CURSOR: _cursor,
    Kind.MOVED: _moved,
    Kind.CONFIG: _config,
    Kind.PREPARED: _prepared,
    Kind.RESOLVED: _resolved,
    Kind.REPLAY: _replayed,
    Kind.JOINED: _joined,
    Kind.LEFT: _left,
    Kind.COUNTS: _counts,
    Kind.ALARM: _alarm,
    Kind.EPOCH: _started,
}
