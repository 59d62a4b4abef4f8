"""``ternmq outbox run``: compensators for many databases in one process."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import queue
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import click

from ternmq.cli.commands import Command
from ternmq.cli.outbox.databases import (
    check_file,
    databases_option,
    failure,
    installed,
    schema_option,
)
from ternmq.cli.reach.connection import connection_options, timeout_of, where
from ternmq.cli.reach.parameters import DURATION, Whole, read_place
from ternmq.cli.terminal.exits import ExitCode, Interrupted, Terminated
from ternmq.cli.terminal.problems import text_of
from ternmq.cli.worker import logs
from ternmq.client.connection.connecting import options_of
from ternmq.http.port import Answer
from ternmq.model.errors import CannotConnect
from ternmq.model.version import __version__
from ternmq.model.words import counted

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from ternmq.model.units import Address
    from ternmq.reliable.outbox.outbox import Outbox
    from ternmq.sync.client import Client

log: Final = logging.getLogger("ternmq")

_TICK_S: Final = 0.5
"""How often it is looked whether a process became the compensator."""
_ASK_S: Final = 3.0
"""How often it is asked who the compensator is, while this process is not."""
_PROCESSING_S: Final = 600.0


@click.command(cls=Command)
@databases_option
@schema_option
@click.option(
    "--metrics",
    type=read_place("127.0.0.1"),
    metavar="[HOST:]PORT",
    help="Serve /metrics and /livez at this address. Default: nowhere; default host: 127.0.0.1.",
)
@click.option(
    "--drain-timeout",
    type=DURATION,
    metavar="DURATION",
    default="5s",
    help="How long messages under way may take after SIGTERM. Default: 5s.",
)
@click.option(
    "--attempts",
    type=Whole(min=1),
    default=5,
    help="How often the broker may refuse a row definitely before it has failed; refusals of other "
    "processes count. Default: 5.",
)
@click.option(
    "--resend-after",
    type=DURATION,
    metavar="DURATION",
    default="10s",
    help="How long a row without ordering key is left to the process that wrote it. Default: 10s.",
)
@click.option(
    "--keep-sent",
    type=DURATION,
    metavar="DURATION",
    help="How long rows are kept as sent, those of other processes, too. Default: rows are "
    "deleted.",
)
@click.option("-v", "--verbose", is_flag=True, help="Also log each step of each message.")
@click.option("-q", "--quiet", is_flag=True, help="Log only warnings and errors.")
@connection_options
def run(
    urls: Sequence[str],
    schema: str,
    metrics: Address | None,
    drain_timeout: timedelta,
    attempts: int,
    resend_after: timedelta,
    keep_sent: timedelta | None,
    verbose: bool,
    quiet: bool,
    **connection: object,
) -> int:
    """Send what waits in the outboxes of one database or more, until SIGTERM.

    Of all processes that do this for a database (applications, and this command), one is the
    compensator: it sends rows with an ordering key, and rows that other processes left. The others
    wait, and one of them takes over within seconds if it ends. Run it where applications have
    `Outbox(..., compensate=False)`, or do not run all the time.

    If the broker or a database is away, it waits until it is back. On SIGTERM, Ctrl-C or SIGHUP, it
    waits for messages under way, gives the leases back, and ends with status 0. A second signal
    ends it at once.
    """
    del connection
    context = click.get_current_context()
    place = where(context)
    options = options_of(place.url, place.app, place.token, timeout_of(context), _PROCESSING_S)
    logs.set_up(0, package="ternmq", quiet=quiet, numbered=False)
    if verbose:  # not of SQLAlchemy: its log has the bodies of messages
        log.setLevel(logging.DEBUG)
    with installed():
        from ternmq.reliable.libraries.alchemy import AlchemyDatabase
        from ternmq.reliable.outbox.outbox import Outbox
    from ternmq.sync.client import Client

    with contextlib.ExitStack() as stack:
        stop = stack.enter_context(Stop().signals())
        client = stack.enter_context(contextlib.closing(Client(options)))
        names = [AlchemyDatabase(url).name for url in urls]
        for name in names:
            if names.count(name) > 1:
                raise click.UsageError(f"{name} is named twice", context)
        outboxes = [
            Outbox(client, url, schema=schema, attempts=attempts, resend_after=resend_after,
                   keep_sent=keep_sent)
            for url in urls
        ]  # fmt: skip
        log.info("ternmq %s, outbox of %s, process %d", __version__, ", ".join(names), os.getpid())
        for one in outboxes:
            _check_database(one)
        _check_broker(client)
        if metrics is not None:
            stack.enter_context(_serving(metrics, outboxes))
        try:
            for one in outboxes:
                one.start()
            _watch([_Watched(one) for one in outboxes], stop)
        finally:
            _close(outboxes, drain_timeout.total_seconds())
    return ExitCode.DONE


def _check_database(outbox: Outbox) -> None:
    """Check that a database is prepared.

    If it cannot be reached now, it may be later; the thread that reads it logs that.

    Raises:
        DatabaseNotPrepared: It is not.
        Failed: It refuses the account.
    """
    from ternmq.reliable.database.prepare import verify
    from ternmq.reliable.libraries.alchemy import AlchemyDatabase

    database = outbox.database
    assert isinstance(database, AlchemyDatabase)
    check_file(database)
    try:
        verify(database, outbox.schema)
    except database.errors as error:
        if not database.is_away(error):
            raise failure(database, error) from error


def _check_broker(client: Client) -> None:
    """Check the address and the token; a broker that is away may come later.

    Raises:
        TernMQError: The broker refuses the app, or it is no broker.
    """
    try:
        client.connect()
    except CannotConnect as error:
        log.warning("%s; it is tried again", text_of(error))


class _Watched:
    """Logs who the compensator of a database is, when it changes."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._said = ""
        self._ask_at = 0.0

    def look(self, now: float) -> None:
        """Log what changed; ``now`` is monotonic time."""
        stats, name = self._outbox.stats(), self._outbox.database.name
        if stats.leader:
            said = f"{name}: this process is the compensator, epoch {stats.epoch}"
        elif now < self._ask_at:
            return
        else:
            self._ask_at = now + _ASK_S
            holder = self._holder()
            if not holder or stats.leader:  # nobody yet, or this process since a moment ago
                return
            said = f"{name}: the compensator is {holder}; this process waits"
        if said != self._said:
            self._said = said
            log.info("%s", said)

    def _holder(self) -> str:
        """Return the compensator; empty: nobody is, or it is not known now."""
        from ternmq.reliable.outbox import operating
        from ternmq.reliable.outbox.table import Table

        database = self._outbox.database
        try:
            with database.reading() as work:
                table = Table(database.dialect, self._outbox.schema)
                holder = operating.holder(table, work)
        except database.errors:  # the outbox has logged it
            return ""
        return holder.name if holder is not None and holder.left_ms > 0 else ""


