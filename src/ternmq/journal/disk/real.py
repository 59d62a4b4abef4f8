"""The ``Disk`` port on the operating system's files: the only module of the core that uses them.

Interrupted calls are repeated by Python itself (PEP 475). A short write is an error and is not
continued: on preallocated space it means that something is badly wrong.

The next segment is filled with written zeros, not only ``posix_fallocate``d: a write into an extent
that was never written makes the file system convert it, and ``fdatasync`` commits metadata too.
Measured on ext4 (NVMe, 8 KiB writes, each synced): p50 199 us into a fallocated file, 112 us into
a zeroed one; zeroing 64 MiB took 0.2 s, once, in the background. It is fallocated first all the
same: a full disk is found before a byte is written, and the extents are contiguous.
"""

from __future__ import annotations

import errno
import fcntl
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from ternmq.model.errors import (
    AlreadyRunning,
    DiskError,
    DiskReadError,
    DiskSyncError,
    DiskWriteError,
    FileMissing,
    NoSpace,
)

LOCK_NAME: Final = "LOCK"
_ZEROS: Final = bytes(1 << 20)
_SYNC_EVERY_BYTES: Final = 16 << 20
"""Zeros are synced in steps of this: one sync of a whole segment would delay the journal's own
syncs."""
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_NO_NOWAIT: Final = frozenset({errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL})
# macOS, which is supported for development only, lacks these or has other versions of them.
_RWF_NOWAIT: Final = getattr(os, "RWF_NOWAIT", 0)
_datasync: Final = getattr(os, "fdatasync", os.fsync)
_fallocate: Final = getattr(os, "posix_fallocate", None)
_SEEK_DATA: Final = os.SEEK_DATA if sys.platform == "linux" else None


