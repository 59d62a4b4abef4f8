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

Open rows are all read that belong to a queue with events. Quiet rows are read only if the events
need them: ``missing`` tells which. A queue that writes many rows has files of its own (``blocks``),
and so has one that is the only small one. Whether a file is shared is seen from its bounds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ternmq.pipeline.tables.datafile import DataFile, int_of, parts
from ternmq.pipeline.tables.numbers import NULL, Numbers, member, numbers
from ternmq.pipeline.tables.table import Table
from ternmq.pipeline.trace import blocks
from ternmq.pipeline.trace.blocks import layers
from ternmq.pipeline.trace.known import Queue
from ternmq.pipeline.trace.life import OF_GROUPS, spread
from ternmq.pipeline.trace.schema import TRACE

SMALL_QUEUE = 1024
"""A queue of which a pass writes fewer rows shares files."""
OPEN_ROWS = 4096
"""Most rows of a shared file of open rows: as many take about as long to write as three files."""
QUIET_ROWS = 65_536
"""Most rows of a shared file of quiet rows."""
_READ_FILES: Final = 16
"""Files whose rows are remembered, since many queues of a pass may have rows in them."""
JOINED_ROWS = 256
"""Shared files with fewer rows are joined if there are many; larger ones are not, since that writes
each row again."""
FILE: Final = "file"
"""Column that is added to rows of shared files: the path of the file."""
_KEY: Final = ("topic_number", "queue", "offset", "group_number")
_ORDER: Final = [(name, "ascending") for name in _KEY]
_PLACED: Final = ("topic_number", "queue", "offset")
_RUNS: Final = tuple(one for one in OF_GROUPS if one != "cursor")
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


class SharedFiles:
    """The shared files of the trace, read as far as they are needed.

    Args:
        table: The trace.
        files: Its files.
    """

    def __init__(self, table: Table, files: Iterable[DataFile]) -> None:
        self._table = table
        shared = [one for one in files if is_shared(one)]
        self._open = _Bounded([one for one in shared if not is_quiet(one)])
        self._quiet = _Bounded([one for one in shared if is_quiet(one)])
        self._keys: dict[str, pa.Table] = {}
        self._read: dict[str, pa.Table] = {}

    def queues(self, topics: set[int]) -> set[Queue]:
        """Return the queues of topics that have rows in shared files."""
        found: set[Queue] = set()
        for one in (*self._open.of(topics), *self._quiet.of(topics)):
            keys = self._keys_of(one)
            topic, queue = numbers(keys["topic_number"]), numbers(keys["queue"])
            mine = np.isin(topic, [*topics])
            pairs = np.unique(np.stack([topic[mine], queue[mine]]), axis=1)
            found.update((int(number), int(at)) for number, at in pairs.T)
        return found

    def open_of(self, topics: set[int]) -> Mapping[Queue, pa.Table]:
        """Return the open rows of topics by queue; columns ``SHARED``."""
        some = [SHARED.empty_table()]
        for one in self._open.of(topics):
            rows = self._rows_of(one)
            some.append(rows.filter(pa.array(np.isin(numbers(rows["topic_number"]), [*topics]))))
        rows = pa.concat_tables(some).sort_by(_ORDER[:2])
        place = numbers(rows["topic_number"]) << 32 | numbers(rows["queue"])
        keys, begins = np.unique(place, return_index=True)
        ends = [*begins.tolist(), len(rows)][1:]
        return {
            (one >> 32, one & 0xFFFFFFFF): rows.slice(begin, end - begin)
            for one, begin, end in zip(keys.tolist(), begins.tolist(), ends, strict=True)
        }

    def has_quiet(self, place: Queue) -> bool:
        """Return whether a queue may have quiet rows."""
        return bool(self._quiet.of({place[0]}))

    def quiet_of(self, place: Queue, start: Numbers, stop: Numbers) -> pa.Table:
        """Return the quiet rows of a queue with offsets in given ranges; columns ``SHARED``."""
        some = [SHARED.empty_table()]
        for one in self._quiet.of({place[0]}):
            low, high = int_of(one.low["offset"]), int_of(one.high["offset"])
            if not np.any((start <= high) & (stop > low)):
                continue
            keys = self._keys_of(one)
            mine = np.flatnonzero(
                (numbers(keys["topic_number"]) == place[0]) & (numbers(keys["queue"]) == place[1])
            )
            mine = mine[_inside(numbers(keys["offset"])[mine], start, stop)]
            if len(mine):
                some.append(self._rows_of(one).take(pa.array(mine)))
        return pa.concat_tables(some)

    def _keys_of(self, one: DataFile) -> pa.Table:
        if one.path not in self._keys:
            self._keys[one.path] = self._table.read_files([one], _PLACED)
        return self._keys[one.path]

    def _rows_of(self, one: DataFile) -> pa.Table:
        if one.path not in self._read:
            if len(self._read) == _READ_FILES:
                del self._read[next(iter(self._read))]
            rows = self._table.read_files([one])
            named = rows.append_column(SHARED.field(FILE), pa.repeat(one.path, len(rows)))
            self._read[one.path] = named
        return self._read[one.path]