def _watch(watched: Sequence[_Watched], stop: Stop) -> None:
    while not stop.wait(_TICK_S):
        now = time.monotonic()
        for one in watched:
            one.look(now)
    log.info("ending after what is under way; a second signal ends it at once")


def _close(outboxes: Sequence[Outbox], seconds: float) -> None:
    """Close outboxes side by side; log what they did."""
    # Daemons: a second signal ends the process, which would wait for the threads of an executor.
    threads = [threading.Thread(target=one.close, args=(seconds,), daemon=True) for one in outboxes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for one in outboxes:
        log.info("%s: ended, sent %s", one.database.name, counted(one.stats().resent, "row"))


class Stop:
    """Whether a signal asked for the end. The second one ends the process at once."""

    def __init__(self) -> None:
        self._told = False
        # What a handler wakes: unlike an event's, its lock may be held by the code it interrupts.
        self._wake: queue.SimpleQueue[None] = queue.SimpleQueue()

    def wait(self, seconds: float) -> bool:
        """Wait for a while, or until the end is asked for; return whether it is."""
        if not self._told:
            with contextlib.suppress(queue.Empty):
                self._wake.get(timeout=seconds)
        return self._told

    @contextlib.contextmanager
    def signals(self) -> Iterator[Stop]:
        """Handle SIGTERM, Ctrl-C and SIGHUP."""
        ends: dict[int, type[BaseException]] = {
            signal.SIGTERM: Terminated, signal.SIGINT: Interrupted, signal.SIGHUP: Terminated,
        }  # fmt: skip

        def end(number: int, frame: object) -> None:
            del frame
            if self._told:
                raise ends[number]
            self._told = True
            self._wake.put(None)

        before = {number: signal.signal(number, end) for number in ends}
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


@contextlib.contextmanager
def _serving(address: Address, outboxes: Sequence[Outbox]) -> Iterator[None]:
    """Serve the metrics over HTTP.

    Raises:
        Failed: It cannot listen there.
    """
    from prometheus_client import CollectorRegistry

    from ternmq.cli.worker.health import Port, beside
    from ternmq.reliable.outbox.collector import OutboxCollector

    registry = CollectorRegistry(auto_describe=False)
    registry.register(OutboxCollector(outboxes))

    async def metrics() -> Answer:
        from prometheus_client.exposition import CONTENT_TYPE_LATEST

        text = await asyncio.to_thread(_text, registry)  # it may read the databases
        return Answer([text], content_type=CONTENT_TYPE_LATEST)

    async def livez() -> Answer:
        return Answer([b"ok\n"])

    port = Port({"/metrics": metrics, "/livez": livez}, "--metrics", "metrics")
    with beside(address, port):
        yield


def _text(registry: CollectorRegistry) -> bytes:
    from prometheus_client import generate_latest

    return generate_latest(registry)
