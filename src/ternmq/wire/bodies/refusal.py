"""The error answer, which refuses a request.

Ruler::

    error answer    0  u16 code, u8 flags (1 retriable, 2 refresh_routes), u8 0, u32 text_bytes
                    8  the text, UTF-8

A client that does not know the code uses the flags. The last frame of a connection that broke the
protocol has a body like this, too.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from ternmq.model.errors import TernMQError, of_code
from ternmq.wire.bodies.checks import answer_at_least, answer_exactly

ERROR: Final = Struct("<HBBI")
RETRIABLE: Final = 1
REFRESH_ROUTES: Final = 2
MAX_TEXT_BYTES: Final = 1024
"""Longest text; longer ones are cut, so that a small request cannot cause a large answer."""


def pack_error(code: int, text: str, *, retriable: bool, refresh_routes: bool) -> bytes:
    """Return the body of an error answer."""
    data = cut(text, MAX_TEXT_BYTES)
    flags = RETRIABLE * retriable | REFRESH_ROUTES * refresh_routes
    return ERROR.pack(code, flags, 0, len(data)) + data


def unpack_error(body: bytes) -> tuple[int, str]:
    """Return (code, text) of an error answer.

    Raises:
        ProtocolError: The body has another layout.
    """
    answer_at_least(body, ERROR)
    code, _, _, size = ERROR.unpack_from(body)
    answer_exactly(body, ERROR.size + size)
    return code, body[ERROR.size :].decode(errors="replace")


def unpack_refusal(body: bytes) -> TernMQError:
    """Return the error of an error answer. Raises as ``unpack_error`` does."""
    code, text = unpack_error(body)
    flags = body[2]
    return of_code(
        code,
        text,
        retriable=bool(flags & RETRIABLE),
        refresh_routes=bool(flags & REFRESH_ROUTES),
    )


def cut(text: str, most: int) -> bytes:
    """Return a text in UTF-8, cut to at most ``most`` bytes, never within a character."""
    data = text.encode(errors="replace")
    return data if len(data) <= most else data[:most].decode(errors="ignore").encode()
