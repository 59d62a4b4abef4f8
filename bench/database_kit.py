"""Databases of applications, as measurements start and end them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import sqlalchemy as sa
from core_kit import Settings, folder

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from ternmq.reliable.database.prepare import prepare
from ternmq.reliable.libraries.alchemy import AlchemyDatabase
from tests import coordinators

NAMES = ("sqlite", "postgresql", "mariadb")


class MissingServer(RuntimeError):
    """The machine has no such server."""


@contextmanager
def database(settings: Settings, name: str) -> Iterator[str]:
    """Run a database with the tables of the outbox and a table of orders; yield its URL.

    Its files are on the disk that is measured, and each commit is synced: SQLite in WAL mode with
    ``synchronous=FULL``, the servers as they are by default.
    """
    with ExitStack() as stack:
        if name == "sqlite":
            url = f"sqlite:///{stack.enter_context(folder(settings))}/shop.db"
        else:
            made = coordinators.postgresql if name == "postgresql" else coordinators.mariadb
            server = stack.enter_context(made())
            if server is None:
                raise MissingServer(f"this machine has no {name}: .ci/run installs it")
            url = server.url
        engine = sa.create_engine(url)
        with engine.begin() as connection:
            if name == "sqlite":
                connection.exec_driver_sql("PRAGMA journal_mode=WAL")
            connection.exec_driver_sql(
                "CREATE TABLE orders (id INTEGER PRIMARY KEY, cents INTEGER NOT NULL)"
                if name == "sqlite"
                else "CREATE TABLE orders (id BIGINT PRIMARY KEY, cents INTEGER NOT NULL)"
            )
        engine.dispose()
        prepared = AlchemyDatabase(url)
        prepare(prepared)
        prepared.close()
        yield url
