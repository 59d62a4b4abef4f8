"""A process of a broker: it leads, or follows who leads; as ``server.node.node``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ternmq.cluster.coordination.group import Group as Records
from ternmq.cluster.coordination.loss import goes_first, loss_of
from ternmq.cluster.coordination.port import Refused, Swapped, Unknown
from ternmq.cluster.coordination.record import Leadership, Member
from ternmq.cluster.coordination.wishes import Order
from ternmq.cluster.replication.forcing import forced
from ternmq.cluster.replication.standing import Loyalty, MayNotStand, succession
from ternmq.journal.recovery.recovery import open_journal
from ternmq.model.errors import CorruptJournal, DiskError, JournalError, SettingsError
from ternmq.model.types import Epoch, Position
from ternmq.server.node.folder import check_holding, holding_of
from tests.sim.group.copying import RESERVE, SEGMENT, Replica, Successor
from tests.sim.group.heap import Event
from tests.sim.group.leading import Link, Reigning
from tests.sim.group.machine import Life, Machine
from tests.sim.group.net import End
from tests.sim.group.store import Client
from tests.sim.tape import Violation

if TYPE_CHECKING:
    from tests.sim.group.world import World

LOOK_US: Final = 1_000_000
AGAIN_US: Final = 250_000
POLL_US: Final = 50_000
CONNECT_US: Final = 2_000_000
NAME: Final = "group"
START_US: Final = (1000, 20_000, 100_000)
"""How long what a start does besides takes."""


class Broker:
    """One life of a broker's process.

    Attributes:
        reigning: Its reign, while it leads.
        committed: How far its last reign was committed.
        replica: Its copy, while it follows.
        settings: Those of the group, as it read them last.
    """

    def __init__(self, group: World, machine: Machine, life: Life) -> None:
        self.group = group
        self.machine = machine
        self.life = life
        self.name = machine.name
        self.records = Records(Client(group.store, life), NAME, machine.name, life.incarnation)
        self.settings = group.settings
        self.loyalty = Loyalty(group.settings, Epoch(0), machine.now_us())
        self.reigning: Reigning | None = None
        self.committed = Position(0)
        self.replica: Replica | None = None
        self._record: Leadership | None = None
        self._absent = False
        self._hint = Event()
        self._successor: Successor | None = None
        self._stopping = False
        self.records.watch(self._hint.set)
        life.spawn(self._watch())
        life.spawn(self._run())

    @property
    def me(self) -> Member:
        """This process, as a member."""
        return Member(self.name, 0 if self.group.synced else self.life.incarnation)

    def fails(self, error: Exception) -> None:
        """The process ends, since its disk has failed; it comes back after a while."""
        self.group.failed(self, error)

    def stop(self) -> None:
        """Stop in order, as at SIGTERM: a primary resigns."""
        if self.reigning is not None and hasattr(self.reigning, "reign"):
            self.group.heap.reached("a primary stops")
            self.reigning.resign()

    def accepts(self, end: End) -> bool:
        """Take a follower's connection, if this broker leads."""
        reigning = self.reigning
        if reigning is None or reigning.deposed.is_set or not hasattr(reigning, "reign"):
            return False
        Link(reigning, end)
        return True

    def hand_over(self) -> None:
        """Hand over to a member, if this broker leads and has one; as ``cluster switch`` will."""
        if self.reigning is not None and self.reigning.served:
            self.life.spawn(self.reigning.hand_over())

    # -- the record -------------------------------------------------------------------------------

    def heed(self) -> None:
        """Go by the settings of the group as they are now."""
        self.settings = self.group.settings
        self.loyalty.heed(self.settings)
        if self.reigning is not None and hasattr(self.reigning, "reign"):
            self.reigning.reign.heed(self.settings)
            self.group.heap.reached("a primary asks for another lease")

    async def _watch(self) -> None:
        while True:
            self._hint.clear()
            await self.read()
            await self.life.until(self._hint.future, timeout_us=LOOK_US)

    async def read(self) -> Leadership | None:
        """Read the record once; None if there is none, or the coordinator does not say."""
        found = await self.records.read()
        if isinstance(found, Unknown):
            return None
        self._absent = found is None
        if self.group.settings is not self.settings and self.group.heap.chance.random() < 0.7:
            self.heed()
        if found is not None:
            self._record = found
            self.loyalty.learns(found.epoch, self.machine.now_us())
            self.life.told = max(self.life.told, found.epoch)
        return found

    async def _begin_group(self) -> None:
        await self._change(
            Leadership(
                version=1,
                writer=self.records.writer(),
                journal=1,
                epoch=Epoch(0),
                primary=self.name,
                members=(self.me,),
            )
        )

    async def _change(self, record: Leadership) -> bool:
        """Change the record; return whether it was done. Waits until the outcome is known."""
        while True:
            outcome = await self.records.change(record)
            if isinstance(outcome, Swapped):
                self._record = record
                return True
            if isinstance(outcome, Refused):
                return False
            self.group.heap.reached("a stand of unknown outcome")
            await self.life.sleep(AGAIN_US)

    # -- the roles --------------------------------------------------------------------------------

    async def _run(self) -> None:
        try:
            await self.life.sleep(self.group.heap.chance.choice(START_US))
            while True:
                record = await self.read()
                if record is None:
                    if self._absent:
                        await self._begin_group()
                    await self.life.sleep(AGAIN_US)
                    continue
                if record.primary == self.name:
                    leads = await self._stand()
                else:
                    leads = await self._follow(record)
                if leads is not None:
                    await self._lead(leads)
                self._successor = None
        except CorruptJournal as error:
            raise Violation(f"{self.name} does not start: {error}") from error
        except SettingsError as error:
            raise Violation(f"the folder of {self.name} is refused: {error}") from error
        except (DiskError, JournalError) as error:
            self.fails(error)

    async def _follow(self, record: Leadership) -> Leadership | None:
        """Copy from the primary; return the record by which this broker leads, or None."""
        replica = self.replica = Replica(self)
        replica.open()
        while True:
            record = self._record or record
            if record.primary == self.name:
                self._leaves(replica)
                return None
            await self._copy(replica, record)
            if self._may_stand() or self._may_be_forced(replica):
                break
            await self.life.sleep(AGAIN_US)
        self.group.heap.reached("stands")
        self.group.fired("stands", self.life)
        await self.stops_acknowledging(replica)
        replica.sync_all()
        self._successor = replica.hand_over()
        self._leaves(replica)
        await self.life.sleep(self.group.heap.chance.choice((0, 1000, 50_000)))
        if self._order is not None:
            return await self._force()
        return await self._stand()

    def _leaves(self, replica: Replica) -> None:
        """Close the copy; it remembers itself what is left of a loss."""
        if replica.gave_up:
            self.committed = Position(0)
        self.replica = None
        replica.close()

    async def stops_acknowledging(self, replica: Replica) -> None:
        """Wait until nothing works on the copy any more; its connection is over."""
        stream = replica.stream
        if stream is not None:
            stream.stop("it stands")
            await stream.idle

    async def _copy(self, replica: Replica, record: Leadership) -> None:
        """Follow the primary while it leads and is heard."""
        end = await self.group.connect(self.life, record.primary)
        if end is None:
            return
        replica.loss = loss_of(record)
        stream = replica.follow(end)
        while not stream.ended.done:
            newest = self._record or record
            if (newest.primary, newest.epoch) != (record.primary, record.epoch):
                break
            if self._may_stand() or self._may_be_forced(replica):
                break
            await self.life.until(stream.ended, timeout_us=POLL_US)
        if not self._may_stand():
            stream.stop("another primary")
            await stream.idle

    def _may_stand(self) -> bool:
        record = self._record
        return (
            record is not None
            and self.me in record.members
            and record.primary != self.name
            and self.loyalty.may_stand(self.machine.now_us())
        )

    # -- if an operator accepts a loss ------------------------------------------------------------

    @property
    def _order(self) -> Order | None:
        """The order by which this broker leads although it may lack what was answered, or None."""
        order, record = self.group.order, self._record
        if order is None or record is None or (order.broker, order.epoch) != (
            self.name, record.epoch
        ):  # fmt: skip
            return None
        return None if self.me in record.members else order

    def _may_be_forced(self, replica: Replica) -> bool:
        if self._order is None or self._record is None:
            return False
        stream = replica.stream
        heard = stream is not None and stream.following is not None and not stream.ended.done
        if heard or goes_first(self._record, self.group.running(), self.name):
            self._refuse()
            return False
        return self.loyalty.may_stand(self.machine.now_us())

    def _refuse(self) -> None:
        self.group.order = None
        self.group.heap.reached("an order to lead with a loss refused")

    async def _force(self) -> Leadership | None:
        """Lead although what was answered may be missing."""
        record, order = await self.read(), self._order
        if record is None or order is None or order.accepted is None:
            return None
        holding = holding_of(self.machine.disk, record.floor)
        try:
            wanted = forced(
                record,
                self.me,
                None if holding is None else holding.held,
                self.group.running(),
                order.accepted,
                self.records.writer(),
                record.writes,
                "",
                0,
            )
        except MayNotStand:
            self._refuse()
            return None
        self.group.fired("stand sent", self.life)
        return wanted if await self._change(wanted) else None

    async def _stand(self) -> Leadership | None:
        """Ask for the next epoch; return the record by which this broker leads, or None."""
        progress = await self.records.progress()
        record = await self.read()
        if record is None or isinstance(progress, Unknown):
            await self.life.sleep(AGAIN_US)
            return None
        if record.primary != self.name and not self._may_stand():
            self.group.heap.reached("may not stand")
            return None
        try:
            wanted = succession(record, self.me, self.records.writer(), record.writes, "", 0)
        except MayNotStand:
            return None
        holding = holding_of(self.machine.disk, record.floor)
        check_holding(self.name, self.name, NAME, record, progress, holding)
        self.group.fired("stand sent", self.life)
        return wanted if await self._change(wanted) else None

    async def _lead(self, record: Leadership) -> None:
        """Lead until deposed."""
        self.loyalty.hears_of(record.epoch)
        machine, chance = self.machine, self.group.heap.chance
        reigning = self.reigning = Reigning(self, record)
        await self.life.sleep(chance.choice(START_US))
        successor, replayed = self._successor, None
        if successor is not None:
            replayed = successor.replayed()
            self.group.heap.reached("a reign begins with the views of a follower")
            self.group.oracle.taken_over(self, successor.standby, replayed.ending)
        journal, report = machine.blocking(
            "a promotion",
            lambda: open_journal(
                machine.disk,
                wall_us=self.group.broker_time_us(machine),
                segment_size=SEGMENT,
                reserve_bytes=RESERVE,
                min_epoch=record.epoch,
                replayed=replayed,
            ),
        )
        self.group.oracle.begins(self, record, journal, report)
        await self.life.sleep(chance.choice(START_US))
        reigning.begin(journal, report.epoch_position)
        await reigning.deposed.future
        reigning.close()
        self.reigning = None
        self.committed = max(self.committed, journal.committed)
        while reigning.syncing:
            await self.life.sleep(1000)
        journal.close()
