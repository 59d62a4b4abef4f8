"""Converts the tables of an earlier version of the schema to the newest one.

1. The table is fenced: programs of earlier versions refuse it from here on, and what they were
   about to commit fails. 2. Each file is read, and its rows are written to new files. 3. One commit
replaces the schema and the columns of the partition, which removes all files. 4. The next one adds
the new files. 5. The version of the files is stored.

The log does not allow 3 and 4 in one commit. Between the two, other readers of Delta see an empty
table; this program reads the files of before until step 5, and so does a conversion that is run
again after it was killed. The numbers that a table stores stay, so the jobs continue where they
were. Old files stay until they are cleaned up. New ones of a conversion that was killed, or that
another process was quicker to commit, belong to no table.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
import pyarrow.parquet as pq
from deltalake import DeltaTable, Schema
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import CommitProperties, Transaction

from ternmq.model.errors import TableConflict, TableError
from ternmq.pipeline.tables.datafile import DataFile
from ternmq.pipeline.tables.folder import Folder
from ternmq.pipeline.tables.spec import TableSpec
from ternmq.pipeline.tables.table import (
    BEFORE,
    FILES_VERSION,
    OWNED,
    OWNER,
    REMOVALS,
    SCHEMA_VERSION,
    Table,
    renewed,
    staged,
)

Rewrite = Callable[[Folder, DataFile], list[DataFile]]
"""Writes the rows of a file of a table into new ones; for tables with a writer of their own."""


@dataclass(slots=True, frozen=True)
class Convert:
    """Writes the rows of a file into new ones; may be called by any process.

    Attributes:
        folder: Folder of the table.
        spec: The table.
        rewrite: Its writer; None: files are small, and written as ``Table.stage`` does.
    """

    folder: Folder
    spec: TableSpec
    rewrite: Rewrite | None

    def __call__(self, file: DataFile) -> bytes:
        """Return the descriptions of the new files; ``made`` reads them."""
        if self.rewrite is not None:
            return msgspec.json.encode(self.rewrite(self.folder, file))
        with self.folder.open(file.path) as source:
            rows = pq.ParquetFile(source).read()
        rows = renewed(rows, file, self.spec, self.spec.schema)
        return msgspec.json.encode(staged(self.folder, self.spec, rows))


def made(told: bytes) -> list[DataFile]:
    """Return the files that a ``Convert`` describes."""
    return msgspec.json.decode(told, type=list[DataFile])


Spreading = Callable[[Convert, Sequence[DataFile]], Iterable[bytes]]
"""Calls a ``Convert`` for each of several files; gives the results in their order."""
_ATTEMPTS: Final = 3


def migrate(
    table: Table,
    rewrites: Mapping[str, Rewrite],
    spreading: Spreading = map,
    check: Callable[[], None] = lambda: None,
) -> bool:
    """Convert a table; return whether it was of an earlier version.

    Args:
        table: The table.
        rewrites: The writers of tables that have one, by name.
        spreading: Converts the files.
        check: Called after each file; it may raise to end the conversion.

    Raises:
        TableConflict: Other processes changed it each time.
        TableError: A file is missing or damaged, or has other rows than the table says.
    """
    was = table.outdated
    for attempt in range(_ATTEMPTS):
        if not table.outdated:
            break
        try:
            _convert(table, rewrites.get(table.spec.name), spreading, check)
        except TableConflict:
            if attempt == _ATTEMPTS - 1:
                raise
            table.refresh()
    return was


def _convert(
    table: Table, rewrite: Rewrite | None, spreading: Spreading, check: Callable[[], None]
) -> None:
    fenced = fence(table)
    old = table.files()
    new: list[DataFile] = []
    try:
        convert = Convert(table.folder, table.spec, rewrite)
        for told in spreading(convert, old):
            new += made(told)
            check()
        _check(table, old, new, fenced)
    except BaseException:
        table.folder.remove(one.path for one in new)
        raise
    _supersede(table, new, fenced)


def fence(table: Table) -> int:
    """Keep programs of earlier versions from writing a table; return the version of its log.

    Durable at return.

    Raises:
        TableConflict: A concurrent commit changed the table.
    """
    newest = table.newest()
    table.refresh()
    if not table.outdated:
        raise table.conflict("it was converted just now")
    told = {SCHEMA_VERSION: str(table.spec.version), FILES_VERSION: str(table.schema_version)}
    try:
        newest.alter.set_table_properties(told, raise_if_not_exists=False)
    except CommitFailedError as error:
        raise table.conflict(error) from error
    table.folder.sync_log()
    table.refresh()
    newest.update_incremental()
    return int(newest.version())


def _supersede(table: Table, files: Sequence[DataFile], fenced: int) -> None:
    """Replace the schema and all files of a table that is fenced.

    Raises:
        TableConflict: Another process changed the table just now.
    """
    spec = table.spec
    told = table.newest().metadata().configuration
    properties = {
        OWNED: OWNER,
        SCHEMA_VERSION: told[SCHEMA_VERSION],
        FILES_VERSION: told[FILES_VERSION],
        BEFORE: told.get(BEFORE) or str(fenced),
    }
    additions = table.additions(files, time.time_ns() // 1_000_000, changes=False)
    try:
        replaced = DeltaTable.create(
            table.folder.uri,
            Schema.from_arrow(spec.declared),
            "overwrite",
            partition_by=list(spec.partition_by),
            name=spec.name,
            configuration=properties,
            raise_if_key_not_exists=False,
            storage_options=table.options,
        )
        table.folder.sync_log()
        replaced.create_write_transaction(
            additions,
            "append",
            replaced.schema(),
            list(spec.partition_by),
            commit_properties=CommitProperties(
                app_transactions=[Transaction(REMOVALS, replaced.version() + 1)]
            ),
        )
        table.folder.sync_log()
        replaced.update_incremental()
        replaced.alter.set_table_properties(
            {FILES_VERSION: str(spec.version), BEFORE: ""}, raise_if_not_exists=False
        )
    except CommitFailedError as error:
        raise table.conflict(error) from error
    table.folder.sync_log()
    table.refresh()


def _check(table: Table, old: Sequence[DataFile], new: Sequence[DataFile], fenced: int) -> None:
    """Check that new files have all rows, and that nobody has changed the table since the fence."""
    rows = sum(one.rows for one in old)
    if sum(one.rows for one in new) != rows:
        raise TableError(
            f"the files of {table.folder.uri} do not have the {rows} rows that the table says"
        )
    if table.newest().version() != fenced:
        raise table.conflict("it is being converted, too")
