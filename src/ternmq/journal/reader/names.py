"""The names of the numbers in a journal's records, from its files alone.

A broker returns the same names for the journal that it serves (JOURNAL_CATALOG). Here they are read
from the newest STATE set that a SEGMENT record names, only its objects that have names, and then
from the CONFIG, JOINED and LEFT records behind it. Numbers are never reused, so a deleted object
never comes back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from ternmq.journal.disk.port import Disk
from ternmq.journal.log.scan import RawRecord, read_record, scan
from ternmq.journal.log.segment import (
    SEGMENT_RECORD_BYTES,
    segment_bases,
    segment_name,
)
from ternmq.journal.state.sets import StateKey, begin_of_end, directory_of, load
from ternmq.model.errors import CorruptJournal, FileMissing
from ternmq.model.types import NO_POSITION, Position
from ternmq.record.fact import control, state
from ternmq.record.fact.header import Kind
from ternmq.record.fact.state import Sort


class Known(msgspec.Struct, frozen=True):
    """A topic, group or session with its name."""

    number: int
    name: str
    """Name of a topic or group; the app of a session."""
    gone: int = 0
    """Position of the record that deleted or ended it; 0: it exists."""
    topic: int = 0
    """Topic number of a group."""
    client: str = ""
    """The beginning of a session's client."""
    address: str = ""
    """Address of a session's client."""


class _Named(msgspec.Struct, frozen=True):
    """The name alone: settings of a newer version must not keep its names from being read."""

    name: str


class _Topic(msgspec.Struct, frozen=True):
    number: int
    spec: _Named


class _Group(msgspec.Struct, frozen=True):
    topic: int
    group: int
    name: str


_topics: Final = msgspec.msgpack.Decoder(list[_Topic])
_groups: Final = msgspec.msgpack.Decoder(list[_Group])
_sessions: Final = msgspec.msgpack.Decoder(list[control.Joined])
_apps: Final = msgspec.msgpack.Decoder(list[_Named])
_gone: Final = msgspec.msgpack.Decoder(list[state.GoneName])


class Names:
    """Names by number, those of deleted objects included.

    Attributes:
        as_of: Position up to which the journal was read.
        topics: By number.
        groups: By number; a group has another number on each topic.
        sessions: By number.
        apps: Names of the existing apps.
    """

    def __init__(self) -> None:
        self.as_of = Position(0)
        self.topics: dict[int, Known] = {}
        self.groups: dict[int, Known] = {}
        self.sessions: dict[int, Known] = {}
        self.apps: set[str] = set()

    def load_object(self, key: StateKey, payload: bytes, stamp: Position) -> None:
        """Load an object of a STATE set."""
        del stamp
        if not payload:
            return
        if key.type == state.TOPICS:
            for topic in _topics.decode(payload):
                self.topics[topic.number] = Known(topic.number, topic.spec.name)
        elif key.type == state.SUBSCRIPTIONS:
            for one in _groups.decode(payload):
                self.groups[one.group] = Known(one.group, one.name, topic=one.topic)
        elif key.type == state.SESSIONS:
            for joined in _sessions.decode(payload):
                self._joined(joined)
        elif key.type == state.APPS:
            self.apps.update(app.name for app in _apps.decode(payload))
        else:
            sorts = {
                Sort.TOPIC: self.topics,
                Sort.GROUP: self.groups,
                Sort.SESSION: self.sessions,
            }
            for gone in _gone.decode(payload):
                sorts[Sort(key.a)][gone.number] = Known(
                    gone.number, gone.name, gone.position, gone.topic, gone.client, gone.address
                )

    def loaded(self, begin: Position) -> None:
        """Do nothing; called when all objects are loaded."""

    def finish(self, end: Position) -> None:
        """Set ``as_of``; called after the last record."""
        self.as_of = end

    def apply(self, record: RawRecord) -> None:
        """Apply a record's facts; ignore kinds without names."""
        if record.kind == Kind.CONFIG:
            self._config(record.position, control.unpack_config(record.body))
        elif record.kind == Kind.JOINED:
            joined = control.unpack_joined(record.body)
            if joined.session not in self.sessions:
                self._joined(joined)
        elif record.kind == Kind.LEFT:
            _end(self.sessions, control.unpack_left(record.body).session, record.position)

    def _joined(self, joined: control.Joined) -> None:
        client = joined.client[: state.CLIENT_SHOWN]
        self.sessions[joined.session] = Known(
            joined.session, joined.app, client=client, address=joined.address
        )

    def _config(self, position: int, change: control.Config) -> None:
        if isinstance(change, control.TopicCreated):
            if change.number not in self.topics:
                self.topics[change.number] = Known(change.number, change.spec.name)
        elif isinstance(change, control.TopicDeleted):
            _end(self.topics, change.number, position)
            for group in [one.number for one in self.groups.values() if one.topic == change.number]:
                _end(self.groups, group, position)
        elif isinstance(change, control.Subscribed):
            if change.group not in self.groups:
                self.groups[change.group] = Known(
                    change.group, change.group_name, topic=change.topic
                )
        elif isinstance(change, control.Unsubscribed):
            _end(self.groups, change.group, position)
        elif isinstance(change, control.App):
            self.apps.add(change.name)
        elif isinstance(change, control.AppDeleted):
            self.apps.discard(change.name)


