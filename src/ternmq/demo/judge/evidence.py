"""Judges one group: compares the records of its processes with the flights file.

A message may be handled again only if all of this holds:

1. It is the same message: the same offset. With another offset, it was stored twice.
2. No ack of it was answered before: the broker may never take back an answer.
3. The delivery marks itself: ``deliveries`` above 1, or ``maybe_redelivered``.
4. There is a cause: it had failed, and this is a later attempt; or the process that had handled it,
   or the broker, was killed in between; or the broker had been killed before, and that process
   recorded that its ack was refused or not answered.

Everything else is an unexplained duplicate.

The order of an aircraft is kept if each of its messages is handled for the first time after the
previous one was settled: handled to the end, or failed for the last time. A message that is handled
again for a valid reason does not violate the order.
"""

from __future__ import annotations

import zlib
from array import array
from bisect import bisect_right
from collections.abc import Iterable
from typing import Final, NamedTuple

import ternmq
from ternmq.demo.flights import Event, Flight, Kind
from ternmq.demo.judge.verdict import MOST_FINDINGS, Fault, Finding, GroupVerdict
from ternmq.demo.plan import ATTEMPTS, Consumers, Run, topic_of
from ternmq.demo.records import Acked, DeadLetter, Handled, Unanswered

_KINDS: Final = {kind.word: kind for kind in Kind}
_NEVER: Final = -1
_BROKER: Final = "broker"


class Occurrence(NamedTuple):
    """A record of a group, and the process that wrote it."""

    process: str
    record: Handled | Acked | Unanswered


class _Front(NamedTuple):
    """The latest message of an aircraft that was handled so far."""

    order: int
    """Its place in the order of events."""
    ended_us: int
    settled: bool
    id: str


class _Open(NamedTuple):
    """A message that came again; whether there is a cause is known after all records are read."""

    place: tuple[str, int, int]
    process: str
    """The process that had handled it."""
    event: str


class Expectation:
    """The content of the flights file, by the names of events."""

    def __init__(self, flights: list[Flight]) -> None:
        self.flights = flights
        self._rows = {flight.key: row for row, flight in enumerate(flights)}

    def row_of(self, key: str) -> int | None:
        """Return the place of a flight in the file; None: unknown."""
        return self._rows.get(key)

    def find(self, event_id: str) -> tuple[int, Event] | None:
        """Return (number, event); None: unknown. Numbers are below ``size``."""
        key, _, word = event_id.partition("/")
        row, kind = self._rows.get(key), _KINDS.get(word)
        if row is None or kind is None:
            return None
        minute = _minute_of(self.flights[row], kind)
        return None if minute is None else (row * 3 + kind, Event(kind, minute, self.flights[row]))

    def event(self, number: int) -> Event | None:
        """Return the event with a number, if there is one."""
        row, kind = divmod(number, 3)
        minute = _minute_of(self.flights[row], Kind(kind))
        return None if minute is None else Event(Kind(kind), minute, self.flights[row])

    @property
    def size(self) -> int:
        """One more than the largest event number."""
        return 3 * len(self.flights)


def _minute_of(flight: Flight, kind: Kind) -> int | None:
    if kind > Kind.CANCELLED:  # not of the file
        return None
    if kind is Kind.CANCELLED:
        return flight.scheduled if flight.departed is None else None
    return flight.departed if kind is Kind.DEPARTED else flight.arrived


class Kills:
    """The times at which processes were killed.

    Args:
        times: Times of each killed process, by name; the broker's name is ``broker``.
    """

    def __init__(self, times: dict[str, list[int]]) -> None:
        self._times = {process: sorted(found) for process, found in times.items()}

    def between(self, process: str, after_us: int, until_us: int) -> bool:
        """Return whether a process was killed between two times."""
        times = self._times.get(process, [])
        place = bisect_right(times, after_us)
        return place < len(times) and times[place] <= until_us

    def explain(self, process: str, after_us: int, until_us: int) -> bool:
        """Return whether the process or the broker was killed between two times."""
        return self.between(process, after_us, until_us) or self.between(
            _BROKER, after_us, until_us
        )


