"""The connection of one follower: frames in and out, its end.

It takes a connection over from the port for clients, when its first frame was FOLLOW. From then on
it has no budget and no limit of a client's: the window bounds what is sent, and a follower sends
nothing but small acknowledgements. One that breaks the protocol, or acknowledges what cannot be, is
cut off; it comes again, and goes on where its copy ends.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Final, Protocol

from msgspec import UNSET

from ternmq.cluster.replication.follower import Acknowledgement, Follower
from ternmq.cluster.replication.outgoing import Outgoing, Wanted
from ternmq.cluster.replication.packing import Packing
from ternmq.cluster.replication.reign import StrangeAcknowledgement
from ternmq.cluster.replication.settings import FIRST_LEASE_US
from ternmq.cluster.replication.tail import Portion
from ternmq.model.errors import ProtocolError, TernMQError
from ternmq.model.types import Epoch, Position
from ternmq.record.batch.compress import compress_frame
from ternmq.wire.bodies import Ack, Marks
from ternmq.wire.control import Follow, Followed, Resign
from ternmq.wire.stream import PrimaryStream

log = logging.getLogger("ternmq.server.replication")

_JOINED_BYTES: Final = 64 << 10
"""Frames that are smaller together are joined: a copy costs less than a call of the system."""
_AT_ONCE_BYTES: Final = 4 << 20
"""Most bytes that are written in one go; others have a turn of the loop then."""
_FAREWELL_S: Final = 2.0
"""Seconds after which a closed connection is aborted, if it still exists."""


class Owner(Protocol):
    """The primary, as its links need it."""

    def now_us(self) -> int:
        """Return the time of the primary's clock."""
        ...

    def marks(self, now_us: int) -> Marks:
        """Return how far the primary is."""
        ...

    def acknowledge(self, link: Link, told: Acknowledgement, sent_us: int) -> None:
        """Take an acknowledgement of what was sent to a follower, the newest time ``sent_us``.

        Raises:
            StrangeAcknowledgement: It cannot be true.
        """
        ...

    def acknowledged(self) -> None:
        """Move the commit mark, after all acknowledgements that came together."""
        ...

    def read(self, link: Link, wanted: Wanted) -> None:
        """Have a piece read; ``Link.was_read`` or ``Link.cut`` follows."""
        ...

    def lost(self, link: Link) -> None:
        """Forget a link; called once."""
        ...