def _end(known: dict[int, Known], number: int, position: int) -> None:
    one = known.get(number)
    if one is not None and not one.gone:
        known[number] = msgspec.structs.replace(one, gone=position)


def read_names_around(disk: Disk, segment_size: int, behind: Iterable[Position]) -> Names:
    """Return the names in the files of a damaged journal, as many as can be read.

    Args:
        disk: The data root.
        segment_size: Bytes of every segment file.
        behind: Positions of intact records behind damage; CONFIG records from there on count too.

    Raises:
        DiskError: The disk could not read.
    """
    try:
        names = read_names(disk, segment_size)
    except (CorruptJournal, FileMissing):
        names = Names()  # what is behind the damage may name more; numbers stand for the rest
    for position in behind:
        for record in scan(disk, position, segment_size=segment_size):
            names.apply(record)
    return names


def read_names(disk: Disk, segment_size: int, stop: Position = NO_POSITION) -> Names:
    """Return the names in the files of a journal. Waits for the disk.

    Reads the newest complete STATE set that a SEGMENT record names, and the records behind its
    BEGIN.

    Args:
        disk: The data root.
        segment_size: Bytes of every segment file.
        stop: Ignore records from this position on.

    Raises:
        CorruptJournal: No set can be read, and the journal's beginning was removed.
        DiskError: The disk could not read.
    """
    bases = segment_bases(disk)
    names, begin = Names(), bases[0] if bases else Position(0)
    broken: CorruptJournal | None = None
    for end in _ends(disk, segment_size, bases, stop):
        try:
            directory, found = directory_of(disk, segment_size, Position(end))
            wanted = {state.TOPICS, state.SUBSCRIPTIONS, state.SESSIONS, state.APPS, state.GONE}
            load(
                disk,
                segment_size,
                {key: at for key, at in directory.items() if key.type in wanted},
                names,
            )
        except CorruptJournal as error:
            names, broken = Names(), error
        else:
            begin = found.begin
            break
    else:
        if begin > 0:
            raise CorruptJournal(
                "no STATE set can be read, and the journal's beginning is gone",
                file=segment_name(begin),
            ) from broken
    end = begin
    for record in scan(disk, begin, segment_size=segment_size):
        if record.position >= stop:
            break
        names.apply(record)
        end = record.end
    names.finish(end)
    return names


def _ends(disk: Disk, segment_size: int, bases: list[Position], stop: Position) -> Iterator[int]:
    """Yield the END positions of STATE sets, newest first: those that SEGMENT records name.

    They are followed by those that a walk through all records finds, for a caller that could read
    none of the first.
    """
    seen: int = NO_POSITION
    for base in reversed(bases):
        file = disk.open(segment_name(base))
        try:
            record = read_record(file, base, base)
        finally:
            file.close()
        if record is None or record.kind != Kind.SEGMENT or record.length != SEGMENT_RECORD_BYTES:
            continue
        _, _, begin, end = control.SEGMENT.unpack(record.body)
        if begin not in (NO_POSITION, seen) and end < stop:
            seen = begin
            yield end
    found = [
        record.position
        for record in scan(disk, bases[0] if bases else 0, segment_size=segment_size)
        if record.position < stop and begin_of_end(record) is not None
    ]
    yield from reversed(found)
