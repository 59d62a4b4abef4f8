"""Ownership of a folder of tables: a foreign folder is refused before anything is written."""

from __future__ import annotations

from typing import Final

from ternmq.model.errors import TableError
from ternmq.pipeline.running.jobs import all_tables
from ternmq.pipeline.tables.folder import Folder

_BROKER: Final = frozenset({"LOCK", "journal"})
"""Files in the data folder of every broker."""
_NOBODY: Final = frozenset({"lost+found"})


def check_owner(tables: Folder) -> None:
    """Check that a folder may hold our tables: it does already, is empty, or does not exist.

    Files whose names begin with ``.`` or ``_`` are ignored: locks and files of the system. Once one
    of our tables is there, other files beside it do no harm. The folder of a table itself is
    checked when the table is opened.

    Raises:
        TableError: It is the data folder of a broker, or holds other files.
    """
    names = tables.names()
    if names >= _BROKER:
        raise TableError(
            f"{tables.uri} is the data folder of a broker: tables need a folder of their own"
        )
    if names & {one.name for one in all_tables()}:
        return
    others = sorted(one for one in names - _NOBODY if not one.startswith((".", "_")))
    if others:
        raise TableError(
            f"{tables.uri} contains files that are not tables of the pipeline, such as "
            f"{others[0]}: tables need a folder of their own"
        )
