"""What a follower does with the stream of a primary, and what it acknowledges.

    stream begins            copy ends
         |   what both have      |   what only the primary has
         v                       v
    -----|=======================|------------------------------->
          compared, not written    written, acknowledged, synced

The stream may begin before the copy ends, at a record that both have. Records up to the copy's end
are compared with those of the copy. From the first one that differs on, the copy is cut: another
reign has written it, and nobody was answered for it. A cut below the commit mark that this copy was
told is refused, since it would take back an answer, unless an operator accepted that (``loss``).
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ternmq.cluster.coordination.loss import Loss
from ternmq.cluster.replication.incoming import BadStream, Incoming, Piece
from ternmq.cluster.replication.settings import LONGEST_LEASE_US
from ternmq.cluster.replication.standing import Loyalty
from ternmq.journal.copy.copy import Copy
from ternmq.journal.log.checkpoint import Checkpoint
from ternmq.model.errors import JournalFull
from ternmq.model.types import NO_POSITION, Epoch, Position
from ternmq.record.fact.header import HEADER, HEADER_BYTES, Kind

SYNC_BYTES: Final = 4 << 20
"""So many bytes are synced at once; fewer after ``SYNC_US``."""
SYNC_US: Final = 100_000
_PAD: Final = int(Kind.PAD)


class Accepted(NamedTuple):
    """The answer of a primary to FOLLOW, as this module needs it.

    Attributes:
        epoch: Of its reign.
        segment_bytes: Of every segment of the journal.
        first: Base of its oldest segment.
        matched: Position of the record that both have, before the stream; ``NO_POSITION``: none.
        start: Where the stream begins.
        sent_us: Time of the primary's clock.
        lease_us: Time for which it asks to be promised, with every acknowledgement.
        states: Whether an acknowledgement states what it promises, and MARKS what is asked for
            (version 2 of the stream). Else each one promises ``lease_us``.
    """

    epoch: Epoch
    segment_bytes: int
    first: Position
    matched: Position
    start: Position
    sent_us: int
    lease_us: int
    states: bool = True


class Ack(NamedTuple):
    """What the follower acknowledges now; see ``follower.Acknowledgement``."""

    epoch: Epoch
    written: Position
    synced: Position
    sent_us: int
    promise_us: int


class OldEpoch(BadStream):
    """The primary is of an epoch below one that this process knows of; it must not be followed."""


class Following:
    """A follower's side of one connection. Not thread-safe; for the broker's loop.

    Args:
        copy: The copy on this disk, with no job at work. Nobody else changes it meanwhile.
        loyalty: What this process has promised, over all its connections.
        accepted: The primary's answer.
        synced_only: Acknowledge only what the disk has, and nothing before the epoch is stored.
            Promise no more than what the disk says: another life must keep it.
        now_us: The time, of a clock that nobody sets.
        loss: The loss that an operator accepted last, as the leadership record has it.

    Attributes:
        epoch: The epoch that is followed.
        commit: The primary's commit mark, as it was told last.
        durable: What its disk has, as it was told last.
        primary_end: End of the primary's journal, as it was told last.
        heard_us: When something was received last.
        parted: Position at which the copy was cut, because the histories part there; None: it was
            not cut.
        given_up: The commit mark that the copy was told before it was cut below it, since an
            operator accepted that; None: it was not.

    Raises:
        OldEpoch: It must not follow this primary.
        BadStream: The answer does not fit the copy.
    """

    def __init__(
        self,
        copy: Copy,
        loyalty: Loyalty,
        accepted: Accepted,
        *,
        synced_only: bool,
        now_us: int,
        loss: Loss | None = None,
    ) -> None:
        if not loyalty.may_follow(accepted.epoch):
            raise OldEpoch(
                f"the primary is of epoch {accepted.epoch}, and there was epoch {loyalty.told}"
            )
        loyalty.hears_of(accepted.epoch)
        self.epoch = accepted.epoch
        self.commit = self.durable = self.primary_end = Position(0)
        self.heard_us = now_us
        self.parted: Position | None = None
        self.given_up: Position | None = None
        self._copy = copy
        self._loyalty = loyalty
        self._synced_only = synced_only
        self._loss = loss
        self._sent_us = accepted.sent_us
        self._lease_us = _bounded(accepted.lease_us)
        self._states = accepted.states
        self._acked = Ack(accepted.epoch, Position(0), Position(0), -1, 0)
        copy.tell(told=accepted.epoch)
        self._unsynced_us: int | None = None if self._stored else now_us
        self._incoming = self._begin(accepted)
        self._plan_promise(now_us)

    @property
    def held(self) -> Position:
        """Position up to which the copy is known to be the primary's."""
        return self._incoming.end

    @property
    def compares(self) -> bool:
        """Whether the copy has records that were not compared with the primary's yet."""
        return self._incoming.end < self._copy.end

    @property
    def _stored(self) -> bool:
        """Whether the epoch is on the disk, as far as that matters."""
        return not self._synced_only or self._copy.stated.told >= self.epoch

    # -- what is received ------------------------------------------------------------------------

    def records(self, position: Position, epoch: Epoch, data: bytes, now_us: int) -> None:
        """Compare or write records.

        Raises:
            BadStream: They are not what follows; nothing of them was written.
            JournalFull: The copy has no room for them, or not yet (``Copy.spare_is_coming``).
                Nothing of them was written: the same call may pass later.
            CommittedCut: The primary lacks what this copy was told to be committed, and nobody
                accepted the loss; nothing was changed.
            JournalError: The copy cannot go on.
        """
        self.heard_us = now_us
        incoming, copy = self._incoming, self._copy
        before = incoming.place
        pieces = incoming.take(position, epoch, data)
        if position < copy.end:
            pieces = self._differing(position, data, pieces)
        if pieces:
            try:
                self._write(pieces)
            except JournalFull:
                incoming.place = before
                raise
            if self._unsynced_us is None:
                self._unsynced_us = now_us
        self._tell()

    def marks(
        self,
        *,
        commit: Position,
        durable: Position,
        end: Position,
        sent_us: int,
        now_us: int,
        lease_us: int = 0,
    ) -> None:
        """Note what the primary says of itself, and which promise it asks for; 0: as before."""
        self.heard_us = now_us
        if lease_us:
            self._lease_us = _bounded(lease_us)
        self._plan_promise(now_us)
        self.commit = max(self.commit, commit)
        self.durable, self.primary_end = durable, end
        self._sent_us = max(self._sent_us, sent_us)
        self._tell()

    # -- what is sent and synced -----------------------------------------------------------------

    def ack(self, now_us: int) -> Ack | None:
        """Return what is to be acknowledged now; None if nothing is new.

        With it the process promises not to stand for primary for a while, so send it at once.
        """
        copy = self._copy
        if copy.failure is not None:
            return None  # what its file holds is not known any more
        # What was not compared yet may be of another reign.
        synced = min(copy.durable, self.held)
        promise_us = self._promise_us
        ack = Ack(self.epoch, self.held, synced, self._sent_us, promise_us)
        if ack == self._acked or not self._stored or not promise_us:
            return None  # of the last two: a sync is on its way, which stores them
        self._acked = ack
        self._loyalty.promises(now_us, promise_us)
        return ack

    def wants_sync(self, now_us: int) -> bool:
        """Return whether what was written is to be synced now."""
        if self._unsynced_us is None:
            return False
        return (
            self._synced_only
            or now_us - self._unsynced_us >= SYNC_US
            or self._copy.end - self._copy.durable >= SYNC_BYTES
        )

    def synced(self, now_us: int) -> None:
        """Note that a sync, which stores the epoch as well, has ended.

        What was written since, or is to be promised, waits for the next one.
        """
        copy = self._copy
        whole = copy.durable >= copy.end and copy.stated.promise_ms == copy.promise_ms
        self._unsynced_us = None if whole else now_us

    # -- what is promised ------------------------------------------------------------------------

    @property
    def _promise_us(self) -> int:
        """What an acknowledgement may promise now; 0: nothing, so it may not be sent."""
        if not self._synced_only:
            return self._lease_us
        stored_us = self._copy.stored_promise_ms * 1000
        if stored_us < self._lease_us and not self._states:
            return 0
        return min(self._lease_us, stored_us)

    def _plan_promise(self, now_us: int) -> None:
        """Have the copy state what this process will promise, if another life must keep it.

        A larger number is written before the first acknowledgement that needs it. A smaller one is
        written when everything that was promised ends no later than a promise that is made now.
        """
        if not self._synced_only:
            return
        copy, promise_ms = self._copy, -(-self._lease_us // 1000)
        if self._loyalty.until_us > now_us + self._lease_us:
            promise_ms = max(promise_ms, copy.promise_ms)
        if promise_ms != copy.promise_ms:
            copy.tell(promise_ms=promise_ms)
            if self._unsynced_us is None:
                self._unsynced_us = now_us

    # -- inside ----------------------------------------------------------------------------------

    def _begin(self, accepted: Accepted) -> Incoming:
        """Return the check of a stream that begins where the primary says."""
        copy, start = self._copy, accepted.start
        if copy.segment_size != accepted.segment_bytes:
            raise BadStream(
                f"the primary has segments of {accepted.segment_bytes} bytes, and the copy of "
                f"{copy.segment_size}"
            )
        last_crc: int | None = None if start else 0
        last_epoch = Epoch(0)
        if accepted.matched != NO_POSITION:
            own = copy.record(accepted.matched)
            if own is None or own.end != start:
                raise BadStream(f"no record of the copy from {accepted.matched} to {start}")
            last_crc, last_epoch = own.crc, Epoch(own.epoch)
        if not copy.first <= start <= copy.end:
            raise BadStream(
                f"the stream begins at {start}, and the copy has {copy.first} to {copy.end}"
            )
        return Incoming(
            segment_size=copy.segment_size,
            end=start,
            last_crc=last_crc,
            last_epoch=last_epoch,
            followed=accepted.epoch,
        )

    def _differing(self, position: Position, data: bytes, pieces: list[Piece]) -> list[Piece]:
        """Return the pieces from the first record on that the copy does not have, cutting it there.

        Records that the copy has as well are not written again.
        """
        copy, at, index = self._copy, position, 0
        while index < len(data) and at < copy.end:
            crc, _, length, _, kind, *_ = HEADER.unpack_from(data, index)
            own = copy.record(at)
            if own is None or own.crc != crc:
                committed = copy.committed
                copy.cut(at, accept_loss=at >= self._promised)
                self.parted = at
                if at < committed:
                    self.given_up = committed
                break
            at = Position(at + length)
            index += HEADER_BYTES if kind == _PAD else length
        return [clipped for one in pieces if (clipped := _clip(one, at)).data]

    @property
    def _promised(self) -> Position:
        """Position below which the copy must not be cut."""
        return promised(self._copy, self._loss, self.epoch)

    def _tell(self) -> None:
        """Have the copy remember how far it is known to be committed."""
        self._copy.tell(committed=min(self.commit, self.held), told=self._loyalty.told)

    def _write(self, pieces: list[Piece]) -> None:
        incoming = self._incoming
        last = Checkpoint(incoming.last_position, incoming.last_epoch, incoming.last_crc or 0)
        self._copy.write(pieces, end=incoming.end, last=last)


def promised(copy: Copy, loss: Loss | None, followed: Epoch) -> Position:
    """Return below which position a copy must not be cut.

    Args:
        copy: The copy.
        loss: The loss that an operator accepted last; None: none was.
        followed: Epoch of the primary that lacks what is to be cut.
    """
    if loss is None:
        return copy.committed
    return loss.promised(copy.committed, copy.last_epoch, followed)


def _bounded(lease_us: int) -> int:
    """Return the promise that is given if this one is asked for."""
    return max(1000, min(lease_us, LONGEST_LEASE_US))


def _clip(piece: Piece, at: Position) -> Piece:
    """Return the part of a piece from a position on, which may be all or nothing of it."""
    skipped = at - piece.position
    if skipped <= 0:
        return piece
    return Piece(at, piece.data[skipped:])
