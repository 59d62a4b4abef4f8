"""Which failed rows of a group queue match a selection: by state, time, attempts, key and id.

Rows are judged in pieces: a request examines a bounded number and says where the next one goes on,
so that a million failed rows delay nobody. State and attempts are in memory. The time of a failure
is in memory for dead rows; for others it is the time of a record. The records of SETTLED facts
are in order of time, so a binary search over their positions finds the rows of a span; only rows
that were copied (MOVED) are read one by one, because a copy is newer than the failure. A piece ends
early if it would read too much: what a command reads has to fit into the cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from ternmq.broker.catalog.catalog import Queue
from ternmq.broker.group.failedrows import HELD_US
from ternmq.broker.group.failurestore import FailureStore
from ternmq.broker.group.progress import Progress
from ternmq.broker.group.rowstate import RowState
from ternmq.broker.query.failedpiece import EVER_US, FailedPiece, Selection
from ternmq.broker.query.failuretimes import FailureTimes
from ternmq.broker.query.held import Held
from ternmq.journal.store import lookup
from ternmq.journal.store.lookup import Cursor, Found, State
from ternmq.model.errors import UnknownQueue

EXAMINED: Final = 65_536
"""Rows after which a piece ends, at the edge of a shard: about 4 ms."""
MOST_SHARDS: Final = 512
"""Shards after which a piece ends: some have one row only."""
MOST_NEWEST: Final = 1000
"""Most rows of an answer to ``newest``: the records of their failures are read."""
ASKED: Final = 64
"""Requests that name rows whose times are kept: so many such requests may be under way."""
BY_KEY: Final = 100
"""Messages of a key that one piece examines: each is read."""


@dataclass(slots=True)
class Matches:
    """The rows of a piece that match."""

    offsets: list[int] = field(default_factory=list)
    failed_us: list[int] = field(default_factory=list)
    """Times of their newest failures; empty if not asked for."""
    counts: dict[RowState, int] = field(default_factory=dict)
    """Number of rows that match, by state, whether ``offsets`` has them or not."""
    after: int | Cursor | None = None
    """Where the next piece goes on; None: this was the last one."""


class FailedSearch:
    """Searches the failed rows of group queues. It changes nothing.

    Not thread-safe: call it from the broker's loop. Every method may raise ``WouldBlock``: run the
    job and call again.
    """

    __slots__ = ("_asked", "_held")

    def __init__(self, held: Held) -> None:
        self._held = held
        self._asked: dict[tuple[Progress, tuple[int, ...]], FailureTimes] = {}
        """Times of the rows of the newest requests for ``matching``, see there."""

    def by_offset(
        self, topic: str, group: str, number: int, selection: Selection, *, after: int, limit: int
    ) -> Matches:
        """Return the next rows above ``after`` that match, by offset.

        Raises:
            UnknownTopic, UnknownGroup, UnknownQueue, WouldBlock.
        """
        piece, times = self._piece(topic, group, number, selection, after)
        chosen = piece.chosen(selection, times)
        found = Matches(after=piece.after)
        if len(chosen) > limit:
            chosen = chosen[:limit]
            found.after = piece.offsets(chosen)[-1]
        found.offsets = piece.offsets(chosen)
        found.counts = piece.counts(chosen)
        return found

    def count(
        self, topic: str, group: str, number: int, selection: Selection, *, after: int
    ) -> Matches:
        """Count the rows above ``after`` that match.

        Raises:
            UnknownTopic, UnknownGroup, UnknownQueue, WouldBlock.
        """
        _, progress = self._place(topic, group, number)
        if after < 0 and not selection.attempts and not selection.timed:
            return Matches(counts=_all(progress.failures, selection))
        piece, times = self._piece(topic, group, number, selection, after)
        return Matches(counts=piece.counts(piece.chosen(selection, times)), after=piece.after)

    def newest(
        self, topic: str, group: str, number: int, selection: Selection, *, after: int, limit: int
    ) -> Matches:
        """Return the rows of the next piece that failed last, with these times, newest first.

        Raises:
            UnknownTopic, UnknownGroup, UnknownQueue, WouldBlock.
        """
        piece, times = self._piece(topic, group, number, selection, after)
        chosen = piece.chosen(selection, times)
        latest = piece.latest(chosen, times, min(limit, MOST_NEWEST))
        return Matches(
            [offset for _, offset in latest],
            [failed_us for failed_us, _ in latest],
            piece.counts(chosen),
            piece.after,
        )

    def by_key(
        self,
        topic: str,
        group: str,
        number: int,
        selection: Selection,
        key: str,
        *,
        after: Cursor | None,
    ) -> Matches:
        """Return the next rows with a key that match, newest message first, with their times.

        Raises:
            UnknownTopic, UnknownGroup, UnknownQueue, WouldBlock.
        """
        held = self._held
        queue, progress = self._place(topic, group, number)
        page = lookup.by_key(
            held.index,
            held.store,
            progress.topic,
            key,
            since_us=0,
            until_us=EVER_US,
            limit=BY_KEY,
            after=after,
            below=held.journal.committed,
            pending=held.views.schedule.pages.find,
        )
        return self._of(queue, progress, selection, page.found, page.next)

    def by_message(
        self, topic: str, group: str, number: int, selection: Selection, found: Found
    ) -> Matches:
        """Return the row of a message that was looked up, if it matches, with its time.

        Raises:
            UnknownTopic, UnknownGroup, UnknownQueue, WouldBlock.
        """
        queue, progress = self._place(topic, group, number)
        return self._of(queue, progress, selection, [found], None)

    def matching(
        self, topic: str, group: str, number: int, selection: Selection, offsets: Sequence[int]
    ) -> list[int]:
        """Return those of some rows that have failed and match, by offset.

        If times matter, the records of their failures are read; of rows that were copied, with the
        messages. That may be more than the cache has room for. So the times that were read are kept
        for when the request is judged again, after ``WouldBlock``.

        Raises:
            UnknownTopic, UnknownGroup, UnknownQueue, WouldBlock.
        """
        _, progress = self._place(topic, group, number)
        wanted = sorted(set(offsets))
        times = self._times_of(progress, wanted) if selection.timed else None
        rows = [_Row.of(progress, offset, times) for offset in wanted]
        return [row.offset for row in rows if row is not None and row.matches(selection)]

    # -- parts ------------------------------------------------------------------------------------

    def _times_of(self, progress: Progress, offsets: Sequence[int]) -> FailureTimes:
        """Return the times of rows, with those that are known from an earlier attempt."""
        asked, key = self._asked, (progress, tuple(offsets))
        times = asked.pop(key, None)
        if times is None:
            times = FailureTimes(self._held, progress)
            if len(asked) >= ASKED:
                del asked[next(iter(asked))]
        else:
            times.forget_unknown()
        asked[key] = times
        return times

    def _of(
        self,
        queue: Queue,
        progress: Progress,
        selection: Selection,
        messages: Sequence[Found],
        after: Cursor | None,
    ) -> Matches:
        found = Matches(after=after)
        times = FailureTimes(self._held, progress)
        for one in messages:
            here = one.state is State.STORED and (one.topic, one.queue) == (
                progress.topic,
                queue.number,
            )
            row = _Row.of(progress, one.offset, times) if here else None
            if row is not None and row.matches(selection):
                found.offsets.append(row.offset)
                found.failed_us.append(row.failed_us)
                found.counts[row.state] = found.counts.get(row.state, 0) + 1
        return found

    def _piece(
        self, topic: str, group: str, number: int, selection: Selection, after: int
    ) -> tuple[FailedPiece, FailureTimes]:
        _, progress = self._place(topic, group, number)
        piece = FailedPiece(progress.failures, selection, after, EXAMINED, MOST_SHARDS)
        return piece, FailureTimes(self._held, progress)

    def _place(self, topic: str, group: str, number: int) -> tuple[Queue, Progress]:
        subscription = self._held.views.catalog.subscription(topic, group)
        if not 0 <= number < len(subscription.queues):
            raise UnknownQueue(f"topic {topic!r} has no queue {number}")
        return subscription.topic.queues[number], subscription.queues[number]


@dataclass(slots=True, frozen=True)
class _Row:
    """A failed row that is judged alone."""

    offset: int
    state: RowState
    attempts: int
    failed_us: int

    @classmethod
    def of(cls, progress: Progress, offset: int, times: FailureTimes | None) -> _Row | None:
        """Return the row of an offset, None if it has not failed; without ``times``, without time.

        Raises:
            WouldBlock: As ``times``.
        """
        row = progress.failures.dead_letter(offset)
        if row is not None:
            return cls(offset, RowState.DEAD, row.attempt, row.when_us)
        row = progress.failures.failure(offset)
        if row is None:
            return None
        state = RowState.HELD if row.when_us == HELD_US else RowState.WAITING
        failed_us = times.of(offset, row.position) if times is not None else 0
        return cls(offset, state, row.attempt, failed_us)

    def matches(self, selection: Selection) -> bool:
        """Return whether it is meant."""
        return (
            self.state in selection.states
            and self.attempts >= selection.attempts
            and selection.since_us <= self.failed_us < selection.until_us
        )


def _all(failures: FailureStore, selection: Selection) -> dict[RowState, int]:
    """Return the number of failed rows in each of the states, which is known."""
    counts = {
        RowState.WAITING: failures.waiting_rows - failures.held_rows,
        RowState.HELD: failures.held_rows,
        RowState.DEAD: failures.dead_rows,
    }
    return {state: count for state, count in counts.items() if count and state in selection.states}
