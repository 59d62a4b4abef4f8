"""Rounds of jobs: each job once, in order; after a failed job the others still run.

    runner = Runner(chosen(["archive", "stats"]), Folder("tables"), broker, now_us)
    runner.open()
    for done in runner.rounds(every_s=60): ...

All state from one round to the next is in the jobs' tables: a runner that is killed at any time can
be started again, and continues.
"""

from __future__ import annotations

import itertools
import logging
import random
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from ternmq.client.bulk import Bulk
from ternmq.model.errors import DataLoss, OptionError, TableConflict, TernMQError
from ternmq.pipeline.job.job import Context, Job, Outcome, Scalar, Stopped, told
from ternmq.pipeline.running.converting import convert_tables
from ternmq.pipeline.running.owner import check_owner
from ternmq.pipeline.tables.folder import Folder
from ternmq.pipeline.tables.spec import TableSpec
from ternmq.pipeline.tables.table import Table
from ternmq.spark.broker.bulk_port import reach
from ternmq.spark.broker.connecting import SERVERS, Broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SAID: Final = re.compile(r"(?!org\.|java|Traceback)[A-Za-z_][\w.]*: .")

_ATTEMPTS: Final = 6
"""How often a job is run in a round while other runners work on the same tables."""
_PAUSE_S: Final = 0.1
"""The longest pause before the second attempt is twice this; it doubles each time."""

log: Final = logging.getLogger("ternmq.pipeline")
_chance: Final = random.SystemRandom()


@dataclass(slots=True, frozen=True)
class Ran:
    """The result of a job.

    Attributes:
        job: Its name.
        outcome: Its outcome; None: it failed.
        error: The error, in one line; empty: it did not fail.
        seconds: Duration.
    """

    job: str
    outcome: Outcome | None
    error: str = ""
    seconds: float = 0.0


@dataclass(slots=True)
class Round:
    """The result of a round.

    Attributes:
        number: From 1 on.
        began_us: The time of the round, µs since 1970: ``now`` of all its jobs.
        ran: Results of the jobs that ran.
        seconds: Duration.
        stopped: Whether a stop was requested before all had run.
    """

    number: int
    began_us: int
    ran: list[Ran] = field(default_factory=list)
    seconds: float = 0.0
    stopped: bool = False

    @property
    def failed(self) -> list[Ran]:
        """The jobs that failed."""
        return [one for one in self.ran if one.error]


