"""``ternmq pipeline run``: runs the jobs, once or repeatedly."""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import click

from ternmq.cli.commands import Command
from ternmq.cli.pipeline import priority
from ternmq.cli.pipeline.parts import (
    broker_of,
    check_engine,
    engine_options,
    folder_of,
    installed,
    required_tables,
    session,
)
from ternmq.cli.pipeline.priority import Priority
from ternmq.cli.reach.connection import connection_options, where
from ternmq.cli.reach.parameters import POSITIVE_DURATION, PROPERTY, WHEN, check_one
from ternmq.cli.terminal import output
from ternmq.cli.terminal.exits import Failed, Interrupted, Terminated
from ternmq.client.connection.connecting import TOKEN
from ternmq.client.forms import values
from ternmq.model.printing import printable
from ternmq.model.words import counted

if TYPE_CHECKING:
    from ternmq.pipeline.running.health import HealthPort, Numbers
    from ternmq.pipeline.running.runner import Ran, Round, Runner
    from ternmq.spark.builder import LazySession

_LOCAL: Final = "127.0.0.1"


@click.command(cls=Command)
@click.option(
    "--jobs", default="all", metavar="NAMES", help="Jobs to run, separated by commas. Default: all."
)
@required_tables
@click.option("--once", is_flag=True, help="Run each job once, for the data that is there now.")
@click.option(
    "--every",
    type=POSITIVE_DURATION,
    metavar="DURATION",
    help="Run the jobs at this interval, until SIGTERM.",
)
@engine_options
@click.option(
    "--set",
    "told",
    type=PROPERTY,
    multiple=True,
    metavar="JOB.NAME=VALUE",
    help="Setting of a job; docs/operate/pipeline.md lists the settings. May be repeated.",
)
@click.option(
    "--token-file",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    default="",
    help="File with the app's token; every Spark worker must be able to read it.",
)
@click.option(
    "--lenient",
    is_flag=True,
    help="If the broker deleted data before a job read it, record the gap and continue. "
    "Default: the job fails.",
)
@click.option(
    "--health-port",
    metavar="[HOST:]PORT",
    help="Serve /livez, /readyz and /metrics of the jobs at this address. Default: nowhere; "
    f"default host: {_LOCAL}.",
)
@click.option(
    "--priority",
    "wanted",
    type=click.Choice([one.value for one in Priority]),
    default=Priority.IDLE.value,
    show_default=True,
    help="CPU priority against other processes, such as a broker; idle: only unused CPU time.",
)
@click.option(
    "--now",
    type=WHEN,
    metavar="TIME",
    help="Time that the jobs use as the current time, with --once. Default: the clock.",
)
@click.option(
    "--progress/--no-progress",
    default=None,
    help="Show the progress of the jobs on standard error. Default: only in a terminal.",
)
@output.ndjson_option
@connection_options
def run(
    jobs: str,
    tables: str | None,
    once: bool,
    every: timedelta | None,
    engine: str | None,
    master: str | None,
    confs: Sequence[tuple[str, str]],
    told: Sequence[tuple[str, str]],
    token_file: str,
    lenient: bool,
    health_port: str | None,
    wanted: str,
    now: datetime | None,
    progress: bool | None,
    as_json: bool,
    **connection: object,
) -> None:
    """Run the jobs that make tables of messages.

    The jobs run in this order: archive, trace, stats, audit, deadletters, compaction. If a job
    fails, the others still run, and the next round tries it again. On SIGTERM, the command ends
    after the current commit.
    """
    del connection
    context = click.get_current_context()
    check_one(once, every is not None, of="--once and --every")
    if now is not None and not once:
        raise click.UsageError("--now is for --once", context)
    check_engine(engine, master, confs)
    with installed():
        from ternmq.pipeline.running import jobs as known
        from ternmq.pipeline.running.health import HealthPort, Numbers
        from ternmq.pipeline.running.owner import check_owner
        from ternmq.pipeline.running.runner import Runner
        from ternmq.pipeline.tables.lock import only_one
    _be_quiet()
    names = known.names() if jobs == "all" else [one.strip() for one in jobs.split(",")]
    place = _place(health_port, context)
    folder = folder_of(tables)
    broker = broker_of(where(context), token_file)
    every_s = every.total_seconds() if every is not None else 0.0
    priority.take(Priority(wanted))  # Spark's processes inherit it
    shown = sys.stderr.isatty() if progress is None else progress
    stop = Stop()
    runner = Runner(
        known.chosen(names),
        folder,
        broker,
        _clock_us if now is None else lambda: round(now.timestamp() * 1e6),
        clock_us=_clock_us,
        settings=_of_jobs(told, context),
        lenient=lenient,
        progress=_progress if shown else lambda _job, _line: None,
        stopping=stop.told,
    )
    check_owner(folder)
    with only_one(folder), contextlib.ExitStack() as stack:
        stack.enter_context(_token_for_workers(broker.secret()))
        spark = session(engine, master, dict(confs))
        if spark is not None:
            stack.callback(spark.stop)
            runner.use(spark)
        stack.enter_context(stop.signals())
        numbers = Numbers(every_s)
        if place is not None:
            port = _listen(place, numbers, HealthPort)
            stack.callback(port.close)
            output.note(f"health is served on port {port.port}")
        runner.open()
        _rounds(runner, numbers, stop, spark, once=once, every_s=every_s, as_json=as_json)


