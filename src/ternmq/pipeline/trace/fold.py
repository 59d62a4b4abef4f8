"""The fold: rows of the trace of one queue, plus later events, give the rows as of now.

Pure functions on tables and arrays. This module decides which messages exist and which of them have
a row for which group; ``life`` changes the rows of a group.

The result does not depend on where the journal was cut into pieces: folding all at once and folding
piece by piece give the same rows. ``tests/unit/pipeline/trace_reference.py`` is the same fold in
its simplest form, row by row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ternmq.pipeline.tables.numbers import NULL, Numbers, numbers
from ternmq.pipeline.trace.life import (
    DONE_ROWS,
    OF_GROUPS,
    Facts,
    Group,
    Life,
    about_groups,
    facts_of,
    named,
    spread,
    with_end,
)
from ternmq.pipeline.trace.rows import Lives, Messages, Words
from ternmq.pipeline.trace.schema import TRACE

__all__ = ["OF_GROUPS", "OF_MESSAGES", "Folded", "Group", "TracedQueue", "fold"]

OF_MESSAGES: Final = ("stored", "resolved", "moved")
"""Kinds of events about messages, independent of any group."""


_STORED: Final = [
    "kind",
    "position",
    "time",
    "start",
    "stop",
    "producer_id",
    "sequence",
    "born_time",
    "refers_to",
    "transaction",
]


@dataclass(slots=True, frozen=True)
class TracedQueue:
    """A queue."""

    topic: str
    topic_number: int
    queue: int


_UNLISTED: Final = -1
"""``Group.gone`` of a group that no catalog lists: it ended, and it is not known when."""


@dataclass(slots=True)
class Folded:
    """The result of a fold.

    Attributes:
        rows: Rows of ``TRACE``.
        done: A row for each message that a consumer finished: ``position, time, group,
            group_number, app, end_to_end_us, handling_us``.
    """

    rows: pa.Table
    done: pa.Table


def fold(
    place: TracedQueue,
    rows: pa.Table,
    events: pa.Table,
    groups: Sequence[Group],
    begin: int,
    prepared: Mapping[int, tuple[int, int, int]] | None = None,
) -> Folded:
    """Return the rows of a queue after some events.

    Args:
        place: The queue.
        rows: All existing rows of the trace that the events are about.
        events: Events of the queue, in the order of the journal; columns ``schema.EVENTS``.
        groups: Groups of the topic, including those that ended.
        begin: Position at which the events begin.
        prepared: Producer, first sequence and born time of rows by the position of ``prepared``.
    """
    words = Words()
    messages = Messages.of(rows).joined(_stored(events, prepared or {}))
    facts, numbers_of = facts_of(events, words)
    messages = messages.joined(_unheard(facts, messages))
    messages = _moved(events, messages)
    known = {one.number: one for one in groups}
    for number, name in numbers_of.items():
        # No catalog lists it: it has rows that facts are about, and is due to receive no others.
        known.setdefault(number, Group(number, name, gone=_UNLISTED))
    had = numbers(rows["group_number"], -1)
    for number, name in named(rows).items():
        known.setdefault(number, Group(number, name, gone=0))  # it ended before these events
    group_of = numbers(events["group_number"].filter(about_groups(events)), -1)
    folding = _Folding(place, words, messages, begin)
    for group in sorted(known.values(), key=lambda one: one.number):
        mine = facts.chosen(group_of == group.number)
        folding.add(group, rows.filter(pa.array(had == group.number)), mine)
    return folding.finished()


def _stored(events: pa.Table, prepared: Mapping[int, tuple[int, int, int]]) -> Messages:
    """Return the messages that events report as stored."""
    which = pc.or_(
        pc.equal(events["kind"], "stored"),
        pc.fill_null(
            pc.and_(
                pc.equal(events["kind"], "resolved"), pc.equal(events["decision"], "committed")
            ),
            False,
        ),
    )
    some = events.select(_STORED).filter(which)
    start, stop = numbers(some["start"], 0), numbers(some["stop"], 0)
    producer, sequence, born = [
        numbers(some[name]).copy() for name in ("producer_id", "sequence", "born_time")
    ]
    by_commit = pc.equal(some["kind"], "resolved").to_numpy()
    refers = np.where(by_commit, numbers(some["refers_to"], -1), -1)
    for at in np.flatnonzero(refers >= 0).tolist():
        if (told := prepared.get(int(refers[at]))) is not None:
            # A part of a run has the number of the rows before it (``cells``).
            before = 0 if sequence[at] == NULL else int(sequence[at])
            producer[at], first, born[at] = told
            sequence[at] = first + before
        else:
            sequence[at] = NULL  # not the number of the rows before it
    ev, inside = spread(stop - start)
    time = numbers(some["time"])[ev]
    return Messages(
        start[ev] + inside,
        producer[ev],
        np.where(sequence[ev] == NULL, NULL, sequence[ev] + inside),
        born[ev],
        time,
        numbers(some["position"])[ev],
        time,
        numbers(some["transaction"])[ev],
    )


def _unheard(facts: Facts, messages: Messages) -> Messages:
    """Return the messages that facts are about and whose storing was not seen."""
    there = np.searchsorted(messages.offset, facts.stop) - np.searchsorted(
        messages.offset, facts.start
    )
    short = np.flatnonzero(there < facts.stop - facts.start)
    ev, inside = spread((facts.stop - facts.start)[short])
    offset, first = np.unique(facts.start[short][ev] + inside, return_index=True)
    new = ~np.isin(offset, messages.offset)
    offset, seen = offset[new], facts.time[short][ev][first][new]
    nothing = np.full(len(offset), NULL)
    none = np.full(len(offset), -1)
    return Messages(
        offset, nothing, nothing.copy(), nothing.copy(), nothing.copy(), none, seen, nothing.copy()
    )


def _moved(events: pa.Table, messages: Messages) -> Messages:
    """Fill in the senders of messages whose storing was not seen, from MOVED records."""
    some = events.filter(pc.equal(events["kind"], "moved"))
    if not len(some) or not (messages.sequence == NULL).any():
        return messages
    start, stop = numbers(some["start"], 0), numbers(some["stop"], 0)
    low, high = np.searchsorted(messages.offset, start), np.searchsorted(messages.offset, stop)
    ev, inside = spread(high - low)
    at = low[ev] + inside
    unknown = messages.sequence[at] == NULL
    at, ev = at[unknown], ev[unknown]
    for name in ("producer", "sequence", "born"):
        setattr(messages, name, getattr(messages, name).copy())
    messages.producer[at] = numbers(some["producer_id"])[ev]
    messages.sequence[at] = numbers(some["sequence"])[ev] + messages.offset[at] - start[ev]
    messages.born[at] = numbers(some["born_time"])[ev]
    return messages


@dataclass(slots=True)
class _Folding:
    place: TracedQueue
    words: Words
    messages: Messages
    begin: int
    tables: list[pa.Table] = field(default_factory=list)
    done: list[pa.Table] = field(default_factory=list)
    covered: list[Numbers] = field(default_factory=list)

    def add(self, group: Group, rows: pa.Table, facts: Facts) -> None:
        """Fold one group."""
        message = self._rows_of(group, rows, facts)
        if not len(message):
            return
        lives = Lives.begun(message, self.messages)
        if len(rows):
            lives.take_in(rows, self.words)
        if group.gone is not None and group.gone >= self.begin:
            facts = with_end(facts, group)
        Life(lives, self.messages, facts, group, self.words, self.done).run()
        self.covered.append(message)
        self.tables.append(self._table(lives, group.name, group.number))

    def _table(self, lives: Lives, name: str, number: int) -> pa.Table:
        topic = self.place.topic, self.place.topic_number, self.place.queue
        return lives.table(self.messages, self.words, topic, (name, number))

    def _rows_of(self, group: Group, rows: pa.Table, facts: Facts) -> Numbers:
        """Return the messages that have a row for a group: due to receive them, or received."""
        messages = self.messages
        offset, position = messages.offset, messages.position
        has = np.zeros(len(offset), bool)
        has[np.searchsorted(offset, numbers(rows["offset"]))] = True
        new = position >= self.begin
        if group.gone is not None:
            new &= position < group.gone
        if group.cursor is None:
            has |= new
        else:
            owed = offset >= group.cursor
            has |= new & owed
            if group.since >= self.begin:
                has |= owed & (position < (group.since if group.gone is None else group.gone))
        touched = np.zeros(len(offset) + 1, np.int64)
        np.add.at(touched, np.searchsorted(offset, facts.start), 1)
        np.add.at(touched, np.searchsorted(offset, facts.stop), -1)
        has |= np.cumsum(touched)[:-1] > 0
        for cursor, at in facts.resets():
            has |= (offset >= cursor) & (position < at)
        return np.flatnonzero(has)

    def finished(self) -> Folded:
        """Return all rows, including those without a group."""
        alone = np.ones(len(self.messages.offset), bool)
        for message in self.covered:
            alone[message] = False
        if alone.any():
            lives = Lives.begun(np.flatnonzero(alone), self.messages)
            self.tables.append(self._table(lives, "", -1))
        rows = pa.concat_tables(self.tables) if self.tables else TRACE.schema.empty_table()
        done = pa.concat_tables(self.done) if self.done else DONE_ROWS.empty_table()
        return Folded(rows, done)
