"""Found by Spark, by its name: ``format("ternmq")``. See ``ternmq.spark``."""

from __future__ import annotations

from ternmq.spark.topics.source import TernMQSource as DefaultSource

__all__ = ["DefaultSource"]
