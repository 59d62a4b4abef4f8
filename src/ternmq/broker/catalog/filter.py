"""Filters of groups: by tag (``paid || refunded``), by headers (``amount >= 100``), or both.

A queue's index has a 64-bit mask for each stored batch, with one bit for each tag (by hash), so
that most batches without a matching tag are passed over unread. A mask may match by accident; the
rows' tags are then compared as text, so that no message is delivered that the filter does not name.
Then the header filter is asked, about some rows at a time: what it costs depends on the headers.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import and_
from typing import Final, NamedTuple

from ternmq.broker.catalog.header_rows import BatchRows, constant
from ternmq.journal.index.batch_facts import mask_of
from ternmq.model.filter_tree import TRUE, Node, named
from ternmq.model.header_filter import parse as parse_headers
from ternmq.model.specs import SubscriptionSpec
from ternmq.model.tag_filter import MAX_TAGS, tags_of
from ternmq.model.tag_filter import check_filter as check
from ternmq.record.batch.batch import Batch
from ternmq.record.batch.layout import HEADERS
from ternmq.record.batch.pick import rows_within

__all__ = ["MAX_TAGS", "GroupFilter", "TagFilter", "check", "filter_of", "mask_of", "parse"]

HEADER_COST: Final = 4
"""A row whose headers are read costs as much as this number of rows of which only tags are read."""
COST_BYTES: Final = 256
"""Bytes of headers that cost as much as a row."""
_TRUE_ALONE: Final = bytes([value == TRUE for value in range(256)])
"""Unknown does not pass."""
PART_BYTES: Final = 256 * 1024
"""Bytes of headers that are judged at one time: with 64 tests some 10 ms, whatever they are."""


class TagFilter:
    """A compiled filter expression."""

    __slots__ = ("mask", "tags")

    def __init__(self, tags: frozenset[str]) -> None:
        self.tags = tags
        self.mask = mask_of(sorted(tags))

    def matching(self, batch: Batch) -> list[bool] | bool:
        """Return which rows match, or one bool if it is the same for all."""
        codes, dictionary = batch.tags()
        wanted = [tag in self.tags for tag in dictionary]
        if all(wanted):
            return True
        if not any(wanted):
            return False
        if len(set(codes)) == 1:
            return wanted[codes[0]]
        return [wanted[code] for code in codes]


def parse(expression: str) -> TagFilter | None:
    """Return the filter, or None if every message passes.

    Raises:
        InvalidRequest: an empty alternative, too many tags, or white space within a tag.
    """
    tags = tags_of(expression)
    return None if tags is None else TagFilter(tags)


class Judged(NamedTuple):
    """Which rows ``[start, stop)`` of a batch pass."""

    start: int
    stop: int
    passes: Sequence[bool | int] | bool
    """Of each row (0: no), or one for all of them."""
    cost: int = 0
    """What this cost beside the reading of the batch, in rows of which only tags are read."""

    def passed(self, row: int) -> bool:
        """Return whether a row passes."""
        passes = self.passes
        return passes if isinstance(passes, bool) else bool(passes[row - self.start])


NOT_JUDGED: Final = Judged(0, 0, passes=False)


class GroupFilter:
    """The filter of a group: tags, headers, or both; a row has to pass both.

    Args:
        tags: None: any tag.
        tree: None: any headers.
    """

    __slots__ = ("constants", "header_cost", "tags", "tree")

    def __init__(self, tags: TagFilter | None, tree: Node | None) -> None:
        self.tags = tags
        self.tree = tree
        self.constants = frozenset() if tree is None else named(tree)
        self.header_cost = 1 if tree is None else HEADER_COST
        """Most that a row costs."""

    def asks(self, mask: int) -> bool:
        """Return whether a row of a batch may pass; ``mask``: of the batch's tags."""
        return self.tags is None or bool(mask & self.tags.mask)

    def judge(self, batch: Batch) -> Judge:
        """Return what judges the rows of a batch."""
        return Judge(self, batch)


class Judge:
    """Judges the rows of one batch, some at a time."""

    __slots__ = ("_batch", "_filter", "_rows", "_same", "_tags")

    def __init__(self, wanted: GroupFilter, batch: Batch) -> None:
        self._filter = wanted
        self._batch = batch
        self._tags = True if wanted.tags is None else wanted.tags.matching(batch)
        self._rows: BatchRows | None = None
        self._same: bool | None = None
        """Whether all rows pass the header filter, if all have the same values."""

    def judge(self, start: int, stop: int) -> Judged:
        """Judge rows from ``start`` on, at most to ``stop`` and at least one."""
        tree, tags = self._filter.tree, self._tags
        if tree is None or tags is False:
            return Judged(start, stop, _part(tags, start, stop))
        batch = self._batch
        if self._same is None and constant(batch, self._filter.constants):
            self._same = tree.column(BatchRows(batch, 0, 1))[0] == TRUE
        if self._same is not None:
            return Judged(start, stop, self._same and _part(tags, start, stop))
        stop = rows_within(batch, HEADERS, start, stop, PART_BYTES)
        of_tags = _part(tags, start, stop)
        if isinstance(of_tags, list) and not any(of_tags):
            return Judged(start, stop, passes=False)
        if self._rows is None:
            self._rows = BatchRows(batch, start, stop)
        else:
            self._rows.move(start, stop)
        values = tree.column(self._rows)
        cost = max((HEADER_COST - 1) * (stop - start), self._rows.header_bytes // COST_BYTES)
        passes = values.translate(_TRUE_ALONE)
        if isinstance(of_tags, list):
            passes = bytes(map(and_, passes, of_tags))
        return Judged(start, stop, passes, cost)


def _part(passes: list[bool] | bool, start: int, stop: int) -> list[bool] | bool:
    return passes if isinstance(passes, bool) else passes[start:stop]


def filter_of(spec: SubscriptionSpec) -> GroupFilter | None:
    """Return the filter of a group, or None if every message passes.

    Raises:
        InvalidRequest: As ``parse``.
        InvalidFilter: The header filter is none.
    """
    tags, tree = parse(spec.tags), parse_headers(spec.filter)
    return None if tags is None and tree is None else GroupFilter(tags, tree)
