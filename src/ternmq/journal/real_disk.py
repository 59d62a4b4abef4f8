"""The operating system's files behind the ``Disk`` port: the only module of the core that meets it.

Interrupted calls are repeated by Python itself (PEP 475). A write that comes back short is an
error, not a reason to go on: on preallocated space it means that something is badly wrong.

The next segment is filled with written zeros, not only ``posix_fallocate``d: a write into an extent
that was never written makes the file system convert it, and ``fdatasync`` commits metadata too.
Measured on ext4 (NVMe, 8 KiB writes, each synced): p50 199 us into a fallocated file, 112 us into
a zeroed one; zeroing 64 MiB took 0.2 s, once, in the background. The fallocate before it is kept:
a full disk is found before a byte is written, and the extents are contiguous.
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
"""Zeros are synced in steps of this: one sync of a whole segment would stall the journal's own."""
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_NO_NOWAIT: Final = frozenset({errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL})
# macOS, where only development is claimed to work, has none of these, or not as Linux has them.
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
        """Read what the page cache holds; None if it does not hold all of it."""
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
            self._nowait = False  # this file system cannot tell; waiting is all that is left
            return self.pread(length, offset)
        if count < length and offset + count < self.size():
            return None
        return bytes(buffer) if count == length else bytes(buffer[:count])

    def next_data(self, offset: int) -> int:
        """Return where the next byte is that the file system does not know to be zero."""
        size = self.size()
        if _SEEK_DATA is None or offset >= size:
            return min(offset, size)
        try:
            if not self._asked:
                # What the page cache holds counts as data, be it zeros that were read by accident.
                # Dirty pages stay, and stay data.
                self._asked = True
                os.posix_fadvise(self._fd, offset, 0, os.POSIX_FADV_DONTNEED)
            return os.lseek(self._fd, offset, _SEEK_DATA)
        except OSError as error:
            # ENXIO: nothing but a hole up to the end. Anything else: the file system cannot tell.
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
    """A descriptor that was opened to read."""

    __slots__ = ()

    def pwrite(self, data: bytes, offset: int) -> None:
        """Refuse."""
        raise DiskWriteError(
            f"{self.name} is open for reading only: {len(data)} bytes for byte {offset} refused"
        )


class RealDisk:
    """A folder of the file system.

    Args:
        path: The data root.
        read_only: Files are opened to read and nothing on the disk is ever changed, locked or made;
            whoever else owns the folder goes on undisturbed. False: the root is made if it is not
            there.

    Raises:
        FileMissing: ``read_only``, and there is no such folder.
    """

    def __init__(self, path: str | os.PathLike[str], *, read_only: bool = False) -> None:
        self._root = Path(path)
        self._lock = -1
        self._read_only = read_only
        self.told: Callable[[str, int, int], None] | None = None
        """Told by the thread that allocates: file, bytes made so far, bytes in all."""
        if not read_only:
            self._make_folder(self._root)
        elif not self._root.is_dir():
            raise FileMissing(f"there is no folder {self._root}")

    def open(self, name: str, *, create: bool = False) -> RealFile:
        """Open a file; one that is made here is durable as a name after ``sync_folder``."""
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
        """Make a file of zeros, synced with its folder."""
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
        """Return what an ordinary user may still take of the volume.

        Raises:
            DiskWriteError: The folder is gone, or its volume.
        """
        stat = self._volume()
        return stat.f_bavail * stat.f_frsize

    def total_bytes(self) -> int:
        """Return the size of the volume.

        Raises:
            DiskWriteError: As ``free_bytes``.
        """
        stat = self._volume()
        return stat.f_blocks * stat.f_frsize

    def _volume(self) -> os.statvfs_result:
        try:
            return os.statvfs(self._root)
        except OSError as error:
            raise DiskWriteError(f"asking for the room at {self._root}: {error}") from error

    def lock(self) -> None:
        """Take an exclusive ``flock`` on LOCK; it ends with the process, however that ends."""
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
        """Make a folder, and those above it that are missing; each is durable in the one above."""
        if path.is_dir():
            return
        if path.parent != path:
            self._make_folder(path.parent)
        try:
            path.mkdir(exist_ok=True)
            self._sync_path(path.parent)
        except OSError as error:
            raise DiskError(f"making folder {path}: {error}") from error

    @staticmethod
    def _sync_path(path: Path) -> None:
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def _allocation_error(name: str, error: OSError) -> DiskError:
    """Tell a full disk from a broken one."""
    if error.errno in _FULL:
        return NoSpace(f"no room for {name}: {error}")
    return DiskWriteError(f"allocating {name}: {error}")
