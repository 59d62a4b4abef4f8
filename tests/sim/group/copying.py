"""A process as a follower: ``follower`` and ``stream`` of ``server.node``; events, no threads."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from ternmq.broker.standby import Standby
from ternmq.cluster.coordination.loss import Loss
from ternmq.cluster.replication.following import Accepted, Following, promised
from ternmq.cluster.replication.incoming import BadStream
from ternmq.journal.copy.copy import Copy, CopySyncJob
from ternmq.journal.log.checkpoint import Checkpoint
from ternmq.journal.log.space import AllocateJob
from ternmq.journal.log.worker import Job
from ternmq.journal.recovery.ending import Ending
from ternmq.journal.recovery.recovery import Replayed
from ternmq.model.errors import DiskError, JournalError, JournalFull
from ternmq.model.specs import Limits
from ternmq.model.types import Epoch, Position
from tests.sim.disk import SimFile
from tests.sim.group.heap import Future
from tests.sim.group.messages import Ack, Bytes, Follow, Followed, Marks, Resign
from tests.sim.group.net import End
from tests.sim.tape import Violation

if TYPE_CHECKING:
    from tests.sim.group.broker import Broker

SEGMENT: Final = 8192
RESERVE: Final = SEGMENT
LOOK_US: Final = 50_000
IDLE_US: Final = 2_000_000
LIMITS: Final = Limits(producer_idle_us=IDLE_US, dedup_window_us=1_000_000)
RETRY_US: Final = 1_000_000
SILENT_US: Final = 2_000_000
SYNC_US: Final = (100, 1000, 4000, 30_000)


class Successor(NamedTuple):
    """What a reign takes over from the follower that its broker was."""

    standby: Standby
    ending: Ending

    def replayed(self) -> Replayed:
        """Apply the rest of the copy."""
        self.standby.catch_up(self.ending.valid_end)
        return self.standby.ready(self.ending).replayed


class Replica:
    """The copy on this machine, and what copies into it."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.copy: Copy | None = None
        self.stream: Stream | None = None
        self.loss: Loss | None = None
        self.gave_up = False
        self.standby: Standby | None = None

    def open(self) -> None:
        """Open the copy in the folder, or turn the folder's journal into one."""
        machine, loyalty = self.broker.machine, self.broker.loyalty
        self.copy = machine.blocking(
            "opening a copy", lambda: Copy.open(machine.disk, reserve_bytes=RESERVE)
        )
        if self.copy is not None:
            loyalty.hears_of(self.copy.told)
            loyalty.hears_of(self.copy.last_epoch)
            loyalty.remembers(self.copy.promise_ms * 1000)
            self.copy.tell(committed=self.broker.committed)
            self.broker.group.oracle.opened(self.broker, self.copy)

    @property
    def bound(self) -> Position:
        """Up to which position the copy may be applied."""
        assert self.copy is not None
        return min(self.copy.committed, self.copy.end)

    def apply(self) -> None:
        """Apply some of what is committed."""
        machine, copy = self.broker.machine, self.copy
        if copy is None or not self.broker.group.applies or not self.bound:
            return
        chance = machine.heap.chance
        if self.standby is None:
            self.standby = Standby(machine.disk, LIMITS, segment_size=SEGMENT, first=copy.first)
            self.standby.load(self.bound)
            machine.heap.reached("views of a copy loaded")
        left = chance.choice((0, 1, 100))

        def may_go_on() -> bool:
            nonlocal left
            left -= 1
            return left >= 0

        self.standby.apply(self.bound, may_go_on)
        if chance.random() < 0.01:
            self.broker.group.oracle.applied(self.broker, self.standby, copy.committed)

    def was_cut(self, at: Position) -> None:
        """Note that the copy was cut at a position: views of what was cut are thrown away."""
        if self.standby is not None and self.standby.applied > at:
            self.broker.machine.heap.reached("views thrown away after a cut")
            self.forget()

    def forget(self) -> None:
        """Throw the views away."""
        standby, self.standby = self.standby, None
        if standby is not None:
            standby.close()

    def hand_over(self) -> Successor | None:
        """Return the views for the reign that may begin, and where the copy ends."""
        standby, self.standby = self.standby, None
        copy = self.copy
        if standby is None or copy is None or copy.last is None:
            return None
        return Successor(standby, copy.ending())

    def begin(self, followed: Followed) -> Copy:
        """Return the copy, for a stream that begins."""
        machine, copy = self.broker.machine, self.copy
        accepted = accepted_of(followed)
        if copy is not None and not copy.leads_to(accepted.first, accepted.matched):
            machine.heap.reached("a copy is made anew")
            discarded, committed = copy, copy.committed
            self.forget()
            left = promised(copy, self.loss, followed.epoch)
            machine.blocking(
                "emptying a copy", lambda: discarded.discard(accepted.first, promised=left)
            )
            if left < committed:
                self.gave_up = True
                self.broker.group.oracle.emptied(self.broker)
            copy = self.copy = None
        if copy is None:
            copy = machine.blocking(
                "making a copy",
                lambda: Copy.make(
                    machine.disk,
                    first=followed.first,
                    segment_size=SEGMENT,
                    told=followed.epoch,
                    reserve_bytes=RESERVE,
                ),
            )
        self.copy = copy
        return copy

    def follow(self, end: End) -> Stream:
        """Begin to copy over a connection."""
        copy = self.copy
        epoch = Epoch(0) if self.loss is None else self.loss.epoch
        checkpoints = (
            [] if copy is None
            else copy.checkpoints(promised=promised(copy, self.loss, epoch))
        )  # fmt: skip
        self.stream = Stream(self, end)
        self.stream.opening(checkpoints)
        return self.stream

    def sync_all(self) -> None:
        """Make everything durable that was copied."""
        if self.copy is not None:
            self.broker.machine.blocking("the sync before standing", self.copy.sync_all)

    def close(self) -> None:
        """Close the files."""
        self.forget()
        if self.copy is not None:
            self.copy.close()
            self.copy = None


