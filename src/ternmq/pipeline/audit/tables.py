"""The tables of the audit as the job uses them: the folded facts and the verdicts.

``audit_runs`` holds all facts of the journal up to a position, which is stored in the same commit.
The verdicts are computed from it: ``audit`` and ``audit_findings`` are replaced day by day, and
store the position too. If theirs differs, a run stopped in between, and everything that is kept is
judged again.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable
from datetime import UTC, datetime
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ternmq.pipeline.audit.audit import Judgement, buckets_of
from ternmq.pipeline.audit.due import undone
from ternmq.pipeline.audit.kept import KEPT, WHEN_DUE
from ternmq.pipeline.audit.schema import RUNS
from ternmq.pipeline.tables.datafile import DataFile
from ternmq.pipeline.tables.numbers import ints
from ternmq.pipeline.tables.table import Table

POSITION: Final = "audit/position"
SINCE: Final = "audit/since"
HOUR_US: Final = 3_600_000_000


def hour_of(bucket_us: int) -> str:
    """Return the hour of a window, as the table stores it."""
    return f"{datetime.fromtimestamp(bucket_us // 1_000_000, UTC):%Y-%m-%dT%H}"


class AuditTables:
    """Loads, stores and replaces the rows of the audit's tables.

    Args:
        runs: The table ``audit_runs``.
        audit: The table ``audit``.
        findings: The table ``audit_findings``.
    """

    def __init__(self, runs: Table, audit: Table, findings: Table) -> None:
        self._runs = runs
        self._audit = audit
        self._findings = findings
        self.loaded: dict[str, list[DataFile]] = {}
        """The hours contained in ``known``, and the files that hold them."""
        self.known = KEPT.empty_table()
        """All runs of these hours."""

    @property
    def position(self) -> int | None:
        """Position up to which the journal is folded; None: the tables are new."""
        return self._runs.remembered(POSITION)

    @property
    def since_us(self) -> int:
        """Time since which all facts are known."""
        return self._runs.remembered(SINCE) or 0

    @property
    def hours(self) -> set[str]:
        """The hours of which runs are kept."""
        return {one.partition["hour"] for one in self._runs.files()}

    def open_hours(self, now_us: int) -> tuple[set[str], set[int]]:
        """Return the windows whose verdict is not final, and that have begun; and their hours.

        The hours are also those of later windows with messages that groups receive already: the
        clock of their sender is ahead. The facts of these groups must find them.
        """
        hours = self.hours
        if self._audit.remembered(POSITION) != self.position:
            self.load(hours)
            return hours, {one for one in buckets_of(self.known) if one <= now_us}
        buckets: set[int] = set()
        ahead: set[int] = set()
        for day in {hour[:10] for hour in hours}:
            rows = self._audit.read(["bucket", "final", "tier"], day=day)
            rows = rows.filter(pc.invert(rows["final"]))
            buckets |= set(np.unique(ints(rows["bucket"])).tolist())
            of_groups = rows.filter(pc.equal(rows["tier"], "group"))
            ahead |= set(np.unique(ints(of_groups["bucket"])).tolist())
        buckets = {one for one in buckets if one <= now_us and hour_of(one) in hours}
        return {hour_of(one) for one in buckets | ahead} & hours, buckets

    def load(self, hours: Iterable[str]) -> None:
        """Load the runs of hours into ``known``."""
        parts = [self.known]
        for hour in sorted(set(hours) - set(self.loaded)):
            self.loaded[hour] = self._runs.files(hour=hour)
            parts.append(self._runs.read(KEPT.names, hour=hour))
        self.known = pa.concat_tables(parts)

    def remember(self, runs: pa.Table, position: int, since_us: int) -> None:
        """Replace ``known`` by these runs, folded up to a position; durable at return."""
        before, after = _by_hour(self.known), _by_hour(runs)
        changed = [hour for hour in after if not _same(after[hour], before.get(hour))]
        added = [file for hour in changed for file in self._runs.stage(after[hour])]
        replaced = [file for hour in changed for file in self.loaded.get(hour, ())]
        of_hours = list(after)
        self._runs.commit(added, replaced, {POSITION: position, SINCE: since_us})
        self.known = runs
        self.loaded = {hour: self._runs.files(hour=hour) for hour in {*self.loaded, *of_hours}}

    def forget(
        self, before_us: int, topics: Container[int] | None = None, *, pending: bool = False
    ) -> None:
        """Remove the runs of hours before a time.

        Args:
            before_us: The time.
            topics: Numbers of the existing topics; None: all exist.
            pending: Keep hours with scheduled messages that are neither delivered nor cancelled,
                nor gone with their topic.
        """
        limit = hour_of(max(0, before_us))
        old = [one for one in self._runs.files() if one.partition["hour"] < limit]
        if pending:
            hours = {one.partition["hour"] for one in old}
            kept = {one for one in hours if undone(self._runs.read(KEPT.names, hour=one), topics)}
            old = [one for one in old if one.partition["hour"] not in kept]
        if old:
            self._runs.commit(remove=old)

    def replace(self, judged: Judgement, buckets: Iterable[int]) -> bool:
        """Replace the verdicts of these windows; return whether any row changed."""
        wanted = pa.array(sorted(set(buckets)), pa.int64())
        position = self.position
        changed = False
        for table, rows in ((self._findings, judged.findings), (self._audit, judged.rows)):
            added: list[DataFile] = []
            removed: list[DataFile] = []
            for day in sorted({_day(one) for one in wanted.to_pylist()}):
                before = table.read(day=day)
                others = before.filter(
                    pc.invert(pc.is_in(before["bucket"].cast(pa.int64()), wanted))
                )
                mine = rows.filter(pc.equal(rows["day"].cast(pa.string()), day))
                after = _sorted(pa.concat_tables([others, mine]))
                if after.equals(_sorted(before)):
                    continue
                changed = True
                removed += table.files(day=day)
                added += table.stage(after) if len(after) else []
            if added or removed or table.remembered(POSITION) != position:
                remember = {} if position is None else {POSITION: position}
                table.commit(added, removed, remember)
        return changed


def _by_hour(runs: pa.Table) -> dict[str, pa.Table]:
    """Return runs by hour, as rows of the table."""
    bucket = ints(runs["bucket"])
    hours, index = np.unique(bucket - bucket % HOUR_US, return_inverse=True)
    found = {}
    for number, start in enumerate(hours.tolist()):
        rows = runs.filter(pa.array(index == number))
        columns = {one: rows[one] for one in KEPT.names}
        columns["hour"] = pa.repeat(pa.scalar(hour_of(start)), len(rows))
        columns["schema_version"] = pa.repeat(pa.scalar(RUNS.version, pa.int32()), len(rows))
        found[hour_of(start)] = pa.table(columns).select(RUNS.schema.names).cast(RUNS.schema)
    return found


def _same(one: pa.Table, other: pa.Table | None) -> bool:
    """Return whether these are the same rows, in any order."""
    if other is None or len(one) != len(other):
        return False
    by = [(name, "ascending") for name in KEPT.names]
    return bool(one.sort_by(by).combine_chunks().equals(other.sort_by(by).combine_chunks()))


def _day(bucket_us: int) -> str:
    return hour_of(bucket_us)[:10]


def _sorted(rows: pa.Table) -> pa.Table:
    keys = ("bucket", "topic", "topic_number", "tier", "group", "kind", "producer_id", "sequence",
            "queue", "offset")  # fmt: skip
    by = [(name, "ascending") for name in keys if name in rows.column_names]
    return rows.sort_by(by).combine_chunks()


def usable(
    runs: pa.Table, now_us: int, low_us: int, hours: Collection[str] = ()
) -> tuple[pa.Table, int]:
    """Return the runs to keep, and the number of messages with an unusable born time.

    These come from a sender whose clock is wrong, or arrive after their hour was removed. Messages
    may be due at any later time; if they are delivered long after it, their hour is still kept.

    Args:
        runs: As ``gather`` returns them; runs without a window stay.
        now_us: The time.
        low_us: The earliest time of which runs are kept.
        hours: The hours of which runs are kept.
    """
    bucket = ints(runs["bucket"])
    of_schedule = pc.is_in(runs["kind"], pa.array(WHEN_DUE)).to_numpy()
    kept = [
        one
        for one in np.unique(bucket[of_schedule]).tolist()
        if one - one % HOUR_US >= low_us or hour_of(one) in hours
    ]
    good = (bucket < 0) & runs["bucket"].is_null().to_numpy()
    good |= (bucket - bucket % HOUR_US >= low_us) & (bucket <= now_us + 24 * HOUR_US)
    good = np.where(of_schedule, np.isin(bucket, np.array(kept, np.int64)), good)
    out = runs.filter(pa.array(~good))
    rows = out.filter(pc.is_in(out["kind"], pa.array(["stored", "scheduled"])))
    count = pc.sum(pc.subtract(rows["stop"], rows["start"])).as_py() or 0
    return runs.filter(pa.array(good)), int(count)
