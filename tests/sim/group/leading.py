"""A process as a primary: as ``server.node.reigning``, and the connections of its followers."""

from __future__ import annotations

from collections import deque
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from ternmq.cluster.coordination.port import Refused, Swapped
from ternmq.cluster.coordination.record import Floor, Leadership, Progress
from ternmq.cluster.replication.follower import Acknowledgement, Follower, Kind
from ternmq.cluster.replication.reign import Change, Reign, StrangeAcknowledgement
from ternmq.cluster.replication.standing import handover
from ternmq.journal.log.checkpoint import end_if_held
from ternmq.journal.log.journal import AllocateJob, Journal, SyncJob
from ternmq.model.errors import DiskError, JournalError, JournalFailed, JournalFull
from ternmq.model.types import NO_POSITION, Position
from ternmq.record.batch.encode import encode_one
from ternmq.record.fact import control, messages
from ternmq.record.fact.header import Kind as RecordKind
from tests.sim.disk import SimFile
from tests.sim.group.copying import SEGMENT
from tests.sim.group.heap import Event, Lock
from tests.sim.group.messages import (
    Ack,
    Bytes,
    Follow,
    Followed,
    Marks,
    Resign,
    portion,
)
from tests.sim.group.net import End

if TYPE_CHECKING:
    from tests.sim.group.broker import Broker

TICK_US: Final = 100_000
LOOK_US: Final = 1_000_000
PROGRESS_US: Final = 10_000_000
AGAIN_US: Final = 250_000
MARKS_US: Final = 250_000
WINDOW_BYTES: Final = 32_000
PIECE_BYTES: Final = 3000
SYNC_US: Final = (100, 300, 1000, 4000, 20_000)
KEPT_SEGMENTS: Final = 3
PATIENCE_US: Final = 6_000_000
HAND_OVER_TRIES: Final = 40
SLOTS: Final = 5
"""Names by which views remember messages."""


class Sent(NamedTuple):
    """A message of a client that waits for its answer."""

    end: Position
    number: int


class Fact(NamedTuple):
    """A record that changes views."""

    kind: RecordKind
    body: bytes
    time_us: int


def fact_of(number: int, size: int, time_us: int) -> Fact:
    """Return the fact that a message is.

    Some are remembered by name until another one has the name, the others by a producer, which is
    forgotten when it was idle for some time.
    """
    text = f"{number:010d}".ljust(size, ".")
    if number % 3 == 0:
        hold = control.Hold(name=str(number % SLOTS), position=1, note=text)
        return Fact(RecordKind.CONFIG, control.pack(hold), time_us)
    batch = encode_one(
        text.encode(), topic_seed=0, producer_id=number, first_sequence=0, born_us=time_us
    )
    return Fact(RecordKind.MESSAGES, messages.pack(1, 0, number, 1, batch, ()), time_us)


