"""Reading the whole content of run files and tails as columns, to merge or compare them.

All of it blocks: for worker threads and the checker.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ternmq.journal.disk.port import Disk
from ternmq.journal.index import idx_file
from ternmq.journal.index.columns import (
    BATCH,
    BODY,
    DECISION,
    ID,
    KEY,
    MASK,
    MOVED,
    MOVED_ID,
    PRODUCER,
    QUEUE,
    RESOLVED,
    Columns,
    merge,
    of_tail,
)
from ternmq.journal.index.idx_file import StaleRun
from ternmq.journal.index.run import Rebuild, Run, Source
from ternmq.journal.index.run_file import read_section
from ternmq.journal.index.tail import Tail
from ternmq.model.errors import FileMissing


def content(disk: Disk, sources: Sequence[Source], rebuild: Rebuild) -> Columns:
    """Return the content of one segment's sources, given in the order of the journal. Blocks.

    If a run file is damaged or missing, its stretch of the journal is read instead.

    Raises:
        CorruptJournal: The journal had to be read and is damaged.
        DiskError: The disk could not read.
    """
    parts: list[Columns] = []
    for one in sources:
        if isinstance(one, Tail):
            parts.append(of_tail(one))
            continue
        try:
            parts.append(read_columns(disk, one))
        except (StaleRun, FileMissing):
            parts.append(of_tail(rebuild(one.start, one.stop)))
    return merge(parts)


def read_columns(disk: Disk, run: Run) -> Columns:
    """Return the whole content of a run file. Blocks.

    Raises:
        StaleRun: The file is damaged.
        DiskError: The file could not be read.
    """
    head = run.head
    file = disk.open(run.name)
    try:
        return Columns(
            np.frombuffer(read_section(file, head, idx_file.QUEUES), QUEUE),
            np.frombuffer(read_section(file, head, idx_file.BATCHES), BATCH),
            np.frombuffer(read_section(file, head, idx_file.MASKS), MASK),
            np.frombuffer(read_section(file, head, idx_file.BODIES), BODY),
            np.frombuffer(read_section(file, head, idx_file.PRODUCERS), PRODUCER),
            np.frombuffer(read_section(file, head, idx_file.KEYS), KEY),
            np.frombuffer(read_section(file, head, idx_file.IDS), ID),
            np.frombuffer(read_section(file, head, idx_file.MOVED), MOVED),
            np.frombuffer(read_section(file, head, idx_file.MOVED_IDS), MOVED_ID),
            np.frombuffer(read_section(file, head, idx_file.RESOLVED), RESOLVED),
            np.frombuffer(read_section(file, head, idx_file.DECISIONS), DECISION),
            head.first_time_us,
            head.last_time_us,
        )
    finally:
        file.close()
