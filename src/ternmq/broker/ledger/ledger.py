"""The journal and what is computed from it: the one place where a fact enters the broker.

A decision reads the views and makes a fact. ``Ledger.record`` appends it to the journal and applies
it through the same row of the table in `views` that replays the record at a start. There is no
other way to append: nothing else in this package calls ``Journal.append`` or a method that applies
a fact (``tests/unit/broker/ledger/test_ledger.py`` checks this), so a running broker and one that
starts from its journal cannot compute different views.

MESSAGES, PULLED and settles of one run are recorded most often. Each has a fast path, which does
what the kind's row of the table does, without looking up objects that the caller already has. All
tests of the broker compare what is applied with what a start would read.
"""

from __future__ import annotations

from typing import Final

from ternmq.broker.clock.timers import TimerStore
from ternmq.broker.group.progress import Progress
from ternmq.broker.group.retry import Chance
from ternmq.broker.ledger.copies import Copies
from ternmq.broker.ledger.factkinds import F, FactKind, Written
from ternmq.broker.ledger.room import Room
from ternmq.broker.ledger.views import Views
from ternmq.broker.ledger.wakes import Wakes
from ternmq.journal.log.journal import Journal
from ternmq.journal.store.store import RecordStore
from ternmq.model.errors import JournalFull
from ternmq.model.types import Position
from ternmq.record.fact.facts import Pulled, Settled
from ternmq.record.fact.header import HEADER_BYTES, Kind
from ternmq.record.fact.messages import Messages

# Members as globals of the module: looking one up in its class takes 0.2 us (Python 3.11).
_MESSAGES: Final = Kind.MESSAGES
_PULLED: Final = Kind.PULLED
_SETTLED: Final = Kind.SETTLED


class Ledger:
    """Records facts and holds the objects that decisions read. It decides nothing.

    Not thread-safe: call it from the broker's loop.

    Args:
        journal: The open journal; its EPOCH is durable.
        views: The views, replayed from the journal.
        store: Reads records.
        chance: Randomness for jitter.

    Attributes:
        index: Finds records.
        limits: The broker's limits.
        suspect_below: ``Views.suspect_below``, as it was at the start.
        timers: Times at which something is due; derived from the views, set by decisions.
        wakes: Subscriptions whose parked pulls are to be tried again.
        room: The space for records that clients send.
        copies: Whether two copies are sure, and whether new messages are taken.
        rewinds: Number of events after which a group may need finished rows again: see
            ``judge_again``.
    """

    __slots__ = (
        "_at",
        "_handed_from",
        "_handed_until",
        "_table",
        "chance",
        "copies",
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
        self._handed_from = self._handed_until = 0
        """The last records up to ``_handed_until`` that are all hand-outs begin at
        ``_handed_from``."""
        self.views = views
        self.store = store
        self.chance = chance
        self.index = views.index
        self.limits = views.limits
        self.suspect_below = views.suspect_below
        self.timers = TimerStore()
        self.wakes = Wakes(views.catalog)
        self.room = Room(journal)
        self.copies = Copies()
        self.rewinds = 0
        self._table = views.table
        self._at = Written()

    @property
    def end(self) -> Position:
        """End of the journal: the position of an answer that depends on everything so far."""
        return self.journal.end

    def judge_again(self) -> None:
        """Note that the oldest segment may be needed after all.

        A group may need finished rows again, a hold was moved back, or a commit made messages of
        rows in it.

        Retention judges the segment on the assumption that groups only go forward and that no row
        in it becomes a message, so it has to judge it again.
        """
        self.rewinds += 1

    # -- recording --------------------------------------------------------------------------------

    def record(self, now_us: int, what: FactKind[F], fact: F) -> Position:
        """Append a fact and apply it; return the position of its record.

        Raises:
            JournalFull: No segment is ready. Nothing was changed, and the call may be repeated.
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
        """Record a fact for a client: a full journal is raised as an error with advice for it.

        Raises:
            Busy: The next segment is being made; nothing was changed.
            DiskFull: There is no room for the record; nothing was changed.
        """
        try:
            return self.record(now_us, what, fact)
        except JournalFull as error:
            raise self.room.no_segment() from error

    def admit_messages(self, now_us: int, body: bytes, stored: Messages) -> Position:
        """``admit`` for MESSAGES, faster.

        Args:
            now_us: Broker time.
            body: The packed messages.
            stored: The messages.

        Returns:
            The end of the record.

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

    def record_pulled(self, now_us: int, body: bytes, progress: Progress, fact: Pulled) -> Position:
        """``record`` for PULLED with one fact, faster.

        Args:
            now_us: Broker time.
            body: The packed fact.
            progress: The group queue that the fact names.
            fact: The rows.

        Raises:
            JournalFull: As from ``record``.
        """
        journal = self.journal
        end = journal.end
        position = journal.append(_PULLED, body, now_us)
        if end != self._handed_until:
            self._handed_from = end
        self._handed_until = journal.end
        progress.apply_pulled(position, journal.epoch, fact)
        return position

    @property
    def only_handed_out(self) -> bool:
        """Whether all records that are not durable yet are hand-outs, and there are some.

        Unless its mode is ``confirmed``, nobody waits until a hand-out is durable: a lease that is
        lost in a power cut ends, as if its time were over, but is not counted.
        """
        durable, end = self.journal.durable, self.journal.end
        return durable < end == self._handed_until and durable >= self._handed_from

    def record_settled(
        self, now_us: int, body: bytes, progress: Progress, fact: Settled
    ) -> Position:
        """``record`` for SETTLED with one fact, faster; see ``record_pulled``."""
        position = self.journal.append(_SETTLED, body, now_us)
        progress.apply_settled(position, fact)
        return position
