"""Many pages of scheduled rows as numpy columns, for a start with millions of rows.

A million rows take some 0.1 s; one by one they would take a second.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from ternmq.broker.schedule.page import PAGE_BITS, SLOTS, Columns, Page
from ternmq.broker.schedule.topics import ENTRY_BITS, ENTRY_MASK
from ternmq.model.types import HOUR_US

_Numbers: TypeAlias = "np.ndarray[tuple[int], np.dtype[np.int64]]"
_GONE: Final = (1 << 62, 0)
_COUNTED: Final = 1 << 22
"""Most (topic, hour) pairs that are counted in an array with a place for each."""


class Counts(NamedTuple):
    """What is pending in some pages, and what is not any more."""

    dead: list[int]
    """Entries of rows at or below the cursor of their topic, or of no topic."""
    hours: list[tuple[int, int, int]]
    """Topic, hour, pending rows."""
    segments: list[tuple[int, int]]
    """Number of a segment, pending rows that are stored in it."""


def load(page: Page, columns: Columns) -> None:
    """Do the same as ``Page.load`` for an empty page."""
    slots = np.frombuffer(columns.slot, np.uint16)
    for column, values in zip(
        (page.due, page.position, page.row, page.topic, page.queue), columns, strict=False
    ):
        kind = np.dtype(f"{'i' if column.typecode == 'q' else 'u'}{column.itemsize}")
        np.frombuffer(column, kind)[slots] = np.frombuffer(values, kind)
    page.left = len(slots)
    page.earliest_us = min(columns.due)
    page.lowest = min(columns.position)


def count(
    pages: Sequence[tuple[int, Page]], cursors: Mapping[int, int], segment_size: int
) -> Counts:
    """Return what is pending in some pages.

    Args:
        pages: Number and page.
        cursors: Topic number -> its cursor, of all topics that exist.
        segment_size: Segment size of the journal, in bytes.
    """
    due = _joined([page.due for _, page in pages], np.int64)
    slots = np.arange(SLOTS)
    entries = np.concatenate([slots + (number << PAGE_BITS) for number, _ in pages])
    alive = due > 0
    due, entries = due[alive], entries[alive]
    topics = _joined([page.topic for _, page in pages], np.uint32)[alive]
    positions = _joined([page.position for _, page in pages], np.uint64)[alive]
    most = int(topics.max(initial=0)) + 1
    last_due = np.full(most, _GONE[0])
    last_entry = np.full(most, _GONE[1])
    for topic, cursor in cursors.items():
        if topic < most:
            last_due[topic] = cursor >> ENTRY_BITS
            last_entry[topic] = cursor & ENTRY_MASK
    limit = last_due[topics]
    dead = (due < limit) | ((due == limit) & (entries <= last_entry[topics]))
    found = entries[dead].tolist()
    if found:
        due, topics, positions = due[~dead], topics[~dead], positions[~dead]
    segments, rows = np.unique(positions // segment_size, return_counts=True)
    return Counts(
        found, _hours(topics, due), list(zip(segments.tolist(), rows.tolist(), strict=True))
    )


def _hours(topics: _Numbers, due: _Numbers) -> list[tuple[int, int, int]]:
    if not len(due):
        return []
    hours = due // HOUR_US
    first, width = int(hours.min()), int(hours.max() - hours.min()) + 1
    pairs = topics * width + (hours - first)
    if int(topics.max() + 1) * width <= _COUNTED:
        counted = np.bincount(pairs)
        some = np.flatnonzero(counted)
        rows = counted[some]
    else:
        some, rows = np.unique(pairs, return_counts=True)
    return [
        (pair // width, pair % width + first, number)
        for pair, number in zip(some.tolist(), rows.tolist(), strict=True)
    ]


def _joined(columns: Iterable[object], kind: type[np.number]) -> _Numbers:
    return np.concatenate([np.frombuffer(column, kind) for column in columns]).astype(np.int64)  # type: ignore[call-overload]
