"""Checks shared by all bodies: names, padding, lengths.

The same few names come again and again, so the results of checking them are cached; the cache is
bounded.
"""

from __future__ import annotations

import functools
import re
from struct import Struct
from typing import Final

from ternmq.model.errors import InvalidName, InvalidRequest, ProtocolError
from ternmq.model.printing import quoted

NO_QUEUE: Final = 2**32 - 1
NO_OFFSET: Final = 2**64 - 1
MAX_NAME_BYTES: Final = 127
MAX_TEXT_NAME_BYTES: Final = 128
"""Bytes of a name that may have any characters but control characters."""
ZEROS: Final = tuple(bytes(size) for size in range(8))

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_NAME: Final = re.compile(rb"\$?[A-Za-z0-9._-]+\Z")


@functools.lru_cache(maxsize=4096)
def name_of(data: bytes) -> str:
    """Return the name that these bytes spell.

    Raises:
        InvalidName: It has a wrong length, other characters than ``A-Z a-z 0-9 . _ -`` (it may
            begin with one ``$``), or is one or two dots.
    """
    if len(data) > MAX_NAME_BYTES or _NAME.match(data) is None or data in {b".", b".."}:
        raise InvalidName(f"not a name: {quoted(data.decode(errors='replace'))}")
    return data.decode("ascii")


@functools.lru_cache(maxsize=4096)
def bytes_of(name: str) -> bytes:
    """Return the bytes of a name. Raises as ``name_of`` does."""
    data = name.encode(errors="replace")
    name_of(data)
    return data


def text_of(what: str, data: bytes, least: int, most: int = MAX_TEXT_NAME_BYTES) -> str:
    """Return the text of a name that may have any characters but control characters.

    Args:
        what: What it is, for errors.
        data: Its bytes in UTF-8.
        least: Least number of bytes.
        most: Most bytes.

    Raises:
        InvalidRequest: It is not such a text, or has a wrong length.
    """
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"the {what} is not UTF-8") from error
    if not least <= len(data) <= most:
        raise InvalidRequest(f"the {what} has {len(data)} bytes: {least} to {most} are allowed")
    if _CONTROL.search(text):
        raise InvalidRequest(f"the {what} has control characters: {text!r}")
    return text


def padded(data: bytes) -> bytes:
    """Return the bytes, zero padded to 8."""
    return data + ZEROS[-len(data) % 8]


def names(body: bytes, at: int, *lengths: int) -> tuple[list[str], int]:
    """Return (names at ``at``, index after their padding).

    Raises:
        InvalidRequest: They or their padding do not fit, or a name is not allowed.
    """
    found: list[str] = []
    for length in lengths:
        found.append(name_of(body[at : at + length]))
        at += length
    return found, padding(body, at)


def padding(body: bytes, end: int) -> int:
    """Return the index after the zeros that follow ``end``.

    Raises:
        InvalidRequest: The body ends before that, or the padding is not zero.
    """
    size = -end % 8
    if body[end : end + size] != ZEROS[size] or end + size > len(body):
        raise InvalidRequest(f"what ends at byte {end} is cut short, or not padded with zeros")
    return end + size


def at_least(body: bytes, shape: Struct) -> None:
    """Check that a request is long enough for its head.

    Raises:
        InvalidRequest: It is shorter.
    """
    if len(body) < shape.size:
        raise InvalidRequest(f"a body of {len(body)} bytes, at least {shape.size} are needed")


def exactly(body: bytes, end: int) -> None:
    """Check that a request ends at the described length.

    Raises:
        InvalidRequest: It does not.
    """
    if len(body) != end:
        raise InvalidRequest(f"a body of {len(body)} bytes, {end} were described")


def answer_at_least(body: bytes, shape: Struct) -> None:
    """Check that an answer is long enough for its head.

    Raises:
        ProtocolError: It is shorter.
    """
    if len(body) < shape.size:
        raise ProtocolError(f"an answer of {len(body)} bytes, at least {shape.size} are needed")


def answer_exactly(body: bytes, end: int) -> None:
    """Check that an answer ends at the described length.

    Raises:
        ProtocolError: It does not.
    """
    if len(body) != end:
        raise ProtocolError(f"an answer of {len(body)} bytes, {end} were described")


def unfit(error: Exception) -> InvalidRequest:
    """Return the error for a number that its field cannot hold."""
    return InvalidRequest(f"a number does not fit its field: {error}")
