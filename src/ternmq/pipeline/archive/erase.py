"""Removes messages from the archive on request, so that none of its files holds a byte of them.

1. Find them. 2. Record for each in the table ``erased`` that it existed (never its content). 3.
Rewrite the files that hold them, without them, and commit the new ones. 4. Remove the old files at
once, with all others in the folder that may hold the messages: replaced earlier, or left by a task.

After a crash, run the request again: nothing is recorded twice, and step 4 examines the folder, not
what this run did. A reader that uses an older version of the table misses those files.

Messages that the archive does not have yet are not erased: ``Erased.stands`` gives the end of each
queue's rows. Run the request again when the archive has passed the journal's end of that time.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ternmq.model.errors import InvalidRequest, TableError
from ternmq.pipeline.archive.commit import Archive, ArchivedQueue
from ternmq.pipeline.archive.file import named_rows, names_several
from ternmq.pipeline.archive.finding import Finding
from ternmq.pipeline.archive.rewrite import may_have, queues_in, rewritten
from ternmq.pipeline.archive.schema import ERASED
from ternmq.pipeline.tables.cleaning import unreferenced
from ternmq.pipeline.tables.datafile import DataFile
from ternmq.pipeline.tables.folder import Folder, is_temporary
from ternmq.pipeline.tables.numbers import numbers
from ternmq.pipeline.tables.table import Table, deciding_anew

MAX_VALUES: Final = 10_000
_KEY: Final = ("topic_number", "queue", "offset")


@dataclass(slots=True, frozen=True)
class Request:
    """Messages to erase: those with one of these keys or ids.

    Attributes:
        name: Name of the request, stored with each erased message. It must not contain anything
            that has to be forgotten.
        keys: Business keys.
        message_ids: Ids as they are printed.
        application_ids: The application's own identifiers.
        topic: Only messages of this topic; None: all.
        reason: Stored like ``name``.
    """

    name: str
    keys: tuple[str, ...] = ()
    message_ids: tuple[str, ...] = ()
    application_ids: tuple[str, ...] = ()
    topic: str | None = None
    reason: str = ""

    def __post_init__(self) -> None:
        values = len(self.keys) + len(self.message_ids) + len(self.application_ids)
        if not 1 <= values <= MAX_VALUES:
            raise InvalidRequest(
                f"a request to erase names 1 to {MAX_VALUES} keys or ids, not {values}"
            )


@dataclass(slots=True)
class Erased:
    """The result of a request.

    Attributes:
        messages: Messages that were in the archive and are not any more.
        noted: Those recorded by this run; the others were recorded by an earlier one.
        files: Files of the table that held them, rewritten or removed.
        removed: Files removed from the folder.
        stands: End of the archive's rows of each queue searched: later rows are not erased.
    """

    messages: int = 0
    noted: int = 0
    files: int = 0
    removed: int = 0
    stands: dict[ArchivedQueue, int] = field(default_factory=dict)


def find(archive: Archive, request: Request) -> pa.Table:
    """Return place, id, stored time and file of the messages of a request; changes nothing."""
    files = [one for one in archive.table.files() if may_have(one, request.topic)]
    finding = Finding(archive.table.folder)
    try:
        return finding.any_of(
            files,
            request.topic,
            key=request.keys,
            message_id=request.message_ids,
            application_id=request.application_ids,
        )
    finally:
        finding.close()


def erase(archive: Archive, erased: Table, request: Request, now_us: int) -> Erased:
    """Erase the messages of a request. It may be run again.

    Args:
        archive: The archive.
        erased: The table ``schema.ERASED``.
        request: What to erase.
        now_us: Now, µs since 1970.
    """
    done = Erased()
    archive.table.refresh()
    erased.refresh()
    deciding_anew(archive.table, lambda: _without(archive, erased, request, now_us, done))
    _remove(archive, erased, request, done)
    return done


def _without(archive: Archive, erased: Table, request: Request, now_us: int, done: Erased) -> None:
    """Record the messages, and commit files without them."""
    found = find(archive, request)
    done.messages = len(found)
    done.noted += _note(erased, found, request, now_us)
    by_path = {one.path: one for one in archive.table.files()}
    done.stands = {place: archive.stands(place) or 0 for place in _places(archive, request)}
    old: list[DataFile] = []
    new: list[DataFile] = []
    for path in dict.fromkeys(found["path"].to_pylist()):
        gone = _keyed(found.filter(pc.equal(found["path"], path)))
        one = by_path[path]
        old.append(one)
        new += rewritten(
            archive.table.folder,
            [one],
            lambda rows, gone=gone: pc.invert(pc.is_in(_keyed(rows), gone)),  # type: ignore[misc]
        )
    archive.table.commit(new, old)
    done.files += len(old)


def _keyed(rows: pa.Table | pa.RecordBatch) -> pa.Array:
    """Return what identifies each row, as 20 bytes."""
    topic, queue, offset = (numbers(rows.column(name)) for name in _KEY)
    packed = np.empty(len(topic), np.dtype([("topic", "<i8"), ("queue", "<i4"), ("at", "<i8")]))
    packed["topic"], packed["queue"], packed["at"] = topic, queue, offset
    kind = pa.binary(packed.dtype.itemsize)
    return pa.Array.from_buffers(kind, len(packed), [None, pa.py_buffer(packed.tobytes())])


def _places(archive: Archive, request: Request) -> set[ArchivedQueue]:
    """Return the queues of a request of which the archive has rows."""
    return {
        ArchivedQueue(*place)
        for one in archive.table.files()
        if may_have(one, request.topic)
        for place in queues_in(archive.table.folder, one)
        if request.topic in {None, place[0]}
    }


def _note(erased: Table, found: pa.Table, request: Request, now_us: int) -> int:
    """Record the messages that are not recorded yet; return their number."""
    known = {
        (row["topic_number"], row["queue"], row["offset"])
        for row in erased.read(["topic_number", "queue", "offset"]).to_pylist()
    }
    rows = [
        {
            "topic": row["topic"],
            "topic_number": row["topic_number"],
            "queue": row["queue"],
            "offset": row["offset"],
            "message_id": row["message_id"],
            "stored_time": row["stored_us"],
            "request": request.name,
            "reason": request.reason,
            "erased_time": now_us,
            "schema_version": ERASED.version,
        }
        for row in found.to_pylist()
        if (row["topic_number"], row["queue"], row["offset"]) not in known
    ]
    if rows:
        erased.append(pa.Table.from_pylist(rows, ERASED.schema))
    return len(rows)


def _remove(archive: Archive, erased: Table, request: Request, done: Erased) -> None:
    """Remove files that do not belong to the archive and may hold erased messages.

    One that is about to be committed may be among them. That does no harm: such a commit (an
    overlap that is trimmed, a compaction of files that this request replaced, a file of several
    queues that is being written) is then refused, and done again, by the next run at the latest.
    """
    gone: dict[tuple[str, int, int], list[int]] = {}
    for row in erased.read(["topic", "topic_number", "queue", "offset", "request"]).to_pylist():
        if row["request"] == request.name:
            place = row["topic"], row["topic_number"], row["queue"]
            gone.setdefault(place, []).append(row["offset"])
    for offsets in gone.values():
        offsets.sort()
    folder = archive.table.folder
    paths = [one.path for one in unreferenced(archive.table) if _may_hold(folder, one.path, gone)]
    done.removed = folder.remove(paths)


def _may_hold(folder: Folder, path: str, gone: dict[tuple[str, int, int], list[int]]) -> bool:
    if names_several(path):
        return bool(gone) and (is_temporary(path) or _has(folder, path, gone))
    named = named_rows(path)
    if named is None:
        return False
    offsets = gone.get(named[:3], [])
    # The name of a file still being written does not contain its end, and an object never gets
    # another name.
    stop = named.stop if folder.local and not is_temporary(path) else 1 << 62
    return bisect_left(offsets, named.start) < bisect_left(offsets, stop)


def _has(folder: Folder, path: str, gone: dict[tuple[str, int, int], list[int]]) -> bool:
    """Return whether a file with rows of several queues has erased messages."""
    try:
        with folder.open(path) as source:
            rows = pq.ParquetFile(source).read(list(_KEY))
    except TableError:
        return False  # it was removed meanwhile
    places = [(number, queue, at) for (_, number, queue), some in gone.items() for at in some]
    columns = [pa.array(one) for one in zip(*places, strict=True)]
    return bool(pc.any(pc.is_in(_keyed(rows), _keyed(pa.table(columns, list(_KEY))))).as_py())
