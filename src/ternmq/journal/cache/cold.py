"""A cache of file blocks, and the jobs that read a block when the read would block.

The caller's thread never waits for a disk. ``ColdCache.read`` returns bytes from the cache or by a
read that does not block; otherwise it raises ``WouldBlock`` with a job. A worker thread runs the
job, which reads through a descriptor of its own (so that closing one here can never redirect its
read) and puts the bytes into ``inbox``; then the caller repeats its command, which has had no
effect so far, and finds them.

Threads: ``ColdRead.run`` may be called from any thread; everything else from the caller's only. The
two meet in ``ColdCache.inbox``, a deque (its append and popleft are atomic): no lock, and eviction
happens in one thread.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from google_crc32c import value as crc32c

from ternmq.journal.disk.port import Disk, File
from ternmq.model.errors import DiskError, DiskReadError, FileMissing

DEFAULT_CAPACITY_BYTES: Final = 64 * 1024 * 1024
MAX_FILES: Final = 64
"""Most descriptors that the cache keeps open, so that enough are left for connections."""


class Job(Protocol):
    """Work for a worker thread."""

    def run(self) -> None:
        """Do the work; raises the disk's errors."""


class WouldBlock(Exception):
    """The answer needs the disk: run ``job`` in a worker thread, then repeat the command."""

    def __init__(self, job: Job) -> None:
        super().__init__("a read would block")
        self.job = job


class DamagedBlock(Exception):
    """A block of a cache file does not have the checksum that its header states."""

    def __init__(self, name: str, at: int) -> None:
        super().__init__(f"{name}: byte {at}")
        self.name = name
        self.at = at


@dataclass(slots=True, frozen=True)
class Block:
    """A stretch of a file, read and cached as a whole; if ``crc`` is None, the reader checks it."""

    name: str
    at: int
    length: int
    crc: int | None = None


class ColdRead:
    """Reads blocks of one file, waiting for the disk, and puts them into the cache's ``inbox``.

    The first block is the one that is needed; those behind it are likely to be needed next.
    """

    __slots__ = ("blocks", "cache")

    def __init__(self, cache: ColdCache, blocks: Sequence[Block]) -> None:
        self.cache = cache
        self.blocks = blocks

    def run(self) -> None:
        """Read the blocks. If the file is missing, the repeated command reports that.

        Raises:
            DiskReadError: The first block cannot be read, or the file ends in it.
        """
        cache = self.cache
        name = self.blocks[0].name
        try:
            file = cache.disk.open(name)
        except FileMissing:
            cache.inbox.append((self.blocks[0], None))
            return
        except DiskReadError:
            raise
        except DiskError as error:
            raise DiskReadError(f"reading {name}: {error}") from error
        try:
            for block in self.blocks:
                try:
                    data = _read(file, block)
                except DiskReadError:
                    if block is self.blocks[0]:
                        raise
                    return  # a block read ahead: the error is raised when it is needed
                cache.inbox.append((block, data))
        finally:
            file.close()


def _read(file: File, block: Block) -> bytes:
    data = file.pread(block.length, block.at)
    if len(data) < block.length:
        raise DiskReadError(f"{block.name} ends at byte {block.at + len(data)}")
    return data


_T = TypeVar("_T")


def waiting(ask: Callable[[], _T]) -> _T:
    """Return the result of ``ask``, running here the jobs that it needs: for tools and tests."""
    while True:
        try:
            return ask()
        except WouldBlock as blocked:
            blocked.job.run()


