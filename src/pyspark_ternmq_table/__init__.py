"""Found by Spark, by its name: ``format("ternmq.table")``. See ``ternmq.pipeline.source``."""

from __future__ import annotations

from ternmq.pipeline.source.spark import TableSource as DefaultSource

__all__ = ["DefaultSource"]
