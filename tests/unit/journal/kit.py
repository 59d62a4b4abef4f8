"""What the journal's tests share: fill journals, run their jobs, open them again."""

from __future__ import annotations

from collections.abc import Iterable

from google_crc32c import value as crc32c

from ternmq.journal.disk.memory import MemoryDisk
from ternmq.journal.disk.port import Disk
from ternmq.journal.log.journal import Journal
from ternmq.journal.log.scan import RawRecord
from ternmq.journal.recovery.recovery import RecoveryReport, open_journal
from ternmq.journal.state.sets import StateKey
from ternmq.model.errors import DiskError
from ternmq.model.types import Position
from ternmq.record.fact.header import HEADER, HEADER_BYTES, MAGIC, VERSION, Kind

SEGMENT = 8192
OWN_KINDS = frozenset({Kind.SEGMENT, Kind.PAD, Kind.MARK, Kind.EPOCH})


class Views:
    """A ``Replayable`` that keeps what it is given."""

    def __init__(self) -> None:
        self.records: list[RawRecord] = []
        self.finished: list[int] = []
        self.objects: dict[StateKey, tuple[bytes, int]] = {}
        self.begin = -1

    def load_object(self, key: StateKey, payload: bytes, stamp: Position) -> None:
        self.objects[key] = (payload, stamp)

    def loaded(self, begin: Position) -> None:
        self.begin = begin

    def apply(self, record: RawRecord) -> None:
        self.records.append(record)

    def finish(self, valid_end: Position) -> None:
        self.finished.append(valid_end)

    def bodies(self) -> list[bytes]:
        """Bodies of the facts, padding stripped (test bodies end with another byte than zero)."""
        return [
            record.body.rstrip(b"\0") for record in self.records if record.kind not in OWN_KINDS
        ]


def open_views(disk: Disk, **options: int) -> tuple[Journal, RecoveryReport, Views]:
    views = Views()
    journal, report = open_journal(
        disk,
        wall_us=options.get("wall_us", 1000),
        replay=views,
        segment_size=options.get("segment_size", SEGMENT),
    )
    return journal, report, views


def body(number: int, size: int = 24) -> bytes:
    """A body that says its number and ends with a byte that is not zero."""
    return f"{number:08d}".encode().ljust(size - 1, b".") + b"!"


def commit(journal: Journal) -> None:
    """Flush, sync and make spares until there is nothing more to do."""
    journal.flush()
    journal.sync_now()
    make_spares(journal)


def make_spares(journal: Journal) -> None:
    while (job := journal.wants_spare()) is not None:
        try:
            job.run()
        except DiskError as error:
            journal.spare_failed(job, error)
        else:
            journal.spare_ready(job)


def fill(journal: Journal, numbers: Iterable[int], size: int = 24, every: int = 5) -> None:
    """Append bodies, committing after every few."""
    for count, number in enumerate(numbers, 1):
        journal.append(Kind.COUNTS, body(number, size), 2000 + number)
        if count % every == 0:
            commit(journal)


def filled(count: int, size: int = 24, every: int = 5, segment_size: int = SEGMENT) -> MemoryDisk:
    """Return a disk with that many facts, all durable, and one reign."""
    disk = MemoryDisk()
    journal, _, _ = open_views(disk, segment_size=segment_size)
    make_spares(journal)
    fill(journal, range(count), size, every)
    commit(journal)
    journal.close()
    return disk


def crafted(position: int, *, durable: int, epoch: int = 1, inside: bytes = b"") -> bytes:
    """The bytes of a record that proves itself alone, whatever stands before it."""
    body = inside or bytes(16)
    length = HEADER_BYTES + len(body)
    rest = HEADER.pack(
        0, MAGIC, length, VERSION, Kind.COUNTS, 0, position, durable, 1, epoch, 12345
    )[4:]
    crc: int = crc32c(rest + body)
    return crc.to_bytes(4, "little") + rest + body
