"""Filter by tag: ``paid || refunded``; ``*`` or nothing means every message.

A queue's index has a 64-bit mask for each stored batch, with one bit for each tag (by hash), so
that most batches without a match are passed over unread. A mask may match by accident; the rows'
tags are then compared as text, so that no message is delivered that the filter does not name.
"""

from __future__ import annotations

from ternmq.journal.index.batch_facts import mask_of
from ternmq.model.tag_filter import MAX_TAGS, tags_of
from ternmq.model.tag_filter import check_filter as check
from ternmq.record.batch.batch import Batch

__all__ = ["MAX_TAGS", "TagFilter", "check", "mask_of", "parse"]


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
