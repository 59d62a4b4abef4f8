"""The state machine of a stream: a follower's side and a primary's side. No I/O.

Theory of operation. A follower opens a connection to the primary's port for clients, and sends
FOLLOW in the place of HELLO. Once it is answered, the connection carries only the stream::

    follower  OPENING --followed--> OPEN --farewell or error--> CLOSED
              OPENING --refused---> CLOSED
    primary   (ServerSession: OPENING --follow--> GREETED)
              GREETED --answer()--> OPEN --error--> CLOSED
              GREETED --refuse()--> CLOSED

The primary's side begins as a ``ServerSession``, which finds FOLLOW instead of HELLO; whoever takes
the connection over makes a ``PrimaryStream`` of it. On an open stream the primary sends BYTES,
MARKS and RESIGN, and the follower sends ACK. Everything else raises ``ProtocolError``, and the
connection is closed without a word: what was not acknowledged is sent again after the next FOLLOW.
"""

from __future__ import annotations

from typing import Final

from msgspec import UNSET

from ternmq.model.errors import (
    InvalidRequest,
    NotABroker,
    ProtocolError,
    TernMQError,
    UnsupportedVersion,
)
from ternmq.record.batch.compress import CompressionError, inflate_frame
from ternmq.wire import bodies, control, frames
from ternmq.wire.bodies import Ack, Bytes, Marks
from ternmq.wire.commands import Command
from ternmq.wire.control import Follow, Followed, Resign
from ternmq.wire.frames import ANSWER, ERROR, ONE_WAY, PUSH, Frame, FrameReader
from ternmq.wire.session import FAREWELL, Refusal, State, refusal

VERSIONS: Final = control.STREAM_VERSIONS
"""Versions of the stream that this software understands."""
_UNSTATED: Final = 1
"""In this version MARKS and ACK state no promise: 0 is in its place."""
# Names of the module: looking a member up in its class takes 0.1 us (Python 3.11).
_CLOSED: Final = State.CLOSED
_ID: Final = 1
"""Id of FOLLOW and of every ACK: nothing else is asked on such a connection."""
_ANSWER_BYTES: Final = 65_536
"""Largest frame before FOLLOW is answered."""
_ACK_BYTES: Final = frames.HEADER_BYTES + bodies.ACK.size
"""Largest frame that a follower sends after FOLLOW."""
_SMALL_BYTES: Final = 65_536
"""Room for the head of BYTES, and for the other frames of a primary."""
_LARGEST_BYTES: Final = (1 << 32) - 1


