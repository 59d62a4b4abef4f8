"""Files of the trace that many small queues share.

A queue of which a pass writes few rows would make files with a few rows each, and a thousand such
queues a thousand files. So these rows go together into files that several queues share:

* Rows that are *open* and belong to a group: they will change soon. Such a file has at most
  ``OPEN_ROWS`` rows.
* *Quiet* rows: those that are over, and those of messages that no group receives. They hardly ever
  change, so such a file may be large.

Rows that change are *dropped* from their shared file, and written with the other rows of their
pass; so are all open rows that their queue has in this file. The pass that commits replaces each
shared file from which rows are dropped by one with the rows that stay (``settle``). If all queues
are busy, nothing stays: about as many rows are written as changed. If one queue of many wakes up, a
pass writes at most ``OPEN_ROWS`` unchanged rows for each file of open rows, fewer than a block of
open rows of one queue has; and a file of quiet rows has at most as many as a block. From then on,
the rows of this queue are elsewhere: rows that stay are not mixed with rows that changed. Rejected:
a file of open rows for each queue, since that is a thousand files again; and rows that are marked
as deleted (Delta's deletion vectors), since the library that writes the log does not offer them.

Workers fold the cells of many queues at the same time, and a shared file belongs to none of them.
Therefore a fold only says what to drop, and one process replaces the files.

``sharedfiles`` reads them: open rows of the offsets that events are about (``reach``), and quiet
rows only if the events need them. So a backlog is not read again in each pass. A queue
that writes many rows has files of its own (``blocks``), and so has one that is the only small one.
Whether a file is shared is seen from its bounds.

Short rounds make small files, so files of like size are joined when an hour has ``MOST_SMALL`` of
them: those with 1 to 15 rows, with 16 to 255, and so on, up to a quarter of what a file may have.
Joining makes a file of the next size, so a row is written again at most once for each size. A file
that is large enough is never joined. The pass that commits does this, not the job ``compaction``:
a commit of the one would make that of the other fail.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ternmq.pipeline.tables.datafile import DataFile, parts
from ternmq.pipeline.tables.numbers import NULL, numbers
from ternmq.pipeline.tables.table import Table
from ternmq.pipeline.trace import blocks
from ternmq.pipeline.trace.blocks import layers
from ternmq.pipeline.trace.schema import TRACE

SMALL_QUEUE = 1024
"""A queue of which a pass writes fewer rows shares files."""
OPEN_ROWS = 4096
"""Most rows of a shared file of open rows: as many take about as long to write as three files."""
QUIET_ROWS = 65_536
"""Most rows of a shared file of quiet rows."""
AT_ONCE_ROWS = 262_144
"""Rows of small queues that are in memory at a time, before they are written: some 150 MB."""
FILE: Final = "file"
"""Column that is added to rows of shared files: the path of the file."""
_KEY: Final = ("topic_number", "queue", "offset", "group_number")
_ORDER: Final = [(name, "ascending") for name in _KEY]
DROPPED: Final = pa.schema([(FILE, pa.string()), *[TRACE.schema.field(name) for name in _KEY]])
"""Rows that are dropped from shared files: the file, and what identifies the row."""
SHARED: Final = TRACE.schema.append(pa.field(FILE, pa.string()))
"""Rows of shared files."""


def is_shared(file: DataFile) -> bool:
    """Return whether a file has rows of several queues."""
    return any(file.low[name] != file.high[name] for name in ("topic_number", "queue"))


def is_quiet(file: DataFile) -> bool:
    """Return whether a shared file has rows that hardly ever change."""
    return not file.low["open"] or file.low["group_number"] is None


@dataclass(slots=True)
class Small:
    """Rows of a queue that are too few for files of their own.

    Attributes:
        rows: The rows.
        kept: Files of the queue that stay, for ``blocks.layers``.
    """

    rows: pa.Table
    kept: Sequence[DataFile] = ()


@dataclass(slots=True)
class Files:
    """Files written, and those that they replace."""

    add: list[DataFile] = field(default_factory=list)
    remove: list[DataFile] = field(default_factory=list)


def share(table: Table, small: Iterable[Small]) -> Files:
    """Write the rows of small queues into files that they share; those of a single one alone."""
    by_file: dict[tuple[str, bool], list[Small]] = {}
    for one in small:
        for hour, quiet, rows in _sorts(one.rows):
            by_file.setdefault((hour, quiet), []).append(Small(rows, one.kept))
    done = Files()
    for (_, quiet), some in by_file.items():
        rows = pa.concat_tables([one.rows for one in some])
        if _queues(rows) > 1:
            done.add += _written(table, rows, quiet=quiet)
            continue
        for layer in (each for one in some for each in layers(table, one.rows, one.kept)):
            done.add += table.stage(layer.rows)
            done.remove += layer.replaces
    return done


def settle(table: Table, dropped: pa.Table, hours: set[str]) -> Files:
    """Replace the shared files from which rows are dropped; and join small ones, if many.

    Args:
        table: The trace.
        dropped: Columns ``DROPPED``; each row once.
        hours: Hours in which files are joined.

    Raises:
        TableConflict: Another process changed the table.
    """
    known = {one.path: one for one in table.files() if is_shared(one)}
    gone = _by_file(dropped)
    if not known.keys() >= gone.keys():
        raise table.conflict("files of which rows changed do not belong to it any more")
    touched = {path: known[path] for path in gone}
    touched |= {one.path: one for one in _too_many(known.values(), hours)}
    alike: dict[tuple[str, bool], list[DataFile]] = {}
    for one in touched.values():
        alike.setdefault((one.partition["hour"], is_quiet(one)), []).append(one)
    done = Files(remove=[*touched.values()])
    for (_, quiet), some in alike.items():
        stay: list[pa.Table] = []
        for one in some:
            stay.append(_left(table, one, gone.get(one.path, dropped.slice(0, 0))))
            if sum(map(len, stay)) >= AT_ONCE_ROWS:
                done.add += _written(table, pa.concat_tables(stay), quiet=quiet)
                stay = []
        if sum(map(len, stay)):
            done.add += _written(table, pa.concat_tables(stay), quiet=quiet)
    return done


def _by_file(dropped: pa.Table) -> dict[str, pa.Table]:
    """Return the rows that are dropped from each file."""
    paths = dropped[FILE].combine_chunks().dictionary_encode()
    number = numbers(paths.indices)
    order = np.argsort(number, kind="stable")
    sorted_ = dropped.take(pa.array(order))
    ends = np.cumsum(np.bincount(number, minlength=len(paths.dictionary)))
    begins = [0, *ends.tolist()]
    return {
        path: sorted_.slice(begin, end - begin)
        for path, (begin, end) in zip(paths.dictionary.to_pylist(), pairwise(begins), strict=True)
    }


def _left(table: Table, file: DataFile, gone: pa.Table) -> pa.Table:
    """Return the rows of a file that are not dropped.

    Raises:
        TableConflict: The file does not have those that are.
    """
    rows = table.read_files([file])
    left = rows.filter(pa.array(~_among(rows, gone)))
    if len(left) != len(rows) - len(gone):
        raise table.conflict(f"{file.path} does not have the rows that changed")
    return left


def _among(rows: pa.Table, keys: pa.Table) -> npt.NDArray[np.bool_]:
    """Return which rows have one of the keys."""
    whole = np.stack(
        [
            np.concatenate([numbers(rows[name], -1), numbers(keys[name], -1)])
            for name in _KEY
        ]
    )  # fmt: skip
    _, number = np.unique(whole, axis=1, return_inverse=True)
    number = number.reshape(-1)
    found: npt.NDArray[np.bool_] = np.isin(number[: len(rows)], number[len(rows) :])
    return found


def _too_many(files: Iterable[DataFile], hours: set[str]) -> list[DataFile]:
    """Return small shared files of like size, if an hour has many of them.

    Of like size: so a row is written again for few joins only.
    """
    found: dict[tuple[str, bool, int], list[DataFile]] = {}
    for one in files:
        quiet = is_quiet(one)
        if one.partition["hour"] in hours and one.rows < _most(quiet=quiet) // 4:
            size = (one.rows.bit_length() - 1) // 4
            found.setdefault((one.partition["hour"], quiet, size), []).append(one)
    return [one for some in found.values() if len(some) >= blocks.MOST_SMALL for one in some]


def _sorts(rows: pa.Table) -> Iterable[tuple[str, bool, pa.Table]]:
    """Split rows into those of the files that may have them; yield hour, whether quiet, rows."""
    for partition, part in parts(rows, ("hour",)):
        quiet = (numbers(part["open"]) == 0) | (numbers(part["group_number"]) == NULL)
        for which in (False, True):
            if (quiet == which).any():
                yield partition["hour"], which, part.filter(pa.array(quiet == which))


def _queues(rows: pa.Table) -> int:
    topic, queue = numbers(rows["topic_number"]), numbers(rows["queue"])
    return len(np.unique(topic << 32 | queue))


def _written(table: Table, rows: pa.Table, *, quiet: bool) -> list[DataFile]:
    """Write rows of an hour into shared files; rows of a single queue as ``blocks`` says."""
    rows = rows.sort_by(_ORDER)
    count = -(-len(rows) // _most(quiet=quiet))
    size = -(-len(rows) // count)  # Files of like size: none is so small that it is joined again.
    add: list[DataFile] = []
    for begin in range(0, len(rows), size):
        part = rows.slice(begin, size)
        if _queues(part) > 1:
            add += table.stage(part)
        else:
            for layer in layers(table, part, ()):
                add += table.stage(layer.rows)
    return add


def _most(*, quiet: bool) -> int:
    """Return how many rows a shared file has at most."""
    return QUIET_ROWS if quiet else OPEN_ROWS
