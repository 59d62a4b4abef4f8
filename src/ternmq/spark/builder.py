"""A Spark session with settings that suit TernMQ."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from ternmq.model.errors import JavaMissing, OptionError
from ternmq.spark import java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS: Final[Mapping[str, str]] = {
    # Python workers use Unix sockets: up to 40 % more rows a second on one machine.
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # The number of state files; Spark's default of 200 is meant for a hundred machines.
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.minBatchesToRetain": "100",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.ansi.enabled": "true",
    # Partitions by date use UTC, wherever this runs.
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.parquet.compression.codec": "zstd",
    # Tracebacks with values of variables would show tokens.
    "spark.sql.execution.pyspark.udf.tracebackWithLocals.enabled": "false",
}
"""Settings of ``session``; each can be overridden."""


DELTA: Final[Mapping[str, str]] = {"4.2": "io.delta:delta-spark_4.2_2.13:4.4.0"}
"""The release of Delta for each release line of Spark for which there is one."""
_DELTA_SETTINGS: Final[Mapping[str, str]] = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}


class LazySession:
    """A session that starts at its first use, since that takes seconds and needs Java.

    Args:
        begin: Starts the session.
    """

    def __init__(self, begin: Callable[[], SparkSession]) -> None:
        self._begin = begin
        self._begun: SparkSession | None = None

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - the session's attributes
        if name.startswith("__"):
            raise AttributeError(name)
        if self._begun is None:
            self._begun = self._begin()
        return getattr(self._begun, name)

    @property
    def begun(self) -> str:
        """Spark's version if the session has started, else empty."""
        return "" if self._begun is None else str(self._begun.version)

    def stop(self) -> None:
        """Stop the session, if it has started."""
        if self._begun is not None:
            self._begun.stop()


def missing(environ: Mapping[str, str]) -> str:
    """Return what Spark lacks on this machine; empty if nothing."""
    try:
        import pyspark  # noqa: F401 - whether it is there
    except ImportError:
        return "pyspark is not installed: pip install 'ternmq[spark]'"
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
    delta: bool = False,
) -> SparkSession:
    """Return a Spark session that can read and write topics; the running one, if there is one.

    If JAVA_HOME names no suitable Java, another one is searched (see ``java``).

    Args:
        app: Its name.
        master: Where it runs; by default ``local[*]``, unless spark-submit sets it.
        settings: Settings that are added to ``SETTINGS`` and override them.
        ui: Serve Spark's web pages.
        delta: Read and write tables of Delta, such as those of the pipeline (``format("delta")``).
            A new session then gets Delta's jars from Maven Central, unless ``settings`` name them
            in ``spark.jars`` or ``spark.jars.packages``.

    Raises:
        JavaMissing: No suitable Java was found for a new session.
        OptionError: There is no Delta for this release of Spark; or the running session was
            started without it.
    """
    from pyspark.sql import SparkSession

    running = SparkSession.getActiveSession()
    if running is None:
        os.environ["JAVA_HOME"] = str(java.find(os.environ).home)
        # Workers use this Python and its packages, whatever is on the PATH.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(app)
    if master is not None:
        builder = builder.master(master)
    elif "PYSPARK_SUBMIT_ARGS" not in os.environ and "MASTER" not in os.environ:
        builder = builder.master("local[*]")
    given = settings or {}
    told = {**SETTINGS, "spark.ui.enabled": str(ui).lower()}
    if delta:
        _check_running(running)
        told |= with_delta(given)
    for name, value in {**told, **given}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def with_delta(given: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that Delta needs beside the given ones.

    Raises:
        OptionError: There is no Delta for the installed release of Spark.
    """
    found = dict(_DELTA_SETTINGS)
    if "spark.jars" not in given and "spark.jars.packages" not in given:
        found["spark.jars.packages"] = _package()
    return found


def _package() -> str:
    import pyspark

    line = ".".join(pyspark.__version__.split(".")[:2])
    if line not in DELTA:
        raise OptionError(
            f"there is no Delta for Spark {line} yet: pip install 'pyspark=={max(DELTA)}.*', or "
            'read tables without it: format("ternmq.table")'
        )
    return DELTA[line]


def _check_running(running: SparkSession | None) -> None:
    """Check that a session that runs already has Delta: jars are only loaded at its start."""
    if running is None:
        return
    name, value = next(iter(_DELTA_SETTINGS.items()))
    if value not in (running.conf.get(name, "") or ""):
        raise OptionError("a session without Delta runs already: stop it first, spark.stop()")