class _Bounded:
    """Files by the topics that they may have."""

    def __init__(self, files: Sequence[DataFile]) -> None:
        self._files = files
        self._low = np.array([int_of(one.low["topic_number"]) for one in files], np.int64)
        self._high = np.array([int_of(one.high["topic_number"]) for one in files], np.int64)

    def of(self, topics: set[int]) -> list[DataFile]:
        """Return the files that may have rows of one of the topics."""
        wanted = np.array(sorted(topics), np.int64)
        first = np.searchsorted(wanted, self._low)
        after = np.searchsorted(wanted, self._high, side="right")
        return [self._files[at] for at in np.flatnonzero(first < after).tolist()]


def _inside(at: Numbers, start: Numbers, stop: Numbers) -> npt.NDArray[np.bool_]:
    """Return which numbers are in one of the ranges."""
    begun = np.searchsorted(np.sort(start), at, side="right")
    ended = np.searchsorted(np.sort(stop), at, side="right")
    found: npt.NDArray[np.bool_] = begun > ended
    return found


def missing(events: pa.Table, rows: pa.Table) -> tuple[Numbers, Numbers]:
    """Return the ranges of offsets that events are about and whose rows may be among quiet ones.

    A fact about a message and a group needs the row of both. If this row is there, or the message
    was stored just now, nothing else is needed. MOVED records tell the senders of messages; all
    rows of a message know its sender, or none.

    Args:
        events: Events of a queue.
        rows: Rows of the queue that are read already, among them all open rows.
    """
    start, stop = numbers(events["start"], 0), numbers(events["stop"], 0)
    stored = np.flatnonzero(member(events["kind"], ("stored", "resolved")) >= 0)
    run, inside = spread((stop - start)[stored])
    new = start[stored][run] + inside
    group, of = numbers(events["group_number"], -1), numbers(rows["group_number"], -1)
    had = numbers(rows["offset"])
    about = member(events["kind"], _RUNS) >= 0
    asked = [(about & (group == one), of == one) for one in np.unique(group[about]).tolist()]
    moved = member(events["kind"], ("moved",)) >= 0
    if moved.any():
        asked.append((moved, numbers(rows["sequence"]) != NULL))
    lacking = np.zeros(len(events), bool)
    for which, there in asked:
        known = np.union1d(had[there], new)
        at = np.flatnonzero(which)
        count = np.searchsorted(known, stop[at]) - np.searchsorted(known, start[at])
        lacking[at[count < (stop - start)[at]]] = True
    return start[lacking], stop[lacking]


def together(rows: pa.Table, count: int) -> Numbers:
    """Return numbers that are the same for rows of a queue that leave shared files together.

    If one of its open rows in a file changed, the others are likely to change soon.

    Args:
        rows: Rows of the queue, the open ones first; columns ``SHARED``.
        count: How many open ones there are. Each of the others is by itself.
    """
    files = rows[FILE].slice(0, count).combine_chunks().dictionary_encode()
    found: Numbers = np.concatenate([numbers(files.indices), np.arange(count, len(rows))])
    return found


# -- writing --------------------------------------------------------------------------------------


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
    paths = dropped[FILE].unique().to_pylist()
    if not known.keys() >= set(paths):
        raise table.conflict("files of which rows changed do not belong to it any more")
    touched = {path: known[path] for path in paths}
    touched |= {one.path: one for one in _too_many(known.values(), hours)}
    stay: dict[tuple[str, bool], list[pa.Table]] = {}
    for one in touched.values():
        gone = dropped.filter(pc.equal(dropped[FILE], one.path))
        rows = table.read_files([one])
        left = rows.filter(pa.array(~_among(rows, gone)))
        if len(left) != len(rows) - len(gone):
            raise table.conflict(f"{one.path} does not have the rows that changed")
        if len(left):
            stay.setdefault((one.partition["hour"], is_quiet(one)), []).append(left)
    done = Files(remove=[*touched.values()])
    for (_, quiet), some in stay.items():
        done.add += _written(table, pa.concat_tables(some), quiet=quiet)
    return done


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
        if one.partition["hour"] in hours and one.rows < JOINED_ROWS:
            tier = (one.rows.bit_length() - 1) // 4
            found.setdefault((one.partition["hour"], is_quiet(one), tier), []).append(one)
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
    most = QUIET_ROWS if quiet else OPEN_ROWS
    add: list[DataFile] = []
    for begin in range(0, len(rows), most):
        part = rows.slice(begin, most)
        if _queues(part) > 1:
            add += table.stage(part)
        else:
            for layer in layers(table, part, ()):
                add += table.stage(layer.rows)
    return add
