"""The disk port: all that the journal needs of files, as Protocols.

All code in ``journal/`` uses files through these two protocols. ``RealDisk`` is the operating
system, ``MemoryDisk`` a dictionary, ``FaultyDisk`` wraps another disk and fails as planned; the
simulator has one whose unsynced writes are lost, kept or torn at a crash.

Names are relative to the data root and use ``/``: ``journal/00000000000000000000.seg``. A folder is
created with its first file. Nothing here is asynchronous: the server decides what runs on the loop
(``pwrite`` into the page cache, ``try_pread``) and what in a thread (``sync``, ``allocate``, a
``pread`` that may wait).
"""

from __future__ import annotations

from typing import Protocol


class File(Protocol):
    """An open file, addressed by byte offset; it has no cursor of its own."""

    name: str

    def pwrite(self, data: bytes, offset: int) -> None:
        """Write all of ``data`` at ``offset``; volatile until the next ``sync``.

        Raises:
            DiskWriteError: The write failed or was short; the bytes there are now unknown.
        """
        ...

    def pread(self, length: int, offset: int) -> bytes:
        """Read ``length`` bytes at ``offset``; fewer are returned only at the end of the file.

        Raises:
            DiskReadError: The disk could not read.
        """
        ...

    def try_pread(self, length: int, offset: int) -> bytes | None:
        """Read like ``pread``, or return None where that would wait for the disk."""
        ...

    def next_data(self, offset: int) -> int:
        """Return the first byte offset, from ``offset`` on, that may hold a byte that is not zero.

        All bytes between are certainly zeros: space that was allocated and never written. Returns
        ``offset`` if nothing is known, and the file's size if only such zeros follow.
        """
        ...

    def sync(self) -> None:
        """Make every earlier write durable; blocks.

        Raises:
            DiskSyncError: Fatal. A second call may succeed although the data was lost, so it must
                never be tried.
        """
        ...

    def size(self) -> int:
        """Return the file's length in bytes."""
        ...

    def close(self) -> None:
        """Close the descriptor; closing twice is allowed."""
        ...


class Disk(Protocol):
    """A data root: files by relative name."""

    def open(self, name: str, *, create: bool = False) -> File:
        """Open a file for reading and writing; ``create`` makes an empty one if there is none.

        Raises:
            FileMissing: There is no such file and ``create`` is false.
        """
        ...

    def names(self, folder: str) -> list[str]:
        """Return the sorted base names of the files in ``folder``; empty if there is none."""
        ...

    def allocate(self, name: str, size: int, *, written: bool = True) -> None:
        """Make ``name`` a file of ``size`` zeros, durable with its folder entry; blocks.

        An existing file of this name is replaced.

        Args:
            name: Name of the file.
            size: Size in bytes.
            written: The zeros are written out, so that a later write and sync moves data only.
                False: only the space is reserved.

        Raises:
            NoSpace: The disk is full; no file is left behind.
        """
        ...

    def rename(self, old: str, new: str) -> None:
        """Rename a file, replacing ``new`` if it exists; durable after ``sync_folder``."""
        ...

    def remove(self, name: str) -> None:
        """Unlink a file; durable after ``sync_folder``.

        Raises:
            FileMissing: There is no such file.
        """
        ...

    def sync_folder(self, folder: str) -> None:
        """Make creations, renames and removals in ``folder`` durable; blocks."""
        ...

    def free_bytes(self) -> int:
        """Return the number of bytes that new files may take, ``df``'s Available."""
        ...

    def total_bytes(self) -> int:
        """Return the used and free bytes together: without what is reserved for others."""
        ...

    def size_bytes(self) -> int:
        """Return the size of the volume in bytes, ``df``'s Size: with what is reserved."""
        ...

    def lock(self) -> None:
        """Lock the data root until ``close``.

        Raises:
            AlreadyRunning: Another process has locked it.
        """
        ...

    def close(self) -> None:
        """Release the lock; open files stay usable."""
        ...
