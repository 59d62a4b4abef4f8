"""How the messages of an orderly session are numbered: three headers. No I/O.

    ternmq-session   name of the session, 1 to 120 bytes; also the ordering key of its messages
    ternmq-number    number of the message in its session, from 1
    ternmq-size      number of messages of the session, the same in each of them

The message to itself that a consumer of sessions sends has two of them, and ``ternmq-turn``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ternmq.client.content.validation import MAX_ID_BYTES
from ternmq.model.errors import InvalidRequest

SESSION: Final = "ternmq-session"
NUMBER: Final = "ternmq-number"
SIZE: Final = "ternmq-size"
TURN: Final = "ternmq-turn"
OWN: Final = (SESSION, NUMBER, SIZE, TURN)
"""Headers that an application does not set itself."""
MOST_STEPS: Final = 10_000
"""Most messages of a session."""
MOST_NAME_BYTES: Final = MAX_ID_BYTES - 8
"""Longest name of a session: the id of a message is the name, a dot and the number."""
_LONGEST_NUMBER: Final = 18


@dataclass(slots=True, frozen=True)
class Numbered:
    """What the headers of a message say.

    Attributes:
        session: Name of its session.
        number: Its number; of a message to itself 0.
        size: Size of the session.
    """

    session: str
    number: int
    size: int


def headers_of(numbered: Numbered) -> dict[str, str]:
    """Return the headers of a message of a session."""
    return {
        SESSION: numbered.session, NUMBER: str(numbered.number), SIZE: str(numbered.size),
    }  # fmt: skip


def numbered_of(headers: Mapping[str, str]) -> Numbered:
    """Return what the headers of a message of a session say.

    Raises:
        InvalidRequest: One is missing, or is not valid.
    """
    return Numbered(session_of(headers), whole_of(headers, NUMBER), whole_of(headers, SIZE))


def session_of(headers: Mapping[str, str]) -> str:
    """Return the name of the session.

    Raises:
        InvalidRequest: It is missing, or is not valid.
    """
    session = headers.get(SESSION)
    if session is None:
        raise InvalidRequest(f"the message has no header {SESSION}: it is of no orderly session")
    length = len(session.encode(errors="replace"))
    if not 1 <= length <= MOST_NAME_BYTES:
        raise InvalidRequest(
            f"header {SESSION} has 1 to {MOST_NAME_BYTES} bytes, and this one {length}"
        )
    return session


def whole_of(headers: Mapping[str, str], name: str) -> int:
    """Return the whole number in a header.

    Raises:
        InvalidRequest: It is missing, or is no number.
    """
    text = headers.get(name)
    if text is None:
        raise InvalidRequest(f"the message has no header {name}")
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= _LONGEST_NUMBER):
        raise InvalidRequest(f"header {name} is a whole number, not {text[:50]!r}")
    return int(text)
