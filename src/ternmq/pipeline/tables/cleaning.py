"""Files in a table's folder that do not belong to the table: found, and removed when that is safe.

They come from tasks killed before their commit, from files replaced by a commit, and from
retention. A writer may still be about to commit such a file, or a reader may use an older version
of the table: so only files that were written a while ago, and left the table as long ago, go.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from ternmq.pipeline.tables.folder import Found
from ternmq.pipeline.tables.table import Table

DAY_US: Final = 86_400_000_000
_LOG: Final = "_delta_log/"


@dataclass(slots=True)
class Cleaned:
    """Number and size of the files removed."""

    files: int = 0
    bytes: int = 0


def unreferenced(table: Table) -> Iterator[Found]:
    """Yield the Parquet files of a table's folder that do not belong to it at present."""
    # Listed first: a file committed in between is then known to belong to the table.
    listed = [
        one
        for one in table.folder.list()
        if one.path.endswith(".parquet") and not one.path.startswith(_LOG)
    ]
    table.refresh()
    known = {one.path for one in table.files()}
    yield from (one for one in listed if one.path not in known)


def clean(table: Table, now_us: int, *, older_than_us: int = DAY_US) -> Cleaned:
    """Remove files that do not belong to a table and are old enough.

    Args:
        table: The table.
        now_us: Now, µs since 1970.
        older_than_us: Least time since a file was written, and since it left the table: longer
            than a task or a reader takes.
    """
    done = Cleaned()
    since_us = now_us - older_than_us
    out = table.removed_since(since_us)
    for one in unreferenced(table):
        if one.changed_us <= since_us and one.path not in out:
            done.files += table.folder.remove([one.path])
            done.bytes += one.size
    return done