@contextlib.contextmanager
def _token_for_workers(token: str) -> Iterator[None]:
    """Put the token into the environment for workers: options would show it in Spark's plans.

    An inherited token of another broker is always replaced; without a token, it is empty.
    """
    before = os.environ.get(TOKEN)
    os.environ[TOKEN] = token
    try:
        yield
    finally:
        if before is None:
            del os.environ[TOKEN]
        else:
            os.environ[TOKEN] = before


def _rounds(
    runner: Runner,
    numbers: Numbers,
    stop: Stop,
    spark: LazySession | None,
    *,
    once: bool,
    every_s: float,
    as_json: bool,
) -> None:
    """Run rounds, and report each.

    Raises:
        Failed: With ``once``, a job failed.
        Terminated: With ``once``, a stop was requested before all jobs had run.
    """
    for done in [runner.round()] if once else runner.rounds(every_s, stop.wait):
        numbers.add(done, time.time())
        tell(done, as_json=as_json, spark=spark.begun if spark is not None else "")
        if not once:
            continue
        if done.failed:
            raise Failed(
                f"{len(done.failed)} of {len(done.ran)} jobs failed: "
                + ", ".join(one.job for one in done.failed)
            )
        if done.stopped:
            raise Terminated


class Stop:
    """Whether a stop was requested. The second signal ends the process at once."""

    def __init__(self) -> None:
        self._told = False
        # What a handler wakes: unlike an event's, its lock may be held by the code it interrupts.
        self._wake: queue.SimpleQueue[None] = queue.SimpleQueue()

    def told(self) -> bool:
        """Return whether a stop was requested."""
        return self._told

    def wait(self, seconds: float) -> None:
        """Wait for a number of seconds, or until a stop is requested."""
        if not self._told:
            with contextlib.suppress(queue.Empty):
                self._wake.get(timeout=seconds)

    @contextlib.contextmanager
    def signals(self) -> Iterator[None]:
        """Handle SIGTERM and Ctrl-C."""
        ends: dict[int, type[BaseException]] = {
            signal.SIGTERM: Terminated,
            signal.SIGINT: Interrupted,
        }

        def end(number: int, frame: object) -> None:
            del frame
            if self._told:
                raise ends[number]
            self._told = True
            self._wake.put(None)
            with contextlib.suppress(RuntimeError):  # it interrupts what writes a line there
                output.note("ending after the current commit; a second signal ends it at once")

        before = {number: signal.signal(number, end) for number in ends}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _place(told: str | None, context: click.Context) -> tuple[str, int] | None:
    """Parse host and port of ``--health-port``."""
    if told is None:
        return None
    host, _, port = told.rpartition(":")
    if not port.isdecimal() or int(port) > 65_535:
        raise click.UsageError(f"--health-port {told!r} is not PORT or HOST:PORT", context)
    return host.strip("[]") or _LOCAL, int(port)


def _listen(place: tuple[str, int], numbers: Numbers, made: type[HealthPort]) -> HealthPort:
    host, port = place
    try:
        return made(numbers, host, port)
    except OSError as error:
        raise Failed(f"--health-port {host}:{port}: {error.strerror or error}") from error


def _of_jobs(told: Sequence[tuple[str, str]], context: click.Context) -> dict[str, dict[str, str]]:
    """Group settings by job."""
    found: dict[str, dict[str, str]] = {}
    for name, value in told:
        job, dot, setting = name.partition(".")
        if not dot:
            raise click.UsageError(f"--set {name!r} is not JOB.NAME=VALUE", context)
        found.setdefault(job, {})[setting] = value
    return found


def tell(done: Round, *, as_json: bool, spark: str = "") -> None:
    """Report a round: one line on standard output, failures and findings on standard error.

    Args:
        done: The round.
        as_json: Print an object instead of text.
        spark: Spark's version, if it has started.
    """
    for one in done.ran:
        if one.error:
            output.note(f"{one.job} failed: {printable(one.error)}")
        for line in one.outcome.findings if one.outcome else ():
            output.note(f"{one.job}: {printable(line)}")
    began = values.of_us(done.began_us)
    if as_json:
        output.json_line(
            {
                "round": done.number,
                "began_at": began,
                "elapsed_s": done.seconds,
                "stopped": done.stopped,
                "spark": spark or None,
                "jobs": [_plain(one) for one in done.ran],
            }
        )
        return
    said = "; ".join(_said(one) for one in done.ran) or "nothing"
    output.line(f"{values.iso(began)}  round {done.number}  {output.span(done.seconds)}  {said}")
    sys.stdout.flush()


def _said(one: Ran) -> str:
    if one.outcome is None:
        return f"{one.job} failed"
    size = f" {output.size(one.outcome.bytes)}" if one.outcome.bytes else ""
    return f"{one.job} {counted(one.outcome.rows, 'row')}{size} in {output.span(one.seconds)}"


def _plain(one: Ran) -> dict[str, Any]:
    told: dict[str, Any] = {"job": one.job, "elapsed_s": one.seconds}
    if one.outcome is None:
        return {**told, "error": one.error}
    outcome = one.outcome
    told |= {"rows": outcome.rows, "size_bytes": outcome.bytes}
    if outcome.to_position is not None:
        told |= {"from_position": outcome.from_position, "to_position": outcome.to_position}
    if outcome.behind_rows is not None:
        told["behind_rows"] = outcome.behind_rows
    return {**told, "findings": list(outcome.findings)}


def _clock_us() -> int:
    return time.time_ns() // 1000


def _progress(job: str, line: str) -> None:
    output.note(f"{job}: {line}")


def _be_quiet() -> None:
    """Silence the library's log: the line of the round reports errors, once."""
    log = logging.getLogger("ternmq")
    if not log.handlers:
        log.addHandler(logging.NullHandler())
        log.propagate = False
