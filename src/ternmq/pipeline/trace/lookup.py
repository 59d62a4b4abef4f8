"""Looks up the history of a message in the table ``trace``: by its id, or its place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ternmq.pipeline.tables.database import reading
from ternmq.pipeline.tables.datafile import DataFile
from ternmq.pipeline.tables.folder import Folder
from ternmq.pipeline.tables.table import Table
from ternmq.pipeline.trace.schema import TRACE

MAX_ROWS: Final = 1000


class TraceLookup:
    """Reads the trace. Not thread-safe.

    Args:
        tables: The folder of all tables.
        storage: Options of the Delta library for an object store.

    Raises:
        TableError: There is no trace.
    """

    def __init__(self, tables: Folder, storage: Mapping[str, str] | None = None) -> None:
        self._table = Table.open(tables, TRACE, create=False, storage=storage)
        # The library is not fully typed.
        self._database: Any = reading(self._table.folder)
        self._database.execute("set timezone = 'UTC'")

    def close(self) -> None:
        """Close the database."""
        self._database.close()

    def by_id(self, message_id: str) -> list[dict[str, Any]]:
        """Return the rows of a message, one for each group. Reads every file."""
        return self._rows(self._table.files(), "message_id = $id", {"id": message_id})

    def at(self, topic: str, queue: int, offset: int) -> list[dict[str, Any]]:
        """Return the rows of the message at a place. Reads only files that may hold it."""
        files = [
            one
            for one in self._table.files()
            if _inside(one, "queue", queue) and _inside(one, "offset", offset)
        ]
        where = 'topic = $topic and queue = $queue and "offset" = $offset'
        return self._rows(files, where, {"topic": topic, "queue": queue, "offset": offset})

    def _rows(
        self, files: Sequence[DataFile], where: str, given: Mapping[str, object]
    ) -> list[dict[str, Any]]:
        if not files:
            return []
        uris = [self._table.folder.uri_of(one.path) for one in files]
        found = self._database.sql(
            f'select * replace ("open"::boolean as "open") from read_parquet($files) '  # noqa: S608
            f"where {where} "
            f'order by topic_number, queue, "offset", "group" limit {MAX_ROWS}',
            params={"files": uris, **given},
        )
        made = getattr(found, "to_arrow_table", None) or found.fetch_arrow_table
        rows: list[dict[str, Any]] = made().to_pylist()
        return rows


def _inside(one: DataFile, name: str, value: int) -> bool:
    low, high = one.low[name], one.high[name]
    return isinstance(low, int) and isinstance(high, int) and low <= value <= high
