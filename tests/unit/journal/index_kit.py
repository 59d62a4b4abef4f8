"""What the tests of index, store, look-ups and reader share: messages, and a slow disk."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from ternmq.journal.cache.cold import WouldBlock
from ternmq.journal.disk.memory import MemoryDisk, MemoryFile
from ternmq.journal.index.batch_facts import facts_of
from ternmq.journal.index.feed import add_record
from ternmq.journal.index.index import Index
from ternmq.journal.index.open import fill, open_index
from ternmq.journal.index.run_jobs import RunJob
from ternmq.journal.log.journal import Journal
from ternmq.journal.log.scan import RawRecord, scan
from ternmq.journal.store.store import RecordStore
from ternmq.model.types import Position
from ternmq.record.batch.batch import Batch, Compression, Row, encode, slice_batch, topic_seed
from ternmq.record.fact import messages, moved, transactions
from ternmq.record.fact.header import Kind

SEGMENT = 8192
SEED = topic_seed("orders")

T = TypeVar("T")
P = ParamSpec("P")


class SlowDisk(MemoryDisk):
    """Memory whose every read would block until a worker thread has read it."""

    def __init__(self, image: dict[str, bytes] | None = None) -> None:
        super().__init__(image)
        self.opened: list[str] = []
        self.read_now = 0

    def open(self, name: str, *, create: bool = False) -> MemoryFile:
        file = super().open(name, create=create)
        self.opened.append(name)
        return SlowFile(self, file)


class SlowFile(MemoryFile):
    def __init__(self, disk: SlowDisk, file: MemoryFile) -> None:
        super().__init__(disk, file.name, file._data)

    def try_pread(self, length: int, offset: int) -> bytes | None:
        return None


def after_jobs(ask: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> tuple[T, int]:
    """Return what ``ask`` returns in the end, and how many jobs had to run before."""
    for count in range(1000):
        try:
            return ask(*arguments, **options), count
        except WouldBlock as blocked:
            blocked.job.run()
    raise AssertionError("it never ends")


class Stand:
    """A journal of messages with its index, fed as a broker would."""

    def __init__(self, disk: MemoryDisk | None = None, *, segment_size: int = SEGMENT) -> None:
        self.disk = MemoryDisk() if disk is None else disk
        self.journal = Journal.create(self.disk, segment_size=segment_size, reserve_bytes=0)
        self.index = Index(self.disk, segment_size=segment_size)
        self.store = RecordStore(self.journal, self.disk, self.index.coverage.cache)
        self.next: dict[tuple[int, int], int] = {}
        self.sequence = 0
        self.time_us = 1_000
        self.rows: dict[tuple[int, int], list[tuple[int, int]]] = {}
        self.batches: dict[int, bytes] = {}
        self.undecided: list[transactions.Part] = []
        self.visible: dict[tuple[int, int], list[int]] = {}
        """Of every row, the record that made it a message."""

    def send(
        self,
        *rows: Row,
        topic: int = 1,
        queue: int = 0,
        runs: tuple[tuple[int, int], ...] = (),
        producer: int = 7,
        compression: Compression = Compression.NONE,
    ) -> Position:
        """Append a MESSAGES record and tell the index; without rows, one body of 40 bytes."""
        rows = rows or (Row(b"x" * 40),)
        batch = encode(
            rows,
            topic_seed=SEED,
            producer_id=producer,
            first_sequence=self.sequence,
            born_us=self.time_us,
            compression=compression,
        )
        self.sequence += len(rows)
        count = sum(stop - start for start, stop in runs) if runs else len(rows)
        first = self.next.get((topic, queue), 0)
        self.next[topic, queue] = first + count
        self.time_us += 10
        body = messages.pack(topic, queue, first, count, batch, runs)
        position = self._append(Kind.MESSAGES, body)
        self.batches[position] = batch
        self.visible.setdefault((topic, queue), []).extend([position] * count)
        numbers = [row for start, stop in runs for row in range(start, stop)]
        self.rows.setdefault((topic, queue), []).extend(
            (position, row) for row in (numbers if runs else range(count))
        )
        return position

    def prepare(self, *rows: Row, topic: int = 1, queue: int = 0, producer: int = 7) -> Position:
        """Append a PREPARED record; without rows, one body of 40 bytes."""
        rows = rows or (Row(b"x" * 40),)
        batch = encode(
            rows,
            topic_seed=SEED,
            producer_id=producer,
            first_sequence=self.sequence,
            born_us=self.time_us,
        )
        self.sequence += len(rows)
        self.time_us += 10
        fact = transactions.Prepared(
            topic, queue, 1, 1, 1, len(self.undecided), len(rows), "w", "", "app", batch
        )
        position = self._append(Kind.PREPARED, transactions.pack_prepared(fact))
        self.batches[position] = batch
        length = self.journal.end - position
        self.undecided.append(
            transactions.Part(
                position, 0, facts_of(batch).tag_mask, topic, queue, len(rows), length
            )
        )
        return position

    def resolve(self, dropped: int = 0) -> Position:
        """Append a RESOLVED of all that is prepared, save so many of the oldest."""
        parts: list[transactions.Part] = []
        for part in self.undecided[dropped:]:
            place = part.topic, part.queue
            first = self.next.get(place, 0)
            self.next[place] = first + part.rows
            parts.append(part._replace(first_offset=first))
            self.rows.setdefault(place, []).extend((part.position, row) for row in range(part.rows))
        gone = [part.position for part in self.undecided[:dropped]]
        self.undecided = []
        self.time_us += 10
        fact = transactions.Resolved(
            1, 1, 1, sum(part.rows for part in parts), 1, transactions.Resolution.COMMITTED,
            transactions.Why.WRITER, "w", "app", parts, gone,
        )  # fmt: skip
        position = self._append(Kind.RESOLVED, transactions.pack_resolved(fact))
        for part in parts:
            self.visible.setdefault((part.topic, part.queue), []).extend([position] * part.rows)
        return position

    def move(self, offsets: list[int], topic: int = 1, queue: int = 0) -> Position:
        """Append a MOVED record with copies of the rows at these offsets."""
        pieces = tuple(self._piece(offset, *self.rows[topic, queue][offset]) for offset in offsets)
        self.time_us += 10
        return self._append(Kind.MOVED, moved.pack(moved.Moved(topic, queue, pieces, ())))

    def _piece(self, offset: int, position: int, row: int) -> moved.Piece:
        batch = self.batches[position]
        if Batch(batch).compression is Compression.NONE:
            part = slice_batch(batch, row, row + 1, SEED)
            return moved.Piece(offset, self.time_us, 0, 1, part)
        return moved.Piece(offset, self.time_us, row, 1, batch)

    def other(self, size: int = 100) -> Position:
        """Append a record that is not indexed."""
        return self._append(Kind.COUNTS, b"o" * size)

    def _append(self, kind: Kind, body: bytes) -> Position:
        position = self.journal.append(kind, body, self.time_us)
        self.flush()
        record = next(iter(scan(self.disk, position, segment_size=self.journal.segment_size)))
        assert record.position == position
        add_record(self.index, record)
        return position

    def flush(self) -> None:
        self.journal.flush()
        self.journal.sync_now()
        while (job := self.journal.wants_spare()) is not None:
            job.run()
            self.journal.spare_ready(job)

    def cut(self) -> None:
        """Write the live tail as a part run, as at the end of a STATE set."""
        job = self.index.coverage.cut(self.journal.end, self.journal.last_crc)
        if job is not None:
            job.run()
            self.finish(job)

    def seal(self) -> None:
        """Write the run files of segments that are full."""
        for job in self.index.coverage.unsealed(self.journal.written):
            job.run()
            self.finish(job)

    def finish(self, job: RunJob) -> None:
        rest = self.index.coverage.installed(job)
        if rest is not None:
            rest.run()

    def records(self) -> list[RawRecord]:
        return list(scan(self.disk, 0, segment_size=self.journal.segment_size))

    def rebuilt(self) -> Index:
        """Return an index made from the journal alone."""
        index = Index(self.disk, segment_size=self.journal.segment_size)
        for record in self.records():
            add_record(index, record)
        return index

    def reopened(self, disk: MemoryDisk | None = None) -> Index:
        """Return the index as a start makes it from the files of the disk."""
        index, gaps = open_index(
            self.disk if disk is None else disk,
            segment_size=self.journal.segment_size,
            first=self.journal.first,
            end=self.journal.end,
            last_crc=self.journal.last_crc,
        )
        for gap in gaps:
            fill(index, gap)
        return index

    def walk(self, index: Index, topic: int = 1, queue: int = 0, room: int = 5) -> list[int]:
        """Return the record positions of a queue, found by one ``locate`` after another."""
        positions: list[int] = []
        start = index.first_offset(topic, queue) or 0
        end = self.next.get((topic, queue), 0)
        while start < end:
            places, _ = after_jobs(index.locate, topic, queue, start, start + room, 10_000)
            assert places.stop > start
            assert len(places.first_offsets) == len(places.positions) == len(places.lengths) > 0
            positions += [one for one in places.positions if one not in positions[-1:]]
            start = places.stop
        return positions
