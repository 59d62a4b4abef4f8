"""Files in the folder of a table that do not belong to it: found, and removed when that is safe.

What a task wrote that was killed before its commit, what a commit replaced, what retention took
out. Somebody may still be about to commit a file, or be reading the table as it stood: so only what
was written a while ago, and has not belonged to the table for as long, is removed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from ternmq.pipeline.folder import Found
from ternmq.pipeline.table import Table

DAY_US: Final = 86_400_000_000
_LOG: Final = "_delta_log/"


@dataclass(slots=True)
class Cleaned:
    """What was removed."""

    files: int = 0
    bytes: int = 0


def unreferenced(table: Table) -> Iterator[Found]:
    """Yield the Parquet files of a table's folder that do not belong to it, as it stands now."""
    # Listed first: what is committed in between is then known to belong to it.
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
        older_than_us: How long ago a file must have been written, and taken out of the table:
            longer than a task or a reader takes.
    """
    done = Cleaned()
    since_us = now_us - older_than_us
    out = table.removed_since(since_us)
    for one in unreferenced(table):
        if one.changed_us <= since_us and one.path not in out:
            done.files += table.folder.remove([one.path])
            done.bytes += one.size
    return done
