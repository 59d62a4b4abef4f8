"""Holds: named positions of the journal; everything from a hold on is kept on the disk.

A segment is removed only when every hold has passed it. A hold moves forward, and back only on an
explicit request; it is a CONFIG record and an object of STATE, so it survives a restart. A reader
of the journal (an archive, an audit) creates a hold before it reads, and moves the hold on when the
data that it read is safe elsewhere.
"""

from __future__ import annotations

from typing import Final

from ternmq.broker.gate.replies import DoneReply, ValueReply
from ternmq.broker.ledger.factkinds import CONFIG
from ternmq.broker.ledger.ledger import Ledger
from ternmq.model.errors import Busy, InvalidRequest
from ternmq.model.specs import check_name
from ternmq.record.fact.control import Hold, HoldDeleted

MAX_NOTE: Final = 200


class Holding:
    """Decides holds.

    Not thread-safe: call it from the broker's loop.
    """

    __slots__ = ("_ledger",)

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    @property
    def lowest(self) -> int | None:
        """The smallest position that is held; None without holds."""
        return self._ledger.views.lowest_hold

    def put(
        self,
        now_us: int,
        name: str,
        position: int,
        *,
        note: str = "",
        app: str = "",
        back: bool = False,
    ) -> ValueReply[int]:
        """Create or move a hold; the reply's value is its position now.

        Args:
            now_us: Broker time.
            name: Name of the hold.
            position: The position to hold; one before the journal's first byte is raised to it.
            note: Text for people.
            app: App that requests it.
            back: Whether the hold may move back; otherwise a lower position has no effect.

        Raises:
            InvalidName, InvalidRequest: the position is above the end.
            Busy: there are too many holds.
        """
        check_name(name)
        ledger = self._ledger
        journal, holds = ledger.journal, ledger.views.holds
        if len(note) > MAX_NOTE or not (note.isprintable()):
            raise InvalidRequest(f"a note is at most {MAX_NOTE} printable characters")
        if not 0 <= position <= journal.end:
            raise InvalidRequest(f"position must be 0 to {journal.end}, where the journal ends")
        position = max(position, journal.first)
        known = holds.get(name)
        if known is None:
            most = ledger.limits.holds
            if len(holds) >= most:
                raise Busy(f"there are {most} holds; `hold delete` removes one")
            hold = Hold(name, position, note, app, now_us, now_us)
        else:
            if position < known.position and not back:
                position = known.position
            note = note or known.note
            if (position, note) == (known.position, known.note):
                return ValueReply(journal.end, value=position)
            moved_us = known.moved_us if position == known.position else now_us
            hold = Hold(name, position, note, app, known.created_us, moved_us)
        if known is None or position < known.position:
            ledger.judge_again()  # a segment judged as removable may have to stay
        ledger.record(now_us, CONFIG, hold)
        return ValueReply(ledger.end, value=position)

    def delete(self, now_us: int, name: str) -> DoneReply:
        """Remove a hold, if it exists.

        Raises:
            InvalidName.
        """
        check_name(name)
        ledger = self._ledger
        if name in ledger.views.holds:
            ledger.record(now_us, CONFIG, HoldDeleted(name))
        return DoneReply(ledger.end)