class Runner:
    """Runs jobs in rounds. Not thread-safe.

    Args:
        jobs: The jobs, in the order in which they run.
        tables: The folder of all tables.
        broker: The broker and the app.
        now_us: Returns the time, µs since 1970.
        clock_us: Returns the real time, if ``now_us`` may return a later one: nothing is removed
            before it is too old by this clock.
        spark: A session, if jobs are to use one.
        storage: Options of the Delta library for an object store.
        settings: Settings of each job by name, as texts.
        lenient: Missing data is recorded and skipped.
        progress: Called with the name of a job and a line for people.
        stopping: Returns whether to stop.

    Raises:
        OptionError: A setting is unknown or not valid.
    """

    def __init__(
        self,
        jobs: Sequence[Job],
        tables: Folder,
        broker: Broker,
        now_us: Callable[[], int],
        *,
        spark: SparkSession | None = None,
        storage: Mapping[str, str] | None = None,
        settings: Mapping[str, Mapping[str, str]] | None = None,
        lenient: bool = False,
        progress: Callable[[str, str], None] = lambda _job, _line: None,
        stopping: Callable[[], bool] = lambda: False,
        clock_us: Callable[[], int] | None = None,
    ) -> None:
        self._clock_us = clock_us
        self._jobs = list(jobs)
        self._tables = tables
        self._broker = broker
        self._now_us = now_us
        self._spark = spark
        self._storage = storage
        self._lenient = lenient
        self._progress = progress
        self._stopping = stopping
        given = settings or {}
        for name in given.keys() - {job.name for job in jobs}:
            raise OptionError(f"there are settings of the job {name!r}, but this job is not run")
        self._settings: dict[str, dict[str, Scalar]] = {
            job.name: told(job, given.get(job.name, {})) for job in jobs
        }

    def open(self) -> None:
        """Check that the broker answers and all tables are ours; create those that are missing.

        Tables of an earlier version are converted. A stop that is requested meanwhile ends that;
        the next run does it.

        Raises:
            CannotConnect, Unauthenticated: From the broker.
            TableError: A folder is not ours; nothing was created.
            TableConflict: Another process changed a table while it was converted.
        """
        with reach(self._broker):
            pass
        check_tables(
            [spec for job in self._jobs for spec in job.tables], self._tables, self._storage
        )
        with suppress(Stopped):
            convert_tables(self._tables, self._storage, self._spark, self._progress, self._check)

    def _check(self) -> None:
        if self._stopping():
            raise Stopped

    def use(self, spark: SparkSession) -> None:
        """Give the jobs a session from now on."""
        self._spark = spark

    def round(self, number: int = 1) -> Round:
        """Run every job once."""
        done = Round(number, self._now_us())
        begin = time.monotonic()
        for job in self._jobs:
            if self._stopping():
                done.stopped = True
                break
            try:
                done.ran.append(self._run(job, done.began_us))
            except Stopped:
                done.stopped = True
                break
        done.seconds = round(time.monotonic() - begin, 3)
        return done

    def rounds(
        self, every_s: float, sleep: Callable[[float], object] = time.sleep
    ) -> Iterator[Round]:
        """Yield rounds until a stop is requested.

        Args:
            every_s: Time between beginnings; after a longer round, the next begins at once.
            sleep: Waits for a number of seconds, or until a stop is requested.
        """
        number = 0
        while not self._stopping():
            begin = time.monotonic()
            number += 1
            yield self.round(number)
            if not self._stopping():
                sleep(max(0.0, begin + every_s - time.monotonic()))

    def _run(self, job: Job, now_us: int) -> Ran:
        begin = time.monotonic()
        try:
            outcome = self._outcome(job, now_us)
        except Stopped:
            raise
        except TernMQError as error:
            return Ran(job.name, None, _one_line(error), _since(begin))
        except Exception as error:
            log.debug("%s failed", job.name, exc_info=True)
            return Ran(job.name, None, _one_line(error), _since(begin))
        return Ran(job.name, replace(outcome, seconds=_since(begin)), "", _since(begin))

    def _outcome(self, job: Job, now_us: int) -> Outcome:
        """Run a job; again, if another runner's commit was first and changed what it decides."""
        for attempt in itertools.count(1):
            try:
                # A connection of its own: a half-read answer does not affect the next attempt.
                with reach(self._broker) as bulk:
                    return job.run(self._context(job, bulk, now_us))
            except TableConflict as error:
                if attempt == _ATTEMPTS:
                    raise
                log.info(
                    "%s: starting again, because another runner committed first: %s",
                    job.name,
                    error,
                )
            if self._stopping():
                raise Stopped
            time.sleep(_chance.uniform(0, _PAUSE_S * 2**attempt))
        raise AssertionError

    def _context(self, job: Job, bulk: Bulk, now_us: int) -> Context:
        return Context(
            job=job.name,
            tables=self._tables,
            broker=self._broker,
            bulk=bulk,
            now_us=now_us,
            clock_us=None if self._clock_us is None else self._clock_us(),
            options=source_options(self._broker),
            spark=self._spark,
            storage=self._storage,
            settings=self._settings[job.name],
            progress=lambda line: self._progress(job.name, line),
            stopping=self._stopping,
            lenient=self._lenient,
        )


def check_tables(
    specs: Sequence[TableSpec], tables: Folder, storage: Mapping[str, str] | None = None
) -> None:
    """Open tables, and create those that are missing; none is created if one is not ours.

    Raises:
        TableError: Names the folder.
    """
    check_owner(tables)
    there = [spec for spec in specs if tables.inside(spec.name).exists()]
    for spec in [*there, *(one for one in specs if one not in there)]:
        Table.open(tables, spec, storage=storage)


def source_options(broker: Broker) -> dict[str, str]:
    """Return a broker as options of Spark's sources, without its token, which plans would show."""
    first = broker.addresses[0]
    told_ = {
        SERVERS: ",".join(f"{one.host}:{one.port}" for one in broker.addresses),
        "ternmq.app": broker.app,
        "ternmq.tokenFile": broker.token_file,
        "ternmq.tls": "true" if first.tls else "",
        "ternmq.ca": first.ca,
    }
    return {name: value for name, value in told_.items() if value}


def _since(begin: float) -> float:
    return round(time.monotonic() - begin, 3)


def _one_line(error: BaseException) -> str:
    """Return an error in one line; for an error from Spark, the line from the task."""
    if isinstance(error, DataLoss):
        # The error's own hint is an option of Spark's sources.
        return f"{error.args[0]} (--lenient records what is missing, and continues)"
    text = str(error).strip() or type(error).__name__
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if isinstance(error, TernMQError) or len(lines) == 1:
        return lines[0] if isinstance(error, TernMQError) else f"{type(error).__name__}: {lines[0]}"
    # A traceback from a Spark worker: its last lines, without those of the JVM.
    words = itertools.takewhile(lambda line: not line.startswith("at "), lines)
    said = [line for line in words if _SAID.match(line)]
    chosen = said[-1] if said else lines[0]
    ours = chosen.startswith("ternmq.model.errors.")
    return chosen.partition(": ")[2] if ours else chosen
