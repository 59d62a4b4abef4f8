"""The rows of one group over time: facts about the group, applied to arrays.

An event covers a run of offsets; the runs of all events are expanded at once (``numpy.repeat``).
If several events write one row, the last wins, because events are in the order of the journal. Only
where an effect depends on a row's present state (a cursor that moves, a group that ends, rows that
are replayed) are the events split into pieces before and after.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ternmq.pipeline.tables.numbers import NULL, Codes, Numbers, column, member, numbers
from ternmq.pipeline.trace.rows import Lives, Messages, Words
from ternmq.pipeline.trace.schema import (
    DEAD,
    DONE,
    EXPIRED,
    FAILED,
    HELD,
    LEASED,
    RELEASED,
    SKIPPED,
    STATES,
    STORED,
    WAITING,
)

_PULLED, _SKIPPED, _PARKED, _REPLAYED, _CURSOR, _SETTLED, _ENDED, _GONE = range(8)
OF_GROUPS: Final = ("pulled", "skipped", "parked", "replayed", "cursor", "settled", "ended")
"""Kinds of events about rows of a group; the kind ``gone`` is added for the end of a group."""
_OUTCOMES: Final = ("done", "retry", "dead", "released", "held")
_DONE, _RETRY, _DEAD, _RELEASED, _HELD = range(5)
_AFTER: Final = np.array([DONE, WAITING, DEAD, RELEASED, HELD], np.int32)
_CAUSES: Final = ("consumer", "operator", "expired", "failed")
_CONSUMER, _OPERATOR, _OLD, _FAILED = range(4)
_AS_FAILED: Final = pa.array([STATES[FAILED]])
"""Outcome of a failure in a broadcast instance: the broker records the message as done."""
_FACTS: Final = [
    "kind", "position", "time", "start", "stop", "cursor", "attempt", "round", "outcome", "cause",
    "app", "client", "reason", "group_number", "group", "transaction",
]  # fmt: skip
_MOVES: Final = ("reset", "expired", "commit")
_RESET, _GONE_BY, _COMMIT = range(3)


@dataclass(slots=True, frozen=True)
class Group:
    """A group of the queue's topic.

    Attributes:
        number: Its number.
        name: Its name.
        since: Position at which it began; -1: before everything that was read.
        since_us: When it began; 0: not known.
        cursor: Its cursor in this queue when it began; None: not known.
        gone: Position at which it ended.
        gone_us: When it ended.
    """

    number: int
    name: str
    since: int = -1
    since_us: int = 0
    cursor: int | None = None
    gone: int | None = None
    gone_us: int = 0


DONE_ROWS: Final = pa.schema(
    [
        ("position", pa.int64()),
        ("time", pa.int64()),
        ("group", pa.string()),
        ("group_number", pa.int64()),
        ("app", pa.string()),
        ("end_to_end_us", pa.int64()),
        ("handling_us", pa.int64()),
    ]
)


@dataclass(slots=True)
class Facts:
    """Events of one group, in order, as arrays."""

    kind: Codes
    position: Numbers
    time: Numbers
    start: Numbers
    stop: Numbers
    cursor: Numbers
    attempt: Numbers
    round: Numbers
    outcome: Codes
    by: Codes
    """Index in ``_CAUSES``."""
    move: Codes
    app: Codes
    client: Codes
    told: Codes
    """Name of the outcome."""
    cause: Codes
    reason: Codes
    transaction: Numbers

    def cut(self, start: int, stop: int) -> Facts:
        """Return a slice of them."""
        return Facts(*[getattr(self, name)[start:stop] for name in Facts.__slots__])

    def resets(self) -> list[tuple[int, int]]:
        """Return cursor and position of each reset."""
        which = (self.kind == _CURSOR) & (self.move == _RESET)
        return list(zip(self.cursor[which].tolist(), self.position[which].tolist(), strict=True))

    def chosen(self, which: npt.NDArray[np.bool_]) -> Facts:
        """Return those that a mask selects."""
        return Facts(*[getattr(self, name)[which] for name in Facts.__slots__])


def about_groups(events: pa.Table) -> pa.ChunkedArray:
    """Return a mask of the events about rows of groups."""
    return pc.is_in(events["kind"], value_set=pa.array(OF_GROUPS))


def facts_of(events: pa.Table, words: Words) -> tuple[Facts, dict[int, str]]:
    """Return the events about rows of groups, and the names of these groups."""
    some = events.select(_FACTS).filter(about_groups(events))
    kind = member(some["kind"], OF_GROUPS)
    found = Facts(
        kind,
        numbers(some["position"]),
        numbers(some["time"]),
        numbers(some["start"], 0),
        numbers(some["stop"], 0),
        numbers(some["cursor"], 0),
        numbers(some["attempt"], -1),
        numbers(some["round"], -1),
        member(some["outcome"], _OUTCOMES),
        member(some["cause"], _CAUSES),
        member(some["cause"], _MOVES),
        words.codes(some["app"]),
        words.codes(some["client"]),
        words.codes(some["outcome"]),
        words.codes(some["cause"]),
        words.codes(some["reason"]),
        numbers(some["transaction"]),
    )
    return found, named(some)


def named(rows: pa.Table) -> dict[int, str]:
    """Return the names of the groups in rows, by number."""
    group, first = np.unique(numbers(rows["group_number"], -1), return_index=True)
    names = rows["group"].take(pa.array(first)).to_pylist()
    return {
        int(number): name or f"group-{number}"
        for number, name in zip(group, names, strict=True)
        if number >= 0
    }


def with_end(facts: Facts, group: Group) -> Facts:
    """Insert the end of a group into its facts."""
    assert group.gone is not None
    at = int(np.searchsorted(facts.position, group.gone))
    given: dict[str, int] = {
        "kind": _GONE, "position": group.gone, "time": group.gone_us, "start": 0, "stop": 0
    }  # fmt: skip
    return Facts(
        *[np.insert(getattr(facts, name), at, given.get(name, -1)) for name in Facts.__slots__]
    )


def spread(counts: Numbers) -> tuple[Numbers, Numbers]:
    """Expand runs with these numbers of rows: return each row's run, and its place in the run."""
    ev = np.repeat(np.arange(len(counts)), counts)
    begins = np.cumsum(counts) - counts
    return ev, np.arange(len(ev)) - begins[ev]


