"""A disk that wraps another one and fails as planned.

    disk = FaultyDisk(MemoryDisk(), [Fault("sync", 3, "drop")])

fails the third sync. The kinds of faults:

* ``eio``: the call raises and does nothing: no byte of a write is there.
* ``short``: half of the write is done, then the call raises.
* ``late``: the call is done completely, then raises. The worst case for code that tries again.
* ``full``: an allocation raises ``NoSpace``; a write raises as if there were no space.
* ``drop``: a sync raises and everything written to the file since its last good sync is lost, as
  a page cache drops dirty pages that could not be written; the next sync succeeds.

Every call is counted, whether it fails or not, so that a test can run a workload once to count its
writes and syncs and then make each of them fail in turn.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from ternmq.journal.disk.port import Disk, File
from ternmq.model.errors import (
    DiskError,
    DiskReadError,
    DiskSyncError,
    DiskWriteError,
    NoSpace,
)

Call = Literal["write", "read", "sync", "allocate", "remove", "rename", "sync_folder", "open"]
Kind = Literal["eio", "short", "late", "full", "drop"]

_ERRORS: dict[Call, type[DiskError]] = {
    "write": DiskWriteError,
    "read": DiskReadError,
    "sync": DiskSyncError,
    "sync_folder": DiskSyncError,
    "allocate": DiskWriteError,
}


@dataclass(slots=True, frozen=True)
class Fault:
    """A plan that the ``number``-th call (from 1) of the kind ``call`` fails."""

    call: Call
    number: int
    kind: Kind = "eio"


class FaultyFile:
    """A file of a ``FaultyDisk``."""

    __slots__ = ("_disk", "_inner", "name")

    def __init__(self, disk: FaultyDisk, inner: File) -> None:
        self.name = inner.name
        self._disk = disk
        self._inner = inner

    def pwrite(self, data: bytes, offset: int) -> None:
        """Write, or fail."""
        kind = self._disk.count("write")
        if kind in ("eio", "full", "drop"):
            raise DiskWriteError(f"planned {kind} writing {self.name}")
        done = data[: len(data) // 2] if kind == "short" else data
        before = self._inner.pread(len(done), offset)
        self._disk.unsynced.setdefault(self.name, []).append((offset, before))
        self._inner.pwrite(done, offset)
        if kind is not None:
            raise DiskWriteError(f"planned {kind} write to {self.name}")

    def pread(self, length: int, offset: int) -> bytes:
        """Read, or fail."""
        self._disk.check("read", self.name)
        return self._inner.pread(length, offset)

    def try_pread(self, length: int, offset: int) -> bytes | None:
        """Read, or fail."""
        self._disk.check("read", self.name)
        return self._inner.try_pread(length, offset)

    def next_data(self, offset: int) -> int:
        """Return the inner file's answer."""
        return self._inner.next_data(offset)

    def sync(self) -> None:
        """Sync, or fail."""
        kind = self._disk.count("sync")
        if kind == "drop":
            for offset, before in reversed(self._disk.unsynced.pop(self.name, [])):
                self._inner.pwrite(before, offset)
        elif kind in (None, "late"):
            self._inner.sync()
            self._disk.unsynced.pop(self.name, None)
        if kind is not None:
            raise DiskSyncError(f"planned {kind} syncing {self.name}")

    def size(self) -> int:
        """Return the length in bytes."""
        return self._inner.size()

    def close(self) -> None:
        """Close."""
        self._inner.close()


class FaultyDisk:
    """A disk whose calls fail as planned.

    Attributes:
        counts: Number of calls made, by kind of call.
        fired: The faults that happened, in order.
        unsynced: By file, (offset, bytes before) of each write since the file's last good sync.

    Args:
        inner: The disk that does the work.
        plan: The faults.
    """

    def __init__(self, inner: Disk, plan: Iterable[Fault] = ()) -> None:
        self.counts: Counter[Call] = Counter()
        self.fired: list[Fault] = []
        self.unsynced: dict[str, list[tuple[int, bytes]]] = {}
        self._inner = inner
        self._plan: dict[tuple[Call, int], Fault] = {}
        self.plan(plan)

    def plan(self, faults: Iterable[Fault]) -> None:
        """Add faults; their numbers count all calls, also those made before this one."""
        self._plan.update({(fault.call, fault.number): fault for fault in faults})

    def count(self, call: Call) -> Kind | None:
        """Count a call; return the kind of its fault, None if it does not fail."""
        self.counts[call] += 1
        fault = self._plan.get((call, self.counts[call]))
        if fault is None:
            return None
        self.fired.append(fault)
        return fault.kind

    def check(self, call: Call, name: str) -> None:
        """Count a call, and raise if it is to fail: it then does nothing."""
        kind = self.count(call)
        if kind is not None:
            raise _ERRORS.get(call, DiskError)(f"planned {kind} in {call} of {name}")

    def open(self, name: str, *, create: bool = False) -> FaultyFile:
        """Open, or fail."""
        self.check("open", name)
        return FaultyFile(self, self._inner.open(name, create=create))

    def names(self, folder: str) -> list[str]:
        """Return the names; never fails."""
        return self._inner.names(folder)

    def allocate(self, name: str, size: int, *, written: bool = True) -> None:
        """Allocate, or fail."""
        kind = self.count("allocate")
        if kind == "full":
            raise NoSpace(f"planned full disk allocating {name}")
        if kind == "short":
            # As after a crash in the middle: a file of a wrong size.
            self._inner.open(name, create=True).pwrite(bytes(size // 2), 0)
        elif kind in (None, "late"):
            self._inner.allocate(name, size, written=written)
        if kind is not None:
            raise DiskWriteError(f"planned {kind} allocating {name}")

    def rename(self, old: str, new: str) -> None:
        """Rename, or fail."""
        self.check("rename", old)
        self._inner.rename(old, new)

    def remove(self, name: str) -> None:
        """Remove, or fail."""
        self.check("remove", name)
        self._inner.remove(name)

    def sync_folder(self, folder: str) -> None:
        """Sync the folder, or fail."""
        self.check("sync_folder", folder)
        self._inner.sync_folder(folder)

    def free_bytes(self) -> int:
        """Return the inner disk's free bytes."""
        return self._inner.free_bytes()

    def total_bytes(self) -> int:
        """Return the inner disk's used and free bytes."""
        return self._inner.total_bytes()

    def size_bytes(self) -> int:
        """Return the inner disk's size."""
        return self._inner.size_bytes()

    def lock(self) -> None:
        """Lock the inner disk."""
        self._inner.lock()

    def close(self) -> None:
        """Close the inner disk."""
        self._inner.close()
