"""Rows of the trace as arrays of numbers, and back: the form that the fold uses.

Texts are numbers in a pool (``Words``); null is ``NULL``, or -1 for numbers that are never
negative.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ternmq.pipeline.archive.columns import message_ids
from ternmq.pipeline.tables.numbers import NULL, Codes, Numbers, column, member, numbers
from ternmq.pipeline.trace.schema import DONE, FAILURE, FAILURES_KEPT, STATES, TRACE

_HOUR_US: Final = 3_600_000_000


class Words:
    """A pool of texts, numbered."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._texts: list[str | None] = []

    def codes(self, texts: pa.Array | pa.ChunkedArray) -> Codes:
        """Return the number of each text; -1 for null."""
        whole = texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts
        encoded = whole.dictionary_encode()
        mapped = np.array(
            [-1, *[self._number(one) for one in encoded.dictionary.to_pylist()]], np.int32
        )
        found = pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False)
        made: Codes = mapped[found + 1]
        return made

    def _number(self, text: str | None) -> int:
        if text is None:
            return -1
        found = self._numbers.get(text)
        if found is None:
            found = self._numbers[text] = len(self._texts)
            self._texts.append(text)
        return found

    def texts(self, codes: Codes) -> pa.Array:
        """Return the texts of numbers."""
        pool = pa.array(self._texts, pa.string())
        return pool.take(pa.array(codes, pa.int32(), mask=codes < 0))


@dataclass(slots=True)
class Messages:
    """Messages of a queue, by offset."""

    offset: Numbers
    producer: Numbers
    sequence: Numbers
    born: Numbers
    stored: Numbers
    position: Numbers
    """-1: its storing was not seen, only later facts."""
    seen: Numbers
    """When it was stored, or else the time of the first fact about it."""
    transaction: Numbers

    @staticmethod
    def of(rows: pa.Table) -> Messages:
        """Return the messages in rows of the trace, each once."""
        offset, first = np.unique(numbers(rows["offset"]), return_index=True)
        some = rows.select(
            [
                "producer_id",
                "sequence",
                "born_time",
                "stored_time",
                "position",
                "hour",
                "transaction",
            ]
        ).take(pa.array(first))
        stored = numbers(some["stored_time"])
        hours = some["hour"].combine_chunks()
        begun = pc.strptime(
            pc.binary_join_element_wise(hours, ":00:00", ""), "%Y-%m-%dT%H:%M:%S", "us"
        )
        return Messages(
            offset,
            numbers(some["producer_id"]),
            numbers(some["sequence"]),
            numbers(some["born_time"]),
            stored,
            numbers(some["position"], -1),
            np.where(stored != NULL, stored, numbers(begun)),
            numbers(some["transaction"]),
        )

    def joined(self, others: Messages) -> Messages:
        """Add other messages; those already there stay unchanged."""
        if not len(others.offset):
            return self
        names = self.__slots__
        whole = {
            name: np.concatenate([getattr(self, name), getattr(others, name)]) for name in names
        }
        _, first = np.unique(whole["offset"], return_index=True)
        return Messages(**{name: whole[name][first] for name in names})


@dataclass(slots=True)
class Failures:
    """Failures: the row, and the columns of ``FAILURE``. In pieces, in order of time."""

    pieces: list[dict[str, Numbers | Codes]] = field(default_factory=list)

    def add(self, **piece: Numbers | Codes) -> None:
        """Append failures that are later than all before."""
        if len(piece["row"]):
            self.pieces.append(piece)

    def lists(self, count: int, words: Words) -> pa.Array:
        """Return the newest failures of each of ``count`` rows."""
        kind = pa.list_(FAILURE)
        if not self.pieces:
            empty = pa.array([], FAILURE)
            return pa.ListArray.from_arrays(pa.array(np.zeros(count + 1, np.int32)), empty).cast(
                kind
            )
        whole = {
            name: np.concatenate([piece[name] for piece in self.pieces]) for name in self.pieces[0]
        }
        order = np.argsort(whole["row"], kind="stable")
        row = whole["row"][order]
        counts = np.bincount(row, minlength=count)
        ends = np.cumsum(counts)
        behind = np.repeat(ends, counts) - np.arange(len(row))  # 1: the newest of its row
        kept = order[behind <= FAILURES_KEPT]
        offsets = np.zeros(count + 1, np.int32)
        np.cumsum(np.minimum(counts, FAILURES_KEPT), out=offsets[1:])
        values = pa.StructArray.from_arrays(
            [
                column(whole["time"][kept], FAILURE.field("time").type),
                column(whole["attempt"][kept], pa.int32(), -1),
                *[
                    words.texts(whole[name][kept].astype(np.int32))
                    for name in ("client", "outcome", "cause", "reason")
                ],
            ],
            fields=list(FAILURE),
        )
        return pa.ListArray.from_arrays(pa.array(offsets), values)


