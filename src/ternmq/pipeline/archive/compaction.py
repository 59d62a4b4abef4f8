"""Joins many small files of the archive into few large ones, so that look-ups read fewer.

The rows and their order stay; readers see the old files or the new ones. The old ones stay until
they are cleaned up. Archiving, erasing and other compactions may run at the same time.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from ternmq.model.errors import TableConflict, TableError
from ternmq.pipeline.archive.file import Sizes
from ternmq.pipeline.archive.rewrite import place_of_file, rewritten
from ternmq.pipeline.tables.datafile import DataFile
from ternmq.pipeline.tables.table import Table


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


def compact(
    table: Table,
    now_us: int,
    *,
    when: When | None = None,
    sizes: Sizes | None = None,
    **partition: str,
) -> Compacted:
    """Join small files of the archive; only of one topic or day, if ``partition`` names one.

    Args:
        table: The archive.
        now_us: Now, µs since 1970; decides which days are over.
        when: When files are worth joining.
        sizes: Size limits of files.
        partition: ``topic``, ``day``.
    """
    today = datetime.fromtimestamp(now_us // 1_000_000, UTC).date().isoformat()
    when, sizes = when or When(), sizes or Sizes()
    done = Compacted()
    table.refresh()
    for group in list(groups(table.files(**partition), today, when, sizes)):
        _join(table, group, sizes, done)
    return done


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


def _join(table: Table, group: Sequence[DataFile], sizes: Sizes, done: Compacted) -> None:
    made: list[DataFile] = []
    try:
        made = rewritten(table.folder, group, sizes=sizes)
        rows = _same_rows(table, group, made)
        if not _replaced(table, group, made):
            done.left += 1
            return
    except BaseException:
        table.folder.remove(one.path for one in made)
        raise
    done.before += len(group)
    done.after += len(made)
    done.rows += rows


def _same_rows(table: Table, group: Sequence[DataFile], made: Sequence[DataFile]) -> int:
    rows = sum(one.rows for one in group)
    if sum(one.rows for one in made) != rows:
        raise TableError(
            f"{table.folder.uri_of(group[0].path)} and the files behind it hold other rows than "
            "the table says"
        )
    return rows


def _replaced(table: Table, group: Sequence[DataFile], made: Sequence[DataFile]) -> bool:
    """Replace files in the table; False: they were changed by another process meanwhile."""
    for _ in range(3):
        known = {one.path for one in table.files()}
        if not all(one.path in known for one in group):
            break
        try:
            table.commit(made, group, changes=False)
        except TableConflict:
            continue  # perhaps over other files: the table is read again
        return True
    table.folder.remove(one.path for one in made)
    return False
