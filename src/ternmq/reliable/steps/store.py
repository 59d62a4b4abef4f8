"""Sessions in a database: each method is one transaction, or one look."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from ternmq.reliable.database.port import Work
from ternmq.reliable.libraries.attached import ApplicationDatabase
from ternmq.reliable.modes.numbering import Numbered
from ternmq.reliable.steps import course
from ternmq.reliable.steps.course import Change, Refused, Rules, Standing, State
from ternmq.reliable.steps.item import Item
from ternmq.reliable.steps.table import Consumer, SequenceTable

OVERDUE_ROWS: Final = 100
"""Most sessions that one look for lost wake-ups finds."""
BrokerTimeUs = Callable[[], int]
"""Returns the broker's time, in µs."""


@dataclass(slots=True, frozen=True)
class Look:
    """A session, and the database's clock in ms."""

    standing: Standing | None
    now_ms: int


class Store:
    """The sessions of one consumer. Callable from any thread; blocks.

    Args:
        database: Where they are.
        table: Their tables.
        consumer: The consumer.
        rules: Its rules.
        broker_us: Tells when wake-ups are due.
    """

    def __init__(
        self,
        database: ApplicationDatabase,
        table: SequenceTable,
        consumer: Consumer,
        rules: Rules,
        broker_us: BrokerTimeUs,
    ) -> None:
        self.database = database
        self.table = table
        self.consumer = consumer
        self.rules = rules
        self._broker_us = broker_us

    def look(self, session: str) -> Look:
        """Return a session as it is now."""
        with self.database.reading() as work:
            return Look(self.table.find(work, self.consumer, session), self.table.now_ms(work))

    def missing(self, session: str, size: int) -> list[int]:
        """Return the numbers of the items that are not there."""
        with self.database.reading() as work:
            there = set(self.table.numbers(work, self.consumer, session))
        return [number for number in range(1, size + 1) if number not in there]

    # -- items ------------------------------------------------------------------------------------

    def arrive(self, place: Numbered, item: Item) -> Change | Refused | None:
        """Store an item that came, with what it changes, durably; see ``course.arrived``."""
        with self.database.writing(durable=True) as work:
            # Without a lock first: what is stored does not change, and while a step is done, its
            # transaction has the lock.
            found = self._arrived(work, place, item, lock=False)
            if not isinstance(found, Change):
                return found
            if found.before is None and self._begin(work, place, item, found):
                return found
            found = self._arrived(work, place, item, lock=True)
            if isinstance(found, Change):
                self.table.insert_item(work, self.consumer, place.session, item)
                changed = self.table.change(work, self.consumer, place.session, found)
                assert changed, "the row is locked"
                self._wake(work, place.session, found)
            return found

    def _arrived(
        self, work: Work, place: Numbered, item: Item, *, lock: bool
    ) -> Change | Refused | None:
        standing = self.table.find(work, self.consumer, place.session, lock=lock)
        equal = None
        if standing is not None:
            there = self.table.item(work, self.consumer, place.session, place.number)
            if there is not None:
                equal = (there.body, there.content_type) == (item.body, item.content_type)
        now_ms = self.table.now_ms(work)
        return course.arrived(standing, place.number, place.size, equal, now_ms, self.rules)

    def _begin(self, work: Work, place: Numbered, item: Item, change: Change) -> bool:
        """Insert a session with its first item; return False if another one did that meanwhile."""
        if not self.table.insert(work, self.consumer, place.session, change.after):
            return False
        self.table.insert_item(work, self.consumer, place.session, item)
        self._wake(work, place.session, change)
        return True

    # -- steps ------------------------------------------------------------------------------------

    def begin(
        self, session: str, attempt: course.Attempt, wait_s: float, work: Work
    ) -> Item | None:
        """Count a step as done, first of all in its transaction, and return its item.

        None: the session is not as it was any more; another worker went on with it. If that worker
        is in a transaction of its own, this waits for its end, for ``wait_s`` at most.
        """
        with self.table.waiting(work, wait_s):
            if not self.table.change(work, self.consumer, session, attempt.change):
                return None
        item = self.table.item(work, self.consumer, session, attempt.number)
        assert item is not None, "a session runs when all items are there"
        return item

    def apply(self, session: str, change: Change) -> bool:
        """Change a session, and write its wake-up, durably; return whether it was as before."""
        with self.database.writing(durable=True) as work:
            if not self.table.change(work, self.consumer, session, change):
                return False
            self._wake(work, session, change)
        return True

    def apply_if_free(self, session: str, change: Change) -> bool:
        """As ``apply``; False as well if another transaction has the session, without waiting."""
        with self.database.writing(durable=True) as work:
            if self.table.find_free(work, self.consumer, session) != change.before:
                return False
            return self.table.change(work, self.consumer, session, change)

    # -- besides ----------------------------------------------------------------------------------

    def count(self) -> dict[State, int]:
        """Return how many sessions each state has, except those that have ended."""
        with self.database.reading() as work:
            return self.table.count(work, self.consumer)

    def renew(self, late_ms: int) -> list[str]:
        """Write wake-ups for sessions whose own one was lost, and return their names.

        Sessions that another transaction has locked are at work, and are passed over.
        """
        with self.database.reading() as work:
            if self.table.is_waiting(work, self.consumer, late_ms):
                return []  # no wake-up was lost: the broker is away, say
            names = self.table.overdue(work, self.consumer, late_ms, OVERDUE_ROWS)
        return [name for name in names if self._renew(name, late_ms)]

    def _renew(self, session: str, late_ms: int) -> bool:
        with self.database.writing(durable=True) as work:
            standing = self.table.find_free(work, self.consumer, session)
            now_ms = self.table.now_ms(work)
            if standing is None or standing.next_ms >= now_ms - late_ms:
                return False  # another process was here before
            change = course.overdue(standing, now_ms)
            if change is None or not self.table.change(work, self.consumer, session, change):
                return False
            self._wake(work, session, change)
        return True

    def clean(self, keep_ms: int) -> int:
        """Delete sessions that ended so long ago, and return how many."""
        deleted = 0
        while True:
            with self.database.reading() as work:
                names = self.table.ended(work, self.consumer, keep_ms)
            with self.database.writing() as work:
                deleted += sum([self.table.delete(work, self.consumer, name) for name in names])
            if not names:
                return deleted

    def _wake(self, work: Work, session: str, change: Change) -> None:
        if change.wake_ms is None:
            return
        due_us = self._broker_us() + change.wake_ms * 1000 if change.wake_ms else 0
        self.table.wake(work, self.consumer, session, change.after, due_us)


def beginning(
    store: Store, session: str, attempt: course.Attempt, wait_s: float
) -> Callable[[Work], Item | None]:
    """Return the first statements of a step's transaction; see ``Store.begin``."""
    return partial(store.begin, session, attempt, wait_s)


def shortened(numbers: Sequence[int], most: int = 20) -> str:
    """Return numbers as text: ``2, 5, 7``."""
    shown = ", ".join([str(number) for number in numbers[:most]])
    return f"{shown} and {len(numbers) - most:,} more" if len(numbers) > most else shown
