"""``ternmq outbox``: the group of commands, and ``prepare``."""

from __future__ import annotations

from collections.abc import Sequence

import click

from ternmq.cli.commands import Group
from ternmq.cli.outbox.databases import (
    databases_option,
    each,
    file_of,
    installed,
    opened,
    schema_option,
)
from ternmq.cli.outbox.rows import discard, list_, resend, show, status
from ternmq.cli.outbox.run import run
from ternmq.cli.terminal import output


@click.group(cls=Group)
def outbox() -> None:
    """Prepare databases for the outbox, send what waits in them, and decide what failed.

    The outbox is a table in the database of an application. A message that is sent within a
    transaction is a row of it until it is stored at the broker.
    """


@outbox.command()
@databases_option
@schema_option
@click.option(
    "--sql",
    is_flag=True,
    help="Only print the statements that make the tables; nothing is connected to.",
)
def prepare(urls: Sequence[str], schema: str, sql: bool) -> None:
    """Make or upgrade the tables in one database or more, and check them.

    May be repeated, and run by several processes at once. It also checks the rights of the account,
    the engine of the tables (MySQL), the journal mode of the file (SQLite) and the clock. If the
    tables belong to a newer version of TernMQ, nothing is changed.
    """
    if sql:
        _print_statements(urls, schema)
        return
    each(urls, lambda url: _prepare(url, schema), "prepared", output.note)


def _prepare(url: str, schema: str) -> None:
    with opened(url, schema, makes=True) as one:
        from ternmq.reliable.database.prepare import prepare as make

        file = file_of(one.database)
        is_new = file is not None and not file.exists()
        told = make(one.database, schema)
    if is_new:
        output.line(f"{one.name}: made the file")
    for line in told.done:
        output.line(f"{one.name}: {line}")
    for line in told.warnings:
        output.note(f"{one.name}: warning: {line}")


def _print_statements(urls: Sequence[str], schema: str) -> None:
    """Print the statements for a kind of database.

    Raises:
        click.UsageError: The databases are of several kinds.
    """
    with installed():
        from ternmq.reliable.libraries.alchemy import url_of
    from ternmq.reliable.database.dialect import dialect_of
    from ternmq.reliable.database.tables import migration

    kinds = {dialect_of(url_of(url).get_backend_name()) for url in urls}
    if len(kinds) > 1:
        raise click.UsageError(
            "--sql prints statements for one kind of database: name one",
            click.get_current_context(),
        )
    for statement in migration(kinds.pop(), schema):
        click.echo(f"{statement};")


for command in (run, status, list_, show, resend, discard):
    outbox.add_command(command)
