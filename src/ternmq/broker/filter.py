"""Filter by tag: ``paid || refunded``; ``*`` or nothing means every message.

A queue's index keeps a 64-bit mask per stored batch, one bit a tag (by hash), so that most batches
without a match are passed over unread. A mask may match by accident; rows are then compared by the
tag's text, so that no message is delivered that the filter does not name.
"""

from __future__ import annotations

from ternmq.journal.batch_facts import mask_of
from ternmq.model.errors import InvalidRequest
from ternmq.record.batch import Batch

__all__ = ["MAX_TAGS", "TagFilter", "mask_of", "parse"]

MAX_TAGS = 64


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
    """Return the filter, or None where every message passes.

    Raises:
        InvalidRequest: an empty alternative, too many tags, or white space within a tag.
    """
    text = expression.strip()
    if text in {"", "*"}:
        return None
    tags = [part.strip() for part in text.split("||")]
    if len(tags) > MAX_TAGS or any(not tag or len(tag.split()) != 1 for tag in tags):
        raise InvalidRequest(
            f"not a tag filter: {expression[:80]!r}; write it like 'paid || refunded'"
        )
    return TagFilter(frozenset(tags))
