"""What producers sent and the broker stored in a window: counts, and what they disagree about."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ternmq.pipeline.audit.policy import (
    Judged,
    Policy,
    Row,
    Topics,
    expanded,
    named,
    names_of,
)
from ternmq.pipeline.audit.spans import Bools, Ints, Spans, factor, id_sums, sweep, totals, within
from ternmq.pipeline.tables.numbers import ints


@dataclass(slots=True)
class Part:
    """Runs of a kind, as arrays. ``key``: index of the (topic, producer) pair."""

    rows: pa.Table
    key: Ints
    first: Ints
    stop: Ints

    @property
    def spans(self) -> Spans:
        """The sequences, each in the space of its producer and topic."""
        return Spans(self.key, self.first, self.stop)


class Stored:
    """What producers sent and the broker stored in a window; arguments as ``judge_stored``."""

    def __init__(self, bucket_us: int, runs: pa.Table, policy: Policy) -> None:
        self.policy = policy
        self.bucket_us = bucket_us
        kinds = ("stored", "left_out", "counts", "given_up", "prepared")
        tables = [runs.filter(pc.equal(runs["kind"], kind)) for kind in kinds]
        # A scheduled row is stored where it is scheduled.
        scheduled = runs.filter(pc.equal(runs["kind"], "scheduled"))
        tables[0] = pa.concat_tables([tables[0], scheduled])
        every = pa.concat_tables(tables)
        numbers, producers = ints(every["topic_number"]), every["producer_id"].to_numpy()
        self.names = names_of(every)
        key, first = factor([numbers, producers]) if len(every) else (numbers, numbers)
        self.count = len(first)
        self.producers: Ints = producers[first]
        self.topics = Topics(numbers[first], self.names)
        begin = 0
        parts: list[Part] = []
        for kind, one in zip(kinds, tables, strict=True):
            low = one["sequence"].to_numpy()
            high = (
                low + (ints(one["stop"]) - ints(one["start"]))
                if kind == "stored"
                else one["until"].to_numpy()
            )
            parts.append(Part(one, key[begin : begin + len(one)], low, high))
            begin += len(one)
        self.stored, self.left_out, self.counts, self.given_up, self.prepared = parts

    # -- counting

    def measure(self) -> None:
        """Count messages for each producer on each topic, and sum their ids."""
        count, topics = self.count, len(self.topics)
        pieces = sweep(self.stored.spans, self.left_out.spans)
        lengths, space = pieces.spans.lengths, pieces.spans.space
        here, left = pieces.depths
        self.distinct = totals(space, lengths * (here > 0), count)
        self.rows = totals(self.stored.key, self.stored.spans.lengths, count)
        self.extra = self.rows - self.distinct
        self.left = totals(space, lengths * ((here == 0) & (left > 0)), count)
        self.twice = pieces.spans.where(here > 1)
        is_late = ints(self.stored.rows["late"]) > 0
        self.late = totals(self.stored.key, self.stored.spans.lengths * is_late, count)
        key = self.counts.key
        self.told = np.zeros(count, np.bool_)
        self.told[key] = True
        self.closed = np.zeros(count, np.bool_)
        self.closed[key] = ints(self.counts.rows["closed"]) > 0
        self.sent, self.gave, self.told_left, self.low, self.high = (
            np.zeros(count, np.int64) for _ in range(5)
        )
        self.sent[key] = ints(self.counts.rows["sent"])
        self.gave[key] = ints(self.counts.rows["given_up"])
        self.told_left[key] = ints(self.counts.rows["left_out"])
        self.low[key], self.high[key] = self.counts.first, self.counts.stop
        # A transaction's messages count as sent: its commit lists them, and nothing else does.
        by_commit = ints(self.stored.rows["closed"]) > 0
        committed = totals(self.stored.key, self.stored.spans.lengths * by_commit, count)
        alone = ~self.told & (committed > 0) & (committed == self.rows)
        self.told |= alone
        self.closed |= alone
        self.sent += np.minimum(committed, self.distinct)
        of = self.topics.index
        even = self.told & (self.high - self.low == self.sent)
        self.dense = totals(of, (~even).astype(np.int64), topics) == 0
        self.sent_sum = self.stored_sum = np.zeros(topics, np.int64)
        if self.policy.open(self.bucket_us):
            self.dense[:] = False
            return
        self.stored_sum = id_sums(
            of[self.stored.key],
            self.producers[self.stored.key],
            self.stored.first,
            self.stored.spans.lengths,
            topics,
        )
        sure = np.where(self.dense[of], self.sent, 0)
        self.sent_sum = id_sums(of, self.producers, self.low, sure, topics)

    def unequal(self) -> Bools:
        """Return the topics whose counts and sums do not prove that they are complete."""
        topics, of = len(self.topics), self.topics.index
        sent, rows = totals(of, self.sent, topics), totals(of, self.rows, topics)
        unequal: Bools = ~self.dense | (sent != rows) | (self.sent_sum != self.stored_sum)
        return unequal

    # -- naming

    def finding(self, kind: str, key: int, **columns: object) -> Row:
        """Build a finding about a producer and a topic."""
        return {
            "kind": kind,
            **self.topics.of(int(self.topics.index[key])),
            "producer_id": int(self.producers[key]),
            **columns,
        }

    def named(self, kind: str, key: int, sequences: Ints, **columns: object) -> list[Row]:
        """Build a finding for each message of a producer, and one for those above the cap."""
        about = {**self.topics.of(int(self.topics.index[key])), **columns}
        return named(kind, int(self.producers[key]), sequences, self.policy.most_named, about)

    def doubled(self) -> list[Row]:
        """Name each copy of a message except the first."""
        if not len(self.twice.start):
            return []
        found: list[Row] = []
        first: dict[tuple[int, int], Row] = {}
        starts, queues = ints(self.stored.rows["start"]), ints(self.stored.rows["queue"])
        touched = self._touched()
        order = np.lexsort((starts[touched], ints(self.stored.rows["position"])[touched]))
        for run in touched[order].tolist():  # in the order in which they were stored
            key = int(self.stored.key[run])
            both = within(self.stored.spans.where(np.array([run])), self.twice)
            for sequence in expanded(both, self.policy.most_named).tolist():
                number = int(starts[run]) + sequence - int(self.stored.first[run])
                place = _place(int(queues[run]), number)
                known = first.setdefault((key, sequence), place)
                if known is not place and len(found) < self.policy.most_named:
                    detail = (
                        "scheduled first"
                        if known["queue"] is None
                        else f"stored first in queue {known['queue']} at {known['offset']}"
                    )
                    found += self.named(
                        "doubled", key, np.array([sequence]), detail=detail, **place
                    )
        return found

    def _touched(self) -> Ints:
        """Return the runs that contain a message stored twice."""
        found = [np.zeros(0, np.int64)]
        for key in np.unique(self.twice.space).tolist():
            pieces = self.twice.where(self.twice.space == key)
            runs = (self.stored.key == key).nonzero()[0]
            at = np.searchsorted(pieces.stop, self.stored.first[runs], side="right")
            begins = np.append(pieces.start, np.iinfo(np.int64).max)[at]
            found.append(runs[begins < self.stored.stop[runs]])
        return np.concatenate(found)

    def late_ones(self) -> list[Row]:
        """Return findings: which messages were stored late."""
        found: list[Row] = []
        late = (ints(self.stored.rows["late"]) > 0).nonzero()[0].tolist()
        starts, queues = ints(self.stored.rows["start"]), ints(self.stored.rows["queue"])
        for run in late:
            first, stop = int(self.stored.first[run]), int(self.stored.stop[run])
            stop = min(stop, first + self.policy.most_named - len(found))
            rows = self.named("late", int(self.stored.key[run]), np.arange(first, stop))
            for number, one in enumerate(rows):
                one.update(_place(int(queues[run]), int(starts[run]) + number))
            found += rows
        return found

    def unverified(self, found: Judged, *, whole: bool) -> Ints:
        """Name the producers whose counts prove nothing; return their number for each topic."""
        marks: list[int] = []
        for key in range(self.count):
            sent, distinct = int(self.sent[key]), int(self.distinct[key] + self.left[key])
            if not whole:
                detail = "the audit began later, or the journal was gone in part"
            elif not self.told[key]:
                detail = "it reported no counts"
            elif distinct > sent:
                detail = f"its last report counts {sent} messages, and {distinct} arrived"
            elif not self.closed[key]:
                detail = (
                    f"its last report counts {sent} messages; it never reported that these were all"
                )
            else:
                continue
            marks.append(key)
            found.findings.append(
                self.finding("unverified", key, count=max(0, distinct - sent), detail=detail)
            )
        index = self.topics.index[np.array(marks, np.int64)]
        return totals(index, np.ones(len(marks), np.int64), len(self.topics))


def _place(queue: int, number: int) -> Row:
    """Return the columns of a place; a scheduled row (queue -1) has none yet."""
    there = queue >= 0
    return {"queue": queue if there else None, "offset": number if there else None}
