"""What the audit keeps of the journal's facts: runs, not messages.

``gather`` makes runs of facts (on a worker, if there are workers), ``merged`` joins runs that
follow each other, ``placed`` finds the window in which the rows were born that a group received or
finished. All are functions of Arrow tables with the schema ``schema.RUNS``; runs of a table
may be gathered and merged in any pieces and any order with the same result.

kinds    | fill, besides bucket, topic and topic_number
``stored``                   | queue, [start, stop), producer_id, sequence, late, position, closed:
                             | true if a transaction made the rows visible
``prepared``                 | producer_id, [sequence, until), position: not decided yet
``resolved``, ``withdrawn``  | position of the prepared rows: visible at queue, [start, stop), or
                             | never (or a copy of them counts); until: windows that ended before
                             | it got the rows late
``entries``                  | the same of rows with due times, in the windows in which they are
                             | due: [start, stop) are entries; sequence: row of the prepared batch
``left_out``                 | producer_id, [sequence, until): their application id was stored
``counts``                   | producer_id, [sequence, until), sent, given_up, left_out, closed,
                             | position
``given_up``                 | producer_id, [sequence, until): given up, or reported as left out
``delivered``, ``settled``   | group, queue, [start, stop)
``passed``                   | the same: never meant for the group (filter, start of the group)
``dropped``                  | the same: an operator took them from the group (skip, reset)
``expired``                  | the same: retention removed them before the group was done
``expired_dead``             | the same: they expired, and became dead letters
``expired_dropped``          | the same: they expired, and the group drops such messages; or they
                             | were dead letters, and these were kept long enough
``parked``                   | the same: they wait for another message of their key
``reached``                  | the same: they are below the cursor that a delivery left
``watched``                  | the same: the group existed when the audit read that they were stored
``scheduled``                | [start, stop) are entries; producer_id, sequence, late, position
``owed``                     | the same rows, in the windows in which they are due
``fulfilled``                | scheduled rows that became messages, in the same windows:
                             | as ``stored``, and entry
``cancelled``                | [start, stop) are entries, in the same windows
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ternmq.pipeline.audit import groups, transactions
from ternmq.pipeline.audit.kept import (
    IN_QUEUES,
    KEPT,
    OF_GROUPS,
    buckets,
    columns,
    due_buckets,
    table,
)
from ternmq.pipeline.audit.schema import BUCKET_US
from ternmq.pipeline.audit.spans import Ints, Spans, factor, joined, sweep
from ternmq.pipeline.tables.numbers import ints

EVENTS: Final = (
    "position", "time", "kind", "topic_number", "topic", "queue", "group", "start", "stop", "rows",
    "producer_id", "sequence", "born_time", "lease", "outcome", "cause", "cursor", "name", "sent",
    "given_up", "detail", "refers_to", "due", "entry",
)  # fmt: skip
"""The columns of ``format("ternmq.journal")`` that are read."""
_FOLLOWING: Final = ("stored", "archived", "scheduled", "owed", "fulfilled")
_AT_ONCE: Final = 200_000
"""Events gathered at a time."""


def gather(events: pa.Table | pa.RecordBatch, grace_us: int) -> pa.Table:
    """Return the runs of the journal's facts; those of groups without a bucket.

    Args:
        events: Events with the columns ``EVENTS``.
        grace_us: Messages stored later than this after the end of their window are late.
    """
    if isinstance(events, pa.RecordBatch):
        events = pa.Table.from_batches([events])
    withdrawn = transactions.withdrawn(events.filter(pc.equal(events["kind"], "resolved")))
    events = events.filter(pc.is_valid(events["topic_number"]))
    kinds = events["kind"]
    scheduled = events.filter(pc.equal(kinds, "scheduled"))
    by_commit = pc.is_null(scheduled["producer_id"])
    found = [
        withdrawn,
        *transactions.prepared(events.filter(pc.equal(kinds, "prepared"))),
        transactions.resolved(events.filter(pc.equal(kinds, "resolved")), grace_us),
        *_all_stored(events.filter(pc.equal(kinds, "stored")), grace_us),
        *_scheduled(scheduled.filter(pc.invert(by_commit)), grace_us),
        transactions.entries(scheduled.filter(by_commit), grace_us),
        _cancelled(events.filter(pc.equal(kinds, "cancelled"))),
        _left_out(events.filter(pc.equal(kinds, "duplicate"))),
        _counts(events.filter(pc.equal(kinds, "counts"))),
        *groups.gathered(events),
    ]
    return merged(pa.concat_tables(found))


def codes(column: pa.ChunkedArray) -> Ints:
    """Number the distinct texts of a column."""
    return ints(column.combine_chunks().dictionary_encode().indices)


def _stored(events: pa.Table, grace_us: int) -> pa.Table:
    bucket = buckets(events)
    return table(
        len(events),
        kind="stored",
        bucket=bucket,
        late=ints(events["time"]) > bucket + BUCKET_US + grace_us,
        **columns(
            events, "topic", "topic_number", "queue", "start", "stop", "producer_id", "sequence",
            "position",
        ),
    )  # fmt: skip


def _all_stored(events: pa.Table, grace_us: int) -> Iterable[pa.Table]:
    """Return stored rows, and scheduled ones that became messages."""
    due = pc.is_valid(events["entry"])
    yield _stored(events.filter(pc.invert(due)), grace_us)
    events = events.filter(due)
    bucket = due_buckets(events)
    yield table(
        len(events),
        kind="fulfilled",
        bucket=bucket,
        late=ints(events["time"]) > bucket + BUCKET_US + grace_us,
        **columns(
            events, "topic", "topic_number", "queue", "start", "stop", "producer_id", "sequence",
            "position", "entry",
        ),
    )  # fmt: skip


def _scheduled(events: pa.Table, grace_us: int) -> Iterable[pa.Table]:
    """Return scheduled rows twice: where they were born, and where they are due."""
    bucket = buckets(events)
    told = {
        "start": events["entry"],
        "stop": pc.add(events["entry"], events["rows"]),
        **columns(events, "topic", "topic_number", "producer_id", "sequence", "position"),
    }
    late = ints(events["time"]) > bucket + BUCKET_US + grace_us
    yield table(len(events), kind="scheduled", bucket=bucket, late=late, **told)
    yield table(len(events), kind="owed", bucket=due_buckets(events), **told)


def _cancelled(events: pa.Table) -> pa.Table:
    return table(
        len(events),
        kind="cancelled",
        bucket=due_buckets(events),
        start=events["entry"],
        stop=pc.add(events["entry"], events["rows"]),
        **columns(events, "topic", "topic_number"),
    )


def _left_out(events: pa.Table) -> pa.Table:
    return table(
        len(events),
        kind="left_out",
        bucket=buckets(events),
        until=pc.add(events["sequence"], events["rows"]),
        **columns(events, "topic", "topic_number", "producer_id", "sequence"),
    )


def _counts(events: pa.Table) -> pa.Table:
    """Return the counts, and the sequences that they report as given up; these are few."""
    told = [json.loads(one) if one else {} for one in events["detail"].to_pylist()]
    counts = table(
        len(events),
        kind="counts",
        bucket=buckets(events),
        until=pa.array([_signed(one.get("stop", 0)) for one in told], pa.int64()),
        closed=pa.array([bool(one.get("closed")) for one in told], pa.bool_()),
        left_out=pa.array([one.get("left_out", 0) for one in told], pa.int64()),
        **columns(
            events, "topic", "topic_number", "producer_id", "sequence", "sent", "given_up",
            "position",
        ),
    )  # fmt: skip
    runs = [
        (row, _signed(first), _signed(stop))
        for row, one in enumerate(told)
        for first, stop in one.get("runs", ())
    ]
    rows, firsts, stops = zip(*runs, strict=True) if runs else ((), (), ())
    whose = counts.take(pa.array(rows, pa.int64()))
    given_up = table(
        len(rows),
        kind="given_up",
        sequence=pa.array(firsts, pa.int64()),
        until=pa.array(stops, pa.int64()),
        **columns(whose, "bucket", "topic", "topic_number", "producer_id"),
    )
    return pa.concat_tables([counts, given_up])


def _signed(number: int) -> int:
    return number - (1 << 64) if number >= 1 << 63 else number


# -- joining runs --------------------------------------------------------------------------------


def merged(runs: pa.Table) -> pa.Table:
    """Return the same runs in the fewest rows."""
    kinds = runs["kind"]
    parts = [
        _following(runs.filter(pc.is_in(kinds, pa.array(_FOLLOWING)))),
        _newest(runs.filter(pc.equal(kinds, "counts"))),
        runs.filter(pc.is_in(kinds, pa.array(["prepared", *transactions.DECIDING]))),
    ]
    for name in ("left_out", "given_up"):
        some = runs.filter(pc.equal(kinds, name))
        parts.append(_united(some, ("bucket", "topic_number", "producer_id"), "sequence", "until"))
    cancelled = runs.filter(pc.equal(kinds, "cancelled"))
    parts.append(_united(cancelled, ("bucket", "topic_number"), "start", "stop"))
    for name in OF_GROUPS:
        some = runs.filter(pc.equal(kinds, name))
        keys = ("bucket", "topic_number", "group", "queue")
        parts.append(_united(some, keys, "start", "stop"))
    return pa.concat_tables(parts).combine_chunks()


def _keys(runs: pa.Table, names: Iterable[str]) -> list[Ints]:
    return [
        codes(runs[name]) if pa.types.is_string(runs[name].type) else ints(runs[name])
        for name in names
    ]


def _united(runs: pa.Table, keys: Iterable[str], low: str, high: str) -> pa.Table:
    """Join spans that overlap or touch, so that facts reported twice count once."""
    if len(runs) < 2:
        return runs
    code, first = factor(_keys(runs, keys))
    found = joined(Spans(code, ints(runs[low]), ints(runs[high])))
    whose = runs.take(pa.array(first[found.space]))
    for name, values in ((low, found.start), (high, found.stop)):
        at = runs.schema.get_field_index(name)
        whose = whose.set_column(at, runs.schema.field(name), pa.array(values))
    return whose


def _following(runs: pa.Table) -> pa.Table:
    """Join rows whose numbers all continue (offsets, entries, sequences); duplicates stay."""
    if len(runs) < 2:
        return runs
    keys = _keys(runs, ("kind", "topic_number", "queue", "bucket", "producer_id", "late", "closed"))
    start, stop, sequence = (ints(runs[name]) for name in ("start", "stop", "sequence"))
    entry = ints(runs["entry"])
    keys.append(np.where(entry < 0, 0, entry - start))
    order = np.lexsort((start, *keys))
    new = np.ones(len(order), np.bool_)
    same = np.ones(len(order) - 1, np.bool_)
    for key in keys:
        same &= key[order][1:] == key[order][:-1]
    start, stop, sequence = start[order], stop[order], sequence[order]
    same &= (start[1:] == stop[:-1]) & (sequence[1:] - sequence[:-1] == stop[:-1] - start[:-1])
    new[1:] = ~same
    begin = new.nonzero()[0]
    end = np.append(begin[1:], len(order)) - 1
    whose = runs.take(pa.array(order[begin]))
    at = runs.schema.get_field_index("stop")
    return whose.set_column(at, runs.schema.field("stop"), pa.array(stop[end]))


def _newest(counts: pa.Table) -> pa.Table:
    """Join the reports on a window: counts only grow; the newest states whether it is complete."""
    if len(counts) < 2:
        return counts
    code, first = factor(_keys(counts, ("bucket", "topic_number", "producer_id")))
    position = ints(counts["position"])
    order = np.lexsort((position, code))
    last = order[np.append(code[order][1:] != code[order][:-1], [True])]
    newest = counts.take(pa.array(last))
    columns = {name: newest[name] for name in KEPT.names}
    for name in ("sent", "given_up", "left_out", "until"):
        most = np.full(len(first), np.iinfo(np.int64).min)
        np.maximum.at(most, code, ints(counts[name]))
        columns[name] = pa.array(most[code[last]])
    told = ints(counts["sent"]) > 0
    least = np.full(len(first), np.iinfo(np.int64).max)
    np.minimum.at(least, code[told], ints(counts["sequence"])[told])
    columns["sequence"] = pa.array(np.where(least == np.iinfo(np.int64).max, 0, least)[code[last]])
    return pa.table([columns[one.name].cast(one.type) for one in KEPT], schema=KEPT)


# -- which window --------------------------------------------------------------------------------


def placed(runs: pa.Table, stored: pa.Table) -> pa.Table:
    """Return runs of groups, each in the window in which its rows were born.

    Args:
        runs: Runs with kinds of ``OF_GROUPS``, without a bucket.
        stored: All rows that they may cover; facts about other rows are left out.
    """
    stored = stored.filter(pc.is_in(stored["kind"], pa.array(IN_QUEUES)))
    if not len(runs) or not len(stored):
        return runs.slice(0, 0)
    both = pa.concat_tables([stored, runs])
    space, _ = factor(_keys(both, ("topic_number", "queue")))
    rows = Spans(space[: len(stored)], ints(stored["start"]), ints(stored["stop"]))
    facts = Spans(space[len(stored) :], ints(runs["start"]), ints(runs["stop"]))
    sort, first = factor(_keys(runs, ("kind", "group")))
    names = stored.column_names
    by_space = np.argsort(rows.space, kind="stable")
    spaces = rows.space[by_space]
    parts = []
    for number, example in enumerate(first.tolist()):
        mine = joined(facts.where(sort == number))
        places = np.unique(mine.space)
        if not len(places):
            continue  # these facts are about no row
        low, high = (np.searchsorted(spaces, places, side).tolist() for side in ("left", "right"))
        whole = np.concatenate([by_space[a:b] for a, b in zip(low, high, strict=True)])
        pieces = sweep(rows.where(whole), mine)
        chosen = (pieces.depths[0] > 0) & (pieces.depths[1] > 0)
        whose = stored.take(pa.array(whole[pieces.run[chosen]]))
        parts.append(
            table(
                len(whose),
                kind=runs["kind"][example].as_py(),
                group=runs["group"][example].as_py(),
                start=pieces.spans.start[chosen],
                stop=pieces.spans.stop[chosen],
                **columns(whose, *(n for n in names if n in {"bucket", "topic", "topic_number",
                                                              "queue"})),
            )
        )  # fmt: skip
    return merged(pa.concat_tables(parts)) if parts else runs.slice(0, 0)


def gathered_here(batches: Iterable[pa.RecordBatch], grace_us: int) -> tuple[pa.Table, int | None]:
    """Return the runs of facts, and the time of the first; memory grows with the runs only."""
    found = KEPT.empty_table()
    waiting: list[pa.RecordBatch] = []
    first_us: int | None = None
    for batch in batches:
        if first_us is None and batch.num_rows:
            first_us = int(ints(batch.column("time"))[0])
        waiting.append(batch)
        if sum(one.num_rows for one in waiting) >= _AT_ONCE:
            new = gather(pa.Table.from_batches(waiting), grace_us)
            found, waiting = merged(pa.concat_tables([found, new])), []
    if waiting:
        new = gather(pa.Table.from_batches(waiting), grace_us)
        found = merged(pa.concat_tables([found, new]))
    return found, first_us
