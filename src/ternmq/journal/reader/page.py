"""A page of the journal for a client: whole durable records, in order, without secrets.

``PageRead`` is a job for a worker thread: it reads a stretch of one segment with a descriptor of
its own, checks every record, and builds the page. Most records are sent as they are stored, in one
piece with their neighbours. These are replaced by a record with less content (``FLAG_MADE`` in its
header, the same position and times):

* STATE and PAD: only their header is sent;
* CONFIG of an app: without salt and hash of its token;
* JOINED: with the beginning of the client's name only, since the whole name opens the session;
* large MESSAGES, SCHEDULED and PREPARED, if bodies are not wanted: the batch ends behind the
  offsets of its bodies.
"""

from __future__ import annotations

from typing import Final

import msgspec
from google_crc32c import value as crc32c

from ternmq.journal.disk.port import Disk
from ternmq.journal.log.segment import segment_name
from ternmq.journal.reader.starts import RecordStarts
from ternmq.model.errors import (
    CorruptJournal,
    DiskError,
    DiskReadError,
    FileMissing,
    InvalidRequest,
    TernMQError,
)
from ternmq.model.types import Position
from ternmq.record.batch.layout import bodies_start
from ternmq.record.fact import control, transactions
from ternmq.record.fact.header import (
    FLAG_MADE,
    HEADER,
    HEADER_BYTES,
    MAGIC,
    Kind,
    framed,
    header_of,
    kind_of,
    length_of,
)
from ternmq.record.fact.messages import EXTRA_BYTES, PREFIX, PREFIX_BYTES, RUN
from ternmq.record.fact.state import CLIENT_SHOWN

MAX_BYTES: Final = 8 << 20
CHUNK_BYTES: Final = 128 << 10
SMALL_BYTES: Final = 4096
"""Records up to this size keep their bodies: cutting them costs more than it saves."""

_STATE, _PAD, _CONFIG, _JOINED, _MESSAGES, _PREPARED, _SCHEDULED = map(
    int,
    (
        Kind.STATE, Kind.PAD, Kind.CONFIG, Kind.JOINED, Kind.MESSAGES, Kind.PREPARED,
        Kind.SCHEDULED,
    ),
)  # fmt: skip
_SPECIAL: Final = frozenset({_STATE, _PAD, _CONFIG, _JOINED})
_WITH_BATCH: Final = frozenset({_MESSAGES, _PREPARED, _SCHEDULED})


class PageRead:
    """Reads records of one segment, from ``position`` to below ``upto``. ``run`` blocks.

    Args:
        disk: The data root.
        segment_size: Bytes of every segment file.
        position: Position at which a record begins.
        upto: The durable position; above ``position``.
        max_bytes: Most bytes of the journal to read; at least one record is read.
        with_bodies: False: large records are sent without bodies, see the module.
        starts: ``position`` may be any byte: these find the first record at or after it. Used by
            ``run`` alone.

    Attributes:
        position: Where the page begins.
        records: The page: the records to send.
        next: Position of the record behind the last one.
        error: Why there is no page: InvalidRequest when no record begins at ``position``.
    """

    __slots__ = (
        "_disk",
        "_max_bytes",
        "_segment_size",
        "_starts",
        "_upto",
        "_with_bodies",
        "error",
        "next",
        "position",
        "records",
    )

    def __init__(
        self,
        disk: Disk,
        segment_size: int,
        position: int,
        upto: int,
        max_bytes: int,
        *,
        with_bodies: bool = True,
        starts: RecordStarts | None = None,
    ) -> None:
        self._disk = disk
        self._segment_size = segment_size
        self._upto = upto
        self._max_bytes = max(HEADER_BYTES, min(max_bytes, MAX_BYTES))
        self._with_bodies = with_bodies
        self._starts = starts
        self.position = position
        self.next = position
        self.records = b""
        self.error: TernMQError | None = None

    @property
    def begun(self) -> bool:
        """Whether the page was read; False: its beginning is being searched, run it again."""
        return self._starts is None or self.error is not None

    def run(self) -> None:
        """Read the page; an error is stored in ``error``, for the loop to report."""
        try:
            if self._starts is not None:
                found = self._starts.walk(self.position, self._upto)
                if found is None:
                    return
                self.position = self.next = found
                self._starts = None
            if self.position < self._upto:
                self._read()
        except FileMissing as error:
            self.error = error
        except (InvalidRequest, CorruptJournal, DiskReadError) as error:
            self.error = error
        except DiskError as error:
            self.error = DiskReadError(f"reading the journal at {self.position}: {error}")

    def _read(self) -> None:
        """Read in small pieces: the loop's thread can run between them, so it never waits long."""
        size = self._segment_size
        base = self.position - self.position % size
        name = segment_name(base)
        limit = min(size, self._upto - base)
        begin = offset = self.position - base
        parts: list[bytes] = []
        file = self._disk.open(name)
        try:
            while offset < limit:
                left = self._max_bytes - (offset - begin)
                if offset > begin and left < HEADER_BYTES:
                    break
                data = file.pread(min(CHUNK_BYTES, max(left, HEADER_BYTES), limit - offset), offset)
                length = length_of(data) if len(data) >= HEADER_BYTES else 0
                if length > len(data) and kind_of(data) != _PAD:
                    if offset > begin and length > left:
                        break
                    if length <= limit - offset:
                        data = file.pread(length, offset)
                try:
                    offset += self._take(data, base, offset, name, parts)
                except CorruptJournal:
                    if offset == begin:
                        raise
                    break  # the page that begins there reports it
        finally:
            file.close()
        self.records = b"".join(parts)
        self.next = Position(base + min(offset, size))

    def _take(self, data: bytes, base: int, offset: int, name: str, parts: list[bytes]) -> int:
        """Check the whole records in ``data`` and add them to ``parts``; return their bytes.

        Raises:
            InvalidRequest: No record begins where the page does.
            CorruptJournal: The first record is damaged.
        """
        raw = at = 0
        have = len(data)
        place = base + offset
        unpack, special = HEADER.unpack_from, _SPECIAL
        while have - at >= HEADER_BYTES:
            crc, magic, length, _, kind, _, own, _, _, _, _ = unpack(data, at)
            if magic != MAGIC or own != place + at or length < HEADER_BYTES or length & 7:
                if place + at == self.position:
                    raise InvalidRequest(f"no record begins at position {self.position}")
                break
            stop = at + (HEADER_BYTES if kind == _PAD else length)
            if stop > have or crc32c(data[at + 4 : stop]) != crc:
                break
            if kind in special or (kind in _WITH_BATCH and self._cuts(length)):
                made = _made(data[at:stop], kind)
                if made is not None:
                    parts += (data[raw:at], made)
                    raw = stop
            at = stop
            if kind == _PAD:
                parts.append(data[raw:at])
                return self._segment_size - offset
        if not at:
            raise _corrupt(name, offset, place)
        parts.append(data[raw:at])
        return at

    def _cuts(self, length: int) -> bool:
        return not self._with_bodies and length > SMALL_BYTES