class Link(asyncio.Protocol):
    """A follower's connection. Not thread-safe: call it from the broker's loop.

    Args:
        owner: The primary.
        transport: The connection; it is taken over here.
        follow: The follower's FOLLOW.
        id_: The id of its frame.
        address: The other side's address, for logs and lists.
        loop: The event loop.

    Attributes:
        closed: It is over.
        follower: What the reign knows of it; None before the stream has begun.
        outgoing: What it is sent; None before the stream has begun.
        heard_us: When it acknowledged last, or came.
        synced: Position up to which it says that its disk has the journal.
        applied: Position up to which it says that its state has the journal.
    """

    def __init__(
        self,
        owner: Owner,
        transport: asyncio.Transport,
        follow: Follow,
        id_: int,
        address: str,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.follow = follow
        self.address = address
        self.closed = False
        self.follower: Follower | None = None
        self.outgoing: Outgoing | None = None
        self.heard_us = owner.now_us()
        self.synced = self.applied = Position(0)
        self._sent_us = 0
        self._epoch = 0
        self._owner = owner
        self._transport = transport
        self._stream = PrimaryStream(id_)
        self._loop = loop
        self._goes_on = False
        self._packing: Packing | None = None
        self._packs = False
        transport.set_protocol(self)

    def __str__(self) -> str:
        return f"follower {self.follow.broker} at {self.address}"

    # -- the opening ------------------------------------------------------------------------------

    def refuse(self, error: TernMQError) -> None:
        """Refuse FOLLOW, and close."""
        level = logging.INFO if error.retriable else logging.WARNING
        log.log(level, "%s was refused: %s", self, error)
        self._transport.write(self._stream.refuse(error))
        self._close()

    def begin(self, follower: Follower, outgoing: Outgoing, followed: Followed) -> None:
        """Answer FOLLOW; the stream begins."""
        self.follower, self.outgoing = follower, outgoing
        self._sent_us = followed.now_us
        self._epoch = followed.epoch
        if followed.compress is not UNSET:
            self._packing = Packing()
        log.info("%s follows from position %d (%s)", self, followed.start, follower.kind.value)
        self._transport.write(self._stream.answer(followed))
        self.pump()

    # -- out --------------------------------------------------------------------------------------

    def pump(self) -> None:
        """Send what may be sent, and MARKS behind it."""
        outgoing = self.outgoing
        if self.closed or outgoing is None:
            return
        frames: list[bytes] = []
        size = 0
        while size < _AT_ONCE_BYTES:
            step = None if self._packs else outgoing.next()
            if step is None:
                break
            if isinstance(step, Wanted):
                self._owner.read(self, step)
                continue
            if self._packing is not None and self._packing.wants(len(step.data)):
                self._pack(step)
                break
            frames.append(self._stream.bytes_head(step.position, self._epoch, len(step.data)))
            frames.append(step.data)
            size += len(step.data)
        else:
            if not self._goes_on:
                self._goes_on = True
                self._loop.call_soon(self._go_on)
        if frames:
            frames.append(self._marks(self._owner.now_us()))
            self._write(frames, size)

    def _pack(self, portion: Portion) -> None:
        """Compress a piece in a thread; what follows it waits, and nobody else does."""
        self._packs = True
        packed = self._loop.run_in_executor(None, compress_frame, portion.data)
        packed.add_done_callback(partial(self._packed, portion))

    def _packed(self, portion: Portion, packed: asyncio.Future[bytes]) -> None:
        """Send a piece that was compressed, and MARKS behind it."""
        self._packs = False
        if packed.cancelled() or self.closed:
            return
        error = packed.exception()
        if error is not None:
            self.cut(f"its next piece cannot be compressed: {error}")
            return
        raw, data = portion.data, packed.result()
        assert self._packing is not None
        inflated = len(raw)
        if not self._packing.shrank(len(raw), len(data)):
            data, inflated = raw, 0
        head = self._stream.bytes_head(portion.position, self._epoch, len(data), inflated)
        self._write([head, data, self._marks(self._owner.now_us())], len(data))
        self.pump()

    def look(self, now_us: int) -> None:
        """Send MARKS if they are due."""
        if not self.closed and self.outgoing is not None and self.outgoing.marks_due(now_us):
            self._transport.write(self._marks(now_us))

    def was_read(self, portion: Portion) -> None:
        """Send a piece that was read."""
        if not self.closed and self.outgoing is not None:
            self.outgoing.was_read(portion)
            self.pump()

    def _go_on(self) -> None:
        self._goes_on = False
        self.pump()

    def _marks(self, now_us: int) -> bytes:
        assert self.outgoing is not None
        self.outgoing.marked(now_us)
        self._sent_us = now_us
        return self._stream.marks(self._owner.marks(now_us))

    def _write(self, frames: list[bytes], size: int) -> None:
        if size <= _JOINED_BYTES:
            self._transport.write(b"".join(frames))
            return
        for frame in frames:
            self._transport.write(frame)

    # -- in ---------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Take acknowledgements."""
        if self.closed:
            return
        try:
            acks = self._stream.receive(data)
            for ack in acks:
                self._take(ack)
        except (ProtocolError, StrangeAcknowledgement) as error:
            self.cut(str(error))
            return
        if acks:
            self.heard_us = self._owner.now_us()
            self._owner.acknowledged()
            self.pump()

    def _take(self, ack: Ack) -> None:
        """Take one acknowledgement.

        Raises:
            StrangeAcknowledgement: It cannot be true.
        """
        assert self.outgoing is not None
        if ack.incarnation != self.follow.incarnation:
            raise StrangeAcknowledgement(f"it acknowledges for process {ack.incarnation}")
        written, synced = Position(ack.written), Position(ack.synced)
        told = Acknowledgement(
            epoch=Epoch(ack.epoch),
            written=written,
            synced=synced,
            sent_us=ack.echo,
            promise_us=ack.promise_ms * 1000 if self._stream.states_promises else FIRST_LEASE_US,
        )
        self._owner.acknowledge(self, told, self._sent_us)
        self.outgoing.acknowledged(written)
        self.synced, self.applied = synced, Position(ack.applied)

    # -- ends -------------------------------------------------------------------------------------

    def eof_received(self) -> bool:
        """Close: a follower that sends nothing more acknowledges nothing."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Note the end of the connection."""
        if not self.closed:
            log.info("%s is gone: %s", self, exc or "it closed the connection")
        self.closed = True
        self._owner.lost(self)

    def cut(self, why: str) -> None:
        """Close at once, with a warning in the log."""
        if self.closed:
            return
        log.warning("%s is cut off: %s", self, why)
        self.closed = True
        self._transport.abort()

    def resign(self, resign: Resign) -> None:
        """Tell the follower that the reign is over, and close."""
        if not self.closed and self.outgoing is not None:
            self._transport.write(self._stream.resign(resign))
        self._close()

    def _close(self) -> None:
        """Close once the written bytes have left; they have two seconds for it."""
        if not self.closed:
            self.closed = True
            self._transport.close()
            self._loop.call_later(_FAREWELL_S, self._transport.abort)
