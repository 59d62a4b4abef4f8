"""State that a fold needs besides its events: groups, prepared rows, ends of queues, cursors.

It is collected from events, and stored in its own table. That table is written before the trace: if
a run stops between the two, the next one begins with state that is ahead, which does no harm.
Groups and transactions that ended are kept until the trace is past their end.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from ternmq.pipeline.tables.numbers import NULL
from ternmq.pipeline.trace.fold import Group
from ternmq.pipeline.trace.schema import KNOWN

PIPELINE: Final = "spark."
"""Prefix of the pipeline's own groups; they have no rows."""
LEARNT: Final = ("config", "prepared", "resolved")
"""Kinds of events from which ``Known`` is collected."""

Queue = tuple[int, int]
"""Number of a topic, number of a queue."""


@dataclass(slots=True, frozen=True)
class Subscription:
    """A group on a topic.

    Attributes:
        topic_number: Number of the topic.
        number: Number of the group.
        name: Name of the group.
        since: Position at which it began; -1: before everything that was read.
        since_us: When it began; 0: not known.
        cursors: Cursors at which it began, by queue; None: not known.
        gone: Position at which it ended.
        gone_us: When it ended.
    """

    topic_number: int
    number: int
    name: str
    since: int = -1
    since_us: int = 0
    cursors: Sequence[int] | None = None
    gone: int | None = None
    gone_us: int = 0

    def of_queue(self, queue: int) -> Group:
        """Return the group as one queue sees it; a queue added later was empty when it began."""
        cursor = None
        if self.cursors is not None:
            cursor = self.cursors[queue] if queue < len(self.cursors) else 0
        return Group(
            self.number, self.name, self.since, self.since_us, cursor, self.gone, self.gone_us
        )


@dataclass(slots=True)
class Prepared:
    """Rows that a transaction may make visible: their sender, and the position of the decision.

    A copy of the record that holds them is as a decision on that record.
    """

    producer: int
    sequence: int
    born: int
    decided: int | None = None


