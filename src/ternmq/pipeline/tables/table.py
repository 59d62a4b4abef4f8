"""A table: Parquet files, and a Delta log that lists those that belong to it.

Only this module and ``migration`` use the library that writes the log: it renames things often.
Used of it: creating a table, the list of files, and one kind of commit, which adds files, removes
files and stores numbers (``app -> version``), all or nothing. Of two concurrent commits that store
a number for the same app, or that remove files, only one succeeds: the other raises TableConflict,
and its caller decides again (tests check this for the installed release). The same holds for a
commit that adds files while another removes rows; it succeeds at the second attempt.

Only tables that declare themselves ours in their properties are used: ``ternmq.owner`` is
``ternmq``, and ``ternmq.schema_version`` is the version of this program, or an earlier one. A table
of an earlier version can be read, but not written: ``migration`` brings it to the newest version.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, TypeVar
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, Schema
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, CommitProperties, RemoveAction, Transaction

from ternmq.model.errors import TableConflict, TableError
from ternmq.pipeline.tables import deltalog
from ternmq.pipeline.tables.datafile import DataFile, Value, bounds, parts, plain, text
from ternmq.pipeline.tables.folder import Folder
from ternmq.pipeline.tables.spec import VERSION, TableSpec

T = TypeVar("T")

OWNER: Final = "ternmq"
OWNED: Final = "ternmq.owner"
SCHEMA_VERSION: Final = "ternmq.schema_version"
FILES_VERSION: Final = "ternmq.files_version"
"""Version of the schema of the files, if it is not that of the table: see ``migration``."""
BEFORE: Final = "ternmq.before_conversion"
"""Version of the log that has the files of before, while the table is converted."""
REMOVALS: Final = "ternmq/removals"
COMPRESSION: Final = {"compression": "zstd", "compression_level": 1}


class Table:
    """A table as of its opening or the last ``refresh``.

    Attributes:
        spec: Its description.
        folder: Its folder.
        schema_version: Version of the schema of its files.
    """

    def __init__(
        self, spec: TableSpec, folder: Folder, delta: DeltaTable, storage: Mapping[str, str] | None
    ) -> None:
        self.spec = spec
        self.folder = folder
        self._storage = storage
        self._files: list[DataFile] | None = None
        self._see(delta)

    def _see(self, delta: DeltaTable) -> None:
        """Use the newest state of the log; of a table that is being converted, the one before."""
        self.schema_version = _version(self.spec, self.folder, delta)
        before = delta.metadata().configuration.get(BEFORE)
        if self.outdated and before:
            delta = DeltaTable(self.folder.uri, int(before), storage_options=self.options)
        self._delta = delta
        self._files = None

    @property
    def options(self) -> dict[str, str] | None:
        """Options of the Delta library for an object store."""
        return dict(self._storage) if self._storage else None

    @classmethod
    def open(
        cls,
        tables: Folder,
        spec: TableSpec,
        *,
        create: bool = True,
        storage: Mapping[str, str] | None = None,
    ) -> Table:
        """Open a table of a folder of tables.

        Args:
            tables: The folder that holds all tables.
            spec: The table.
            create: Create it if it does not exist.
            storage: Options of the Delta library for an object store.

        Raises:
            TableError: It does not exist and ``create`` is not set; or the folder holds something
                else, a foreign table, or a table with a later schema version.
        """
        folder = tables.inside(spec.name)
        options = dict(storage) if storage else None
        try:
            delta = DeltaTable(folder.uri, storage_options=options)
        except TableNotFoundError:
            if not create:
                raise TableError(
                    f"there is no table {spec.name} in {tables.uri}",
                ) from None
            delta = _made(spec, folder, options)
        return cls(spec, folder, delta, options)

    def refresh(self) -> None:
        """Load commits made since."""
        if self.outdated:
            self._delta = self.newest()
        else:
            self._delta.update_incremental()
        self._see(self._delta)

    def newest(self) -> DeltaTable:
        """Return the newest state of the log, for ``migration``."""
        return DeltaTable(self.folder.uri, storage_options=self.options)

    @property
    def outdated(self) -> bool:
        """Whether its schema is of an earlier version: it can be read, but not written."""
        return self.schema_version < self.spec.version

    @property
    def version(self) -> int:
        """Number of commits, not counting the creation."""
        return int(self._delta.version())

    def remembered(self, app: str) -> int | None:
        """Return the number that the last commit of an app stored; None if there was none."""
        found = self._delta.transaction_version(app)
        return None if found is None else int(found)

    def all_remembered(self, apps: Iterable[str]) -> dict[str, int]:
        """Return the stored numbers of many apps at once; for planning, perhaps not the newest."""
        known = deltalog.remembered(self.folder)
        if known is None:
            found = {app: self.remembered(app) for app in apps}
            return {app: version for app, version in found.items() if version is not None}
        return {app: known[app] for app in apps if app in known}

    def files(self, **partition: str) -> list[DataFile]:
        """Return its files, by path; only those of a partition if one is named."""
        assert set(partition) <= set(self._delta.metadata().partition_columns), partition
        if self._files is None:
            self._files = self._listed()
        wanted = partition.items()
        return [one for one in self._files if wanted <= one.partition.items()]

    def uris(self, **partition: str) -> list[str]:
        """Return the locations of its files, as DuckDB and Spark accept them."""
        return [self.folder.uri_of(one.path) for one in self.files(**partition)]

    def _listed(self) -> list[DataFile]:
        listed = pa.table(self._delta.get_add_actions(flatten=True))
        # Those of the table: an earlier version may have had others.
        divided = self._delta.metadata().partition_columns
        found = []
        for row in listed.to_pylist():
            partition = {name: text(row[f"partition.{name}"]) for name in divided}
            found.append(
                DataFile(
                    path=unquote(row["path"]),
                    size=row["size_bytes"],
                    rows=row["num_records"] or 0,
                    partition=partition,
                    low={
                        name: partition.get(name, plain(row.get(f"min.{name}")))
                        for name in self.spec.bounds
                    },
                    high={
                        name: partition.get(name, plain(row.get(f"max.{name}")))
                        for name in self.spec.bounds
                    },
                )
            )
        return sorted(found, key=lambda one: one.path)

    def removed_since(self, time_us: int) -> set[str]:
        """Return the paths of files that commits removed from the table at or after a time."""
        return deltalog.removed_since(self.folder, time_us)

    def commit(
        self,
        add: Iterable[DataFile] = (),
        remove: Iterable[DataFile] = (),
        remember: Mapping[str, int] | None = None,
        *,
        changes: bool = True,
    ) -> None:
        """Add files, remove files and store numbers, all or nothing. Durable at return.

        Removed files no longer belong to the table; they stay on disk until they are cleaned up.

        Args:
            add: Finished files.
            remove: Files as ``files`` returned them.
            remember: app -> version.
            changes: False: the rows are the same ones, in other files.

        Raises:
            TableConflict: A concurrent commit changed what this one depends on; ``refresh`` and
                decide again. Nothing was changed.
            TableError: A file to be added does not exist; or the table is outdated.
        """
        if self.outdated:
            raise TableError(
                f"{self.folder.uri} has schema version {self.schema_version}, and this TernMQ "
                f"writes {self.spec.version}: run `ternmq pipeline run` once, which converts it"
            )
        now_ms = time.time_ns() // 1_000_000
        actions = self.additions(add, now_ms, changes=changes)
        added = len(actions)
        actions += [
            RemoveAction(one.path, changes, now_ms, one.size, dict(one.partition)) for one in remove
        ]
        numbers = [Transaction(app, version) for app, version in (remember or {}).items()]
        if len(actions) > added:
            # The library does not detect that two commits remove the same file if one of them
            # declares its rows unchanged. It does detect two that store a number for the same app.
            numbers.append(Transaction(REMOVALS, self.version + 1))
        if not actions and not numbers:
            return
        try:
            self._delta.create_write_transaction(
                actions,
                "append",
                self._delta.schema(),
                list(self.spec.partition_by),
                commit_properties=CommitProperties(app_transactions=numbers or None),
            )
        except CommitFailedError as error:
            raise self.conflict(error) from error
        self.folder.sync_log()
        self.refresh()

    def conflict(self, error: object) -> TableConflict:
        """Load what another process committed; return the error to raise."""
        self.refresh()
        return TableConflict(
            f"the table {self.folder.uri} was changed by another process at the same time: {error}"
        )

    def additions(
        self, files: Iterable[DataFile], now_ms: int, *, changes: bool
    ) -> list[AddAction | RemoveAction]:
        """Return what a commit says to add files.

        Raises:
            TableError: One does not exist, or is not as it was written.
        """
        actions: list[AddAction | RemoveAction] = []
        for one in files:
            if self.folder.size(one.path) != one.size:
                raise TableError(
                    f"{self.folder.uri_of(one.path)} was to be added to the table, but does not "
                    "exist any more as it was written"
                )
            actions.append(self._adding(one, now_ms, changes=changes))
        return actions

    def _adding(self, one: DataFile, now_ms: int, *, changes: bool) -> AddAction:
        stats = {
            "numRecords": one.rows,
            "minValues": {name: self._shown(name, value) for name, value in one.low.items()},
            "maxValues": {name: self._shown(name, value) for name, value in one.high.items()},
            "nullCount": {},
        }
        return AddAction(
            path=one.path,
            size=one.size,
            partition_values=dict(one.partition),
            modification_time=now_ms,
            data_change=changes,
            stats=json.dumps(stats),
        )

    def _shown(self, name: str, value: Value) -> Value:
        """Return a bound as the log stores it."""
        if isinstance(value, int) and pa.types.is_timestamp(self.spec.schema.field(name).type):
            seconds, micros = divmod(value, 1_000_000)
            return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{micros:06d}Z"
        return value

    def stage(self, rows: pa.Table, *, durable: bool = True) -> list[DataFile]:
        """Write rows to files of their partitions, for a later commit.

        For tables of modest size; the archive writes its own files.
        """
        return staged(self.folder, self.spec, rows, durable=durable)

    def append(self, rows: pa.Table, remember: Mapping[str, int] | None = None) -> None:
        """Add rows and store numbers, all or nothing."""
        self.commit(self.stage(rows) if len(rows) else [], remember=remember)

    def replace(
        self,
        rows: pa.Table,
        remember: Mapping[str, int] | None = None,
        **partition: str,
    ) -> None:
        """Replace all rows of a partition; readers see all of the change or nothing.

        Raises:
            TableError: Rows belong to another partition.
        """
        added = self.stage(rows) if len(rows) else []
        for one in added:
            if not partition.items() <= one.partition.items():
                raise TableError(f"rows of {one.partition} were to replace those of {partition}")
        self.commit(added, self.files(**partition), remember)

    def read(self, columns: Sequence[str] | None = None, **partition: str) -> pa.Table:
        """Return rows, partition columns included; for tables of modest size."""
        return self.read_files(self.files(**partition), columns)

    def read_files(
        self, files: Iterable[DataFile], columns: Sequence[str] | None = None
    ) -> pa.Table:
        """Return the rows of some of its files, partition columns included."""
        return read_files(self.folder, self.spec, files, columns)


def staged(
    folder: Folder, spec: TableSpec, rows: pa.Table, *, durable: bool = True
) -> list[DataFile]:
    """Write rows to files of their partitions, for a later commit; needs no log.

    Args:
        folder: Folder of the table.
        spec: The table.
        rows: Rows with all columns.
        durable: On this machine, sync files to the disk before they get their names.
    """
    rows = rows.select(spec.schema.names).cast(spec.schema)
    spec.check(rows)
    found = []
    for partition, part in parts(rows, spec.partition_by):
        folders = [f"{name}={quote(value, safe='')}" for name, value in partition.items()]
        path = "/".join([*folders, f"{spec.name}-{secrets.token_hex(8)}.parquet"])
        with folder.begin(path) as sink:
            pq.write_table(part.select(spec.stored.names), sink, **COMPRESSION)
        done = folder.finish(path, durable=durable)
        low, high = bounds(part, spec.bounds)
        found.append(DataFile(done.path, done.size, len(part), partition, low, high))
    return found


def read_files(
    folder: Folder,
    spec: TableSpec,
    files: Iterable[DataFile],
    columns: Sequence[str] | None = None,
) -> pa.Table:
    """Return the rows of some files of a table, partition columns included; needs no log.

    Args:
        folder: Folder of the table.
        spec: The table.
        files: Its files.
        columns: The columns; None: all.
    """
    names = list(columns or spec.schema.names)
    chosen = pa.schema([spec.schema.field(name) for name in names])
    found = []
    for one in files:
        with folder.open(one.path) as source:
            part = pq.ParquetFile(source).read(
                [name for name in names if name not in one.partition]
            )
        found.append(completed(part, one, spec, chosen))
    return pa.concat_tables(found) if found else chosen.empty_table()


def completed(
    rows: pa.Table | pa.RecordBatch, file: DataFile, spec: TableSpec, chosen: pa.Schema
) -> pa.Table:
    """Return rows of a file with the columns of its partition, in a schema.

    Rows of an earlier version of the schema become rows of this one: columns that it did not have
    are null. ``schema_version`` stays.

    Args:
        rows: At least the chosen columns that are in the file.
        file: The file.
        spec: The table.
        chosen: The columns to return.
    """
    renew = {one.name: one.renew for one in spec.columns if one.renew is not None}
    there = set(rows.schema.names)
    arrays = []
    for one in chosen:
        if one.name in file.partition:
            told = pa.scalar(file.partition[one.name]).cast(one.type)
            arrays.append(pa.repeat(told, rows.num_rows))
            continue
        if one.name not in there:
            arrays.append(pa.nulls(rows.num_rows, one.type))
            continue
        values = rows[one.name].cast(one.type)
        if one.name in renew and rows.num_rows:
            whole = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
            values = renew[one.name](whole)
        arrays.append(values)
    return pa.table(arrays, schema=chosen)


def renewed(rows: pa.Table, file: DataFile, spec: TableSpec, chosen: pa.Schema) -> pa.Table:
    """Return rows of a file of an earlier version as if the newest had written them.

    Args:
        rows: All columns of the file.
        file: The file.
        spec: The table.
        chosen: The columns to return.
    """
    rows = completed(rows, file, spec, chosen)
    version = pa.repeat(pa.scalar(spec.version, pa.int32()), len(rows))
    at = rows.schema.get_field_index(VERSION.name)
    return rows.set_column(at, rows.schema.field(at), version).combine_chunks()


def deciding_anew(table: Table, attempt: Callable[[], T]) -> T:
    """Call a function that ends in a commit; after a conflict, refresh the table and call it again.

    Raises:
        TableConflict: The second attempt failed too.
    """
    try:
        return attempt()
    except TableConflict:
        table.refresh()
        return attempt()


def _made(spec: TableSpec, folder: Folder, options: dict[str, str] | None) -> DeltaTable:
    if folder.exists():
        try:
            return DeltaTable(folder.uri, storage_options=options)  # just made by another process
        except TableNotFoundError:
            raise TableError(
                f"{folder.uri} contains files that belong to no table; the table {spec.name} is not"
                " created in this folder"
            ) from None
    if folder.local:
        folder.begin("made").close()  # the library requires the folder to exist
        folder.abandon("made")
    try:
        made = DeltaTable.create(
            folder.uri,
            Schema.from_arrow(spec.declared),
            partition_by=list(spec.partition_by),
            name=spec.name,
            configuration={OWNED: OWNER, SCHEMA_VERSION: str(spec.version)},
            raise_if_key_not_exists=False,
            storage_options=options,
        )
    except DeltaError:
        # Another process may have created it just now; if not, this fails for the same reason.
        return DeltaTable(folder.uri, storage_options=options)
    folder.sync_log()
    return made


def _version(spec: TableSpec, folder: Folder, delta: DeltaTable) -> int:
    """Return the version of the schema of a table.

    Raises:
        TableError: The table is not ours, or of a later version.
    """
    properties = delta.metadata().configuration
    if properties.get(OWNED) != OWNER:
        raise TableError(
            f"{folder.uri} is a table that TernMQ did not create; name another folder for the "
            "tables"
        )
    made = properties.get(SCHEMA_VERSION) or ""
    if not made.isdecimal() or not 1 <= int(made) <= spec.version:
        raise TableError(
            f"{folder.uri} has schema version {made}, and this TernMQ writes {spec.version}: use "
            "the version that created it, or another folder"
        )
    return int(properties.get(FILES_VERSION) or made)
