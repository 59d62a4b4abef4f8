"""Joins many small files of the archive into few large ones, so that look-ups read fewer.

Small files of a queue become one file of this queue. Files with rows of several queues become
larger ones, sorted by queue. When a day is over, small files that have no other of their queue
beside them do, too, if there are many. The rows stay; readers see the old files or the new ones.
The old ones stay until they are cleaned up. Archiving, erasing and other compactions may run at the
same time.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Final

import msgspec

from ternmq.model.errors import TableConflict, TableError
from ternmq.pipeline.archive.file import Sizes
from ternmq.pipeline.archive.rewrite import Inside, Place, inside, queue_of, rewritten
from ternmq.pipeline.tables.datafile import DataFile, int_of
from ternmq.pipeline.tables.folder import Folder
from ternmq.pipeline.tables.table import Table

_SORTED_BYTES: Final = 256 << 20
"""Most bytes of columns of files that are sorted in memory, not compressed."""
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
    look = cache_of(partial(inside, table.folder))
    for some in _pieces(groups(table.files(), today, when, sizes, look, topic)):
        for group, told in zip(some, joining(join, some), strict=True):
            _commit(table, group, made(told), done)
    return done


def cache_of(look: Look) -> Look:
    """Return a function that reads each file once."""
    known: dict[str, Inside] = {}

    def looked(one: DataFile) -> Inside:
        if one.path not in known:
            known[one.path] = look(one)
        return known[one.path]

    return looked


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


Look = Callable[[DataFile], Inside]
"""Reads what a file contains."""


def groups(
    files: Iterable[DataFile],
    today: str,
    when: When,
    sizes: Sizes,
    look: Look,
    topic: str | None = None,
) -> Iterator[list[DataFile]]:
    """Yield groups of files to join, each of one day: of one queue, or of any queues.

    In no queue do rows of another file lie between those of a group: so the files of a queue can
    always be read one after the other.
    """
    by_day = sorted(files, key=lambda one: one.partition["day"])
    for day, some in itertools.groupby(by_day, key=lambda one: one.partition["day"]):
        yield from _of_day(list(some), when, sizes, look, topic, over=day < today)


def _of_day(
    files: Sequence[DataFile],
    when: When,
    sizes: Sizes,
    look: Look,
    topic: str | None,
    *,
    over: bool,
) -> Iterator[list[DataFile]]:
    least = when.files_of_past_day if over else when.files
    if sum(one.size < when.small_bytes for one in files) < least:
        return
    order = Order(files, look)
    of_queues: dict[Place, list[DataFile]] = {}
    others: list[DataFile] = []
    for one in files:
        place = queue_of(one)
        if topic is not None and (one.low["topic"], one.high["topic"]) != (topic, topic):
            continue
        if place is not None:
            of_queues.setdefault(place, []).append(one)
        elif one.size < when.small_bytes:
            others.append(one)
    alone: list[DataFile] = []
    for place in sorted(of_queues):
        for group in _adjacent(of_queues[place], when, sizes, order):
            if len(group) >= least:
                yield group
            elif over:
                alone += group
    many = len(alone) >= when.files
    mixed = {place for one in others for place in order.ranges(one)}
    others += [one for one in alone if many or queue_of(one) in mixed]
    # While a day grows, files of similar size are joined: so no row is written often.
    tiers: dict[int, list[DataFile]] = {}
    for one in others:
        tiers.setdefault(0 if over else one.size.bit_length() // _TIER_BITS, []).append(one)
    for tier in sorted(tiers):
        yield from _of_any(tiers[tier], least, when, sizes, order, look)


class Order:
    """The order of the rows of each queue in files.

    Args:
        files: All files of a day.
        look: Reads what a file contains.
    """

    def __init__(self, files: Iterable[DataFile], look: Look) -> None:
        self._ranges: dict[str, Mapping[Place, tuple[int, int]]] = {}
        for one in files:
            place = queue_of(one)
            if place is not None:
                span = int_of(one.low["offset"]), int_of(one.high["offset"])
                self._ranges[one.path] = {place: span}
            else:
                self._ranges[one.path] = look(one).ranges
        starts: dict[Place, list[tuple[int, str]]] = {}
        for path, ranges in self._ranges.items():
            for place, (first, _) in ranges.items():
                starts.setdefault(place, []).append((first, path))
        self._rank = {
            (path, place): rank
            for place, some in starts.items()
            for rank, (_, path) in enumerate(sorted(some))
        }

    def ranges(self, one: DataFile) -> Mapping[Place, tuple[int, int]]:
        """Return the first and the last offset of each queue in a file."""
        return self._ranges[one.path]

    def follows(self, one: DataFile, group: Iterable[DataFile]) -> bool:
        """Return whether no other file has rows between those of a group and of a file."""
        last: dict[Place, int] = {}
        for member in group:
            for place in self._ranges[member.path]:
                rank = self._rank[member.path, place]
                last[place] = max(rank, last.get(place, rank))
        return all(
            place not in last or self._rank[one.path, place] == last[place] + 1
            for place in self._ranges[one.path]
        )


def _adjacent(
    files: Iterable[DataFile], when: When, sizes: Sizes, order: Order
) -> Iterator[list[DataFile]]:
    """Yield groups of adjacent small files of a queue, in order."""
    group: list[DataFile] = []
    for one in sorted(files, key=lambda one: int_of(one.low["offset"])):
        small = one.size < when.small_bytes
        fits = sum(member.rows for member in group) + one.rows <= sizes.file_rows
        if small and fits and order.follows(one, group[-1:]):
            group.append(one)
            continue
        yield group
        group = [one] if small else []
    yield group


def _of_any(
    files: Iterable[DataFile], least: int, when: When, sizes: Sizes, order: Order, look: Look
) -> Iterator[list[DataFile]]:
    """Yield groups of small files of any queues; they are sorted in memory."""
    group: list[DataFile] = []
    raw = 0
    for one in sorted(files, key=lambda one: int_of(one.low["position"])):
        size = look(one).raw
        fits = (
            sum(member.rows for member in group) + one.rows <= sizes.file_rows
            and size_of(group) + one.size <= when.small_bytes
            and raw + size <= _SORTED_BYTES
        )
        if group and not (fits and order.follows(one, group)):
            if len(group) >= least:
                yield group
            group, raw = [], 0
        group.append(one)
        raw += size
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
            f"{table.folder.uri_of(group[0].path)} and the next files have another number of "
            "rows than the table says"
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
