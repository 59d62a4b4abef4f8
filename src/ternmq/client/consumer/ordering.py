"""Owner of a lease whose rows are handed out as a batch, in a group that keeps an order.

One pull returns several rows of an ordering key, in their order. When one of them is delivered
again, because it failed or was given back, the broker takes the later ones of its key back as well,
so that no consumer processes them before it. The client knows this at once: the batch has lost
them. With mode queue_lock, all rows of a queue are treated as if they had one key.

A failure at the last attempt is a dead letter, and then the broker leaves the later rows leased.
Only the broker is certain which attempt is the last (the policy may just have been changed), so the
client gives them back itself after every failure: they are delivered again, without an attempt.
``consumer`` does the same with the rows that it holds.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

from ternmq.client.consumer.chunk import Chunk
from ternmq.client.consumer.deliveries import runs_of
from ternmq.client.consumer.lease import Lease
from ternmq.record.fact.facts import Outcome

BEHIND: Final = "an earlier message of its ordering key is delivered again"
"""Reason for which rows of an ordered group's lease are lost."""
BEHIND_IN_QUEUE: Final = "an earlier message of its queue is delivered again"
"""The same in a group that locks queues."""


class OrderedRows:
    """The owner of such a lease: marks the rows that it loses. For the client's loop.

    Args:
        chunks: The rows, of one queue.
        by_queue: Whether all rows of a queue wait for one another, whatever their keys are.
    """

    __slots__ = ("_by_queue", "_chunks", "_key_of", "_of_key")

    def __init__(self, chunks: Sequence[Chunk], *, by_queue: bool = False) -> None:
        self._chunks = chunks
        self._by_queue = by_queue
        self._key_of: dict[int, str] = {}
        self._of_key: dict[str, list[int]] = {}

    def settled(self, lease: Lease, offset: int, stop: int, outcome: Outcome | None) -> None:
        """Mark the later rows of the settled rows' keys as lost, if those are delivered again."""
        if lease.lost or (outcome is not Outcome.RETRY and outcome is not Outcome.RELEASED):
            return
        behind = self._behind(lease, offset, stop)
        if behind:
            # After a release the broker takes the later rows back, whatever the policy is.
            why = BEHIND_IN_QUEUE if self._by_queue else BEHIND
            lease.lose_rows(runs_of(behind), why, tell=outcome is Outcome.RETRY)

    def decided(self, lease: Lease, offset: int, stop: int, outcome: Outcome) -> None:
        """Do the same, at the end of the transaction that held the rows."""
        self.settled(lease, offset, stop, outcome)

    def overdue(self, lease: Lease) -> None:
        """Do nothing: no handler runs on rows of a batch."""

    def _behind(self, lease: Lease, offset: int, stop: int) -> list[int]:
        """Return the unsettled rows after rows ``[offset, stop)`` in the order of their keys."""
        if not self._key_of:
            self._read_keys()
        keys = dict.fromkeys([self._key_of[one] for one in range(offset, stop)])
        behind: list[int] = []
        for key in keys:
            line = self._of_key[key]
            later = line[bisect_right(line, offset) :]
            behind += [one for one in later if one not in lease.settled]
        return sorted(behind)

    def _read_keys(self) -> None:
        """Read the keys, at the first failure: few batches have one."""
        for chunk in self._chunks:
            for index in range(chunk.count):
                key = "" if self._by_queue else chunk.ordering_key(index)
                offset = chunk.offset + index
                self._key_of[offset] = key
                self._of_key.setdefault(key, []).append(offset)
