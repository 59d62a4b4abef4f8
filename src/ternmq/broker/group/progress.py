"""What one consumer group holds of one queue, and how facts change it.

Rows below the ``cursor`` are done unless they are *owed*: leased, ready (released, or parked behind
a busy key), waiting for a retry, or dead. Rows at or above it were never handed out, except those
in ``ahead``: they were settled, but the record of their hand-out was lost in a power cut, so pulls
pass over them. Progress is therefore the cursor and a few runs, however many messages are settled.

The rows are cut into **shards** of ``SHARD_ROWS`` offsets, which are objects of their own in STATE
(`shards`). While a journal is replayed, a fact changes only the shards (and the cursor) whose chunk
was written before it; `stamps` filters the others, and filters nothing once the replay has
passed the newest chunk. Rows that wait or are dead are in a store of their own (`failurestore`).

Deterministic, no I/O. Facts are decided elsewhere (room `delivery`); here they are only applied.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ternmq.broker.group.failedrows import SHARD_BITS, Failure
from ternmq.broker.group.failurestore import FailureStore
from ternmq.broker.group.figures import Share
from ternmq.broker.group.given import NOTHING, Given, began
from ternmq.broker.group.heldpage import HeldPage
from ternmq.broker.group.lease import LEASE_BITS, LENT_UNTIL_US, Lease
from ternmq.broker.group.mode import GroupMode
from ternmq.broker.group.runs import (
    RunList,
    SpanSet,
    cut,
    put_all,
    row_count,
    split,
    split_all,
    union,
)
from ternmq.broker.group.stamps import Admission
from ternmq.record.fact.facts import (
    CursorMoved,
    Extended,
    LeasedRun,
    Move,
    Outcome,
    Pulled,
    Settled,
    Span,
)
from ternmq.record.fact.replay import Replayed
from ternmq.record.fact.state import SHARD_PAIR

_FOREVER: Final = 1 << 63
_MUCH: Final = 256
"""Number of owed rows from which the memory of a deleted group is freed piece by piece."""
# Members as globals of the module: looking one up in its class takes 0.2 us (Python 3.11).
_DONE: Final = Outcome.DONE
_RELEASED: Final = Outcome.RELEASED


class Progress:
    """The view of one (group, topic, queue)."""

    __slots__ = (
        "_by_shard",
        "admission",
        "ahead",
        "all_changed",
        "cursor",
        "due_armed_us",
        "failures",
        "given",
        "group",
        "lease_armed_us",
        "leased_rows",
        "leases",
        "mode",
        "noted",
        "order",
        "page",
        "queue",
        "ready",
        "round",
        "scan",
        "scan_since_us",
        "shard_changed",
        "share",
        "topic",
        "turn_to_fresh",
    )

    def __init__(
        self,
        group: int,
        topic: int,
        queue: int,
        cursor: int,
        page: HeldPage,
        mode: GroupMode,
    ) -> None:
        self.group = group
        self.topic = topic
        self.queue = queue
        self.mode = mode
        self.order = mode.new_order()
        self.cursor = cursor
        self.given = began(cursor)
        self.round = 0
        self.ahead = SpanSet()
        self.leases: dict[int, Lease] = {}
        self.ready = RunList()
        self.failures = FailureStore()
        self.leased_rows = 0
        # STATE and replay.
        self.admission = Admission()
        self.page = page
        self.shard_changed: dict[int, int] = {}
        """Shard -> newest record that changed it, if that is behind ``all_changed``."""
        self.all_changed = 0
        """Newest record that changed all shards."""
        self._by_shard: dict[int, list[tuple[LeasedRun, Lease]]] | None = None
        # Figures of all group queues, see `figures`.
        self.share: Share | None = None
        """The numbers already added to the figures; None: it is not counted (yet, or any more)."""
        self.noted = False
        """Whether it is in ``Figures.changed``."""
        # Volatile.
        self.scan = 0
        self.scan_since_us = 0
        self.lease_armed_us = _FOREVER
        self.due_armed_us = _FOREVER
        self.turn_to_fresh = False

    # -- facts ------------------------------------------------------------------------------------

    def apply_pulled(self, position: int, epoch: int, fact: Pulled) -> None:
        """Apply a PULLED fact: rows were handed out."""
        admission, failures = self.admission, self.failures
        if position >= admission.main:
            self.page.changed = position
            if fact.cursor > self.cursor:
                self.cursor = fact.cursor
                if self.ahead.starts:
                    self.ahead.remove(0, fact.cursor)
                    self._note()
        lease_id = epoch << LEASE_BITS | fact.lease
        leased: Sequence[LeasedRun] = fact.leased
        if position < admission.until:
            leased = admission.runs(position, leased)
        if leased:
            lease = self.leases.get(lease_id)
            if lease is None:
                runs = sorted(leased)
                self.leases[lease_id] = Lease(lease_id, fact.session, fact.until_us, runs)
                self.page.figures.lease_begun(self, fact.session)
            else:
                lease.runs.extend(leased)
                lease.runs.sort()
                if fact.until_us > lease.until_us:
                    lease.until_us = fact.until_us
            for start, stop, _, _ in leased:
                if self.ready.runs:
                    self.ready.take(start, stop)
                if failures.waiting_rows or failures.dead_rows:
                    failures.take(start, stop, keep_history=True)
                self._touch(position, start, stop)
                self.leased_rows += stop - start
        if fact.hashes:  # not `mode.keyed`: in a replay, the mode may be that of a later record
            self.order.pulled(position, fact, admission)
            for start, stop in fact.parked:
                for low, high in admission.spans(position, start, stop):
                    self.ready.add(low, high, 1, 0)
                    self._touch(position, low, high)

    def apply_lent(self, position: int, fact: Settled, transaction: int) -> None:
        """Apply a settle in a transaction: its rows leave their lease and belong to it.

        In the order of the group they stay leased, so that their keys stay closed.
        """
        runs = self.admission.runs(position, fact.runs)
        lease = self.leases.get(fact.lease_epoch << LEASE_BITS | fact.lease)
        if lease is not None:
            self.leased_rows -= row_count(self._cut(lease, runs))
            if not lease.runs and not self.admission.shards:
                self._end_lease(lease)
        if not runs:
            return
        own = self.leases.get(transaction)
        if own is None:
            own = self.leases[transaction] = Lease(transaction, 0, LENT_UNTIL_US)
            self.page.figures.lease_begun(self, 0)
        self.leased_rows += row_count(runs)
        own.runs = put_all(own.runs, runs)
        self._touch_all(position, runs)

    def apply_decided(self, position: int, facts: Sequence[Settled]) -> None:
        """Apply the settles of a RESOLVED in one queue: no two are of the same row.

        The rows leave their leases in one pass, since a transaction may have thousands of settles,
        and its lease as many runs.
        """
        admission, leases = self.admission, self.leases
        applied = [(fact, admission.runs(position, fact.runs)) for fact in facts]
        by_lease: dict[int, list[LeasedRun]] = {}
        for fact, runs in applied:
            id_ = fact.lease_epoch << LEASE_BITS | fact.lease
            by_lease.setdefault(id_, []).extend(runs)
        for id_, runs in by_lease.items():
            lease = leases.get(id_)
            if lease is not None:
                self.order.give_back(self._take_back(lease, runs))
                if not lease.runs and not admission.shards:
                    self._end_lease(lease)
        for fact, runs in applied:
            self._settle(position, fact, runs)
            self.order.settled(fact.outcome, (), runs)

    def apply_settled(self, position: int, fact: Settled) -> None:
        """Apply a SETTLED or ENDED fact."""
        lease = self.leases.get(fact.lease_epoch << LEASE_BITS | fact.lease)
        outcome = fact.outcome
        if (
            outcome is _DONE
            and lease is not None
            and lease.runs == fact.runs
            and position >= self.admission.until
            and not self.mode.keyed
            and not self.failures.history
        ):  # the whole lease, nothing ever failed: the common case
            self._end_lease(lease)
            for start, stop, _, _ in lease.runs:
                self.leased_rows -= stop - start
                self._touch(position, start, stop)
            return
        admission = self.admission
        runs = admission.runs(position, fact.runs)
        given_back: Sequence[LeasedRun] = ()
        if lease is not None:
            given_back = self._take_back(lease, runs)
            if not lease.runs and not admission.shards:
                self._end_lease(lease)
        self._settle(position, fact, runs)
        if self.mode.keyed:
            self.order.settled(outcome, given_back, runs)

    def _take_back(self, lease: Lease, runs: Sequence[LeasedRun]) -> list[LeasedRun]:
        """Remove rows from a lease; return those that it contained."""
        given_back = self._cut(lease, runs)
        self.leased_rows -= row_count(given_back)
        return given_back

    def _cut(self, lease: Lease, runs: Sequence[LeasedRun]) -> list[LeasedRun]:
        if self.admission.until:  # a replay: runs that were loaded are sorted at its end
            lease.runs, taken = split_all(lease.runs, union([run[:2] for run in runs]))
        elif len(runs) == 1:
            lease.runs, taken = cut(lease.runs, (runs[0][:2],))
        else:
            lease.runs, taken = cut(lease.runs, union([run[:2] for run in runs]))
        return taken

    def _end_lease(self, lease: Lease) -> None:
        del self.leases[lease.id]
        self.page.figures.lease_ended(self, lease.session)

    def _settle(self, position: int, fact: Settled, runs: Sequence[LeasedRun]) -> None:
        """Give rows their outcome: they are taken out of where they were, and put where they go."""
        failures, outcome, cursor = self.failures, fact.outcome, self.cursor
        if len(runs) == 1:
            start, stop, _, _ = runs[0]
            self._touch(position, start, stop)
            if self.ready.runs:
                self.ready.take(start, stop)
        else:
            self._touch_all(position, runs)
            if self.ready.runs:
                self.ready.take_all([run[:2] for run in runs])
        if failures.waiting_rows or failures.dead_rows:
            for start, stop, _, _ in runs:
                failures.take(start, stop, keep_history=outcome is _RELEASED)
        for start, stop, _, _ in runs:
            if stop > cursor:
                self.ahead.add(max(start, cursor), stop)
        if outcome is _RELEASED:
            self.ready.add_all(runs)
            return
        if failures.history:
            for start, stop, _, _ in runs:
                failures.forget_history(start, stop)
        if outcome is not _DONE:
            for run in runs:
                failures.put(position, outcome, run, fact.due_us)

    def apply_extended(self, position: int, fact: Extended) -> None:
        """Apply an EXTENDED fact: a lease lasts longer."""
        lease = self.leases.get(fact.lease_epoch << LEASE_BITS | fact.lease)
        if lease is not None and fact.until_us > lease.until_us:
            lease.until_us = fact.until_us
            for start, stop, _, _ in lease.runs:
                self._touch(position, start, stop)

    def apply_cursor(self, position: int, fact: CursorMoved) -> None:
        """Apply a CURSOR fact: the cursor moved, but not by a pull.

        A reset makes every row from the new cursor on unread and forgets all leased, ready and
        waiting rows; dead letters below the cursor stay. The other moves only go forward.
        """
        if position >= self.admission.given:
            self._give(position, self.given.moved(self.cursor, fact))
        if position >= self.admission.main:
            self.page.changed = position
            if fact.move is Move.RESET:
                self.cursor = fact.cursor
                self.round = fact.round
            else:
                self.cursor = max(self.cursor, fact.cursor)
            self.scan = 0
        self._note()
        if fact.move is not Move.RESET:
            if self.ahead:
                self.ahead.remove(0, self.cursor)
            return
        if position >= self.admission.until:
            self._forget_all(position, fact.cursor)
            return
        for low, high in self.admission.spans(position, 0, _FOREVER):
            self._forget(position, low, high, fact.cursor)
        for lease in [one for one in self.leases.values() if not one.runs]:
            self._end_lease(lease)

    def switch(self, position: int, mode: GroupMode) -> None:
        """Apply a change of the group's mode; all rows stay what they are.

        Parked rows are ready rows, which wait for nothing in an order that is not by key. An order
        by key begins empty: the group is owed nothing then. In a replay, shards that were loaded as
        they were after the change may have rows with hashes already.
        """
        admission, page = self.admission, self.page
        if position >= admission.main:
            page.figures.mode_changes(self, mode)
            page.changed = position
            self.mode = mode
        page.touched = self.all_changed = position  # shards with hashes are written without them
        self.shard_changed = {}
        self.order.emptied(page.discarded)
        self.order = self.mode.new_order()
        for stamp, hashes, leased in admission.hashes:
            if stamp > position:
                self.order.load(list(SHARD_PAIR.iter_unpack(hashes)), leased)
        self.failures.look_anew()

    def end(self, position: int) -> None:
        """End the view of a deleted group; if it was owed many rows, ticks free the memory."""
        self._give(position, NOTHING)
        failures = self.failures
        failed = failures.waiting_rows + failures.dead_rows
        if failed + self.leased_rows + self.ready.rows + len(self.ahead.starts) >= _MUCH:
            self._forget_all(position, 0)

    def _forget_all(self, position: int, cursor: int) -> None:
        """Forget all owed rows except dead letters below the cursor, in few steps."""
        self._by_shard = None
        self.page.touched = self.all_changed = position
        discarded = self.page.discarded
        discarded.put(self.leases, self.ready.runs, self.ahead.starts, self.ahead.stops)
        discarded.put(self.shard_changed)
        self.page.figures.leases_ended(self, {one.session for one in self.leases.values()})
        self.leases, self.leased_rows = {}, 0
        self.ready, self.ahead, self.shard_changed = RunList(), SpanSet(), {}
        self.failures.forget_all(cursor, discarded)
        self.order = self.order.emptied(discarded)

    def _forget(self, position: int, low: int, high: int, cursor: int) -> None:
        given_back: list[LeasedRun] = []
        for lease in self.leases.values():
            lease.runs, inside = split(lease.runs, low, high)
            given_back += inside
        self.leased_rows -= row_count(given_back)
        self.order.give_back(given_back)
        gone: list[Span] = [run[:2] for run in given_back]
        gone += [run[:2] for run in self.ready.take(low, high)]
        gone += self.failures.forget_waiting(low, high)
        for key in self.failures.forget_dead(max(low, cursor), high):
            self._touch(position, key << SHARD_BITS, (key << SHARD_BITS) + 1)
        for start, stop in self.ahead:
            if low < stop and start < high:
                gone.append((start, stop))
        self.ahead.remove(low, high)
        for start, stop in gone:
            self._touch(position, start, stop)
            self.failures.forget_history(start, stop)
        self.order.forget(gone)

    def apply_replayed(self, position: int, fact: Replayed) -> None:
        """Apply a REPLAY fact: rows are ready again, in a new round, whatever their state was."""
        admission, failures = self.admission, self.failures
        if position >= admission.given:
            self._give(position, self.given.replayed(self.cursor, fact))
        if position >= admission.main:
            self.page.changed = position
            self.round = fact.round
        runs = admission.runs(position, fact.runs)
        by_shard = self.leases_by_shard()
        shards = {key for start, stop, _, _ in runs for key in _shards(start, stop)}
        for lease in {
            one.id: one for key in sorted(shards & by_shard.keys()) for _, one in by_shard[key]
        }.values():
            self.order.give_back(self._take_back(lease, runs))
            if not lease.runs and not admission.shards:
                self._end_lease(lease)
        for start, stop, attempt, deliveries in runs:
            self._touch(position, start, stop)
            self.ready.take(start, stop)
            failures.take(start, stop, keep_history=True)
            self.ready.add(start, stop, attempt, deliveries)
        for start, stop in fact.ahead:
            for low, high in admission.spans(position, start, stop):
                self._touch(position, low, high)
                self.ahead.remove(low, high)
                self.scan = 0
        if fact.hashes:
            self.order.replayed(position, fact, admission)

    def apply_moved(self, position: int, offset: int) -> None:
        """Apply a MOVED fact: the record at ``position`` now contains a row's failures."""
        if self.admission.admits(position, offset):
            self.failures.refer(offset, position)
            self._touch(position, offset, offset + 1)

    # -- rows that failed -------------------------------------------------------------------------

    def look_for_due(self, now_us: int, wanted: int = 0) -> int:
        """Find the waiting rows that have come due; see ``FailureStore.look_for_due``."""
        return self.failures.look_for_due(now_us, wanted, self.order)

    def due(self, now_us: int, limit: int) -> list[Failure]:
        """Return waiting rows whose time has come, at most ``limit``; they stay until pulled."""
        return self.failures.due(now_us, limit, self.order)

    # -- what is there ----------------------------------------------------------------------------

    def open_runs(self) -> int:
        """Return the number of leases, ready runs and runs ahead of the cursor."""
        return len(self.leases) + len(self.ready.runs) + len(self.ahead.starts)

    def first_owed(self) -> int | None:
        """Return the first row that is leased, ready or waiting, or None. O(leases)."""
        first = [lease.runs[0][0] for lease in self.leases.values() if lease.runs]
        if self.ready.runs:
            first.append(self.ready.runs[0][0])
        if self.failures.waiting_rows:
            first.append(next(self.failures.failed(dead=False, after=-1)).offset)
        return min(first, default=None)

    def owed_spans(self) -> list[Span]:
        """Return the rows that are leased, ready or waiting; sorted, disjoint."""
        runs = [run for lease in self.leases.values() for run in lease.runs]
        spans: list[Span] = [run[:2] for run in [*runs, *self.ready.runs]]
        return union([*spans, *[(offset, offset + 1) for offset in self.waiting_offsets()]])

    def waiting_offsets(self) -> list[int]:
        """Return the rows that wait for a retry or for an operator, by offset."""
        return [row.offset for row in self.failures.failed(dead=False, after=-1)]

    def ready_offsets(self) -> list[int]:
        """Return the ready rows, by offset."""
        return [offset for start, stop, _, _ in self.ready.runs for offset in range(start, stop)]

    def share_now(self) -> Share:
        """Return its present contribution to the figures of all group queues."""
        failures = self.failures
        return Share(
            self.leased_rows,
            self.ready.rows,
            failures.waiting_rows,
            failures.dead_rows,
            self.open_runs(),
            failures.held_rows,
        )

    def floor(self) -> int:
        """Return the offset below which every row is done, dead, or in the failure store."""
        floor = self.cursor
        if self.ready:
            floor = min(floor, self.ready.runs[0][0])
        for lease in self.leases.values():
            for start, _, _, _ in lease.runs:
                floor = min(floor, start)
        return floor

    def finished(self, offset: int) -> bool:
        """Return whether the floor is at or above an offset; cheap if no row is leased or ready.

        Rows that a transaction settles count as finished. They may wait for its decision for weeks,
        so they must not keep the journal: they are copied, as rows that failed are.
        """
        if self.cursor < offset or (self.ready and self.ready.runs[0][0] < offset):
            return False
        return all(
            start >= offset
            for lease in self.leases.values()
            if lease.until_us < LENT_UNTIL_US
            for start, _, _, _ in lease.runs
        )

    def intervals(self) -> int:
        """Return the number of runs of settled rows: 1 when nothing is owed."""
        edges = len(self.ready) + len(self.ahead)
        edges += sum([len(lease.runs) for lease in self.leases.values()])
        return edges + self.failures.waiting_rows + self.failures.dead_rows + 1

    # -- bookkeeping ------------------------------------------------------------------------------

    def _give(self, position: int, given: Given) -> None:
        """Change what the group was given before, if this is a change."""
        if given != self.given:
            self.given = given
            self.page.note_given(position)

    def _touch(self, position: int, start: int, stop: int) -> None:
        """Note that a record changed these rows."""
        self._by_shard = None
        page = self.page
        page.touched = position
        if not self.noted:
            self.noted = True
            page.figures.changed.append(self)
        first = start >> SHARD_BITS
        last = stop - 1 >> SHARD_BITS
        self.shard_changed[first] = position
        while first < last:
            first += 1
            self.shard_changed[first] = position

    def _touch_all(self, position: int, runs: Sequence[LeasedRun]) -> None:
        """Note that a record changed the rows of some runs; neighbours share shards."""
        before = -1
        for start, stop, _, _ in runs:
            if start >> SHARD_BITS != before or stop - 1 >> SHARD_BITS != before:
                self._touch(position, start, stop)
                before = stop - 1 >> SHARD_BITS

    def _note(self) -> None:
        """Mark the group queue as changed for the figures."""
        if not self.noted:
            self.noted = True
            self.page.figures.changed.append(self)

    def forget_shards(self, there: list[int]) -> None:
        """Forget which records changed the shards that are not in ``there``.

        They are empty, and STATE does not contain them. A shard that is filled again is written
        again, since the set being written does not name it.
        """
        changed = self.shard_changed
        if len(changed) > len(there):
            self.shard_changed = {shard: changed[shard] for shard in there if shard in changed}

    def leases_by_shard(self) -> dict[int, list[tuple[LeasedRun, Lease]]]:
        """Return shard -> leased runs with their leases; cached until the next change."""
        if self._by_shard is None:
            self._by_shard = {}
            for lease in self.leases.values():
                for run in lease.runs:
                    start, stop, _, _ = run
                    for number in _shards(start, stop):
                        self._by_shard.setdefault(number, []).append((run, lease))
        return self._by_shard

    def finish_load(self, stop: int) -> None:
        """Compute what is derived, once everything is replayed.

        Args:
            stop: The next offset of the queue.
        """
        self.given = self.given.below(stop)
        self.leases = {id_: lease for id_, lease in self.leases.items() if lease.runs}
        for lease in self.leases.values():
            lease.runs = sorted(lease.runs)
        self.ahead.remove(0, self.cursor)
        self.admission.finish()
        self.failures.look_anew()
        self.order.finish_load()


def _shards(start: int, stop: int) -> range:
    """Return the shards of rows ``[start, stop)``."""
    return range(start >> SHARD_BITS, (stop - 1 >> SHARD_BITS) + 1)
