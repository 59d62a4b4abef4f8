"""Joins many small files of the archive into few large ones, so that look-ups read fewer.

Small files of a queue become one file of this queue. Files with rows of several queues become
larger ones, sorted by queue. When a day is over, small files that have no other of their queue
beside them do, too, if there are many. The rows stay; readers see the old files or the new ones.
The old ones stay until they are cleaned up. Archiving, erasing and other compactions may run at the
same time.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import msgspec

from ternmq.model.errors import TableConflict, TableError
from ternmq.pipeline.archive.file import Sizes
from ternmq.pipeline.archive.rewrite import queue_of, rewritten
from ternmq.pipeline.tables.datafile import DataFile, int_of
from ternmq.pipeline.tables.folder import Folder
from ternmq.pipeline.tables.table import Table

_TIER_BITS: Final = 4
"""Files of several queues are of similar size if it differs by less than a factor of 16."""
_PIECE_BYTES: Final = 4 << 30
"""Size of the files that are joined before the first commit, on Spark's workers."""


@dataclass(slots=True, frozen=True)
class When:
    """When files are worth joining.

    Attributes:
        small_bytes: A file below this size is small; files of several queues are joined up to it.
        files: Least number of small files of a queue, or of several, on a day that is not over; and
            of files that are the only small one of their queue, on a day that is over.
        files_of_past_day: Least number of small files of a queue, or of several, on a day that is
            over.
    """

    small_bytes: int = 64 << 20
    files: int = 16
    files_of_past_day: int = 2


@dataclass(slots=True)
class Compacted:
    """The result of a compaction.

    Attributes:
        before: Files replaced.
        after: Files that replace them.
        rows: Rows in these files.
        left: Groups of files that changed meanwhile; left to the next run.
    """

    before: int = 0
    after: int = 0
    rows: int = 0
    left: int = 0


@dataclass(slots=True, frozen=True)
class Join:
    """Writes the rows of a group of files into new ones; may be called by any process.

    Attributes:
        folder: Folder of the archive.
        sizes: Size limits of the new files.
    """

    folder: Folder
    sizes: Sizes

    def __call__(self, group: Sequence[DataFile]) -> bytes:
        """Return the descriptions of the new files; ``made`` reads them."""
        return msgspec.json.encode(rewritten(self.folder, group, sizes=self.sizes))


def made(told: bytes) -> list[DataFile]:
    """Return the files that a ``Join`` describes."""
    return msgspec.json.decode(told, type=list[DataFile])


Joining = Callable[[Join, Sequence[Sequence[DataFile]]], Iterable[bytes]]
"""Calls a ``Join`` for each of several groups; gives the results in their order."""


