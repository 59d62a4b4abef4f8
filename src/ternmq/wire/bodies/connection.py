"""CANCEL, PING, BYE: the bodies of commands about the connection itself.

Ruler::

    CANCEL          0  u64 id of the PULL or READ, which is answered at once, empty or not
      answer           empty
    PING               empty
      answer        0  i64 now_us
    BYE                empty
      answer           empty
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from ternmq.wire.bodies.checks import answer_at_least, answer_exactly, at_least, exactly

CANCEL: Final = Struct("<Q")
PONG: Final = Struct("<q")


def pack_cancel(id_: int) -> bytes:
    """Return the body of a CANCEL of this request."""
    return CANCEL.pack(id_)


def unpack_cancel(body: bytes) -> int:
    """Return the id of the request that is cancelled.

    Raises:
        InvalidRequest: The body has another layout.
    """
    at_least(body, CANCEL)
    exactly(body, CANCEL.size)
    (id_,) = CANCEL.unpack(body)
    return int(id_)


def unpack_nothing(body: bytes) -> None:
    """Check that the body of a request (PING, BYE) is empty.

    Raises:
        InvalidRequest: It is not.
    """
    exactly(body, 0)


def pack_pong(now_us: int) -> bytes:
    """Return the body of the answer to a PING."""
    return PONG.pack(now_us)


def unpack_pong(body: bytes) -> int:
    """Return the broker time in the answer to a PING.

    Raises:
        ProtocolError: The body has another layout.
    """
    answer_at_least(body, PONG)
    answer_exactly(body, PONG.size)
    (now_us,) = PONG.unpack(body)
    return int(now_us)
