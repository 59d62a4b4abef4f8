"""Databases of an application for tests: SQLite always, PostgreSQL and MariaDB where they are.

A folder of tests imports the fixtures ``servers`` and ``database`` into its conftest. Each test has
a database of its own; the servers run for all of them.

``TERNMQ_TEST_MYSQL=mysql+pymysql://root:password@127.0.0.1:3306``: a server that runs already, in
the place of MariaDB; Debian has no MySQL. The account makes databases ``ternmq_test_...``, and
removes them. It is for these tests; those that kill servers keep a MariaDB of their own.
"""

from __future__ import annotations

import itertools
import os
import secrets
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest
import sqlalchemy as sa

from tests import coordinators

GIVEN: Final = "TERNMQ_TEST_MYSQL"
"""A variable of the environment."""
KINDS: Final = ("sqlite", "postgresql", "mariadb")
_NAMES: Final = {"postgresql": "PostgreSQL", "mariadb": "MariaDB"}
_START: Final = {"postgresql": coordinators.postgresql, "mariadb": coordinators.mariadb}


class Servers:
    """Servers of databases, each started when it is first wanted."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._urls: dict[str, str | None] = {}
        self._numbers = itertools.count(1)

    def new(self, kind: str, folder: Path) -> str:
        """Return the URL of a new database; skip the test if there is no such server."""
        if kind == "sqlite":
            return f"sqlite:///{folder}/shop{next(self._numbers)}.db"
        if kind == "mariadb" and os.environ.get(GIVEN):
            return self._in_given(os.environ[GIVEN])
        if kind not in self._urls:
            server = self._stack.enter_context(_START[kind]())
            self._urls[kind] = None if server is None else server.url
        url = self._urls[kind]
        if url is None:
            pytest.skip(f"needs {_NAMES[kind]}")
        name = f"shop{next(self._numbers)}"
        run(url, f"CREATE DATABASE {name}")
        return f"{url.rpartition('/')[0]}/{name}"

    def _in_given(self, server: str) -> str:
        """Return the URL of a new database in a server that runs already."""
        url = sa.make_url(server).set(drivername="mysql+pymysql", database=None)
        name = f"ternmq_test_{secrets.token_hex(6)}"
        shown = url.render_as_string(hide_password=False)
        run(shown, f"CREATE DATABASE {name}")
        self._stack.callback(run, shown, f"DROP DATABASE {name}")
        return url.set(database=name).render_as_string(hide_password=False)


@pytest.fixture(scope="session")
def servers() -> Iterator[Servers]:
    with ExitStack() as stack:
        yield Servers(stack)


@pytest.fixture(params=KINDS)
def database(request: pytest.FixtureRequest, servers: Servers, tmp_path: Path) -> str:
    """The URL of a new database."""
    return servers.new(str(request.param), tmp_path)


def run(url: str, *statements: str) -> list[tuple[object, ...]]:
    """Run statements, each a transaction; return the rows of the last one."""
    engine = sa.create_engine(url, poolclass=sa.NullPool, isolation_level="AUTOCOMMIT")
    rows: list[tuple[object, ...]] = []
    with engine.connect() as connection:
        for statement in statements:
            done = connection.exec_driver_sql(statement)
            rows = [tuple(row) for row in done] if done.returns_rows else []
    return rows
