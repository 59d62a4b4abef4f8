"""Messages that the broker no longer keeps, looked up in the archive."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import click

from ternmq.cli.reach.connection import where
from ternmq.cli.terminal.exits import ExitCode, Failed
from ternmq.client.forms.messages import Found

if TYPE_CHECKING:
    from ternmq.pipeline.archive.lookup import Archived, Lookup

TABLES: Final = "TERNMQ_TABLES"
_OF_SPARK: Final = {"pyspark", "py4j", "pandas"}
"""Modules that only the extra ``spark`` installs, not ``tables``."""
_PRINTED: Final = re.compile(r"[0-9a-f]{16}:[0-9a-f]{1,16}")

tables_option: Callable[[Any], Any] = click.option(
    "--tables",
    metavar="DIR",
    envvar=TABLES,
    help="Folder of the tables, for messages that the broker no longer has; or "
    f"${TABLES}. Default: from the context.",
)


def is_printed(text: str) -> bool:
    """Return whether a text is a message id in the form that receipts show."""
    return _PRINTED.fullmatch(text) is not None


def folder(tables: str | None) -> str:
    """Return the folder of the archive; empty: not known."""
    return tables or where(click.get_current_context()).tables


def missing(error: ImportError, what: str) -> Failed:
    """Return the failure for a module that cannot be imported, with what to install.

    Args:
        error: Names the module.
        what: What needs it, such as ``the pipeline needs``.
    """
    extra = "spark" if (error.name or "").partition(".")[0] in _OF_SPARK else "tables"
    return Failed(f"{what} {error.name}: pip install 'ternmq[{extra}]'", ExitCode.USAGE)


@contextmanager
def archive(tables: str) -> Iterator[Lookup]:
    """Open the archive for look-ups.

    Raises:
        Failed: The packages for reading tables are not installed.
        TableError: There is no archive.
    """
    try:
        from ternmq.pipeline.archive.lookup import Lookup
        from ternmq.pipeline.tables.folder import Folder
    except ImportError as error:
        raise missing(error, "the archive cannot be read without") from None
    lookup = Lookup(Folder(tables))
    try:
        yield lookup
    finally:
        lookup.close()


def get(tables: str, topic: str, id_: str, queue: int, offset: int | None) -> Found | None:
    """Return a message by its id, the application's id, or its place."""
    with archive(tables) as lookup:
        if offset is not None:
            found = lookup.at(topic, queue, offset)
        else:
            found = lookup.by_id(id_) if is_printed(id_) else None
            if found is None:
                found = next(iter(lookup.by_application_id(id_, topic=topic, limit=1)), None)
    return None if found is None or found.topic != topic else shown(found)


def find(
    tables: str,
    topic: str,
    key: str,
    since: datetime | None,
    until: datetime | None,
    limit: int,
) -> list[Found]:
    """Return messages with a key, newest first."""
    with archive(tables) as lookup:
        found = lookup.by_key(
            key, topic=topic, since_us=_micros(since), until_us=_micros(until), limit=limit
        )
    return [shown(one) for one in found]


def shown(one: Archived) -> Found:
    """Return a message of the archive in the form that commands show."""
    return Found(
        one.message_id,
        one.topic,
        one.queue,
        one.offset,
        one.stored_time,
        one.born_time,
        one.key or "",
        one.ordering_key or "",
        one.tag or "",
        one.headers,
        one.application_id or "",
        one.content_type or "",
        one.body,
    )


def _micros(time: datetime | None) -> int | None:
    if time is None:
        return None
    return int(time.replace(microsecond=0).timestamp()) * 1_000_000 + time.microsecond
