"""Topics as tables: ``format("ternmq")`` for Spark's readers and writers.

    spark = ternmq.spark.session("orders")
    spark.read.format("ternmq").option("bootstrap.servers", "localhost:7117")
         .option("subscribe", "orders").load()

Spark finds the source by the module ``pyspark_ternmq``. What is decided is decided by modules that
know no Spark, and can be tried without a Java.

Reading order:

* What is asked: ``values``, ``option_table``, ``options``, ``connecting`` (which broker).
* Reading: ``offsets``, ``plan`` (from where to where), ``admission`` (how much of it now, in how
  many tasks), ``filters``, ``schema``, ``decode`` and ``fetch`` (records of the broker as Arrow),
  ``reading``, ``progress``.
* Writing: ``columns_written``, ``rows_taken`` (what a message may be, by whole columns), ``stage``
  (Arrow as batches of the broker), ``writing``.
* The broker: ``port``, ``bulk_port``.
* The journal as a table: ``journal_options``, ``journal_port`` with ``journal_broker`` and
  ``journal_files``, ``journal_names``, ``journal_facts``, ``journal_columns``, ``journal_events``,
  ``journal_reading``, ``journal_source``.
* Spark itself: ``source`` hands all this to it; ``builder`` and ``java`` start one.

Invariants: a range of offsets that Spark has written down is read as it is, whatever happened
since; a task yields exactly its range, or fails; what a batch of a stream writes becomes visible
once, whole, when Spark says commit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ternmq.spark.builder import session

__all__ = ["session"]


def __getattr__(name: str) -> object:
    """Import what needs pyspark when it is asked for."""
    if name == "session":
        from ternmq.spark.builder import session

        globals()[name] = session
        return session
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
