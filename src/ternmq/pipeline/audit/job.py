"""The audit as a job of the pipeline: reads the journal, keeps the tables, judges.

A run folds the new part of the journal into ``audit_runs``, piece by piece, and then judges the
windows that this touched, that are due now, or that were not final.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from ternmq.model.words import counted, verb
from ternmq.pipeline.archive.schema import ARCHIVE, ERASED, GAPS
from ternmq.pipeline.audit.archive import Gather, read_archive
from ternmq.pipeline.audit.audit import Archived, buckets_of, fold, judge
from ternmq.pipeline.audit.policy import Policy, Verdict
from ternmq.pipeline.audit.runs import EVENTS, gathered_here
from ternmq.pipeline.audit.schema import AUDIT, BUCKET_US, FINDINGS, RUNS
from ternmq.pipeline.audit.tables import AuditTables, hour_of, usable
from ternmq.pipeline.job.job import Context, Outcome, Setting
from ternmq.pipeline.tables.spec import TableSpec
from ternmq.pipeline.tables.table import Table
from ternmq.spark.journal.events import COLUMNS
from ternmq.spark.journal.options import JournalOptions
from ternmq.spark.journal.reading import JournalReading, Stretch, connect

_MB: Final = 1 << 20
_DAY_US: Final = 86_400_000_000
_MINUTE_US: Final = 60_000_000
_SAID: Final = 20
"""Most lines of findings."""


class AuditJob:
    """Runs ``audit`` over the journal and the tables."""

    name: Final = "audit"
    tables: Final[tuple[TableSpec, ...]] = (AUDIT, FINDINGS, RUNS)
    settings: Final = (
        Setting(
            "grace_minutes",
            10,
            "Minutes from the end of a window of ten minutes until it is judged.",
        ),
        Setting("keep_days", 7, "Days for which facts are remembered and verdicts can change.", 1),
        Setting(
            "again_hours",
            0,
            "Judge again the windows of this many hours before the run, even final ones; 0: none.",
        ),
        Setting("bodies", False, "Check the checksum of every body in the archive."),
        Setting(
            "named", 10_000, "Maximum number of messages to list for each topic, tier and window."
        ),
        Setting("piece_mb", 256, "Size of a commit, in megabytes of the journal.", 1),
        Setting("spark_from_mb", 64, "Use Spark if a piece has at least this size, in megabytes."),
    )
    keeps_journal: Final = True

    def run(self, context: Context) -> Outcome:
        """Fold what is new, and judge what is due.

        Raises:
            DataLoss: The journal begins after the tables' position, or ends before it.
            Stopped: A stop was requested; raised after a commit.
            TableConflict: Another process audits the same.
        """
        return _Run(context).outcome()


class _Run:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._tables = AuditTables(*(context.open(one) for one in (RUNS, AUDIT, FINDINGS)))
        self._grace_us = context.integer("grace_minutes") * _MINUTE_US
        self._keep_us = context.integer("keep_days") * _DAY_US
        self._reading = JournalReading(
            JournalOptions(
                broker=context.broker,
                path="",
                start=0,
                fail_on_data_loss=not context.lenient,
                task_bytes=context.integer("piece_mb") * _MB,
                columns=EVENTS,
            ),
            {name: COLUMNS[name] for name in EVENTS},
        )

    def outcome(self) -> Outcome:
        """Run the audit once."""
        context, tables = self._context, self._tables
        known = tables.position
        end = context.bulk.holds().durable
        start = context.begin(known)
        hours, wanted = tables.open_hours(context.now_us)
        tables.load(hours)
        groups = self._groups()
        touched, strange = self._folded(known, start, end, groups)
        wanted |= touched
        if again := context.integer("again_hours"):
            since = context.now_us - again * 60 * _MINUTE_US
            tables.load(one for one in tables.hours if one >= hour_of(max(0, since)))
            wanted |= {one for one in buckets_of(tables.known) if one >= since - BUCKET_US}
        # Names of deleted topics are kept for some time only: one without a name is deleted.
        topics = {one.number for one in context.bulk.catalog().topics.values() if not one.gone}
        policy = self._policy()
        judged = self._judge(sorted(wanted), groups, topics, policy)
        # A broker that has just started still delivers what was due while it was down.
        before_us = context.removing_us - self._keep_us
        tables.forget(before_us, topics, pending=policy.pending(max(0, before_us)))
        return Outcome(
            rows=len(judged),
            bytes=end - start,
            from_position=start,
            to_position=tables.position,
            findings=[*self._told(judged), *strange],
            behind_rows=0,
        )

    # -- folding

    def _groups(self) -> list[tuple[int, str]]:
        """Return the groups of users, without broadcast instances: topic's number, name."""
        return [
            (info.number, group)
            for info in self._context.bulk.topics()
            for group in info.groups
            if not group.startswith("spark.")
        ]

    def _folded(
        self, known: int | None, start: int, end: int, groups: Sequence[tuple[int, str]]
    ) -> tuple[set[int], list[str]]:
        """Fold the journal up to ``end``; return the windows that new facts belong to."""
        tables, context = self._tables, self._context
        touched: set[int] = set()
        strange = 0
        since_us = tables.since_us
        whole = known == start or (known is None and start == 0)
        for stretch in self._stretches(start, end):
            new, first_us = self._gathered(stretch)
            if not whole and first_us is not None:
                since_us, whole = first_us, True
            low_us = context.removing_us - self._keep_us
            new, out = usable(new, context.now_us, low_us, tables.hours)
            strange += out
            if not len(new) and known is not None and end - known < _MB:
                break  # only the jobs' own records: they are read again in the next run
            buckets = set(buckets_of(new))
            tables.load(hour_of(one) for one in buckets)
            before = tables.known
            tables.remember(fold(before, new, groups), stretch.stop, since_us)
            touched |= buckets
            context.reached(stretch.stop)
            context.progress(f"the journal up to {stretch.stop:,}")
            context.check()
        said = (
            f"{counted(strange, 'message')} {verb(strange, 'was', 'were')} born at a time out of "
            "all bounds: check the clocks of the producers"
        )
        return touched, [said] if strange else []

    def _stretches(self, start: int, end: int) -> Iterator[Stretch]:
        port = connect(self._reading.options)
        try:
            bounds = port.bounds()
        finally:
            port.close()
        yield from self._reading.tasks(start, end, bounds)

    def _gathered(self, stretch: Stretch) -> tuple[pa.Table, int | None]:
        """Return the runs of a stretch, and the time of its first fact."""
        context = self._context
        if (
            context.spark is not None
            and stretch.stop - stretch.start >= context.integer("spark_from_mb") * _MB
        ):
            from ternmq.pipeline.audit.spark import gathered

            return gathered(context.spark, self._reading, stretch, self._grace_us)
        return gathered_here(self._reading.read(stretch), self._grace_us)

    # -- judging

    def _policy(self) -> Policy:
        context = self._context
        status = context.bulk.status()
        return Policy(
            context.now_us,
            self._grace_us,
            self._tables.since_us,
            context.integer("named"),
            context.removing_us,
            status.now_us - status.uptime_us,
        )

    def _judge(
        self,
        buckets: list[int],
        groups: Sequence[tuple[int, str]],
        topics: Container[int],
        policy: Policy,
    ) -> pa.Table:
        """Judge windows and store the verdicts; return the rows."""
        tables = self._tables
        runs = tables.known
        runs = runs.filter(pc.is_in(runs["bucket"].cast(pa.int64()), pa.array(buckets, pa.int64())))
        judged = judge(runs, policy, groups, self._archived(runs, buckets), topics)
        tables.replace(judged, buckets)
        return judged.rows

    def _archived(self, runs: pa.Table, buckets: list[int]) -> Archived | None:
        archive = self._there(ARCHIVE)
        if archive is None:
            return None
        excusing = [one for one in map(self._there, (GAPS, ERASED)) if one is not None]
        return read_archive(
            archive,
            excusing,
            runs,
            buckets,
            bodies=bool(self._context.settings["bodies"]),
            gather=self._reader(),
        )

    def _reader(self) -> Gather | None:
        context = self._context
        if context.spark is None:
            return None
        from ternmq.pipeline.audit.spark import ArchiveReader

        return ArchiveReader(context.spark, context.integer("spark_from_mb") * _MB, context.storage)

    def _there(self, spec: TableSpec) -> Table | None:
        """Return a table of another job, if it exists."""
        if not self._context.tables.inside(spec.name).exists():
            return None
        return self._context.open(spec, create=False)

    def _told(self, rows: pa.Table) -> list[str]:
        """Return a line for each window that needs attention."""
        good = (Verdict.OK, Verdict.OPEN)
        bad = rows.filter(pc.invert(pc.is_in(rows["verdict"], pa.array([*good]))))
        found = [
            f"{row['bucket']:%Y-%m-%d %H:%M} {row['topic']}"
            f"{'/' + row['group'] if row['group'] else ''} ({row['tier']}): {row['verdict']}, "
            + ", ".join(
                f"{row[name]:,} {name}"
                for name in ("lost", "doubled", "late", "expired", "unverified")
                if row[name]
            )
            for row in bad.slice(0, _SAID).to_pylist()
        ]
        if len(bad) > _SAID:
            found.append(f"{len(bad) - _SAID:,} more: table audit")
        return found
