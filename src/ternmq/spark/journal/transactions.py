"""Decodes the records of transactions: PREPARED, RESOLVED, CHECKED."""

from __future__ import annotations

from itertools import groupby
from typing import Any, Final

from ternmq.record.batch.layout import HEADER as BATCH
from ternmq.record.fact import checked as checks
from ternmq.record.fact import transactions
from ternmq.record.fact.schedule import NO_QUEUE
from ternmq.record.fact.transactions import DuePart, Prepared, Resolved
from ternmq.spark.journal import groups
from ternmq.spark.journal.record import Events, Record, as_json, signed

_WHAT: Final = {int(one): one.name.lower() for one in checks.What}


def _named(content: Prepared | Resolved) -> dict[str, Any]:
    """Return the columns that name the transaction."""
    return {
        "app": content.app or None,
        "writer": content.writer_name or None,
        "producer_group": content.group or None,
        "batch_id": signed(content.batch_id),
        "transaction": signed(content.transaction) or None,
    }


def prepared(record: Record) -> Events:
    """Yield a row for the prepared batch, and one for each run of rows taken out of a lease.

    Raises:
        UnknownRecordKind: A newer version wrote it.
        struct.error, ValueError: It is cut short.
    """
    content = transactions.unpack_prepared(record.body)
    named = {**_named(content), "query_id": content.query_id or None}
    if content.batch:
        _, _, size, _, _, _, _, _, producer, first, born_us = BATCH.unpack_from(content.batch)
        replaced = content.replaced
        yield "prepared", {
            "topic_number": content.topic, "rows": content.count, "bytes": size,
            "queue": None if content.queue == NO_QUEUE else content.queue,
            "producer_id": signed(producer), "sequence": signed(first), "born_time": born_us,
            "refers_to": None if replaced is None else signed(replaced),
            "detail": None if content.group else as_json({"part": content.part}), **named,
        }  # fmt: skip
    for event, told in groups.settled("taken", content.settles):
        yield event, {**told, "due": None, "refers_to": None, **named}


def resolved(record: Record) -> Events:
    """Yield a row for each prepared batch: visible at these offsets, scheduled, or dropped.

    Then rows of what is scheduled, settled and moved by the decision.

    Raises:
        UnknownRecordKind: A newer version wrote it.
        struct.error, ValueError: It is cut short.
    """
    content = transactions.unpack_resolved(record.body)
    named = _named(content)
    detail: dict[str, Any] = {"rows": content.rows}
    if content.group:
        detail["attempt"] = content.attempt
    else:
        detail["digest"] = f"{content.digest:016x}"
    told = {**named, "cause": content.why.name.lower(), "detail": as_json(detail)}
    decision = content.outcome.name.lower()
    for part in content.parts:
        yield "resolved", {
            **told, "decision": decision, "topic_number": part.topic, "queue": part.queue,
            "start": part.first_offset, "stop": part.first_offset + part.rows, "rows": part.rows,
            "bytes": part.length, "refers_to": signed(part.position),
        }  # fmt: skip
    for due in content.due:
        yield "resolved", {
            **told, "decision": "scheduled", "topic_number": due.topic, "rows": len(due.due_us),
            "bytes": due.length, "refers_to": signed(due.position),
            "entry": signed(due.first_entry),
        }  # fmt: skip
    committed = content.outcome is transactions.Resolution.COMMITTED
    for position in content.dropped:
        yield "resolved", {
            **told, "decision": "dropped" if committed else decision,
            "refers_to": signed(position),
        }  # fmt: skip
    if not content.parts and not content.dropped and not content.due:
        yield "resolved", {**told, "decision": decision}
    for due in content.due:
        yield from _scheduled(due, named)
    of_group = {name: named[name] for name in ("transaction", "producer_group")}
    yield from groups.settled("settled", content.settles, of_group)
    for move in content.moves:
        yield from groups.moved(move, of_group)


def _scheduled(part: DuePart, named: dict[str, Any]) -> Events:
    """Yield a row for each run of neighbours with one due time; their sender is in the PREPARED."""
    for due_us, rows in groupby(range(len(part.due_us)), lambda row: part.due_us[row]):
        some = [*rows]
        yield "scheduled", {
            **named, "topic_number": part.topic, "due": due_us, "rows": len(some),
            "queue": None if part.queue == NO_QUEUE else part.queue,
            "entry": signed(part.first_entry + some[0]), "refers_to": signed(part.position),
            "detail": as_json({"first_row": some[0]}),
        }  # fmt: skip


def checked(record: Record) -> Events:
    """Yield a row for a question to a checker, or for what ended or began anew the questions.

    Raises:
        UnknownRecordKind: A newer version wrote it.
        struct.error, ValueError: It is cut short, or says what is not known.
    """
    fact = checks.unpack_checked(record.body)
    yield "checked", {
        "transaction": signed(fact.transaction), "attempt": fact.attempt,
        "session": fact.session or None, "due": fact.next_us or None, "cause": _WHAT[fact.what],
    }  # fmt: skip
