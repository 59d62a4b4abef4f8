"""Simulated disks: one that writes down every operation, one that only serves an image.

``SimDisk`` shows its users what an operating system shows them, the page cache; what is on the
medium follows from its log (``medium``). ``ImageDisk`` is a disk after a crash, made in
microseconds and thrown away after one start.

The log's operations (a tuple each, the first item says which)::

    WRITE   inode, offset, data     into the page cache
    SYNC    inode, upto             what stands in the log before ``upto`` is on the medium now
    LOST    inode, upto             a sync failed: those writes never reach the medium any more
    LINK    name, inode             a name appears
    RENAME  old, new, inode
    UNLINK  name
    FOLDER  folder, upto            name changes in the folder before ``upto`` are on the medium
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Final

from ternmq.model.errors import (
    DiskSyncError,
    DiskWriteError,
    FileMissing,
    NoSpace,
)

WRITE: Final = 0
SYNC: Final = 1
LOST: Final = 2
LINK: Final = 3
RENAME: Final = 4
UNLINK: Final = 5
FOLDER: Final = 6

Op = tuple[int, int | str, int | str, int | bytes]
"""(which, a, b, c); what a, b, c are is in the table above, unused ones are 0."""

CAPACITY: Final = 1 << 30
_HALF: Final = 2
_ZEROS: Final[dict[int, bytes]] = {}


def zeros(size: int) -> bytes:
    """Return that many zero bytes, always the same object."""
    data = _ZEROS.get(size)
    if data is None:
        data = _ZEROS[size] = bytes(size)
    return data


class Inode:
    """A file's bytes as the page cache shows them."""

    __slots__ = ("begun", "data", "number")

    def __init__(self, number: int, data: bytes = b"") -> None:
        self.number = number
        self.data = bytearray(data)
        self.begun: int | None = None
        """Where the log stood when a sync of the file was issued, None if none is out."""


