"""What transactions prepare, and what becomes of it: runs of the audit.

``decided`` joins the two: a batch is prepared in one record, and another one says where its rows
are, when they are due, or that they never become messages.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ternmq.pipeline.audit.kept import buckets, columns, due_buckets, table
from ternmq.pipeline.audit.schema import BUCKET_US
from ternmq.pipeline.tables.numbers import ints

DECIDING: Final = ("resolved", "withdrawn", "entries")
"""Kinds that say what becomes of prepared rows."""


def decided(runs: pa.Table) -> pa.Table:
    """Replace prepared runs by stored ones, or drop them, where their outcome is known."""
    kinds = runs["kind"]
    prepared = runs.filter(pc.equal(kinds, "prepared"))
    resolved, entries = (runs.filter(pc.equal(kinds, one)) for one in ("resolved", "entries"))
    over = runs.filter(pc.is_in(kinds, pa.array(DECIDING)))
    others = runs.filter(pc.invert(pc.is_in(kinds, pa.array(["prepared", *DECIDING]))))
    rest = prepared.filter(pc.invert(pc.is_in(prepared["position"], over["position"])))
    at = pc.index_in(resolved["position"], prepared["position"])
    known = pc.is_valid(at)
    resolved, whose = resolved.filter(known), prepared.take(at.filter(known))
    stored = table(
        len(whose),
        kind="stored",
        late=ints(resolved["until"]) > ints(whose["bucket"]) + BUCKET_US,
        closed=np.ones(len(whose), np.bool_),
        **columns(whose, "bucket", "topic", "topic_number", "producer_id", "sequence"),
        **columns(resolved, "queue", "start", "stop", "position"),
    )
    return pa.concat_tables([others, rest, stored, *_of_entries(entries, prepared)])


def _of_entries(entries: pa.Table, prepared: pa.Table) -> Iterable[pa.Table]:
    """Return rows that a transaction scheduled, as a send that schedules them.

    If it is not known where they were prepared, they have no sender and no window of their birth.
    """
    at = pc.index_in(entries["position"], prepared["position"])
    names = ("topic", "topic_number", "start", "stop", "position")
    whose = prepared.take(at)
    sender = {
        "producer_id": whose["producer_id"],
        "sequence": pc.add(whose["sequence"], entries["sequence"]),
    }
    yield table(len(entries), kind="owed", **columns(entries, "bucket", *names), **sender)
    known = pc.is_valid(at)
    bucket, until = whose["bucket"].filter(known), entries["until"].filter(known)
    yield table(
        len(bucket),
        kind="scheduled",
        bucket=bucket,
        late=ints(until) > ints(bucket) + BUCKET_US,
        closed=np.ones(len(bucket), np.bool_),
        **columns(entries.filter(known), *names),
        **{name: values.filter(known) for name, values in sender.items()},
    )


def prepared(events: pa.Table) -> Iterable[pa.Table]:
    """Return prepared rows; of a copy, also that those that it is of do not count any more."""
    copies = events.filter(pc.is_valid(events["refers_to"]))
    yield table(len(copies), kind="withdrawn", position=copies["refers_to"])
    yield table(
        len(events),
        kind="prepared",
        bucket=buckets(events),
        until=pc.add(events["sequence"], events["rows"]),
        **columns(events, "topic", "topic_number", "producer_id", "sequence", "position"),
    )


def resolved(events: pa.Table, grace_us: int) -> pa.Table:
    """Return where the rows of committed transactions are."""
    events = events.filter(pc.is_valid(events["start"]))  # others are scheduled
    return table(
        len(events),
        kind="resolved",
        position=events["refers_to"],
        until=ints(events["time"]) - grace_us,
        **columns(events, "topic", "topic_number", "queue", "start", "stop"),
    )


def withdrawn(events: pa.Table) -> pa.Table:
    """Return which prepared rows never become messages, of decisions."""
    some = events.filter(
        pc.and_(pc.is_null(events["topic_number"]), pc.is_valid(events["refers_to"]))
    )
    return table(len(some), kind="withdrawn", position=some["refers_to"])


def entries(events: pa.Table, grace_us: int) -> pa.Table:
    """Return rows that a transaction scheduled; their sender is told where they were prepared."""
    told = [json.loads(one)["first_row"] for one in events["detail"].to_pylist()]
    return table(
        len(events),
        kind="entries",
        bucket=due_buckets(events),
        position=events["refers_to"],
        start=events["entry"],
        stop=pc.add(events["entry"], events["rows"]),
        sequence=pa.array(told, pa.int64()),
        until=ints(events["time"]) - grace_us,
        **columns(events, "topic", "topic_number"),
    )
