"""The broker as a process, or as a part of one: everything put together, started and stopped.

``Server`` is the composition root: the only place that knows all parts. ``serve`` runs one until it
is told to stop, with signals and exit codes; the command line and the testing kit use these two.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import logging
import os
import signal
import ssl
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from ternmq import __version__
from ternmq.access import ADMIN, Authoriser, admin_app, matches, new_token
from ternmq.broker.queries import Queries
from ternmq.journal.disk import Disk
from ternmq.journal.real_disk import RealDisk
from ternmq.model.errors import JournalError
from ternmq.model.secret import Secret
from ternmq.server.bulk_commands import BulkCommands
from ternmq.server.client_commands import ClientCommands
from ternmq.server.connection import Connection
from ternmq.server.core import Clocks, Core, SystemClocks
from ternmq.server.counters import Counters
from ternmq.server.dispatch import Dispatcher
from ternmq.server.health import Health
from ternmq.server.hub import Handler, Hub
from ternmq.server.lookup_commands import LookupCommands
from ternmq.server.messages import MessageCommands
from ternmq.server.metrics import BrokerCollector
from ternmq.server.peer import Peer
from ternmq.server.rates import Rates
from ternmq.server.replay_commands import ReplayCommands
from ternmq.server.sessions import Place, Sessions
from ternmq.server.topic_commands import TopicCommands
from ternmq.server.transaction_commands import TransactionCommands
from ternmq.settings import Settings
from ternmq.wire import bodies, control, frames
from ternmq.wire.commands import Command
from ternmq.wire.session import Request

log = logging.getLogger("ternmq.server")

EXIT_OK: Final = 0
EXIT_FAILED: Final = 1
"""The journal failed, or could not be opened."""

_SWEEP_S: Final = 1.0
_LAST_ANSWERS_S: Final = 5.0
"""Longest that a stop waits for its last answers; who gets none asks the next broker again."""


class Server:
    """A broker that listens. All methods are called in its loop.

    Args:
        settings: Checked.
        disk: The data root; None opens ``settings.data``.
        clocks: For tests; None: the machine's.
    """

    def __init__(
        self, settings: Settings, *, disk: Disk | None = None, clocks: Clocks | None = None
    ) -> None:
        self.settings = settings
        self.stopped: asyncio.Future[JournalError | None]
        """Done when the broker cannot go on: with the error."""
        self.host = ""
        self.port = 0
        self.http_port = 0
        self.core: Core
        self.hub: Hub
        self._disk = disk
        self._clocks = clocks
        self._listener: asyncio.Server | None = None
        self._health: Health | None = None
        self._collector: BrokerCollector
        self._rates: Rates
        self._sweeper: asyncio.TimerHandle | None = None
        self._swept_at = 0.0
        self._messages: MessageCommands
        self._ready = False

    async def start(self) -> None:
        """Recover the journal, then listen. Blocks the loop while it recovers.

        Raises:
            AlreadyRunning: Another process owns the data folder.
            CorruptJournal, UnknownRecordKind, DiskError: As ``open_broker``.
            OSError: The address cannot be had.
        """
        settings = self.settings
        loop = asyncio.get_running_loop()
        self.stopped = loop.create_future()
        disk = self._disk if self._disk is not None else RealDisk(settings.data)
        disk.lock()
        try:
            self.core = Core(disk, settings.options(), self._clocks or SystemClocks(loop), loop)
        except BaseException:
            disk.close()
            raise
        core = self.core
        core.on_failure = self._failed
        report = core.started.report
        log.info(
            "journal open: epoch %d, %s, positions %d to %d",
            report.epoch, "new" if report.fresh else "clean" if report.clean else "after a crash",
            core.broker.journal.first, report.valid_end,
        )  # fmt: skip
        if report.cut is not None:
            log.warning("cut %d to %d off the journal's end: %s", *report.cut, report.fault)
        self._wire_up()
        if settings.auth:
            self._see_to_admin()
        tls = _tls(settings)
        self._listener = await loop.create_server(
            lambda: Connection(self.hub),
            settings.listen.host,
            settings.listen.port,
            ssl=tls,
            backlog=512,
        )
        self.host = settings.listen.host
        self.port = int(self._listener.sockets[0].getsockname()[1])
        if settings.http is not None:
            self._health = Health(self._collector, self._why_not)
            self.http_port = await self._health.start(settings.http.host, settings.http.port)
            log.info("metrics and health on http://%s:%d", settings.http.host, self.http_port)
        self._swept_at = loop.time()
        self._sweep()
        core.touch()
        gc.collect()
        gc.freeze()
        self._ready = True

    def _wire_up(self) -> None:
        core, settings = self.core, self.settings
        counters = Counters()
        self.hub = Hub(core, settings, counters)
        authoriser = Authoriser(core.broker.views.catalog.apps, required=settings.auth)
        queries = Queries(core.broker)
        sessions = Sessions(core)
        self._collector = BrokerCollector(core, counters, queries)
        self._rates = Rates(counters)
        self._messages = MessageCommands(self.hub, authoriser, queries)

        def bye(peer: Peer, request: Request) -> None:
            """BYE: close the session; what it holds goes to others, uncounted."""
            bodies.unpack_nothing(request.body)
            self._messages.end_all(peer)
            reply = core.broker.clients.leave(core.now_us(), peer.session)
            sessions.left(peer.session)
            peer.answer(request, b"", reply.position)

        handlers: dict[Command, Handler] = {
            **self._messages.handlers,
            **TopicCommands(self.hub, authoriser, queries).handlers,
            **LookupCommands(self.hub, authoriser, queries).handlers,
            **BulkCommands(self.hub, authoriser, queries).handlers,
            **ReplayCommands(self.hub, authoriser, queries).handlers,
            **ClientCommands(self.hub, authoriser, queries, self._status).handlers,
            **TransactionCommands(self.hub, authoriser, queries).handlers,
            Command.BYE: bye,
        }
        self.hub.commands = Dispatcher(
            self.hub,
            sessions,
            authoriser,
            handlers,
            self._welcome,
            self._messages.withdraw,
            self._messages.gone,
        )

    def _welcome(self, place: Place) -> control.Welcome:
        core, settings = self.core, self.settings
        limits = core.broker.limits
        return control.Welcome(
            version=frames.VERSION,
            broker=settings.name,
            session=place.session,
            resumed=place.resumed,
            epoch=core.broker.journal.epoch,
            now_us=core.now_us(),
            heartbeat_us=settings.heartbeat_us,
            frame_bytes=settings.frame_bytes,
            body_bytes=settings.body_bytes,
            pull_messages=limits.pull_messages,
            pull_bytes=limits.pull_bytes,
            send_timeout_us=limits.send_timeout_us,
            create_topics=settings.create_topics,
        )

    def _status(self, shows: Callable[[Mapping[str, str]], bool]) -> control.Status:
        core = self.core
        numbers = self._collector.flat(shows)
        journal = core.broker.journal
        return control.Status(
            broker=self.settings.name,
            version=__version__,
            role="primary",
            epoch=journal.epoch,
            now_us=core.now_us(),
            uptime_us=int(numbers["ternmq_uptime_seconds"] * 1e6),
            disk_free_bytes=core.disk.free_bytes(),
            disk_total_bytes=core.disk.total_bytes(),
            journal_first=journal.first,
            journal_end=journal.end,
            journal_durable=journal.durable,
            sent_a_second=self._rates.sent,
            delivered_a_second=self._rates.delivered,
            metrics=numbers,
        )

    def _see_to_admin(self) -> None:
        """See that somebody can make apps: the settings' token opens ``admin``, at every start.

        Without one in the settings a token is made with the first start, and told in a file.
        """
        core = self.core
        apps = core.broker.views.catalog.apps
        token = self.settings.admin_token
        known = apps.get(ADMIN)
        if token is None and apps:
            return
        if token is not None and known is not None and matches(known, token.reveal()):
            return
        if token is None:
            token = new_token()
            path = Path(self.settings.data) / "admin.token"
            _write_private(path, token)
            log.warning("made the app 'admin'; its token is in %s", path)
        core.broker.administration.put_app(core.now_us(), admin_app(token, core.now_us()))
        core.touch()

    # -- while it runs ----------------------------------------------------------------------------

    def _sweep(self) -> None:
        loop = self.core.loop
        now = loop.time()
        late = now - self._swept_at
        self._collector.loop_lag_s = max(self._collector.loop_lag_s, late)
        self.hub.sweep(now)
        self._rates.look(now)
        self._swept_at = now + _SWEEP_S
        self._sweeper = loop.call_at(self._swept_at, self._sweep)

    def _failed(self, error: JournalError) -> None:
        self._ready = False
        for peer in list(self.hub.peers):
            peer.abandon("the journal failed")
        if not self.stopped.done():
            self.stopped.set_result(error)

    def _why_not(self) -> str:
        if self.core.failure is not None:
            return "the journal has failed"
        if self.hub.draining:
            return "stopping"
        return "" if self._ready else "starting"

    # -- the end ----------------------------------------------------------------------------------

    async def close(self) -> None:
        """Stop cleanly: no new work, answers out, then STATE and MARK.

        Clients are told first and have ``drain_timeout`` to finish and settle. Then nothing more
        is carried out, whatever they send: it has no answer, and the next broker gets it again.

        Raises:
            JournalError: It could not be made clean; the next start recovers.
        """
        core, hub = self.core, self.hub
        loop = core.loop
        hub.draining = True
        self._ready = False
        if self._listener is not None:
            self._listener.close()
        if core.failure is None:
            await self._drain(loop)
            for peer in list(hub.peers):
                self._messages.end_all(peer)
            hub.stop()
            await core.settle_down(_LAST_ANSWERS_S)
        for peer in list(hub.peers):
            peer.finish()
        if self._sweeper is not None:
            self._sweeper.cancel()
        if self._health is not None:
            await self._health.close()
        # Written answers have left when the transports are closed; a frozen peer does not hold us.
        until = loop.time() + 1.0
        while hub.peers and loop.time() < until:
            await asyncio.sleep(0.005)
        for peer in list(hub.peers):
            peer.abandon("the broker stops")
        await asyncio.sleep(0)
        core.close(clean=core.failure is None)
        gc.unfreeze()

    async def abandon(self) -> None:
        """Stop as a kill would: nothing is finished, the next start recovers. For tests."""
        self.hub.draining = True
        if self._listener is not None:
            self._listener.close()
        if self._sweeper is not None:
            self._sweeper.cancel()
        if self._health is not None:
            await self._health.close()
        for peer in list(self.hub.peers):
            peer.abandon("the broker is killed")
        await asyncio.sleep(0)
        self.core.close(clean=False)

    async def _drain(self, loop: asyncio.AbstractEventLoop) -> None:
        """Ask the clients to finish, and wait until they have, or the time is over."""
        push = control.encode(control.Drain())
        for peer in list(self.hub.peers):
            if peer.session:
                peer.push(Command.DRAIN, push)
            else:
                peer.finish()
            self._messages.end_all(peer)
        self.core.touch()
        until = loop.time() + self.settings.drain_timeout_us / 1e6
        while loop.time() < until and self.hub.peers and self.core.failure is None:
            if not self.leased_rows():
                break
            await asyncio.sleep(0.01)

    def leased_rows(self) -> int:
        """Return how many rows are in consumers' hands."""
        return sum([held.leased_rows for held in self.core.broker.views.held.values()])


