"""How commands open the database of an application.

SQLAlchemy and the drivers are imported where a database is opened.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from ternmq.cli.terminal.exits import ExitCode, Failed
from ternmq.cli.terminal.problems import code_of, not_found, text_of
from ternmq.model.errors import DatabaseNotPrepared, TernMQError

if TYPE_CHECKING:
    from ternmq.reliable.libraries.alchemy import AlchemyDatabase
    from ternmq.reliable.outbox.table import Table

_ENVIRONMENT: Final = "env:"


class DatabaseUrl(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.3 only
    """The URL of a database. Errors do not repeat it: it may contain a password."""

    name = "url"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the URL, of ``env:NAME`` the value of that variable."""
        text = str(value)
        if not text.startswith(_ENVIRONMENT):
            return text
        name = text.removeprefix(_ENVIRONMENT)
        found = os.environ.get(name)
        if not found:
            self.fail(f"there is no environment variable {name!r}", param, ctx)
        return found


def databases_option(function: Any) -> Any:
    """Add ``--database`` for one database or more."""
    return click.option(
        "--database",
        "urls",
        metavar="URL",
        type=DatabaseUrl(),
        multiple=True,
        required=True,
        help="URL of a database as SQLAlchemy takes it: postgresql://USER@HOST/NAME, "
        "mysql://USER@HOST/NAME, sqlite:///FILE. env:NAME: from this environment variable, which "
        "hides a password from the process list. May be repeated.",
    )(function)


def database_option(function: Any) -> Any:
    """Add ``--database`` for one database."""
    return click.option(
        "--database",
        "url",
        metavar="URL",
        type=DatabaseUrl(),
        required=True,
        help="URL of the database, or env:NAME, as for `outbox prepare`.",
    )(function)


def schema_option(function: Any) -> Any:
    """Add ``--schema``."""
    return click.option(
        "--schema",
        metavar="NAME",
        default="",
        help="Schema of the tables; of MySQL: the database on the same server. Default: that of "
        "the connection.",
    )(function)


@dataclass(slots=True, frozen=True)
class Opened:
    """A database, and the table of its outbox."""

    database: AlchemyDatabase
    table: Table

    @property
    def name(self) -> str:
        """Its URL without the password."""
        return self.database.name


@contextmanager
def opened(url: str, schema: str = "", *, makes: bool = False) -> Iterator[Opened]:
    """Open a database, and turn its errors into those of commands.

    Args:
        url: Its URL.
        schema: Where the tables are.
        makes: A file of SQLite may be made; otherwise it must be there.

    Raises:
        Failed: It cannot be opened, or refused something.
        DatabaseNotPrepared: The tables are missing.
        InvalidRequest: The URL is not valid, or a package is not installed.
    """
    with installed():
        from ternmq.reliable.libraries.alchemy import AlchemyDatabase
    from ternmq.reliable.outbox.table import Table

    database = AlchemyDatabase(url)
    table = Table(database.dialect, schema)
    table.fill("{outbox}")  # the name of the schema is checked
    if not makes:
        check_file(database)
    try:
        yield Opened(database, table)
    except database.errors as error:
        raise failure(database, error) from error
    finally:
        database.close()


@contextmanager
def installed() -> Iterator[None]:
    """Import what needs SQLAlchemy inside this block.

    Raises:
        InvalidRequest: It is not installed.
    """
    from ternmq.reliable.libraries import extras

    with extras.installed("this command"):
        yield


def failure(database: AlchemyDatabase, error: Exception) -> Exception:
    """Return what an error of a database means for a command."""
    said = database.reason(error)
    if database.is_unprepared(error):
        return DatabaseNotPrepared(
            f"{database.name} lacks the tables of ternmq.reliable, or has those of another version"
        )
    if database.is_denied(error):
        return Failed(f"{database.name}: the account may not do this: {said}", ExitCode.NOT_ALLOWED)
    if database.is_away(error):
        return Failed(f"{database.name} cannot be reached: {said}", ExitCode.NO_BROKER)
    return Failed(f"{database.name}: {said}")


def file_of(database: AlchemyDatabase) -> Path | None:
    """Return the file of a SQLite database; None: it is another one, or its name is a URI."""
    name = database.url.database or ""
    if database.dialect.name != "sqlite" or name.startswith("file:"):
        return None
    return Path(name)


def check_file(database: AlchemyDatabase) -> None:
    """Check that a SQLite file exists: a look must not make one.

    Raises:
        Failed: It does not.
    """
    file = file_of(database)
    if file is not None and not file.exists():
        raise not_found(f"there is no file {file}: `ternmq outbox prepare` makes it")


def each(
    urls: Sequence[str], work: Callable[[str], None], what: str, note: Callable[[str], None]
) -> None:
    """Do something with each of several databases, also after an error of one.

    Args:
        urls: Their URLs.
        work: What is done with one.
        what: What was not done, such as ``prepared``, for the error.
        note: Prints the error of one.

    Raises:
        Failed: One or more failed; the exit status is that of the last one.
    """
    if len(urls) == 1:
        work(urls[0])
        return
    failed, code = 0, ExitCode.FAILED
    for url in urls:
        try:
            work(url)
        except (Failed, TernMQError) as error:
            failed += 1
            code = error.code if isinstance(error, Failed) else code_of(error)
            note(str(error) if isinstance(error, Failed) else text_of(error))
    if failed:
        raise Failed(f"{failed} of {len(urls)} databases: not {what}, see above", code)
