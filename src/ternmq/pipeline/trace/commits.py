"""Adds a piece of the journal to the tables: trace, scheduled messages, statistics by minute.

Four commits, in this order: statistics, the state of the fold, scheduled messages, the trace. Each
stores the position up to which its table has the journal; the next piece begins at the trace's
position. A run that stops between them is repeated from there: statistics and scheduled messages
leave out what they have, and the state is ahead, which does no harm.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ternmq.pipeline.stats import stats
from ternmq.pipeline.stats.schema import STATS_MINUTE, STEPS_US
from ternmq.pipeline.tables.numbers import Numbers, from_position, numbers
from ternmq.pipeline.tables.spec import TableSpec
from ternmq.pipeline.tables.table import Table
from ternmq.pipeline.trace.entries import (
    OF_ENTRIES,
    about_entries,
    deleted_topics,
    known_before,
    with_senders,
)
from ternmq.pipeline.trace.entryfiles import EntryFiles, fold_files
from ternmq.pipeline.trace.fold import TracedQueue
from ternmq.pipeline.trace.known import (
    PIPELINE,
    Known,
    Queue,
    Subscription,
    groups_of,
    of_catalog,
)
from ternmq.pipeline.trace.queue import (
    KINDS,
    Done,
    Steps,
    Work,
    about_queues,
    by_queue,
    files_of,
    fold_queue,
    of_users,
    sharing_files,
    steps,
)
from ternmq.pipeline.trace.schema import KNOWN, SCHEDULED, TRACE
from ternmq.pipeline.trace.sharedfiles import SharedFiles
from ternmq.pipeline.trace.sharing import DROPPED, settle

APP: Final = "trace"
"""The app under which the tables store positions."""
SINCE: Final = "trace/since"
"""The same, for the position at which the table ``scheduled`` begins."""
__all__ = ["APP", "PIPELINE", "TracePass", "tells"]


class TracePass:
    """Folds pieces of the journal into the tables.

    Args:
        open_: Opens a table.
        before: Returns the groups that existed before a position, for tables that are new.
    """

    def __init__(
        self,
        open_: Callable[[TableSpec], Table],
        before: Callable[[int], Sequence[Subscription]] = lambda _position: (),
    ) -> None:
        self.trace = open_(TRACE)
        self._known_table = open_(KNOWN)
        self._stats = open_(STATS_MINUTE)
        self.scheduled = open_(SCHEDULED)
        self._before = before

    @property
    def position(self) -> int | None:
        """Position up to which the trace has the journal; None: it is new."""
        return self.trace.remembered(APP)

    def refresh(self) -> None:
        """Load commits of other processes."""
        for table in (self.trace, self._known_table, self._stats, self.scheduled):
            table.refresh()

    def known(self, begin: int) -> Known:
        """Return the state before the piece that begins at a position."""
        position = self._known_table.remembered(APP)
        if position is None:
            return of_catalog(self._before(begin))
        return Known.of(self._known_table.read(), position)

    def fold(self, begin: int, stop: int, events: pa.Table) -> int:
        """Fold the events between two positions; return the number of rows written.

        Raises:
            TableConflict: Another process committed: ``refresh``, and read ``position`` again.
        """
        known = self.known(begin)
        was = known.position
        known.learn(events, stop)
        cut = by_queue(about_queues(events.filter(of_users(events))))
        files = SharedFiles(self.trace, self.trace.files())
        topics = {key[0]: known.topics.get(key[0], f"topic-{key[0]}") for key in cut}
        nothing = events.slice(0, 0)
        works = [
            (work, cut.get((work.place.topic_number, work.place.queue), nothing))
            for work in self._works(known, was, begin, cut, topics, files)
        ]
        folded = (fold_queue(self.trace, work, some, files) for work, some in works)
        dones = list(sharing_files(self.trace, folded))
        moved = [steps(work, some) for work, some in works]
        entries = self._entries(begin, with_senders(events, known.told()))
        return self.commit(known, begin, stop, dones, moved, [entries])

    def _entries(self, begin: int, events: pa.Table) -> EntryFiles:
        """Fold events about scheduled messages."""
        later = from_position(events, self.scheduled_from(begin))
        some = later.filter(pa.array(about_entries(later)))
        some = known_before(some, self.since(begin))
        return fold_files(self.scheduled, some, deleted_topics(later, 0))

    def scheduled_from(self, begin: int) -> int:
        """Return the position from which on events of a piece are about scheduled messages."""
        return max(self.scheduled.remembered(APP) or 0, begin)

    def since(self, begin: int) -> int:
        """Return the position from which on everything about scheduled messages was read."""
        known = self.scheduled.remembered(SINCE)
        return begin if known is None else known

    def counted(self, begin: int) -> int:
        """Return the position from which on events of a piece are counted in statistics."""
        return max(self._stats.remembered(APP) or 0, begin)

    def _works(
        self,
        known: Known,
        was: int,
        begin: int,
        queues: Iterable[Queue],
        topics: Mapping[int, str],
        shared: SharedFiles,
    ) -> list[Work]:
        """Return the work for the queues with events.

        Args:
            known: The state after the events.
            was: Position of the state before them.
            begin: Where the piece begins.
            queues: The queues with events.
            topics: Names of topics, for those missing in ``known``.
            shared: The files that queues share.
        """
        files = files_of(self.trace.files())
        turns = known.turns(begin)
        turned = {key for key in files if key[0] in turns} | shared.queues(turns)
        wanted = sorted({*queues, *turned})
        groups = known.by_topic()
        counted = self.counted(begin)
        cursors = known.cursors_of()
        told, names = known.told(), {**topics, **known.topics}
        return [
            Work(
                TracedQueue(names.get(key[0], f"topic-{key[0]}"), *key),
                groups_of(key, groups.get(key[0], ())),
                begin,
                counted,
                max(was, begin),
                known.ends.get(key, 0),
                cursors.get(key, {}),
                files.get(key, []),
                prepared=told,
            )
            for key in wanted
        ]

    def commit(
        self,
        known: Known,
        begin: int,
        stop: int,
        dones: Sequence[Done],
        moved: Sequence[Steps],
        entries: Sequence[EntryFiles] = (),
    ) -> int:
        """Commit the results of a piece; return the number of rows written, without statistics.

        Args:
            known: The state after the piece, still with the ends and cursors before it.
            begin: Where the piece begins.
            stop: Where it ends.
            dones: The folded rows of each queue, in one or more parts.
            moved: The ends and cursors of each queue.
            entries: The folded scheduled messages, in one or more parts.
        """
        if (self._stats.remembered(APP) or 0) < stop:
            self._commit_stats(known, stop, dones, moved)
        if (self._known_table.remembered(APP) or -1) < stop:
            cursors = known.cursors_of()
            for one in moved:
                key = one.place.topic_number, one.place.queue
                known.ends[key] = one.end
                known.topics[key[0]] = one.place.topic
                cursors[key] = one.cursors
            known.cursors = {
                (*key, group): at for key, some in cursors.items() for group, at in some.items()
            }
            known.forget(begin)
            added = self._known_table.stage(known.table())
            self._known_table.commit(added, self._known_table.files(), {APP: stop})
        scheduled = [file for one in entries for file in one.add]
        if (self.scheduled.remembered(APP) or -1) < stop:
            self.scheduled.commit(
                scheduled,
                [file for one in entries for file in one.remove],
                {APP: stop, SINCE: self.since(begin)},
            )
        add = [file for one in dones for file in one.add]
        remove = [file for one in dones for file in one.remove]
        dropped = pa.concat_tables([DROPPED.empty_table(), *[one.dropped for one in dones]])
        settled = settle(self.trace, dropped, {file.partition["hour"] for file in add})
        self.trace.commit([*add, *settled.add], [*remove, *settled.remove], {APP: stop})
        return sum(one.rows for one in [*add, *settled.add, *scheduled])

    def _commit_stats(
        self, known: Known, stop: int, dones: Sequence[Done], moved: Sequence[Steps]
    ) -> None:
        new = [one.stats for one in dones] + _lags(known, moved)
        if not new:
            self._stats.commit(remember={APP: stop})
            return
        rows = stats.merge(pa.concat_tables(new), STATS_MINUTE)
        hours = pc.unique(rows["hour"]).to_pylist()
        old = [file for hour in hours for file in self._stats.files(hour=hour)]
        merged = stats.merge(pa.concat_tables([self._stats.read_files(old), rows]), STATS_MINUTE)
        added = self._stats.stage(merged) if len(merged) else []
        self._stats.commit(added, old, {APP: stop})


def tells(events: pa.Table) -> bool:
    """Return whether events are about messages, a topic or a user's group: else nothing changes.

    Every run of the pipeline adds facts of its own (its sessions, its holds).
    """
    some = events.filter(of_users(events))
    settings = pc.and_(pc.equal(some["kind"], "config"), pc.is_valid(some["topic_number"]))
    kinds = pa.array([*KINDS, *OF_ENTRIES])
    about = pc.or_(pc.is_in(some["kind"], value_set=kinds), settings)
    return bool(pc.any(about).as_py())


def _lags(known: Known, moved: Sequence[Steps]) -> list[pa.Table]:
    """Return statistics with the lags of groups, over all queues of their topic."""
    found = []
    by_topic: dict[int, list[Steps]] = {}
    for one in moved:
        by_topic.setdefault(one.place.topic_number, []).append(one)
    queues_of: dict[int, set[int]] = {}
    for topic, queue in known.ends:
        queues_of.setdefault(topic, set()).add(queue)
    groups = known.by_topic()
    for topic, some in by_topic.items():
        for group in groups.get(topic, ()):
            told = {one.place.queue: _of_group(one.lags, group.number) for one in some}
            minutes = np.unique(np.concatenate([one[0] for one in told.values()]))
            minutes = minutes[minutes + STEPS_US["stats_minute"] > group.since_us]
            if group.gone is not None:
                minutes = minutes[minutes + STEPS_US["stats_minute"] <= group.gone_us]
            if not len(minutes):
                continue
            total = np.zeros(len(minutes), np.int64)
            for queue in {*queues_of.get(topic, ()), *told}:
                began = group.of_queue(queue).cursor
                cursor = known.cursors.get((topic, queue, group.number), began)
                before = 0 if cursor is None else known.ends.get((topic, queue), 0) - cursor
                begin, behind = told.get(queue, (minutes[:0], minutes[:0]))
                at = np.searchsorted(begin, minutes, side="right")
                total += np.maximum(np.concatenate([[before], behind])[at], 0)
            names = [group.name] * len(minutes)
            found.append(stats.lags(some[0].place.topic, minutes, names, total))
    return found


def _of_group(lags: pa.Table, group: int) -> tuple[Numbers, Numbers]:
    mine = lags.filter(pc.equal(lags["group_number"], group))
    return numbers(mine["begin"]), numbers(mine["end"]) - numbers(mine["cursor"])
