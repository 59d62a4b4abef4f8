"""Deduplication: the same batch sent again gets its first receipt, and is not stored again.

The unit is the exact batch (producer, first sequence, count, CRC). What is remembered is the order
of the MESSAGES records themselves; nothing here decides by the wall clock. Entries are grouped in
**buckets** of one second of record time; the window forgets whole buckets: those that begin before
the window, and the oldest while there are more than the cap. What a bucket held leaves a
producer its highest *forgotten* sequence, at or below which a resend is refused.

In STATE, entries are written once, as sorted runs that later sets name by position; only what each
producer has forgotten is written anew.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np

from ternmq.model.errors import IdConflict, ResendTooOld
from ternmq.model.specs import Limits
from ternmq.model.types import SECOND_US

ENTRY_WORDS: Final = 5
"""u64 producer, first sequence, position, count << 32 | crc, time_us."""
RUN_ENTRIES: Final = 1500
ID_ENTRY: Final = struct.Struct("<QQQQQII")
"""u64 low, high, body hash, position, time; u32 topic, row."""
FORGOTTEN: Final = struct.Struct("<QQq")
"""u64 producer, u64 highest forgotten sequence + 1, i64 time of its newest entry."""
PRODUCER_PAGES: Final = 64


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


class Producer:
    """What is remembered of one producer; the columns are sorted by first sequence."""

    __slots__ = ("firsts", "forgotten", "last_us", "metas", "next", "positions")

    def __init__(self) -> None:
        self.firsts = array("Q")
        self.positions = array("Q")
        self.metas = array("Q")
        self.next = 0
        """One above the highest sequence seen."""
        self.forgotten = 0
        """One above the highest sequence forgotten."""
        self.last_us = 0

    def put(self, first: int, count: int, crc: int, position: int, time_us: int) -> None:
        """Remember a batch."""
        if first >= self.next:
            self.firsts.append(first)
            self.positions.append(position)
            self.metas.append(count << 32 | crc)
            self.next = first + count
        else:
            at = bisect_left(self.firsts, first)
            self.firsts.insert(at, first)
            self.positions.insert(at, position)
            self.metas.insert(at, count << 32 | crc)
        self.last_us = time_us

    def trim(self, horizon: int) -> None:
        """Forget the batches whose record stands below the horizon."""
        if not self.positions or min(self.positions) >= horizon:
            return
        kept = [at for at, position in enumerate(self.positions) if position >= horizon]
        if len(kept) == len(self.positions):
            return
        keeping = set(kept)
        for at, first in enumerate(self.firsts):
            if at not in keeping:
                self.forgotten = max(self.forgotten, first + (self.metas[at] >> 32))
        self.firsts = array("Q", [self.firsts[at] for at in kept])
        self.positions = array("Q", [self.positions[at] for at in kept])
        self.metas = array("Q", [self.metas[at] for at in kept])


class Dedup:
    """What was stored within the window, by producer and by application id."""

    __slots__ = (
        "_buckets",
        "_limits",
        "_now_bucket",
        "_recent",
        "_recent_ids",
        "_total",
        "horizon",
        "ids",
        "producers",
        "runs",
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
        """Entries whose record stands below are forgotten."""
        self._recent: list[int] = []
        self._recent_ids: list[bytes] = []
        self.runs: dict[tuple[int, int], tuple[int, bytes | None]] = {}
        """(begin position, part) -> (newest position in it, payload until it is written)."""

    def __len__(self) -> int:
        return self._total

    # -- deciding ---------------------------------------------------------------------------------

    def find(self, producer_id: int, first: int, count: int, crc: int, now_us: int) -> Entry | None:
        """Return the entry of exactly this batch, or None if it is new.

        Raises:
            IdConflict: some of its sequences were used by another batch.
            ResendTooOld: it reaches below what is remembered.
        """
        producer = self.producers.get(producer_id)
        if producer is None or first >= producer.next:
            return None
        if producer.last_us < now_us - self._limits.producer_idle_us:
            return None  # expired; `sweep` takes it away some time
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
                f"sequences {first} to {stop - 1} of producer {producer_id:016x} were used in part"
            )
        if first < producer.forgotten:
            raise ResendTooOld(
                f"sequence {first} of producer {producer_id:016x} is at or below the highest "
                f"that deduplication has forgotten, {producer.forgotten - 1}"
            )
        return None

    def find_id(self, topic: int, id_hash: int) -> IdEntry | None:
        """Return where a message with this application id was stored within the window."""
        entries = self.ids.get(topic)
        if entries is None:
            return None
        entry = entries.get(id_hash)
        return entry if entry is not None and entry.position >= self.horizon else None

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
        """A batch was stored."""
        second = time_us // SECOND_US
        if second > self._now_bucket:
            self._new_bucket(second, position)
        self._buckets[-1][2] += 1
        self._total += 1
        producer = self.producers.get(producer_id)
        if producer is None:
            producer = self.producers[producer_id] = Producer()
        producer.put(first, count, crc, position, time_us)
        self._recent.extend((producer_id, first, position, count << 32 | crc, time_us))

    def add_id(
        self, topic: int, id_hash: int, body_hash: int, position: int, row: int, time_us: int
    ) -> None:
        """A message with an application id was stored."""
        entries = self.ids.setdefault(topic, {})
        entries.pop(id_hash, None)
        entries[id_hash] = IdEntry(position, row, body_hash, time_us)
        self._recent_ids.append(
            ID_ENTRY.pack(
                id_hash & 0xFFFFFFFFFFFFFFFF,
                id_hash >> 64,
                body_hash,
                position,
                time_us,
                topic,
                row,
            )
        )

    def _new_bucket(self, second: int, position: int) -> None:
        self._now_bucket = second
        self._buckets.append([second, position, 0])
        oldest = second - self._limits.dedup_window_us // SECOND_US
        spare = second - 2 * self._limits.send_timeout_us // SECOND_US
        buckets = self._buckets
        while len(buckets) > 1 and (
            buckets[0][0] < oldest
            or (buckets[0][0] < spare and self._total >= self._limits.dedup_batches)
        ):
            self._total -= buckets.popleft()[2]
        self.horizon = buckets[0][1]

    def sweep(self, now_us: int, budget: int) -> int:
        """Forget idle producers; return how many were looked at. Any rhythm will do."""
        idle = now_us - self._limits.producer_idle_us
        looked = 0
        for producer_id in list(self.producers)[:budget]:
            producer = self.producers.pop(producer_id)
            looked += 1
            if producer.last_us >= idle:
                producer.trim(self.horizon)
                self.producers[producer_id] = producer
        for entries in self.ids.values():
            while entries:
                oldest = next(iter(entries))
                if entries[oldest].position >= self.horizon:
                    break
                del entries[oldest]
        return looked

    # -- STATE ------------------------------------------------------------------------------------

    def cut(self, begin: int) -> None:
        """Make runs of what was added since the last cut; ``begin`` is the set's position."""
        recent = self._recent
        part = 0
        for at in range(0, len(recent), ENTRY_WORDS * RUN_ENTRIES):
            words = recent[at : at + ENTRY_WORDS * RUN_ENTRIES]
            payload = struct.pack("<II", len(words) // ENTRY_WORDS, 0)
            payload += struct.pack(f"<{len(words)}Q", *words)
            self.runs[begin, part] = (words[-3], payload)
            part += 1
        for at in range(0, len(self._recent_ids), RUN_ENTRIES):
            chunk = self._recent_ids[at : at + RUN_ENTRIES]
            payload = struct.pack("<II", 0, len(chunk)) + b"".join(chunk)
            self.runs[begin, part] = (ID_ENTRY.unpack(chunk[-1])[3], payload)
            part += 1
        self._recent = []
        self._recent_ids = []
        for key in [key for key, (last, _) in self.runs.items() if last < self.horizon]:
            del self.runs[key]

    def encode_run(self, begin: int, part: int) -> bytes:
        """Return a run's payload. Once it is written, later sets only name where it stands."""
        payload = self.runs[begin, part][1]
        if payload is None:
            raise KeyError((begin, part))
        return payload

    def run_written(self, begin: int, part: int) -> None:
        """Forget a run's payload: it stands in the journal."""
        run = self.runs.get((begin, part))
        if run is not None:
            self.runs[begin, part] = (run[0], None)

    def load_run(self, begin: int, part: int, payload: bytes) -> None:
        """Take over a run."""
        count, ids = struct.unpack_from("<II", payload)
        words = np.frombuffer(payload, dtype=np.uint64, count=count * ENTRY_WORDS, offset=8)
        table = words.reshape(count, ENTRY_WORDS)
        last = 0
        if count:
            last = int(table[-1, 2])
            self._load_buckets(table)
            order = np.argsort(table[:, 0], kind="stable")
            table = table[order]
            edges = np.flatnonzero(np.diff(table[:, 0])) + 1
            for rows in np.split(table, edges):
                self._load_producer(rows)
        at = 8 + 8 * ENTRY_WORDS * count
        for low, high, body_hash, position, time_us, topic, row in ID_ENTRY.iter_unpack(
            payload[at : at + ID_ENTRY.size * ids]
        ):
            self.ids.setdefault(topic, {})[low | high << 64] = IdEntry(
                position, row, body_hash, time_us
            )
            last = position
        self.runs[begin, part] = (last, None)

    def _load_buckets(self, table: np.ndarray[tuple[int, int], np.dtype[np.uint64]]) -> None:
        seconds = table[:, 4] // np.uint64(SECOND_US)
        starts = np.concatenate(([0], np.flatnonzero(np.diff(seconds)) + 1))
        counts = np.diff(np.concatenate((starts, [len(seconds)])))
        for start, count in zip(starts.tolist(), counts.tolist(), strict=True):
            second = int(seconds[start])
            if second > self._now_bucket:
                self._new_bucket(second, int(table[start, 2]))
            self._buckets[-1][2] += count
            self._total += count

    def _load_producer(self, rows: np.ndarray[tuple[int, int], np.dtype[np.uint64]]) -> None:
        producer = self.producers.setdefault(int(rows[0, 0]), Producer())
        if int(rows[0, 1]) >= producer.next and bool(
            (np.diff(rows[:, 1].astype(np.int64)) > 0).all()
        ):
            producer.firsts.frombytes(np.ascontiguousarray(rows[:, 1]).tobytes())
            producer.positions.frombytes(np.ascontiguousarray(rows[:, 2]).tobytes())
            producer.metas.frombytes(np.ascontiguousarray(rows[:, 3]).tobytes())
            producer.next = int(rows[-1, 1]) + (int(rows[-1, 3]) >> 32)
            producer.last_us = int(rows[-1, 4])
            return
        for row in rows.tolist():
            producer.put(row[1], row[3] >> 32, row[3] & 0xFFFFFFFF, row[2], row[4])

    def forgotten(self, page: int) -> bytes:
        """Return what the producers of a page have forgotten, for STATE."""
        parts = []
        for producer_id in sorted(self.producers):
            if producer_id % PRODUCER_PAGES == page:
                producer = self.producers[producer_id]
                producer.trim(self.horizon)
                if producer.forgotten:
                    parts.append(FORGOTTEN.pack(producer_id, producer.forgotten, producer.last_us))
        return b"".join(parts)

    def load_forgotten(self, payload: bytes) -> None:
        """Take over what producers have forgotten."""
        for producer_id, forgotten, last_us in FORGOTTEN.iter_unpack(payload):
            producer = self.producers.setdefault(producer_id, Producer())
            producer.forgotten = max(producer.forgotten, forgotten)
            producer.next = max(producer.next, forgotten)
            producer.last_us = max(producer.last_us, last_us)

    def finish_load(self) -> None:
        """Drop entries below the horizon, as they would have been by now."""
        for producer in self.producers.values():
            producer.trim(self.horizon)

    def entries(self) -> Iterator[tuple[int, Entry]]:
        """Yield (producer, entry) for everything remembered, in order; for checks."""
        for producer_id in sorted(self.producers):
            producer = self.producers[producer_id]
            producer.trim(self.horizon)
            for first, position, meta in zip(
                producer.firsts, producer.positions, producer.metas, strict=True
            ):
                yield producer_id, Entry(first, meta >> 32, meta & 0xFFFFFFFF, position)
