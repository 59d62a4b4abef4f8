"""CHECKED: the broker asked about a transaction, or gave up asking, or began anew.

Ruler of the body::

     0  u64 transaction  number
     8  u32 attempt      questions so far, this one included
    12  u32 session      that is asked; 0: none
    16  i64 next_us      when the next question is due; 0: none will be
    24  u8  what         see ``What``
    25  u8  version      1
    26  u16 0, u32 0

A question leaves when its record is durable, so that no more are asked than were recorded.
"""

from __future__ import annotations

import enum
import struct
from typing import Final

import msgspec

from ternmq.model.errors import UnknownRecordKind

CHECKED: Final = struct.Struct("<QIIqBBHI")
VERSION: Final = 1

assert CHECKED.size == 32


class What(enum.IntEnum):
    """What happened. The numbers are stored and never reused."""

    ASKED = 1
    PARKED = 2
    """Nobody answered: it stays undecided until somebody decides it."""
    TAKEN_UP = 3
    """An operator had the questions begin anew."""


class Checked(msgspec.Struct, frozen=True):
    """A decoded CHECKED body."""

    transaction: int
    attempt: int
    session: int
    next_us: int
    what: What


def pack_checked(fact: Checked) -> bytes:
    """Return the body of a CHECKED record."""
    return CHECKED.pack(
        fact.transaction, fact.attempt, fact.session, fact.next_us, fact.what, VERSION, 0, 0
    )


def unpack_checked(body: bytes) -> Checked:
    """Return the fact of a CHECKED body.

    Raises:
        UnknownRecordKind: A newer version wrote it.
        struct.error, ValueError: The body is cut short, or says what is not known.
    """
    transaction, attempt, session, next_us, what, version, zero, more = CHECKED.unpack_from(body)
    if version != VERSION or zero or more:
        raise UnknownRecordKind(f"a CHECKED of version {version}")
    return Checked(transaction, attempt, session, next_us, What(what))
