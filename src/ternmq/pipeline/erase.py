"""Messages taken out of the archive on request, so that no file of it holds a byte of them.

1. Find them. 2. Note for each in the table ``erased`` that it was there (never what it said). 3.
Write the files that hold them anew without them, and commit those instead. 4. Remove the files that
held them at once, with all others in the folder that may: replaced before, given up by a task.

A crash leaves a request that is run again: nothing is noted twice, and step 4 looks at the folder,
not at what this run did. A reader that has the table as it stood before misses those files.

What the archive does not have yet is not erased: ``Erased.stands`` says up to where it had the
queues. Run the request again when the archive has passed what the journal held at the time.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from ternmq.model.errors import InvalidRequest
from ternmq.pipeline.archive_commit import Archive, Place
from ternmq.pipeline.archive_file import named_rows
from ternmq.pipeline.cleaning import unreferenced
from ternmq.pipeline.files import DataFile
from ternmq.pipeline.finding import Finding
from ternmq.pipeline.folder import is_temporary
from ternmq.pipeline.rewrite import place_of_file, rewritten
from ternmq.pipeline.schemas import ERASED
from ternmq.pipeline.table import Table, deciding_anew

MAX_VALUES: Final = 10_000


@dataclass(slots=True, frozen=True)
class Request:
    """What is to be erased: messages with one of these keys or ids.

    Attributes:
        name: Of the request: stands with each message that was erased. Say nothing in it that must
            be forgotten.
        keys: Business keys.
        message_ids: Ids as they are printed.
        application_ids: Identifiers of the application's own.
        topic: Only of this topic.
        reason: Kept as ``name`` is.
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
    """What was done.

    Attributes:
        messages: That were in the archive, and are no more.
        noted: Of these, first noted now; the others were by an earlier run of the request.
        files: That held them, and were written anew or taken out.
        removed: Files that were removed from the folder.
        stands: Up to where the archive had each queue that was looked at: what came later is not
            erased.
    """

    messages: int = 0
    noted: int = 0
    files: int = 0
    removed: int = 0
    stands: dict[Place, int] = field(default_factory=dict)


def find(archive: Archive, request: Request) -> pa.Table:
    """Return place, id, stored time and file of the messages that a request names: a dry run."""
    files = (
        archive.table.files() if request.topic is None else archive.table.files(topic=request.topic)
    )
    finding = Finding(archive.table.folder)
    try:
        return finding.any_of(
            files,
            key=request.keys,
            message_id=request.message_ids,
            application_id=request.application_ids,
        )
    finally:
        finding.close()


def erase(archive: Archive, erased: Table, request: Request, now_us: int) -> Erased:
    """Do what a request says; see the module. It may be run again.

    Args:
        archive: The archive.
        erased: The table ``schemas.ERASED``.
        request: What is to go.
        now_us: Now, µs since 1970.
    """
    done = Erased()
    archive.table.refresh()
    erased.refresh()
    deciding_anew(archive.table, lambda: _without(archive, erased, request, now_us, done))
    _remove(archive, erased, request, done)
    return done


def _without(archive: Archive, erased: Table, request: Request, now_us: int, done: Erased) -> None:
    """Note the messages, and commit files without them."""
    found = find(archive, request)
    done.messages = len(found)
    done.noted += _note(erased, found, request, now_us)
    by_path = {one.path: one for one in archive.table.files()}
    done.stands = {place: archive.stands(place) or 0 for place in _places(archive, request)}
    old: list[DataFile] = []
    new: list[DataFile] = []
    for path in dict.fromkeys(found["path"].to_pylist()):
        gone = found.filter(pc.equal(found["path"], path))["offset"].combine_chunks()
        one = by_path[path]
        old.append(one)
        new += rewritten(
            archive.table.folder,
            [one],
            lambda rows, gone=gone: pc.invert(pc.is_in(rows.column("offset"), gone)),  # type: ignore[misc]
        )
    archive.table.commit(new, old)
    done.files += len(old)


def _places(archive: Archive, request: Request) -> set[Place]:
    """Return the queues that a request is about, as far as the archive has any of their rows."""
    return {
        Place(*place_of_file(one))
        for one in archive.table.files()
        if request.topic in {None, one.partition["topic"]}
    }


def _note(erased: Table, found: pa.Table, request: Request, now_us: int) -> int:
    """Note the messages that are not noted."""
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
    """Remove files that do not belong to the archive and may hold what was erased.

    One that is about to be committed may be among them. That does no harm: what it would be
    committed as (an overlap that is trimmed, a compaction of files that were replaced by this
    request) is refused then, and done again.
    """
    gone: dict[tuple[str, int, int], list[int]] = {}
    for row in erased.read(["topic", "topic_number", "queue", "offset", "request"]).to_pylist():
        if row["request"] == request.name:
            place = row["topic"], row["topic_number"], row["queue"]
            gone.setdefault(place, []).append(row["offset"])
    for offsets in gone.values():
        offsets.sort()
    paths = [one.path for one in unreferenced(archive.table) if _may_hold(one.path, gone)]
    done.removed = archive.table.folder.remove(paths)


def _may_hold(path: str, gone: dict[tuple[str, int, int], list[int]]) -> bool:
    named = named_rows(path)
    if named is None:
        return False
    offsets = gone.get(named[:3], [])
    # How far a file will go that is still being written, its name does not say.
    stop = 1 << 62 if is_temporary(path) else named.stop
    return bisect_left(offsets, named.start) < bisect_left(offsets, stop)
