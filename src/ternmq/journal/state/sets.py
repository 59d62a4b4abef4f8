"""STATE: the views written into the journal, so that a start need not read all of it.

A **set** is: a BEGIN record; CHUNK records, each holding objects as they are at the chunk's own
position (their *stamp*); DIRECTORY records that name, for every object of the set, the position of
the chunk that holds it; an END record that names the DIRECTORY records. A set is written a little
at a time, between other records. Objects that did not change since an earlier chunk are not written
again: the directory names that chunk. A set without a valid END is ignored.

The layout is in ``record.fact.stateset``. Replay begins at BEGIN: a fact is applied to an object if
its record is behind the object's stamp, or if the object is not in the directory (the fact then
creates it).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple, Protocol

from ternmq.journal.cache.cold import WouldBlock
from ternmq.journal.disk.port import Disk
from ternmq.journal.log.journal import Journal
from ternmq.journal.log.scan import RawRecord, record_at
from ternmq.model.errors import CorruptJournal, DiskReadError, JournalFull
from ternmq.model.types import NO_POSITION, Position
from ternmq.record.fact.header import HEADER_BYTES, Kind
from ternmq.record.fact.stateset import (
    BEGIN,
    CHUNK,
    DIRECTORY,
    END,
    HEAD,
    KEY,
    NAMED,
    OBJECT,
    POSITION,
)

IMMUTABLE: Final = -1
"""``state_changed`` of an object that never changes: written once, then only named."""
CHUNK_BYTES: Final = 60 * 1024
DEFAULT_INTERVAL_BYTES: Final = 64 << 20
DEFAULT_INTERVAL_RECORDS: Final = 200_000
_FRAMES_BYTES: Final = 512
"""Estimated size of BEGIN, END and the heads of a small set's records."""
MANY_OBJECTS: Final = 10_000
"""With more objects than this, sets begin less often: a set names every object, about 7 us each."""
_GUESSED_BYTES: Final = 256
"""Assumed size of an object's payload until a payload was seen."""
_BYTES_AN_OBJECT: Final = 8192
_RECORDS_AN_OBJECT: Final = 8


class StateKey(NamedTuple):
    """The name of an object of the views."""

    type: int
    a: int = 0
    b: int = 0
    c: int = 0
    d: int = 0


class StateSource(Protocol):
    """What the writer needs of the views."""

    def state_keys(self, begin: int) -> Iterator[StateKey]:
        """Yield the keys of all objects, lazily; objects may come and go during the iteration."""
        ...

    def state_changed(self, key: StateKey) -> int:
        """Return the position of the newest record that changed the object."""
        ...

    def state_encode(self, key: StateKey) -> bytes:
        """Return the object as it is now; empty if it is gone."""
        ...

    def state_written(self, key: StateKey) -> None:
        """Called when the object, as encoded last, is stored in a chunk."""
        ...


class Replayable(Protocol):
    """What recovery needs of the views. The methods are called in this order."""

    def load_object(self, key: StateKey, payload: bytes, stamp: Position) -> None:
        """Load an object as it was at ``stamp``; objects come sorted by key."""
        ...

    def loaded(self, begin: Position) -> None:
        """Called when all objects are loaded; facts from ``begin`` on follow."""
        ...

    def apply(self, record: RawRecord) -> None:
        """Apply a record's facts."""
        ...

    def finish(self, end: Position) -> None:
        """Called after the last fact: compute what is derived."""
        ...


class CompleteSet(NamedTuple):
    """A complete set: one whose END was written."""

    begin: Position
    end: Position
    """Position of the END record."""
    oldest: Position
    """Smallest position that the set names."""
    payload_bytes: int = 0
    """Bytes of its objects' payloads if the set was loaded, else 0."""

    @property
    def needs_from(self) -> int:
        """Smallest position of the journal that loading this set and replaying after it reads."""
        return min(self.begin, self.oldest)


