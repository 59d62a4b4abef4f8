"""Control: blocks of the numbers of a topic."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta

from ternmq.wire.control.coding import Body, Offset

MAX_NUMBERS: Final = 1_000_000
"""Most numbers of a block. Not of its record: commands that administer import no records."""


class NumbersTake(Body, frozen=True, kw_only=True):
    """Take the next numbers of a topic: nobody gets them again.

    A request that is repeated gets other numbers.
    """

    topic: str
    count: Annotated[int, Meta(ge=1, le=MAX_NUMBERS)]
    """How many numbers."""
    reserve: bool = False
    """Give a reserve, too. A process asks for one once."""


class NumbersTaken(Body, frozen=True, kw_only=True):
    """A block of numbers that is durable, above all blocks of the topic that were given before."""

    first: Offset
    """The first of ``count`` numbers; all are at least 1 and below 2^62."""
    count: int
    reserve_first: Offset = 0
    """The first number of the reserve, at least 2^62; 0: there is none. No reserve is given twice,
    whatever the topic."""
    reserve_count: Offset = 0
    """How many numbers the reserve has."""
