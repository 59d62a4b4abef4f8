"""Converts the tables of a folder that an earlier version of TernMQ made."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from ternmq.model.words import counted, verb
from ternmq.pipeline.archive.rewrite import converted
from ternmq.pipeline.archive.schema import ARCHIVE
from ternmq.pipeline.job.spread import on_workers
from ternmq.pipeline.running.jobs import all_tables
from ternmq.pipeline.tables.datafile import DataFile
from ternmq.pipeline.tables.folder import Folder
from ternmq.pipeline.tables.migration import Convert, migrate
from ternmq.pipeline.tables.table import Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log: Final = logging.getLogger("ternmq.pipeline")

SPARK_FROM_BYTES: Final = 256 << 20
"""Smallest table that Spark's workers convert."""
_REWRITES: Final = {ARCHIVE.name: converted}


def convert_tables(
    tables: Folder,
    storage: Mapping[str, str] | None = None,
    spark: SparkSession | None = None,
    progress: Callable[[str, str], None] = lambda _job, _line: None,
    check: Callable[[], None] = lambda: None,
) -> list[str]:
    """Convert every table of an earlier version; return their names.

    Args:
        tables: The folder of all tables.
        storage: Options of the Delta library for an object store.
        spark: A session, for large tables.
        progress: As in ``Runner``.
        check: Called after each file; it may raise to end the conversion. A table is converted
            whole or not at all.

    Raises:
        TableError: A table is not ours, or damaged.
        TableConflict: As ``migrate``.
    """
    done: list[str] = []
    for spec in all_tables():
        if not tables.inside(spec.name).exists():
            continue
        table = Table.open(tables, spec, create=False, storage=storage)
        if not table.outdated:
            continue
        files = table.files()
        size = sum(one.size for one in files)
        what = f"{spec.name}: schema version {table.schema_version} becomes {spec.version}"
        they = f"{counted(len(files), 'file')} {verb(len(files), 'is', 'are')} written again"
        log.info("%s: %s", what, they)
        progress("tables", f"{what}: {they}")

        def spreading(
            convert: Convert, items: Sequence[DataFile], what: str = what, size: int = size
        ) -> Iterator[bytes]:
            if spark is None or size < SPARK_FROM_BYTES or len(items) < 2:
                yield from map(convert, items)
            else:
                yield from on_workers(spark, what, convert, items)

        if migrate(table, _REWRITES, spreading, check):
            done.append(spec.name)
    return done
