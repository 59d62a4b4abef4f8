"""A broker of a broker group: it leads, or follows who leads, until it is stopped.

    start --> read the leadership record
                | it names this broker           | it names another
                v                                v
              stand: epoch + 1 -- refused --> follow <-------------------+
                |                                | no promise holds, and |
                v                                v it is a member        |
              lead ----- deposed --> follow    stand -- refused ---------+

A primary is made only by a change of the record, and only a member, whose copy has all that was
answered, may ask for that change. The rules are in ``ternmq.cluster.replication``; here is what
waits: for the coordinator, for a primary, for a signal.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from pathlib import Path
from typing import Any, Final

import msgspec

from ternmq.cluster.coordination.group import Group, Presence
from ternmq.cluster.coordination.opening import open_coordinator
from ternmq.cluster.coordination.port import Coordinator, Refused, Swapped, Unknown
from ternmq.cluster.coordination.record import BadRecord, Leadership, Member
from ternmq.cluster.replication.settings import CopySettings
from ternmq.cluster.replication.standing import Loyalty, MayNotStand, succession
from ternmq.model.errors import JournalError
from ternmq.model.types import Epoch, Position
from ternmq.model.units import Address
from ternmq.model.version import __version__
from ternmq.server.app import EXIT_FAILED, EXIT_OK, Server, run_in_loop
from ternmq.server.node.folder import Folder
from ternmq.server.node.follower import Replica
from ternmq.server.node.reigning import Reigning
from ternmq.server.node.visitors import Porch
from ternmq.server.process import signals
from ternmq.server.process.tls import tls_context
from ternmq.settings import Settings

log = logging.getLogger("ternmq.cluster")

_LOOK_S: Final = 1.0
"""Longest time between two readings of the record."""
_AGAIN_S: Final = 0.25
"""Pause before a coordinator, or a primary, that did not answer is asked again."""


def boot_us() -> int:
    """Return µs of a clock that nobody sets, and that goes on while the machine sleeps."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000