def accepted_of(followed: Followed) -> Accepted:
    """Return the answer to FOLLOW as the core takes it."""
    return Accepted(
        epoch=followed.epoch,
        segment_bytes=SEGMENT,
        first=followed.first,
        matched=followed.matched,
        start=followed.start,
        sent_us=followed.now_us,
        lease_us=followed.lease_us,
    )


class Stream:
    """One connection to a primary.

    Attributes:
        ended: Why it ended.
        idle: There while no job works on the copy.
        end: Its end of the connection.
    """

    def __init__(self, replica: Replica, end: End) -> None:
        self.ended: Future[str] = Future()
        self.idle: Future[None] = Future()
        self.idle.set(None)
        self.following: Following | None = None
        self.end = end
        self._replica = replica
        self._broker = replica.broker
        self._life = replica.broker.life
        self._jobs: set[Job] = set()
        self._coming: deque[object] = deque()
        self._began_us = self._retried_us = self._now_us()
        self._removed = (Position(0), Position(0))
        end.side = self
        if not end.open:
            self._life.after(0, self.lost)

    def _now_us(self) -> int:
        return self._broker.machine.now_us()

    # -- the connection ---------------------------------------------------------------------------

    def opening(self, checkpoints: Sequence[Checkpoint]) -> None:
        """Send FOLLOW."""
        copy, broker = self._replica.copy, self._broker
        self.end.send(
            Follow(
                broker.name,
                self._life.incarnation,
                broker.loyalty.told,
                0 if copy is None else copy.end,
                list(checkpoints),
            )
        )
        self._life.after(LOOK_US, self._look)

    def lost(self) -> None:
        """Note that the connection is over."""
        self.stop("the connection was lost")

    def stop(self, why: str) -> None:
        """End the connection; jobs that run go on."""
        self.end.close()
        self.ended.set(why)

    def _fail(self, error: Exception) -> None:
        self.stop(f"failed: {error}")
        self._broker.fails(error)

    # -- what comes -------------------------------------------------------------------------------

    def received(self, message: object) -> None:
        """Take what the primary sends, then acknowledge it."""
        self._coming.append(message)
        self._go_on()

    def _go_on(self) -> None:
        """Take what came; what finds no room waits for the spare that is being made."""
        if self.ended.done:
            return
        try:
            while self._coming and self._takes(self._coming[0]):
                self._coming.popleft()
            self._turn()
        except BadStream as error:
            self._broker.group.heap.reached("a stream that cannot be followed")
            self._broker.group.oracle.bad_stream(self._broker, error)
            self.stop(f"cannot be followed: {error}")
        except JournalFull as error:
            self._broker.group.heap.reached("the copy takes no more")
            self.stop(f"the copy takes no more: {error}")
        except JournalError as error:
            self._fail(error)
        except ValueError as error:
            raise Violation(f"{self._broker.name} cannot follow: {error}") from error

    def _takes(self, message: object) -> bool:
        """Take a message; return whether there was room."""
        try:
            self._take(message)
        except JournalFull:
            copy = self._replica.copy
            if copy is None or not copy.spare_is_coming:
                raise
            self._broker.group.heap.reached("the copy waits for a spare")
            return False
        return True

    def _take(self, message: object) -> None:
        now_us, following = self._now_us(), self.following
        match message:
            case Followed():
                self._begin(message, now_us)
            case Bytes(position, epoch, data) if following is not None:
                self._records(following, position, epoch, data, now_us)
            case Marks() if following is not None:
                following.marks(
                    commit=message.commit,
                    durable=message.durable,
                    end=message.end,
                    sent_us=message.sent_us,
                    now_us=now_us,
                    lease_us=message.lease_us,
                )
                if message.first > self._removed[0]:
                    self._removed = message.first, message.durable
            case Resign():
                self._broker.loyalty.released(message.epoch)
                self._broker.group.heap.reached("a primary resigned")
                self.stop("it resigns")

    def _records(
        self, following: Following, position: Position, epoch: int, data: bytes, now_us: int
    ) -> None:
        machine, copy = self._broker.machine, self._replica.copy
        assert copy is not None
        if not following.compares:
            following.records(position, epoch, data, now_us)  # type: ignore[arg-type]
            return
        before = copy.end
        had = machine.in_file(copy.first, copy.end, SEGMENT)
        machine.blocking(
            "comparing and cutting",
            lambda: following.records(position, epoch, data, now_us),  # type: ignore[arg-type]
        )
        if copy.end < before or not following.compares:
            machine.heap.reached("histories compared")
        if following.parted is not None:
            self._replica.was_cut(following.parted)
        if following.given_up is not None and following.parted is not None:
            self._replica.gave_up = True
            self._broker.group.oracle.gave_up(
                self._broker, following.parted, had[following.parted - copy.first :]
            )
            following.given_up = None

    def _begin(self, followed: Followed, now_us: int) -> None:
        copy = self._replica.begin(followed)
        self.following = Following(
            copy,
            self._broker.loyalty,
            accepted_of(followed),
            synced_only=self._broker.group.synced,
            now_us=now_us,
            loss=self._replica.loss,
        )
        if copy.end > followed.start:
            self._broker.group.heap.reached("a stream begins before the copy's end")
        self._broker.group.oracle.follows(self._broker, followed.epoch)

    # -- what goes --------------------------------------------------------------------------------

    def _turn(self) -> None:
        """Acknowledge what is new, and begin the jobs that are due."""
        following = self.following
        if following is None or not self.end.open:
            return
        now_us = self._now_us()
        ack = following.ack(now_us)
        if ack is not None:
            self.end.send(Ack(*ack))
            self._broker.group.fired("ack", self._life)
        if not following.compares:
            copy = self._replica.copy
            assert copy is not None
            if following.wants_sync(now_us):
                self._submit(copy.next_sync())
            self._submit(copy.wants_spare())
            self._replica.apply()

    def _submit(self, job: CopySyncJob | AllocateJob | None) -> None:
        if job is None:
            return
        self._jobs.add(job)
        if self.idle.done:
            self.idle = Future()
        if isinstance(job, CopySyncJob):
            for file in job.files:
                assert isinstance(file, SimFile)
                file.begin_sync()
        delay_us = self._broker.group.heap.chance.choice(SYNC_US)
        self._life.after(delay_us, lambda: self._run(job))

    def _run(self, job: CopySyncJob | AllocateJob) -> None:
        """Do a job, and note how it has ended."""
        error: DiskError | None = None
        try:
            self._broker.machine.blocking(
                "a sync of the copy" if isinstance(job, CopySyncJob) else "a spare", job.run
            )
        except DiskError as failure:
            error = failure
        copy, following = self._replica.copy, self.following
        assert copy is not None
        assert following is not None
        self._jobs.discard(job)
        if isinstance(job, AllocateJob):
            if error is None:
                copy.spare_ready(job)
            else:
                copy.spare_failed(job, error)
        elif error is not None:
            copy.failed(error)
            self._fail(error)
            return
        else:
            copy.synced(job)
            following.synced(self._now_us())
        if not self._jobs:
            self.idle.set(None)
        self._go_on()

    def _look(self) -> None:
        """Look a few times a second what is due, and whether the primary is silent."""
        if self.ended.done:
            return
        now_us = self._now_us()
        heard_us = self._began_us if self.following is None else self.following.heard_us
        if now_us - heard_us >= SILENT_US:
            self.stop("it is silent")
            return
        try:
            if now_us - self._retried_us >= RETRY_US and self._replica.copy is not None:
                self._retried_us = now_us
                self._replica.copy.retry_spare()
            self._turn()
            self._remove()
        except JournalError as error:
            self._fail(error)
            return
        self._life.after(LOOK_US, self._look)

    def _remove(self) -> None:
        """Remove segments that the primary has removed, once what takes their place is durable."""
        copy, (first, needs) = self._replica.copy, self._removed
        if copy is None or self._jobs or first <= copy.first or copy.durable < needs:
            return
        try:
            self._broker.machine.blocking(
                "removing segments of a copy", lambda: copy.remove_below(first, needs=needs)
            )
            self._broker.group.heap.reached("segments of a copy removed")
        except ValueError:  # the copy does not reach there yet
            pass
