"""The job ``trace``: the journal becomes rows of messages, in groups and scheduled, and counts.

    TraceJob().run(context)

reads from the end of the trace to the present end of the journal, a piece at a time.
"""

from __future__ import annotations

from typing import Final

from ternmq.model.errors import TableConflict
from ternmq.model.words import counted
from ternmq.pipeline.job.described import described
from ternmq.pipeline.job.job import Context, Outcome, Setting
from ternmq.pipeline.stats.schema import STATS_MINUTE
from ternmq.pipeline.tables.spec import TableSpec
from ternmq.pipeline.trace.commits import TracePass, tells
from ternmq.pipeline.trace.feed import Feed, groups_before
from ternmq.pipeline.trace.schema import KNOWN, SCHEDULED, TRACE
from ternmq.spark.journal.broker import BrokerJournal

_TRIES: Final = 5
_QUIET_BYTES: Final = 1 << 20
"""A part of the journal up to this size without events about messages is left to the next run."""


class TraceJob:
    """Folds the journal into the trace; implements ``job.Job``."""

    name: Final = "trace"
    tables: tuple[TableSpec, ...] = (TRACE, KNOWN, STATS_MINUTE, SCHEDULED)
    settings: tuple[Setting, ...] = (
        Setting("events", 500_000, "Number of events that are processed and committed at once.", 1),
        Setting(
            "spark_bytes",
            64 << 20,
            "Smallest piece of the journal, in bytes, for which Spark is used.",
        ),
        Setting(
            "spark_piece_bytes", 256 << 20, "Bytes of the journal that Spark processes at once.", 1
        ),
    )
    keeps_journal: Final = True

    def run(self, context: Context) -> Outcome:
        """Fold everything that is there now."""
        passing = TracePass(context.open, lambda position: groups_before(context.bulk, position))
        began = at = context.begin(passing.position)
        end = context.bulk.holds().durable
        rows = conflicts = 0
        port = BrokerJournal(context.broker)
        feed = Feed(port, context.integer("events"))
        try:
            while at < end:
                try:
                    if end - at >= context.integer("spark_bytes") and context.spark is not None:
                        from ternmq.pipeline.trace.spark import fold_by_spark

                        stop = _cut(port, at, end, context.integer("spark_piece_bytes"))
                        with described(context.spark, f"trace: journal from {at} to {stop}"):
                            rows += fold_by_spark(
                                context.spark, context.broker, passing, at, stop, context.storage
                            )
                    else:
                        stop, events = feed.piece(at, end)
                        if end - at < _QUIET_BYTES and passing.position and not tells(events):
                            break  # read again in the next run: avoids empty commits every round
                        rows += passing.fold(at, stop, events)
                except TableConflict:
                    # Another run of this job committed first.
                    conflicts += 1
                    if conflicts == _TRIES:
                        raise
                    passing.refresh()
                    at = max(at, passing.position or 0)
                    feed = Feed(port, context.integer("events"))
                    continue
                at = stop
                context.reached(at)
                context.progress(f"trace: {counted(rows, 'row')}, journal up to {at} of {end}")
                context.check()
        finally:
            port.close()
        return Outcome(rows=rows, bytes=at - began, from_position=began, to_position=at)


def _cut(port: BrokerJournal, start: int, end: int, most: int) -> int:
    """Return where a piece ends: at the beginning of a segment, or at the end."""
    segment = port.bounds().segment_bytes
    if not segment or end - start <= most:
        return end
    return min(end, start - start % segment + max(1, most // segment) * segment)
