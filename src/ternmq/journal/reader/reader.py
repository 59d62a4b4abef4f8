"""Reading a journal from outside the broker: for the command line, Spark and your own programs.

Opens files only for reading, takes no lock, and may be used while a broker writes: iteration ends
at the first record that is not valid yet, and can go on from there later. Records near the end may
not be durable: after a crash of the machine the broker may cut them off. All methods may wait for
the disk.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import msgspec

from ternmq.journal.cache.cold import ColdCache, DamagedBlock, waiting
from ternmq.journal.disk.port import Disk
from ternmq.journal.disk.real import RealDisk
from ternmq.journal.index import idx_file
from ternmq.journal.index.open import JournalChain, believed
from ternmq.journal.index.run import Run
from ternmq.journal.log.scan import RawRecord, Scanner, segment_size_of
from ternmq.journal.log.segment import segment_bases
from ternmq.journal.reader.names import Names, read_names, read_names_around
from ternmq.journal.reader.page_scan import PageScanner
from ternmq.journal.reader.starts import RecordStarts
from ternmq.journal.store.store import RecordStore
from ternmq.model.errors import CorruptJournal, FileMissing, MessageNotFound
from ternmq.model.types import NO_POSITION, Position
from ternmq.record.batch.batch import Batch
from ternmq.record.fact import (
    checked,
    control,
    facts,
    messages,
    moved,
    numbers,
    replay,
    schedule,
    transactions,
)
from ternmq.record.fact.header import Kind, header_of
from ternmq.record.fact.messages import TOPIC_QUEUE, Messages

_END: Final = 2**63
_PIECE_BYTES: Final = 1 << 20
_NAMES: Final = {int(kind): kind.name for kind in Kind}


class _Written:
    """A ``JournalTail`` for the record store: all positions may be read, nothing is in memory."""

    written = NO_POSITION

    def __init__(self, segment_size: int, first: Position) -> None:
        self.segment_size = segment_size
        self.first = first

    def record(self, position: int) -> None:
        """Return None: only the disk is read."""

    def gather(self, positions: Sequence[int]) -> None:
        """Return None: only the disk is read."""


@dataclass(slots=True, frozen=True)
class StoredBatch:
    """A stored batch of messages.

    Attributes:
        position: Position of the record that made its rows messages.
        time_us: Broker time at which it was stored; for rows of a transaction: committed.
        epoch: Epoch in which it was stored.
        messages: Topic, queue, offsets, batch.
    """

    position: Position
    time_us: int
    epoch: int
    messages: Messages


class JournalReader:
    """Reads the journal of a data folder.

    Args:
        where: Path of the data root, in which nothing is changed, or a disk.

    Attributes:
        position: Where the last iteration ended; ``records`` goes on from there.
        fault: Why it ended: empty at the natural end, else what is wrong with the bytes there.

    Raises:
        CorruptJournal: No segment begins with a readable SEGMENT record.
        FileMissing: There is no such folder, or no journal in it.
    """

    def __init__(self, where: str | Disk) -> None:
        self.disk: Disk = RealDisk(where, read_only=True) if isinstance(where, str) else where
        bases = segment_bases(self.disk)
        if not bases:
            raise FileMissing(
                f"there is no journal in {where}" if isinstance(where, str) else "no journal here"
            )
        self.segment_size = segment_size_of(self.disk, bases)
        self.position = bases[0]
        self.fault = ""
        self._starts = RecordStarts(self.disk, self.segment_size)
        self._cache = ColdCache(self.disk)
        self._store = RecordStore(_Written(self.segment_size, bases[0]), self.disk, self._cache)

    def close(self) -> None:
        """Close the files."""
        self._cache.close()

    def first(self) -> Position:
        """Return the position of the oldest record."""
        bases = segment_bases(self.disk)
        return bases[0] if bases else Position(0)

    def limit(self) -> Position:
        """Return the position behind the last segment file: no record begins there or later."""
        bases = segment_bases(self.disk)
        return Position(bases[-1] + self.segment_size if bases else 0)

    def records(self, start: Position | None = None) -> Iterator[RawRecord]:
        """Yield the records from ``start`` on, or from where the last iteration ended.

        Raises:
            UnknownRecordKind: A newer version wrote a record here.
            DiskError: The disk could not read.
        """
        if start is not None:
            self.position = start
        scanner = Scanner(self.disk, self.position, segment_size=self.segment_size)
        for record in scanner:
            self.position = record.end
            yield record
        self.fault = scanner.fault

    def pages(self, start: Position) -> PageScanner:
        """Return an iterable of the records from ``start`` on, many at a time."""
        return PageScanner(self.disk, start, segment_size=self.segment_size)

    def at_or_after(self, byte: int, end: int) -> Position:
        """Return the position of the first record at or after any byte, or ``end`` if it is less.

        Args:
            byte: Any byte of the journal.
            end: Any byte; every record that begins below is written.

        Raises:
            FileMissing: The byte's segment is not there.
            CorruptJournal: A record before the byte, in its segment, is damaged.
            DiskError: The disk could not read.
        """
        return self._starts.at_or_after(byte, end)

    def names(self, stop: Position = NO_POSITION) -> Names:
        """Return the names of the numbers in the records, those of deleted objects included.

        Args:
            stop: Ignore records from this position on; by default none.

        Raises:
            CorruptJournal: No STATE set can be read, and the journal's beginning was removed.
            DiskError: The disk could not read.
        """
        return read_names(self.disk, self.segment_size, stop)

    def names_around(self, behind: Iterable[Position] = ()) -> Names:
        """Return the names that can be read though the journal is damaged.

        Args:
            behind: Positions of intact records behind damage.

        Raises:
            DiskError: The disk could not read.
        """
        return read_names_around(self.disk, self.segment_size, behind)

    def batches(
        self, topic: int, queue: int, start: int = 0, stop: int | None = None
    ) -> Iterator[StoredBatch]:
        """Yield the batches that hold the rows ``[start, stop)`` of a queue, in order.

        Sealed segments are read with their run files if the journal confirms these; other segments
        are read completely.

        Raises:
            CorruptJournal: A record that a run file names is damaged.
            DiskError: The disk could not read.
        """
        stop = _END if stop is None else stop
        base = self.first()
        while start < stop:
            for stored in self._of_segment(base, topic, queue, start, stop):
                content = stored.messages
                start = content.first_offset + content.count
                yield stored
            behind = [one for one in segment_bases(self.disk) if one > base]
            if not behind:
                return
            base = behind[0]

    def _of_segment(
        self, base: Position, topic: int, queue: int, start: int, stop: int
    ) -> Iterator[StoredBatch]:
        chain = JournalChain(self.disk, self.segment_size, NO_POSITION, 0)
        try:
            found = believed(self._cache, idx_file.run_name(base), chain, base)
        except FileMissing:
            found = None
        if found is not None:
            try:
                for stored in self._indexed(found[0], topic << 32 | queue, start, stop):
                    start = stored.messages.first_offset + stored.messages.count
                    yield stored
                return
            except DamagedBlock:
                self._cache.forget(found[0].name)  # read the rest without it
        yield from self._scanned(base, topic, queue, start, stop)

    def _indexed(self, run: Run, key: int, start: int, stop: int) -> Iterator[StoredBatch]:
        """Yield batches of a sealed segment, located with its run file."""
        end = waiting(lambda: run.next_offset(key))
        while end is not None and start < min(stop, end):
            places = waiting(partial(run.locate, key, start, stop, _PIECE_BYTES))
            for at in range(len(places.positions)):
                try:
                    record = waiting(partial(self._store.at_place, places, at))
                except (CorruptJournal, MessageNotFound):
                    if places.resolved is None or places.positions[at] >= self.first():
                        raise
                    continue  # prepared in a segment that was removed, with its rows
                header = header_of(record)
                yield StoredBatch(
                    Position(header.position),
                    header.time_us,
                    header.epoch,
                    messages.of_record(record),
                )
            start = places.stop

    def _scanned(
        self, base: Position, topic: int, queue: int, start: int, stop: int
    ) -> Iterator[StoredBatch]:
        """Yield batches of a segment, reading all of its records."""
        wanted = (topic, queue)
        for record in Scanner(self.disk, base, segment_size=self.segment_size):
            if record.position >= base + self.segment_size:
                return
            if record.kind == Kind.MESSAGES and TOPIC_QUEUE.unpack_from(record.body) == wanted:
                content = messages.unpack(record.body)
                if content.first_offset < stop and content.first_offset + content.count > start:
                    yield StoredBatch(record.position, record.time_us, record.epoch, content)
            elif record.kind == Kind.RESOLVED:
                for part in transactions.unpack_resolved(record.body).parts:
                    wants = part.first_offset < stop and part.first_offset + part.rows > start
                    if (part.topic, part.queue) == wanted and wants:
                        yield from self._resolved(record, part)

    def _resolved(self, record: RawRecord, part: transactions.Part) -> Iterator[StoredBatch]:
        """Yield the batch that a RESOLVED made visible, if the batch's segment is kept."""
        if part.position < self.first():
            return
        prepared = waiting(partial(self._store.get, part.position, part.length))
        made = transactions.as_messages(
            prepared, part.first_offset, record.position, record.time_us
        )
        yield StoredBatch(record.position, record.time_us, record.epoch, messages.of_record(made))

    def dump(self, start: Position | None = None) -> Iterator[dict[str, object]]:
        """Yield every record from ``start`` on as plain values; bodies of messages are left out.

        Raises:
            UnknownRecordKind: A newer version wrote a record here.
            DiskError: The disk could not read.
        """
        for record in self.records(self.first() if start is None else start):
            yield {
                "position": record.position,
                "kind": _NAMES.get(record.kind, str(record.kind)),
                "length": record.length,
                "epoch": record.epoch,
                "time_us": record.time_us,
                "durable": record.durable,
                "crc": record.crc,
                **details(record),
            }

    def indexes(self) -> Iterator[dict[str, object]]:
        """Yield every file of the index as plain values: the range it covers, and its row counts.

        A file that the journal does not confirm (``believed`` is False) does no harm: the broker
        rebuilds it when it starts.

        Raises:
            DiskError: The disk could not read.
        """
        chain = JournalChain(self.disk, self.segment_size, NO_POSITION, 0)
        for name in sorted(self.disk.names(idx_file.FOLDER)):
            path = f"{idx_file.FOLDER}/{name}"
            try:
                found = believed(self._cache, path, chain, Position(0))
            except FileMissing:
                continue  # a broker that runs has just replaced it
            if found is None:
                yield {"file": path, "believed": False}
                continue
            run, queues = found
            head = run.head
            counts = {
                what: head.sections[number].rows
                for what, number in (
                    ("batches", idx_file.BATCHES),
                    ("keys", idx_file.KEYS),
                    ("ids", idx_file.IDS),
                    ("moved", idx_file.MOVED),
                )
            }
            yield {
                "file": path,
                "believed": True,
                "start": head.start,
                "stop": head.stop,
                "first_time_us": head.first_time_us,
                "last_time_us": head.last_time_us,
                **counts,
                "queues": [
                    {
                        "topic": key >> 32,
                        "queue": key & 0xFFFF_FFFF,
                        "first_offset": first_offset,
                        "next_offset": next_offset,
                    }
                    for key, first_offset, next_offset, _, _ in idx_file.QUEUE_ROW.iter_unpack(
                        queues
                    )
                ],
            }