class Node:
    """A broker of a broker group, in this process. Loop only.

    Args:
        settings: Of the broker; ``cluster`` is set.
        new_admin_token: As for ``Server``, the first time that this broker leads.
        copying: How followers are judged, the same for all brokers of the group.
        coordinator: The store; None: the one that the settings name.

    Attributes:
        port: Port at which it listens; 0 before ``start``.
        incarnation: Number of this process.
        server: The broker while it leads, else None.
        stopping: Set it to stop.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        new_admin_token: bool = False,
        copying: CopySettings | None = None,
        coordinator: Coordinator | None = None,
    ) -> None:
        self.settings = settings
        self.copying = copying or CopySettings()
        self.incarnation = secrets.randbits(63) | 1
        self.port = 0
        self.server: Server | None = None
        self.stopping = asyncio.Event()
        self._new_admin_token = new_admin_token
        self._coordinator = coordinator
        self._folder = Folder(Path(settings.data), settings.broker_group, settings.name)
        self._group: Group
        self._loyalty = Loyalty(self.copying, Epoch(0), boot_us())
        self._porch = Porch(self._who_leads)
        self._record: Leadership | None = None
        self._present: dict[str, Presence] = {}
        self._hint = asyncio.Event()
        self._news = asyncio.Event()
        """Set whenever the record was read anew."""
        self._committed = Position(0)
        """How far the reigns of this process were committed."""
        self._begins_us: int | None = None
        """Broker time with which a reign begins, as the primary before it had it."""
        self._told = ""
        self._watching: asyncio.Task[None] | None = None

    @property
    def me(self) -> Member:
        """This process, as a member."""
        return Member(self.settings.name, self.incarnation)

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
        self._group = Group(
            self._coordinator, settings.broker_group, settings.name, self.incarnation
        )
        self.port = settings.listen.port
        await self._open_porch()
        self._group.watch(self._hint.set)
        await self._group.announce(
            str(self.address), tls=settings.tls_cert is not None, software=f"ternmq {__version__}"
        )
        self._watching = asyncio.create_task(self._watch())

    async def run(self) -> int:
        """Lead or follow until ``stopping`` is set; return the exit status.

        Raises:
            SettingsError, JournalError, OSError: This broker cannot go on.
        """
        try:
            while not self.stopping.is_set():
                record = await self._newest()
                if record is None:
                    continue
                if record.primary == self.settings.name:
                    leads = await self._stand("it starts again")
                else:
                    leads = await self._follow(record)
                if leads is not None:
                    status = await self._lead(leads)
                    if status is not None:
                        return status
        finally:
            await self._close()
        return EXIT_OK

    async def _close(self) -> None:
        self._porch.close()
        if self._watching is not None:
            self._watching.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._watching
        if self._coordinator is not None:
            await self._coordinator.close()

    async def _open_porch(self) -> None:
        settings = self.settings
        self.port = await self._porch.open(settings.listen.host, self.port, tls_context(settings))

    def _who_leads(self) -> str:
        """Return why this broker refuses a client."""
        record, name = self._record, self.settings.name
        if record is None:
            return f"{name} does not know yet who leads the broker group"
        if record.primary == name:
            return f"{name} begins to lead broker group {self.settings.broker_group}"
        there = self._present.get(record.primary)
        where = f" at {there.address}" if there is not None else ", which is not there"
        return f"{name} does not lead; the primary is {record.primary}{where}"

    # -- the record -------------------------------------------------------------------------------

    async def _watch(self) -> None:
        """Read the record and who is there, at every hint and each second."""
        while True:
            self._hint.clear()
            await self._read()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_S):
                    await self._hint.wait()

    async def _read(self) -> Leadership | None:
        """Read the record once; return it, or None if the coordinator has none or does not say."""
        try:
            found = await self._group.read()
            present = await self._group.present()
        except BadRecord as error:
            self._say(f"the coordinator cannot be believed: {error}")
            return None
        if not isinstance(present, Unknown):
            self._present = dict(present)
        if isinstance(found, Unknown):
            self._say(f"the coordinator does not answer: {found.why}")
            return None
        self._say("")
        if found is not None:
            self._record = found
            self._loyalty.learns(found.epoch, boot_us())
        self._news.set()
        return found

    async def _newest(self) -> Leadership | None:
        """Return the record as it is now; None if it is not known, after a pause.

        If there is none, the broker group begins with this broker.
        """
        record = await self._read()
        if record is not None:
            self._folder.enter(record)
            return record
        if not self._told:  # the coordinator answered: there is no record
            await self._begin_group()
            return None
        await self._pause(_AGAIN_S)
        return None

    async def _begin_group(self) -> None:
        """Create the record, with this broker as the primary. If another was faster, it leads."""
        record = Leadership(
            version=1,
            writer=self._group.writer(),
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
            try:
                outcome = await self._group.change(record)
            except BadRecord as error:
                self._say(f"the coordinator cannot be believed: {error}")
            else:
                if isinstance(outcome, Swapped):
                    self._record = record
                    return True
                if isinstance(outcome, Refused):
                    return False
                self._say(f"the coordinator does not answer: {outcome.why}")
            await self._pause(_AGAIN_S)
        return False

    # -- following --------------------------------------------------------------------------------

    async def _follow(self, record: Leadership) -> Leadership | None:
        """Copy from the primary; return the record by which this broker leads, or None."""
        replica = Replica(self.settings, self.incarnation, self._loyalty, boot_us)
        await replica.open(record.journal, self._committed)
        try:
            while not self.stopping.is_set():
                record = self._record or record
                if record.primary == self.settings.name:
                    return None
                why = await self._copy(replica, record)
                if why:
                    log.info("%s", why)
                if self._may_stand():
                    break
                await self._pause(_AGAIN_S)
            else:
                return None
            await replica.stop()  # everything is on the disk, and nothing is acknowledged any more
        finally:
            self._begins_us = replica.broker_time_us
            replica.close()
        log.warning("no word from the primary %s: %s stands", record.primary, self.settings.name)
        return await self._stand(f"no word from {record.primary}")

    async def _copy(self, replica: Replica, record: Leadership) -> str:
        """Follow the primary while it leads and is heard; return why that ended."""
        there = self._present.get(record.primary)
        if there is None:
            return ""
        copying = asyncio.create_task(replica.follow(there))
        stopping = asyncio.create_task(self.stopping.wait())
        try:
            while not copying.done() and not self.stopping.is_set():
                newest = self._record or record
                if (newest.primary, newest.epoch) != (record.primary, record.epoch):
                    return f"the primary is {newest.primary} now"
                if self._may_stand():
                    return ""
                await asyncio.wait({copying, stopping}, timeout=0.05)
            if copying.done():
                return copying.result()
            return ""
        finally:
            for task in (copying, stopping):
                task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await copying

    def _may_stand(self) -> bool:
        """Return whether this process is a member, and no promise of it holds any more."""
        record = self._record
        return (
            record is not None
            and self.me in record.members
            and record.primary != self.settings.name
            and self._loyalty.may_stand(boot_us())
        )

    # -- leading ----------------------------------------------------------------------------------

    async def _stand(self, why: str) -> Leadership | None:
        """Ask for the next epoch; return the record by which this broker leads, or None.

        Call it when this process has stopped to acknowledge. The progress is read before the
        record: whoever the record names has what was answered before, and the progress may be of a
        reign that has gone on without this broker.

        Args:
            why: For people.

        Raises:
            NotThisFolder: The data folder lacks what was answered.
        """
        progress = await self._group.progress()
        record = await self._read()
        if record is None or isinstance(progress, Unknown):
            await self._pause(_AGAIN_S)
            return None
        if record.primary != self.settings.name and not self._may_stand():
            return None  # another member was faster, or this one is none any more
        try:
            wanted = succession(
                record,
                self.me,
                self._group.writer(),
                record.writes,
                why,
                time.time_ns() // 1000,
            )
        except MayNotStand as error:
            log.info("%s", error)
            return None
        await asyncio.to_thread(self._folder.check_to_lead, record, progress)
        return wanted if await self._change(wanted) else None

    async def _lead(self, record: Leadership) -> int | None:
        """Lead until deposed (None), stopped, or failed; return the exit status of the last two."""
        self._loyalty.hears_of(record.epoch)
        settings = msgspec.structs.replace(
            self.settings, listen=Address(self.settings.listen.host, self.port)
        )
        reigning = Reigning(
            self._group, record, settings, self.copying, boot_us, begins_us=self._begins_us
        )
        self._begins_us = None
        self._porch.close()
        server = Server(settings, new_admin_token=self._new_admin_token, reigning=reigning)
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
                return None if not self.stopping.is_set() else EXIT_OK
            starting.result()
            self.server = server
            log.info("%s leads broker group %s, epoch %d",
                     self.settings.name, self._group.name, record.epoch)  # fmt: skip
            ends: set[asyncio.Future[Any]] = {server.stopped, *waits}
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if server.stopped.done():
                await reigning.resign("its journal failed")
                with contextlib.suppress(JournalError):
                    await server.close()
                return EXIT_FAILED
            if reigning.deposed.is_set():
                log.warning("%s leads no more: another reign has begun", self.settings.name)
                await reigning.end()
                await server.abandon()
                return None
            log.info("stopping")
            await server.close()
            await reigning.resign("it stops")
            log.info("stopped")
            return EXIT_OK
        finally:
            self._committed = max(self._committed, reigning.commit_mark)
            self.server = None
            for task in waits:
                task.cancel()
            if not self.stopping.is_set():
                await self._open_porch()

    # -- small ------------------------------------------------------------------------------------

    def _say(self, problem: str) -> None:
        """Log a problem with the coordinator when it begins, and when it ends."""
        if problem and not self._told:
            log.warning("%s; nothing that runs depends on it, but no change is possible", problem)
        elif self._told and not problem:
            log.info("the coordinator answers again")
        self._told = problem

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
