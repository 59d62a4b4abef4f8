"""The audit of a window beyond storing: what groups received, what the archive has.

Both are compared with what is stored, by queue and offset; messages that differ are named.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ternmq.pipeline.audit.kept import IN_QUEUES, OF_GROUPS, table
from ternmq.pipeline.audit.policy import (
    OWED,
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
from ternmq.pipeline.audit.spans import Bools, Ints, Pieces, Spans, factor, id_sums, sweep, totals
from ternmq.pipeline.tables.numbers import ints

_FINISHED: Final = ("settled", "passed", "expired", "expired_dead", "expired_dropped")
"""Columns of rows that a group owes nothing of any more; those that are lost, it owes for ever."""


class _Rows:
    """The stored rows, and runs to compare with them, in spaces of one queue each."""

    def __init__(self, stored: pa.Table, *others: pa.Table) -> None:
        self.stored = stored
        every = pa.concat_tables([stored, *others])
        space, first = factor([ints(every["topic_number"]), ints(every["queue"])])
        self.queues = ints(every["queue"])[first]
        self.topics = Topics(ints(stored["topic_number"]), names_of(stored))
        self.spans: list[Spans] = []
        begin = 0
        for one in (stored, *others):
            here = space[begin : begin + len(one)]
            self.spans.append(Spans(here, ints(one["start"]), ints(one["stop"])))
            begin += len(one)
        self.producer: Ints = stored["producer_id"].to_numpy()
        self.sequence: Ints = stored["sequence"].to_numpy()
        self.start = self.spans[0].start

    def sums(self, run: Ints, some: Spans) -> Ints:
        """Return for each topic the sum of the ids in pieces of stored runs."""
        first = self.sequence[run] + some.start - self.start[run]
        index = self.topics.index[run]
        return id_sums(index, self.producer[run], first, some.lengths, len(self.topics))

    def count(self, run: Ints, some: Spans, chosen: Bools) -> Ints:
        """Return for each topic the number of rows in chosen pieces of stored runs."""
        return totals(self.topics.index[run], some.lengths * chosen, len(self.topics))

    def others(self, compared: pa.Table, pieces: Pieces) -> Bools:
        """Return a mask of the pieces whose ids differ in a run of ``compared``, the second set.

        If any piece is there twice, none are compared.
        """
        same = sweep(self.spans[1], self.spans[0], *self.spans[2:])
        both = (pieces.depths[0] > 0) & (pieces.depths[1] == 1)
        if (pieces.depths[1] > 1).any():
            return np.zeros(len(both), np.bool_)
        first = ints(compared["start"])
        ids = []
        for run, start, producer, sequence in (
            (pieces.run[both], self.start, self.producer, self.sequence),
            (
                same.run[both],
                first,
                compared["producer_id"].to_numpy(),
                compared["sequence"].to_numpy(),
            ),
        ):
            ids.append((producer[run], sequence[run] + pieces.spans.start[both] - start[run]))
        (one_producer, one_sequence), (producer, sequence) = ids
        found = np.zeros(len(both), np.bool_)
        found[both] = (one_producer != producer) | (one_sequence != sequence)
        return found

    def named(
        self, kind: str, run: Ints, some: Spans, most: int, columns: Mapping[str, object]
    ) -> list[Row]:
        """Return a finding for each row in pieces of stored runs."""
        found: list[Row] = []
        for number, at in enumerate(run.tolist()):
            if len(found) >= most:
                rest = int(some.lengths[number:].sum())
                found.append(
                    {"kind": kind, "count": rest, "detail": f"{rest} more, not named", **columns}
                )
                break
            offsets = expanded(some.where(np.array([number])), most - len(found))
            sequences = self.sequence[at] + offsets - self.start[at]
            rows = named(kind, int(self.producer[at]), sequences, most, columns)
            for row, offset in zip(rows, offsets.tolist(), strict=True):
                row.update(self.topics.of(int(self.topics.index[at])))
                row.update(queue=int(self.queues[some.space[number]]), offset=offset)
            found += rows
        return found


def judge_groups(
    bucket_us: int, runs: pa.Table, groups: Iterable[tuple[int, str]], policy: Policy
) -> Judged:
    """Judge what groups received and finished.

    Args:
        bucket_us: Beginning of the window.
        runs: All known runs of the window.
        groups: The existing groups: number of the topic, name of the group.
        policy: The rules.
    """
    kinds = runs["kind"]
    stored = runs.filter(pc.is_in(kinds, pa.array(IN_QUEUES)))
    wanted = set(stored["topic_number"].to_pylist())
    by_group: dict[str, set[int]] = {}
    for number, group in groups:
        if number in wanted:
            by_group.setdefault(group, set()).add(number)
    found = Judged()
    for group, numbers in sorted(by_group.items()):
        mine = runs.filter(pc.equal(runs["group"], group))
        some = stored.filter(pc.is_in(stored["topic_number"], pa.array(sorted(numbers))))
        found.add(_judge_group(bucket_us, group, some, mine, policy))
    return found


def _judge_group(
    bucket_us: int, group: str, stored: pa.Table, runs: pa.Table, policy: Policy
) -> Judged:
    early = policy.open(bucket_us)
    kinds = runs["kind"]
    rows = _Rows(stored, *(runs.filter(pc.equal(kinds, kind)) for kind in OF_GROUPS))
    pieces = sweep(*rows.spans)
    there = pieces.depths[0] > 0
    run, some = pieces.run[there], pieces.spans.where(there)
    of = dict(zip(OF_GROUPS, (depth[there] > 0 for depth in pieces.depths[1:]), strict=True))
    delivered, settled = of["delivered"], of["settled"]
    dead = of["expired_dead"] & ~settled
    dropped = of["expired_dropped"] & ~settled & ~dead
    ended = settled | dead | dropped
    passed = (of["dropped"] | (of["passed"] & ~delivered)) & ~ended
    gone = of["expired"] & ~ended & ~passed
    lost = of["watched"] & of["reached"] & ~(ended | passed | gone | delivered | of["parked"])
    lost &= policy.whole(bucket_us) and not early
    amounts = {
        "stored": rows.count(run, some, np.ones(len(run), np.bool_)),
        "delivered": rows.count(run, some, delivered),
        "settled": rows.count(run, some, settled),
        "passed": rows.count(run, some, passed),
        "expired": rows.count(run, some, gone),
        "expired_dead": rows.count(run, some, dead),
        "expired_dropped": rows.count(run, some, dropped),
        "lost": rows.count(run, some, lost),
        "stored_sum": rows.sums(run, some),
        "delivered_sum": rows.sums(run[delivered], some.where(delivered)),
        "settled_sum": rows.sums(run[settled], some.where(settled)),
    }
    found = Judged()
    for at in range(len(rows.topics)):
        row: Row = {name: int(values[at]) for name, values in amounts.items()}
        owed = row["stored"] - sum(row[name] for name in _FINISHED)
        verdict = worst(
            (early, Verdict.OPEN),
            (row["lost"], Verdict.LOST),
            (owed, Verdict.OPEN),
            (row["expired"], Verdict.EXPIRED),
        )
        whose = {"tier": "group", "group": group, **rows.topics.of(at)}
        found.rows.append({**whose, **row, "verdict": verdict, OWED: owed > 0})
    if not early:
        whose = {"tier": "group", "group": group}
        for kind, chosen in (("lost", lost), ("expired", gone)):
            found.findings += rows.named(
                kind, run[chosen], some.where(chosen), policy.most_named, whose
            )
    return found


def judge_archive(
    bucket_us: int,
    runs: pa.Table,
    archived: pa.Table,
    stands: Mapping[tuple[int, int], int],
    excused: pa.Table,
    policy: Policy,
) -> Judged:
    """Judge what the archive has.

    Args:
        bucket_us: Beginning of the window.
        runs: All known runs of the window.
        archived: Runs of the archive's rows that were born in it.
        stands: End of the archive's rows of each queue: (number of the topic, queue) -> offset.
        excused: Runs that were erased on request or are listed in ``archive_gaps``.
        policy: The rules.
    """
    stored = runs.filter(pc.is_in(runs["kind"], pa.array(IN_QUEUES)))
    numbers = sorted({number for number, _ in stands})
    stored = stored.filter(pc.is_in(stored["topic_number"], pa.array(numbers, pa.int64())))
    if not len(stored):
        return Judged()
    places = sorted(stands.items())
    reached = table(
        len(places),
        topic_number=pa.array([number for (number, _), _ in places], pa.int64()),
        queue=pa.array([queue for (_, queue), _ in places], pa.int32()),
        start=pa.array([0] * len(places), pa.int64()),
        stop=pa.array([stop for _, stop in places], pa.int64()),
    )
    archived = archived.filter(pc.is_in(archived["topic_number"], stored["topic_number"]))
    rows = _Rows(stored, archived, excused, reached)
    pieces = sweep(*rows.spans)
    there = pieces.depths[0] > 0
    run, some = pieces.run[there], pieces.spans.where(there)
    here, freed, begun = (depth[there] for depth in pieces.depths[1:])
    early = policy.open(bucket_us)
    absent = (here == 0) & (freed == 0)
    missing, waiting = absent & (begun > 0), absent & (begun == 0)
    twice = here > 1
    damaged = rows.others(archived, pieces)[there]
    mine = np.searchsorted(rows.topics.numbers, ints(archived["topic_number"]))
    lengths = ints(archived["stop"]) - ints(archived["start"])
    amounts = {
        "stored": rows.count(run, some, np.ones(len(run), np.bool_)),
        "archived": totals(mine, lengths, len(rows.topics)),
        "lost": rows.count(run, some, missing | damaged),
        "doubled": totals(
            rows.topics.index[run], some.lengths * np.maximum(here - 1, 0), len(rows.topics)
        ),
        "stored_sum": rows.sums(run, some),
        "archived_sum": id_sums(
            mine,
            archived["producer_id"].to_numpy(),
            archived["sequence"].to_numpy(),
            lengths,
            len(rows.topics),
        ),
    }
    owed = rows.count(run, some, waiting)
    found = Judged()
    for at in range(len(rows.topics)):
        row: Row = {name: int(values[at]) for name, values in amounts.items()}
        verdict = worst(
            (early, Verdict.OPEN),
            (row["lost"], Verdict.LOST),
            (row["doubled"], Verdict.DOUBLED),
            (owed[at], Verdict.OPEN),
        )
        found.rows.append({"tier": "archive", **rows.topics.of(at), **row, "verdict": verdict})
    if not early:
        for kind, chosen in (("lost", missing), ("doubled", twice), ("damaged", damaged)):
            found.findings += rows.named(
                kind, run[chosen], some.where(chosen), policy.most_named, {"tier": "archive"}
            )
    return found
