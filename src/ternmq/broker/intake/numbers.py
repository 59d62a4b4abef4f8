"""Decides requests for numbers: which block of its topic's sequence a client gets."""

from __future__ import annotations

from typing import Final

from ternmq.broker.catalog.catalog import Topic
from ternmq.broker.gate.replies import NumbersReply
from ternmq.broker.ledger.factkinds import NUMBERS
from ternmq.broker.ledger.ledger import Ledger
from ternmq.model.errors import InvalidRequest
from ternmq.model.marks import Rests
from ternmq.model.specs import Durability
from ternmq.record.fact import numbers
from ternmq.record.fact.header import HEADER_BYTES
from ternmq.record.fact.numbers import Numbers

_RECORD_BYTES: Final = HEADER_BYTES + numbers.BODY.size


class Numbering:
    """Decides requests for numbers.

    Not thread-safe: call it from the broker's loop.
    """

    __slots__ = ("_ledger",)

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def take(self, now_us: int, topic: Topic, count: int, *, reserve: bool = False) -> NumbersReply:
        """Give the next ``count`` numbers of a topic; nobody gets them again.

        They are given even if the answer does not arrive: a repeated request gets others.

        Args:
            now_us: Broker time.
            topic: The topic.
            count: How many numbers, 1 to 1,000,000.
            reserve: Whether to give a reserve, too. If none is left, the reply has none.

        Raises:
            InvalidRequest: There are not that many in a block, or the topic has no more numbers.
            StrictNeedsReplica, ReadOnly: As for a send.
            DiskFull, Busy: Nothing was given; a later attempt may succeed.
        """
        ledger = self._ledger
        if not 1 <= count <= numbers.MOST:
            raise InvalidRequest(f"a block has 1 to {numbers.MOST:,} numbers, not {count:,}")
        given = ledger.views.numbers
        first = given.next_of(topic.number)
        if first + count > numbers.END:
            raise InvalidRequest(f"topic {topic.name!r} has no more numbers")
        ledger.copies.check(topic.spec)
        if ledger.room.lacks(_RECORD_BYTES):
            raise ledger.room.no_segment()
        ordinal = given.next_reserve if reserve else numbers.RESERVES
        fact = Numbers(topic.number, first, count, ordinal if ordinal < numbers.RESERVES else None)
        ledger.admit(now_us, NUMBERS, fact)
        return NumbersReply(first, count, fact.reserve, ledger.end, self._rests(topic))

    def _rests(self, topic: Topic) -> Rests:
        """Return the mark that the answer waits for.

        On a topic of durability ``fast`` too: numbers that a power cut takes back are given twice.
        """
        durability = topic.spec.durability
        if durability is Durability.FAST:
            durability = Durability.NORMAL
        return self._ledger.copies.rests(durability)