def compact(
    table: Table,
    now_us: int,
    *,
    when: When | None = None,
    sizes: Sizes | None = None,
    joining: Joining = map,
    topic: str | None = None,
) -> Compacted:
    """Join small files of the archive; only those with rows of nothing but a topic, if it is given.

    Each group of files has its own commit. New files of groups that were not committed, because of
    an error or the end of the process, are cleaned up later.

    Args:
        table: The archive.
        now_us: Now, µs since 1970; decides which days are over.
        when: When files are worth joining.
        sizes: Size limits of files.
        joining: Writes the new files; the default writes those of a group just before its commit.
        topic: Name of the topic.
    """
    today = datetime.fromtimestamp(now_us // 1_000_000, UTC).date().isoformat()
    when, sizes = when or When(), sizes or Sizes()
    done = Compacted()
    table.refresh()
    join = Join(table.folder, sizes)
    files = [
        one
        for one in table.files()
        if topic is None or (one.low["topic"], one.high["topic"]) == (topic, topic)
    ]
    for some in _pieces(groups(files, today, when, sizes)):
        for group, told in zip(some, joining(join, some), strict=True):
            _commit(table, group, made(told), done)
    return done


def _pieces(chosen: Iterable[list[DataFile]]) -> Iterator[list[list[DataFile]]]:
    """Yield some groups at a time, so that an interruption loses the work of a few only."""
    some: list[list[DataFile]] = []
    size = 0
    for group in chosen:
        some.append(group)
        size += size_of(group)
        if size >= _PIECE_BYTES:
            yield some
            some, size = [], 0
    if some:
        yield some


def size_of(files: Iterable[DataFile]) -> int:
    """Return the size of files together, in bytes."""
    return sum(one.size for one in files)


def groups(
    files: Iterable[DataFile], today: str, when: When, sizes: Sizes
) -> Iterator[list[DataFile]]:
    """Yield groups of files to join, each of one day: of one queue, or of any queues."""
    by_day = sorted(files, key=lambda one: one.partition["day"])
    for day, some in itertools.groupby(by_day, key=lambda one: one.partition["day"]):
        over = day < today
        least = when.files_of_past_day if over else when.files
        of_queues: dict[tuple[str, int, int], list[DataFile]] = {}
        others: list[DataFile] = []
        alone: list[DataFile] = []
        for one in some:
            place = queue_of(one)
            if place is not None:
                of_queues.setdefault(place, []).append(one)
            elif one.size < when.small_bytes:
                others.append(one)
        for place in sorted(of_queues):
            for group in _adjacent(of_queues[place], when, sizes):
                if len(group) >= least:
                    yield group
                elif over:
                    alone += group
        if len(alone) >= when.files:
            others += alone
        # While a day grows, files of similar size are joined: so no row is written often.
        tiers: dict[int, list[DataFile]] = {}
        for one in others:
            tiers.setdefault(0 if over else one.size.bit_length() // _TIER_BITS, []).append(one)
        for tier in sorted(tiers):
            yield from _of_any(tiers[tier], least, when, sizes)


def _adjacent(files: Iterable[DataFile], when: When, sizes: Sizes) -> Iterator[list[DataFile]]:
    """Yield groups of adjacent small files of a queue, in order."""
    group: list[DataFile] = []
    for one in sorted(files, key=lambda one: int_of(one.low["offset"])):
        small = one.size < when.small_bytes
        if small and sum(member.rows for member in group) + one.rows <= sizes.file_rows:
            group.append(one)
            continue
        yield group
        group = [one] if small else []
    yield group


def _of_any(
    files: Sequence[DataFile], least: int, when: When, sizes: Sizes
) -> Iterator[list[DataFile]]:
    """Yield groups of small files of any queues; they are sorted in memory."""
    group: list[DataFile] = []
    for one in sorted(files, key=lambda one: int_of(one.low["position"])):
        fits = sum(member.rows for member in group) + one.rows <= sizes.file_rows
        if group and not (fits and size_of(group) + one.size <= when.small_bytes):
            if len(group) >= least:
                yield group
            group = []
        group.append(one)
    if len(group) >= least:
        yield group


def _commit(
    table: Table, group: Sequence[DataFile], new: Sequence[DataFile], done: Compacted
) -> None:
    try:
        rows = _same_rows(table, group, new)
        if not _replaced(table, group, new):
            done.left += 1
            return
    except BaseException:
        table.folder.remove(one.path for one in new)
        raise
    done.before += len(group)
    done.after += len(new)
    done.rows += rows


def _same_rows(table: Table, group: Sequence[DataFile], new: Sequence[DataFile]) -> int:
    rows = sum(one.rows for one in group)
    if sum(one.rows for one in new) != rows:
        raise TableError(
            f"{table.folder.uri_of(group[0].path)} and the files behind it hold other rows than "
            "the table says"
        )
    return rows


def _replaced(table: Table, group: Sequence[DataFile], new: Sequence[DataFile]) -> bool:
    """Replace files in the table; False: they were changed by another process meanwhile."""
    for _ in range(3):
        known = {one.path for one in table.files()}
        if not all(one.path in known for one in group):
            break
        try:
            table.commit(new, group, changes=False)
        except TableConflict:
            continue  # perhaps over other files: the table is read again
        return True
    table.folder.remove(one.path for one in new)
    return False
