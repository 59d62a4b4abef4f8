"""Messages as tables, kept beyond the journal: writing them, keeping them, looking them up.

One folder (or place in an object store) holds all tables. Each is Parquet files under a Delta log.

Reading order, from the bottom up; a room imports only rooms that are named above it:

* ``tables`` (folders, tables, files), ``job`` (what every job has).
* ``archive`` (every message), ``audit`` (what was sent against what is there), ``trace`` (the
  history of each message), ``stats`` and ``deadletters`` (made of the trace).
* ``replay`` (archived messages are sent again), ``report`` (a page of HTML).
* ``running`` (runs the jobs, round by round), ``source`` (tables for Spark without a jar).

None of this needs Spark: modules named `spark`, and those that the executors run, only spread the
same functions over workers.

Invariants: a row (topic, queue, offset) is in the archive once; a file is on the disk before a
commit names it; progress is reported to the broker only after the commit; a job can be run again
for any range, hour or request, with the same result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ternmq.pipeline.tables.folder import Folder
    from ternmq.pipeline.tables.table import Table
    from ternmq.pipeline.trace.schema import TRACE

__all__ = ["TRACE", "Folder", "Table"]


def __getattr__(name: str) -> object:
    """Import what needs pyarrow at its first use."""
    if name == "Folder":
        from ternmq.pipeline.tables.folder import Folder

        return Folder
    if name == "Table":
        from ternmq.pipeline.tables.table import Table

        return Table
    if name == "TRACE":
        from ternmq.pipeline.trace.schema import TRACE

        return TRACE
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
