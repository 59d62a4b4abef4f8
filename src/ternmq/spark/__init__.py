"""Topics as tables: ``format("ternmq")`` for Spark's readers and writers.

    spark = ternmq.spark.session("orders")
    spark.read.format("ternmq").option("bootstrap.servers", "localhost:7117")
         .option("subscribe", "orders").load()

Spark finds the source by the module ``pyspark_ternmq``. Decisions are made in modules that do not
import Spark, and can be tested without Java.

Reading order:

* Options: ``values``, ``option_table``, ``options``, ``connecting`` (which broker).
* Reading: ``offsets``, ``plan`` (from where to where), ``admission`` (how much of it now, in how
  many tasks), ``filters``, ``schema``, ``decode`` and ``fetch`` (records of the broker as Arrow),
  ``reading``, ``progress``.
* Writing: ``columns_written``, ``rows_taken`` (checks of messages, by whole columns), ``stage``
  (Arrow as batches of the broker), ``writing``.
* The broker: ``port``, ``bulk_port``.
* The journal as a table: ``journal_options``, ``journal_port`` with ``journal_broker`` and
  ``journal_files``, ``journal_names``, ``journal_facts``, ``journal_columns``, ``journal_events``,
  ``journal_reading``, ``journal_source``.
* Spark itself: ``source`` connects all this to Spark; ``builder`` and ``java`` start a session.

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
