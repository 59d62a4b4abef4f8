"""What is on the medium: the durable bytes, and what a crash at this moment may leave of the rest.

A ``Medium`` is fed the log of a ``SimDisk``, operation by operation. Writes that no completed sync
covers are *pending*. At a crash each pending **slot** (a sector of 512 bytes, or a page of 4 KiB
where a file has many) shows the bytes as they were after any number of the writes to it,
independently of all others: so writes are lost, reordered and torn. Pending changes of names are
kept or lost one by one, independently of data; a rename may be there before the data of the file.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from tests.sim.disk import FOLDER, LINK, LOST, RENAME, SYNC, UNLINK, WRITE, Faults, Op, SimDisk

SECTOR: Final = 512
PAGE: Final = 4096
MANY_SECTORS: Final = 24
"""Files with more pending sectors than this are torn at pages only."""


class Pending(NamedTuple):
    """A write that is not known to be durable; ``at`` is its number in the log."""

    at: int
    offset: int
    data: bytes
    lost: bool


class Slot(NamedTuple):
    """A sector or page with pending writes, in order."""

    inode: int
    start: int
    stop: int
    writes: tuple[int, ...]


class Draw(NamedTuple):
    """Which of the pending things a crash keeps."""

    cuts: tuple[int, ...]
    """Per slot: how many of its writes are there."""
    names: tuple[bool, ...]
    """Per pending change of a name: whether it is there."""
    grown: bool
    """Whether files that grew have their new length."""


class Stored:
    """A file on the medium."""

    __slots__ = ("durable", "pending")

    def __init__(self, durable: bytes = b"") -> None:
        self.durable = durable
        self.pending: list[Pending] = []


def _undecided(old: Pending, one: Pending, data: bytearray) -> Iterator[Pending]:
    """Yield what a failed sync left open of an old write, now that a later write was synced.

    The later one took whole pages of the page cache along: what the old one wrote there is durable
    with it, and is put into ``data``.
    """
    low = one.offset // PAGE * PAGE
    high = -(-(one.offset + len(one.data)) // PAGE) * PAGE
    begin, end = old.offset, old.offset + len(old.data)
    if old.at > one.at or end <= low or high <= begin:
        yield old
        return
    first, last = max(begin, low), min(end, high)
    _put(data, first, old.data[first - begin : last - begin])
    if begin < first:
        yield old._replace(data=old.data[: first - begin])
    if last < end:
        yield old._replace(offset=last, data=old.data[last - begin :])


class Medium:
    """The medium under a ``SimDisk`` after a prefix of its log."""

    def __init__(self, files: dict[str, bytes] | None = None) -> None:
        self.at = 0
        self.version = 0
        """Grows whenever something becomes durable (or can no longer)."""
        self.stored: dict[int, Stored] = {}
        self.durable_names: dict[str, int] = {}
        self.name_ops: list[tuple[int, Op]] = []
        self.name_of: dict[int, str] = {}
        self._slots: list[Slot] | None = None
        for number, name in enumerate(sorted(files or {})):
            assert files is not None
            self.stored[number] = Stored(files[name])
            self.durable_names[name] = number
            self.name_of[number] = name

    def clone(self) -> Medium:
        """Return a copy that goes its own way."""
        other = Medium()
        other.at = self.at
        other.version = self.version
        for number, stored in self.stored.items():
            copy = other.stored[number] = Stored(stored.durable)
            copy.pending = list(stored.pending)
        other.durable_names = dict(self.durable_names)
        other.name_ops = list(self.name_ops)
        other.name_of = dict(self.name_of)
        return other

    def feed(self, op: Op) -> None:
        """Take in the next operation of the log."""
        what, a, b, c = op
        self._slots = None
        if what == WRITE:
            assert isinstance(a, int)
            assert isinstance(b, int)
            assert isinstance(c, bytes)
            self._file(a).pending.append(Pending(self.at, b, c, False))
        elif what in (SYNC, LOST):
            assert isinstance(a, int)
            assert isinstance(b, int)
            self._sync(self._file(a), b, lost=what == LOST)
        elif what == FOLDER:
            assert isinstance(a, str)
            assert isinstance(b, int)
            self._sync_names(a, b)
        else:
            if what == LINK:
                assert isinstance(a, str)
                assert isinstance(b, int)
                self.name_of[b] = a
                self._file(b)
            elif what == RENAME:
                assert isinstance(b, str)
                assert isinstance(c, int)
                self.name_of[c] = b
            self.name_ops.append((self.at, op))
        self.at += 1

    def _file(self, number: int) -> Stored:
        stored = self.stored.get(number)
        if stored is None:
            stored = self.stored[number] = Stored()
        return stored

    def _sync(self, stored: Stored, upto: int, *, lost: bool) -> None:
        self.version += 1
        left: list[Pending] = []
        done: list[Pending] = []
        for one in stored.pending:
            if one.at < upto and not one.lost:
                if lost:
                    left.append(one._replace(lost=True))
                else:
                    done.append(one)
            else:
                left.append(one)
        if done:
            data = bytearray(stored.durable)
            for one in done:
                if any(old.lost for old in left):
                    left = [
                        part
                        for old in left
                        for part in (_undecided(old, one, data) if old.lost else (old,))
                    ]
                _put(data, one.offset, one.data)
            stored.durable = bytes(data)
        stored.pending = left

    def _sync_names(self, folder: str, upto: int) -> None:
        left: list[tuple[int, Op]] = []
        for index, op in self.name_ops:
            where = op[2] if op[0] == RENAME else op[1]
            assert isinstance(where, str)
            if index < upto and where.rpartition("/")[0] == folder:
                self.version += 1
                _rename(self.durable_names, op)
            else:
                left.append((index, op))
        self.name_ops = left

    def disk(
        self,
        faults: Faults | None = None,
        on_write: Callable[[str, int, bytes], None] | None = None,
    ) -> SimDisk:
        """Return a disk on this medium whose page cache still holds all that is pending.

        Its log goes on where this medium was fed to.
        """
        disk = SimDisk(faults=faults, on_write=on_write, begin=self.at)
        disk.reserve(max(self.stored, default=-1) + 1)
        everything = self.everything()
        names = dict(self.durable_names)
        for _, op in self.name_ops:
            _rename(names, op)
        for name, data in self.image(everything).items():
            disk.add(name, names[name], data)
        return disk

    # -- what a crash may leave --------------------------------------------------------------------

    def slots(self) -> list[Slot]:
        """Return what is pending, in a fixed order."""
        if self._slots is None:
            self._slots = []
            for number in sorted(self.stored):
                pending = self.stored[number].pending
                if pending:
                    self._slots += _slots_of(number, pending)
        return self._slots

    def widths(self) -> list[int]:
        """Return in how many ways each slot, then each pending name, can come out."""
        return [len(slot.writes) + 1 for slot in self.slots()] + [2] * len(self.name_ops)

    def none(self) -> Draw:
        """Nothing that is pending is there."""
        return Draw((0,) * len(self.slots()), (False,) * len(self.name_ops), False)

    def everything(self) -> Draw:
        """All that is pending is there: the process died, the machine did not."""
        cuts = tuple(len(slot.writes) for slot in self.slots())
        return Draw(cuts, (True,) * len(self.name_ops), True)

    def only_names(self) -> Draw:
        """All changes of names are there, and nothing that was written."""
        return Draw((0,) * len(self.slots()), (True,) * len(self.name_ops), False)

    def last_name(self) -> Draw:
        """The last change of a name is there, none before it, and all that was written."""
        cuts = tuple(len(slot.writes) for slot in self.slots())
        return Draw(cuts, (False,) * (len(self.name_ops) - 1) + (True,), True)

    def all_draws(self) -> Iterator[Draw]:
        """Yield every way in which the pending slots and names can come out."""
        count = len(self.slots())
        for way in itertools.product(*[range(width) for width in self.widths()]):
            yield Draw(way[:count], tuple(map(bool, way[count:])), bool(sum(way) & 1))

    def draw(self, chance: random.Random) -> Draw:
        """Return one way, by one of several habits of file systems and disks."""
        slots = self.slots()
        names = self._draw_names(chance)
        grown = chance.random() < 0.5
        habit = chance.randrange(6)
        if habit == 0:
            cuts = [chance.randint(0, len(slot.writes)) for slot in slots]
        elif habit == 1:  # whole pages
            kept: dict[tuple[int, int], bool] = {}
            cuts = []
            for slot in slots:
                page = (slot.inode, slot.start // PAGE)
                if page not in kept:
                    kept[page] = chance.random() < 0.5
                cuts.append(len(slot.writes) if kept[page] else 0)
        elif habit == 2:  # everything up to a moment
            limit = chance.randint(0, self.at)
            cuts = [sum(index < limit for index in slot.writes) for slot in slots]
        elif habit == 3:  # all but one
            cuts = [len(slot.writes) for slot in slots]
            if cuts:
                cuts[chance.randrange(len(cuts))] = 0
        elif habit == 4:  # only one
            cuts = [0] * len(slots)
            if cuts:
                at = chance.randrange(len(cuts))
                cuts[at] = len(slots[at].writes)
        else:
            cuts = [len(slot.writes) if chance.random() < 0.5 else 0 for slot in slots]
        return Draw(tuple(cuts), names, grown)

    def _draw_names(self, chance: random.Random) -> tuple[bool, ...]:
        count = len(self.name_ops)
        if not count:
            return ()
        habit = chance.randrange(4)
        if habit == 0:
            return (False,) * count
        if habit == 1:
            return (True,) * count
        if habit == 2:
            limit = chance.randint(0, count)
            return tuple(at < limit for at in range(count))
        return tuple(chance.random() < 0.5 for _ in range(count))

    def key(self, draw: Draw) -> tuple[object, ...]:
        """Return what tells this image from others of the same log."""
        kept = tuple(
            (slot.inode, slot.start, slot.writes[cut - 1])
            for slot, cut in zip(self.slots(), draw.cuts, strict=True)
            if cut
        )
        names = tuple(
            index for (index, _), there in zip(self.name_ops, draw.names, strict=True) if there
        )
        return self.version, kept, names, draw.grown

    def image(self, draw: Draw) -> dict[str, bytes]:
        """Return the files that the crash leaves, by name."""
        names = self.durable_names
        if self.name_ops:
            names = dict(names)
            for (_, op), there in zip(self.name_ops, draw.names, strict=True):
                if there:
                    _rename(names, op)
        changed: dict[int, bytearray] = {}
        for slot, cut in zip(self.slots(), draw.cuts, strict=True):
            if not cut:
                continue
            stored = self.stored[slot.inode]
            data = changed.get(slot.inode)
            if data is None:
                data = changed[slot.inode] = bytearray(stored.durable)
            wanted = slot.writes[:cut]
            for one in stored.pending:
                if one.at in wanted:
                    low = max(slot.start, one.offset)
                    high = min(slot.stop, one.offset + len(one.data))
                    _put(data, low, one.data[low - one.offset : high - one.offset])
        files: dict[str, bytes] = {}
        for name, number in names.items():
            stored = self.stored[number]
            content = changed.get(number)
            files[name] = stored.durable if content is None else bytes(content)
            if draw.grown and stored.pending:
                size = max(one.offset + len(one.data) for one in stored.pending)
                files[name] += bytes(max(0, size - len(files[name])))
        return files

    def pending_from(self, folder: str) -> dict[str, int]:
        """Return, for each file of a folder with pending writes, where the first of them begins."""
        return {
            self.name_of[number]: min(one.offset for one in stored.pending)
            for number, stored in self.stored.items()
            if stored.pending and self.name_of[number].startswith(folder)
        }


def _slots_of(number: int, pending: list[Pending]) -> list[Slot]:
    touched: dict[int, list[int]] = {}
    count = sum(len(one.data) // SECTOR + 2 for one in pending)
    unit = SECTOR if count <= MANY_SECTORS else PAGE
    for one in pending:
        for at in range(one.offset // unit, (one.offset + len(one.data) - 1) // unit + 1):
            touched.setdefault(at, []).append(one.at)
    return [Slot(number, at * unit, (at + 1) * unit, tuple(touched[at])) for at in sorted(touched)]


def _put(data: bytearray, offset: int, new: bytes) -> None:
    if offset > len(data):
        data.extend(bytes(offset - len(data)))
    data[offset : offset + len(new)] = new


def _rename(names: dict[str, int], op: Op) -> None:
    what, a, b, c = op
    assert isinstance(a, str)
    if what == LINK:
        assert isinstance(b, int)
        names[a] = b
    elif what == UNLINK:
        names.pop(a, None)
    else:
        assert isinstance(b, str)
        assert isinstance(c, int)
        names.pop(a, None)
        names[b] = c