class StateWriter:
    """Writes sets, a step at a time.

    Not thread-safe: call it from the broker's loop.

    Args:
        journal: The journal that the sets are appended to.
        source: The views.
        read: Returns the whole record at a position, to copy objects out of an older chunk; may
            raise ``WouldBlock``.
        interval_bytes: A set is due when the journal has grown by this many bytes,
        interval_records: or by this many records.
        chunk_bytes: A chunk is written when its payloads reach this many bytes.
    """

    def __init__(
        self,
        journal: Journal,
        source: StateSource,
        read: Callable[[Position], bytes] | None = None,
        *,
        interval_bytes: int = DEFAULT_INTERVAL_BYTES,
        interval_records: int = DEFAULT_INTERVAL_RECORDS,
        chunk_bytes: int = CHUNK_BYTES,
    ) -> None:
        self._journal = journal
        self._source = source
        self._interval_bytes = interval_bytes
        self._interval_records = interval_records
        self._chunk_bytes = chunk_bytes
        self._written: dict[bytes, int] = {}
        """Packed key -> position of its chunk in the newest set. The set in progress takes out each
        object that it names."""
        self._naming: dict[bytes, int] = {}
        self._keys: Iterator[StateKey] | None = None
        self._again: list[StateKey] = []
        self._named: list[bytes] = []
        self._directories: list[int] = []
        self._oldest = 0
        self._refresh_below = 0
        self._copy_below = 0
        self._read = read
        self._read_last: tuple[int, dict[bytes, bytes]] = (-1, {})
        """The chunk that objects were copied from last, and its payloads."""
        self._asked = -1
        self._unreadable: set[int] = set()
        self._seen = self._seen_bytes = 0
        """Number of payloads seen, and their bytes: for the mean size of a payload."""
        self._anew_bytes = 0
        """Bytes of the newest set's objects that every set writes again."""
        self._begin = Position(0)
        self._last_begin = Position(journal.end)
        self._last_appended = journal.appended
        self.complete: list[CompleteSet] = []
        """The newest sets, oldest first, at most three; END may not be durable yet."""
        self.sets_written = 0
        self.bytes_written = 0

    @property
    def active(self) -> bool:
        """Whether a set has begun and not ended."""
        return self._keys is not None

    def remember(self, written: dict[StateKey, int], newest: CompleteSet | None) -> None:
        """Set, after a start, which chunk holds which object, and the set that was loaded."""
        self._written = {KEY.pack(*key): position for key, position in written.items()}
        if newest is not None:
            self.complete = [newest]
            self._seen, self._seen_bytes = len(written), newest.payload_bytes

    def due(self) -> bool:
        """Return whether a set should begin now.

        With more than ``MANY_OBJECTS`` the intervals grow with their number: a set of 40,000 takes
        0.3 s of the loop, and one for every 64 MiB of a busy journal would take a third of it.
        """
        if self._keys is not None:
            return False
        journal, most_bytes, most_records = (
            self._journal, self._interval_bytes, self._interval_records,
        )  # fmt: skip
        objects = len(self._written)
        if objects > MANY_OBJECTS:
            most_bytes = max(most_bytes, objects * _BYTES_AN_OBJECT)
            most_records = max(most_records, objects * _RECORDS_AN_OBJECT)
        return (
            journal.end - self._last_begin >= most_bytes
            or journal.appended - self._last_appended >= most_records
        )

    def estimate(self, *, whole: bool) -> int:
        """Return about how many bytes a set takes.

        Args:
            whole: The set writes every object again. False: it writes only the objects that every
                set writes, as if nothing else had changed since the last set.
        """
        objects = max(len(self._written), len(self._naming))
        size = self._anew_bytes
        if whole:
            mean = self._seen_bytes // self._seen if self._seen else _GUESSED_BYTES
            size = objects * (mean + 8 + OBJECT.size)
        return objects * NAMED.size + size + _FRAMES_BYTES

    def begin(self, now_us: int, refresh_below: int = 0, copy_below: int = 0) -> None:
        """Begin a set.

        Args:
            now_us: Broker time.
            refresh_below: Objects whose chunk is below this position are written again, so that its
                segment can be removed.
            copy_below: The same for objects that never change: they are copied from their chunk.
        """
        journal = self._journal
        self._begin = journal.append(Kind.STATE, HEAD.pack(0, BEGIN, 0, 0, 0), now_us)
        self._last_begin = self._begin
        self._last_appended = journal.appended
        self._refresh_below = refresh_below
        self._copy_below = copy_below
        self._unreadable.clear()
        self._anew_bytes = 0
        self._naming = {}
        self._named = []
        self._directories = []
        self._oldest = int(NO_POSITION)
        self._keys = self._source.state_keys(self._begin)

    def step(self, now_us: int, may_go_on: Callable[[], bool]) -> bool:
        """Write objects while ``may_go_on()``; return whether the set has ended.

        Call it only when every decided fact is appended: a chunk holds its objects as all records
        before it made them.

        Raises:
            JournalFull: There is no room now; the next step goes on where this one stopped.
            WouldBlock: An object to copy must be read first; the next step goes on likewise.
        """
        if self._keys is None:
            return True
        source = self._source
        entries: list[tuple[StateKey, bytes, bytes]] = []
        size = 0
        ended = False
        while True:
            key = self._again.pop() if self._again else next(self._keys, None)
            if key is None:
                ended = True
                break
            packed = KEY.pack(*key)
            chunk = self._written.get(packed)
            changed = source.state_changed(key)
            payload: bytes | None
            if chunk is not None and changed == IMMUTABLE:
                try:
                    payload = self._copy(packed, chunk) if chunk < self._copy_below else None
                except WouldBlock:
                    self._again.append(key)
                    if entries:
                        self._put_chunk(now_us, entries)
                    raise
            elif chunk is not None and chunk >= self._refresh_below and changed < chunk:
                payload = None
            else:
                payload = source.state_encode(key)
                if changed >= self._begin:
                    self._anew_bytes += len(payload) + OBJECT.size
            if payload is None:
                assert chunk is not None
                self._name(now_us, packed, chunk)
            else:
                entries.append((key, packed, payload))
                self._seen += 1
                self._seen_bytes += len(payload)
                size += len(payload) + OBJECT.size
                if size >= self._chunk_bytes:
                    self._put_chunk(now_us, entries)
                    entries, size = [], 0
            if not may_go_on():
                break
        if entries:
            self._put_chunk(now_us, entries)
        if ended:
            self._end(now_us)
        return ended

    def _copy(self, packed: bytes, chunk: int) -> bytes | None:
        """Return the payload of an object that never changes; None: name its old chunk instead.

        Raises:
            WouldBlock: The chunk must be read from the disk.
        """
        if self._read_last[0] != chunk:
            if self._read is None or chunk in self._unreadable:
                return None
            self._asked = chunk
            try:
                body = self._read(Position(chunk))[HEADER_BYTES:]
            except (CorruptJournal, DiskReadError):
                self.unreadable()
                return None
            self._read_last = chunk, dict(_objects_of(body))
        return self._read_last[1].get(packed)

    def unreadable(self) -> None:
        """Mark the chunk requested last as unreadable: sets go on naming it for its objects.

        So its segment is kept: without it, every set that names the chunk would be lost.
        """
        self._unreadable.add(self._asked)

    def _put_chunk(self, now_us: int, entries: list[tuple[StateKey, bytes, bytes]]) -> None:
        parts = [HEAD.pack(self._begin, CHUNK, 0, 0, len(entries))]
        for _, packed, payload in entries:
            parts += (OBJECT.pack(packed, len(payload), 0), payload, bytes(-len(payload) % 8))
        body = b"".join(parts)
        try:
            position = self._journal.append(Kind.STATE, body, now_us)
        except JournalFull:
            # A set without these objects would lose them: they are encoded again when there is
            # room.
            self._again += [key for key, _, _ in entries]
            raise
        self.bytes_written += len(body)
        for key, packed, _ in entries:
            self._source.state_written(key)
            self._name(now_us, packed, position)

    def _name(self, now_us: int, packed: bytes, position: int) -> None:
        """Record an object's chunk; append a DIRECTORY record once some thousand are recorded."""
        self._written.pop(packed, None)  # so that little is left to free when the set ends
        self._naming[packed] = position
        if position < self._oldest:
            self._oldest = position
        named = self._named
        named.append(NAMED.pack(packed, position))
        if len(named) * NAMED.size >= self._chunk_bytes:
            try:
                self._put_directory(now_us)
            except JournalFull:
                return  # tried again with the next object, or at the end

    def _put_directory(self, now_us: int) -> None:
        most = max(1, self._chunk_bytes // NAMED.size)
        while self._named:
            some = self._named[:most]
            body = HEAD.pack(self._begin, DIRECTORY, 0, 0, len(some)) + b"".join(some)
            self._directories.append(self._journal.append(Kind.STATE, body, now_us))
            self.bytes_written += len(body)
            del self._named[:most]

    def _end(self, now_us: int) -> None:
        journal = self._journal
        self._put_directory(now_us)
        oldest = min(self._oldest, self._begin) if not self._naming else self._oldest
        body = (
            HEAD.pack(self._begin, END, 0, 0, len(self._directories))
            + struct.pack(f"<{len(self._directories)}Q", *self._directories)
            + POSITION.pack(oldest)
        )
        # The set may lack what is no longer needed because a segment was removed: if the set
        # survives a crash, the removal must survive too.
        journal.sync_removals()
        end = journal.append(Kind.STATE, body, now_us)
        journal.set_newest_state(self._begin, end)
        self._written = self._naming
        self._naming = {}
        self._read_last = (-1, {})
        self._keys = None
        self.sets_written += 1
        self.complete.append(CompleteSet(self._begin, end, Position(oldest)))
        del self.complete[:-3]

    def removable_below(self) -> int:
        """Return the position below which no committed set needs a byte: segments there may go.

        Two complete sets must be committed, so that another remains if one is damaged. All that
        either names, and all facts from the older one's BEGIN on, are at or above the position
        returned. 0 while there are fewer than two.
        """
        committed = [one for one in self.complete if one.end < self._journal.committed]
        if len(committed) < 2:
            return 0
        return min(one.needs_from for one in committed[-2:])


def begin_of_end(record: RawRecord) -> Position | None:
    """Return the BEGIN position if the record is a STATE set's END, else None."""
    if record.kind != Kind.STATE or len(record.body) < HEAD.size:
        return None
    begin, part, _, _, _ = HEAD.unpack_from(record.body)
    return Position(begin) if part == END else None


class Names(NamedTuple):
    """A part of the directory of a set."""

    begin: Position
    objects: list[tuple[StateKey, int]]
    """An object, and the position of its chunk."""


class SetEnd(NamedTuple):
    """What the END record of a set states."""

    directories: Sequence[int]
    """Positions of its DIRECTORY records."""
    oldest: Position
    """Smallest position that the set names."""


def names_of(record: RawRecord) -> Names | None:
    """Return which objects a DIRECTORY record names, None if the record is another one."""
    body = record.body
    if record.kind != Kind.STATE or len(body) < HEAD.size:
        return None
    begin, part, _, _, _ = HEAD.unpack_from(body)
    return Names(Position(begin), list(_named(body))) if part == DIRECTORY else None


def end_of_set(record: RawRecord) -> SetEnd:
    """Return what an END record states: one for which ``begin_of_end`` returns a position."""
    return _end(record.body)


def _named(body: bytes) -> Iterator[tuple[StateKey, int]]:
    """Yield what a DIRECTORY names: an object, and the position of its chunk."""
    _, _, _, _, count = HEAD.unpack_from(body)
    for raw, chunk in NAMED.iter_unpack(body[HEAD.size : HEAD.size + count * NAMED.size]):
        yield StateKey(*KEY.unpack(raw)), chunk


def _end(body: bytes) -> SetEnd:
    _, _, _, _, count = HEAD.unpack_from(body)
    directories = struct.unpack_from(f"<{count}Q", body, HEAD.size)
    (oldest,) = POSITION.unpack_from(body, HEAD.size + 8 * count)
    return SetEnd(directories, Position(oldest))


def directory_of(
    disk: Disk, segment_size: int, end: Position
) -> tuple[dict[StateKey, int], CompleteSet]:
    """Return (object -> position of its chunk, the set), given the position of an END record.

    Raises:
        CorruptJournal: A record of the set cannot be read.
    """
    body = _state_body(disk, segment_size, end, END)
    begin = HEAD.unpack_from(body)[0]
    directory: dict[StateKey, int] = {}
    try:
        ended = _end(body)
        for position in ended.directories:
            directory.update(_named(_state_body(disk, segment_size, position, DIRECTORY)))
    except struct.error as error:
        raise CorruptJournal(f"the STATE set that ends at {end} is cut short", byte=end) from error
    return directory, CompleteSet(Position(begin), end, ended.oldest)


def _objects_of(body: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield (packed key, payload) of the objects of a CHUNK."""
    _, _, _, _, count = HEAD.unpack_from(body)
    at = HEAD.size
    for _ in range(count):
        if at + OBJECT.size > len(body):
            return
        raw, length, _ = OBJECT.unpack_from(body, at)
        at += OBJECT.size
        yield raw, body[at : at + length]
        at += length + -length % 8


def load(disk: Disk, segment_size: int, directory: dict[StateKey, int], views: Replayable) -> int:
    """Load every object of a set into the views, sorted by key; return the bytes of all payloads.

    Raises:
        CorruptJournal: A chunk cannot be read, or lacks an object that the directory names.
    """
    wanted: dict[int, set[StateKey]] = {}
    for key, position in directory.items():
        wanted.setdefault(position, set()).add(key)
    objects: list[tuple[StateKey, bytes, int]] = []
    for position in sorted(wanted):
        body = _state_body(disk, segment_size, position, CHUNK)
        found = 0
        for raw, payload in _objects_of(body):
            key = StateKey(*KEY.unpack(raw))
            if key in wanted[position]:
                objects.append((key, payload, position))
                found += 1
        if found != len(wanted[position]):
            raise CorruptJournal(f"the STATE chunk at {position} lacks objects", byte=position)
    objects.sort(key=lambda one: one[0])
    for key, payload, stamp in objects:
        views.load_object(key, payload, Position(stamp))
    return sum([len(payload) for _, payload, _ in objects])


def _state_body(disk: Disk, segment_size: int, position: int, part: int) -> bytes:
    record = record_at(disk, position, segment_size)
    if (
        record is None
        or record.kind != Kind.STATE
        or len(record.body) < HEAD.size
        or record.body[8] != part
    ):
        raise CorruptJournal(f"no STATE record of part {part} at {position}", byte=position)
    return record.body
