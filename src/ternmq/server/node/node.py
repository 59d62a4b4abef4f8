"""A broker of a broker group: it leads, or follows who leads, until it is stopped.

    start --> read the leadership record
                | it names this broker           | it names another
                v                                v
              stand: epoch + 1 -- refused --> follow <-------------------+
                |                                | no promise holds, and |
                v                                v it is a member        |
              lead ----- deposed --> follow    stand -- refused ---------+

A primary is made only by a change of the record, and only a member, whose copy has all that was
answered, may ask for that change; another broker only if an operator accepts the loss
(``candidate``). The rules are in ``ternmq.cluster.replication``; here is what waits: for the
coordinator, for a primary, for a signal.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from ternmq.broker.start import Ready
from ternmq.cluster.coordination.group import Group, Presence
from ternmq.cluster.coordination.loss import loss_of
from ternmq.cluster.coordination.opening import open_coordinator
from ternmq.cluster.coordination.port import Coordinator, Unknown
from ternmq.cluster.coordination.record import Leadership, Member, Reach, Writes
from ternmq.cluster.coordination.wishes import Change, Failover
from ternmq.cluster.replication.settings import CopySettings
from ternmq.cluster.replication.standing import Loyalty, MayNotStand
from ternmq.journal.disk.port import Disk
from ternmq.model.errors import Busy, JournalError, SettingsError
from ternmq.model.types import Epoch, Position
from ternmq.model.units import Address, write_duration
from ternmq.model.version import __version__
from ternmq.server.app import EXIT_FAILED, EXIT_OK, Server, run_in_loop
from ternmq.server.engine.clocks import Clocks
from ternmq.server.node.applying import Successor
from ternmq.server.node.candidate import AGAIN_S, Candidate
from ternmq.server.node.folder import Folder
from ternmq.server.node.follower import Replica
from ternmq.server.node.outlook import Outlook
from ternmq.server.node.reigning import Reigning
from ternmq.server.node.showing import Showing
from ternmq.server.node.sight import PROBE_S, Sight, listens
from ternmq.server.node.visitors import Porch
from ternmq.server.process import signals
from ternmq.server.process.doorway import Doorway
from ternmq.server.process.surely import surely
from ternmq.server.process.tls import tls_context
from ternmq.server.scrub.giving import Giver
from ternmq.server.scrub.scrubber import scrub_ended
from ternmq.settings import Settings
from ternmq.settings.settings import Follower
from ternmq.wire.session import ServerSession

log = logging.getLogger("ternmq.cluster")

_LISTEN_S: Final = 0.05
"""Pause before a coordinator that has no connection yet is asked again."""


def boot_us() -> int:
    """Return µs of a clock that nobody sets, and that goes on while the machine sleeps."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000


