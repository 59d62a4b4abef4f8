"""The journal and what is computed from it: the one place where a fact enters the broker.

A decision reads the views and makes a fact. ``Ledger.record`` appends it to the journal and applies
it by the same row of the table in `views` that a start goes through when it replays the record.
There is no other way to append: nothing else in this package calls ``Journal.append`` or a method
that applies a fact (``tests/unit/broker/test_ledger.py`` looks), so a broker that runs and one that
starts from its journal cannot come to different views.

MESSAGES, PULLED and settles of one run are recorded most often. Each has a quick way, which does
what the kind's row of the table does, without looking up what the caller has in its hand. All tests
of the broker compare what is applied with what a start would read.
"""

from __future__ import annotations

from typing import Final

from ternmq.broker.factkinds import F, FactKind, Written
from ternmq.broker.groupqueue import GroupQueue
from ternmq.broker.retry import Chance
from ternmq.broker.room import Room
from ternmq.broker.timers import TimerStore
from ternmq.broker.views import Views
from ternmq.broker.wakes import Wakes
from ternmq.journal.journal import Journal
from ternmq.journal.store import RecordStore
from ternmq.model.errors import JournalFull
from ternmq.model.types import Position
from ternmq.record.facts import Pulled, Settled
from ternmq.record.header import HEADER_BYTES, Kind
from ternmq.record.messages import Messages

# Members by name of the module: to look one up in its class takes 0.2 us (Python 3.11).
_MESSAGES: Final = Kind.MESSAGES
_PULLED: Final = Kind.PULLED
_SETTLED: Final = Kind.SETTLED


class Ledger:
    """Records facts, and holds what decisions read. It decides nothing.

    Not thread-safe: call it from the broker's loop.

    Args:
        journal: Open, its EPOCH durable.
        views: Filled from it.
        store: Reads records.
        chance: Randomness for jitter.

    Attributes:
        index: Finds records.
        limits: Of the broker.
        suspect_below: See ``Views.suspect_below``.
        timers: What comes due; derived from the views, set by decisions.
        wakes: Which parked pulls are to be looked at.
        room: For what clients send.
        rewinds: How often a group may have come to want what it had finished: see ``judge_again``.
    """

    __slots__ = (
        "_at",
        "_table",
        "chance",
        "index",
        "journal",
        "limits",
        "rewinds",
        "room",
        "store",
        "suspect_below",
        "timers",
        "views",
        "wakes",
    )

    def __init__(self, journal: Journal, views: Views, store: RecordStore, chance: Chance) -> None:
        self.journal = journal
        self.views = views
        self.store = store
        self.chance = chance
        self.index = views.index
        self.limits = views.limits
        self.suspect_below = views.suspect_below
        self.timers = TimerStore()
        self.wakes = Wakes(views.catalog)
        self.room = Room(journal)
        self.rewinds = 0
        self._table = views.table
        self._at = Written()

    @property
    def end(self) -> Position:
        """Where the journal ends: what an answer depends on that depends on everything so far."""
        return self.journal.end

    def judge_again(self) -> None:
        """Take note that a group may want again what it had finished, or a hold went back.

        Retention judged the oldest segment on the ground that groups only go forward: it judges
        anew.
        """
        self.rewinds += 1

    # -- recording --------------------------------------------------------------------------------

    def record(self, now_us: int, what: FactKind[F], fact: F) -> Position:
        """Append a fact and apply it; return the position of its record.

        Raises:
            JournalFull: No segment is ready: nothing was changed, and the same may be tried again.
            RecordTooLarge, JournalFailed: See ``Journal.append``.
        """
        kind, journal = what.kind, self.journal
        apply = self._table[kind].apply
        position = journal.append(kind, what.pack(fact), now_us)
        if apply is not None:
            at = self._at
            at.position = position
            at.length = journal.end - position
            at.time_us = now_us
            at.epoch = journal.epoch
            apply(at, fact)
        return position

    def admit(self, now_us: int, what: FactKind[F], fact: F) -> Position:
        """Do the same for what a client brings in: it is told what to do when there is no room.

        Raises:
            Busy: The next segment is being made; nothing was changed.
            DiskFull: There is no room for it; nothing was changed.
        """
        try:
            return self.record(now_us, what, fact)
        except JournalFull as error:
            raise self.room.no_segment() from error

    def admit_messages(self, now_us: int, body: bytes, stored: Messages) -> Position:
        """``admit`` for MESSAGES, quicker.

        Args:
            now_us: Broker time.
            body: What the messages are packed to.
            stored: The messages.

        Returns:
            Where the record ends.

        Raises:
            Busy, DiskFull: As from ``admit``.
        """
        journal = self.journal
        try:
            position = journal.append(_MESSAGES, body, now_us)
        except JournalFull as error:
            raise self.room.no_segment(len(body) + HEADER_BYTES) from error
        self.room.lacked_bytes = 0
        end = journal.end
        self.views.apply_messages(position, end, now_us, stored)
        return end

    def record_pulled(self, now_us: int, body: bytes, held: GroupQueue, fact: Pulled) -> Position:
        """``record`` for PULLED with one fact, quicker.

        Args:
            now_us: Broker time.
            body: What the fact is packed to.
            held: What the group has of the queue: the one that the fact names.
            fact: The rows.

        Raises:
            JournalFull: As from ``record``.
        """
        journal = self.journal
        position = journal.append(_PULLED, body, now_us)
        held.apply_pulled(position, journal.epoch, fact)
        return position

    def record_settled(self, now_us: int, body: bytes, held: GroupQueue, fact: Settled) -> Position:
        """``record`` for SETTLED with one fact, quicker; see ``record_pulled``."""
        position = self.journal.append(_SETTLED, body, now_us)
        held.apply_settled(position, fact)
        return position
