"""The state machine of a broker that asks another one for records: SEGMENT_READ. No I/O.

One request, one answer, and the connection is closed::

    OPENING --answer--> CLOSED
            --refused--> CLOSED

The side that answers is a ``ServerSession``.
"""

from __future__ import annotations

from typing import Final

from ternmq.model.errors import InvalidRequest, ProtocolError
from ternmq.wire import bodies, control, frames
from ternmq.wire.bodies import Bytes
from ternmq.wire.commands import Command
from ternmq.wire.control import SegmentRead
from ternmq.wire.frames import ANSWER, ERROR, PUSH, FrameReader
from ternmq.wire.session import FAREWELL, Refusal, State

_ID: Final = 1
_HEAD_BYTES: Final = frames.HEADER_BYTES + bodies.BYTES.size
_REFUSAL_BYTES: Final = 65_536
_LARGEST_BYTES: Final = (1 << 32) - 1


class SegmentAsk:
    """The side that asks. Not thread-safe.

    Args:
        segment_bytes: Size of every segment file: no record is larger.

    Attributes:
        state: OPENING or CLOSED.
    """

    def __init__(self, segment_bytes: int) -> None:
        self.state = State.OPENING
        most = max(segment_bytes + _HEAD_BYTES, _REFUSAL_BYTES)
        self._reader = FrameReader(min(most, _LARGEST_BYTES))
        self._position = 0

    def ask(self, request: SegmentRead) -> bytes:
        """Return the frame of SEGMENT_READ, the first one of a connection.

        Raises:
            InvalidRequest: It is larger than a first frame may be.
        """
        self._position = request.position
        frame = frames.pack(Command.SEGMENT_READ, 0, _ID, control.encode(request))
        if len(frame) > frames.OPENING_BYTES:
            raise InvalidRequest(
                f"a SEGMENT_READ of {len(frame)} bytes; at most {frames.OPENING_BYTES} are allowed"
            )
        return frame

    def receive(self, data: bytes) -> Bytes | Refusal | None:
        """Take received bytes; return the answer once it is whole. Its records are not checked.

        Raises:
            ProtocolError: The connection must be closed.
        """
        if self.state is State.CLOSED:
            return None
        found = self._reader.feed(data)
        if not found:
            return None
        self.state = State.CLOSED
        frame = found[0]
        if frame.flags == PUSH and frame.command == FAREWELL:  # of a broker that is older
            return Refusal(Command.SEGMENT_READ, 0, bodies.unpack_refusal(frame.body))
        if frame.command != Command.SEGMENT_READ or frame.id != _ID or not frame.flags & ANSWER:
            raise ProtocolError(f"a frame of command {frame.command} answers SEGMENT_READ")
        if frame.flags & ERROR:
            return Refusal(Command.SEGMENT_READ, _ID, bodies.unpack_refusal(frame.body))
        answer = bodies.unpack_bytes(frame.body)
        if answer.position != self._position:
            raise ProtocolError(f"records of position {answer.position} answer SEGMENT_READ")
        return answer
