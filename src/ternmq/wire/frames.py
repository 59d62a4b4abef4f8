"""Frames: what travels on a connection, in both directions.

Ruler (little-endian; the same text is in ``docs/protocol/frames.md``)::

     0  u32 length    bytes of the whole frame, this header included; at least 16
     4  u8  magic     0x54, "T"
     5  u8  command   of the request; an answer repeats it
     6  u8  flags     1 ANSWER, 2 ERROR (with ANSWER), 4 ONE_WAY (no answer is wanted), 8 PUSH
     7  u8  0
     8  u64 id        of the request, chosen by the client, not 0; an answer repeats it; 0 in a PUSH
    16      body

Requests may be answered in any order. A frame with another magic, another byte 7, flags other than
0, 1, 3, 4 and 8, or a length out of bounds ends the connection: what follows it cannot be found any
more.

Changing this layout: raise ``VERSION``, let HELLO settle on the highest version that both sides
know, keep reading the older one for two releases, and add golden frames under ``tests/golden``.

A new field of a request in the place of zeros needs no new version: the broker offers it in
WELCOME, clients set it only if it is offered, and 0 has the old meaning (``at_once`` of PULL). In
an answer it needs no offer: 0 means that the broker does not state it (``queue`` of a row in SEND's
answer).
"""

from __future__ import annotations

import enum
import struct
from typing import Final

import msgspec

from ternmq.model.errors import FrameTooLarge, ProtocolError

HEADER: Final = struct.Struct("<IBBBBQ")
HEADER_BYTES: Final = 16
MAGIC: Final = 0x54
MAGIC_AT: Final = 4
VERSION: Final = 1
OPENING_BYTES: Final = 4096
"""Largest frame before HELLO is answered."""

_LARGE: Final = 4096
"""Received pieces of at least this size are kept as they are; smaller ones are joined."""
_GATHERED: Final = 65_536


class Flag(enum.IntFlag):
    """Flags of a frame."""

    ANSWER = 1
    ERROR = 2
    ONE_WAY = 4
    PUSH = 8


ANSWER: Final = int(Flag.ANSWER)
ERROR: Final = int(Flag.ERROR)
ONE_WAY: Final = int(Flag.ONE_WAY)
PUSH: Final = int(Flag.PUSH)
_KNOWN_FLAGS: Final = frozenset({0, ONE_WAY, ANSWER, ANSWER | ERROR, PUSH})


class Frame(msgspec.Struct, frozen=True, gc=False):
    """A frame that was received whole; ``body`` is a copy, so that the buffer can be freed."""

    command: int
    flags: int
    id: int
    body: bytes


def pack(command: int, flags: int, id_: int, body: bytes) -> bytes:
    """Return a frame's bytes."""
    return HEADER.pack(HEADER_BYTES + len(body), MAGIC, command, flags, 0, id_) + body


def head(command: int, flags: int, id_: int, body_bytes: int) -> bytes:
    """Return a frame's header, for a body that is written in pieces."""
    return HEADER.pack(HEADER_BYTES + body_bytes, MAGIC, command, flags, 0, id_)


class FrameReader:
    """Cuts a stream of bytes into frames.

    It never holds more than one incomplete frame, and takes memory for it only as its bytes arrive,
    not by the length in its header: at most 1/8 more than the received bytes, however small the
    pieces are.

    Args:
        max_bytes: Largest frame.

    Attributes:
        max_bytes: Largest frame; may be raised once the other side is known.
        held_bytes: Received bytes of the incomplete frame.
    """

    __slots__ = ("_need", "_parts", "held_bytes", "max_bytes")

    def __init__(self, max_bytes: int = OPENING_BYTES) -> None:
        self.max_bytes = max_bytes
        self._parts: list[bytes | bytearray] = []
        self.held_bytes = 0
        self._need = HEADER_BYTES

    def feed(self, data: bytes) -> list[Frame]:
        """Take received bytes; return the frames that are whole now.

        Raises:
            ProtocolError: These bytes are no frames. The reader cannot be used after that; whole
                frames before the bad bytes in the same call are not returned.
            FrameTooLarge: A frame is longer than ``max_bytes``.
        """
        if self.held_bytes:
            self._keep(data)
            if self.held_bytes < self._need:
                return []
            data = b"".join(self._parts)
            self._parts.clear()
        frames: list[Frame] = []
        at, end = 0, len(data)
        need = HEADER_BYTES
        while end - at >= HEADER_BYTES:
            length, magic, command, flags, zero, id_ = HEADER.unpack_from(data, at)
            if magic != MAGIC or zero or length < HEADER_BYTES or flags not in _KNOWN_FLAGS:
                raise ProtocolError(f"these bytes begin no frame: {data[at : at + 8].hex()}")
            if length > self.max_bytes:
                raise FrameTooLarge(f"a frame of {length} bytes, at most {self.max_bytes} may come")
            if (id_ == 0) != (flags == PUSH):
                raise ProtocolError("a request needs an id, and a push has none")
            if length > end - at:
                need = length
                break
            frames.append(Frame(command, flags, id_, data[at + HEADER_BYTES : at + length]))
            at += length
        self.held_bytes = end - at
        self._need = need
        if self.held_bytes:
            self._parts.append(data[at:])
        return frames

    def _keep(self, data: bytes) -> None:
        self.held_bytes += len(data)
        if len(data) >= _LARGE:
            self._parts.append(data)
            return
        # An object for every few bytes would take ten times their memory.
        last = self._parts[-1]
        if isinstance(last, bytearray) and len(last) < _GATHERED:
            last += data
        else:
            self._parts.append(bytearray(data))