def _tls(settings: Settings) -> ssl.SSLContext | None:
    if settings.tls_cert is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(settings.tls_cert, settings.tls_key)
    return context


def _write_private(path: Path, token: Secret) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(token.reveal() + "\n")


def _complain(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log what went wrong in the loop; one line when descriptors ran out for a moment.

    A traceback cannot even be made then: to read its lines takes a descriptor.
    """
    error = context.get("exception")
    if isinstance(error, OSError) and error.errno in {errno.EMFILE, errno.ENFILE}:
        log.error("a connection cannot be accepted now: %s", error.strerror)
    else:
        loop.default_exception_handler(context)


async def run(settings: Settings, *, announce: bool = True) -> int:
    """Run a broker until SIGTERM or SIGINT; return the exit status."""
    server = Server(settings)
    await server.start()
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(_complain)
    told = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told.set)
    if announce:
        print(f"listening on {server.host}:{server.port}", flush=True)
    waiting = asyncio.ensure_future(told.wait())
    ends: set[asyncio.Future[Any]] = {waiting, server.stopped}
    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if server.stopped.done():
        with contextlib.suppress(JournalError):
            await server.close()
        return EXIT_FAILED
    log.info("stopping")
    await server.close()
    return EXIT_OK


def serve(settings: Settings) -> int:
    """Run a broker in this process until it is told to stop; return the exit status."""
    try:
        if sys.platform != "win32":
            with contextlib.suppress(ImportError):
                import uvloop

                with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                    return runner.run(run(settings))
        return asyncio.run(run(settings))
    except JournalError as error:
        print(f"ternmq: {error}", file=sys.stderr)
        return EXIT_FAILED
    except OSError as error:
        print(f"ternmq: {_why_not_up(settings, error)}", file=sys.stderr)
        return EXIT_FAILED


def _why_not_up(settings: Settings, error: OSError) -> str:
    """Say what a person can do about an address, or a file, that cannot be had."""
    if error.errno == errno.EADDRINUSE:
        ports = f"{settings.listen.host}:{settings.listen.port}"
        if settings.http is not None:
            ports += f" or {settings.http.host}:{settings.http.port}"
        return f"{ports} is in use; is another broker running? --listen and --http name others"
    if error.errno in {errno.EACCES, errno.EPERM, errno.EROFS} and error.filename:
        return (
            f"{error.filename}: {error.strerror}; the data folder must belong to the user that "
            f"runs the broker, who has the number {os.geteuid()}"
        )
    return str(error)
