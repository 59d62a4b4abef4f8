"""What the journal needs of a disk: the seam between decisions and the operating system.

Everything below ``journal/`` reaches files through these two protocols. ``RealDisk`` is the
operating system, ``MemoryDisk`` a dictionary, ``FaultyDisk`` another disk that fails on plan; the
simulator brings one whose unsynced writes are lost, kept or torn at a crash.

Names are relative to the data root and use ``/``: ``journal/00000000000000000000.seg``. Folders
come into being with their first file. Nothing here is asynchronous: the shell decides what runs on
the loop (``pwrite`` into the page cache, ``try_pread``) and what in a thread (``sync``,
``allocate``, a ``pread`` that may wait).
"""

from __future__ import annotations

from typing import Protocol


class File(Protocol):
    """An open file, addressed by byte offset; it has no cursor of its own."""

    name: str

    def pwrite(self, data: bytes, offset: int) -> None:
        """Write all of ``data`` at ``offset``; volatile until the next ``sync``.

        Raises:
            DiskWriteError: The write failed or was short; what stands there now is unknown.
        """
        ...

    def pread(self, length: int, offset: int) -> bytes:
        """Read ``length`` bytes at ``offset``; fewer come back only at the end of the file.

        Raises:
            DiskReadError: The disk could not read.
        """
        ...

    def try_pread(self, length: int, offset: int) -> bytes | None:
        """Read like ``pread``, or return None where that would wait for the disk."""
        ...

    def next_data(self, offset: int) -> int:
        """Return where, at ``offset`` or behind it, the first bytes are that may not be zero.

        All bytes before are zeros for sure: space that was allocated and never written. ``offset``
        where nothing is known, the file's size where nothing else follows.
        """
        ...

    def sync(self) -> None:
        """Make every write issued before durable; blocks.

        Raises:
            DiskSyncError: Fatal. A second call may succeed without the data being there, so it
                must never be tried.
        """
        ...

    def size(self) -> int:
        """Return the file's length in bytes."""
        ...

    def close(self) -> None:
        """Give the descriptor back; closing twice is allowed."""
        ...


class Disk(Protocol):
    """A data root: files by relative name."""

    def open(self, name: str, *, create: bool = False) -> File:
        """Open a file for reading and writing; ``create`` makes it, empty, if it is not there.

        Raises:
            FileMissing: It is not there and ``create`` is false.
        """
        ...

    def names(self, folder: str) -> list[str]:
        """Return the sorted base names of the files in ``folder``; empty if there is none."""
        ...

    def allocate(self, name: str, size: int, *, written: bool = True) -> None:
        """Make ``name`` a file of ``size`` zeros, durable with its folder entry; blocks.

        A file that is there under this name is replaced.

        Args:
            name: Of the file.
            size: In bytes.
            written: The zeros are written out, so that a later write and sync moves data only.
                False: the space is taken, which is all that is promised.

        Raises:
            NoSpace: The disk is full; nothing is left behind.
        """
        ...

    def rename(self, old: str, new: str) -> None:
        """Rename, replacing what ``new`` named; durable after ``sync_folder``."""
        ...

    def remove(self, name: str) -> None:
        """Unlink a file; durable after ``sync_folder``.

        Raises:
            FileMissing: It is not there.
        """
        ...

    def sync_folder(self, folder: str) -> None:
        """Make creations, renames and removals in ``folder`` durable; blocks."""
        ...

    def free_bytes(self) -> int:
        """Return how many bytes new files may take."""
        ...

    def total_bytes(self) -> int:
        """Return the size of the volume in bytes."""
        ...

    def lock(self) -> None:
        """Own the data root until ``close``.

        Raises:
            AlreadyRunning: Somebody else does.
        """
        ...

    def close(self) -> None:
        """Release the lock; open files stay usable."""
        ...
