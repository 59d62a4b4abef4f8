"""A lease of an ordered group in the hands of whoever has its rows as a batch.

One pull brings several rows of an ordering key, in their order. When one of them comes again, since
it failed or was given back, the broker takes the later ones of its key back as well, so that nobody
works on them before it. The client knows that at once: the batch has lost them.

A failure at the last attempt is a dead letter, behind which the broker leaves the later rows where
they are. Only the broker is certain which attempt is the last (the policy may have been changed a
moment ago), so the client gives them back itself after every failure: they come again, uncounted.
``consumer`` does the same with what it holds.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

from ternmq.client.chunk import Chunk
from ternmq.client.deliveries import runs_of
from ternmq.client.lease import Lease
from ternmq.record.facts import Outcome

BEHIND: Final = "a message before it of its ordering key comes again"
"""Why rows are lost that the lease of an ordered group had."""


class OrderedRows:
    """The owner of such a lease: sees which rows it loses. Loop only."""

    __slots__ = ("_chunks", "_key_of", "_of_key")

    def __init__(self, chunks: Sequence[Chunk]) -> None:
        self._chunks = chunks
        self._key_of: dict[int, str] = {}
        self._of_key: dict[str, list[int]] = {}

    def settled(self, lease: Lease, offset: int, stop: int, outcome: Outcome) -> None:
        """See ``LeaseOwner``."""
        if lease.lost or (outcome is not Outcome.RETRY and outcome is not Outcome.RELEASED):
            return
        behind = self._behind(lease, offset, stop)
        if behind:
            # What is released takes the later rows along, whatever the policy is.
            lease.lose_rows(runs_of(behind), BEHIND, tell=outcome is Outcome.RETRY)

    def overdue(self, lease: Lease) -> None:
        """See ``LeaseOwner``: no handler runs on rows of a batch."""

    def _behind(self, lease: Lease, offset: int, stop: int) -> list[int]:
        """Return the unsettled rows that stand behind rows ``[offset, stop)`` of their keys."""
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
                key, offset = chunk.ordering_key(index), chunk.offset + index
                self._key_of[offset] = key
                self._of_key.setdefault(key, []).append(offset)
