"""A broker of a broker group: it leads, or follows who leads, until it is stopped.

    start --> read the leadership record
                | it names this broker           | it names another
                v                                v
              stand: epoch + 1 -- refused --> follow <-------------------+
                |                                | no promise holds, and |
                v                                v it is a member        |
              lead ----- deposed --> follow    stand -- refused ---------+

A primary is made only by a change of the record, and only a member, whose copy has all that was
answered, may ask for that change; another broker only if an operator accepts the loss (``_force``).
The rules are in ``ternmq.cluster.replication``; here is what waits: for the coordinator, for a
primary, for a signal.
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

from ternmq.cluster.coordination.group import Group, Presence
from ternmq.cluster.coordination.loss import goes_first, loss_of
from ternmq.cluster.coordination.opening import open_coordinator
from ternmq.cluster.coordination.port import Coordinator, Refused, Swapped, Unknown
from ternmq.cluster.coordination.record import BadRecord, Leadership, Member, Reach, Writes
from ternmq.cluster.coordination.wishes import Change, Failover, GroupSettings, Order
from ternmq.cluster.replication.forcing import forced
from ternmq.cluster.replication.settings import CopySettings
from ternmq.cluster.replication.standing import Loyalty, MayNotStand, succession
from ternmq.journal.disk.port import Disk
from ternmq.model.errors import JournalError, SettingsError
from ternmq.model.types import Epoch, Position
from ternmq.model.units import Address, read_address
from ternmq.model.version import __version__
from ternmq.server.app import EXIT_FAILED, EXIT_OK, Server, run_in_loop
from ternmq.server.engine.clocks import Clocks
from ternmq.server.node.folder import Folder, Holding
from ternmq.server.node.follower import Replica
from ternmq.server.node.outlook import Outlook
from ternmq.server.node.reigning import Reigning
from ternmq.server.node.visitors import Porch
from ternmq.server.process import signals
from ternmq.server.process.doorway import Doorway
from ternmq.server.process.tls import tls_context
from ternmq.settings import Settings
from ternmq.settings.settings import Follower

log = logging.getLogger("ternmq.cluster")

_LOOK_S: Final = 1.0
"""Longest time between two readings of the record."""
_BEGINNING_US: Final = 60_000_000
"""Longest time that a new primary is given to recover its journal."""
_PROBE_S: Final = 1.0
"""Longest wait for the coordinator's word who is there, and for a connection to one who is."""
_LISTEN_S: Final = 0.05
"""Pause before a coordinator that has no connection yet is asked again."""
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
        disk: The data root; None: the folder of the settings. For tests, as the next two.
        clocks: Of the broker that leads; None: the machine's.
        now_us: The clock of promises and silence: nobody sets it, and it goes on while the machine
            sleeps.

    Attributes:
        port: Port at which it listens; 0 before ``start``.
        incarnation: Number of this process.
        server: The broker while it leads and serves, else None.
        reigning: The reign of this process; None: it has none.
        stopping: Set it to stop.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        new_admin_token: bool = False,
        copying: CopySettings | None = None,
        coordinator: Coordinator | None = None,
        disk: Disk | None = None,
        clocks: Clocks | None = None,
        now_us: Callable[[], int] = boot_us,
    ) -> None:
        self.settings = settings
        self.copying = copying or CopySettings()
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
        self._group: Group
        self._loyalty = Loyalty(self.copying, Epoch(0), self._now_us())
        self._doorway: Doorway | None = None
        self.outlook = Outlook(settings, self.me, self._now_us)
        self._porch = Porch(self._who_leads, self.outlook.routes)
        self._record: Leadership | None = None
        self._settings = GroupSettings()
        self._order: Order | None = None
        self._present: dict[str, Presence] = {}
        self._sees = False
        """The newest reading said who is there."""
        self._epoch_since_us = self._now_us()
        """When this process read of the present epoch first."""
        self._hint = asyncio.Event()
        self._news = asyncio.Event()
        """Set whenever the record was read anew."""
        self._committed = Position(0)
        """How far the reigns of this process were committed."""
        self._begins_us: int | None = None
        """Broker time with which a reign begins, as the primary before it had it."""
        self._had_a_copy = False
        """This process has opened a copy, so it may have been a member."""
        self._replica: Replica | None = None
        """The copy while this broker follows."""
        self._shown: Reach | None = None
        """How far the copy reaches, as it was announced last."""
        self._void: Order | None = None
        """An order that could not be carried out, and was said so."""
        self._led = Epoch(0)
        """Epoch of this process's newest reign."""
        self._told = self._rubbish = ""
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
        self._group = Group(
            self._coordinator, settings.broker_group, settings.name, self.incarnation
        )
        self._doorway = Doorway(settings.listen.host, settings.listen.port)
        self.port = self._doorway.port
        await self._open_porch()
        await self._look_for_another()
        scheme = "ternmq" if settings.tls_cert is None else "ternmqs"
        await self.outlook.open(f"{scheme}://{Address(settings.listen.host, self.port)}")
        self._group.watch(self._hint.set)
        await self._announce()
        self._watching = asyncio.create_task(self._watch())

    async def _announce(self, reach: Reach | None = None) -> None:
        await self._group.announce(
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
            async with asyncio.timeout(_PROBE_S):
                while isinstance(found := await self._group.present(), Unknown):  # noqa: ASYNC110
                    await asyncio.sleep(_LISTEN_S)  # perhaps it has no connection yet
                present = found
        there = present.get(self.settings.name)
        if there is None or there.address == str(self.address):
            return  # or it is this broker's former life, which had the port before
        address = read_address(there.address)
        try:
            async with asyncio.timeout(_PROBE_S):
                _, writer = await asyncio.open_connection(address.host, address.port)
        except (OSError, TimeoutError):
            return  # it is gone, and the coordinator has not noticed yet
        writer.transport.abort()
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
                    leads = await self._stand("it starts again", holding)
                else:
                    leads = await self._follow(record)
                if leads is not None:
                    status = await self._lead(leads)
                    if status is not None:
                        return status
        finally:
            await self._close()
        return EXIT_OK

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
            try:
                await self.look()
                await self._show_reach()
            except Exception:
                log.exception("reading the leadership record failed; it is tried again")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_S):
                    await self._hint.wait()

    async def _show_reach(self) -> None:
        """Show how far the copy reaches, while it follows nobody: an operator may have to know."""
        replica = self._replica
        if replica is None or replica.copy is None or replica.figures().connected:
            return
        reach = replica.reach
        if reach is not None and reach != self._shown:
            self._shown = reach
            await self._announce(reach)

    async def look(self) -> Leadership | None:
        """Read the record and who is there, once.

        Return the record, or None if the coordinator has none or does not say.
        """
        try:
            found = await self._group.read()
            present = await self._group.present()
        except BadRecord as error:
            self._say(f"the coordinator returned a record that is not valid: {error}")
            return None
        self._sees = not isinstance(present, Unknown)
        if not isinstance(present, Unknown):
            self._present = dict(present)
        await self._read_wishes()
        if isinstance(found, Unknown):
            self._say(f"the coordinator does not answer: {found.why}")
            return None
        self._say("")
        self.outlook.learned(found, self._present)
        if found is not None:
            if self._record is None or self._record.epoch != found.epoch:
                self._epoch_since_us = self._now_us()
            self._record = found
            self._loyalty.learns(found.epoch, self._now_us())
            if self.reigning is not None:
                self.reigning.learned(found)
                self.reigning.heed(self._settings)
        self._news.set()
        return found

    async def _read_wishes(self) -> None:
        """Read what operators ask for; nothing that is needed depends on it."""
        rubbish = ""
        try:
            settings = await self._group.settings()
            if not isinstance(settings, Unknown):
                self._settings = settings
            order = await self._group.order()
            if not isinstance(order, Unknown):
                self._order = order
        except BadRecord as error:
            rubbish = str(error)
        if rubbish and rubbish != self._rubbish:
            log.error("what operators asked for cannot be read: %s", rubbish)
        self._rubbish = rubbish

    async def _newest(self) -> Leadership | None:
        """Return the record as it is now; None if it is not known, after a pause.

        If there is none, the broker group begins with this broker.
        """
        record = await self.look()
        if record is not None:
            self._folder.enter(record)
            return record
        if not self._told and self.settings.follower is not Follower.BACKUP:
            await self._begin_group()  # the coordinator answered: there is no record
            return None
        await self._pause(_AGAIN_S)
        return None

    @property
    def _last_known(self) -> Leadership | None:
        """The record by which to follow while the coordinator does not answer; None: it does."""
        record = self._record
        if not self._told or record is None or record.primary == self.settings.name:
            return None
        return record

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
                self._say(f"the coordinator returned a record that is not valid: {error}")
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
        replica = Replica(
            self.settings,
            self.incarnation,
            self._loyalty,
            self._now_us,
            self._folder.make_partial,
            steady_us=None if self._clocks is None else self._clocks.monotonic_us,
            disk=self._disk,
        )
        await replica.open(record.journal, self._committed, self._may_mend)
        self._had_a_copy = True
        # Whoever leads now may just have begun: it has a lease's time to be heard of.
        self._loyalty.promises(self._now_us())
        self._replica = replica
        self.outlook.follows(replica)
        why = said = ""
        try:
            while not self.stopping.is_set():
                record = self._record or record
                if record.journal != replica.journal:  # restored meanwhile: ``enter`` refuses
                    return None
                if record.primary == self.settings.name:  # it was handed over
                    break
                why = await self._copy(replica, record) or why
                if why != said:
                    log.info("%s", why)
                said = why
                if self.may_stand() or self._may_be_forced(replica):
                    break
                await self._pause(_AGAIN_S)
            else:
                return None
            await replica.stop()  # everything is on the disk, and nothing is acknowledged any more
            newest = await self.look()
            holding = None if newest is None else replica.holding(newest.floor)
        finally:
            self._begins_us = replica.broker_time_us
            if replica.gave_up:  # the copy itself remembers what is left
                self._committed = Position(0)
            self._replica = None
            self.outlook.follows(None)
            replica.close()
        if newest is None or newest.journal != replica.journal:
            return None
        if self._accepted is not None and self.me not in newest.members:
            return await self._force(holding)
        why = why or f"no word from {newest.primary}"
        log.warning("%s: %s stands for primary", why, self.settings.name)
        reads = self._settings.failover is Failover.READS and not self._ordered(Change.PROMOTE)
        return await self._stand(why, holding, Writes.CLOSED if reads else None)

    async def _may_mend(self) -> bool:
        """Return whether a damaged copy may be cut before the damage, and be copied again.

        Only while a primary is there, which has the bytes, and before this process can be a member:
        a member that had confirmed them would be without them. The next process mends it then.
        """
        record = self._record
        there = None if record is None else self._present.get(record.primary)
        if there is None or self._had_a_copy or self._led:
            return False
        address = read_address(there.address)
        try:
            async with asyncio.timeout(_PROBE_S):
                _, writer = await asyncio.open_connection(address.host, address.port)
        except (OSError, TimeoutError):
            return False
        writer.transport.abort()
        return True

    async def _copy(self, replica: Replica, record: Leadership) -> str:
        """Follow the primary while it leads and is heard; return why that ended."""
        there = self._present.get(record.primary)
        if there is None:
            return ""
        replica.loss = loss_of(record)
        copying = asyncio.create_task(replica.follow(there))
        stopping = asyncio.create_task(self.stopping.wait())
        try:
            while not copying.done() and not self.stopping.is_set():
                newest = self._record or record
                if newest.primary != record.primary or newest.epoch > replica.epoch > 0:
                    return f"{newest.primary} leads epoch {newest.epoch}"
                if self.may_stand() or self._may_be_forced(replica):
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

    def may_stand(self) -> bool:
        """Return whether this process is a member, and no promise of it holds any more."""
        record = self._record
        return (
            record is not None
            and self.me in record.members
            and record.primary != self.settings.name
            and not self._begins(record)
            and (self._folder.is_whole or self.settings.follower is not Follower.SYNCED)
            and not self._told  # else the coordinator is away, and it would only stop to follow
            and (self._settings.failover is not Failover.OPERATOR or self._ordered(Change.PROMOTE))
            and self._loyalty.may_stand(self._now_us())
        )

    @property
    def _accepted(self) -> Order | None:
        """The order by which this broker leads although it may lack what was answered, or None."""
        order = self._order
        if order is None or order.accepted is None or order == self._void:
            return None
        return order if self._ordered(Change.PROMOTE) else None

    def _may_be_forced(self, replica: Replica) -> bool:
        """Return whether an operator has it lead, and no word came from a primary for a lease.

        An order is refused for good if a broker is heard that has what was answered.
        """
        order, record = self._accepted, self._record
        if order is None or record is None or self.me in record.members:
            return False
        first = goes_first(record, self._running, self.settings.name)
        if not first and replica.figures().connected:
            first = record.primary
        if first:
            self._refuse(order, f"{first} runs, and has what was answered")
            return False
        return self._sees and not self._told and self._loyalty.may_stand(self._now_us())

    @property
    def _running(self) -> Mapping[str, int]:
        """Incarnations of the brokers that run, by name."""
        return {one.broker: one.incarnation for one in self._present.values()}

    def _begins(self, record: Leadership) -> bool:
        """Return whether a reign is about to begin: its process is there, and recovers its journal.

        It is given time, since two members that stand by turns would never serve. Safety does not
        depend on this.
        """
        floor, there = record.floor, self._present.get(record.primary)
        if there is None or (floor is not None and floor.epoch == record.epoch):
            return False
        return self._now_us() - self._epoch_since_us < _BEGINNING_US

    def _ordered(self, change: Change) -> bool:
        """Return whether an operator asks for a change of the primary of this epoch.

        To be promoted is asked of the broker that is to lead, to switch of the one that leads.
        """
        order, record = self._order, self._record
        if order is None or record is None or order.epoch != record.epoch:
            return False
        mine = order.broker == self.settings.name
        return order.change is change and mine == (change is Change.PROMOTE)

    # -- leading ----------------------------------------------------------------------------------

    async def _stand(
        self, why: str, holding: Holding | None, writes: Writes | None = None
    ) -> Leadership | None:
        """Ask for the next epoch; return the record by which this broker leads, or None.

        Call it when this process has stopped to acknowledge. The progress is read before the
        record: whoever the record names has what was answered before, and the progress may be of a
        reign that has gone on without this broker.

        Args:
            why: For people.
            holding: What this broker's journal has.
            writes: Whether the group is to take new messages; None: as before.

        Raises:
            SettingsError: The data folder lacks what was answered.
        """
        try:
            progress = await self._group.progress()
        except BadRecord as error:
            self._say(f"the coordinator returned a record that is not valid: {error}")
            await self._pause(_AGAIN_S)
            return None
        record = await self.look()
        if record is None or isinstance(progress, Unknown):
            await self._pause(_AGAIN_S)
            return None
        if holding is not None and holding.floor != record.floor:
            return None  # the record has changed since; the journal is looked at again
        if record.primary != self.settings.name and not self.may_stand():
            return None  # another member was faster, or this one is none any more
        try:
            wanted = succession(
                record,
                self.me,
                self._group.writer(),
                writes or record.writes,
                why,
                time.time_ns() // 1000,
            )
        except MayNotStand as error:
            log.info("%s", error)
            return None
        try:
            self._folder.check_to_lead(record, progress, holding)
        except SettingsError:
            if holding is None or self._accepted is None:
                raise
            return await self._force(holding)
        return wanted if await self._change(wanted) else None

    async def _force(self, holding: Holding | None) -> Leadership | None:
        """Lead although messages that were answered may be missing, as an operator accepts.

        Call it when this process has stopped to acknowledge, and has synced all that it has.

        Args:
            holding: What this broker's journal has.

        Returns:
            The record by which this broker leads, or None; then the order is void, or was changed.
        """
        record, order, name = await self.look(), self._accepted, self.settings.name
        if record is None or not self._sees or order is None or order.accepted is None:
            await self._pause(_AGAIN_S)
            return None
        end = 0 if holding is None else holding.end
        why = f"an operator accepted loss: {name} leads with a journal up to {end}"
        try:
            wanted = forced(
                record,
                self.me,
                None if holding is None else holding.held,
                self._running,
                order.accepted,
                self._group.writer(),
                record.writes,
                why,
                time.time_ns() // 1000,
            )
        except MayNotStand as error:
            self._refuse(order, str(error))
            return None
        log.warning("%s stands for primary: %s", name, why)
        return wanted if await self._change(wanted) else None

    def _refuse(self, order: Order, why: str) -> None:
        """Note that an order is not carried out, also if what is in its way goes away later."""
        log.warning("an operator has %s lead and accepts loss; refused: %s", order.broker, why)
        self._void = order

    async def _lead(self, record: Leadership) -> int | None:
        """Lead until deposed (None), stopped, or failed; return the exit status of the last two."""
        self._loyalty.hears_of(record.epoch)
        self._led = record.epoch
        assert self._doorway is not None
        settings = msgspec.structs.replace(
            self.settings, listen=Address(self.settings.listen.host, self.port)
        )
        reigning = self.reigning = Reigning(
            self._group,
            record,
            settings,
            self.copying,
            self._now_us,
            doorway=self._doorway,
            begins_us=self._begins_us,
        )
        self._begins_us = None
        await self._porch.close()
        server = Server(
            settings,
            disk=self._disk,
            clocks=self._clocks,
            new_admin_token=self._new_admin_token,
            reigning=reigning,
            view=self.outlook,
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
                     self.settings.name, self._group.name, record.epoch)  # fmt: skip
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
            self._news.clear()
            news = asyncio.create_task(self._news.wait())
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
            if self._ordered(Change.SWITCH) and await self._switch(server, reigning):
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
        order, primary = self._order, reigning.primary
        assert order is not None
        assert primary is not None
        to = order.broker
        if order == self._void:
            return False
        if not any(
            one.broker == to and one.member and one.behind_bytes < self.copying.near_bytes
            for one in primary.figures()
        ):
            log.warning("an operator asks to switch to %s, which is no member that keeps up", to)
            self._void = order
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

    def _say(self, problem: str) -> None:
        """Log a problem with the coordinator when it begins, and when it ends."""
        if problem and not self._told:
            log.warning("%s; nothing that runs depends on it, but no change is possible", problem)
        elif self._told and not problem:
            log.info("the coordinator answers again")
        self._told = problem
        self.outlook.troubled(problem)

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