class Node:
    """A broker of a broker group, in this process. Loop only.

    Args:
        settings: Of the broker; ``cluster`` is set.
        new_admin_token: As for ``Server``, the first time that this broker leads.
        coordinator: The store; None: the one that the settings name.
        disk: The data root; None: the folder of the settings. For tests, as the next two.
        clocks: Of the broker that leads; None: the machine's.
        now_us: The clock of promises and silence: nobody sets it, and it goes on while the machine
            sleeps.

    Attributes:
        port: Port at which it listens; 0 before ``start``.
        incarnation: Number of this process.
        server: The broker while it leads and serves, else None.
        reigning: The reign of this process; None: it has none.
        sight: What is known from the coordinator.
        candidate: This process as one that would lead.
        copying: How followers are judged, by the settings of the broker group.
        stopping: Set it to stop.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        new_admin_token: bool = False,
        coordinator: Coordinator | None = None,
        disk: Disk | None = None,
        clocks: Clocks | None = None,
        now_us: Callable[[], int] = boot_us,
    ) -> None:
        self.settings = settings
        self.copying = CopySettings()
        self.incarnation = secrets.randbits(63) | 1
        self.port = 0
        self.server: Server | None = None
        self.reigning: Reigning | None = None
        self.stopping = asyncio.Event()
        self._new_admin_token = new_admin_token
        self._coordinator = coordinator
        self._disk = disk
        self._clocks = clocks
        self._now_us = now_us
        self._killed = False
        self._folder = Folder(Path(settings.data), settings.broker_group, settings.name, disk)
        self._loyalty = Loyalty(self.copying, Epoch(0), self._now_us())
        self._doorway: Doorway | None = None
        self.outlook = Outlook(settings, self.me, self._now_us)
        self._showing = Showing(settings, clocks, self.outlook.routes, self._who_leads)
        self._porch = Porch(
            self._who_leads,
            self.outlook.routes,
            self._lend,
            self.outlook.http_address,
            self._showing.take,
        )
        self.sight = Sight(settings.name, self.outlook, self._now_us, self._learned)
        self.candidate = Candidate(
            settings,
            self.me,
            self.sight,
            self._folder,
            self._loyalty,
            self._now_us,
            change=self._change,
            pause=self._pause,
        )
        self._committed = Position(0)
        """How far the reigns of this process were committed."""
        self._begins_us: int | None = None
        """Broker time with which a reign begins, as the primary before it had it."""
        self._had_a_copy = False
        """This process has opened a copy, so it may have been a member."""
        self._replica: Replica | None = None
        """The copy while this broker follows."""
        self._giver: Giver | None = None
        """What answers other brokers that ask for records, while this one follows."""
        self._shown: Reach | None = None
        """How far the copy reaches, as it was announced last."""
        self._successor: Successor | None = None
        """What a reign takes over from the follower that this process was; None: nothing."""
        self._led = Epoch(0)
        """Epoch of this process's newest reign."""
        self._watching: asyncio.Task[None] | None = None

    @property
    def me(self) -> Member:
        """This process, as a member; every process of the broker if its disk is what counts."""
        synced = self.settings.follower is Follower.SYNCED
        return Member(self.settings.name, 0 if synced else self.incarnation)

    @property
    def address(self) -> Address:
        """Where clients and other brokers reach this one."""
        settings = self.settings
        return settings.advertise or Address(settings.listen.host, self.port)

    # -- start and end ----------------------------------------------------------------------------

    async def start(self) -> None:
        """Listen, and show the others that this broker is there.

        Raises:
            SettingsError: The settings cannot be used, or the folder is another broker's.
            OSError: The broker cannot listen at the address.
        """
        settings = self.settings
        assert settings.cluster is not None
        self._folder.check()
        if self._coordinator is None:
            self._coordinator = await open_coordinator(settings.cluster.reveal())
        group = self.sight.group = Group(
            self._coordinator, settings.broker_group, settings.name, self.incarnation
        )
        self._doorway = Doorway(settings.listen.host, settings.listen.port)
        self.port = self._doorway.port
        await self._open_porch()
        await self._look_for_another()
        scheme = "ternmq" if settings.tls_cert is None else "ternmqs"
        await self.outlook.open(f"{scheme}://{Address(settings.listen.host, self.port)}")
        group.watch(self.sight.hint.set)
        await self._announce()
        self._watching = asyncio.create_task(self.sight.watch(self._show_reach))

    async def _announce(self, reach: Reach | None = None) -> None:
        await self.sight.group.announce(
            str(self.address),
            tls=self.settings.tls_cert is not None,
            software=f"ternmq {__version__}",
            reach=reach,
        )

    async def _look_for_another(self) -> None:
        """Check that no other process runs under this name, as far as can be seen.

        Raises:
            SettingsError: One does.
        """
        present: Mapping[str, Presence] = {}
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PROBE_S):
                while isinstance(found := await self.sight.group.present(), Unknown):  # noqa: ASYNC110
                    await asyncio.sleep(_LISTEN_S)  # perhaps it has no connection yet
                present = found
        there = present.get(self.settings.name)
        if there is None or there.address == str(self.address):
            return  # or it is this broker's former life, which had the port before
        if not await listens(there):
            return  # it is gone, and the coordinator has not noticed yet
        raise SettingsError(self._two_of_a_name(f"one runs at {there.address}"))

    def _check_to_be_the_only_one(self, record: Leadership) -> None:
        """Check that it was this process, or a former life of it, that made it the primary.

        Raises:
            SettingsError: A second process of this name leads since this one did.
        """
        writer = record.writer
        mine = (writer.broker, writer.incarnation) == (self.settings.name, self.incarnation)
        again = writer.broker == self.settings.name and not mine
        if again and self._led and record.epoch > self._led:
            raise SettingsError(self._two_of_a_name("another one has begun to lead"))

    def _two_of_a_name(self, what: str) -> str:
        group, name = self.settings.broker_group, self.settings.name
        return (
            f"two brokers of broker group {group!r} have the name {name!r}: {what}. Each has a "
            "name and a folder of its own, and a folder that was copied is nobody's"
        )

    async def run(self) -> int:
        """Lead or follow until ``stopping`` is set; return the exit status.

        Raises:
            SettingsError, JournalError, OSError: This broker cannot go on.
        """
        try:
            while not self.stopping.is_set():
                record = await self._newest() or self._last_known
                if record is None:
                    continue
                if record.primary == self.settings.name:
                    self._check_to_be_the_only_one(record)
                    holding = await asyncio.to_thread(self._folder.holding, record.floor)
                    leads = await self.candidate.stand("it starts again", holding)
                else:
                    leads = await self._follow(record)
                if leads is None:
                    self._forget_successor()
                else:
                    status = await self._lead(leads)
                    if status is not None:
                        return status
        finally:
            self._forget_successor()
            await self._close()
        return EXIT_OK

    def _forget_successor(self) -> None:
        """Give up what was taken over from the follower, if a reign has not taken it."""
        successor, self._successor = self._successor, None
        if successor is not None:
            successor.close()

    def _take_over(self) -> tuple[Disk | None, Ready | None]:
        """Return the disk for a reign, and the views if they need not be recovered; blocks."""
        successor = self._successor
        if successor is None:
            return self._disk, None
        began_s = time.monotonic()
        try:
            ready = successor.ready()
        except JournalError as error:
            log.warning("the views of the copy cannot be used, the journal is recovered: %s", error)
            self._forget_successor()
            return self._disk, None
        self._successor = None
        log.info("the rest of the copy is applied in %.2f s", time.monotonic() - began_s)
        return successor.disk, ready

    def kill(self) -> None:
        """Have ``run`` end like a process that is killed: nobody is notified. For tests."""
        self._killed = True
        self.stopping.set()

    async def _close(self) -> None:
        await self._porch.close()
        await self.outlook.close()
        if self._doorway is not None:
            self._doorway.close()
        if self._watching is not None:
            self._watching.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._watching
        if self._coordinator is not None:
            await self._coordinator.close()

    async def _open_porch(self) -> None:
        settings = self.settings
        assert self._doorway is not None
        await self._porch.open(self._doorway, tls_context(settings))

    def _lend(self, transport: asyncio.Transport, session: ServerSession, address: str) -> None:
        """Answer a SEGMENT_READ of another broker of the group, while this one does not lead."""
        if self._giver is not None:
            self._giver.take(transport, session, address)
            return
        transport.write(session.refuse(Busy(f"{self.settings.name} has no journal open now")))
        transport.close()

    def _who_leads(self) -> str:
        """Return why this broker refuses a client."""
        record, name = self.sight.record, self.settings.name
        if record is None:
            return f"{name} does not know yet who leads the broker group"
        if record.primary == name:
            return f"{name} begins to lead broker group {self.settings.broker_group}"
        there = self.sight.present.get(record.primary)
        where = f" at {there.address}" if there is not None else ", which is not there"
        return f"{name} does not lead; the primary is {record.primary}{where}"

    # -- the record -------------------------------------------------------------------------------

    async def _show_reach(self) -> None:
        """Show how far the copy reaches, while it follows nobody: an operator may have to know."""
        replica = self._replica
        if replica is None or replica.copy is None or replica.figures().connected:
            return
        reach = replica.reach
        if reach is not None and reach != self._shown:
            self._shown = reach
            await self._announce(reach)

    def _learned(self, record: Leadership) -> None:
        """Take note of the record, and of the settings of the broker group, as they were read."""
        settings = self.sight.settings
        copying = CopySettings(lease_us=settings.lease_us, silent_us=settings.silent_us)
        if copying != self.copying:
            self.copying = copying
            self._loyalty.heed(copying)
            lease, silent = write_duration(copying.lease_us), write_duration(copying.silent_us)
            log.info("lease %s, silent %s: settings of the broker group", lease, silent)
        self._loyalty.learns(record.epoch, self._now_us())
        if self.reigning is not None:
            self.reigning.learned(record)
            self.reigning.heed(settings, self.copying)

    async def _newest(self) -> Leadership | None:
        """Return the record as it is now; None if it is not known, after a pause.

        If there is none, the broker group begins with this broker.
        """
        record = await self.sight.look()
        if record is not None:
            self._folder.enter(record)
            return record
        if not self.sight.away and self.settings.follower is not Follower.BACKUP:
            await self._begin_group()  # the coordinator answered: there is no record
            return None
        await self._pause(AGAIN_S)
        return None

    @property
    def _last_known(self) -> Leadership | None:
        """The record by which to follow while the coordinator does not answer; None: it does."""
        record = self.sight.record
        if not self.sight.away or record is None or record.primary == self.settings.name:
            return None
        return record

    async def _begin_group(self) -> None:
        """Create the record, with this broker as the primary. If another was faster, it leads."""
        record = Leadership(
            version=1,
            writer=self.sight.group.writer(),
            journal=secrets.randbits(63) | 1,
            epoch=await asyncio.to_thread(self._folder.epoch_to_begin_with),
            primary=self.settings.name,
            members=(self.me,),
            floor=await asyncio.to_thread(self._folder.floor_to_begin_with),
            why="the first broker of the group",
            at_us=time.time_ns() // 1000,
        )
        await self._change(record)

    async def _change(self, record: Leadership) -> bool:
        """Change the record; return whether it was done. Waits until the outcome is known.

        Whoever calls it neither answers nor acknowledges anything meanwhile.
        """
        while not self.stopping.is_set():
            done = await self.sight.change(record)
            if done is not None:
                return done
            await self._pause(AGAIN_S)
        return False

    # -- following --------------------------------------------------------------------------------

    async def _follow(self, record: Leadership) -> Leadership | None:
        """Copy from the primary; return the record by which this broker leads, or None."""
        replica = Replica(
            self.settings,
            self.incarnation,
            self._loyalty,
            self._now_us,
            self._folder.make_partial,
            donors=self.outlook.donors,
            steady_us=None if self._clocks is None else self._clocks.monotonic_us,
            disk=self._disk,
            shown=self._showing,
        )
        await replica.open(record.journal, self._committed, self._may_mend)
        self._had_a_copy = True
        # Whoever leads now may just have begun: it has a lease's time to be heard of.
        self._loyalty.waits(self._now_us())
        self._replica = replica
        self._giver = Giver(
            self.settings,
            replica.disk,
            journal=lambda: replica.journal,
            extent=replica.extent,
            suspect=replica.scrubber.suspect,
        )
        scrubbing = asyncio.create_task(replica.scrubber.work())
        scrubbing.add_done_callback(scrub_ended)
        self.outlook.follows(replica)
        self._showing.follows(replica)
        why = said = ""
        try:
            while not self.stopping.is_set():
                record = self.sight.record or record
                if record.journal != replica.journal:  # restored meanwhile: ``enter`` refuses
                    return None
                if record.primary == self.settings.name:  # it was handed over
                    break
                why = await self._copy(replica, record) or why
                if why != said:
                    log.info("%s", why)
                said = why
                if self.candidate.may_stand() or self.candidate.may_be_forced(replica):
                    break
                await self._pause(AGAIN_S)
            else:
                return None
            await replica.stop()  # everything is on the disk, and nothing is acknowledged any more
            self._successor = replica.hand_over()
            newest = await self.sight.look()
            holding = None if newest is None else replica.holding(newest.floor)
        finally:
            self._begins_us = replica.broker_time_us
            if replica.gave_up:  # the copy itself remembers what is left
                self._committed = Position(0)
            self._replica = None
            self.outlook.follows(None)
            self._showing.follows(None)
            scrubbing.cancel()
            giver, self._giver = self._giver, None
            if giver is not None:
                await giver.close()
            replica.close()
        if newest is None or newest.journal != replica.journal:
            return None
        if self.candidate.accepted is not None and self.me not in newest.members:
            return await self.candidate.force(holding)
        why = why or f"no word from {newest.primary}"
        log.warning("%s: %s stands for primary", why, self.settings.name)
        reads = self.sight.settings.failover is Failover.READS and not self.sight.ordered(
            Change.PROMOTE
        )
        return await self.candidate.stand(why, holding, Writes.CLOSED if reads else None)

    async def _may_mend(self) -> bool:
        """Return whether a damaged copy may be cut before the damage, and be copied again.

        Only while a primary is there, which has the bytes, and before this process can be a member:
        a member that had confirmed them would be without them. The next process mends it then.
        """
        record = self.sight.record
        there = None if record is None else self.sight.present.get(record.primary)
        fresh = not (self._had_a_copy or self._led)
        return fresh and there is not None and await listens(there)

    async def _copy(self, replica: Replica, record: Leadership) -> str:
        """Follow the primary while it leads and is heard; return why that ended."""
        there = self.sight.present.get(record.primary)
        if there is None:
            return ""
        replica.loss = loss_of(record)
        copying = asyncio.create_task(replica.follow(there))
        stopping = asyncio.create_task(self.stopping.wait())
        try:
            while not copying.done() and not self.stopping.is_set():
                newest = self.sight.record or record
                if newest.primary != record.primary or newest.epoch > replica.epoch > 0:
                    return f"{newest.primary} leads epoch {newest.epoch}"
                if self.candidate.may_stand() or self.candidate.may_be_forced(replica):
                    return ""
                if not self._folder.is_whole and replica.is_whole:
                    self._folder.make_whole()
                await asyncio.wait({copying, stopping}, timeout=0.05)
            if copying.done():
                return copying.result()
            return ""
        finally:
            for task in (copying, stopping):
                task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await copying

    # -- leading ----------------------------------------------------------------------------------

    async def _lead(self, record: Leadership) -> int | None:
        """Lead until deposed (None), stopped, or failed; return the exit status of the last two."""
        self._loyalty.hears_of(record.epoch)
        self._led = record.epoch
        assert self._doorway is not None
        settings = msgspec.structs.replace(
            self.settings, listen=Address(self.settings.listen.host, self.port)
        )
        reigning = self.reigning = Reigning(
            self.sight.group,
            record,
            settings,
            self.copying,
            self._now_us,
            doorway=self._doorway,
            begins_us=self._begins_us,
        )
        reigning.heed(self.sight.settings, self.copying)
        self._begins_us = None
        await self._porch.close()
        # In a thread, as a recovery: others must see meanwhile that this broker is there.
        disk, ready = await surely(asyncio.to_thread(self._take_over))
        server = Server(
            settings,
            disk=disk,
            clocks=self._clocks,
            new_admin_token=self._new_admin_token,
            reigning=reigning,
            view=self.outlook,
            ready=ready,
        )
        self.outlook.leads(reigning, server)
        self._new_admin_token = False
        waits = [asyncio.create_task(one.wait()) for one in (self.stopping, reigning.deposed)]
        starting = asyncio.create_task(server.start())
        try:
            await asyncio.wait({starting, *waits}, return_when=asyncio.FIRST_COMPLETED)
            if not starting.done():
                starting.cancel()
                await asyncio.wait({starting})
                await reigning.end()
                await server.abandon()
                self._check_to_go_on(reigning)
                return None if not self.stopping.is_set() else EXIT_OK
            try:
                starting.result()
            except JournalError:
                await reigning.resign("its journal failed")
                raise
            self.server = server
            log.info("%s leads broker group %s, epoch %d",
                     self.settings.name, self.sight.group.name, record.epoch)  # fmt: skip
            return await self._reign(server, reigning, waits)
        finally:
            self._committed = max(self._committed, reigning.commit_mark)
            self.server = self.reigning = None
            self.outlook.leads(None, None)
            for task in waits:
                task.cancel()
            if not self.stopping.is_set():
                await self._open_porch()

    async def _reign(
        self, server: Server, reigning: Reigning, waits: list[asyncio.Task[Any]]
    ) -> int | None:
        """Lead with a broker that serves, until something ends it; returns as ``_lead``."""
        while True:
            self.sight.news.clear()
            news = asyncio.create_task(self.sight.news.wait())
            ends: set[asyncio.Future[Any]] = {server.stopped, news, *waits}
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            news.cancel()
            if server.stopped.done():
                await reigning.resign("its journal failed")
                with contextlib.suppress(JournalError):
                    await server.close()
                return EXIT_FAILED
            if reigning.deposed.is_set():
                log.warning("%s leads no more: another reign has begun", self.settings.name)
                await reigning.end()
                await server.abandon()
                self._check_to_go_on(reigning)
                return None
            if self._killed:
                await reigning.end()
                await server.abandon()
                return EXIT_OK
            if self.stopping.is_set():
                log.info("stopping")
                await server.close()
                await reigning.resign("it stops")
                log.info("stopped")
                return EXIT_OK
            if self.sight.ordered(Change.SWITCH) and await self._switch(server, reigning):
                return None

    def _check_to_go_on(self, reigning: Reigning) -> None:
        """Check that this folder may follow, after a reign that was ended by others.

        Raises:
            SettingsError: A member has more that was answered.
        """
        if reigning.outdated:
            raise SettingsError(
                f"{self.settings.data} is older than what was answered: {reigning.outdated}. It is "
                "a copy of another time; use the folder with which the broker ran last, or an "
                "empty one once another broker leads"
            )

    async def _switch(self, server: Server, reigning: Reigning) -> bool:
        """Hand over to the member that an operator names; return whether this broker has ended."""
        order, primary = self.sight.order, reigning.primary
        assert order is not None
        assert primary is not None
        to = order.broker
        if order == self.candidate.void:
            return False
        if not any(
            one.broker == to and one.member and one.behind_bytes < self.copying.near_bytes
            for one in primary.figures()
        ):
            log.warning("an operator asks to switch to %s, which is no member that keeps up", to)
            self.candidate.void = order
            return False
        log.warning("switching to %s: an operator asks for it", to)
        await server.close(patient=False)
        try:
            done = await reigning.hand_over(to, self._change)
        except (TimeoutError, MayNotStand):
            done = False
        await reigning.resign(
            "it hands over" if done else "it could not hand over", to if done else ""
        )
        return True

    # -- small ------------------------------------------------------------------------------------

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.stopping.wait()


async def _run(settings: Settings, *, new_admin_token: bool) -> int:
    node = Node(settings, new_admin_token=new_admin_token)
    early = signals.note()
    await node.start()
    signals.heed(asyncio.get_running_loop(), node.stopping.set, early)
    if not node.stopping.is_set():
        print(f"listening on {Address(settings.listen.host, node.port)}", flush=True)
    return await node.run()


def serve(settings: Settings, *, new_admin_token: bool = False) -> int:
    """Run a broker of a broker group in this process until a signal stops it; return its status.

    Raises:
        SettingsError: As ``Node.start`` and ``Node.run``.
    """
    return run_in_loop(settings, _run(settings, new_admin_token=new_admin_token))