class Faults:
    """What is to go wrong; consulted by ``SimDisk``. Nothing is, until it is planned."""

    def __init__(self) -> None:
        self.lying = False
        """Syncs report success and do nothing: a self-test of the harness."""
        self.fired: dict[str, int] = {}
        self.capacity = CAPACITY
        """Bytes of the volume."""
        self.slow = 0.02
        """Share of the reads that must not wait which would wait."""
        self._chance = random.Random(0)
        self._slow = 0.0
        self._sync_in = self._write_in = self._full_from = self._full_for = -1

    def plan(self, chance: random.Random, *, on: bool) -> None:
        """Draw what goes wrong from now on; reads that would wait always may come."""
        self._chance = chance
        self._slow = self.slow
        self._sync_in = self._write_in = self._full_from = self._full_for = -1
        if on:
            what = chance.choice((0, 1, 1, 2))
            if what == 0:
                self._sync_in = chance.choice((1, 3, 6, 12, 30))
            elif what == 1:
                self._write_in = chance.randint(3, 120)
            else:
                self._full_from = chance.randint(0, 4)
                self._full_for = chance.choice((chance.randint(1, 40), 400))

    def _fire(self, what: str) -> None:
        self.fired[what] = self.fired.get(what, 0) + 1

    def write(self, name: str, size: int) -> int | None:
        """Return how many bytes get through before an error, None for no error."""
        if self._write_in < 0 or not name.startswith("journal/"):
            return None
        self._write_in -= 1
        if self._write_in >= 0:
            return None
        self._fire("write failed")
        return self._chance.choice((0, size // _HALF, size))

    def sync(self, name: str) -> bool:
        """Return whether this sync fails."""
        if self._sync_in < 0:
            return False
        self._sync_in -= 1
        return self._sync_in < 0

    def allocate(self, name: str) -> bool:
        """Return whether there is no room for this file."""
        if self._full_from < 0:
            return False
        if self._full_from > 0:
            self._full_from -= 1
            return False
        self._full_for -= 1
        if self._full_for < 0:
            return False
        self._fire("no room for a segment")
        return True

    def slow_read(self) -> bool:
        """Return whether a read that must not wait would wait."""
        return self._slow > 0 and self._chance.random() < self._slow


class SimFile:
    """A file of a ``SimDisk``."""

    __slots__ = ("_disk", "_inode", "name")

    def __init__(self, disk: SimDisk, name: str, inode: Inode) -> None:
        self._disk = disk
        self._inode = inode
        self.name = name

    def pwrite(self, data: bytes, offset: int) -> None:
        """Write into the page cache."""
        disk = self._disk
        through = disk.faults.write(self.name, len(data))
        if through is not None:
            data = data[:through]
        if data:
            disk.put(self._inode, offset, bytes(data))
        if through is not None:
            raise DiskWriteError(f"planned error writing {self.name}")

    def pread(self, length: int, offset: int) -> bytes:
        """Read from the page cache."""
        return bytes(self._inode.data[offset : offset + length])

    def try_pread(self, length: int, offset: int) -> bytes | None:
        """Read, unless the plan says that it would wait."""
        if self._disk.faults.slow_read():
            return None
        return bytes(self._inode.data[offset : offset + length])

    def begin_sync(self) -> None:
        """Issue a sync: what ``sync`` will make durable when it completes is settled now."""
        self._inode.begun = self._disk.at

    def next_data(self, offset: int) -> int:
        """Return ``offset``: nothing is known of what lies behind."""
        return offset

    def sync(self) -> None:
        """Complete the sync issued, or issue and complete one."""
        disk, inode = self._disk, self._inode
        upto = disk.at if inode.begun is None else inode.begun
        inode.begun = None
        if disk.faults.sync(self.name):
            disk.note((LOST, inode.number, upto, 0))
            raise DiskSyncError(f"planned error syncing {self.name}")
        if not disk.faults.lying:
            disk.note((SYNC, inode.number, upto, 0))

    def size(self) -> int:
        """Return the length."""
        return len(self._inode.data)

    def close(self) -> None:
        """Nothing to give back."""


class SimDisk:
    """A disk that writes down what is done to it.

    Args:
        faults: What goes wrong.
        on_write: Told of every write: name of the file, offset, bytes.
        begin: Number of the first operation of the log.
    """

    def __init__(
        self,
        *,
        faults: Faults | None = None,
        on_write: Callable[[str, int, bytes], None] | None = None,
        begin: int = 0,
    ) -> None:
        self.log: list[Op] = []
        self.begin = begin
        self.faults = faults or Faults()
        self.full = False
        self.files: dict[str, Inode] = {}
        self._next_inode = 0
        self._on_write = on_write
        self._names: dict[int, str] = {}
        self._dirty: set[int] = set()

    @property
    def at(self) -> int:
        """The number of the next operation."""
        return self.begin + len(self.log)

    def add(self, name: str, number: int, data: bytes) -> None:
        """Put a file there that an earlier life left."""
        self.files[name] = Inode(number, data)
        self._names[number] = name
        self._next_inode = max(self._next_inode, number + 1)

    def reserve(self, number: int) -> None:
        """Never number a new file below ``number``."""
        self._next_inode = max(self._next_inode, number)

    def _inode(self, name: str) -> Inode:
        inode = Inode(self._next_inode)
        self._next_inode += 1
        self._names[inode.number] = name
        return inode

    def note(self, op: Op) -> None:
        """Write an operation down."""
        self.log.append(op)

    def put(self, inode: Inode, offset: int, data: bytes) -> None:
        """Write into the page cache."""
        held = inode.data
        if offset > len(held):
            held.extend(zeros(offset - len(held)))
        held[offset : offset + len(data)] = data
        self.log.append((WRITE, inode.number, offset, data))
        self._dirty.add(inode.number)
        if self._on_write is not None:
            self._on_write(self._names[inode.number], offset, data)

    def open(self, name: str, *, create: bool = False) -> SimFile:
        """Open a file, or make it."""
        inode = self.files.get(name)
        if inode is None:
            if not create:
                raise FileMissing(f"there is no file {name}")
            inode = self.files[name] = self._inode(name)
            self.log.append((LINK, name, inode.number, 0))
        return SimFile(self, name, inode)

    def names(self, folder: str) -> list[str]:
        """Return the sorted base names in ``folder``."""
        return names_in(self.files, folder)

    def allocate(self, name: str, size: int, *, written: bool = True) -> None:
        """Make a file of zeros, in the steps that a real disk takes."""
        del written
        if self.full or self.faults.allocate(name):
            raise NoSpace(f"no room for {name}")
        if name in self.files:
            self.remove(name)
        if size > self.free_bytes():
            raise NoSpace(f"no room for {size} bytes of {name}")
        inode = self.files[name] = self._inode(name)
        self.log.append((LINK, name, inode.number, 0))
        self.put(inode, 0, zeros(size // _HALF))
        self.put(inode, size // _HALF, zeros(size - size // _HALF))
        self.log.append((SYNC, inode.number, self.at, 0))
        self.sync_folder(name.rpartition("/")[0])

    def rename(self, old: str, new: str) -> None:
        """Rename a file."""
        inode = self.files.pop(old, None)
        if inode is None:
            raise FileMissing(f"there is no file {old}")
        self.files[new] = inode
        self._names[inode.number] = new
        self.log.append((RENAME, old, new, inode.number))

    def remove(self, name: str) -> None:
        """Remove a file."""
        if self.files.pop(name, None) is None:
            raise FileMissing(f"there is no file {name}")
        self.log.append((UNLINK, name, 0, 0))

    def sync_folder(self, folder: str) -> None:
        """Make name changes durable."""
        if not self.faults.lying:
            self.log.append((FOLDER, folder, self.at, 0))

    def write_back(self, folder: str) -> None:
        """The kernel writes back what nobody synced, some time later."""
        start = folder + "/"
        for name in sorted(self.files):
            inode = self.files[name]
            if name.startswith(start) and inode.number in self._dirty:
                self._dirty.discard(inode.number)
                self.log.append((SYNC, inode.number, self.at, 0))
        self.log.append((FOLDER, folder, self.at, 0))

    def free_bytes(self) -> int:
        """Return what is left."""
        if self.full:
            return 0
        return max(0, self.faults.capacity - sum(len(one.data) for one in self.files.values()))

    def total_bytes(self) -> int:
        """Return the size of the volume."""
        return self.faults.capacity

    def size_bytes(self) -> int:
        """Return the same: nothing is reserved."""
        return self.faults.capacity

    def lock(self) -> None:
        """Nobody else is here."""

    def close(self) -> None:
        """Nothing to release."""


class _Cell:
    __slots__ = ("data",)

    def __init__(self, data: bytes | bytearray) -> None:
        self.data = data


class ImageFile:
    """A file of an ``ImageDisk``."""

    __slots__ = ("_cell", "name")

    def __init__(self, name: str, cell: _Cell) -> None:
        self.name = name
        self._cell = cell

    def pwrite(self, data: bytes, offset: int) -> None:
        """Write."""
        cell = self._cell
        held = cell.data
        if isinstance(held, bytes):
            held = cell.data = bytearray(held)
        if offset > len(held):
            held.extend(zeros(offset - len(held)))
        held[offset : offset + len(data)] = data

    def pread(self, length: int, offset: int) -> bytes:
        """Read."""
        return bytes(self._cell.data[offset : offset + length])

    def try_pread(self, length: int, offset: int) -> bytes | None:
        """Read."""
        return bytes(self._cell.data[offset : offset + length])

    def next_data(self, offset: int) -> int:
        """Return ``offset``: nothing is known of what lies behind."""
        return offset

    def sync(self) -> None:
        """Nothing to do."""

    def size(self) -> int:
        """Return the length."""
        return len(self._cell.data)

    def close(self) -> None:
        """Nothing to give back."""


class ImageDisk:
    """The disk after a crash; shares the image's bytes until they are written to."""

    __slots__ = ("cells", "full")

    def __init__(self, files: Mapping[str, bytes], *, full: bool = False) -> None:
        self.cells = {name: _Cell(data) for name, data in files.items()}
        self.full = full

    def image(self) -> dict[str, bytes]:
        """Return what the files hold now."""
        return {name: bytes(cell.data) for name, cell in self.cells.items()}

    def open(self, name: str, *, create: bool = False) -> ImageFile:
        """Open a file, or make it."""
        cell = self.cells.get(name)
        if cell is None:
            if not create:
                raise FileMissing(f"there is no file {name}")
            cell = self.cells[name] = _Cell(b"")
        return ImageFile(name, cell)

    def names(self, folder: str) -> list[str]:
        """Return the sorted base names in ``folder``."""
        return names_in(self.cells, folder)

    def allocate(self, name: str, size: int, *, written: bool = True) -> None:
        """Make a file of zeros."""
        del written
        if self.full:
            raise NoSpace(f"no room for {name}")
        self.cells[name] = _Cell(zeros(size))

    def rename(self, old: str, new: str) -> None:
        """Rename a file."""
        if old not in self.cells:
            raise FileMissing(f"there is no file {old}")
        self.cells[new] = self.cells.pop(old)

    def remove(self, name: str) -> None:
        """Remove a file."""
        if self.cells.pop(name, None) is None:
            raise FileMissing(f"there is no file {name}")

    def sync_folder(self, folder: str) -> None:
        """Nothing to do."""

    def free_bytes(self) -> int:
        """Return plenty, or nothing."""
        return 0 if self.full else CAPACITY

    def total_bytes(self) -> int:
        """Return the size of the volume."""
        return CAPACITY

    def size_bytes(self) -> int:
        """Return the same: nothing is reserved."""
        return CAPACITY

    def lock(self) -> None:
        """Nobody else is here."""

    def close(self) -> None:
        """Nothing to release."""


def names_in(files: Mapping[str, object], folder: str) -> list[str]:
    """Return the sorted base names of the files in a folder."""
    start = folder + "/"
    length = len(start)
    return sorted(
        [name[length:] for name in files if name.startswith(start) and "/" not in name[length:]]
    )
