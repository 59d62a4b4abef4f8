"""The broker as a process, or inside one: builds all parts, starts and stops them.

``Server`` is the composition root: the only place that knows all parts. ``serve`` runs one until a
signal stops it, and returns an exit status. The command line and the testing kit use these two.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import ssl
import sys
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

from ternmq.access import admin_app
from ternmq.broker.group.lease import EPOCH_LIMIT
from ternmq.broker.query.messages import Queries
from ternmq.broker.start import Options, Ready
from ternmq.broker.upkeep.pinned import pinned
from ternmq.journal.disk.port import Disk
from ternmq.journal.disk.real import RealDisk
from ternmq.model.errors import JournalError
from ternmq.model.secret import Secret
from ternmq.model.types import SECOND_US, Epoch
from ternmq.model.units import Address, write_duration
from ternmq.model.version import __version__
from ternmq.model.words import counted
from ternmq.server.commands.commands import open_commands
from ternmq.server.desk.desk import Desk
from ternmq.server.desk.routing import Routing
from ternmq.server.engine.clocks import Clocks, SystemClocks
from ternmq.server.engine.engine import Core
from ternmq.server.metrics.health import Health
from ternmq.server.metrics.metrics import BrokerCollector, Shows
from ternmq.server.native.connection import Connection
from ternmq.server.native.hub import Hub
from ternmq.server.process import listening, making, signals
from ternmq.server.process.admin_token import AdminToken
from ternmq.server.process.alarm_log import AlarmLog
from ternmq.server.process.clock_watch import ClockWatch
from ternmq.server.process.doorway import ACCEPTING_TURNS, Accepting
from ternmq.server.process.fullness import Fullness
from ternmq.server.process.own_process import own_process
from ternmq.server.process.surely import surely
from ternmq.server.process.tls import tls_context
from ternmq.server.scrub.caretaker import Caretaker
from ternmq.server.scrub.donors import Donor
from ternmq.server.telemetry.counters import Counters
from ternmq.server.telemetry.families import Numbers
from ternmq.server.telemetry.rates import Rates
from ternmq.settings import Settings
from ternmq.wire import control, frames
from ternmq.wire.port import Joined

log = logging.getLogger("ternmq.server")

EXIT_OK: Final = 0
EXIT_FAILED: Final = 1
"""The journal failed, or could not be opened."""

_EVERY_INTERFACE: Final = ("", "0.0.0.0", "::")  # noqa: S104 - compared with, not listened on
_SWEEP_S: Final = 1.0
_LATE_S: Final = 1.0
_IDLE_TURN_S: Final = 3600.0
"""Longest time without a turn: an idle broker states its time in the journal once a day."""
_LAST_ANSWERS_S: Final = 5.0
"""Longest that a stop waits for the last answers; clients send unanswered requests again to the
next broker."""


class Reigning(Protocol):
    """What the broker of a broker group adds, for the time that it leads.

    Attributes:
        epoch: The epoch that it was given.
        begins_us: Broker time to begin with, in the place of the wall clock; None: the wall clock.
    """

    epoch: Epoch
    begins_us: int | None

    def begun(self, core: Core, hub: Hub) -> None:
        """Take over the commit mark; the EPOCH record was just written."""
        ...

    async def committed(self) -> None:
        """Return when the EPOCH record is committed: only then may clients be served."""
        ...

    async def accept(
        self, factory: Callable[[], asyncio.BaseProtocol], tls: ssl.SSLContext | None
    ) -> Accepting:
        """Accept connections at the address of the broker."""
        ...


class GroupView(Protocol):
    """What the broker of a broker group shows of its group. Called in the broker's loop."""

    def numbers(self) -> Iterable[Numbers]:
        """Return the metrics of the group."""
        ...

    def info(self) -> control.BrokerGroupInfo:
        """Return the status of the group."""
        ...

    @property
    def journal(self) -> int:
        """Number of the group's journal."""
        ...

    def routes(self) -> control.Routes | None:
        """Return the routes; None: nothing is known yet."""
        ...

    def donors(self) -> Sequence[Donor]:
        """Return the other brokers that may have bytes that are damaged here."""
        ...

    def answers(self, health: Health | None) -> int:
        """Have a broker that leads answer at the node's HTTP port; return that port.

        None: it answers no more.
        """
        ...