class GroupJudge:
    """Judges a group from its records in the order of time.

    Memory: some bytes for each event of the flights file.
    """

    def __init__(self, group: Consumers, expected: Expectation, run: Run, kills: Kills) -> None:
        self.verdict = GroupVerdict(group.name)
        self.findings: list[Finding] = []
        self._group = group
        self._expected = expected
        self._run = run
        self._kills = kills
        size = expected.size
        self._offset = array("q", [_NEVER]) * size
        self._begun = array("q", [0]) * size
        self._attempt = array("i", [0]) * size
        self._process = array("b", [0]) * size
        self._done = bytearray(size)
        self._dead = bytearray(size)
        self._processes: list[str] = []
        self._acked: dict[tuple[str, int], bytearray] = {}
        self._unanswered: dict[tuple[str, str, int, int], int] = {}
        self._open: list[_Open] = []
        self._fronts: dict[str, _Front] = {}
        self._latencies = array("q")
        self._first_us = self._last_us = 0

    def judge(self, occurrences: Iterable[Occurrence], dead: Iterable[DeadLetter]) -> GroupVerdict:
        """Return the verdict on the group.

        Args:
            occurrences: Records of its processes, in the order of time.
            dead: Its dead letters.
        """
        for process, record in occurrences:
            match record:
                case Handled():
                    self._handled(process, record)
                case Acked():
                    self._note_ack(record)
                case Unanswered():
                    place = (process, record.topic, record.queue, record.offset)
                    self._unanswered[place] = record.at_us
        for repeated in self._open:
            self._close(repeated)
        for letter in dead:
            self._note_dead(letter)
        self._look_for_losses()
        self.verdict.unanswered = max(0, sum(self._done) - self.verdict.acked)
        self._measure()
        return self.verdict

    def find(self, fault: Fault, event: str, detail: str) -> None:
        """Record a fault."""
        verdict = self.verdict
        match fault:
            case Fault.LOSS:
                verdict.losses += 1
            case Fault.DUPLICATE:
                verdict.duplicates += 1
            case Fault.ORDER:
                verdict.order_violations += 1
            case _:
                verdict.other_faults += 1
        if sum(one.fault is fault for one in self.findings) < MOST_FINDINGS:
            self.findings.append(Finding(fault, self._group.name, event, detail))

    # -- one after the other

    def _handled(self, process: str, record: Handled) -> None:
        self.verdict.delivered += 1
        self._first_us = self._first_us or record.begun_us
        self._last_us = max(self._last_us, record.ended_us)
        found = self._expected.find(record.event)
        if found is None:
            self.find(Fault.STRANGER, record.event, "the flights file has no such event")
            return
        number, event = found
        if not self._group.wants(event) or record.topic != topic_of(event):
            self.find(
                Fault.STRANGER,
                record.event,
                f"of {record.topic} must not be delivered to this group",
            )
            return
        if record.checksum != zlib.crc32(event.body):
            self.find(Fault.DAMAGED, record.event, "its body is not the one that was sent")
        first = self._offset[number] == _NEVER
        if record.deliveries > 1:
            self.verdict.redelivered += 1
        if first:
            self._latencies.append(record.latency_us)
        else:
            self._repeated(number, record)
        if self._group.mode(record.topic) is ternmq.Mode.ORDERED:
            self._in_order(number, event, record, first=first)
        if process not in self._processes:
            self._processes.append(process)
        self._offset[number] = record.offset
        self._begun[number] = record.begun_us
        self._attempt[number] = record.attempt if record.failed else 0
        self._process[number] = self._processes.index(process)
        if not record.failed:
            self._done[number] = 1

    def _repeated(self, number: int, record: Handled) -> None:
        """Find the cause for handling a message again."""
        place = (record.topic, record.queue, record.offset)
        begun, process = self._begun[number], self._processes[self._process[number]]
        failed_at = self._attempt[number]
        if record.offset != self._offset[number]:
            told = f"was stored twice, at offsets {self._offset[number]} and {record.offset}"
        elif self._is_acked(place):
            told = "was delivered again after its ack was answered"
        elif record.deliveries <= 1 and not record.suspect:
            told = "was delivered again, and the delivery was not marked as a repetition"
        elif failed_at and record.attempt > failed_at:
            self.verdict.retried += 1
            return
        elif self._kills.explain(process, begun, record.begun_us):
            self.verdict.repeated += 1
            return
        else:
            self._open.append(_Open(place, process, record.event))
            return
        self.find(Fault.DUPLICATE, record.event, told)

    def _close(self, repeated: _Open) -> None:
        """Without a kill in between, check whether the broker was killed before the ack."""
        unanswered = self._unanswered.get((repeated.process, *repeated.place))
        if unanswered is not None and self._kills.between(_BROKER, 0, unanswered):
            self.verdict.repeated += 1
            return
        told = (
            f"was delivered again, although neither {repeated.process} nor the broker was killed "
            "in between"
        )
        self.find(Fault.DUPLICATE, repeated.event, told)

    def _in_order(self, number: int, event: Event, record: Handled, *, first: bool) -> None:
        """Compare a message with the previous one of its aircraft."""
        tail = event.flight.tail
        order = (event.minute << 2 | event.kind) << 20 | number // 3  # as ``Timetable`` sorts
        front = self._fronts.get(tail)
        settled = not record.failed or record.attempt >= ATTEMPTS
        if front is not None and first:
            if order < front.order:
                self.find(Fault.ORDER, record.event, f"of {tail} was processed after {front.id}")
                return
            if record.begun_us < front.ended_us:
                self.find(
                    Fault.ORDER, record.event, f"of {tail} was started before {front.id} ended"
                )
            elif not front.settled:
                told = f"of {tail} was started while {front.id} waited for a retry"
                self.find(Fault.ORDER, record.event, told)
        if front is None or order >= front.order:
            self._fronts[tail] = _Front(order, record.ended_us, settled, record.event)

    def _note_ack(self, record: Acked) -> None:
        marks = self._acked.setdefault((record.topic, record.queue), bytearray())
        if record.offset >= len(marks):
            marks.extend(bytes(max(record.offset + 1 - len(marks), len(marks), 1024)))
        self.verdict.acked += not marks[record.offset]
        marks[record.offset] = 1

    def _is_acked(self, place: tuple[str, int, int]) -> bool:
        topic, queue, offset = place
        marks = self._acked.get((topic, queue), b"")
        return offset < len(marks) and bool(marks[offset])

    # -- at the end

    def _note_dead(self, letter: DeadLetter) -> None:
        self.verdict.dead += 1
        found = self._expected.find(letter.event)
        if found is None or not self._group.wants(found[1]):
            self.find(
                Fault.DEAD_LETTER,
                letter.event,
                "is a dead letter of this group, but must not be delivered to it",
            )
            return
        if not self._group.fails or not self._run.doomed(letter.event):
            self.find(Fault.DEAD_LETTER, letter.event, f"is a dead letter: {letter.reason}")
        elif letter.attempts != ATTEMPTS:
            told = f"became a dead letter after {letter.attempts} attempts, not {ATTEMPTS}"
            self.find(Fault.DEAD_LETTER, letter.event, told)
        if self._dead[found[0]]:
            self.find(Fault.DUPLICATE, letter.event, "became a dead letter twice")
        self._dead[found[0]] = 1

    def _look_for_losses(self) -> None:
        for number in range(self._expected.size):
            event = self._expected.event(number)
            if event is None or not self._group.wants(event):
                continue
            self.verdict.owed += 1
            if self._offset[number] == _NEVER and not self._dead[number]:
                self.find(Fault.LOSS, event.id, "was never delivered")
            elif not self._done[number] and not self._dead[number]:
                self.find(Fault.LOSS, event.id, "failed, and did not become a dead letter")

    def _measure(self) -> None:
        verdict = self.verdict
        if self._last_us > self._first_us:
            seconds = (self._last_us - self._first_us) / 1e6
            verdict.per_second = round(verdict.delivered / seconds, 1)
        if self._latencies:
            ranked = sorted(self._latencies)
            verdict.p50_ms, verdict.p99_ms, verdict.worst_ms = (
                round(ranked[min(len(ranked) - 1, int(len(ranked) * share))] / 1000, 1)
                for share in (0.50, 0.99, 1.0)
            )
