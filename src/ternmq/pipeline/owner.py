"""Whose a folder of tables is: one of somebody else's is refused before anything is written."""

from __future__ import annotations

from typing import Final

from ternmq.model.errors import TableError
from ternmq.pipeline.folder import Folder
from ternmq.pipeline.jobs import all_tables

_BROKER: Final = frozenset({"LOCK", "journal"})
"""What stands in the data folder of every broker."""
_NOBODY: Final = frozenset({"lost+found"})


def check_owner(tables: Folder) -> None:
    """See that a folder may hold our tables: it does already, or it is empty or not there.

    Files whose names begin with ``.`` or ``_`` are nobody's: locks, what a system leaves behind.
    Once there is a table of ours, other files beside it do no harm. What is within the folder of a
    table is looked at when it is opened.

    Raises:
        TableError: It is the data folder of a broker, or holds files of somebody else's.
    """
    names = tables.names()
    if names >= _BROKER:
        raise TableError(
            f"{tables.uri} is the data folder of a broker: tables want a folder of their own"
        )
    if names & {one.name for one in all_tables()}:
        return
    others = sorted(one for one in names - _NOBODY if not one.startswith((".", "_")))
    if others:
        raise TableError(
            f"{tables.uri} holds files that are no tables of ours, such as {others[0]}: tables "
            "want a folder of their own"
        )