def details(record: RawRecord) -> dict[str, object]:
    """Return the fields of a record's body as plain values; empty for other kinds."""
    body = record.body
    match record.kind:
        case Kind.MESSAGES | Kind.SCHEDULED:
            return _batch(record)
        case Kind.SEGMENT:
            names = ("base", "segment_size", "state_begin", "state_end")
            return dict(zip(names, control.SEGMENT.unpack_from(body), strict=True))
        case Kind.EPOCH:
            names = ("new_epoch", "flags", "valid_end", "durable_found")
            return dict(zip(names, control.EPOCH.unpack_from(body), strict=True))
        case Kind.PULLED:
            return {"facts": [msgspec.structs.asdict(one) for one in facts.unpack_pulled(body)]}
        case Kind.SETTLED | Kind.ENDED:
            return {"facts": [msgspec.structs.asdict(one) for one in facts.unpack_settled(body)]}
        case Kind.EXTENDED:
            return {"facts": [msgspec.structs.asdict(one) for one in facts.unpack_extended(body)]}
        case Kind.CURSOR:
            return msgspec.structs.asdict(facts.unpack_cursor(body))
        case Kind.REPLAY:
            return msgspec.structs.asdict(replay.unpack(body))
        case Kind.MOVED:
            content_moved = moved.unpack(body)
            return {
                "topic": content_moved.topic,
                "queue": content_moved.queue,
                "offsets": content_moved.offsets(),
                "stored_us": [
                    piece.time_us for piece in content_moved.pieces for _ in range(piece.row_count)
                ],
                "failures": [dataclasses.asdict(one) for one in content_moved.failures],
            }
        case Kind.PREPARED | Kind.RESOLVED:
            return _transaction(record)
        case Kind.CANCELLED:
            cancelled = schedule.unpack_cancelled(body)
            return {
                "cause": cancelled.cause.name,
                "rows": [row._asdict() for row in cancelled.rows],
            }
        case Kind.CHECKED:
            fact = checked.unpack_checked(body)
            return {**msgspec.structs.asdict(fact), "what": fact.what.name}
        case Kind.CONFIG:
            return {"config": msgspec.to_builtins(control.unpack_config(body))}
        case _:
            return _client(record)


