"""A database of DuckDB that reads the files of a table, also those in an object store.

DuckDB would read an object store with an extension, which it downloads at its first use. It gets
the files through Arrow instead, with the same credentials as everything else of the pipeline.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import duckdb

from ternmq.pipeline.tables.folder import Folder

if TYPE_CHECKING:
    from pyarrow import fs


def reading(folder: Folder) -> duckdb.DuckDBPyConnection:
    """Return an empty database that can read the files that ``Folder.uri_of`` names.

    Args:
        folder: The folder of the table.
    """
    database = duckdb.connect(":memory:")
    if not folder.local:
        scheme = urlsplit(folder.uri).scheme
        database.register_filesystem(_for_duckdb(folder.system(), scheme))
    return database


def _for_duckdb(system: fs.FileSystem, scheme: str) -> object:
    """Return Arrow's file system in the form that DuckDB accepts, for names with a scheme."""
    from fsspec.implementations.arrow import ArrowFSWrapper

    wrapper = type("Wrapper", (ArrowFSWrapper,), {"protocol": scheme})
    return wrapper(system)
