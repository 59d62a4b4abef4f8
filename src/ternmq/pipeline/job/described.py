"""What a job's work in Spark is called in Spark's user interface."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_DESCRIPTION: Final = "spark.job.description"


@contextmanager
def described(spark: SparkSession, text: str) -> Iterator[None]:
    """Give the work that this thread submits within the block a description; then the one before.

    Args:
        spark: The session; not one of Spark Connect.
        text: What Spark shows for each job, such as ``archive: 12 ranges``.
    """
    context = spark.sparkContext
    before = context.getLocalProperty(_DESCRIPTION)
    context.setJobDescription(text)
    try:
        yield
    finally:
        context.setLocalProperty(_DESCRIPTION, before)  # None removes it
