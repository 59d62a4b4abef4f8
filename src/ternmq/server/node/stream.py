"""The connection of a follower to the primary: what comes over it, what goes, its jobs.

Decides nothing about records: ``cluster.replication.following`` does.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol, cast

from ternmq.cluster.coordination.group import Presence
from ternmq.cluster.coordination.loss import Loss
from ternmq.cluster.replication.following import Accepted, Following, OldEpoch
from ternmq.cluster.replication.incoming import BadStream
from ternmq.cluster.replication.standing import Loyalty
from ternmq.journal.copy.copy import CommittedCut, Copy, CopySyncJob
from ternmq.journal.copy.indexing import CopyIndex, IndexJob
from ternmq.journal.index.run_jobs import RemoveJob, RunJob
from ternmq.journal.log.space import AllocateJob
from ternmq.journal.log.worker import Job
from ternmq.model.errors import (
    JournalError,
    JournalFull,
    ProtocolError,
    TernMQError,
)
from ternmq.model.types import Epoch, Position
from ternmq.server.node.applying import Applying
from ternmq.server.scrub.beside import settle
from ternmq.settings import Settings
from ternmq.settings.settings import Follower as FollowerKind
from ternmq.wire.bodies import Ack, Bytes, Marks
from ternmq.wire.control import Follow, Followed, Resign
from ternmq.wire.session import Refusal
from ternmq.wire.stream import FollowerStream

log = logging.getLogger("ternmq.cluster")

CONNECT_S: Final = 2.0
"""Longest wait for a connection to the primary, and for its answer."""
_LOOK_S: Final = 0.05
"""Interval at which a follower looks whether there is something to sync, and whether it is silent
at the other end."""
_UNKNOWN: Final = 1 << 62
_RETRY_US: Final = 1_000_000
"""Interval at which a disk that was full is looked at again."""


class Follower(Protocol):
    """What follows over a connection: the copy, and the threads that work on it."""

    settings: Settings
    incarnation: int
    loyalty: Loyalty
    copy: Copy | None
    index: CopyIndex | None
    journal: int
    loss: Loss | None
    applying: Applying
    now_us: Callable[[], int]

    def begin(self, followed: Followed) -> Copy:
        """Return the copy, for a stream that begins; blocks if it has to be made."""
        ...

    def submit(self, job: Job) -> None:
        """Run a job of the copy in a thread; the stream is told when it has ended."""
        ...

    def count_sync(self) -> None:
        """Count a sync that has ended."""
        ...

    def lacks(self, broker: str, epoch: Epoch, why: str) -> None:
        """Note that a primary lacks what this copy was told to be committed."""
        ...

    def was_cut(self, at: Position) -> None:
        """Note that the copy was cut at a position, while no job was at work."""
        ...

    def note_loss(self, before: Position, committed: Position) -> None:
        """Note a cut below the commit mark."""
        ...

    def hear_time(self, broker_time_us: int, commit: Position) -> None:
        """Note the primary's broker time, and its commit mark at that time."""
        ...


