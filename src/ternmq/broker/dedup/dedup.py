"""Deduplication: the same batch sent again gets its first receipt, and is not stored again.

The unit is the exact batch (producer, first sequence, count, CRC). Entries follow the order of the
MESSAGES records; nothing here depends on the wall clock. Entries are grouped in **buckets** of one
second of record time, and whole buckets are forgotten: those that begin before the window, and the
oldest while there are more entries than the cap. Of the forgotten entries, each producer keeps its
highest *forgotten* sequence, at or below which a resend is refused.

In STATE, entries are written once, as runs (`log`) that later sets name by position; only the
highest forgotten sequence of each producer is written again.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Collection, Iterator
from itertools import islice
from typing import Final, NamedTuple

from ternmq.broker.dedup.log import DedupLog, DedupRun
from ternmq.broker.dedup.producer import Producer
from ternmq.broker.dedup.runs import (
    ENTRY,
    FIRST,
    RUN_BYTES,
    TIME,
    Content,
    Row,
    rows_of,
)
from ternmq.model.errors import IdConflict, ResendTooOld
from ternmq.model.specs import Limits
from ternmq.model.types import SECOND_US
from ternmq.record.fact.state import FORGOTTEN_ENTRY

PRODUCER_PAGES: Final = 64
TABLE_FROM: Final = 10_000
"""Number of entries from which a start loads them as a table: this many take some 20 ms as rows,
and importing numpy takes 80 ms and 12 MB."""


def _seconds(us: int) -> int:
    """Return a time in seconds, rounded up: nothing is forgotten before it."""
    return -(-us // SECOND_US)


class Entry(NamedTuple):
    """A batch that was stored."""

    first_sequence: int
    rows: int
    crc: int
    position: int


class IdEntry(NamedTuple):
    """A message with an application id that was stored."""

    position: int
    row: int
    body_hash: int
    time_us: int


class Dedup:
    """The batches stored within the window, by producer, and messages by application id."""

    __slots__ = (
        "_buckets",
        "_by_page",
        "_limits",
        "_log",
        "_now_bucket",
        "_sweeping",
        "_total",
        "cut_horizon",
        "horizon",
        "ids",
        "producers",
    )

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.producers: dict[int, Producer] = {}
        self.ids: dict[int, dict[int, IdEntry]] = {}
        """Topic number -> application id hash (low | high << 64) -> entry, oldest first."""
        self._buckets: deque[list[int]] = deque()  # [second, first position, entries]
        self._now_bucket = -1
        self._total = 0
        self.horizon = 0
        """Entries whose record is below this position are forgotten."""
        self.cut_horizon = 0
        """The horizon at the last cut. STATE stores it, because it cannot be derived from the
        remaining entries: some were dropped to respect the cap, not because they were old."""
        self._log = DedupLog()
        self._by_page: list[dict[int, Producer]] = [{} for _ in range(PRODUCER_PAGES)]
        self._sweeping: Iterator[int] = iter(())

    def __len__(self) -> int:
        return self._total

    # -- deciding ---------------------------------------------------------------------------------

    def find(self, producer_id: int, first: int, count: int, crc: int, now_us: int) -> Entry | None:
        """Return the entry of exactly this batch, or None if it is new.

        Raises:
            IdConflict: some of its sequences were used by another batch.
            ResendTooOld: it begins at or below the highest forgotten sequence.
        """
        producer = self.producers.get(producer_id)
        if producer is None or first >= producer.next:
            return None
        if producer.last_us < now_us - self._limits.producer_idle_us:
            return None  # expired; `sweep` will remove it
        producer.trim(self.horizon)
        at = bisect_right(producer.firsts, first) - 1
        stop = first + count
        if at >= 0 and producer.firsts[at] == first:
            meta = producer.metas[at]
            if meta == count << 32 | crc:
                return Entry(first, count, crc, producer.positions[at])
        if at >= 0 and producer.firsts[at] + (producer.metas[at] >> 32) > first:
            raise IdConflict(
                f"sequence {first} of producer {producer_id:016x} was used by another batch"
            )
        if at + 1 < len(producer.firsts) and producer.firsts[at + 1] < stop:
            raise IdConflict(
                f"sequences {first} to {stop - 1} of producer {producer_id:016x} were used partly"
            )
        if first < producer.forgotten:
            raise ResendTooOld(
                f"deduplication has forgotten the sequences of producer {producer_id:016x} up to "
                f"{producer.forgotten - 1}; sequence {first} is one of them"
            )
        return None

    def position_of(self, producer_id: int, sequence: int) -> int | None:
        """Return the position of the record of a message that was sent within the window."""
        producer = self.producers.get(producer_id)
        if producer is None:
            return None
        at = bisect_right(producer.firsts, sequence) - 1
        if at < 0 or sequence >= producer.firsts[at] + (producer.metas[at] >> 32):
            return None
        return producer.positions[at]

    def second_of(self, position: int) -> int:
        """Return the second of broker time in which a batch was stored that is remembered."""
        at = bisect_right([first for _, first, _ in self._buckets], position) - 1
        return self._buckets[at][0]

    def find_id(self, topic: int, id_hash: int, now_us: int) -> IdEntry | None:
        """Return the entry of the message with this application id within the window, or None.

        Buckets are forgotten as new ones begin. If none begins, an entry older than the window plus
        one bucket counts as forgotten all the same: otherwise a broker that receives only repeats
        of an id would remember it for ever.
        """
        entries = self.ids.get(topic)
        if entries is None:
            return None
        entry = entries.get(id_hash)
        if entry is None or entry.position < self.horizon:
            return None
        old = now_us - entry.time_us > self._limits.dedup_window_us + SECOND_US
        return None if old else entry

    def full(self, now_us: int) -> bool:
        """Return whether one more batch would make the window shorter than 2 send timeouts."""
        if self._total < self._limits.dedup_batches:
            return False
        oldest = self._buckets[0][0] * SECOND_US
        return now_us - oldest < 2 * self._limits.send_timeout_us

    # -- facts ------------------------------------------------------------------------------------

    def add(
        self, position: int, time_us: int, producer_id: int, first: int, count: int, crc: int
    ) -> None:
        """Remember a batch that was stored."""
        second = time_us // SECOND_US
        if second > self._now_bucket:
            self._new_bucket(second, position)
        self._buckets[-1][2] += 1
        self._total += 1
        producer = self.producers.get(producer_id)
        if producer is None or producer.last_us < time_us - self._limits.producer_idle_us:
            producer = self._new_producer(producer_id)  # it starts again, swept or not
        producer.put(first, count, crc, position, time_us)
        recent = self._log.recent
        recent += ENTRY.pack(producer_id, first, position, crc, count, time_us)
        if len(recent) >= RUN_BYTES:
            self._log.seal(position)

    def _new_producer(self, producer_id: int) -> Producer:
        producer = Producer()
        self.producers[producer_id] = self._by_page[producer_id % PRODUCER_PAGES][producer_id] = (
            producer
        )
        return producer

    def add_id(
        self, topic: int, id_hash: int, body_hash: int, position: int, row: int, time_us: int
    ) -> None:
        """Remember a stored message with an application id; its batch was added before."""
        self._buckets[-1][2] += 1
        self._total += 1
        entries = self.ids.setdefault(topic, {})
        entries.pop(id_hash, None)
        entries[id_hash] = IdEntry(position, row, body_hash, time_us)
        self._log.add_id(topic, id_hash, body_hash, position, row, time_us)

    def _new_bucket(self, second: int, position: int) -> None:
        self._now_bucket = second
        self._buckets.append([second, position, 0])
        oldest = second - _seconds(self._limits.dedup_window_us)
        spare = second - _seconds(2 * self._limits.send_timeout_us)
        buckets = self._buckets
        while len(buckets) > 1 and (
            buckets[0][0] < oldest
            or (buckets[0][0] < spare and self._total >= self._limits.dedup_batches)
        ):
            self._total -= buckets.popleft()[2]
        self.horizon = buckets[0][1]

    def sweep(self, now_us: int, budget: int) -> int:
        """Forget idle producers and old ids; return the number of producers checked.

        May be called at any interval.
        """
        idle = now_us - self._limits.producer_idle_us
        some = list(islice(self._sweeping, budget))
        if len(some) < budget:  # a round is over: begin the next one
            self._sweeping = iter(list(self.producers))
            some += islice(self._sweeping, budget - len(some))
        for producer_id in some:
            producer = self.producers.get(producer_id)
            if producer is None:
                continue
            if producer.last_us >= idle:
                producer.trim(self.horizon)
            else:
                del self.producers[producer_id]
                del self._by_page[producer_id % PRODUCER_PAGES][producer_id]
        for entries in self.ids.values():
            self._forget_ids(entries)
        return len(some)

    def _forget_ids(self, entries: dict[int, IdEntry]) -> None:
        # One pass: finding the first key of a dict takes time for each key deleted before it.
        old: list[int] = []
        for id_hash, entry in entries.items():
            if entry.position >= self.horizon:
                break
            old.append(id_hash)
        for id_hash in old:
            del entries[id_hash]

    # -- STATE ------------------------------------------------------------------------------------

    @property
    def runs(self) -> dict[tuple[int, int], DedupRun]:
        """The runs that hold the entries in STATE, by (begin of the set, part)."""
        return self._log.runs

    def cut(self, begin: int) -> None:
        """Make runs of the entries added since the last cut; ``begin`` is the set's position."""
        self.cut_horizon = self.horizon
        self._log.cut(begin, self.horizon)

    def stored(self, begin: int, runs: Collection[tuple[int, int]]) -> None:
        """Note that a set of another broker has the entries below its BEGIN; see ``DedupLog``."""
        self._log.stored(begin, runs)

    def encode_run(self, begin: int, part: int) -> bytes:
        """Return a run's payload. Once it is written, later sets only name its position."""
        return self._log.encode(begin, part)

    def run_written(self, begin: int, part: int) -> None:
        """Free a run's payload, which is in the journal now."""
        self._log.written(begin, part)

    def load_run(self, begin: int, part: int, payload: bytes) -> None:
        """Load a run; the runs may come in any order. ``loaded`` uses them."""
        self._log.load(begin, part, payload)

    def loaded(self) -> None:
        """Add the entries of all loaded runs, in the order of the journal; facts follow.

        ``cut_horizon`` is that of the set; the runs' entries below it are forgotten already.
        """
        horizon = self.horizon = self.cut_horizon
        runs, entries = self._log.take_loaded(horizon)
        if sum([run.entries for run in runs]) < TABLE_FROM:
            self._load_rows(rows_of(runs, horizon))
        else:
            self._load_table(runs, horizon)
        for low, high, body_hash, position, time_us, topic, row in entries:
            known = self.ids.setdefault(topic, {})
            known.pop(low | high << 64, None)
            known[low | high << 64] = IdEntry(position, row, body_hash, time_us)
        self._total += len(entries)
        by_second = {bucket[0]: bucket for bucket in self._buckets}
        for second, ids in Counter([one[4] // SECOND_US for one in entries]).items():
            by_second[second][2] += ids

    def _load_rows(self, rows: list[Row]) -> None:
        idle_us = self._limits.producer_idle_us
        for row in rows:
            second = row.time_us // SECOND_US
            if second != self._now_bucket:
                self._buckets.append([second, row.position, 0])
                self._now_bucket = second
            self._buckets[-1][2] += 1
            producer = self.producers.get(row.producer)
            if producer is None:
                producer = self._new_producer(row.producer)
            elif producer.firsts and producer.last_us + idle_us < row.time_us:
                producer.begin_again()
            producer.put(
                row.first, row.meta >> 32, row.meta & 0xFFFFFFFF, row.position, row.time_us
            )
        self._total = len(rows)

    def _load_table(self, runs: list[Content], horizon: int) -> None:
        """Do the same as ``_load_rows`` for many entries: whole columns of a producer at a time."""
        from ternmq.broker.dedup import table as dedup_table  # late: it imports numpy

        table = dedup_table.table_of(runs, horizon)
        if not len(table):
            return
        self._buckets.extend([list(bucket) for bucket in dedup_table.buckets(table)])
        self._now_bucket = self._buckets[-1][0]
        self._total = len(table)
        for stretch in dedup_table.stretches(table, self._limits.producer_idle_us):
            owner = stretch.producer
            producer = self.producers.get(owner)
            if producer is None:
                producer = self._new_producer(owner)
            rows = stretch.rows
            if stretch.mixed or producer.firsts or int(rows[0, FIRST]) < producer.next:
                for _, first, position, meta, time_us in rows.tolist():
                    producer.put(first, meta >> 32, meta & 0xFFFFFFFF, position, time_us)
                continue
            firsts, positions, metas = stretch.columns
            producer.firsts.frombytes(firsts)
            producer.positions.frombytes(positions)
            producer.metas.frombytes(metas)
            producer.next = producer.firsts[-1] + (producer.metas[-1] >> 32)
            producer.last_us = int(rows[-1, TIME])

    def pages(self) -> list[int]:
        """Return the pages that have producers, sorted."""
        return [page for page, producers in enumerate(self._by_page) if producers]

    def forgotten(self, page: int) -> bytes:
        """Return the highest forgotten sequences of a page's producers, packed for STATE."""
        parts = []
        producers = self._by_page[page]
        for producer_id in sorted(producers):
            producer = producers[producer_id]
            producer.trim(self.horizon)
            if producer.forgotten:
                parts.append(
                    FORGOTTEN_ENTRY.pack(producer_id, producer.forgotten, producer.last_us)
                )
        return b"".join(parts)

    def load_forgotten(self, payload: bytes) -> None:
        """Load the highest forgotten sequences of producers."""
        for producer_id, forgotten, last_us in FORGOTTEN_ENTRY.iter_unpack(payload):
            producer = self.producers.get(producer_id)
            if producer is None:
                producer = self._new_producer(producer_id)
            producer.forgotten = max(producer.forgotten, forgotten)
            producer.next = max(producer.next, forgotten)
            producer.last_us = max(producer.last_us, last_us)

    def finish_load(self) -> None:
        """Drop the entries below the horizon, as a running broker would have done."""
        for producer in self.producers.values():
            producer.trim(self.horizon)

    def entries(self) -> Iterator[tuple[int, Entry]]:
        """Yield (producer, entry) of all remembered batches, in order; for checks."""
        for producer_id in sorted(self.producers):
            producer = self.producers[producer_id]
            producer.trim(self.horizon)
            for first, position, meta in zip(
                producer.firsts, producer.positions, producer.metas, strict=True
            ):
                yield producer_id, Entry(first, meta >> 32, meta & 0xFFFFFFFF, position)