class Reigning:
    """A reign of this broker.

    Attributes:
        deposed: Another reign has begun, or may have: nothing is answered any more.
        served: Clients are served: the EPOCH of this reign is committed.
    """

    def __init__(self, broker: Broker, record: Leadership) -> None:
        self.broker = broker
        self.epoch = record.epoch
        self.deposed = Event()
        self.served = False
        self.reign: Reign
        self.journal: Journal
        self.links: list[Link] = []
        self._record = record
        self._life = broker.life
        self._changing = Lock()
        self._hint = Event()
        self._floor: Floor
        self._closed = self._drains = self._silent = False
        self._turn_due = False
        self._syncing: SyncJob | None = None
        self._sparing = False
        self._waiting: deque[Sent] = deque()

    # -- begin and end ----------------------------------------------------------------------------

    def begin(self, journal: Journal, epoch_position: Position) -> None:
        """Take over a journal whose EPOCH record was just written."""
        self.journal = journal
        journal.share_commits()
        self._floor = Floor(journal.epoch, epoch_position, journal.last_crc)
        broker = self.broker
        self.reign = Reign(broker.name, self._record, journal.end, broker.settings, self._now_us())
        broker.records.watch(self._hint.set)
        self._life.spawn(self._keep())

    def resign(self) -> None:
        """End the reign: answers stop, then a member may stand at once."""
        self.reign.deposed = True
        for one in list(self.links):
            one.end.send(Resign(self.epoch))
        self.close()

    def close(self) -> None:
        """Close the connections; nothing leaves to clients after that."""
        self._closed = True
        for one in list(self.links):
            one.cut()
        self.broker.group.oracle.unanswered(len(self._waiting))

    @property
    def syncing(self) -> bool:
        """Whether a job works on the journal."""
        return self._syncing is not None or self._sparing

    def _now_us(self) -> int:
        return self.broker.machine.now_us()

    async def hand_over(self) -> None:
        """Take no more; when a member has everything on its disk, name it in the record."""
        if self._drains:
            return
        self._drains = True
        await self._changing.acquire()  # no change of the members is out
        for _ in range(HAND_OVER_TRIES):
            target, record = self._has_all(), self.reign.record
            if target is None or self.reign.deposed or self._closed:
                await self._life.sleep(TICK_US // 2)
                continue
            self._silent = True  # from here on nothing is answered, whatever becomes of the swap
            self.broker.group.fired("hand over", self._life)
            wanted = handover(record, target, self.broker.records.writer(), "", 0)
            while not self.deposed.is_set and not self._closed:
                outcome = await self.broker.records.change(wanted)
                if isinstance(outcome, Swapped):
                    self.broker.group.heap.reached("handed over")
                    self.learned(wanted)
                elif isinstance(outcome, Refused):
                    break
                await self._life.sleep(AGAIN_US)
            break
        self._drains = self._silent = False
        self._changing.release()

    def _has_all(self) -> str | None:
        """Return a member whose disk has the whole journal, all of which is committed."""
        end = self.journal.end
        if self.journal.committed != end:
            return None
        names = [one.broker for one in self.reign.record.members if one.broker != self.broker.name]
        for one in self.links:
            if one.broker in names and one.synced == end:
                return one.broker
        return None

    # -- clients ----------------------------------------------------------------------------------

    def send(self, number: int, size: int) -> bool:
        """Take a message of a client; return whether it was taken."""
        if not self.served or self._closed or self.reign.deposed or self._drains:
            return False
        body = f"{number:010d}".encode().ljust(size - 1, b".") + b"!"
        time_us = self.broker.group.broker_time_us(self.broker.machine)
        fact = Fact(RecordKind.MARK, body, time_us)
        if self.broker.group.applies:
            fact = fact_of(number, size, time_us)
        try:
            self.journal.append(*fact)
        except (JournalFull, JournalFailed):
            return False
        self._waiting.append(Sent(self.journal.end, number))
        self.touch()
        return True

    def touch(self) -> None:
        """Have a turn end soon."""
        if not self._turn_due:
            self._turn_due = True
            self._life.after(0, self._turn)

    def _turn(self) -> None:
        self._turn_due = False
        if self._closed or self.journal.failure is not None:
            return
        try:
            self.journal.flush()
            for one in list(self.links):
                one.pump()
            if self.links and self._waiting:
                self.broker.group.fired("sent", self._life)
            self._start_sync()
            self._start_spare()
        except JournalError as error:
            self._fail(error)

    def _start_sync(self) -> None:
        if self._syncing is not None:
            return
        job = self.journal.next_sync()
        if job is None:
            return
        self._syncing = job
        for file in job.files:
            assert isinstance(file, SimFile)
            file.begin_sync()
        self._life.after(self.broker.group.heap.chance.choice(SYNC_US), lambda: self._synced(job))

    def _synced(self, job: SyncJob) -> None:
        try:
            self.broker.machine.blocking("a sync", job.run)
        except DiskError as error:
            self.journal.failed(error)
            self._fail(error)
            return
        self._syncing = None
        self.journal.synced(job)
        self.commit()
        self.touch()

    def _start_spare(self) -> None:
        job = None if self._sparing else self.journal.wants_spare()
        if job is not None:
            self._sparing = True
            self._life.after(
                self.broker.group.heap.chance.choice(SYNC_US), lambda: self._spared(job)
            )

    def _spared(self, job: AllocateJob) -> None:
        self._sparing = False
        try:
            self.broker.machine.blocking("a spare", job.run)
        except DiskError as error:
            self.journal.spare_failed(job, error)
        else:
            self.journal.spare_ready(job)
            self.touch()

    def _fail(self, error: Exception) -> None:
        """The journal has failed: the process resigns and ends."""
        self.broker.group.heap.reached("a journal of a primary failed")
        if not self._closed:
            self.resign()
        self.broker.fails(error)

    def commit(self) -> None:
        """Move the commit mark, and let what waits leave if it may."""
        journal, oracle = self.journal, self.broker.group.oracle
        if self._closed or journal.failure is not None:
            return
        before = journal.committed
        if journal.commit(self.reign.commit_mark(journal.durable)):
            oracle.committed(self, before, journal.committed)
        self._release()

    def _release(self) -> None:
        """Let answers leave: asked here, where they do."""
        journal, waiting = self.journal, self._waiting
        if not waiting or waiting[0].end > journal.committed:
            return
        if self._closed or self._silent or not self.reign.may_answer(self._now_us()):
            self.broker.group.heap.reached("an answer held back by the lease")
            return
        oracle = self.broker.group.oracle
        while waiting and waiting[0].end <= journal.committed:
            one = waiting.popleft()
            oracle.answered(self, one.end, one.number)
        self.broker.group.fired("answer", self._life)

    # -- while it lasts ---------------------------------------------------------------------------

    async def _keep(self) -> None:
        look_at = progress_at = self._now_us()
        begun = False
        self.commit()  # alone: the EPOCH is committed already
        while not self.deposed.is_set and not self._closed:
            self._tick()
            journal = self.journal
            if journal.committed and not begun:
                begun = True
                self._spawn(self._begin_serving())
            now_us = self._now_us()
            if now_us >= look_at or self._hint.is_set:
                self._hint.clear()
                look_at = now_us + LOOK_US
                self._spawn(self._look())
                journal.retry_spare()
                self.touch()
            if now_us >= progress_at and self.served:
                progress_at = now_us + PROGRESS_US
                progress = Progress(self.epoch, journal.committed)
                self._spawn(self.broker.records.put_progress(progress))
            await self._life.sleep(TICK_US)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self._life.spawn(work)

    def _tick(self) -> None:
        now_us = self._now_us()
        for one in list(self.links):
            one.look(now_us)
        self._see()
        change = self.reign.begin_change(now_us, self.journal.written)
        if change is not None:
            self.broker.group.heap.tell("change", self.broker.name, change.why)
            self._spawn(self._carry_out(change))
        self._release()
        self._remove()

    def _remove(self) -> None:
        """Remove the oldest segment, sometimes, if no connected follower needs it."""
        journal = self.journal
        first = journal.first + SEGMENT
        if self.broker.group.applies:  # what is applied is compared with a replay from nothing
            return
        if journal.end - first < KEPT_SEGMENTS * SEGMENT or first > journal.committed:
            return
        if any(one.sent is not None and one.sent < first for one in self.links):
            return
        try:
            self.broker.machine.blocking("removing a segment", journal.remove_first_segment)
        except JournalError as error:
            self._fail(error)
        self.broker.group.heap.reached("a segment removed")

    def _see(self) -> None:
        if self.reign.deposed and not self.deposed.is_set:
            self.deposed.set()
            self.broker.group.heap.reached("deposed")

    def learned(self, record: Leadership) -> None:
        """Take note of the record, as it was changed or read."""
        if not self._closed:
            self.reign.learned(record)
            self._see()
            self.commit()

    async def _look(self) -> None:
        found = await self.broker.read()
        if found is not None:
            self.learned(found)

    async def _begin_serving(self) -> None:
        """Let clients be served; in a group without a floor, once the first one is stored."""
        self.broker.group.fired("served", self._life)
        self.served = self._record.floor is not None
        await self._put_floor()
        self.served = self.served or self.reign.record.floor is not None

    async def _put_floor(self) -> None:
        """State in the record that this reign has begun."""
        await self._changing.acquire()
        record = self.reign.record
        await self.decided(
            msgspec.structs.replace(
                record,
                version=record.version + 1,
                writer=self.broker.records.writer(),
                floor=self._floor,
            )
        )
        self._changing.release()

    async def _carry_out(self, change: Change) -> None:
        """Change the members, and have the reign learn what became of it."""
        await self._changing.acquire()
        record = self.reign.record
        if record.version == change.replaces:
            grows = len(change.members) > len(record.members)
            self.broker.group.fired("grow" if grows else "shrink", self._life)
            await self.decided(
                msgspec.structs.replace(
                    record,
                    version=change.replaces + 1,
                    writer=self.broker.records.writer(),
                    members=change.members,
                )
            )
        else:
            self.withdraw()
        self._changing.release()

    def withdraw(self) -> None:
        """A change was never sent, since the record had changed before."""
        self.broker.group.heap.reached("a change that was never sent")

    async def decided(self, record: Leadership) -> None:
        """Ask for a change until it is known what became of it; both records count meanwhile."""
        while not self.deposed.is_set and not self._closed:
            outcome = await self.broker.records.change(record)
            if isinstance(outcome, Swapped):
                self.learned(record)
                return
            found = await self.broker.read()
            if found is not None:
                self.learned(found)
            if isinstance(outcome, Refused):
                return
            self.broker.group.heap.reached("a change of unknown outcome")
            await self._life.sleep(AGAIN_US)


class Link:
    """The connection of a follower, at the primary.

    Attributes:
        sent: Position up to which it was sent; None before the stream begins.
        broker: Who follows.
        synced: Position up to which its disk has the journal.
    """

    def __init__(self, reigning: Reigning, end: End) -> None:
        self.end = end
        self.sent: Position | None = None
        self.broker = ""
        self.synced = Position(0)
        self._reigning = reigning
        self._follower: Follower | None = None
        self._acked = Position(0)
        self._marked_us = -MARKS_US
        self._heard_us = reigning.broker.machine.now_us()
        end.side = self
        reigning.links.append(self)

    def received(self, message: object) -> None:
        """Take what the follower says."""
        now_us = self._reigning.broker.machine.now_us()
        self._heard_us = now_us
        if isinstance(message, Follow):
            self._begin(message, now_us)
        elif isinstance(message, Ack) and self.sent is not None:
            self._acknowledged(message, now_us)

    def lost(self) -> None:
        """Note that the connection is over."""
        self.cut()

    def cut(self) -> None:
        """Close the connection and forget it."""
        reigning = self._reigning
        if self not in reigning.links:
            return
        reigning.links.remove(self)
        self.end.close()
        if self._follower is not None:
            reigning.reign.went(self._follower)

    def _begin(self, follow: Follow, now_us: int) -> None:
        reigning = self._reigning
        journal, machine = reigning.journal, reigning.broker.machine
        reigning.reign.heard_of(follow.told)
        reigning._see()
        if reigning.reign.deposed or reigning._closed:
            self.cut()
            return
        matched, start = Position(NO_POSITION), journal.first
        for one in follow.checkpoints:
            end = end_if_held(
                machine.disk, one, first=journal.first, end=journal.written, segment_size=SEGMENT
            )
            if end is not None:
                matched, start = one.position, end
                break
        self.end.send(
            Followed(
                reigning.broker.name, reigning.epoch, journal.first, matched, start, now_us,
                reigning.broker.settings.lease_us,
            )
        )  # fmt: skip
        kind = Kind.SYNCED if reigning.broker.group.synced else Kind.MEMBER
        follower = reigning.reign.came(follow.broker, follow.incarnation, kind, now_us)
        for other in list(reigning.links):
            if other._follower is follower:
                other.cut()
        self._follower, self.sent, self._acked = follower, start, start
        self.broker = follow.broker
        self._marks(now_us)
        self.pump()

    def _acknowledged(self, ack: Ack, now_us: int) -> None:
        reigning = self._reigning
        assert self._follower is not None
        assert self.sent is not None
        told = Acknowledgement(
            epoch=ack.epoch,
            written=ack.written,
            synced=ack.synced,
            sent_us=ack.sent_us,
            promise_us=ack.promise_us,
        )
        try:
            reigning.reign.acknowledged(self._follower, told, now_us, self.sent)
        except StrangeAcknowledgement as error:
            reigning.broker.group.oracle.strange(error)
            self.cut()
            return
        self._acked, self.synced = ack.written, ack.synced
        reigning.commit()
        self.pump()

    def pump(self) -> None:
        """Send what the window allows."""
        reigning = self._reigning
        if self.sent is None or self not in reigning.links:
            return
        journal, machine = reigning.journal, reigning.broker.machine
        most = machine.heap.chance.choice((200, PIECE_BYTES, PIECE_BYTES))
        while self.sent < journal.written and self.sent - self._acked < WINDOW_BYTES:
            data, end = portion(machine.disk, self.sent, journal.written, SEGMENT, most)
            data = reigning.broker.group.on_the_way(data)
            self.end.send(Bytes(self.sent, reigning.epoch, data))
            self.sent = end

    def look(self, now_us: int) -> None:
        """Send MARKS if they are due; cut off who is silent."""
        if now_us - self._heard_us > PATIENCE_US:
            self.cut()
        elif self.sent is not None and now_us - self._marked_us >= MARKS_US:
            self._marks(now_us)

    def _marks(self, now_us: int) -> None:
        self._marked_us = now_us
        journal = self._reigning.journal
        self.end.send(
            Marks(
                self._reigning.epoch, journal.written, journal.durable, journal.committed,
                journal.first, now_us, self._reigning.broker.settings.lease_us,
            )
        )  # fmt: skip
