"""Opening a run: its file is read straight from the disk, whole sections at a time.

All of it blocks: for worker threads and the start. Look-ups read a run block by block through the
cold cache instead (`run`); merging reads runs completely (`run_content`).
"""

from __future__ import annotations

from array import array
from typing import Final

from google_crc32c import value as crc32c

from ternmq.journal.cache.cold import ColdCache
from ternmq.journal.disk.port import File
from ternmq.journal.index import idx_file
from ternmq.journal.index.idx_file import Head, Section, StaleRun
from ternmq.journal.index.run import Run

_FIRST_READ_BYTES: Final = 16 * 1024
_KEY_BYTES: Final = 8
"""Size of the key with which each row of QUEUES begins."""


def read_section(file: File, head: Head, number: int) -> bytes:
    """Return a whole section, checked. Blocks; for worker threads and the start.

    Raises:
        StaleRun: The section is damaged.
        DiskError: The file could not be read.
    """
    section: Section = head.sections[number]
    data = file.pread(section.length, section.offset)
    if len(data) < section.length:
        raise StaleRun(f"{file.name} ends at byte {section.offset + len(data)}")
    for index, at in enumerate(range(0, section.length, section.block_bytes)):
        crc = crc32c(data[at : at + section.block_bytes])
        if crc != head.block_crcs[section.first_block + index]:
            raise StaleRun(f"{file.name}: damaged at byte {section.offset + at}")
    return data


def read_head(file: File) -> Head:
    """Return the head of a run file. Blocks.

    Raises:
        StaleRun: The file is damaged, of another version, or shorter than its head states.
        DiskError: The file could not be read.
    """
    data = file.pread(_FIRST_READ_BYTES, 0)
    length = idx_file.head_length(data)
    if length > len(data):
        if length > file.size():
            raise StaleRun(f"{file.name} is shorter than its head")
        data = file.pread(length, 0)
    head = Head.decode(data)
    if file.size() < head.file_length:
        raise StaleRun(f"{file.name} is shorter than it says")
    return head


def open_run(cache: ColdCache, file: File, head: Head) -> tuple[Run, bytes]:
    """Return the run of a file whose head was read, and its section QUEUES. Blocks.

    Raises:
        StaleRun: The file is damaged.
        DiskError: The file could not be read.
    """
    queues = read_section(file, head, idx_file.QUEUES)
    words = head.sections[idx_file.QUEUES].block_bytes // _KEY_BYTES
    lines = idx_file.LINES.unpack(read_section(file, head, idx_file.BLOOMS))
    run = Run(
        cache,
        file.name,
        head,
        memoryview(array("Q", memoryview(queues).cast("Q")[::words])),
        memoryview(read_section(file, head, idx_file.FENCES)).cast("Q"),
        lines,
        memoryview(read_section(file, head, idx_file.SUMS)).cast("Q"),
    )
    return run, queues
