"""What the commands of ``ternmq pipeline`` have in common: tables, broker, what is installed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import click

from ternmq.cli import archived
from ternmq.cli.connection import Where, where
from ternmq.cli.exits import ExitCode, Failed
from ternmq.client.connecting import options_of

if TYPE_CHECKING:
    from ternmq.pipeline.folder import Folder
    from ternmq.spark.connecting import Broker

_TIMEOUT_S: Final = 30.0

required_tables: Callable[[Any], Any] = click.option(
    "--tables",
    metavar="DIR",
    envvar=archived.TABLES,
    help=f"The folder of the tables, or ${archived.TABLES}, or as the context says.",
)


@contextmanager
def installed() -> Iterator[None]:
    """Import what the extra brings.

    Raises:
        Failed: It is not there.
    """
    try:
        yield
    except ImportError as error:
        raise Failed(
            f"the pipeline needs {error.name}: pip install 'ternmq[spark]'", ExitCode.USAGE
        ) from None


def folder_of(tables: str | None) -> Folder:
    """Return the folder of the tables.

    Raises:
        click.UsageError: None is named.
    """
    from ternmq.pipeline.folder import Folder

    context = click.get_current_context()
    named = tables or where(context).tables
    if not named:
        raise click.UsageError(
            f"say where the tables are: --tables DIR, or ${archived.TABLES}", context
        )
    return Folder(named)


def broker_of(place: Where, token_file: str = "", timeout: float = _TIMEOUT_S) -> Broker:
    """Return a broker as the pipeline knows it.

    Raises:
        InvalidUrl, InvalidName, OptionError: Naming what cannot be.
    """
    from ternmq.spark.connecting import Broker

    options = options_of(place.url, place.app, place.token, timeout, timeout)
    bare = replace(options.address, app="", token="")
    token = "" if token_file else options.token
    return Broker((bare,), options.app, token, token_file, int(1000 * timeout))