class FollowerStream:
    """A follower's side of a stream. Not thread-safe.

    Attributes:
        state: OPENING, OPEN or CLOSED.
        followed: The primary's answer to FOLLOW; None before it came.
        saved_bytes: How many bytes fewer came than they have inflated.
    """

    __slots__ = ("_opening", "_reader", "followed", "saved_bytes", "state")

    def __init__(self) -> None:
        self.state = State.OPENING
        self.followed: Followed | None = None
        self.saved_bytes = 0
        self._opening = bytearray()  # what came before the answer was whole
        self._reader = FrameReader(_ANSWER_BYTES)

    @property
    def states_promises(self) -> bool:
        """Whether MARKS and ACK state a promise; the stream is open."""
        return self.followed is not None and self.followed.version != _UNSTATED

    @property
    def held_bytes(self) -> int:
        """Received bytes of an incomplete frame."""
        return len(self._opening) + self._reader.held_bytes

    def follow(self, follow: Follow) -> bytes:
        """Return the frame of FOLLOW, the first one of a connection.

        Raises:
            InvalidRequest: It is larger than a first frame may be.
        """
        frame = frames.pack(Command.FOLLOW, 0, _ID, control.encode(follow))
        if len(frame) > frames.OPENING_BYTES:
            raise InvalidRequest(
                f"a FOLLOW of {len(frame)} bytes; at most {frames.OPENING_BYTES} are allowed"
            )
        return frame

    def acknowledge(self, ack: Ack) -> bytes:
        """Return the frame of an ACK; the stream is open.

        In version 1 of the stream, ``promise_ms`` is left out: it must be the lease of the answer.
        """
        if not self.states_promises:
            ack = ack._replace(promise_ms=0)
        return frames.pack(Command.ACK, ONE_WAY, _ID, bodies.pack_ack(ack))

    def receive(self, data: bytes) -> list[Followed | Refusal | Bytes | Marks | Resign]:
        """Take received bytes; return events.

        The first is Followed (also kept in ``followed``) or Refusal. A Refusal ends the connection;
        with id 0 it is a farewell, such as a broker sends that does not know FOLLOW.

        Raises:
            ProtocolError: The connection must be closed.
            NotABroker: Likewise: the bytes are of another protocol.
        """
        if self.state is _CLOSED:
            return []
        events: list[Followed | Refusal | Bytes | Marks | Resign] = []
        if self.followed is None:
            frame, data = self._first(data)
            if frame is None:
                return []
            event: Followed | Refusal | Bytes | Marks | Resign = self._opened(frame)
            events.append(event)
            if isinstance(event, Refusal):
                return events
        for frame in self._reader.feed(data):
            event = self._pushed(frame)
            events.append(event)
            if isinstance(event, Refusal):
                break
        return events

    def _first(self, data: bytes) -> tuple[Frame | None, bytes]:
        """Return the first frame, if it is whole now, and the bytes behind it.

        BYTES may follow the answer at once, and be larger than the answer may be.
        """
        if not self._opening:
            _check_first(data)
        self._opening += data
        size = frames.HEADER_BYTES
        if len(self._opening) < size:
            return None, b""
        head = bytes(self._opening[:size])
        found = FrameReader(_ANSWER_BYTES).feed(head)  # checks it
        if not found:
            size = frames.HEADER.unpack(head)[0]
            if len(self._opening) < size:
                return None, b""
            found = FrameReader(_ANSWER_BYTES).feed(bytes(self._opening[:size]))
        rest = bytes(self._opening[size:])
        self._opening.clear()
        return found[0], rest

    def _opened(self, frame: Frame) -> Followed | Refusal:
        if frame.flags == PUSH and frame.command == FAREWELL:
            self.state = State.CLOSED
            return Refusal(Command.FOLLOW, 0, bodies.unpack_refusal(frame.body))
        if frame.command != Command.FOLLOW or frame.id != _ID or not frame.flags & ANSWER:
            raise ProtocolError(f"a frame of command {frame.command} before FOLLOW was answered")
        if frame.flags & ERROR:
            self.state = State.CLOSED
            return Refusal(Command.FOLLOW, _ID, bodies.unpack_refusal(frame.body))
        followed = control.decode_answer(frame.body, Followed)
        if followed.version not in VERSIONS:
            raise UnsupportedVersion(f"the primary's stream has version {followed.version}")
        self.followed = followed
        self.state = State.OPEN
        # A record is never larger than a segment.
        self._reader.max_bytes = min(followed.segment_bytes + _SMALL_BYTES, _LARGEST_BYTES)
        return followed

    def _pushed(self, frame: Frame) -> Refusal | Bytes | Marks | Resign:
        if frame.flags == PUSH:
            if frame.command == Command.BYTES:
                return self._inflated(bodies.unpack_bytes(frame.body))
            if frame.command == Command.MARKS:
                marks = bodies.unpack_marks(frame.body)
                _check_promise(marks.lease_ms, states=self.states_promises)
                return marks
            if frame.command == Command.RESIGN:
                return control.decode_answer(frame.body, Resign)
            if frame.command == FAREWELL:
                self.state = State.CLOSED
                return Refusal(Command.FOLLOW, 0, bodies.unpack_refusal(frame.body))
        raise ProtocolError(f"a frame of command {frame.command} is no part of a stream")

    def _inflated(self, sent: Bytes) -> Bytes:
        """Return a BYTES as it was before it was compressed.

        Raises:
            ProtocolError: It must not be compressed, is damaged, or is larger than a frame may be.
        """
        size = sent.inflated
        if not size:
            return sent
        assert self.followed is not None
        if self.followed.compress is UNSET:
            raise ProtocolError("a BYTES is compressed, and that was not agreed")
        if size > self._reader.max_bytes:
            raise ProtocolError(f"a BYTES of {size} bytes, at most {self._reader.max_bytes}")
        try:
            records = inflate_frame(sent.records, size)
        except CompressionError as error:
            raise ProtocolError(f"a BYTES that cannot be inflated: {error}") from error
        self.saved_bytes += size - len(sent.records)
        return Bytes(sent.position, sent.epoch, records)