def _batch(record: RawRecord) -> dict[str, object]:
    """Return the fields of a MESSAGES or SCHEDULED record."""
    content = messages.unpack(record.body)
    batch = Batch(content.batch)
    found: dict[str, object] = {
        "topic": content.topic,
        "queue": content.queue,
        "first_offset": content.first_offset,
        "count": content.count,
        "runs": list(content.runs),
        "producer": batch.producer_id,
        "first_sequence": batch.first_sequence,
        "rows": batch.count,
        "born_us": batch.born_us,
    }
    if content.fulfils is not None:
        found["scheduled"] = content.fulfils._asdict()
    if record.kind == Kind.SCHEDULED:
        due = schedule.due_times_us(content, record.time_us)
        found["queue"] = None if content.queue == schedule.NO_QUEUE else content.queue
        found["first_entry"] = found.pop("first_offset")
        found["first_due_us"], found["last_due_us"] = min(due), max(due)
        if content.origin is not None:
            found["copy_of"] = content.origin._asdict()
    return found


def _client(record: RawRecord) -> dict[str, object]:
    body = record.body
    match record.kind:
        case Kind.JOINED:
            return {"joined": msgspec.to_builtins(control.unpack_joined(body))}
        case Kind.LEFT:
            return {"left": msgspec.to_builtins(control.unpack_left(body))}
        case Kind.ALARM:
            return {"alarm": msgspec.to_builtins(control.unpack_alarm(body))}
        case Kind.NUMBERS:
            return msgspec.structs.asdict(numbers.unpack(body))
        case _:
            return {}


