"""The journal in a folder: a broker's own, or a copy of it. Nothing is changed there."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from ternmq.journal.reader import JournalReader
from ternmq.model.errors import DataLoss
from ternmq.model.types import NO_POSITION, Position
from ternmq.record import control
from ternmq.record.header import Kind
from ternmq.spark.journal_events import Record
from ternmq.spark.journal_names import Client, Names
from ternmq.spark.journal_port import Bounds

# Of docs/format/state.md: what holds names.
_HEAD: Final = struct.Struct("<QBBHI")
_KEY: Final = struct.Struct("<IIIIQ")
_ENTRY: Final = struct.Struct("<24sII")
_NAMED: Final = struct.Struct("<24sQ")
_POSITION: Final = struct.Struct("<Q")
_TOPICS, _SUBSCRIPTIONS, _SESSIONS, _GONE = 2, 3, 5, 21
_HOLD_NAMES: Final = frozenset({_TOPICS, _SUBSCRIPTIONS, _SESSIONS, _GONE})
_GONE_TOPIC, _GONE_GROUP, _GONE_SESSION = 1, 2, 3


class FileJournal:
    """See ``JournalPort``.

    Args:
        path: The data folder of a broker, or a copy of it.

    Raises:
        FileMissing: There is none, or no journal in it.
        CorruptJournal: No segment says how large segments are.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._reader = JournalReader(path)
        self._seen = Position(0)
        """Up to here the end was looked for."""
        self._durable = 0

    def bounds(self) -> Bounds:
        """See ``JournalPort``.

        What the last records say is durable is believed, not that there are records: a broker that
        starts after a power cut may cut them off.
        """
        reader = self._reader
        oldest = reader.first()
        start = max(self._seen, oldest)
        if not self._seen:
            start = self._newest_segment(oldest)
        for record in reader.records(start):
            self._durable = max(self._durable, record.durable)
        self._seen = reader.position
        return Bounds(oldest, max(oldest, self._durable), reader.segment_size)

    def _newest_segment(self, oldest: Position) -> Position:
        """Return where the newest segment with records begins."""
        size = self._reader.segment_size
        base = oldest
        while self._at(Position(base + size)) is not None:
            base = Position(base + size)
        # All that the first record of a segment says is durable stands before it.
        return base

    def _at(self, position: Position) -> Record | None:
        """Return the record that begins at a position."""
        for record in self._reader.records(position):
            return Record(record.position, record.kind, record.epoch, record.time_us, record.body)
        return None

    def records(self, start: int, stop: int) -> Iterator[Record]:
        """See ``JournalPort``."""
        reader = self._reader
        position = start
        if start < reader.first():
            raise DataLoss(
                f"the journal in {self._path} begins at {reader.first()}, behind {start}"
            )
        for record in reader.records(Position(start)):
            if record.position >= stop:
                return
            yield Record(record.position, record.kind, record.epoch, record.time_us, record.body)
            position = record.end
        if position < stop:
            raise DataLoss(
                f"the journal in {self._path} ends at {position}, before {stop}: "
                f"{reader.fault or 'nothing follows'}"
            )

    def close(self) -> None:
        """See ``JournalPort``."""
        self._reader.close()

    # -- names

    def names(self, position: int) -> Names:
        """See ``JournalPort``.

        They are those of the newest STATE set before, and of the records since. Numbers are never
        used again, so a newer set may say more of them, of what stands before it as well: that of
        the newest segment is asked too, for the records of a journal whose beginning is gone.
        """
        reader = self._reader
        oldest = reader.first()
        names = Names()
        start: int = oldest
        newest = self._newest_segment(oldest)
        for base in sorted({newest, max(oldest, position - position % reader.segment_size)}):
            segment = self._at(Position(base))
            if segment is None or segment.kind != Kind.SEGMENT:
                continue
            _, _, begin, end = control.SEGMENT.unpack_from(segment.body)
            if begin == NO_POSITION or begin < oldest:
                continue
            self._load(names, end)
            if begin <= position:
                start = max(start, begin)
        if start < position:
            for record in reader.records(Position(start)):
                if record.position >= position:
                    break
                names.learn(record.kind, record.body)
        return names

    def _load(self, names: Names, end: int) -> None:
        """Take the names of a STATE set, given its END."""
        body = self._state(end)
        _, _, _, _, count = _HEAD.unpack_from(body)
        chunks: dict[int, set[bytes]] = {}
        for number in range(count):
            (place,) = _POSITION.unpack_from(body, _HEAD.size + number * _POSITION.size)
            for key, chunk in _directory(self._state(place)):
                if _KEY.unpack(key)[0] in _HOLD_NAMES:
                    chunks.setdefault(chunk, set()).add(key)
        for chunk, keys in sorted(chunks.items()):
            for key, payload in _objects(self._state(chunk)):
                if key in keys:
                    _take(names, key, payload)

    def _state(self, position: int) -> bytes:
        record = self._at(Position(position))
        if record is None or record.kind != Kind.STATE:
            raise DataLoss(
                f"the journal in {self._path} has no STATE at {position}; was all of it copied?"
            )
        return record.body


def _directory(body: bytes) -> Iterator[tuple[bytes, int]]:
    _, _, _, _, count = _HEAD.unpack_from(body)
    for number in range(count):
        yield _NAMED.unpack_from(body, _HEAD.size + number * _NAMED.size)


def _objects(body: bytes) -> Iterator[tuple[bytes, bytes]]:
    _, _, _, _, count = _HEAD.unpack_from(body)
    at = _HEAD.size
    for _ in range(count):
        key, length, _ = _ENTRY.unpack_from(body, at)
        at += _ENTRY.size
        yield key, body[at : at + length]
        at += length + (-length % 8)


def _take(names: Names, key: bytes, payload: bytes) -> None:
    """Take the names that an object of the state holds."""
    kind, sort = _KEY.unpack(key)[:2]
    if not payload:
        return
    for one in _decode(payload):
        if kind == _TOPICS:
            names.topics[one["number"]] = one["spec"]["name"]
        elif kind == _SUBSCRIPTIONS:
            names.groups[one["group"]] = one["name"]
        elif kind == _SESSIONS:
            names.joined(one["session"], one["app"], one["client"], one.get("address", ""))
        elif sort == _GONE_TOPIC:
            names.topics[one[0]] = one[1]
        elif sort == _GONE_GROUP:
            names.groups[one[0]] = one[1]
        elif sort == _GONE_SESSION:
            names.sessions[one[0]] = Client(one[1], one[4], one[5])


def _decode(payload: bytes) -> list[Any]:
    found: list[Any] = msgspec.msgpack.decode(payload)
    return found
