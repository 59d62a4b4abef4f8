"""A disk in memory: for tests, and for the image of a disk at one moment.

Writes are visible at once and ``sync`` does nothing. ``image()`` returns what a crash at this
moment would leave if everything written were kept; tests damage images and open disks on them.
"""

from __future__ import annotations

from collections.abc import Mapping

from ternmq.model.errors import AlreadyRunning, DiskWriteError, FileMissing, NoSpace


class MemoryFile:
    """A file of a ``MemoryDisk``; every opening of a name shares its bytes."""

    __slots__ = ("_data", "_disk", "name")

    def __init__(self, disk: MemoryDisk, name: str, data: bytearray) -> None:
        self._disk = disk
        self._data = data
        self.name = name

    def pwrite(self, data: bytes, offset: int) -> None:
        """Write; a shorter file is first extended with zeros up to ``offset``."""
        held = self._data
        end = offset + len(data)
        grown = end - len(held)
        if grown > 0:
            if grown > self._disk.free_bytes():
                raise DiskWriteError(f"no room to write {len(data)} bytes to {self.name}")
            held.extend(bytes(grown))
        held[offset:end] = data

    def pread(self, length: int, offset: int) -> bytes:
        """Read."""
        return bytes(memoryview(self._data)[offset : offset + length])

    def try_pread(self, length: int, offset: int) -> bytes | None:
        """Read; never returns None, as memory never waits."""
        return bytes(memoryview(self._data)[offset : offset + length])

    def next_data(self, offset: int) -> int:
        """Return ``offset``: memory does not distinguish zeros that were never written."""
        return offset

    def sync(self) -> None:
        """Do nothing: there is nothing behind the memory."""

    def size(self) -> int:
        """Return the length in bytes."""
        return len(self._data)

    def close(self) -> None:
        """Do nothing."""


class MemoryDisk:
    """Files in a dictionary.

    Args:
        image: Files to begin with, by name.
        capacity: Size of the volume in bytes; ``allocate`` and growing writes stay below it.
    """

    def __init__(
        self, image: Mapping[str, bytes] | None = None, *, capacity: int = 1 << 40
    ) -> None:
        self.capacity = capacity
        self._files = {name: bytearray(data) for name, data in (image or {}).items()}
        self._locked = False

    def image(self) -> dict[str, bytes]:
        """Return a copy of every file, by name."""
        return {name: bytes(data) for name, data in self._files.items()}

    def open(self, name: str, *, create: bool = False) -> MemoryFile:
        """Open a file, or make it."""
        data = self._files.get(name)
        if data is None:
            if not create:
                raise FileMissing(f"there is no file {name}")
            data = self._files[name] = bytearray()
        return MemoryFile(self, name, data)

    def names(self, folder: str) -> list[str]:
        """Return the sorted base names in ``folder``."""
        start = folder + "/"
        return sorted(
            name[len(start) :]
            for name in list(self._files)  # another thread may make a file meanwhile
            if name.startswith(start) and "/" not in name[len(start) :]
        )

    def allocate(self, name: str, size: int, *, written: bool = True) -> None:
        """Make a file of zeros."""
        del written  # memory does not distinguish zeros that were never written
        old = self._files.pop(name, None)
        if size > self.free_bytes():
            if old is not None:
                self._files[name] = old
            raise NoSpace(f"no room for {size} bytes of {name}")
        self._files[name] = bytearray(size)

    def rename(self, old: str, new: str) -> None:
        """Rename a file."""
        if old not in self._files:
            raise FileMissing(f"there is no file {old}")
        self._files[new] = self._files.pop(old)

    def remove(self, name: str) -> None:
        """Remove a file; a ``MemoryFile`` that is open keeps its bytes."""
        if self._files.pop(name, None) is None:
            raise FileMissing(f"there is no file {name}")

    def sync_folder(self, folder: str) -> None:
        """Do nothing."""

    def free_bytes(self) -> int:
        """Return the unused bytes of ``capacity``, never less than 0."""
        return max(0, self.capacity - sum(map(len, list(self._files.values()))))

    def total_bytes(self) -> int:
        """Return ``capacity``."""
        return self.capacity

    def size_bytes(self) -> int:
        """Return ``capacity``, too: nothing is reserved."""
        return self.total_bytes()

    def lock(self) -> None:
        """Lock the disk."""
        if self._locked:
            raise AlreadyRunning("this disk is in use")
        self._locked = True

    def close(self) -> None:
        """Release the lock."""
        self._locked = False