@dataclass(slots=True)
class Life:
    """Applies the facts of one group to its rows."""

    lives: Lives
    messages: Messages
    facts: Facts
    group: Group
    words: Words
    done: list[pa.Table]
    unread: int = 0
    """No row below this index is ``stored``: cursors have passed them."""

    def run(self) -> None:
        """Apply all facts."""
        kind = self.facts.kind
        cuts = np.flatnonzero((kind == _CURSOR) | (kind == _GONE) | (kind == _REPLAYED)).tolist()
        begin = 0
        for cut in cuts:
            self._runs(self.facts.cut(begin, cut))
            self._turn(self.facts.cut(cut, cut + 1))
            begin = cut + 1
        self._runs(self.facts.cut(begin, len(kind)))

    def _runs(self, facts: Facts) -> None:
        """Apply facts about runs of rows: the last fact about a row wins."""
        if not len(facts.kind):
            return
        lives = self.lives
        low = np.searchsorted(lives.offset, facts.start)
        high = np.searchsorted(lives.offset, facts.stop)
        ev, inside = spread(high - low)
        row = low[ev] + inside
        kind = facts.kind
        after = np.where(facts.outcome >= 0, _AFTER[facts.outcome], STORED)
        is_done = facts.outcome == _DONE
        after[is_done & (facts.by == _OPERATOR)] = SKIPPED
        after[is_done & (facts.by == _OLD)] = EXPIRED
        after[is_done & (facts.by == _FAILED)] = FAILED
        after[kind == _PULLED] = LEASED
        after[kind == _SKIPPED] = SKIPPED
        after[kind == _PARKED] = WAITING
        lives.state[row] = after[ev]
        lives.state_time[row] = facts.time[ev]
        _put(lives.attempts, facts.attempt, row, ev)
        _put(lives.round, facts.round, row, ev)
        settled = ((kind == _SETTLED) | (kind == _ENDED))[ev]
        lives.settled_by[row[settled]] = facts.transaction[ev[settled]]
        self._pulled(facts, row, ev)
        self._failed(facts, row, ev)
        self._done(facts, after, row, ev)

    def _pulled(self, facts: Facts, row: Numbers, ev: Numbers) -> None:
        lives = self.lives
        which = (facts.kind == _PULLED)[ev]
        row, ev = row[which], ev[which]
        if not len(row):
            return
        lives.last_delivered[row] = facts.time[ev]
        lives.last_client[row] = facts.client[ev]
        lives.last_app[row] = facts.app[ev]
        np.add.at(lives.deliveries, row, np.int32(1))
        new = lives.first_delivered[row] == NULL
        if new.any():
            row, ev = row[new][::-1], ev[new][::-1]  # reversed: the earliest is written last
            lives.first_delivered[row] = facts.time[ev]
            lives.first_client[row] = facts.client[ev]

    def _failed(self, facts: Facts, row: Numbers, ev: Numbers) -> None:
        failing = np.isin(facts.outcome, (_RETRY, _DEAD, _HELD)) & (facts.by != _OPERATOR)
        in_instance = (facts.outcome == _DONE) & (facts.by == _FAILED)
        failing |= in_instance
        if not failing.any():
            return
        outcome = np.where(in_instance, self.words.codes(_AS_FAILED)[0], facts.told)
        which = failing[ev]
        row, ev = row[which], ev[which]
        self.lives.last_cause[row] = facts.cause[ev]
        self.lives.last_reason[row] = facts.reason[ev]
        self.lives.failures.add(
            row=row,
            time=facts.time[ev],
            attempt=facts.attempt[ev],
            client=facts.client[ev],
            outcome=outcome[ev],
            cause=facts.cause[ev],
            reason=facts.reason[ev],
        )

    def _done(self, facts: Facts, after: Codes, row: Numbers, ev: Numbers) -> None:
        done = after == DONE
        if not done.any():
            return
        which = done[ev]
        row, ev = row[which], ev[which]
        time = facts.time[ev]
        born = self.messages.born[self.lives.message[row]]
        pulled = self.lives.last_delivered[row]
        count = len(row)
        self.done.append(
            pa.table(
                [
                    pa.array(facts.position[ev]),
                    pa.array(time),
                    pa.repeat(pa.scalar(self.group.name), count),
                    pa.repeat(pa.scalar(self.group.number, pa.int64()), count),
                    self.words.texts(facts.app[ev]),
                    column(np.where(born == NULL, NULL, time - born), pa.int64()),
                    column(np.where(pulled == NULL, NULL, time - pulled), pa.int64()),
                ],
                schema=DONE_ROWS,
            )
        )

    def _turn(self, fact: Facts) -> None:
        """Apply a fact whose effect depends on the rows' current state."""
        lives = self.lives
        kind, time = int(fact.kind[0]), fact.time[0]
        if kind == _REPLAYED:
            low, high = np.searchsorted(lives.offset, [fact.start[0], fact.stop[0]]).tolist()
            ready = fact.attempt[0] >= 0
            lives.state[low:high] = WAITING if ready else STORED
            lives.state_time[low:high] = time
            if fact.round[0] >= 0:
                lives.round[low:high] = fact.round[0]
            self.unread = min(self.unread, low)
            return
        cut = int(np.searchsorted(lives.offset, fact.cursor[0]))
        if kind == _CURSOR and fact.move[0] != _RESET:
            if cut > self.unread:
                passed = self.unread + np.flatnonzero(lives.state[self.unread : cut] == STORED)
                after = {_GONE_BY: EXPIRED, _COMMIT: DONE}.get(int(fact.move[0]), SKIPPED)
                lives.state[passed] = after
                lives.state_time[passed] = time
                self.unread = cut
            return
        there = self.messages.position[lives.message] < fact.position[0]
        if kind == _GONE:
            self._close(there & (lives.state < DONE), SKIPPED, time)
            return
        below = lives.state < DONE
        below[cut:] = False
        self._close(below & there, SKIPPED, time)
        above = there
        above[:cut] = False
        self._close(above, STORED, time)
        lives.round[above] = fact.round[0]
        self.unread = cut

    def _close(self, which: npt.NDArray[np.bool_], state: int, time: int) -> None:
        self.lives.state[which] = state
        self.lives.state_time[which] = time


def _put(column: Codes, values: Numbers, row: Numbers, ev: Numbers) -> None:
    """Write values to rows; -1: leave the row as it is."""
    told = values >= 0
    if told.all():
        column[row] = values[ev]
    elif told.any():
        which = told[ev]
        column[row[which]] = values[ev[which]]