class ColdCache:
    """A cache of file blocks and of the descriptors to read them; drops the least recently used.

    ``capacity_bytes`` must exceed what one command reads, or the repeated command would never find
    all of its blocks.
    """

    def __init__(
        self,
        disk: Disk,
        *,
        capacity_bytes: int = DEFAULT_CAPACITY_BYTES,
        max_files: int = MAX_FILES,
    ) -> None:
        self.disk = disk
        self.inbox: deque[tuple[Block, bytes | None]] = deque()
        self.bytes = 0
        self._capacity = capacity_bytes
        self._max_files = max_files
        self._blocks: OrderedDict[tuple[str, int], bytes] = OrderedDict()
        self._files: OrderedDict[str, File] = OrderedDict()
        self._damaged: set[tuple[str, int]] = set()
        """Blocks that a job read with a wrong checksum, until ``read`` raises ``DamagedBlock``."""
        self._failed: dict[tuple[str, int], str] = {}
        """Blocks that could not be read, with the reason: ``read`` raises it until ``forgive``."""

    def kept(self, name: str, at: int, need: int) -> bytes | None:
        """Return the cached block at ``at`` if it has ``need`` bytes; the fast form of ``read``."""
        if self.inbox:
            self._drain()
        key = (name, at)
        data = self._blocks.get(key)
        if data is None or len(data) < need:
            return None
        self._blocks.move_to_end(key)
        return data

    def read(self, block: Block, need: int | None = None) -> bytes:
        """Return the bytes of a block, or its beginning if that is cached and has ``need`` bytes.

        Raises:
            WouldBlock: The block is not in memory.
            DamagedBlock: Its checksum is wrong.
            DiskReadError: It could not be read a moment ago; see ``fail``.
            FileMissing: There is no such file.
        """
        data = self.kept(block.name, block.at, block.length if need is None else need)
        if data is not None:
            return data
        key = (block.name, block.at)
        if key in self._damaged:
            self._damaged.discard(key)
            raise DamagedBlock(block.name, block.at)
        if key in self._failed:
            raise DiskReadError(self._failed[key])
        data = self._file(block.name).try_pread(block.length, block.at)
        if data is None or len(data) < block.length:
            raise WouldBlock(ColdRead(self, [block]))
        if block.crc is not None and crc32c(data) != block.crc:
            raise DamagedBlock(block.name, block.at)
        self._keep(key, data)
        return data

    def fail(self, block: Block, why: str) -> None:
        """Make ``read`` of a block raise ``DiskReadError`` with this reason, until ``forgive``."""
        self._failed[block.name, block.at] = why

    def forgive(self, block: Block) -> None:
        """Let the next ``read`` of a block try the disk again."""
        self._failed.pop((block.name, block.at), None)

    def forget(self, name: str) -> None:
        """Drop the file's blocks and descriptor: it was removed or replaced."""
        file = self._files.pop(name, None)
        if file is not None:
            file.close()
        self._damaged = {key for key in self._damaged if key[0] != name}
        self._failed = {key: why for key, why in self._failed.items() if key[0] != name}
        for key in [key for key in self._blocks if key[0] == name]:
            self.bytes -= len(self._blocks.pop(key))

    def close(self) -> None:
        """Close every descriptor and drop every block."""
        for file in self._files.values():
            file.close()
        self._files.clear()
        self._blocks.clear()
        self.inbox.clear()
        self.bytes = 0

    def _drain(self) -> None:
        while self.inbox:
            block, data = self.inbox.popleft()
            if data is None:
                self.forget(block.name)
            elif block.crc is None or crc32c(data) == block.crc:
                self._keep((block.name, block.at), data)
            else:
                self._damaged.add((block.name, block.at))

    def _keep(self, key: tuple[str, int], data: bytes) -> None:
        blocks = self._blocks
        old = blocks.pop(key, None)
        if old is not None:
            self.bytes -= len(old)
        blocks[key] = data
        self.bytes += len(data)
        while self.bytes > self._capacity and len(blocks) > 1:
            self.bytes -= len(blocks.popitem(last=False)[1])

    def _file(self, name: str) -> File:
        files = self._files
        file = files.get(name)
        if file is not None:
            files.move_to_end(name)
            return file
        file = files[name] = self.disk.open(name)
        if len(files) > self._max_files:
            files.popitem(last=False)[1].close()
        return file
