"""Judges the bookings: both messages of each are delivered, once, or none.

Which flights have a booking, and which cards are refused, follows from the flights file. The rest
(losses, duplicates, bodies) is judged as for every group.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from ternmq.demo.bookings import KINDS, booking_of
from ternmq.demo.flights import Event, Flight
from ternmq.demo.judge.evidence import Expectation, GroupJudge, Kills, Occurrence
from ternmq.demo.judge.verdict import BookingsVerdict, Fault, Finding, GroupVerdict
from ternmq.demo.plan import TILL, Run
from ternmq.demo.records import AnyRecord, DeadLetter, Handled, Paid, Paying

_WORDS = {kind.word: number for number, kind in enumerate(KINDS)}


class Booked(Expectation):
    """The messages of bookings that are to be delivered.

    Args:
        flights: The flights.
        run: The options of the run.
    """

    def __init__(self, flights: list[Flight], run: Run) -> None:
        super().__init__(flights)
        self._run = run

    def find(self, event_id: str) -> tuple[int, Event] | None:
        """Return (number, event) of a message; None: there is none of this name."""
        key, _, word = event_id.partition("/")
        row, number = self.row_of(key), _WORDS.get(word)
        if row is None or number is None or not self._run.booked(key):
            return None
        return row * len(KINDS) + number, booking_of(self.flights[row], KINDS[number])

    def event(self, number: int) -> Event | None:
        """Return the message with a number, if it is to be delivered."""
        row, kind = divmod(number, len(KINDS))
        flight = self.flights[row]
        if not self._run.booked(flight.key) or self._run.refused(flight.key):
            return None
        return booking_of(flight, KINDS[kind])

    @property
    def size(self) -> int:
        """One more than the largest number."""
        return len(KINDS) * len(self.flights)


class BookingsJudge:
    """Judges the group of the bookings.

    Args:
        flights: The flights.
        run: The options of the run.
        paid: The records of the cashiers.
        kills: When processes were killed.
    """

    def __init__(
        self, flights: list[Flight], run: Run, paid: Iterable[AnyRecord], kills: Kills
    ) -> None:
        self._run = run
        self._judge = GroupJudge(TILL, Booked(flights, run), run, kills)
        self.bookings = BookingsVerdict()
        begun: Counter[str] = Counter()
        self._paid: set[str] = set()
        for record in paid:
            if isinstance(record, Paying):
                begun[record.flight] += 1
            elif isinstance(record, Paid):
                self._paid.add(record.flight)
                self.bookings.finished += record.by_checker
        wanted = [one.key for one in flights if run.booked(one.key)]
        self.bookings.paid = len(self._paid)
        self.bookings.again = sum(begun[key] > 1 for key in self._paid)
        self.bookings.refused = sum(run.refused(key) for key in wanted)
        for key in wanted:
            if run.refused(key) == (key in self._paid):
                told = "was paid with a card that is refused" if run.refused(key) else "is not paid"
                self.find(Fault.HALF, key, told)

    @property
    def findings(self) -> list[Finding]:
        """The faults that were found."""
        return self._judge.findings

    @property
    def verdict(self) -> GroupVerdict:
        """The verdict on the group, so far."""
        return self._judge.verdict

    def judge(self, occurrences: Iterable[Occurrence], dead: Iterable[DeadLetter]) -> GroupVerdict:
        """Return the verdict on the group; see ``GroupJudge.judge``."""
        came: dict[str, set[str]] = {}
        found = self._judge.judge(self._noted(occurrences, came), dead)
        for key, words in sorted(came.items()):
            if self._run.refused(key):
                self.find(Fault.HALF, key, "was not paid, and its messages were delivered")
            elif len(words) < len(KINDS):
                self.find(Fault.HALF, key, f"only its {min(words)} was delivered")
        return found

    def find(self, fault: Fault, event: str, detail: str) -> None:
        """Record a fault."""
        self._judge.find(fault, event, detail)

    def _noted(
        self, occurrences: Iterable[Occurrence], came: dict[str, set[str]]
    ) -> Iterator[Occurrence]:
        """Yield the records; note which messages of each booking came."""
        for one in occurrences:
            if isinstance(one.record, Handled):
                key, _, word = one.record.event.partition("/")
                if word in _WORDS:
                    came.setdefault(key, set()).add(word)
            yield one