class Server:
    """A broker that listens. Not thread-safe: call it from its loop.

    Args:
        settings: Checked settings.
        disk: The data root; None opens ``settings.data``.
        clocks: For tests; None: the machine's.
        new_admin_token: Give the app ``admin`` another token at the start.
        reigning: None: the broker is alone.
        view: What it shows of its broker group; None: the broker is alone.
        ready: The views of the copy on the disk, whose lock is held then; None: the journal is
            recovered.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        disk: Disk | None = None,
        clocks: Clocks | None = None,
        new_admin_token: bool = False,
        reigning: Reigning | None = None,
        view: GroupView | None = None,
        ready: Ready | None = None,
    ) -> None:
        self.settings = settings
        self.stopped: asyncio.Future[JournalError | None]
        """Gets the error when the broker cannot go on."""
        self.host = ""
        self.port = 0
        self.http_port = 0
        self.core: Core
        self.hub: Hub
        self.desk: Desk
        self._routing: Routing
        self._disk = disk
        self._clocks = clocks
        self._new_admin_token = new_admin_token
        self._reigning = reigning
        self._view = view
        self._taken = ready
        self._listener: asyncio.Server | Accepting | None = None
        self._health: Health | None = None
        self._collector: BrokerCollector
        self._rates: Rates
        self.each_second: list[Callable[[], None]] = []
        """Functions that are called after each sweep."""
        self.caretaker: Caretaker
        self._sweeper: asyncio.TimerHandle | None = None
        self._swept_at = self._touch_at = 0.0
        self._ready = False

    async def start(self) -> None:
        """Recover the journal, then listen.

        A broker that is alone blocks the loop while it recovers. The loop of a broker of a group
        goes on: others must see meanwhile that it is there.

        Raises:
            SettingsError: The file of the certificate or of its key cannot be used, the data folder
                is a file, or the disk has no room for the reserve; no file of the journal was made.
            AlreadyRunning: Another process owns the data folder.
            CorruptJournal, UnknownRecordKind, DiskError: As ``open_broker``.
            OSError: The broker cannot listen at the address.
        """
        settings = self.settings
        tls = tls_context(settings)  # before anything is made on the disk
        loop = asyncio.get_running_loop()
        self.stopped = loop.create_future()
        clocks = self._clocks or SystemClocks(loop)
        core = self.core = await self._open_core(loop, clocks)
        core.on_failure = self._failed
        core.broker.clients.renew_graces(core.now_us())  # the recovery may have taken long
        core.broker.checking.asking.begin_grace(core.now_us())
        report = core.started.report
        log.info(
            "journal open: epoch %d, %s, positions %d to %d",
            report.epoch, "new" if report.fresh else "clean" if report.clean else "after a crash",
            core.broker.journal.first, report.valid_end,
        )  # fmt: skip
        if report.cut is not None:
            log.warning("cut %d to %d off the journal's end: %s", *report.cut, report.fault)
        donors = None if self._view is None else self._view.donors
        self.caretaker = Caretaker(core, settings, clocks.wall_us, donors)
        self._clock_watch = ClockWatch(core)
        self._clock_watch.started(report, settings.start_jump_us)
        making.warn_of_reserve(core.broker.journal.reserve_lacks_bytes)
        making.warn_of_watermark(core.disk, settings.retention_watermark)
        self._wire_up()
        task = asyncio.current_task()
        if task is not None and task.cancelling():  # while a thread recovered the journal
            raise asyncio.CancelledError
        if self._reigning is not None:
            self.desk.not_yet = f"{settings.name} begins to lead"
            self._reigning.begun(core, self.hub)
            await self._listen(tls)  # copies that count may have to come before anything is settled
            await self._commit(self._reigning)
        if settings.auth:
            await self._see_to_admin()
        elif core.broker.views.catalog.apps:
            log.warning(
                "this folder has %s with a token, but `ternmq dev` requires no token: "
                "every process of this machine can read and change the data in %s",
                counted(len(core.broker.views.catalog.apps), "app"), settings.data,
            )  # fmt: skip
        if self._reigning is None:
            await self._listen(tls)
        if settings.http is not None:
            self._health = Health(
                core,
                self._collector,
                Queries(core.broker.ledger),
                settings.metrics_groups,
                self._url(settings.http.host),
                self._why_not,
            )
            if self._view is None:
                self.http_port = await self._health.start(settings.http.host, settings.http.port)
            else:
                self.http_port = self._view.answers(self._health)
            self.hub.http_address = str(Address(settings.http.host, self.http_port))
            log.info("metrics and health on http://%s", self.hub.http_address)
        self._swept_at = loop.time()
        self._sweep()
        core.touch()
        self.desk.not_yet = ""
        self.caretaker.begin()
        self._ready = True

    async def _open_core(self, loop: asyncio.AbstractEventLoop, clocks: Clocks) -> Core:
        """Recover the journal; raises as ``start``."""
        settings = self.settings
        if self._disk is None:
            making.check_folder(settings.data)
        disk = self._disk if self._disk is not None else RealDisk(settings.data)
        if self._taken is None:
            disk.lock()
        try:
            options = self._options(clocks)
            making.check_reserve(disk, options)
            with making.said(disk, options):
                recover = partial(Core, disk, options, clocks, loop, ready=self._taken)
                if self._reigning is None:
                    core = recover()
                else:
                    core = await surely(loop.run_in_executor(None, recover))
            self._taken = None
        except BaseException:
            disk.close()
            raise
        return core

    async def _commit(self, reigning: Reigning) -> None:
        """Return when the EPOCH record of a reign is committed.

        Raises:
            JournalError: The journal failed before.
        """
        committed = asyncio.ensure_future(reigning.committed())
        try:
            ends: set[asyncio.Future[Any]] = {committed, self.stopped}
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            committed.cancel()
        if self.core.failure is not None:
            raise self.core.failure

    async def _listen(self, tls: ssl.SSLContext | None) -> None:
        listen = self.settings.listen
        if self._reigning is not None:
            self._listener = await self._reigning.accept(lambda: Connection(self.hub), tls)
        else:
            self._listener = await self.core.loop.create_server(
                lambda: Connection(self.hub), listen.host, listen.port, ssl=tls, backlog=512
            )
        self.host = listen.host
        self.port = int(self._listener.sockets[0].getsockname()[1])

    def _url(self, local: str) -> str:
        """Return the URL for clients; its host is ``local`` if the broker listens everywhere."""
        listen = self.settings.listen
        scheme = "ternmqs" if self.settings.tls_cert else "ternmq"
        host = local if listen.host in _EVERY_INTERFACE else listen.host
        return f"{scheme}://{Address(host, self.port)}"

    def _options(self, clocks: Clocks) -> Options:
        """Return the options of the core.

        A broker that forgets has a new journal at each start, so its epochs would always be the
        same. Instead its epoch is the time in tenths of a second, modulo the room of a lease id (19
        days): clients notice that it is another broker, and leases of the one before are not taken
        for leases of this one.
        """
        options = self.settings.options()
        if self._reigning is not None:
            reigning = self._reigning
            options = replace(options, min_epoch=reigning.epoch, begins_us=reigning.begins_us)
        if self.settings.forgets:
            tenths = clocks.wall_us() // (SECOND_US // 10)
            options = replace(options, min_epoch=Epoch(tenths % (EPOCH_LIMIT - 1) + 1))
        return options

    def _wire_up(self) -> None:
        core, settings = self.core, self.settings
        counters = Counters()
        desk = self.desk = Desk(core, settings, counters)
        self._routing = Routing(desk, self._routes)
        open_commands(
            desk,
            auth=settings.auth,
            welcome=self._welcome,
            status=self._status,
            routing=self._routing,
        )
        self.hub = Hub(desk)
        view = self._view
        if view is not None:
            self.hub.take_segment_read = self.caretaker.give(lambda: view.journal).take
        self._collector = BrokerCollector(
            desk, self.hub.admission.apps, settings.metrics_groups, self._more_numbers
        )
        self._rates = Rates(counters)
        self._alarm_log = AlarmLog()
        self._fullness = Fullness(
            core.broker, core.upkeep.moving, core.disk, settings.retention_watermark
        )

    def _more_numbers(self) -> Iterator[Numbers]:
        yield from self.caretaker.numbers()
        if self._view is not None:
            yield from self._view.numbers()

    def _welcome(self, joined: Joined) -> control.Welcome:
        core, settings = self.core, self.settings
        limits = core.broker.limits
        return control.Welcome(
            version=frames.VERSION,
            broker=settings.name,
            session=joined.session,
            resumed=joined.resumed,
            epoch=core.broker.journal.epoch,
            now_us=core.now_us(),
            heartbeat_us=settings.heartbeat_us,
            frame_bytes=settings.frame_bytes,
            body_bytes=settings.body_bytes,
            pull_messages=limits.pull_messages,
            pull_bytes=limits.pull_bytes,
            send_timeout_us=limits.send_timeout_us,
            create_topics=settings.create_topics,
            forgets=settings.forgets,
            pull_at_once=True,
            pull_detached=True,
            journal_anywhere=True,
            software=f"ternmq {__version__}",
            routes=self._view is not None,
            journal=0 if self._view is None else self._view.journal,
        )

    def _routes(self) -> control.Routes:
        """Return the routes: of a broker without a broker group, itself."""
        settings = self.settings
        if self._view is not None and (routes := self._view.routes()) is not None:
            return routes
        everywhere = settings.listen.is_everywhere
        broker = control.BrokerRoute(
            name=settings.name,
            addresses=[] if everywhere else [str(Address(settings.listen.host, self.port))],
            role="primary",
            tls=settings.tls_cert is not None,
        )
        route = control.BrokerGroupRoute(
            name=settings.broker_group, primary=settings.name, brokers=[broker]
        )
        return control.Routes(group=settings.broker_group, groups=[route])

    def _status(self, shows: Shows, series: dict[str, float]) -> control.Status:
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
            disk_total_bytes=core.disk.size_bytes(),
            journal_first=journal.first,
            journal_end=journal.end,
            journal_durable=journal.committed,  # a backup ends here: no copy may take it back
            sent_a_second=self._rates.sent,
            delivered_a_second=self._rates.delivered,
            metrics=numbers | series,
            oldest_file=self._oldest_file(shows),
            scrub=self.caretaker.info(),
            broker_group=control.BrokerGroupInfo() if self._view is None else self._view.info(),
        )

    def _oldest_file(self, shows: Shows) -> control.OldestFile:
        broker = self.core.broker
        found = pinned(broker.ledger, self.core.upkeep.moving)
        seen = bool(found.topic) and shows({"topic": found.topic})
        grouped = bool(found.group) and shows({"topic": found.topic, "group": found.group})
        return control.OldestFile(
            kept_by=found.by.value,
            since_us=found.since_us,
            topic=found.topic if seen else "",
            group=found.group if grouped else "",
            name=found.name if shows({"name": found.name}) else "",
            lacks_room=found.lacks_room,
            sends_refused=broker.ledger.room.refuses,
        )

    async def _see_to_admin(self) -> None:
        """Make sure that the app ``admin`` can be used; changes are durable at return."""
        core, settings = self.core, self.settings

        def put(token: Secret) -> None:
            core.broker.administration.put_app(core.now_us(), admin_app(token, core.now_us()))
            core.touch()

        changed = AdminToken(Path(settings.data)).see_to(
            core.broker.views.catalog.apps,
            given=settings.admin_token,
            anew=self._new_admin_token,
            put=put,
        )
        if changed:
            await core.settle_down()
            if core.failure is not None:
                raise core.failure

    # -- while it runs ----------------------------------------------------------------------------

    def _sweep(self) -> None:
        loop = self.core.loop
        now = loop.time()
        late = now - self._swept_at
        self._collector.loop_lag_s = max(self._collector.loop_lag_s, late)
        if late < _LATE_S:
            self.hub.sweep(now)
        # else the loop was blocked: the peers' bytes are read first, then their limits checked
        self._rates.look(now)
        self._clock_watch.look(now)
        self._alarm_log.look(self.core.broker.alarms.open)
        self._fullness.look(now)
        self._routing.look()
        self.caretaker.look(self.core.now_us())
        if self.core.upkeep.watches or now >= self._touch_at:
            self._touch_at = now + _IDLE_TURN_S
            self.core.touch()
        for call in self.each_second:
            call()
        self._swept_at = now + _SWEEP_S
        self._sweeper = loop.call_at(self._swept_at, self._sweep)

    def _failed(self, error: JournalError) -> None:
        self._ready = False
        for door in self.desk.doors:
            door.abandon("the journal failed")
        if not self.stopped.done():
            self.stopped.set_result(error)

    def _why_not(self) -> str:
        if self.core.failure is not None:
            return "the journal has failed"
        if self.desk.draining:
            return "stopping"
        return "" if self._ready else "starting"

    # -- the end ----------------------------------------------------------------------------------

    async def close(self, *, patient: bool = True) -> None:
        """Stop cleanly: take no new work, write the answers, then STATE and MARK.

        Clients are notified first and have ``drain_timeout`` to finish and settle. Requests that
        arrive later are neither run nor answered: clients send them again to the next broker.

        Args:
            patient: False: another broker of the group takes over at once, with all sessions and
                leases. Clients are not notified, and go on there.

        Raises:
            JournalError: The clean stop failed; the next start recovers.
        """
        core, desk = self.core, self.desk
        loop = core.loop
        desk.draining = True
        self._ready = False
        await self._stop_listening()
        if core.failure is None:
            core.broker.leases.keep_all()
            if patient:
                await self._drain(loop)
            for caller in list(desk.callers):
                desk.commands.end_all(caller)
            for door in desk.doors:
                door.stop()
            await core.settle_down(_LAST_ANSWERS_S)
        for door in desk.doors:
            door.finish()
        await self.caretaker.end()
        if self._sweeper is not None:
            self._sweeper.cancel()
        await self._close_health()
        # Written answers have left when the transports are closed; a frozen peer delays the stop by
        # a second at most.
        until = loop.time() + 1.0
        while not desk.deserted and loop.time() < until:
            await asyncio.sleep(0.005)
        await self._abandon_connections("the broker stops")
        core.close(clean=core.failure is None)

    async def abandon(self) -> None:
        """Stop like a kill: nothing is finished, the next start recovers. For tests."""
        self.desk.draining = True
        await self._stop_listening()
        await self.caretaker.end()
        if self._sweeper is not None:
            self._sweeper.cancel()
        await self._close_health()
        await self._abandon_connections("the broker is killed")
        self.core.close(clean=False)

    async def _close_health(self) -> None:
        if self._view is not None:
            self._view.answers(None)
        if self._health is not None:
            await self._health.close()

    async def _stop_listening(self) -> None:
        """Stop accepting connections, and close the listening socket.

        Closing the listener would make asyncio lose sockets that it has accepted but not made
        connections of yet: this waits for those first.
        """
        if self._listener is None:
            return
        for one in self._listener.sockets:
            self.core.loop.remove_reader(one.fileno())
        for _ in range(ACCEPTING_TURNS):
            await asyncio.sleep(0)
        self._listener.close()

    async def _abandon_connections(self, why: str) -> None:
        """Abort the remaining connections, and give the loop the turns that this takes."""
        for door in self.desk.doors:
            door.abandon(why)
        for _ in range(ACCEPTING_TURNS):
            await asyncio.sleep(0)

    async def _drain(self, loop: asyncio.AbstractEventLoop) -> None:
        """Notify the clients, and wait until they hold no rows or ``drain_timeout`` is over.

        Rows of a client without a connection do not count: it can no longer connect and settle.
        """
        core, desk = self.core, self.desk
        for door in desk.doors:
            door.drain()
        for caller in list(desk.callers):
            desk.commands.end_all(caller)
        core.touch()
        rows = sum([self._rows_of(session) for session in self._holding()])
        if rows:
            most = write_duration(self.settings.drain_timeout_us)
            log.info("waiting up to %s for %s that consumers hold", most, counted(rows, "message"))
        until = loop.time() + self.settings.drain_timeout_us / 1e6
        while loop.time() < until and not desk.deserted and core.failure is None:
            if not self._holding():
                break
            await asyncio.sleep(0.01)

    def _holding(self) -> set[int]:
        """Return the connected sessions that hold rows."""
        by_session = self.core.broker.views.figures.by_session
        return {caller.session for caller in self.desk.callers if caller.session in by_session}

    def _rows_of(self, session: int) -> int:
        """Return the number of rows that a session holds; looks at each lease of its queues."""
        return sum(
            stop - start
            for queue in self.core.broker.views.figures.leased_to(session)
            for lease in queue.leases.values()
            if lease.session == session
            for start, stop, _, _ in lease.runs
        )

    def leased_rows(self) -> int:
        """Return the number of rows that consumers hold."""
        figures = self.core.broker.views.figures
        figures.settle()
        return figures.leased


async def run(settings: Settings, *, announce: bool = True, new_admin_token: bool = False) -> int:
    """Run a broker until SIGTERM or SIGINT; return the exit status."""
    server = Server(settings, new_admin_token=new_admin_token)
    loop = asyncio.get_running_loop()
    early = signals.note()
    await server.start()
    core = server.core
    server.each_second.append(own_process(lambda: core.asked).look)
    told = asyncio.Event()
    signals.heed(loop, told.set, early)
    if announce and not told.is_set():
        print(f"listening on {Address(server.host, server.port)}", flush=True)
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
    log.info("stopped")
    return EXIT_OK


def serve(settings: Settings, *, new_admin_token: bool = False) -> int:
    """Run a broker in this process until a signal stops it; return the exit status.

    Args:
        settings: Settings of the broker.
        new_admin_token: Give the app ``admin`` another token, written to its file, at the start.

    Raises:
        SettingsError: As ``Server.start``.
    """
    return run_in_loop(settings, run(settings, new_admin_token=new_admin_token))


def run_in_loop(settings: Settings, running: Coroutine[Any, Any, int]) -> int:
    """Run a broker in a loop of its own; return its exit status, and print why it could not run."""
    try:
        if sys.platform != "win32":
            with contextlib.suppress(ImportError):
                import uvloop

                with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                    return runner.run(running)
        return asyncio.run(running)
    except JournalError as error:
        print(f"ternmq: {error}", file=sys.stderr)
        return EXIT_FAILED
    except OSError as error:
        print(f"ternmq: {_why_not_up(settings, error)}", file=sys.stderr)
        return EXIT_FAILED


def check_files(settings: Settings) -> None:
    """Read the files that the settings name, as a start does before it writes anything.

    Raises:
        SettingsError: One of them cannot be used.
    """
    tls_context(settings)


def why_not_here(settings: Settings) -> str | None:
    """Return why this broker cannot listen at its address, for the user; None if it can."""
    return listening.why_not(settings)


def _why_not_up(settings: Settings, error: OSError) -> str:
    """Return what the user can do about an address or a file that cannot be used."""
    if error.errno == errno.EADDRINUSE:
        said = why_not_here(settings)  # again, since the error does not name the address
        return said or f"an address was in use just now ({error}); --listen and --http name others"
    if error.errno in {errno.EACCES, errno.EPERM, errno.EROFS} and error.filename:
        return (
            f"{error.filename}: {error.strerror}; the data folder must belong to the user that "
            f"runs the broker, who has the number {os.geteuid()}"
        )
    return str(error)
