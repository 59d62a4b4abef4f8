"""The archive as a job of the pipeline."""

from __future__ import annotations

from typing import Final

from ternmq.model.words import counted, verb
from ternmq.pipeline.archive.archive import ArchiveJob, Done, Workers
from ternmq.pipeline.archive.commit import Archive
from ternmq.pipeline.archive.schema import ARCHIVE, GAPS
from ternmq.pipeline.job.job import Context, Outcome, Setting
from ternmq.pipeline.tables.spec import TableSpec

_MB: Final = 1 << 20


class Archiving:
    """Runs ``archive`` or ``batch``. Its progress is a group of each topic, not a hold."""

    name: Final = "archive"
    tables: Final[tuple[TableSpec, ...]] = (ARCHIVE, GAPS)
    settings: Final = (
        Setting(
            "topics",
            "",
            "Topics to archive, separated by commas; empty: all that the app may read.",
        ),
        Setting("pass_mb", 512, "Approximate size of a commit, in megabytes."),
        Setting(
            "spark_from_mb", 256, "Use Spark if a commit has at least this size, in megabytes."
        ),
    )
    keeps_journal: Final = False

    def run(self, context: Context) -> Outcome:
        """Archive everything that is there now.

        Raises:
            DataLoss, UnknownTopic: As ``ArchiveJob.once``.
            Stopped: A stop was requested; raised after a commit.
        """
        topics = [one.strip() for one in str(context.settings["topics"]).split(",") if one.strip()]

        def between(done: Done) -> None:
            context.progress(counted(done.rows, "row"))
            context.check()

        done = ArchiveJob(
            context.bulk,
            Archive(context.tables, context.storage),
            topics=topics or None,
            lenient=context.lenient,
            pass_bytes=context.integer("pass_mb") * _MB,
            workers=self._workers(context),
            between=between,
        ).once(context.now_us)
        they_were = verb(done.lost, "it was", "they were")
        lost = (
            f"{counted(done.lost, 'row')} expired before {they_were} archived: table archive_gaps"
        )
        return Outcome(
            rows=done.rows,
            bytes=done.bytes,
            findings=(lost,) if done.lost else (),
            behind_rows=0,
        )

    def _workers(self, context: Context) -> Workers | None:
        if context.spark is None:
            return None
        from ternmq.pipeline.archive.spark import SparkWorkers

        return SparkWorkers(
            context.spark,
            context.tables.uri,
            context.broker,
            context.integer("spark_from_mb") * _MB,
            lenient=context.lenient,
        )
