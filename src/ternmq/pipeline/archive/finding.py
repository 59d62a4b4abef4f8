"""Rows of the archive's files found with DuckDB; shared by look-up and erase."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from ternmq.pipeline.tables.database import reading
from ternmq.pipeline.tables.datafile import DataFile
from ternmq.pipeline.tables.folder import Folder

FILES: Final = (
    "read_parquet($files, filename = true, hive_partitioning = true, hive_types_autocast = false)"
)
"""The rows of files. In version 1 of the schema, the topic is in the names of folders."""
FOUND: Final = pa.schema(
    [
        ("path", pa.string()),
        ("topic", pa.string()),
        ("topic_number", pa.int64()),
        ("queue", pa.int32()),
        ("offset", pa.int64()),
        ("message_id", pa.string()),
        ("stored_us", pa.int64()),
    ]
)


class Finding:
    """An empty database that reads files. Not thread-safe.

    Args:
        folder: Folder of the archive.
    """

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._database = reading(folder)
        # Files do not change, so each footer is read once.
        self._database.execute("set parquet_metadata_cache = true")

    def close(self) -> None:
        """Close the database; drops its cache."""
        self._database.close()

    def rows(
        self, files: Sequence[DataFile], chosen: str, behind: str, given: Mapping[str, object]
    ) -> list[tuple[DataFile, tuple[Any, ...]]]:
        """Return rows, each with its file.

        Args:
            files: Files to search.
            chosen: The selected columns.
            behind: SQL after ``from``: where, order, limit.
            given: Values of parameters.
        """
        if not files:
            return []
        by_uri = {self._folder.uri_of(one.path): one for one in files}
        asked = f"select filename, {chosen} from {FILES} {behind}"  # noqa: S608
        rows = self._database.execute(asked, {"files": list(by_uri), **given}).fetchall()
        return [(by_uri[uri], tuple(row)) for uri, *row in rows]

    def any_of(
        self, files: Sequence[DataFile], topic: str | None, **values: Sequence[str]
    ) -> pa.Table:
        """Return the places of messages that have one of some values (``FOUND``).

        Args:
            files: Files to search.
            topic: Only messages of this topic; None: of any.
            values: For each column, the values searched; one match in any column is enough.
        """
        given: dict[str, object] = {name: list(some) for name, some in values.items() if some}
        where = " or ".join(f"{name} in (select unnest(${name}))" for name in given)
        if topic is not None:
            where, given = f"({where}) and topic = $topic", {**given, "topic": topic}
        chosen = 'topic, topic_number, queue, "offset", message_id, epoch_us(stored_time)'
        behind = f'where {where} order by topic_number, queue, "offset"'
        names = FOUND.names[1:]
        found = [
            {"path": one.path, **dict(zip(names, row, strict=True))}
            for one, row in self.rows(files, chosen, behind, given)
        ]
        return pa.Table.from_pylist(found, FOUND)
