"""Joins many small files of the archive into few large ones, so that look-ups read fewer.

The rows and their order stay; readers see the old files or the new ones. The old ones stay until
they are cleaned up. Archiving, erasing and other compactions may run at the same time.
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
from ternmq.pipeline.archive.rewrite import place_of_file, rewritten
from ternmq.pipeline.tables.datafile import DataFile
from ternmq.pipeline.tables.folder import Folder
from ternmq.pipeline.tables.table import Table

_PIECE_BYTES: Final = 4 << 30
"""Size of the files that are joined before the first commit, on Spark's workers."""


@dataclass(slots=True, frozen=True)
class When:
    """When files are worth joining.

    Attributes:
        small_bytes: A file below this size is small.
        files: Least number of adjacent small files of a queue, on a day that is not over.
        files_of_past_day: The same for a day that is over.
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
    **partition: str,
) -> Compacted:
    """Join small files of the archive; only of one topic or day, if ``partition`` names one.

    Each group of files has its own commit. New files of groups that were not committed, because of
    an error or the end of the process, are cleaned up later.

    Args:
        table: The archive.
        now_us: Now, µs since 1970; decides which days are over.
        when: When files are worth joining.
        sizes: Size limits of files.
        joining: Writes the new files; the default writes those of a group just before its commit.
        partition: ``topic``, ``day``.
    """
    today = datetime.fromtimestamp(now_us // 1_000_000, UTC).date().isoformat()
    when, sizes = when or When(), sizes or Sizes()
    done = Compacted()
    table.refresh()
    join = Join(table.folder, sizes)
    for some in _pieces(groups(table.files(**partition), today, when, sizes)):
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
    files: Sequence[DataFile], today: str, when: When, sizes: Sizes
) -> Iterator[list[DataFile]]:
    """Yield groups of files to join: adjacent small ones of a queue and day."""
    ordered = sorted(files, key=_order)
    for (_, day, *_), some in itertools.groupby(ordered, key=lambda one: _order(one)[:4]):
        least = when.files if day >= today else when.files_of_past_day
        group: list[DataFile] = []
        for one in some:
            fits = sum(member.rows for member in group) + one.rows <= sizes.file_rows
            if one.size < when.small_bytes and fits:
                group.append(one)
                continue
            if len(group) >= least:
                yield group
            group = [one] if one.size < when.small_bytes else []
        if len(group) >= least:
            yield group


def _order(one: DataFile) -> tuple[str, str, int, int, int]:
    topic, number, queue = place_of_file(one)
    offset = one.low["offset"]
    assert isinstance(offset, int)
    return topic, one.partition["day"], number, queue, offset


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
