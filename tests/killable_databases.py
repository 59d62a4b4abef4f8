"""Databases on loopback for tests: SQLite, and servers that are a test's own and may be killed."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self
from unittest.mock import patch

import pytest
import sqlalchemy as sa

from tests import coordinators
from tests.black_box.process import wait_until

KINDS: Final = ("sqlite", "postgresql", "mariadb")
SERVED: Final = ("postgresql", "mariadb")
_NAMES: Final = {"postgresql": "PostgreSQL", "mariadb": "MariaDB"}
_ROOM: Final = 2 << 30
_MEMORY: Final = "/dev/shm"


class Servers:
    """Starts each server when it is first wanted; leaving the context ends them all.

    Args:
        folder: For the files of SQLite.
        before: Words that go before the command of a server.
        data: Where the servers have their files; none: in memory, if there is room.
    """

    def __init__(
        self, folder: Path, *, before: Sequence[str] = (), data: Path | None = None
    ) -> None:
        self._folder = folder
        self._before = before
        self._data = data
        self._started: dict[str, coordinators.Server] = {}
        self._stack = ExitStack()
        self._count = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def of(self, kind: str) -> coordinators.Server:
        """Return the server of a kind; skips the test if the machine has none."""
        found = self._started.get(kind)
        if found is None:
            with patch.object(tempfile, "tempdir", str(self._data or quick_folder())):
                found = self._stack.enter_context(getattr(coordinators, kind)(self._before))
            if found is None:
                pytest.skip(f"needs {_NAMES[kind]}")
            self._started[kind] = found
        return found

    def fresh(self, kind: str) -> str:
        """Make an empty database; return its URL."""
        self._count += 1
        if kind == "sqlite":
            self._folder.mkdir(parents=True, exist_ok=True)
            path = self._folder / f"{self._count}.db"
            with closing(sqlite3.connect(path)) as made:
                made.execute("PRAGMA journal_mode=WAL")
            return f"sqlite:///{path}"
        url = sa.make_url(self.of(kind).url)
        engine = sa.create_engine(url, poolclass=sa.NullPool, isolation_level="AUTOCOMMIT")
        name = f"shop_{self._count}"
        with engine.connect() as connection:
            connection.exec_driver_sql(f"CREATE DATABASE {name}")
        return url.set(database=name).render_as_string(hide_password=False)

    def drop(self, kind: str, url: str) -> None:
        """Remove a database: a PostgreSQL that was killed syncs all files that it has."""
        if kind == "sqlite":
            return
        server, name = self.of(kind), sa.make_url(url).database
        engine = sa.create_engine(server.url, poolclass=sa.NullPool, isolation_level="AUTOCOMMIT")
        forced = " WITH (FORCE)" if kind == "postgresql" else ""
        with engine.connect() as connection:
            connection.exec_driver_sql(f"DROP DATABASE {name}{forced}")

    def kill(self, kind: str) -> None:
        """SIGKILL a server, which must run."""
        server = self.of(kind)
        assert not server.ended, f"inconclusive: {kind} had ended before it was killed"
        server.kill()
        assert server.ended

    def ended(self, kind: str) -> bool:
        """Return whether a server has ended by itself."""
        return self.of(kind).ended

    def again(self, kind: str) -> None:
        """Start a server that has ended; wait until it answers."""
        server = self.of(kind)
        server.again()
        wait_until(lambda: _answers(server), f"{kind} answers")


def _answers(server: coordinators.Server) -> bool:
    if server.ended:  # processes of the killed one still had its memory
        server.again()
    engine = sa.create_engine(server.url, poolclass=sa.NullPool)
    with suppress(sa.exc.OperationalError), engine.connect():
        return True
    return False


def quick_folder() -> str:
    """Return where files are whose processes are killed and whose machine is not: in memory."""
    memory = Path(_MEMORY)
    roomy = memory.is_dir() and shutil.disk_usage(memory).free > _ROOM
    return _MEMORY if roomy else tempfile.gettempdir()