class Stream(asyncio.Protocol):
    """One connection to a primary. Loop only.

    Args:
        replica: What follows over it.
        there: The primary.
        follow: What is asked of it.

    Attributes:
        ended: Gets why the connection ended, or the error with which the copy ended.
        idle: Set while no job works on the copy.
        following: What is done with the stream; None before the primary has answered.
    """

    def __init__(self, replica: Follower, there: Presence, follow: Follow) -> None:
        self.loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[str] = self.loop.create_future()
        self.idle = asyncio.Event()
        self.idle.set()
        self._replica = replica
        self._there = there
        self._stream = FollowerStream()
        self._opening = self._stream.follow(follow)
        self._transport: asyncio.Transport | None = None
        self.following: Following | None = None
        self._jobs: set[Job] = set()
        self._scrubs: dict[Job, asyncio.Future[None]] = {}
        """Jobs of the scrub that run, and who waits for them."""
        self._coming: deque[Followed | Refusal | Bytes | Marks | Resign] = deque()
        """What came and was not taken: the copy has no room for it yet."""
        self._began_us = self._retried_us = replica.now_us()
        self._silent_us = int(CONNECT_S * 1e6)
        self._removed: tuple[Position, Position] = Position(0), Position(0)
        """Where the primary's journal begins, and how far it was durable when it said so first."""
        self._timer: asyncio.TimerHandle | None = None

    @property
    def epoch(self) -> int:
        """The epoch that is followed; 0: the stream has not begun."""
        return 0 if self.following is None else self.following.epoch

    @property
    def saved_bytes(self) -> int:
        """How many bytes fewer came than they have inflated."""
        return self._stream.saved_bytes

    # -- the connection ---------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send FOLLOW, unless the stream was ended while the connection was made."""
        self._transport = cast("asyncio.Transport", transport)
        if self.ended.done():
            self._transport.abort()
            return
        self._transport.write(self._opening)
        self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        """Note that the primary has closed the connection, or that it broke."""
        self.end(f"the connection to {self._there.broker} was lost" + (f": {exc}" if exc else ""))

    def end(self, why: str) -> None:
        """End the connection; jobs that run go on."""
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is not None:
            self._transport.abort()
        if not self.ended.done():
            self.ended.set_result(why)

    def _fail(self, error: JournalError) -> None:
        if not self.ended.done():
            self.ended.set_exception(error)
        self.end("")

    # -- what comes -------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Take what the primary sends, then acknowledge it."""
        try:
            self._coming.extend(self._stream.receive(data))
        except ProtocolError as error:
            self.end(f"{self._there.broker} sent what cannot be followed: {error}")
            return
        self._go_on()

    def _go_on(self) -> None:
        """Take what came; what has no room yet waits for the spare that is being made."""
        try:
            while self._coming and self._takes(self._coming[0]):
                self._coming.popleft()
            self._turn()
        except (ProtocolError, BadStream) as error:
            self.end(f"{self._there.broker} sent what cannot be followed: {error}")
        except JournalFull as error:
            self.end(f"the copy takes no more: {error}")
        except JournalError as error:
            self._fail(error)
        except CommittedCut as error:
            assert self.following is not None
            self._replica.lacks(self._there.broker, self.following.epoch, str(error))
            self.end(f"this copy cannot follow {self._there.broker}: {error}")
        except ValueError as error:
            self.end(f"this copy cannot follow {self._there.broker}: {error}")

    def _takes(self, event: Followed | Refusal | Bytes | Marks | Resign) -> bool:
        """Take an event; return whether there was room for its bytes."""
        transport = self._transport
        assert transport is not None
        try:
            self._take(event)
        except JournalFull:
            copy = self._replica.copy
            if copy is None or not copy.spare_is_coming:
                raise
            transport.pause_reading()
            return False
        transport.resume_reading()
        return True

    def _take(self, event: Followed | Refusal | Bytes | Marks | Resign) -> None:
        now_us, following, replica = self._replica.now_us(), self.following, self._replica
        match event:
            case Followed():
                self._begin(event, now_us)
            case Refusal(error=error):
                self.end(f"{self._there.broker} refuses this follower: {_text(error)}")
            case Bytes(position, epoch, records) if following is not None:
                self._records(following, Position(position), Epoch(epoch), records)
            case Marks() if following is not None:
                replica.hear_time(event.broker_time_us, Position(event.commit))
                following.marks(
                    commit=Position(event.commit),
                    durable=Position(event.durable),
                    end=Position(event.end),
                    sent_us=event.sent_at,
                    now_us=now_us,
                    lease_us=event.lease_ms * 1000,
                )
                if event.first > self._removed[0]:
                    self._removed = Position(event.first), Position(event.durable)
            case Resign():
                replica.loyalty.released(Epoch(event.epoch))
                self.end(f"{self._there.broker} resigns: {event.why}")

    def _records(
        self, following: Following, position: Position, epoch: Epoch, records: bytes
    ) -> None:
        replica, parted = self._replica, following.parted
        following.records(position, epoch, records, replica.now_us())
        if following.parted != parted and following.parted is not None:
            replica.was_cut(following.parted)
            if following.given_up is not None:
                replica.note_loss(following.given_up, following.parted)

    def _begin(self, followed: Followed, now_us: int) -> None:
        if followed.journal != self._replica.journal or followed.broker != self._there.broker:
            raise ProtocolError(
                f"{followed.broker} with journal {followed.journal:x} answered, not "
                f"{self._there.broker} with journal {self._replica.journal:x}"
            )
        if not self._replica.loyalty.may_follow(Epoch(followed.epoch)):
            raise OldEpoch(
                f"{followed.broker} leads epoch {followed.epoch}, and there was epoch "
                f"{self._replica.loyalty.told}"
            )
        copy = self._replica.begin(followed)
        accepted = Accepted(
            epoch=Epoch(followed.epoch),
            segment_bytes=followed.segment_bytes,
            first=Position(followed.first),
            matched=Position(followed.matched),
            start=Position(followed.start),
            sent_us=followed.now_us,
            lease_us=followed.lease_us,
            states=self._stream.states_promises,
        )
        self.following = Following(
            copy,
            self._replica.loyalty,
            accepted,
            synced_only=self._replica.settings.follower is FollowerKind.SYNCED,
            now_us=now_us,
            loss=self._replica.loss,
        )
        self._silent_us = followed.silent_us
        log.info("following %s, epoch %d, from %d to %d",
                 followed.broker, followed.epoch, followed.start, followed.end)  # fmt: skip

    # -- what goes --------------------------------------------------------------------------------

    def _turn(self) -> None:
        """Acknowledge what is new, and begin the jobs that are due."""
        following, transport = self.following, self._transport
        if following is None or transport is None or transport.is_closing():
            return
        now_us = self._replica.now_us()
        ack = following.ack(now_us)
        if ack is not None:
            told = Ack(
                epoch=ack.epoch,
                incarnation=self._replica.incarnation,
                written=ack.written,
                synced=ack.synced,
                applied=min(self._replica.applying.applied, ack.written),
                echo=ack.sent_us,
                promise_ms=ack.promise_us // 1000,
            )
            transport.write(self._stream.acknowledge(told))
        if not following.compares:  # a cut needs a copy on which nothing works
            self._begin_jobs(following, now_us)

    def _begin_jobs(self, following: Following, now_us: int) -> None:
        copy, index = self._replica.copy, self._replica.index
        assert copy is not None
        assert index is not None
        if following.wants_sync(now_us):
            self._submit(copy.next_sync())
        self._submit(copy.wants_spare())
        applying = self._replica.applying
        applying.look(copy, self._behind_bytes)
        if not applying.holds_files:
            self._submit(index.next_job(copy.first, copy.end))
        elif not index.at_work:
            self._submit(applying.next_job())

    @property
    def _behind_bytes(self) -> int:
        """How far the copy is behind the primary's end; very far before that was told."""
        following = self.following
        if following is None or not following.primary_end:
            return _UNKNOWN
        return max(0, following.primary_end - following.held)

    def _submit(self, job: Job | None) -> None:
        if job is not None:
            self._jobs.add(job)
            self.idle.clear()
            self._replica.submit(job)

    @property
    def may_scrub(self) -> bool:
        """Whether jobs of the scrub may work on the copy: it is certainly not cut meanwhile."""
        following = self.following
        return following is not None and not following.compares and not self.ended.done()

    async def scrub(self, job: Job) -> None:
        """Run a job of the scrub in a thread; raises its error."""
        ended = self._scrubs[job] = self.loop.create_future()
        self._submit(job)
        await ended

    def finished(self, job: Job, error: Exception | None) -> None:
        """Note how a job of the copy has ended."""
        copy, following = self._replica.copy, self.following
        assert copy is not None
        assert following is not None
        self._jobs.discard(job)
        if not self._jobs:
            self.idle.set()
        if job in self._scrubs:
            settle(self._scrubs.pop(job), error)
        elif isinstance(job, AllocateJob):
            if error is None:
                copy.spare_ready(job)
            else:
                copy.spare_failed(job, error)
                log.warning("no spare segment for the copy: %s", error)
        elif isinstance(job, IndexJob):
            if error is not None:
                log.warning("no index of the segment at %d of the copy: %s", job.base, error)
            assert self._replica.index is not None
            self._replica.index.finished(job)
        elif isinstance(job, RunJob | RemoveJob):
            if error is not None:
                log.warning("a file of the copy's index cannot be changed: %s", error)
            self._replica.applying.finished(job, error)
        elif isinstance(job, CopySyncJob):
            if error is not None:
                copy.failed(error)
                self._fail(JournalError(f"a sync of the copy failed: {error}"))
                return
            copy.synced(job)
            following.synced(self._replica.now_us())
            self._replica.count_sync()
        if not self.ended.done():
            self._go_on()

    def _look(self) -> None:
        """Look a few times a second what is due, and whether the primary is silent."""
        now_us = self._replica.now_us()
        heard_us = self._began_us if self.following is None else self.following.heard_us
        if now_us - heard_us >= self._silent_us:
            self.end(f"{self._there.broker} is silent")
            return
        try:
            copy = self._replica.copy
            if copy is not None and now_us - self._retried_us >= _RETRY_US:
                self._retried_us = now_us
                copy.retry_spare()
            self._turn()
            self._remove()
        except JournalError as error:
            self._fail(error)
            return
        self._timer = self.loop.call_later(_LOOK_S, self._look)

    def _remove(self) -> None:
        """Remove segments that the primary has removed, once what takes their place is durable."""
        copy, (first, needs) = self._replica.copy, self._removed
        if copy is None or self._jobs or first <= copy.first or copy.durable < needs:
            return
        applying = self._replica.applying
        if not applying.may_remove(first, needs, self._behind_bytes):
            return
        with contextlib.suppress(ValueError):  # the copy does not reach there yet
            copy.remove_below(first, needs=needs)
            applying.removed(copy.first)
            assert self._replica.index is not None
            self._replica.index.removed(copy.first)


def _text(error: TernMQError) -> str:
    return str(error.args[0]) if error.args else type(error).__name__
