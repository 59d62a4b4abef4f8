"""The audit of scheduled messages, in the windows in which they are due.

Each is delivered once, or cancelled, or still pending, or gone with its topic; what is missing or
was delivered twice is named. Rows are known by their entries (``runs``). An entry that was
delivered or cancelled counts as scheduled, even if it was scheduled before the audit began.
"""

from __future__ import annotations

from collections.abc import Container
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ternmq.pipeline.audit.kept import OF_SCHEDULE
from ternmq.pipeline.audit.policy import (
    Judged,
    Policy,
    Row,
    Topics,
    Verdict,
    expanded,
    named,
    names_of,
    worst,
)
from ternmq.pipeline.audit.spans import Bools, Spans, spans, sweep, totals, within, without
from ternmq.pipeline.tables.numbers import ints


class _Due:
    """The scheduled rows of a window: spans of entries, each in the space of its topic."""

    def __init__(self, runs: pa.Table) -> None:
        kinds = runs["kind"]
        self.owed, self.fulfilled, self.cancelled = (
            runs.filter(pc.equal(kinds, kind)) for kind in OF_SCHEDULE
        )
        every = pa.concat_tables([self.owed, self.fulfilled, self.cancelled])
        self.topics = Topics(ints(every["topic_number"]), names_of(every))
        start = ints(self.fulfilled["entry"])
        length = ints(self.fulfilled["stop"]) - ints(self.fulfilled["start"])
        self.of_owed = self._spans(self.owed)
        self.of_fulfilled = spans(self._space(self.fulfilled), start, start + length)
        self.of_cancelled = self._spans(self.cancelled)

    def _space(self, runs: pa.Table) -> np.ndarray:
        return np.searchsorted(self.topics.numbers, ints(runs["topic_number"]))

    def _spans(self, runs: pa.Table) -> Spans:
        return spans(self._space(runs), ints(runs["start"]), ints(runs["stop"]))


def undone(runs: pa.Table, topics: Container[int] | None) -> bool:
    """Return whether scheduled rows are neither delivered nor cancelled, nor gone with their topic.

    Args:
        runs: Runs of any windows.
        topics: Numbers of the existing topics; None: all exist.
    """
    some = _Due(runs.filter(pc.is_in(runs["kind"], pa.array(OF_SCHEDULE))))
    rest = without(some.of_owed, some.of_fulfilled, some.of_cancelled)
    return bool(_existing(some.topics, topics)[rest.space].any())


def _existing(topics: Topics, existing: Container[int] | None) -> Bools:
    there = [existing is None or one in existing for one in topics.numbers.tolist()]
    return np.array(there, np.bool_)


def judge_due(
    bucket_us: int, runs: pa.Table, topics: Container[int] | None, policy: Policy
) -> Judged:
    """Judge scheduled messages.

    Args:
        bucket_us: Beginning of the window.
        runs: All known runs of the window.
        topics: Numbers of the existing topics; None: all exist.
        policy: The rules.
    """
    some = _Due(runs)
    count = len(some.topics)
    found = Judged()
    if not count:
        return found
    pieces = sweep(some.of_owed, some.of_fulfilled, some.of_cancelled)
    space, lengths = pieces.spans.space, pieces.spans.lengths
    known, times, voided = pieces.depths
    delivered, cancelled = times > 0, (voided > 0) & (times == 0)
    left = (known > 0) & ~delivered & ~cancelled
    gone = left & ~_existing(some.topics, topics)[space]
    pending = left & ~gone & policy.pending(bucket_us)
    whole = policy.whole(bucket_us)
    missing = left & ~gone & ~pending
    lost = missing & whole
    wrong = np.maximum(times - 1, 0) + (delivered & (voided > 0))
    late = ints(some.fulfilled["late"]) > 0
    amounts = {
        "scheduled": totals(space, lengths, count),
        **{
            name: totals(space, lengths * chosen, count)
            for name, chosen in (
                ("delivered", delivered),
                ("cancelled", cancelled),
                ("pending", pending),
                ("gone", gone),
                ("lost", lost),
                ("doubled", wrong),
                ("unverified", missing & ~lost),
            )
        },
        "late": totals(some.of_fulfilled.space, some.of_fulfilled.lengths * late, count),
    }
    early = policy.open(bucket_us)
    for at in range(count):
        row: Row = {name: int(values[at]) for name, values in amounts.items()}
        verdict = worst(
            (early, Verdict.OPEN),
            (row["lost"], Verdict.LOST),
            (row["doubled"], Verdict.DOUBLED),
            (row["pending"], Verdict.OPEN),
            (row["unverified"], Verdict.UNVERIFIED),
            (row["late"], Verdict.LATE),
        )
        found.rows.append({"tier": "due", **some.topics.of(at), **row, "verdict": verdict})
    if not early:
        naming = _Naming(some, policy.most_named)
        naming.lost(pieces.run[lost], pieces.spans.where(lost), bucket_us)
        naming.twice(pieces.spans.where(times > 1))
        naming.cancelled(pieces.spans.where(delivered & (voided > 0)))
        naming.late(late)
        found.findings = naming.findings
    return found


