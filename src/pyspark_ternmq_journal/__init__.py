"""Found by Spark, by its name: ``format("ternmq.journal")``. See ``ternmq.spark``."""

from __future__ import annotations

from ternmq.spark.journal.source import JournalSource as DefaultSource

__all__ = ["DefaultSource"]
