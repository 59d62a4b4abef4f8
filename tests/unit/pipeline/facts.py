"""Facts of a journal, made: what the audit is given."""

from __future__ import annotations

import json

import pyarrow as pa

from ternmq.pipeline.audit.audit import Archived, Judgement, fold, judge
from ternmq.pipeline.audit.kept import KEPT, table
from ternmq.pipeline.audit.policy import Policy
from ternmq.pipeline.audit.runs import EVENTS, gather
from ternmq.pipeline.audit.schema import BUCKET_US
from ternmq.spark import schema
from ternmq.spark.journal.events import COLUMNS

NOON = 1_795_262_400_000_000
"""2026-11-21 12:00 UTC, where ten minutes begin."""
KIND = schema.arrow({name: COLUMNS[name] for name in EVENTS})
NUMBERS = {"orders": 7, "payments": 8}
P = 0x1234
LATER = NOON + 2 * BUCKET_US + 60_000_000
"""When what was born at noon is judged."""


class Facts:
    """Gathers facts in order, as a journal tells them."""

    def __init__(self) -> None:
        self.rows: list[dict[str, object]] = []

    def add(self, kind, topic="orders", **columns):
        self.rows.append({
            "position": 64 * len(self.rows), "time": NOON + 1000 + len(self.rows), "kind": kind,
            "topic": topic, "topic_number": NUMBERS[topic], **columns,
        })  # fmt: skip
        return self

    def stored(self, start, count, sequence, *, producer=P, born=NOON, queue=0, **columns):
        return self.add(
            "stored", start=start, stop=start + count, rows=count, sequence=sequence, queue=queue,
            producer_id=producer, born_time=born, **columns,
        )  # fmt: skip

    def left_out(self, count, sequence, *, producer=P, born=NOON, **columns):
        return self.add(
            "duplicate", rows=count, sequence=sequence, queue=0, producer_id=producer,
            born_time=born, **columns,
        )  # fmt: skip

    def scheduled(self, entry, count, sequence, due, *, producer=P, born=NOON, **columns):
        return self.add(
            "scheduled", entry=entry, rows=count, sequence=sequence, due=due, producer_id=producer,
            born_time=born, **columns,
        )  # fmt: skip

    def fulfilled(self, start, count, entry, sequence, due, *, time=None, **columns):
        time = due + 1000 if time is None else time
        return self.stored(start, count, sequence, entry=entry, due=due, time=time, **columns)

    def cancelled(self, entry, count, due, **columns):
        return self.add("cancelled", entry=entry, rows=count, due=due, **columns)

    def counts(
        self, sent, *, first=1, stop=None, given_up=(), gave=None, closed=True, producer=P,
        left_out=0, bucket=NOON, **columns,
    ):  # fmt: skip
        told = {
            "closed": closed,
            "stop": first + sent if stop is None else stop,
            "runs": given_up,
            "left_out": left_out,
        }
        return self.add(
            "counts", producer_id=producer, sequence=first, sent=sent, born_time=bucket,
            given_up=sum(b - a for a, b in given_up) if gave is None else gave,
            detail=json.dumps(told), **columns,
        )  # fmt: skip

    def prepared(self, count, sequence, *, producer=P, born=NOON, **columns):
        return self.add(
            "prepared", rows=count, sequence=sequence, queue=0, producer_id=producer,
            born_time=born, **columns,
        )  # fmt: skip

    def resolved(self, start, count, refers_to, queue=0, **columns):
        return self.add(
            "resolved", start=start, stop=start + count, rows=count, queue=queue,
            refers_to=refers_to, **columns,
        )  # fmt: skip

    def withdrawn(self, refers_to):
        self.add("resolved", refers_to=refers_to)
        self.rows[-1] |= {"topic": None, "topic_number": None}
        return self

    def by_commit(self, entry, count, refers_to, due, row=0, **columns):
        """Schedule prepared rows, of which the first is this row of its batch."""
        return self.add(
            "scheduled", entry=entry, rows=count, due=due, refers_to=refers_to,
            detail=json.dumps({"first_row": row}), **columns,
        )  # fmt: skip

    def copied(self, count, sequence, refers_to, *, producer=P, born=NOON, **columns):
        """Copy prepared rows to a new record."""
        return self.prepared(
            count, sequence, producer=producer, born=born, refers_to=refers_to, **columns
        )

    def pulled(self, start, stop, group="billing", queue=0, **columns):
        return self.add(
            "pulled", start=start, stop=stop, rows=stop - start, group=group, queue=queue, **columns
        )

    def settled(
        self, start, stop, group="billing", queue=0, outcome="done", kind="settled", **columns
    ):
        return self.add(
            kind, start=start, stop=stop, rows=stop - start, group=group, queue=queue,
            outcome=outcome, **columns,
        )  # fmt: skip

    def cursor(self, cursor, cause, group="billing", queue=0, **columns):
        return self.add("cursor", cursor=cursor, cause=cause, group=group, queue=queue, **columns)

    def table(self):
        return pa.Table.from_pylist(self.rows, schema=KIND)


def kept(facts: Facts, *, pieces=1, grace_us=BUCKET_US, groups=()):
    """Return the runs of facts, folded in so many pieces."""
    whole = facts.table()
    runs = KEPT.empty_table()
    step = -(-len(whole) // pieces) or 1
    for begin in range(0, len(whole), step):
        new = gather(whole.slice(begin, step), grace_us)
        runs = fold(runs, new, [(7, one) for one in groups])
    return runs


def audited(
    facts: Facts, *, now=LATER, groups=(), archived: Archived | None = None, topics=None, **policy
) -> Judgement:
    rules = Policy(now, **policy)
    return judge(kept(facts, groups=groups), rules, [(7, one) for one in groups], archived, topics)


def rows(judgement, **wanted):
    return [
        row
        for row in judgement.rows.to_pylist()
        if all(row[name] == value for name, value in wanted.items())
    ]


def row(judgement, **wanted):
    (one,) = rows(judgement, **{"tier": "stored", **wanted})
    return one


def findings(judgement, **wanted):
    return [
        one
        for one in judgement.findings.to_pylist()
        if all(one[name] == value for name, value in wanted.items())
    ]


def named(judgement, kind, **wanted):
    """Return the ids of messages that are named."""
    return [one["message_id"] for one in findings(judgement, kind=kind, **wanted)]


def ids(*sequences, producer=P):
    return [f"{producer:016x}:{one:x}" for one in sequences]


def in_archive(*runs, stands, excused=(), bucket=NOON):
    """Return an archive that has runs (queue, start, stop, sequence)."""

    def made(kind, some, **columns):
        columns = {name: pa.array(list(values)) for name, values in columns.items()}
        return table(
            len(some), kind=kind, topic="orders", topic_number=pa.array([7] * len(some)), **columns
        )

    queues, starts, stops, sequences = zip(*runs, strict=True) if runs else ((),) * 4
    return Archived(
        made(
            "archived", runs, bucket=[bucket] * len(runs), queue=queues, start=starts, stop=stops,
            sequence=sequences, producer_id=[P] * len(runs), late=[False] * len(runs),
        ),
        {(7, queue): stop for queue, stop in stands.items()},
        made("excused", excused, queue=[0] * len(excused), start=[a for a, _ in excused],
             stop=[b for _, b in excused]),
    )  # fmt: skip
