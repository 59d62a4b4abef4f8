"""An archive with rows in it, and what is in it, for tests."""

from __future__ import annotations

from ternmq.pipeline.archive.commit import Archive, Committed
from ternmq.pipeline.archive.file import Sizes
from ternmq.pipeline.archive.ranges import write_range
from tests.unit.pipeline import made

SMALL = Sizes(group_rows=50, file_rows=120)
NOW = made.NOON + made.DAY


def fill(
    archive: Archive,
    start: int,
    stop: int,
    queue: int = 0,
    topic: str = "orders",
    number: int = 7,
    sizes: Sizes = SMALL,
    durable: bool = False,
    **given: object,
) -> Committed:
    batches = made.in_batches(start, stop, queue, **given)
    span = made.span(start, stop, queue, topic, number)
    written = write_range(archive.table.folder, span, batches, sizes, durable=durable)
    return archive.commit([written], made.NOON)


def rows(archive: Archive, **partition: str) -> list[dict[str, object]]:
    """Return every row, in order."""
    archive.table.refresh()
    found = archive.table.read(**partition).to_pylist()
    return sorted(found, key=lambda row: (row["topic"], row["queue"], row["offset"]))


def places(archive: Archive) -> list[tuple[object, object, object]]:
    return [(row["topic"], row["queue"], row["offset"]) for row in rows(archive)]


def files_there(archive: Archive) -> set[str]:
    return {one.path for one in archive.table.folder.list() if one.path.endswith(".parquet")}


def files_known(archive: Archive) -> set[str]:
    archive.table.refresh()
    return {one.path for one in archive.table.files()}