class RealFile:
    """An open descriptor."""

    __slots__ = ("_asked", "_fd", "_nowait", "name")

    def __init__(self, name: str, fd: int) -> None:
        self.name = name
        self._fd = fd
        self._nowait = bool(_RWF_NOWAIT)
        self._asked = False

    def pwrite(self, data: bytes, offset: int) -> None:
        """Write into the page cache."""
        try:
            count = os.pwrite(self._fd, data, offset)
        except OSError as error:
            raise DiskWriteError(f"writing {len(data)} bytes to {self.name}: {error}") from error
        if count != len(data):
            raise DiskWriteError(f"wrote {count} of {len(data)} bytes to {self.name} at {offset}")

    def pread(self, length: int, offset: int) -> bytes:
        """Read; may wait for the disk."""
        try:
            data = os.pread(self._fd, length, offset)
            while data and len(data) < length:
                more = os.pread(self._fd, length - len(data), offset + len(data))
                if not more:
                    break
                data += more
        except OSError as error:
            raise DiskReadError(f"reading {self.name} at {offset}: {error}") from error
        return data

    def try_pread(self, length: int, offset: int) -> bytes | None:
        """Read from the page cache only; None if it does not hold all the bytes."""
        if not self._nowait:
            return self.pread(length, offset)
        buffer = bytearray(length)
        try:
            count = os.preadv(self._fd, [buffer], offset, _RWF_NOWAIT)
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno not in _NO_NOWAIT:
                raise DiskReadError(f"reading {self.name} at {offset}: {error}") from error
            self._nowait = False  # this file system does not support it: only a waiting read works
            return self.pread(length, offset)
        if count < length and offset + count < self.size():
            return None
        return bytes(buffer) if count == length else bytes(buffer[:count])

    def next_data(self, offset: int) -> int:
        """Return the offset of the next byte that the file system does not know to be zero."""
        size = self.size()
        if _SEEK_DATA is None or offset >= size:
            return min(offset, size)
        try:
            if not self._asked:
                # Pages in the page cache count as data, even zeros that were only read; so they are
                # dropped. Dirty pages stay, and still count as data.
                self._asked = True
                os.posix_fadvise(self._fd, offset, 0, os.POSIX_FADV_DONTNEED)
            return os.lseek(self._fd, offset, _SEEK_DATA)
        except OSError as error:
            # ENXIO: only a hole follows, up to the end. Any other error: not supported here.
            return size if error.errno == errno.ENXIO else offset

    def sync(self) -> None:
        """Flush data, and the metadata needed to read it back, to the device."""
        try:
            _datasync(self._fd)
        except OSError as error:
            raise DiskSyncError(f"syncing {self.name}: {error}") from error

    def size(self) -> int:
        """Return the length in bytes."""
        return os.fstat(self._fd).st_size

    def close(self) -> None:
        """Close the descriptor."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class ReadOnlyFile(RealFile):
    """A descriptor opened for reading only."""

    __slots__ = ()

    def pwrite(self, data: bytes, offset: int) -> None:
        """Raise ``DiskWriteError``."""
        raise DiskWriteError(
            f"{self.name} is open for reading only: {len(data)} bytes for byte {offset} refused"
        )


class RealDisk:
    """A folder of the file system.

    Args:
        path: The data root.
        read_only: Files are opened for reading only and nothing on the disk is changed, locked or
            made: a broker that uses the folder is not disturbed. False: the root is made if it does
            not exist.

    Raises:
        FileMissing: ``read_only``, and there is no such folder.
    """

    def __init__(self, path: str | os.PathLike[str], *, read_only: bool = False) -> None:
        self._root = Path(path)
        self._lock = -1
        self._read_only = read_only
        self.told: Callable[[str, int, int], None] | None = None
        """Called by the thread that allocates, with file name, bytes written so far, and size."""
        if not read_only:
            self._make_folder(self._root)
        elif not self._root.is_dir():
            raise FileMissing(f"there is no folder {self._root}")

    def open(self, name: str, *, create: bool = False) -> RealFile:
        """Open a file; the name of one that is made here is durable after ``sync_folder``."""
        path = self._root / name
        if create:
            self._may_write(name)
            self._make_folder(path.parent)
        try:
            if self._read_only:
                return ReadOnlyFile(name, os.open(path, os.O_RDONLY))
            return RealFile(name, os.open(path, os.O_RDWR | (os.O_CREAT if create else 0), 0o640))
        except FileNotFoundError as error:
            raise FileMissing(f"there is no file {name}") from error
        except OSError as error:
            raise DiskError(f"opening {name}: {error}") from error

    def names(self, folder: str) -> list[str]:
        """Return the sorted base names in ``folder``."""
        try:
            return sorted(path.name for path in (self._root / folder).iterdir())
        except FileNotFoundError:
            return []
        except OSError as error:
            raise DiskReadError(f"listing {folder}: {error}") from error

    def allocate(self, name: str, size: int, *, written: bool = True) -> None:
        """Make a file of zeros; sync it and its folder."""
        self._may_write(name)
        path = self._root / name
        self._make_folder(path.parent)
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o640)
        except OSError as error:
            raise _allocation_error(name, error) from error
        try:
            try:
                self._fill(fd, name, size, written=written)
                os.fsync(fd)
            finally:
                os.close(fd)
            self._sync_path(path.parent)
        except OSError as error:
            path.unlink(missing_ok=True)
            raise _allocation_error(name, error) from error

    def _fill(self, fd: int, name: str, size: int, *, written: bool) -> None:
        if _fallocate is not None:
            _fallocate(fd, 0, size)
            if not written:
                return
        for offset in range(0, size, len(_ZEROS)):
            wanted = min(len(_ZEROS), size - offset)
            if os.pwrite(fd, _ZEROS[:wanted], offset) != wanted:
                raise OSError(errno.ENOSPC, "short write of zeros")
            if (offset + wanted) % _SYNC_EVERY_BYTES == 0:
                _datasync(fd)
            elif offset + wanted < size:
                continue
            if self.told is not None:
                self.told(name, offset + wanted, size)

    def rename(self, old: str, new: str) -> None:
        """Rename a file."""
        self._may_write(old)
        self._make_folder((self._root / new).parent)
        try:
            (self._root / old).replace(self._root / new)
        except FileNotFoundError as error:
            raise FileMissing(f"there is no file {old}") from error
        except OSError as error:
            raise DiskError(f"renaming {old} to {new}: {error}") from error

    def remove(self, name: str) -> None:
        """Unlink a file."""
        self._may_write(name)
        try:
            (self._root / name).unlink()
        except FileNotFoundError as error:
            raise FileMissing(f"there is no file {name}") from error
        except OSError as error:
            raise DiskError(f"removing {name}: {error}") from error

    def sync_folder(self, folder: str) -> None:
        """Make the folder's entries durable."""
        try:
            self._sync_path(self._root / folder)
        except OSError as error:
            raise DiskSyncError(f"syncing folder {folder}: {error}") from error

    def free_bytes(self) -> int:
        """Return the bytes of the volume that an ordinary user may still use: ``df``'s Available.

        Raises:
            DiskWriteError: The folder or its volume is missing.
        """
        stat = self._volume()
        return stat.f_bavail * stat.f_frsize

    def total_bytes(self) -> int:
        """Return the bytes of the volume that are used, or that an ordinary user may still use.

        As ``df`` counts for its Use%: blocks that are reserved for another user are neither.

        Raises:
            DiskWriteError: As ``free_bytes``.
        """
        stat = self._volume()
        return (stat.f_blocks - stat.f_bfree + stat.f_bavail) * stat.f_frsize

    def size_bytes(self) -> int:
        """Return the bytes of the volume, as ``df`` shows its Size.

        Raises:
            DiskWriteError: As ``free_bytes``.
        """
        stat = self._volume()
        return stat.f_blocks * stat.f_frsize

    def _volume(self) -> os.statvfs_result:
        try:
            return os.statvfs(self._root)
        except OSError as error:
            raise DiskWriteError(f"reading the free space of {self._root}: {error}") from error

    def lock(self) -> None:
        """Take an exclusive ``flock`` on LOCK; any end of the process releases it."""
        if self._lock >= 0:
            raise AlreadyRunning(f"this process owns {self._root} already")
        self._may_write(LOCK_NAME)
        fd = os.open(self._root / LOCK_NAME, os.O_RDWR | os.O_CREAT, 0o640)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(fd)
            raise AlreadyRunning(f"another process owns {self._root}") from error
        self._lock = fd

    def close(self) -> None:
        """Release the lock."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _may_write(self, name: str) -> None:
        if self._read_only:
            raise DiskWriteError(f"{name}: {self._root} is open for reading only")

    def _make_folder(self, path: Path) -> None:
        """Make a folder and its missing parents; sync each parent, so that the entry is durable."""
        if path.is_dir():
            return
        if path.parent != path:
            self._make_folder(path.parent)
        try:
            path.mkdir(exist_ok=True)
            self._sync_path(path.parent)
        except OSError as error:
            failed = DiskError(f"the folder {path} cannot be made: {error.strerror or error}")
            failed.hint = "name another folder, or create this one for the user of the broker"
            raise failed from error

    @staticmethod
    def _sync_path(path: Path) -> None:
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def _allocation_error(name: str, error: OSError) -> DiskError:
    """Return ``NoSpace`` for a full disk, else ``DiskWriteError``."""
    if error.errno in _FULL:
        return NoSpace(f"no room for {name}: {error}")
    return DiskWriteError(f"allocating {name}: {error}")