@dataclass(slots=True)
class Lives:
    """Rows of one queue and group, by offset: the state of its messages in the group."""

    message: Numbers
    """Index in the messages."""
    offset: Numbers
    first_delivered: Numbers
    last_delivered: Numbers
    deliveries: Codes
    attempts: Codes
    first_client: Codes
    last_client: Codes
    last_app: Codes
    state: Codes
    state_time: Numbers
    last_cause: Codes
    last_reason: Codes
    round: Codes
    failures: Failures
    settled_by: Numbers

    @staticmethod
    def begun(message: Numbers, messages: Messages) -> Lives:
        """Return rows of messages that were stored, and nothing more."""
        count = len(message)

        def none() -> Codes:
            return np.full(count, -1, np.int32)

        return Lives(
            message,
            messages.offset[message],
            np.full(count, NULL),
            np.full(count, NULL),
            np.zeros(count, np.int32),
            np.zeros(count, np.int32),
            none(),
            none(),
            none(),
            np.zeros(count, np.int32),
            messages.seen[message].copy(),
            none(),
            none(),
            np.zeros(count, np.int32),
            Failures(),
            np.full(count, NULL),
        )

    def take_in(self, rows: pa.Table, words: Words) -> None:
        """Set rows to the values of a table."""
        at = np.searchsorted(self.offset, numbers(rows["offset"]))
        for name in ("first_delivered", "last_delivered", "state_time", "settled_by"):
            getattr(self, name)[at] = numbers(rows[name])
        for name in ("deliveries", "attempts", "round"):
            getattr(self, name)[at] = numbers(rows[name])
        for name in ("first_client", "last_client", "last_app", "last_cause", "last_reason"):
            getattr(self, name)[at] = words.codes(rows[name])
        self.state[at] = member(rows["state"], STATES)
        lists = rows["failures"].combine_chunks()
        flat = lists.flatten()
        if len(flat):
            parent = pc.list_parent_indices(lists).to_numpy(zero_copy_only=False)
            self.failures.add(
                row=at[parent],
                time=numbers(flat.field("time")),
                attempt=numbers(flat.field("attempt"), -1),
                **{
                    name: words.codes(flat.field(name))
                    for name in ("client", "outcome", "cause", "reason")
                },
            )

    def table(
        self, messages: Messages, words: Words, topic: tuple[str, int, int], group: tuple[str, int]
    ) -> pa.Table:
        """Return the rows as rows of the table."""
        count, kinds = len(self.message), TRACE.schema
        at = self.message
        same = {
            "topic": topic[0], "topic_number": topic[1], "queue": topic[2],
            "group": group[0] if group[1] >= 0 else None,
            "group_number": group[1] if group[1] >= 0 else None,
            "schema_version": TRACE.version,
        }  # fmt: skip
        done = self.state == DONE
        born, last = messages.born[at], self.last_delivered
        handled = done & (last != NULL)
        whole = handled & (born != NULL)
        told = {
            "offset": self.offset,
            "producer_id": messages.producer[at],
            "sequence": messages.sequence[at],
            "born_time": born,
            "stored_time": messages.stored[at],
            "first_delivered": self.first_delivered,
            "last_delivered": last,
            "state_time": self.state_time,
            "transaction": messages.transaction[at],
            "settled_by": self.settled_by,
            "end_to_end_us": np.where(whole, self.state_time - born, NULL),
            "handling_us": np.where(handled, self.state_time - last, NULL),
            "deliveries": self.deliveries,
            "attempts": self.attempts,
            "round": self.round,
            "open": self.state < DONE,
        }
        made = {name: column(values, kinds.field(name).type) for name, values in told.items()}
        made["position"] = column(messages.position[at], pa.int64(), -1)
        for name in ("first_client", "last_client", "last_app", "last_cause", "last_reason"):
            made[name] = words.texts(getattr(self, name))
        made["state"] = pa.array(STATES).take(pa.array(self.state))
        made["failures"] = self.failures.lists(count, words)
        made["hour"] = hours(messages.seen[at])
        known = messages.position[at] != NULL
        ids = message_ids(
            column(np.where(told["producer_id"] == NULL, 0, told["producer_id"]), pa.int64()),
            column(np.where(told["sequence"] == NULL, 0, told["sequence"]), pa.int64()),
        )
        known = told["sequence"] != NULL
        made["message_id"] = ids if known.all() else pc.if_else(pa.array(known), ids, None)
        for name, value in same.items():
            made[name] = pa.repeat(pa.scalar(value, kinds.field(name).type), count)
        return pa.table([made[name] for name in kinds.names], schema=kinds)


def hours(times: Numbers) -> pa.Array:
    """Return the hour of each time, as the table's partitions write it."""
    begun, which = np.unique(times // _HOUR_US, return_inverse=True)
    texts = [str(np.datetime64(int(one) * 3600, "s"))[:13] for one in begun]
    return pa.array(texts, pa.string()).take(pa.array(which))
