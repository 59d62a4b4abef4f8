"""The end of a run: makes tables of its messages, with the ordinary commands of ``ternmq``.

Spark makes them while the broker still runs: archive, trace, counts and audit. One carrier's day is
sent again from the archive, twice, to show that the second time sends nothing; then the report of
the day is made. ``tables_judge`` checks the tables afterwards.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import msgspec

import ternmq
from ternmq.demo.plan import AGAIN, CARRIER, FLIGHTS, Run
from ternmq.demo.processes import Child, Processes, ProcessFailed
from ternmq.demo.screen import Bar, Screen

FOLDER: Final = "tables"
PAGE: Final = "report.html"
JOBS: Final = ("archive", "trace", "stats", "audit", "deadletters")
ALWAYS_SPARK: Final = (
    "--set", "archive.spark_from_mb=0", "--set", "trace.spark_bytes=0",
    "--set", "audit.spark_from_mb=0",
)  # fmt: skip
"""A month of flights is 12 MB: by default the pipeline would not start Spark for so little."""
MISSING: Final = 'no tables: they need Spark, pip install "ternmq[spark]"'
_PACKAGES: Final = ("pyspark", "deltalake", "duckdb")
_TICK: Final = 0.1
_LATER: Final = timedelta(minutes=30)
"""The audit judges a window ten minutes after its end. Here all producers have ended already."""


def can_make() -> bool:
    """Return whether the packages for making tables are installed."""
    places = [Path(entry) for entry in sys.path]
    return all(any((place / name).is_dir() for place in places) for name in _PACKAGES)


def _now() -> datetime:
    return datetime.fromtimestamp(time.time(), UTC)


class Tables:
    """Makes the tables of a run.

    Args:
        run: The options of the run.
        processes: Runs the commands.
        environment: Variables with the broker's address and the app.
        screen: Where progress is written.
        show: Draws the bars, with one more.
        began: When the run began, seconds since 1970: selects the day of the report.
    """

    def __init__(
        self,
        run: Run,
        processes: Processes,
        environment: Mapping[str, str],
        screen: Screen,
        show: Callable[[Bar], None],
        began: float,
    ) -> None:
        self._run = run
        self._processes = processes
        self._environment = {**environment, "TERNMQ_TABLES": FOLDER}
        self._screen = screen
        self._show = show
        self._number = 0
        self._day = f"{datetime.fromtimestamp(began, UTC):%Y-%m-%d}"

    async def make(self, client: ternmq.Client, page: Path) -> None:
        """Make the tables, and the report.

        Raises:
            ProcessFailed: A command failed.
        """
        begun = time.monotonic()
        later = (_now() + _LATER).isoformat(timespec="seconds")
        self._screen.say("Spark starts, and makes tables of the messages")
        run = await self._do(
            "pipeline", "run", "--once", "--jobs", ",".join(JOBS), "--engine", "spark",
            "--priority", "normal",
            "--master", "local[2]", *ALWAYS_SPARK, "--now", later, "--progress", "--json",
        )  # fmt: skip
        if not run["spark"]:
            raise ProcessFailed("Spark never began")
        for job in run["jobs"]:
            self._screen.say(f"  {job['job']}: {job['rows']:,} rows in {job['elapsed_s']:.1f} s")
        self._screen.say(
            f"tables made by Spark {run['spark']} in {time.monotonic() - begun:.0f} s,"
            " its start included"
        )

        await client.admin.create_topic(AGAIN, ordered=True)
        again = [
            "pipeline", "replay", "--topic", FLIGHTS, "--where", self._run.again_where,
            "--to-topic", AGAIN, "--yes", "--json",
        ]  # fmt: skip
        first = await self._do(*again)
        second = await self._do(*again)
        self._screen.say(
            f"{CARRIER} on {self._run.again_day}, out of the archive into {AGAIN}:"
            f" {first['sent']:,} messages; second run: {second['sent']:,}"
        )
        await self._do(
            "pipeline",
            "run",
            "--once",
            "--jobs",
            "archive",
            "--engine",
            "local",
            "--priority",
            "normal",
            "--json",
        )
        await self._do("pipeline", "report", "--day", self._day, "--output", PAGE)
        shutil.copyfile(self._processes.folder / PAGE, page)

    async def _do(self, *words: str) -> dict[str, Any]:
        """Run a command of ``ternmq``; return its JSON object if it prints one."""
        self._number += 1
        name = f"tables-{self._number}"
        child = await self._processes.start(
            name, "ternmq", *words, env=self._environment, facts=False
        )
        child.expected = True
        while child.running:
            self._processes.check()
            self._show(self._bar(child))
            await asyncio.sleep(_TICK)
        await child.wait()
        await self._processes.gone(child)
        return msgspec.json.decode(child.text, type=dict[str, Any]) if "--json" in words else {}

    def _bar(self, child: Child) -> Bar:
        """Return the progress of the jobs, from the command's standard error."""
        job = child.said().rpartition("\n")[2].partition(":")[0]
        at = JOBS.index(job) if job in JOBS else len(JOBS) if self._number > 1 else 0
        return Bar("tables", at, len(JOBS), job if job in JOBS else "")
