"""Finds the rows of a pull that have expired, and records what becomes of them.

A row expires at the time that its sender stated (column ``expiry_us`` of its batch), or so long
after it was stored as its topic says; the earlier one counts. It is judged when it would be handed
out for the first time, and when it comes again after a failure: never after a release, a replay or
a redrive. So a pull plans its rows as always, the planned rows are judged, and if one has expired,
that is recorded and the pull is planned again. No planner knows of expiry, and a row that the
group's filter does not pass never expires for it.

An expired row becomes a dead letter with the cause EXPIRED, or is dropped: done, with the same
cause. Rows that were never handed out have attempt 0 and deliveries 0. When the failure store is
nearly full, they are dropped whatever the group says, and an alarm is raised: they must never fill
the store, since a group whose store is full gets no new rows. Rows that come again are in the store
already, and stay in it as dead letters.

A row that cannot be read has not expired: it is handed out, and its consumer sets it apart.

Rows of queues without expiring rows are not judged at all: see ``Queue.judged_below``.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from ternmq.broker.catalog.catalog import Queue, Subscription
from ternmq.broker.delivery.settles import Settling
from ternmq.broker.group.progress import Progress
from ternmq.broker.group.runs import first_rows, row_count, split_all
from ternmq.broker.ledger.alarms import EXPIRED_DROPPED, Alarms
from ternmq.broker.ledger.factkinds import SETTLED
from ternmq.broker.ledger.ledger import Ledger
from ternmq.journal.index.tail import Places
from ternmq.model.errors import CorruptJournal, DiskReadError, MessageNotFound
from ternmq.model.specs import Expired
from ternmq.record.batch.layout import EXPIRY_US, expiry_times_of, flags_of
from ternmq.record.fact import messages, moved
from ternmq.record.fact.facts import Cause, LeasedRun, Outcome, Settled
from ternmq.record.fact.header import HEADER_BYTES, time_us_of

_UNREADABLE: Final = (CorruptJournal, DiskReadError, MessageNotFound)
_HAS_EXPIRY: Final = 1 << EXPIRY_US
_NEVER: Final = 1 << 63
_NEARLY_FULL: Final = 9
"""Tenths of the failure store from which on expired rows are dropped."""


class _Batch(NamedTuple):
    """When rows that are stored together expire, as far as one judgement must know."""

    first: int
    stop: int
    of_topic: bool
    """Whether the time of all rows is over by the settings of their topic."""
    times: Sequence[int]
    """When each row expires, 0: never; empty if no row states it, or that does not count."""

    def add_over(self, now_us: int, start: int, stop: int, over: list[tuple[int, int]]) -> None:
        """Add those rows of a span of it whose time is over."""
        first, _, of_topic, times = self
        if of_topic:
            _add(over, start, stop)
        elif times:
            for offset in range(start, stop):
                if 0 < times[offset - first] <= now_us:
                    _add(over, offset, offset + 1)


class Expiry:
    """Judges planned rows, and records those that have expired.

    Not thread-safe: call it from the broker's loop.

    Attributes:
        dead_rows: Number of expired rows that became dead letters, since the start; a row counts
            once for each group.
        dropped_rows: Likewise, of those that were dropped.
    """

    __slots__ = (
        "_alarms", "_batch", "_copies", "_ledger", "_settling", "dead_rows", "dropped_rows"
    )  # fmt: skip

    def __init__(self, ledger: Ledger, settling: Settling) -> None:
        self._ledger = ledger
        self._settling = settling
        self._alarms = Alarms(ledger)
        self._batch: _Batch | None = None
        """The one that was read last for the rows that are judged now."""
        self._copies: tuple[int, moved.Moved] | None = None
        """Likewise, of rows whose segment was removed, with the position of the record."""
        self.dead_rows = 0
        self.dropped_rows = 0

    def expired(
        self, now_us: int, queue: Queue, progress: Progress, runs: Sequence[LeasedRun]
    ) -> list[LeasedRun]:
        """Return those of some planned rows that have expired, with their attempts and deliveries.

        Raises:
            WouldBlock: bytes must be read first; nothing was changed.
        """
        self._batch = self._copies = None
        found: list[LeasedRun] = []
        below = queue.judged_below
        failures = progress.failures
        # Never handed out: the next rows of the queue, and those that were parked behind another of
        # their key, also if the mode was changed since. In a mode that parks no rows, those below
        # `since` were replayed: the group begins, or was told to go on, behind them.
        first = 0 if progress.mode.parks else progress.given.since
        for start, stop, _, deliveries in sorted(runs):
            if start >= below:
                break
            if deliveries == 1:
                low, high = max(start, first), min(stop, below)
                over = self._over(now_us, queue, progress, low, high)
                found += [(*span, 0, 0) for span in over]
            elif failures.waiting_rows:
                for offset in range(start, min(stop, below)):
                    row = failures.failure(offset)
                    if row is not None and self._over(now_us, queue, progress, offset, offset + 1):
                        found.append((offset, offset + 1, row.attempt, row.deliveries))
        return found

    def _over(
        self, now_us: int, queue: Queue, progress: Progress, start: int, stop: int
    ) -> list[tuple[int, int]]:
        """Return the rows of a span whose time is over; none of those that cannot be read."""
        over: list[tuple[int, int]] = []
        ledger = self._ledger
        at = start
        while at < stop:
            batch = self._batch
            if batch is not None and batch.first <= at < batch.stop:
                end = min(stop, batch.stop)
                batch.add_over(now_us, at, end, over)
                at = end
                continue
            places = ledger.index.locate(
                queue.topic.number, queue.number, at, stop, ledger.limits.pull_bytes
            )
            if not places.positions:
                with suppress(*_UNREADABLE):
                    batch = self._batch = self._read_copy(now_us, queue, progress, at)
                    batch.add_over(now_us, at, at + 1, over)
                at += 1
                continue
            firsts = [*places.first_offsets[1:], places.stop]
            for number, end in enumerate(firsts):
                with suppress(*_UNREADABLE):
                    batch = self._batch = self._read(now_us, queue, places, number)
                    low = max(at, places.first_offsets[number])
                    batch.add_over(now_us, low, min(stop, end), over)
            at = min(stop, places.stop)
        return over

    def _read(self, now_us: int, queue: Queue, places: Places, number: int) -> _Batch:
        """Return when the rows of a batch expire."""
        record = self._ledger.store.at_place(places, number)
        stored = messages.of_record(record)
        times: Sequence[int] = ()
        states = flags_of(stored.batch) & _HAS_EXPIRY
        of_topic = _by_topic(queue, time_us_of(record)) <= now_us
        if states and not of_topic:
            times = expiry_times_of(stored.batch)
            if stored.runs:
                times = [one for start, stop in stored.runs for one in times[start:stop]]
        return _Batch(stored.first_offset, stored.first_offset + stored.count, of_topic, times)

    def _read_copy(self, now_us: int, queue: Queue, progress: Progress, offset: int) -> _Batch:
        """Return when the rows expire that were copied with one whose segment was removed."""
        ledger = self._ledger
        place = ledger.index.moved(queue.topic.number, queue.number, offset)
        if place is None:
            raise CorruptJournal(
                f"offset {offset} of queue {queue.number} of topic {queue.topic.number} is owed to "
                f"group {progress.group} and kept nowhere"
            )
        if self._copies is None or self._copies[0] != place.position:
            copies = moved.unpack(ledger.store.get(place.position)[HEADER_BYTES:])
            self._copies = place.position, copies
        piece, _ = self._copies[1].row(place.row)
        times: Sequence[int] = ()
        of_topic = _by_topic(queue, piece.time_us) <= now_us
        if flags_of(piece.batch) & _HAS_EXPIRY and not of_topic:
            times = expiry_times_of(piece.batch)[piece.row_start :]
        return _Batch(piece.first_offset, piece.first_offset + piece.row_count, of_topic, times)

    def record(
        self, now_us: int, subscription: Subscription, progress: Progress, runs: list[LeasedRun]
    ) -> None:
        """Record that rows have expired: they become dead letters, or are dropped.

        Raises:
            JournalFull: no segment is ready; nothing was changed.
        """
        failures = progress.failures
        dead, dropped = runs, list[LeasedRun]()
        crowded = False
        if subscription.spec.expired is Expired.DROP:
            dead, dropped = [], runs
        else:
            most = self._ledger.limits.failures * _NEARLY_FULL // 10
            left = max(0, most - failures.waiting_rows - failures.dead_rows)
            # Rows that failed before are in the store already, as waiting ones.
            new = [run for run in runs if not run[3]]
            crowded = row_count(new) > left
            if crowded:
                fit = first_rows(new, left) if left else []
                dropped, _ = split_all(new, [run[:2] for run in fit])
                dead = sorted(fit + [run for run in runs if run[3]])
        settled: list[Settled] = []
        if dead:
            kept, previous = _with_failures(progress, dead)
            settled.append(_fact(now_us, progress, Outcome.DEAD, kept, previous))
        if dropped:
            settled.append(_fact(now_us, progress, Outcome.DONE, dropped))
        self._settling.record(now_us, SETTLED, progress, settled)
        self.dead_rows += row_count(dead)
        self.dropped_rows += row_count(dropped)
        if crowded:
            topic, group = subscription.topic.name, subscription.name
            self._alarms.raise_(
                now_us,
                EXPIRED_DROPPED,
                f"{topic}/{group}/{progress.queue}",
                "expired messages are dropped: there are too many dead letters and waiting "
                "messages to keep them",
            )


def _by_topic(queue: Queue, stored_us: int) -> int:
    """Return when a row that was stored at a time expires by the settings of its topic."""
    after_us = queue.topic.spec.expires_us
    return stored_us + after_us if after_us else _NEVER


def _add(spans: list[tuple[int, int]], start: int, stop: int) -> None:
    """Add a span behind the others; it is joined with the last one if they touch."""
    if spans and spans[-1][1] == start:
        start = spans.pop()[0]
    spans.append((start, stop))


def _with_failures(
    progress: Progress, runs: Sequence[LeasedRun]
) -> tuple[list[LeasedRun], list[int]]:
    """Return the runs, each with the position of one earlier failure (0: none)."""
    cut: list[LeasedRun] = []
    previous: list[int] = []
    failures = progress.failures
    for start, stop, attempt, deliveries in runs:
        if not deliveries:  # never handed out
            cut.append((start, stop, attempt, deliveries))
            previous.append(0)
            continue
        for offset in range(start, stop):
            row = failures.failure(offset)
            cut.append((offset, offset + 1, attempt, deliveries))
            previous.append(0 if row is None else row.position)
    return cut, previous


def _fact(
    now_us: int,
    progress: Progress,
    outcome: Outcome,
    runs: Sequence[LeasedRun],
    previous: Sequence[int] = (),
) -> Settled:
    return Settled(
        progress.group, progress.topic, progress.queue, 0, 0, 0, progress.round, outcome,
        Cause.EXPIRED, now_us, runs, previous,
    )  # fmt: skip
