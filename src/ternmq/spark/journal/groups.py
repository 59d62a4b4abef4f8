"""Settles and moves of cursors as rows: of records of their own, or of a transaction's decision."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ternmq.record.fact import facts
from ternmq.spark.journal.record import Events, signed

_OUTCOMES: Final = {int(one): one.name.lower() for one in facts.Outcome}
_CAUSES: Final = {int(one): one.name.lower() for one in facts.Cause}
_MOVES: Final = {int(one): one.name.lower() for one in facts.Move}
_NOTHING: Final[Mapping[str, Any]] = {}


def settled(
    event: str, settles: Sequence[facts.Settled], more: Mapping[str, Any] = _NOTHING
) -> Events:
    """Yield a row for each run of settles, with more columns."""
    for fact in settles:
        told = {
            "topic_number": fact.topic, "queue": fact.queue, "group_number": fact.group,
            "session": fact.session, "lease": signed(fact.lease),
            "lease_epoch": fact.lease_epoch, "round": fact.round,
            "outcome": _OUTCOMES[fact.outcome], "cause": _CAUSES[fact.cause],
            "reason": fact.reason.decode(errors="replace") or None,
            "due": fact.due_us if fact.outcome == facts.Outcome.RETRY else None, **more,
        }  # fmt: skip
        previous = fact.previous or (None,) * len(fact.runs)
        for (start, stop, attempt, deliveries), before in zip(fact.runs, previous, strict=True):
            yield event, {
                **told, "start": start, "stop": stop, "rows": stop - start,
                "attempt": attempt, "deliveries": deliveries,
                "refers_to": signed(before) if before else None,
            }  # fmt: skip


def moved(fact: facts.CursorMoved, more: Mapping[str, Any] = _NOTHING) -> Events:
    """Yield the row of a cursor that was moved, with more columns."""
    yield "cursor", {
        "topic_number": fact.topic, "queue": fact.queue, "group_number": fact.group,
        "cause": _MOVES[fact.move], "cursor": fact.cursor, "round": fact.round, **more,
    }  # fmt: skip