def _transaction(record: RawRecord) -> dict[str, object]:
    body = record.body
    if record.kind == Kind.PREPARED:
        prepared = transactions.unpack_prepared(body)
        found: dict[str, object] = {
            "writer": prepared.writer_name,
            "batch_id": prepared.batch_id,
            "transaction": prepared.transaction,
            "part": prepared.part,
            "app": prepared.app,
            "topic": prepared.topic,
            "queue": prepared.queue,
            "ordinal": prepared.ordinal,
            "count": prepared.count,
        }
        if prepared.batch:
            batch = Batch(prepared.batch)
            found |= {
                "producer": batch.producer_id,
                "first_sequence": batch.first_sequence,
                "born_us": batch.born_us,
            }
        if prepared.group:
            found |= {
                "group": prepared.group,
                "query_id": prepared.query_id,
                "name": [prepared.producer, prepared.batch_id],
                "copy_of": prepared.replaced,
                **_inside(prepared),
            }
        return found
    resolved = transactions.unpack_resolved(body)
    found = {
        "writer": resolved.writer_name,
        "batch_id": resolved.batch_id,
        "transaction": resolved.transaction,
        "app": resolved.app,
        "outcome": resolved.outcome.name,
        "why": resolved.why.name,
        "digest": resolved.digest,
        "rows": resolved.rows,
        "parts": [part._asdict() for part in resolved.parts],
        "dropped": list(resolved.dropped),
    }
    if resolved.due or resolved.group:
        found["due"] = [part._asdict() for part in resolved.due]
    if resolved.group:
        found |= {
            "group": resolved.group,
            "name": [resolved.producer, resolved.batch_id],
            "attempt": resolved.attempt,
            **_inside(resolved),
        }
    return found


def _inside(fact: transactions.Prepared | transactions.Resolved) -> dict[str, object]:
    return {
        "settles": [msgspec.structs.asdict(one) for one in fact.settles],
        "moves": [msgspec.structs.asdict(one) for one in fact.moves],
    }
