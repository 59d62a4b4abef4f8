"""A Spark session with what suits TernMQ."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from ternmq.model.errors import JavaMissing
from ternmq.spark import java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS: Final[Mapping[str, str]] = {
    # Rows from and to Python go over Unix sockets: up to 40 % more of them, on one machine.
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # State is divided in as many files as this; 200, Spark's own, is meant for a hundred machines.
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.minBatchesToRetain": "100",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.ansi.enabled": "true",
    # Partitions by date are those of UTC, wherever this runs.
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.parquet.compression.codec": "zstd",
    # Tracebacks with the values of variables would show tokens.
    "spark.sql.execution.pyspark.udf.tracebackWithLocals.enabled": "false",
}
"""What ``session`` sets; anything may be overridden."""


class LazySession:
    """Stands for a session that begins when something of it is used: it takes seconds, and a Java.

    Args:
        begin: Makes the session.
    """

    def __init__(self, begin: Callable[[], SparkSession]) -> None:
        self._begin = begin
        self._begun: SparkSession | None = None

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - what the session has
        if name.startswith("__"):
            raise AttributeError(name)
        if self._begun is None:
            self._begun = self._begin()
        return getattr(self._begun, name)

    @property
    def begun(self) -> str:
        """Spark's version, if the session has begun; else empty."""
        return "" if self._begun is None else str(self._begun.version)

    def stop(self) -> None:
        """End the session, if it has begun."""
        if self._begun is not None:
            self._begun.stop()


def missing(environ: Mapping[str, str]) -> str:
    """Return what Spark lacks on this machine; empty: nothing."""
    try:
        import pyspark  # noqa: F401 - whether it is there
    except ImportError:
        return "pyspark is not installed"
    try:
        java.find(environ)
    except JavaMissing as error:
        return str(error)
    return ""


def session(
    app: str = "ternmq",
    *,
    master: str | None = None,
    settings: Mapping[str, str] | None = None,
    ui: bool = False,
) -> SparkSession:
    """Return a Spark session that can read and write topics; the one that runs, if one does.

    A Java is looked for (see ``java``) if JAVA_HOME names none that will do.

    Args:
        app: Its name.
        master: Where it runs; by default ``local[*]``, unless spark-submit said otherwise.
        settings: Added to those of ``SETTINGS``, and stronger.
        ui: Serve Spark's pages.

    Raises:
        JavaMissing: There is no Java, and no cluster was named.
    """
    from pyspark.sql import SparkSession

    running = SparkSession.getActiveSession()
    if running is None:
        os.environ["JAVA_HOME"] = str(java.find(os.environ).home)
        # Workers are this Python, with its packages, whatever the PATH says.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(app)
    if master is not None:
        builder = builder.master(master)
    elif "PYSPARK_SUBMIT_ARGS" not in os.environ and "MASTER" not in os.environ:
        builder = builder.master("local[*]")
    told = {**SETTINGS, "spark.ui.enabled": str(ui).lower(), **(settings or {})}
    for name, value in told.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()