class PrimaryStream:
    """A primary's side of a stream. Not thread-safe.

    Args:
        id_: Id of FOLLOW's frame, as ``ServerSession.hello_id`` has it.

    Attributes:
        state: GREETED, OPEN or CLOSED.
        states_promises: Whether MARKS and ACK state a promise; set by ``answer``.
    """

    __slots__ = ("_id", "_reader", "state", "states_promises")

    def __init__(self, id_: int) -> None:
        self.state = State.GREETED
        self.states_promises = False
        self._id = id_
        self._reader = FrameReader(_ACK_BYTES)

    @property
    def held_bytes(self) -> int:
        """Received bytes of an incomplete frame."""
        return self._reader.held_bytes

    def answer(self, followed: Followed) -> bytes:
        """Open the stream; return the frame that answers FOLLOW."""
        assert self.state is State.GREETED
        self.state = State.OPEN
        self.states_promises = followed.version != _UNSTATED
        return frames.pack(Command.FOLLOW, ANSWER, self._id, control.encode(followed))

    def refuse(self, error: TernMQError) -> bytes:
        """Close the connection; return the frame that refuses FOLLOW."""
        assert self.state is State.GREETED
        self.state = State.CLOSED
        return refusal(Command.FOLLOW, self._id, error)

    def bytes_head(self, position: int, epoch: int, record_bytes: int, inflated: int = 0) -> bytes:
        """Return a frame of BYTES up to its records, which are written behind it.

        Args:
            position: Of the first record.
            epoch: Of the reign.
            record_bytes: Number of bytes that are written behind it.
            inflated: Number of bytes of records in them; 0: they are not compressed.
        """
        size = bodies.BYTES.size + record_bytes
        head = bodies.bytes_head(position, epoch, inflated)
        return frames.head(Command.BYTES, PUSH, 0, size) + head

    def marks(self, marks: Marks) -> bytes:
        """Return a frame of MARKS; in version 1 of the stream without ``lease_ms``."""
        if not self.states_promises:
            marks = marks._replace(lease_ms=0)
        return frames.pack(Command.MARKS, PUSH, 0, bodies.pack_marks(marks))

    def resign(self, resign: Resign) -> bytes:
        """Return a frame of RESIGN."""
        return frames.pack(Command.RESIGN, PUSH, 0, control.encode(resign))

    def receive(self, data: bytes) -> list[Ack]:
        """Take received bytes; return the acknowledgements in them.

        Raises:
            ProtocolError: They are something else; the connection must be closed.
        """
        if self.state is _CLOSED:
            return []
        if self.state is State.GREETED:
            raise ProtocolError("nothing may follow FOLLOW before its answer")
        found: list[Ack] = []
        for frame in self._reader.feed(data):
            if frame.command != Command.ACK or frame.flags != ONE_WAY:
                raise ProtocolError(f"a frame of command {frame.command} is no acknowledgement")
            ack = bodies.unpack_ack(frame.body)
            _check_promise(ack.promise_ms, states=self.states_promises)
            found.append(ack)
        return found


def _check_promise(promise_ms: int, *, states: bool) -> None:
    """Check that a promise is there in the versions that have it, and only there.

    Raises:
        ProtocolError: It is not so.
    """
    if states != bool(promise_ms):
        raise ProtocolError(f"bytes 4-7 of a MARKS or ACK are {promise_ms}")


def common_version(versions: tuple[int, ...]) -> int:
    """Return the highest version of the stream that a follower and this software understand.

    Raises:
        UnsupportedVersion: There is none.
    """
    known = [one for one in versions if one in VERSIONS]
    if not known:
        raise UnsupportedVersion(
            f"the follower's streams have versions {list(versions[:8])}, this broker's "
            f"{list(VERSIONS)}"
        )
    return max(known)


def _check_first(data: bytes) -> None:
    """Check that the first bytes are of this protocol.

    Raises:
        NotABroker: They are not.
    """
    if len(data) > frames.MAGIC_AT and data[frames.MAGIC_AT] != frames.MAGIC:
        raise NotABroker(
            f"a program that is not a broker listens there: its first bytes are {data[:16]!r}"
        )
