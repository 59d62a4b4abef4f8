"""The order by key: while a row of a key is leased or waits, the later rows of the key wait for it.

The rows of each key are a line (`lines`); other keys are not affected.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence

from ternmq.broker.containers.discarded import Discarded
from ternmq.broker.group.lease import Lease
from ternmq.broker.group.lines import Lines
from ternmq.broker.group.order import Order, Rows
from ternmq.broker.group.runs import last_rows, merge
from ternmq.broker.group.stamps import Admission
from ternmq.record.fact.facts import LeasedRun, Outcome, Pulled, Settled, Span
from ternmq.record.fact.replay import Replayed


class KeyOrder(Order):
    """See the module. PULLED and REPLAY contain the ordering hash of each row."""

    __slots__ = ("lines",)

    def __init__(self) -> None:
        self.lines = Lines()

    # -- facts ------------------------------------------------------------------------------------

    def pulled(self, position: int, fact: Pulled, admission: Admission) -> None:
        """Put the rows into their lines, and lease those that were handed out."""
        lines = self.lines
        hashes = iter(fact.hashes)
        for start, stop, _, _ in fact.leased:
            for offset in range(start, stop):
                hash_ = next(hashes)
                if admission.admits(position, offset):
                    lines.stand(offset, hash_)
                    lines.lease(offset)
        for start, stop in fact.parked:
            for offset in range(start, stop):
                hash_ = next(hashes)
                if admission.admits(position, offset):
                    lines.stand(offset, hash_)

    def settled(
        self, outcome: Outcome, given_back: Sequence[LeasedRun], runs: Sequence[LeasedRun]
    ) -> None:
        """Remove rows that are done or dead from their lines; offer those that were released."""
        self.give_back(given_back)
        if outcome in (Outcome.DONE, Outcome.DEAD):
            self.forget([run[:2] for run in runs])
        elif outcome is Outcome.RELEASED:
            offer = self.lines.offer
            for start, stop, _, _ in runs:
                for offset in range(start, stop):
                    offer(offset)

    def replayed(self, position: int, fact: Replayed, admission: Admission) -> None:
        """Put the rows into their lines and offer them."""
        lines = self.lines
        offsets = (offset for start, stop, _, _ in fact.runs for offset in range(start, stop))
        for offset, hash_ in zip(offsets, fact.hashes, strict=True):
            if admission.admits(position, offset):
                lines.stand(offset, hash_)
                lines.offer(offset)

    def give_back(self, runs: Iterable[LeasedRun]) -> None:
        give_back = self.lines.give_back
        for start, stop, _, _ in runs:
            for offset in range(start, stop):
                give_back(offset)

    def forget(self, spans: Iterable[Span]) -> None:
        leave = self.lines.leave
        for start, stop in spans:
            for offset in range(start, stop):
                leave(offset)

    def come_due(self, offsets: Sequence[int]) -> Sequence[int]:
        """Offer the rows: pulls find them in their lines."""
        for offset in offsets:
            self.lines.offer(offset)
        return ()

    def emptied(self, discarded: Discarded) -> Order:
        self.lines.discard(discarded)
        return KeyOrder()

    # -- STATE ------------------------------------------------------------------------------------

    def hashes(self, start: int, stop: int) -> list[tuple[int, int]]:
        hash_of = self.lines.hash_of
        return [(offset, hash_of[offset]) for offset in range(start, stop) if offset in hash_of]

    def load(self, hashes: Sequence[tuple[int, int]], leased: Sequence[Span]) -> None:
        lines = self.lines
        for offset, hash_ in hashes:
            lines.stand(offset, hash_)
        for start, stop in leased:
            for offset in range(start, stop):
                lines.lease(offset)

    def finish_load(self) -> None:
        self.lines.offer_all()

    # -- what is there ----------------------------------------------------------------------------

    def hash_of(self, offset: int) -> int | None:
        return self.lines.hash_of.get(offset)

    def first_before(self, rows: Rows, offset: int) -> int | None:
        """Return the first owed row of the same key, if that is another row."""
        del rows
        hash_ = self.lines.hash_of.get(offset)
        if hash_ is None:
            return None
        first = self.lines.by_hash[hash_].offsets[0]
        return first if first < offset else None

    def before(self, rows: Rows, offset: int) -> Sequence[int]:
        """Return the owed rows of the same key before a row, the first one first."""
        del rows
        hash_ = self.lines.hash_of.get(offset)
        if hash_ is None:
            return ()
        offsets = self.lines.by_hash[hash_].offsets
        return offsets[: bisect_left(offsets, offset)]

    def idle_lines(self, rows: Rows) -> Iterator[Sequence[int]]:
        del rows
        return (line.offsets for line in self.lines.by_hash.values() if not line.leased)

    # -- decisions --------------------------------------------------------------------------------

    def handled(self, taken: Sequence[LeasedRun]) -> tuple[Sequence[LeasedRun], list[LeasedRun]]:
        """Return the first of the rows of each key, and the others."""
        hash_of = self.lines.hash_of
        seen: set[int] = set()
        first: list[LeasedRun] = []
        others: list[LeasedRun] = []
        for start, stop, attempt, deliveries in sorted(taken):
            for offset in range(start, stop):
                row = (offset, offset + 1, attempt, deliveries)
                hash_ = hash_of[offset]
                (others if hash_ in seen else first).append(row)
                seen.add(hash_)
        return merge(first), merge(others)

    def behind(
        self,
        lease: Lease,
        settled: Sequence[Settled],
        others: list[LeasedRun],
        taken: Sequence[LeasedRun],
    ) -> list[LeasedRun]:
        """Return the others, and the rows behind a row of their key that comes again.

        A row comes again if it failed or is released; a dead row does not block its key.
        """
        hash_of = self.lines.hash_of
        again = [run for one in settled if one.outcome is not Outcome.DEAD for run in one.runs]
        again += others
        first: dict[int, int] = {}
        for start, stop, _, _ in again:
            for offset in range(start, stop):
                hash_ = hash_of[offset]
                first[hash_] = min(first.get(hash_, offset), offset)
        named = {offset for start, stop, _, _ in taken for offset in range(start, stop)}
        behind = [
            (offset, offset + 1, attempt, deliveries)
            for start, stop, attempt, deliveries in lease.runs
            for offset in range(start, stop)
            if first.get(hash_of[offset], offset) < offset and offset not in named
        ]
        return merge([*others, *behind])

    def begun(
        self, rows: Rows, runs: Sequence[LeasedRun]
    ) -> tuple[Sequence[LeasedRun], list[LeasedRun]]:
        """Return the rows at the head of their key, and the others.

        A head is the first row of its line, not each key's first row of the lease: if a large lease
        ends in pieces, every piece would have one.
        """
        del rows
        lines = self.lines
        heads: list[LeasedRun] = []
        others: list[LeasedRun] = []
        for start, stop, attempt, deliveries in runs:
            for offset in range(start, stop):
                row = (offset, offset + 1, attempt, deliveries)
                head = lines.by_hash[lines.hash_of[offset]].offsets[0]
                (heads if head == offset else others).append(row)
        return merge(heads), merge(others)

    def end_first(self, runs: Sequence[LeasedRun], limit: int) -> list[LeasedRun]:
        """Return the last rows, so that no row of a key stays leased behind a freed one."""
        return last_rows(runs, limit)

    def behind_replayed(
        self, leases: Iterable[Lease], runs: Sequence[LeasedRun], hashes: Sequence[int]
    ) -> list[tuple[Lease, list[LeasedRun]]]:
        """Return the leased rows behind a replayed row of their key, so that none overtakes it.

        Leased rows that are replayed themselves are returned too: a crash may leave this release as
        the last record.
        """
        lines = self.lines
        named = [offset for start, stop, _, _ in runs for offset in range(start, stop)]
        first: dict[int, int] = {}
        for offset, hash_ in zip(named, hashes, strict=True):
            line = lines.by_hash.get(hash_)
            if line is not None and line.leased:
                first.setdefault(hash_, offset)
        if not first:
            return []
        found: list[tuple[Lease, list[LeasedRun]]] = []
        for lease in leases:
            behind = [
                (offset, offset + 1, attempt, deliveries)
                for start, stop, attempt, deliveries in lease.runs
                for offset in range(start, stop)
                if first.get(lines.hash_of[offset], offset) < offset
            ]
            if behind:
                found.append((lease, merge(behind)))
        return found