class _Naming:
    """Names messages, at most so many of each kind."""

    def __init__(self, some: _Due, most: int) -> None:
        self._some = some
        self._most = most
        self.findings: list[Row] = []

    def lost(self, run: np.ndarray, some: Spans, bucket_us: int) -> None:
        """Name rows that were never delivered; ``run``: those of ``owed`` that they are in."""
        when = datetime.fromtimestamp(bucket_us // 1_000_000, UTC)
        detail = f"due from {when:%Y-%m-%d %H:%M} on, and not delivered"
        owed = self._some.owed
        first, start = ints(owed["sequence"]), ints(owed["start"])
        producer = ints(owed["producer_id"])
        known = owed["sequence"].is_valid().to_numpy()
        room = self._most
        for at, one in enumerate(run.tolist()):
            if not known[one]:  # prepared before the audit began
                about = {**self._about(int(some.space[at])), "detail": detail}
                self.findings.append({"kind": "lost", "count": int(some.lengths[at]), **about})
                continue
            numbers = first[one] + np.arange(some.start[at], some.stop[at]) - start[one]
            about = {**self._about(int(some.space[at])), "detail": detail}
            self.findings += named("lost", int(producer[one]), numbers, max(0, room), about)
            room -= len(numbers)

    def twice(self, some: Spans) -> None:
        """Name each delivery of a row except the first."""
        seen: dict[tuple[int, int], Row] = {}
        for run, entry, place in self._deliveries(some):
            key = int(self._some.of_fulfilled.space[run]), entry
            known = seen.setdefault(key, place)
            if known is not place:
                detail = f"delivered first to queue {known['queue']} at {known['offset']}"
                self._name("doubled", run, place, detail)

    def cancelled(self, some: Spans) -> None:
        """Name the first delivery of rows that were cancelled."""
        seen: set[tuple[int, int]] = set()
        for run, entry, place in self._deliveries(some):
            key = int(self._some.of_fulfilled.space[run]), entry
            if key not in seen:
                seen.add(key)
                self._name("doubled", run, place, "it is cancelled, and was delivered")

    def late(self, which: Bools) -> None:
        """Name rows that were delivered late."""
        room = self._most
        lengths = self._some.of_fulfilled.lengths
        for run in which.nonzero()[0].tolist():
            for number in range(min(room, int(lengths[run]))):
                self._name("late", run, self._place(run, number), None)
            room -= int(lengths[run])
            if room <= 0:
                return

    def _deliveries(self, some: Spans) -> list[tuple[int, int, Row]]:
        """Return run, entry and place of the deliveries of entries, in the order of the journal."""
        fulfilled = self._some.of_fulfilled
        found: list[tuple[int, int, Row]] = []
        order = np.argsort(ints(self._some.fulfilled["position"]), kind="stable")
        touched = np.isin(fulfilled.space[order], some.space)
        for run in order[touched].tolist():
            both = within(fulfilled.where(np.array([run])), some)
            room = self._most - len(found)
            for entry in expanded(both, max(0, room)).tolist():
                found.append((run, entry, self._place(run, entry - int(fulfilled.start[run]))))
        return found

    def _place(self, run: int, number: int) -> Row:
        """Return the place of a row of a run, and its number in the run."""
        rows = self._some.fulfilled
        offset = int(rows["start"][run].as_py()) + number
        return {"queue": rows["queue"][run].as_py(), "offset": offset, "number": number}

    def _name(self, kind: str, run: int, place: Row, detail: str | None) -> None:
        rows = self._some.fulfilled
        sequence = np.array([rows["sequence"][run].as_py() + place["number"]])
        about = {
            **self._about(int(self._some.of_fulfilled.space[run])),
            "queue": place["queue"],
            "offset": place["offset"],
            "detail": detail,
        }
        self.findings += named(kind, rows["producer_id"][run].as_py(), sequence, 1, about)

    def _about(self, topic: int) -> Row:
        return {"tier": "due", **self._some.topics.of(topic)}
