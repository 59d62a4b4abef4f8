"""The layout in STATE of the rows of one shard of a (group, queue).

Ruler::

     0  u32 leased, u32 ready, u32 ahead, u32 history    counts
    16  u64 hashes                                       count
    24  u64 0
    32  leased  x (u64 lease id, u32 session, u32 rows, i64 until_us, u64 start, u16 attempt,
                   u16 deliveries, u32 0)
     .  ready   x (u64 start, u32 rows, u16 attempt, u16 deliveries)
     .  ahead   x (u64 start, u64 stop)
     .  history x (u64 offset, u64 position)              rows leased or ready that failed before
     .  hashes  x (u64 offset, u64 ordering hash)         rows of ordered groups that are not dead
     .  waiting rows, then dead rows, each as ``FailureRows.encode`` writes them:
        u32 count, u32 0, count x i64 time, count x u64 (position << 16 | attempt),
        count x u16 offset in the shard (padded to 8), count x u16 deliveries (padded to 8)

A run that crosses a shard's edge is cut there. A lease id is ``epoch << 40 | number``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ternmq.broker.group.failedrows import SHARD_BITS, SHARD_ROWS, FailureRows
from ternmq.broker.group.lease import Lease
from ternmq.record.fact.facts import Span
from ternmq.record.fact.state import SHARD_HEAD, SHARD_LEASED, SHARD_PAIR, SHARD_READY

if TYPE_CHECKING:
    from ternmq.broker.group.progress import Progress


def shards_of(progress: Progress) -> list[int]:
    """Return the numbers of the shards that hold rows, sorted."""
    if not (
        progress.leases
        or progress.ready.runs
        or progress.ahead.starts
        or progress.failures.waiting
        or progress.failures.dead
    ):
        return []
    keys = (
        set(progress.failures.waiting)
        | set(progress.failures.dead)
        | set(progress.leases_by_shard())
    )
    spans = [run[:2] for run in progress.ready.runs]
    for start, stop in [*spans, *progress.ahead]:
        keys.update(range(start >> SHARD_BITS, (stop - 1 >> SHARD_BITS) + 1))
    return sorted(keys)


def encode_shard(progress: Progress, key: int) -> bytes:
    """Return everything known of the rows of one shard; layout in ``docs/format/state.md``."""
    base = key << SHARD_BITS
    end = base + SHARD_ROWS
    leased = [
        SHARD_LEASED.pack(
            lease.id,
            lease.session,
            min(stop, end) - max(start, base),
            lease.until_us,
            max(start, base),
            attempt,
            deliveries,
            0,
        )
        for (start, stop, attempt, deliveries), lease in sorted(
            progress.leases_by_shard().get(key, ()), key=lambda pair: pair[0]
        )
    ]
    ready = [
        SHARD_READY.pack(max(start, base), min(stop, end) - max(start, base), attempt, count)
        for start, stop, attempt, count in progress.ready.runs
        if start < end and stop > base
    ]
    ahead = [
        SHARD_PAIR.pack(max(start, base), min(stop, end))
        for start, stop in progress.ahead
        if start < end and stop > base
    ]
    known = progress.failures.history
    history = (
        [SHARD_PAIR.pack(offset, known[offset]) for offset in range(base, end) if offset in known]
        if known
        else []
    )
    hashes = [SHARD_PAIR.pack(*pair) for pair in progress.order.hashes(base, end)]
    empty = FailureRows(base)
    return b"".join(
        [
            SHARD_HEAD.pack(len(leased), len(ready), len(ahead), len(history)),
            SHARD_PAIR.pack(len(hashes), 0),
            *leased,
            *ready,
            *ahead,
            *history,
            *hashes,
            progress.failures.waiting.get(key, empty).encode(),
            progress.failures.dead.get(key, empty).encode(),
        ]
    )


def load_shard(progress: Progress, key: int, payload: bytes, stamp: int) -> None:
    """Load the rows of one shard as they were at ``stamp``."""
    progress.admission.load_shard(key, stamp)
    if not payload:
        return
    failures = progress.failures
    leased, ready, ahead, history = SHARD_HEAD.unpack_from(payload)
    at = SHARD_HEAD.size
    hashes, _ = SHARD_PAIR.unpack_from(payload, at)
    at += SHARD_PAIR.size
    in_hand: list[Span] = []
    for _ in range(leased):
        id_, session, rows, until_us, start, attempt, count, _ = SHARD_LEASED.unpack_from(
            payload, at
        )
        at += SHARD_LEASED.size
        lease = progress.leases.get(id_)
        if lease is None:
            lease = progress.leases[id_] = Lease(id_, session, until_us)
        lease.until_us = max(lease.until_us, until_us)
        lease.runs.append((start, start + rows, attempt, count))
        progress.leased_rows += rows
        in_hand.append((start, start + rows))
    for _ in range(ready):
        start, rows, attempt, count = SHARD_READY.unpack_from(payload, at)
        at += SHARD_READY.size
        progress.ready.add(start, start + rows, attempt, count)
    for _ in range(ahead):
        progress.ahead.add(*SHARD_PAIR.unpack_from(payload, at))
        at += SHARD_PAIR.size
    history_of = failures.history
    for _ in range(history):
        offset, position = SHARD_PAIR.unpack_from(payload, at)
        history_of[offset] = position
        at += SHARD_PAIR.size
    end = at + hashes * SHARD_PAIR.size
    if hashes:
        progress.admission.hashes.append((stamp, payload[at:end], in_hand))
        progress.order.load(list(SHARD_PAIR.iter_unpack(payload[at:end])), in_hand)
    at = end
    waiting = FailureRows(key << SHARD_BITS)
    at = waiting.decode(payload, at)
    if len(waiting):
        failures.waiting[key] = waiting
        failures.waiting_rows += len(waiting)
        failures.held_rows += waiting.held()
    dead = FailureRows(key << SHARD_BITS)
    dead.decode(payload, at)
    if len(dead):
        failures.dead[key] = dead
        failures.dead_rows += len(dead)
