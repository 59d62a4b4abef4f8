"""The Spark sessions of the tests: settings, and a session with Delta's own reader."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

JAVA_OPTIONS: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Options of each Java.

They live for minutes: to compile what runs often, and to collect garbage with all cores, takes more
of the processor than it saves. Four tests took 48 s of it instead of 75 s.
"""
SETTINGS: Final = {
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.extraJavaOptions": JAVA_OPTIONS,
}
"""Settings of each session."""
DELTA_SETTINGS: Final = {
    **SETTINGS,
    "spark.driver.bindAddress": "127.0.0.1",
    # Delta collects each table's state in 50 partitions; these tables have some dozen files.
    "spark.databricks.delta.snapshotPartitions": "2",
}
"""Settings of a session with Delta's reader."""


@contextmanager
def delta_session(jars: str) -> Iterator[Any]:
    """Run a session that reads tables with Delta's own reader; a process has one session.

    Args:
        jars: Paths of Delta's jars, as ``delta_jars`` returns them.
    """
    import ternmq.spark

    session = ternmq.spark.session(
        "delta",
        master="local[2]",
        delta=True,
        settings={**DELTA_SETTINGS, "spark.jars": jars},
    )
    try:
        yield session
    finally:
        session.stop()
