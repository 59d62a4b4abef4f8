"""Raises and clears alarms, by records: an alarm outlives a restart, until it is cleared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ternmq.broker.catalog.alarms import AlarmKey
from ternmq.broker.ledger.factkinds import ALARM
from ternmq.broker.ledger.ledger import Ledger
from ternmq.record.fact.control import Alarm

CLOCK: Final = "clock"
"""Broker time does not follow the wall clock; no subject."""
DEAD_LETTERS: Final = "dead-letters"
"""Subject: topic/group/queue."""
HELD: Final = "held"
"""Subject: topic/group/queue."""
DUE_UNREADABLE: Final = "due-unreadable"
"""Scheduled rows were set aside. Subject: the topic."""
DUE_NO_ROOM: Final = "due-no-room"
"""Scheduled rows that are due find no room; no subject."""
NO_CHECKER: Final = "no-checker"
"""Transactions wait for a checker. Subject: the producer group."""
EXPIRED_DROPPED: Final = "expired-dropped"
"""Expired rows are dropped, as there is no room for them. Subject: topic/group/queue."""
OWNER_IDLE: Final = "owner-idle"
"""Rows wait in a queue whose owner does nothing. Subject: topic/group."""
PARKED: Final = "transaction-parked"
"""Nobody is asked about a transaction any more. Subject: its id."""
UNOWNED: Final = "queue-unowned"
"""Rows wait in a queue that belongs to no member of the group. Subject: topic/group."""
ONE_COPY: Final = "one-copy"
"""No other broker has a copy of the journal that counts. Subject: the broker group."""
COPY_BEHIND: Final = "copy-behind"
"""A copy of the journal does not keep up. Subject: its broker."""
COORDINATOR: Final = "coordinator"
"""The coordinator of the cluster does not answer, or its record is not valid; no subject."""
READ_ONLY: Final = "read-only"
"""The broker group takes no new messages. Subject: the broker group."""
DAMAGED: Final = "damaged"
"""Bytes of the journal are damaged, and could not be mended. Subject: the file."""
MENDED: Final = "mended"
"""Bytes of the journal were damaged, and were mended from another copy. Subject: the file."""
OF_GROUP: Final = (ONE_COPY, COPY_BEHIND, COORDINATOR, READ_ONLY)
"""Alarms whose reasons only the shell knows: a broker without a broker group has none of them."""
NAMES: Final = (
    CLOCK, DAMAGED, DEAD_LETTERS, EXPIRED_DROPPED, HELD, DUE_UNREADABLE, DUE_NO_ROOM, NO_CHECKER,
    OWNER_IDLE, PARKED, UNOWNED,
)  # fmt: skip
MOST_TEXT: Final = 300
"""Most characters of a text; what is longer is cut."""


class Alarms:
    """Decides which alarms are open. It has no state of its own: any part may have one.

    Not thread-safe: call it from the broker's loop.
    """

    __slots__ = ("_ledger",)

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    @property
    def open(self) -> Mapping[AlarmKey, Alarm]:
        """The open alarms, those raised first in front."""
        return self._ledger.views.alarms.open

    def raise_(self, now_us: int, name: str, subject: str, text: str) -> bool:
        """Raise an alarm, unless one of this name and subject is open; its text stays then.

        Returns:
            Whether it was raised.

        Raises:
            JournalFull: No segment is ready; nothing was changed.
        """
        if (name, subject) in self.open:
            return False
        alarm = Alarm(name, text[:MOST_TEXT], subject, raised=True, since_us=now_us)
        self._ledger.record(now_us, ALARM, alarm)
        return True

    def restate(self, now_us: int, name: str, subject: str, text: str) -> bool:
        """Give an open alarm another text; return whether it is open and had another one.

        Raises:
            JournalFull: No segment is ready; nothing was changed.
        """
        alarm = self.open.get(AlarmKey(name, subject))
        text = text[:MOST_TEXT]
        if alarm is None or alarm.text == text:
            return False
        told = Alarm(name, text, subject, raised=True, since_us=alarm.since_us)
        self._ledger.record(now_us, ALARM, told)
        return True

    def clear(self, now_us: int, name: str, subject: str) -> bool:
        """Clear an alarm; return whether it was open.

        Raises:
            JournalFull: No segment is ready; nothing was changed.
        """
        alarm = self.open.get(AlarmKey(name, subject))
        if alarm is None:
            return False
        cleared = Alarm(name, alarm.text, subject, raised=False, since_us=alarm.since_us)
        self._ledger.record(now_us, ALARM, cleared)
        return True
