"""``ternmq inbox``: the messages that are remembered in the databases of applications."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

import click

from ternmq.cli.commands import Command, Group
from ternmq.cli.outbox.databases import databases_option, each, opened, schema_option
from ternmq.cli.terminal import output
from ternmq.client.forms import values
from ternmq.model.words import counted, verb

if TYPE_CHECKING:
    from ternmq.reliable.inbox.operating import Overview
    from ternmq.reliable.inbox.table import InboxTable
    from ternmq.reliable.libraries.alchemy import AlchemyDatabase


@click.group(cls=Group)
def inbox() -> None:
    """Look at the inboxes of databases, and remove rows whose time is over.

    An inbox is a table in the database of an application. A message that was handled is a row of
    it, until it cannot come again.
    """


@dataclass(slots=True, frozen=True)
class _Opened:
    database: AlchemyDatabase
    table: InboxTable


@contextmanager
def _opened(url: str, schema: str) -> Iterator[_Opened]:
    """Open a database, and check the version of its tables.

    Raises:
        DatabaseNotPrepared: They are missing, or of another version.
        Failed, InvalidRequest: As ``opened``.
    """
    with opened(url, schema) as one:
        from ternmq.reliable.database.prepare import verify
        from ternmq.reliable.inbox.table import InboxTable

        verify(one.database, schema, "inbox")
        yield _Opened(one.database, InboxTable(one.database.dialect, schema))


@inbox.command(cls=Command)
@databases_option
@schema_option
@output.ndjson_option
def status(urls: Sequence[str], schema: str, as_json: bool) -> None:
    """Show how many messages an inbox remembers, by topic and group.

    over: rows whose time is over; an application with an inbox removes them within a minute.
    kept until: when the time of the first row is over. All rows are counted, so this takes a while
    if there are many.
    """
    several = len(urls) > 1

    def show_one(url: str) -> None:
        from ternmq.reliable.inbox.operating import overview

        with _opened(url, schema) as one, one.database.reading() as work:
            found = overview(one.table, work)
        if as_json:
            output.json_line(_plain(one.database.name, found))
        else:
            _print(one.database.name, found)
            if several:
                click.echo()

    each(urls, show_one, "shown", output.note)


@inbox.command(cls=Command)
@databases_option
@schema_option
@click.option("--dry-run", is_flag=True, help="Only count the rows; remove nothing.")
@output.ndjson_option
def clean(urls: Sequence[str], schema: str, dry_run: bool, as_json: bool) -> None:
    """Remove the rows whose time is over, once, a thousand in a transaction.

    Applications with an inbox do this by themselves once a minute. It is for databases whose
    applications do not run, or have `Inbox(..., clean=False)`.
    """

    def clean_one(url: str) -> None:
        from ternmq.reliable.inbox import operating

        with _opened(url, schema) as one:
            if dry_run:
                with one.database.reading() as work:
                    count = operating.over(one.table, work)
            else:
                count = operating.clean(one.table, one.database)
        if as_json:
            told = {"database": one.database.name, "removed": 0 if dry_run else count}
            output.json_line(told | {"over": count if dry_run else 0})
        elif dry_run:
            would = f"{counted(count, 'row')} {verb(count, 'is', 'are')} over"
            output.line(f"{one.database.name}: {would}, and would be removed")
        else:
            output.line(f"{one.database.name}: removed {counted(count, 'row')}")

    each(urls, clean_one, "cleaned", output.note)


def _print(name: str, found: Overview) -> None:
    cleaned = "never"
    if found.cleaned_ms is not None:
        cleaned = f"{output.span((found.now_ms - found.cleaned_ms) / 1000)} ago"
    output.details(
        [("database", name), ("rows", found.rows), ("over", found.over), ("cleaned", cleaned)]
    )
    if not found.consumers:
        return
    click.echo()
    output.table(
        ("topic", "group", "rows", "over", "kept until"),
        [
            (one.topic, one.group, one.rows, one.over, values.iso(_time(one.first_until_ms)))
            for one in found.consumers
        ],
    )


def _plain(name: str, found: Overview) -> dict[str, object]:
    """Return an overview in the form of the JSON output."""
    return {
        "database": name,
        "rows": found.rows,
        "over": found.over,
        "cleaned_at": None if found.cleaned_ms is None else _time(found.cleaned_ms),
        "consumers": [
            {
                "topic": one.topic, "group": one.group, "rows": one.rows, "over": one.over,
                "kept_until": _time(one.first_until_ms),
            }
            for one in found.consumers
        ],
    }  # fmt: skip


def _time(ms: int) -> datetime:
    return values.of_us(ms * 1000)