def _corrupt(name: str, byte: int, position: int) -> CorruptJournal:
    return CorruptJournal(f"no valid record at position {position}", file=name, byte=byte)


def _made(record: bytes, kind: int) -> bytes | None:
    """Return the record to send instead of this one; None: send it as it is."""
    if kind == _CONFIG:
        return _without_token(record)
    if kind == _JOINED:
        joined = control.unpack_joined(record[HEADER_BYTES:])
        shown = msgspec.structs.replace(joined, client=joined.client[:CLIENT_SHOWN])
        return reframed(record, control.pack(shown))
    if kind in {_MESSAGES, _SCHEDULED}:
        return reframed(record, without_bodies(record[HEADER_BYTES:]))
    if kind == _PREPARED:
        return reframed(record, prepared_without_bodies(record[HEADER_BYTES:]))
    return reframed(record, b"")


def _without_token(record: bytes) -> bytes | None:
    change = control.unpack_config(record[HEADER_BYTES:])
    if not isinstance(change, control.App):
        return None
    return reframed(record, control.pack(msgspec.structs.replace(change, salt=b"", hash=b"")))


def without_bodies(body: bytes) -> bytes:
    """Return a MESSAGES or SCHEDULED body whose batch ends behind the offsets of its bodies."""
    topic, queue, first, count, run_count, flags, length, rest = PREFIX.unpack_from(body)
    at = PREFIX_BYTES + RUN.size * run_count
    cut = bodies_start(body, at)
    prefix = PREFIX.pack(topic, queue, first, count, run_count, flags, cut, rest)
    made = prefix + body[PREFIX_BYTES : at + cut]
    if flags:
        end = at + length + -length % 8
        made += bytes(-len(made) % 8) + body[end : end + EXTRA_BYTES]
    return made


def prepared_without_bodies(body: bytes) -> bytes:
    """Return a PREPARED body whose batch ends behind the offsets of its bodies."""
    at = transactions.batch_start(body)
    cut = bodies_start(body, at)
    head = list(transactions.PREPARED.unpack_from(body))
    head[transactions.BATCH_LENGTH] = cut
    return transactions.PREPARED.pack(*head) + body[transactions.PREPARED.size : at + cut]


def reframed(record: bytes, body: bytes) -> bytes:
    """Return a record with another body, the same position and times, and ``FLAG_MADE`` set."""
    header = header_of(record)
    return framed(header._replace(flags=header.flags | FLAG_MADE), body)
