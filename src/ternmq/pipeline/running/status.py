"""Status of the tables of a folder: what they hold, and up to where."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ternmq.pipeline.archive.commit import Archive, ArchivedQueue
from ternmq.pipeline.archive.schema import ARCHIVE
from ternmq.pipeline.tables import deltalog
from ternmq.pipeline.tables.datafile import DataFile
from ternmq.pipeline.tables.folder import Folder
from ternmq.pipeline.tables.retention import DATED
from ternmq.pipeline.tables.spec import TableSpec
from ternmq.pipeline.tables.table import Table
from ternmq.wire.control import TopicInfo


@dataclass(slots=True, frozen=True)
class TableStatus:
    """Status of a table.

    Attributes:
        name: Its name.
        rows: Number of rows.
        files: Number of files.
        bytes: Total size of the files.
        commits: Number of commits.
        first: Its oldest day or hour; empty: it is not partitioned by time, or has no rows.
        last: Its newest day or hour; empty likewise.
        stored_us: When its newest message was stored, µs since 1970; None: not known.
        position: Position up to which it has the journal; None: not known.
    """

    name: str
    rows: int
    files: int
    bytes: int
    commits: int
    first: str = ""
    last: str = ""
    stored_us: int | None = None
    position: int | None = None


def statuses(
    specs: Sequence[TableSpec], tables: Folder, storage: Mapping[str, str] | None = None
) -> list[TableStatus]:
    """Return the status of the tables that exist.

    Raises:
        TableError: One is not ours.
    """
    return [
        _status(Table.open(tables, spec, create=False, storage=storage))
        for spec in specs
        if tables.inside(spec.name).exists()
    ]


def _status(table: Table) -> TableStatus:
    files = table.files()
    dated = next((one for one in DATED if one in table.spec.partition_by), None)
    times = sorted({one.partition[dated] for one in files}) if dated else []
    known = deltalog.remembered(table.folder) or {}
    folded = [at for app, at in known.items() if app.endswith("/position")]
    return TableStatus(
        name=table.spec.name,
        rows=sum(one.rows for one in files),
        files=len(files),
        bytes=sum(one.size for one in files),
        commits=table.version,
        first=times[0] if times else "",
        last=times[-1] if times else "",
        stored_us=_highest(files, "stored_time"),
        position=max(folded) if folded else _highest(files, "position"),
    )


def _highest(files: Iterable[DataFile], column: str) -> int | None:
    found = [value for one in files if isinstance(value := one.high.get(column), int)]
    return max(found, default=None)


def behind(tables: Folder, topics: Sequence[TopicInfo]) -> dict[str, int]:
    """Return the number of rows missing in the archive by topic, without the broker's own topics.

    Args:
        tables: The folder of all tables; without an archive, the result is empty.
        topics: The topics, as the broker lists them.
    """
    if not tables.inside(ARCHIVE.name).exists():
        return {}
    archive = Archive(tables, create=False)
    places = {
        ArchivedQueue(info.spec.name, info.number, queue): one
        for info in topics
        if not info.spec.name.startswith("$")
        for queue, one in enumerate(info.queues)
    }
    stands = archive.all_stand(places)
    found: dict[str, int] = {}
    for place, queue in places.items():
        rows = max(0, queue.next - max(queue.first, stands.get(place, 0)))
        found[place.topic] = found.get(place.topic, 0) + rows
    return found
