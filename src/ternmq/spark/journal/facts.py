"""Decodes records of the journal, fact by fact, into the columns that each fills.

``MAKERS`` has a function for each kind of record. ``columns`` decodes frequent kinds, many
records at once; tests compare its results with these.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from ternmq.record.batch.batch import Batch
from ternmq.record.fact import control, facts, moved, numbers, replay
from ternmq.record.fact.header import Kind
from ternmq.spark.journal import groups, stored, transactions
from ternmq.spark.journal.record import Events, Record, as_json, signed

_NAMES_OF_KINDS: Final = {int(kind): kind.name.lower() for kind in Kind} | {
    int(Kind.REPLAY): "replayed"
}


def _pulled(record: Record) -> Events:
    for fact in facts.unpack_pulled(record.body):
        told = {
            "topic_number": fact.topic, "queue": fact.queue, "group_number": fact.group,
            "session": fact.session, "lease": signed(fact.lease), "lease_epoch": record.epoch,
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
    return lambda record: groups.settled(event, facts.unpack_settled(record.body))


def _extended(record: Record) -> Events:
    for fact in facts.unpack_extended(record.body):
        yield "extended", {
            "topic_number": fact.topic, "queue": fact.queue, "group_number": fact.group,
            "session": fact.session, "lease": signed(fact.lease),
            "lease_epoch": fact.lease_epoch, "until": fact.until_us,
        }  # fmt: skip


def _cursor(record: Record) -> Events:
    yield from groups.moved(facts.unpack_cursor(record.body))


def _moved(record: Record) -> Events:
    content = moved.unpack(record.body)
    for piece in content.pieces:
        batch = Batch(piece.batch)
        yield "moved", {
            "topic_number": content.topic, "queue": content.queue, "start": piece.first_offset,
            "stop": piece.first_offset + piece.row_count, "rows": piece.row_count,
            "bytes": len(piece.batch), "producer_id": signed(batch.producer_id),
            "sequence": signed(batch.first_sequence + piece.row_start), "born_time": batch.born_us,
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
    yield "config", {**told, "name": shown.pop("type", None), "detail": as_json(shown)}


def _joined(record: Record) -> Events:
    joined = control.unpack_joined(record.body)
    details = {
        "address": joined.address, "pid": joined.pid, "version": joined.version,
        "since_us": joined.since_us,
    }  # fmt: skip
    yield "joined", {"session": joined.session, "detail": as_json(details)}


def _left(record: Record) -> Events:
    left = control.unpack_left(record.body)
    yield "left", {"session": left.session, "reason": left.reason or None}


def _counts(record: Record) -> Events:
    counts = control.unpack_counts(record.body)
    for entry in counts.entries:
        yield "counts", {
            "topic_number": counts.topic, "producer_id": signed(counts.producer),
            "born_time": entry.bucket_us, "sent": entry.sent, "given_up": entry.given_up,
            "sequence": signed(entry.first), "detail": as_json(
                {
                    "closed": entry.closed, "stop": entry.stop, "left_out": entry.left_out,
                    "runs": entry.runs,
                }
            ),
        }  # fmt: skip


def _numbers(record: Record) -> Events:
    given = numbers.unpack(record.body)
    detail = {"first": given.first, "reserve": given.reserve}
    yield "numbers", {
        "topic_number": given.topic, "rows": given.count, "detail": as_json(detail),
    }  # fmt: skip


def _alarm(record: Record) -> Events:
    alarm = control.unpack_alarm(record.body)
    more = {"subject": alarm.subject, "raised": alarm.raised, "since_us": alarm.since_us}
    detail = msgspec.json.encode(more).decode()
    yield "alarm", {"name": alarm.name, "reason": alarm.text, "detail": detail}


def _started(record: Record) -> Events:
    epoch, flags, end, found = control.EPOCH.unpack_from(record.body)
    details = {
        "epoch": epoch, "clean": bool(flags & control.EPOCH_CLEAN),
        "first": bool(flags & control.EPOCH_FIRST), "valid_end": end, "durable_found": found,
    }  # fmt: skip
    yield "reign", {"detail": as_json(details)}


def other(record: Record) -> Events:
    """Yield a row with only the name of the kind, for records that have no function here."""
    yield _NAMES_OF_KINDS.get(record.kind, f"kind-{record.kind}"), {}


MAKERS: Final[dict[int, Callable[[Record], Events]]] = {
    Kind.MESSAGES: stored.messages_of,
    Kind.SCHEDULED: stored.scheduled,
    Kind.CANCELLED: stored.cancelled,
    Kind.PULLED: _pulled,
    Kind.SETTLED: _settled("settled"),
    Kind.ENDED: _settled("ended"),
    Kind.EXTENDED: _extended,
    Kind.CURSOR: _cursor,
    Kind.MOVED: _moved,
    Kind.CONFIG: _config,
    Kind.PREPARED: transactions.prepared,
    Kind.RESOLVED: transactions.resolved,
    Kind.CHECKED: transactions.checked,
    Kind.REPLAY: _replayed,
    Kind.JOINED: _joined,
    Kind.LEFT: _left,
    Kind.COUNTS: _counts,
    Kind.ALARM: _alarm,
    Kind.NUMBERS: _numbers,
    Kind.EPOCH: _started,
}