@dataclass(slots=True)
class Known:
    """State before a piece of the journal."""

    position: int = -1
    """The state includes all events below this position."""
    groups: dict[int, Subscription] = field(default_factory=dict)
    prepared: dict[int, Prepared] = field(default_factory=dict)
    topics: dict[int, str] = field(default_factory=dict)
    ends: dict[Queue, int] = field(default_factory=dict)
    cursors: dict[tuple[int, int, int], int] = field(default_factory=dict)
    """By topic, queue and group."""

    def of_topic(self, number: int) -> list[Subscription]:
        """Return the groups of a topic, including those that ended. Cost: O(all groups)."""
        return [one for one in self.groups.values() if one.topic_number == number]

    def by_topic(self) -> dict[int, list[Subscription]]:
        """Return all groups by topic, including those that ended. Cost: O(groups)."""
        found: dict[int, list[Subscription]] = {}
        for one in self.groups.values():
            found.setdefault(one.topic_number, []).append(one)
        return found

    def cursors_of(self) -> dict[Queue, dict[int, int]]:
        """Return the cursors of groups by queue."""
        found: dict[Queue, dict[int, int]] = {}
        for (topic, queue, group), cursor in self.cursors.items():
            found.setdefault((topic, queue), {})[group] = cursor
        return found

    def turns(self, begin: int) -> set[int]:
        """Return the topics with a group that began or ended at or after a position."""
        return {
            one.topic_number
            for one in self.groups.values()
            if one.since >= begin or (one.gone is not None and one.gone >= begin)
        }

    def learn(self, events: pa.Table, position: int) -> None:
        """Apply events, which end at a position."""
        some = events.filter(pc.is_in(events["kind"], value_set=pa.array(LEARNT)))
        for row in some.to_pylist():
            if row["kind"] == "config":
                self._config(row)
            elif row["kind"] == "prepared":
                born = row["born_time"]
                self.prepared.setdefault(
                    row["position"],
                    Prepared(
                        row["producer_id"], row["sequence"], NULL if born is None else _us(born)
                    ),
                )
                if row["refers_to"] in self.prepared:
                    self.prepared[row["refers_to"]].decided = row["position"]
            elif row["refers_to"] in self.prepared:
                self.prepared[row["refers_to"]].decided = row["position"]
        numbers = events.select(["topic_number", "topic"]).group_by(["topic_number", "topic"])
        for row in numbers.aggregate([]).to_pylist():
            if row["topic_number"] is not None and row["topic"] is not None:
                self.topics[row["topic_number"]] = row["topic"]
        self.position = max(self.position, position)

    def _config(self, row: Mapping[str, Any]) -> None:
        position, time = row["position"], _us(row["time"])
        told = json.loads(row["detail"])
        if row["name"] == "subscribed":
            known = self.groups.get(told["group"])
            if known is None or known.since < position:
                self.groups[told["group"]] = Subscription(
                    told["topic"],
                    told["group"],
                    told["group_name"],
                    position,
                    time,
                    tuple(told["cursors"]),
                )
        elif row["name"] == "unsubscribed":
            self._end(told["group"], position, time)
        elif row["name"] == "topic-deleted":
            for one in self.of_topic(told["number"]):
                self._end(one.number, position, time)

    def _end(self, group: int, position: int, time: int) -> None:
        known = self.groups.get(group)
        if known is not None and known.gone is None:
            self.groups[group] = replace(known, gone=position, gone_us=time)

    def forget(self, before: int) -> None:
        """Drop what no event from a position on needs.

        Groups and transactions that ended before the position; and transactions of which all events
        are after it: they are learnt again with these events.
        """
        gone = {n for n, one in self.groups.items() if one.gone is not None and one.gone < before}
        if gone:
            self.groups = {n: one for n, one in self.groups.items() if n not in gone}
            self.cursors = {key: at for key, at in self.cursors.items() if key[2] not in gone}
        for at in [
            at
            for at, one in self.prepared.items()
            if one.decided is not None and (one.decided < before or at >= before)
        ]:
            del self.prepared[at]

    def told(self) -> dict[int, tuple[int, int, int]]:
        """Return the prepared rows in the form that ``fold.fold`` takes."""
        return {at: (one.producer, one.sequence, one.born) for at, one in self.prepared.items()}

    def table(self) -> pa.Table:
        """Return it as rows."""
        rows: list[dict[str, Any]] = []
        for one in self.groups.values():
            rows.append(
                {
                    "kind": "group", "position": one.since, "gone": one.gone, "group": one.name,
                    "topic_number": one.topic_number, "group_number": one.number,
                    "cursors": None if one.cursors is None else list(one.cursors),
                    "number": one.gone_us, "born_time": one.since_us,
                    "topic": self.topics.get(one.topic_number),
                }
            )  # fmt: skip
        for number, name in self.topics.items():
            rows.append({"kind": "topic", "topic_number": number, "topic": name})
        for at, row in self.prepared.items():
            rows.append(
                {
                    "kind": "prepared", "position": at, "gone": row.decided,
                    "producer_id": row.producer, "sequence": row.sequence,
                    "born_time": None if row.born == NULL else row.born,
                }
            )  # fmt: skip
        for (topic, queue), end in self.ends.items():
            rows.append({"kind": "end", "topic_number": topic, "queue": queue, "number": end})
        for (topic, queue, group), cursor in self.cursors.items():
            rows.append(
                {
                    "kind": "cursor", "topic_number": topic, "queue": queue, "group_number": group,
                    "number": cursor,
                }
            )  # fmt: skip
        columns = [
            pa.array(
                [
                    row.get(one.name, KNOWN.version if one.name == "schema_version" else None)
                    for row in rows
                ],
                one.type,
            )
            for one in KNOWN.schema
        ]
        return pa.table(columns, schema=KNOWN.schema)

    @staticmethod
    def of(rows: pa.Table, position: int) -> Known:
        """Read the state from rows."""
        found = Known(position)
        for row in rows.to_pylist():
            topic, queue, group = row["topic_number"], row["queue"], row["group_number"]
            if row["kind"] == "group":
                found.groups[group] = Subscription(
                    topic,
                    group,
                    row["group"],
                    row["position"],
                    _us(row["born_time"]),
                    row["cursors"],
                    row["gone"],
                    row["number"] or 0,
                )
            elif row["kind"] == "topic":
                found.topics[topic] = row["topic"]
            elif row["kind"] == "prepared":
                born = row["born_time"]
                found.prepared[row["position"]] = Prepared(
                    row["producer_id"],
                    row["sequence"],
                    NULL if born is None else _us(born),
                    row["gone"],
                )
            elif row["kind"] == "end":
                found.ends[topic, queue] = row["number"]
            else:
                found.cursors[topic, queue, group] = row["number"]
        return found


def groups_of(queue: Queue, groups: Iterable[Subscription]) -> list[Group]:
    """Return the groups of users as a queue sees them, including those that ended.

    Args:
        queue: The queue.
        groups: The groups of its topic.
    """
    return [one.of_queue(queue[1]) for one in groups if not one.name.startswith(PIPELINE)]


def of_catalog(groups: Iterable[Subscription]) -> Known:
    """Return the state before the first event: groups that already exist."""
    return Known(groups={one.number: one for one in groups})


def _us(time: datetime) -> int:
    """Return a time of a row in µs since 1970."""
    return int(pa.scalar(time, pa.timestamp("us", tz="UTC")).cast(pa.int64()).as_py())
