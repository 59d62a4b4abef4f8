"""Topics as tables: ``format("ternmq")`` for Spark's readers and writers.

    spark = ternmq.spark.session("orders")
    spark.read.format("ternmq").option("bootstrap.servers", "localhost:7117")
         .option("subscribe", "orders").load()

Spark finds the source by the module ``pyspark_ternmq``. Decisions are made in modules that do not
import Spark, and can be tested without Java.

Reading order, from the bottom up; a room imports only rooms that are named above it:

* ``broker`` (what tasks ask a broker), ``schema``.
* ``topics`` (topics as tables), ``journal`` (the journal as a table).
* ``java`` and ``builder`` start a session.

Invariants: a range of offsets that Spark has stored is read as it is, whatever happened since; a
task yields exactly its range, or fails; the rows of a stream's batch become visible once, all
together, when Spark commits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ternmq.spark.builder import session

__all__ = ["session"]


def __getattr__(name: str) -> object:
    """Import what needs pyspark at its first use."""
    if name == "session":
        from ternmq.spark.builder import session

        globals()[name] = session
        return session
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
