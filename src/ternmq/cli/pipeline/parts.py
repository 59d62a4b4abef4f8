"""Shared parts of the commands of ``ternmq pipeline``: tables, broker, installed packages."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import click

from ternmq.cli.reach import archived
from ternmq.cli.reach.connection import Where, where
from ternmq.cli.reach.parameters import PROPERTY
from ternmq.cli.terminal import output
from ternmq.cli.terminal.exits import ExitCode, Failed
from ternmq.client.connection.connecting import options_of

if TYPE_CHECKING:
    from ternmq.pipeline.tables.folder import Folder
    from ternmq.spark.broker.connecting import Broker

_TIMEOUT_S: Final = 30.0
_LOOPBACK: Final = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
"""A local Spark listens on the loopback interface only."""

required_tables: Callable[[Any], Any] = click.option(
    "--tables",
    metavar="DIR",
    envvar=archived.TABLES,
    help=f"Folder of the tables; or ${archived.TABLES}. Default: from the context.",
)


@contextmanager
def installed() -> Iterator[None]:
    """Import packages of an extra inside this block.

    Raises:
        Failed: One is not installed.
    """
    try:
        yield
    except ImportError as error:
        raise archived.missing(error, "the pipeline needs") from None


def folder_of(tables: str | None) -> Folder:
    """Return the folder of the tables.

    Raises:
        click.UsageError: No folder is given.
    """
    from ternmq.pipeline.tables.folder import Folder

    context = click.get_current_context()
    named = tables or where(context).tables
    if not named:
        raise click.UsageError(
            f"name the folder of the tables: --tables DIR, or ${archived.TABLES}", context
        )
    return Folder(named)


def broker_of(place: Where, token_file: str = "", timeout: float = _TIMEOUT_S) -> Broker:
    """Return a broker in the form that the pipeline uses.

    Raises:
        InvalidUrl, InvalidName, OptionError: A value is not valid; names it.
    """
    from ternmq.spark.broker.connecting import Broker

    options = options_of(place.url, place.app, place.token, timeout, timeout)
    bare = tuple(replace(one, app="", token="") for one in options.addresses)
    token = "" if token_file else options.token
    return Broker(bare, options.app, token, token_file, int(1000 * timeout))


def engine_options(function: Any) -> Any:
    """Add the options that select Spark or this process, and configure Spark."""
    for option in reversed(
        (
            click.option(
                "--engine", type=click.Choice(["spark", "local"]),
                help="Run on Spark's workers or in this process (local). Default: `run` uses "
                "Spark if it is installed; `replay` runs in this process.",
            ),
            click.option(
                "--master", metavar="URL",
                help="Master URL of Spark, such as local[2]. Default: local[*].",
            ),
            click.option(
                "--conf", "confs", type=PROPERTY, multiple=True, metavar="NAME=VALUE",
                help="Setting of Spark. May be repeated.",
            ),
        )
    ):  # fmt: skip
        function = option(function)
    return function


def check_engine(engine: str | None, master: str | None, confs: Sequence[tuple[str, str]]) -> None:
    """Reject options of Spark together with ``--engine local``.

    Raises:
        click.UsageError: Both were given.
    """
    if engine == "local" and (master or confs):
        raise click.UsageError(
            "--master and --conf are for --engine spark", click.get_current_context()
        )


def session(engine: str | None, master: str | None, confs: Mapping[str, str]) -> Any:
    """Return a Spark session that starts at its first use; None: work in this process.

    Raises:
        Failed: Spark was requested and is not available.
    """
    if engine == "local":
        return None
    from ternmq.spark.builder import LazySession, missing
    from ternmq.spark.builder import session as begun

    why = missing(os.environ)
    if why:
        if engine is not None or master is not None:
            raise Failed(f"Spark cannot be used: {why}", ExitCode.USAGE) from None
        output.note(f"Spark is not used ({why}): this process does the work itself")
        return None
    settings = dict(confs)
    if master is None or master.startswith("local"):
        settings = _LOOPBACK | settings

    def begin() -> Any:
        spark = begun("ternmq-pipeline", master=master, settings=settings)
        spark.sparkContext.setLogLevel("ERROR")
        return spark

    return LazySession(begin)
