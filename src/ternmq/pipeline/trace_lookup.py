"""What became of a message, from the table ``trace``: by its id, or its place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import duckdb

from ternmq.pipeline.files import DataFile
from ternmq.pipeline.folder import Folder
from ternmq.pipeline.table import Table
from ternmq.pipeline.trace_schema import TRACE

MAX_ROWS: Final = 1000


class TraceLookup:
    """See the module. Not for more than one thread at a time.

    Args:
        tables: The folder of all tables.
        storage: What the log's library wants to know of an object store.

    Raises:
        TableError: There is no trace.
    """

    def __init__(self, tables: Folder, storage: Mapping[str, str] | None = None) -> None:
        self._table = Table.open(tables, TRACE, create=False, storage=storage)
        # What comes from the library is not checked.
        self._database: Any = duckdb.connect(":memory:")
        self._database.execute("set timezone = 'UTC'")

    def close(self) -> None:
        """Forget what was read."""
        self._database.close()

    def by_id(self, message_id: str) -> list[dict[str, Any]]:
        """Return the rows of a message, one for each group: every file is looked at."""
        return self._rows(self._table.files(), "message_id = $id", {"id": message_id})

    def at(self, topic: str, queue: int, offset: int) -> list[dict[str, Any]]:
        """Return the rows of the message of a place; only files that may hold it are looked at."""
        files = [
            one
            for one in self._table.files()
            if one.low["queue"] == queue and _inside(one, "offset", offset)
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
            f"select * from read_parquet($files) where {where} "  # noqa: S608
            f'order by topic_number, queue, "offset", "group" limit {MAX_ROWS}',
            params={"files": uris, **given},
        )
        made = getattr(found, "to_arrow_table", None) or found.fetch_arrow_table
        rows: list[dict[str, Any]] = made().to_pylist()
        return rows


def _inside(one: DataFile, name: str, value: int) -> bool:
    low, high = one.low[name], one.high[name]
    return isinstance(low, int) and isinstance(high, int) and low <= value <= high
