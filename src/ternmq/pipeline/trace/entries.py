"""The fold of scheduled messages: rows of the table ``scheduled``, plus later events.

A pure function. The result does not depend on where the journal was cut into pieces. Each column is
an array of numbers with a place for each entry; a text is a number in a pool (``rows.Words``).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ternmq.pipeline.archive.columns import message_ids
from ternmq.pipeline.tables.numbers import NULL, Numbers, column, numbers
from ternmq.pipeline.trace.life import spread
from ternmq.pipeline.trace.rows import Words
from ternmq.pipeline.trace.schema import PENDING, SCHEDULED

OF_ENTRIES: Final = ("scheduled", "copied", "cancelled")
"""Kinds of events about scheduled messages, besides ``stored`` with an entry."""
DAY_US: Final = 86_400_000_000
_NUMBERS: Final = (
    "topic_number", "producer_id", "sequence", "born_time", "scheduled_time", "position",
    "due_time", "transaction", "delivered_time", "queue", "offset", "cancelled_time", "gone_time",
)  # fmt: skip
_TEXTS: Final = ("topic", "application_id", "cancel_cause")
_DELETED: Final = "topic-deleted"


def about_entries(events: pa.Table) -> npt.NDArray[np.bool_]:
    """Return a mask of the events about scheduled messages."""
    of_kind = pc.is_in(events["kind"], value_set=pa.array(OF_ENTRIES))
    due = pc.and_(pc.equal(events["kind"], "stored"), pc.is_valid(events["entry"]))
    found: npt.NDArray[np.bool_] = pc.or_(of_kind, due).to_numpy()
    return found


def deleted_topics(events: pa.Table, begin: int) -> dict[int, int]:
    """Return topics that events at or after a position report as deleted: number -> time."""
    deleted = pc.and_(pc.equal(events["kind"], "config"), pc.equal(events["name"], _DELETED))
    some = events.filter(pc.and_(deleted, pc.greater_equal(events["position"], begin)))
    return dict(
        zip(numbers(some["topic_number"]).tolist(), numbers(some["time"]).tolist(), strict=True)
    )


def known_before(events: pa.Table, since: int) -> pa.Table:
    """Return events without copies of messages whose scheduling was read.

    Args:
        events: Any events.
        since: Position from which on everything was read.
    """
    again = pc.and_(
        pc.equal(events["kind"], "copied"), pc.greater_equal(events["refers_to"], since)
    )
    return events.filter(pc.invert(pc.fill_null(again, False)))


def with_senders(events: pa.Table, prepared: Mapping[int, tuple[int, int, int]]) -> pa.Table:
    """Return events with the senders of messages that a transaction scheduled.

    Args:
        events: Any events.
        prepared: As in ``fold.fold``.
    """
    known = pa.array(list(prepared), pa.int64())
    at = pc.index_in(events["refers_to"], known)
    which = pc.and_(pc.equal(events["kind"], "scheduled"), pc.is_null(events["producer_id"]))
    which = pc.and_(which, pc.is_valid(at))
    if not pc.any(which).as_py():
        return events
    rows = np.flatnonzero(which.to_numpy())
    told = np.array(list(prepared.values()), np.int64)[numbers(at)[rows]]
    told[:, 1] += first_rows(events.take(pa.array(rows)))
    for number, name in enumerate(("producer_id", "sequence", "born_time")):
        values = numbers(events[name]).copy()
        values[rows] = told[:, number]
        kind = events.schema.field(name)
        at_ = events.schema.get_field_index(name)
        events = events.set_column(at_, kind, column(values, kind.type))
    return events


def first_rows(events: pa.Table) -> Numbers:
    """Return at which row of its batch each event begins that a transaction scheduled."""
    told = [json.loads(one)["first_row"] for one in events["detail"].to_pylist()]
    return np.array(told, np.int64)


def days_of(events: pa.Table) -> Numbers:
    """Return the day, since 1970, in which the messages of each event are due."""
    days: Numbers = numbers(events["due"]) // DAY_US
    return days


def fold_entries(rows: pa.Table, events: pa.Table, gone: dict[int, int]) -> pa.Table:
    """Return the rows after some events, by entry.

    Args:
        rows: All existing rows that the events are about.
        events: Events about scheduled messages, in the order of the journal.
        gone: Topics that were deleted: number -> time.
    """
    folding = _Folding(rows, events)
    folding.scheduled()
    folding.delivered()
    folding.cancelled()
    folding.gone(gone)
    return folding.table()


class _Folding:
    def __init__(self, rows: pa.Table, events: pa.Table) -> None:
        self._events = events
        self._words = Words()
        ev, inside = spread(numbers(events["rows"]))
        self._row = numbers(events["entry"])[ev] + inside
        self._ev, self._inside = ev, inside
        had = numbers(rows["entry"])
        self.entry = np.unique(np.concatenate([had, self._row]))
        count = len(self.entry)
        self.columns = {name: np.full(count, NULL) for name in _NUMBERS}
        self.texts = {name: np.full(count, -1, np.int32) for name in _TEXTS}
        at = np.searchsorted(self.entry, had)
        for name, values in self.columns.items():
            values[at] = numbers(rows[name])
        for name, codes in self.texts.items():
            codes[at] = self._words.codes(rows[name])

    def _of(self, kind: str) -> tuple[Numbers, Numbers, Numbers]:
        """Return place, event and number within the event of the rows of a kind, newest first.

        What is written last is the oldest.
        """
        which = np.flatnonzero(pc.equal(self._events["kind"], kind).to_numpy()[self._ev])[::-1]
        place = np.searchsorted(self.entry, self._row[which]).astype(np.int64)
        return place, self._ev[which], self._inside[which]

    def _put(self, at: Numbers, ev: Numbers, **told: Numbers) -> None:
        """Write what an event says, and its topic and due time, where nothing is known yet."""
        told |= {
            "topic_number": numbers(self._events["topic_number"])[ev],
            "due_time": numbers(self._events["due"])[ev],
        }
        for name, values in told.items():
            column_ = self.columns[name]
            new = column_[at] == NULL
            column_[at[new]] = values[new]
        self._write("topic", at, self._words.codes(self._events["topic"])[ev])

    def _write(self, name: str, at: Numbers, codes: npt.NDArray[np.int32]) -> None:
        column_ = self.texts[name]
        new = (column_[at] < 0) & (codes >= 0)
        column_[at[new]] = codes[new]

    def _sent(self, ev: Numbers, inside: Numbers) -> dict[str, Numbers]:
        """Return what the sender told of rows."""
        events = self._events
        sequence = numbers(events["sequence"])[ev]
        return {
            "producer_id": numbers(events["producer_id"])[ev],
            "sequence": np.where(sequence == NULL, NULL, sequence + inside),
            "born_time": numbers(events["born_time"])[ev],
        }

    def scheduled(self) -> None:
        """Apply that messages were scheduled; copies tell it of those that are not known."""
        events = self._events
        time, position = numbers(events["time"]), numbers(events["position"])
        for kind in ("scheduled", "copied"):
            at, ev, inside = self._of(kind)
            if kind == "copied":
                time, position = self._stored_first(), numbers(events["refers_to"])
            self._put(
                at, ev, **self._sent(ev, inside), scheduled_time=time[ev], position=position[ev],
                transaction=numbers(events["transaction"])[ev],
            )  # fmt: skip
            self._name(at, ev, inside)

    def _stored_first(self) -> Numbers:
        """Return when the messages of copies were scheduled."""
        details = self._details("copied")
        found = np.full(len(self._events), NULL)
        for event, detail in details.items():
            found[event] = detail["scheduled_us"]
        return found

    def _details(self, kind: str) -> dict[int, dict[str, object]]:
        which = pc.and_(pc.equal(self._events["kind"], kind), pc.is_valid(self._events["detail"]))
        at = np.flatnonzero(which.to_numpy())
        texts = self._events["detail"].take(pa.array(at)).to_pylist()
        return {event: json.loads(one) for event, one in zip(at.tolist(), texts, strict=True)}

    def _name(self, at: Numbers, ev: Numbers, inside: Numbers) -> None:
        """Write the ids that applications gave."""
        details = self._details("scheduled") | self._details("copied")
        named = {
            event: ids
            for event, one in details.items()
            if isinstance(ids := one.get("application_ids"), list)
        }
        if not named:
            return
        pairs = zip(ev.tolist(), inside.tolist(), strict=True)
        ids = [named[event][row] if event in named else None for event, row in pairs]
        self._write("application_id", at, self._words.codes(pa.array(ids, pa.string())))

    def delivered(self) -> None:
        """Apply that messages were delivered when they were due; the first time counts."""
        events = self._events
        at, ev, inside = self._of("stored")
        new = self.columns["delivered_time"][at] == NULL
        at, ev, inside = at[new], ev[new], inside[new]
        self._put(at, ev, **self._sent(ev, inside))
        self.columns["delivered_time"][at] = numbers(events["time"])[ev]
        self.columns["queue"][at] = numbers(events["queue"])[ev]
        self.columns["offset"][at] = numbers(events["start"])[ev] + inside

    def cancelled(self) -> None:
        """Apply that messages were cancelled."""
        events = self._events
        at, ev, _ = self._of("cancelled")
        new = self.columns["cancelled_time"][at] == NULL
        at, ev = at[new], ev[new]
        self._put(at, ev)
        self.columns["cancelled_time"][at] = numbers(events["time"])[ev]
        self.texts["cancel_cause"][at] = self._words.codes(events["cause"])[ev]

    def gone(self, topics: dict[int, int]) -> None:
        """Apply that topics were deleted."""
        for number, time in topics.items():
            which = self._pending() & (self.columns["topic_number"] == number)
            self.columns["gone_time"][which] = time

    def _pending(self) -> npt.NDArray[np.bool_]:
        over = [self.columns[name] for name in ("delivered_time", "cancelled_time", "gone_time")]
        found: npt.NDArray[np.bool_] = np.logical_and.reduce([one == NULL for one in over])
        return found

    def table(self) -> pa.Table:
        """Return the rows."""
        kinds, columns, count = SCHEDULED.schema, self.columns, len(self.entry)
        made = {
            name: column(values, kinds.field(name).type) for name, values in columns.items()
        } | {name: self._words.texts(codes) for name, codes in self.texts.items()}
        made["entry"] = pa.array(self.entry)
        known = pa.array(columns["sequence"] != NULL)
        ids = message_ids(
            pa.array(np.where(columns["producer_id"] == NULL, 0, columns["producer_id"])),
            pa.array(np.where(columns["sequence"] == NULL, 0, columns["sequence"])),
        )
        made["message_id"] = pc.if_else(known, ids, None)
        state = np.full(count, 0)
        for number, name in enumerate(("gone_time", "cancelled_time", "delivered_time"), 1):
            state[columns[name] != NULL] = number
        names = pa.array([PENDING, "gone", "cancelled", "delivered"])
        made["state"] = names.take(pa.array(state))
        made["open"] = pa.array(state == 0)
        days = (columns["due_time"] // DAY_US).astype(np.int32)
        made["day"] = pa.array(days, pa.int32()).cast(pa.date32())
        made["schema_version"] = pa.repeat(pa.scalar(SCHEDULED.version, pa.int32()), count)
        return pa.table([made[name].cast(kinds.field(name).type) for name in kinds.names],
                        schema=kinds)  # fmt: skip
