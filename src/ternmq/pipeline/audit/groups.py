"""What the audit keeps of the journal's facts about groups: see the kinds in ``runs``.

Facts of broadcast instances are left out: an instance begins at latest, retention does not wait for
it, and it ends with its client, so nothing that it did not receive is a loss.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ternmq.model.specs import INSTANCE_GROUPS
from ternmq.pipeline.audit.kept import IN_QUEUES, columns, table

_WITH_CURSOR: Final = ("pulled", "skipped", "parked")
"""Kinds of facts of a delivery; they have the cursor after it."""
_FOREVER: Final = 1 << 62
"""An offset that no queue reaches."""
_MOVES: Final = {
    "filtered": "passed", "commit": "passed", "start": "passed",
    "skip": "dropped", "reset": "dropped", "expired": "expired",
}  # fmt: skip


def gathered(events: pa.Table) -> Iterable[pa.Table]:
    """Yield the runs of rows that groups received, finished or passed over; without a bucket."""
    events = events.filter(_judged(events["group"]))
    kind, outcome = events["kind"], events["outcome"]
    ended = pc.is_in(kind, pa.array(["settled", "ended"]))
    done, dead = pc.equal(outcome, "done"), pc.equal(outcome, "dead")
    expired = pc.and_(ended, pc.fill_null(pc.equal(events["cause"], "expired"), False))
    # A failure that the retry policy does not try again for its age ends a lease.
    expired = pc.and_(expired, pc.equal(pc.fill_null(events["lease"], 0), 0))
    for name, chosen in (
        ("delivered", pc.equal(kind, "pulled")),
        ("passed", pc.equal(kind, "skipped")),
        ("parked", pc.equal(kind, "parked")),
        ("settled", pc.and_(pc.and_(ended, pc.or_(done, dead)), pc.invert(expired))),
        ("expired_dead", pc.and_(expired, dead)),
        ("expired_dropped", pc.and_(expired, done)),
    ):
        some = events.filter(chosen)
        names = ("topic", "topic_number", "group", "queue", "start", "stop")
        yield table(len(some), kind=name, **columns(some, *names))
    yield _reached(events)
    yield _begun(events)
    moves = events.filter(pc.equal(kind, "cursor"))
    for cause, name in _MOVES.items():
        some = moves.filter(pc.equal(moves["cause"], cause))
        yield table(
            len(some),
            kind=name,
            start=np.zeros(len(some), np.int64),
            stop=some["cursor"],
            **columns(some, "topic", "topic_number", "group", "queue"),
        )


def _judged(names: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a mask of the names of groups that are judged."""
    chosen = pc.is_valid(names)
    for prefix in INSTANCE_GROUPS:
        chosen = pc.and_(chosen, pc.invert(pc.fill_null(pc.starts_with(names, prefix), False)))
    return chosen


def _reached(events: pa.Table) -> pa.Table:
    """Return the rows below the cursors of deliveries."""
    events = events.filter(
        pc.and_(pc.is_in(events["kind"], pa.array(_WITH_CURSOR)), pc.is_valid(events["cursor"]))
    )
    of = ("topic", "topic_number", "group", "queue")
    some = events.group_by(list(of), use_threads=False).aggregate([("cursor", "max")])
    return table(
        len(some),
        kind="reached",
        start=np.zeros(len(some), np.int64),
        stop=some["cursor_max"],
        **columns(some, *of),
    )


def _begun(events: pa.Table) -> pa.Table:
    """Return the rows below the cursors with which groups begin."""
    begun = events.filter(
        pc.and_(
            pc.equal(events["kind"], "config"),
            pc.fill_null(pc.equal(events["name"], "subscribed"), False),
        )
    )
    places = [
        (row, queue, cursor)
        for row, detail in enumerate(begun["detail"].to_pylist())
        for queue, cursor in enumerate(json.loads(detail)["cursors"])
        if cursor
    ]
    rows, queues, cursors = zip(*places, strict=True) if places else ((), (), ())
    whose = begun.take(pa.array(rows, pa.int64()))
    return table(
        len(rows),
        kind="passed",
        queue=pa.array(queues, pa.int32()),
        start=np.zeros(len(rows), np.int64),
        stop=pa.array(cursors, pa.int64()),
        **columns(whose, "topic", "topic_number", "group"),
    )


def watched(new: pa.Table, groups: Iterable[tuple[int, str]]) -> pa.Table:
    """Return the rows whose fate in groups is known: those that are stored in new runs, and later.

    Other facts of groups about a window are not remembered if it is final when they come.

    Args:
        new: As ``gather`` returns them.
        groups: The existing groups: number of the topic, name of the group.
    """
    stored = new.filter(pc.is_in(new["kind"], pa.array([*IN_QUEUES, "resolved"])))
    lowest = stored.group_by(["topic_number", "queue"], use_threads=False)
    by_topic: dict[int, list[tuple[int, int]]] = {}
    for one in lowest.aggregate([("start", "min")]).to_pylist():
        by_topic.setdefault(one["topic_number"], []).append((one["queue"], one["start_min"]))
    places = [
        (number, group, queue, start)
        for number, group in groups
        for queue, start in by_topic.get(number, ())
    ]
    numbers, names, queues, starts = zip(*places, strict=True) if places else ((), (), (), ())
    return table(
        len(places),
        kind="watched",
        topic_number=pa.array(numbers, pa.int64()),
        group=pa.array(names, pa.string()),
        queue=pa.array(queues, pa.int32()),
        start=pa.array(starts, pa.int64()),
        stop=np.full(len(places), _FOREVER),
    )
