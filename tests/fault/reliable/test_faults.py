"""The network is bad, the database is full or locked, a transaction stays open for long."""

from __future__ import annotations

import os
import secrets
import shutil
import sqlite3
import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest
import sqlalchemy as sa

from tests.black_box.stranger import SEND
from tests.black_box.wire import Wire
from tests.fault.reliable import checks, shop
from tests.fault.reliable.place import Place, place
from tests.fault.reliable.tools import much, wait_until
from tests.fault.tools import need_root
from tests.fault.volumes import Memory
from tests.killable_databases import KINDS, SERVED, Servers

pytestmark = [pytest.mark.fault, pytest.mark.slow]

ROWS: Final = much(1_000, 100_000)
"""Transactions, of two rows each, that pass an open one."""
HELD_S: Final = much(6, 10)
"""Longer than SQLite waits for a lock by default."""

SERVER_BYTES: Final = 400 << 20
"""Of the disk of a server, most of which the test takes away."""

LOCKS: Final = {
    "sqlite": ("BEGIN IMMEDIATE",),
    "postgresql": ("BEGIN", "LOCK TABLE ternmq_outbox IN ACCESS EXCLUSIVE MODE"),
    "mariadb": ("BEGIN", "SELECT seq FROM ternmq_outbox FOR UPDATE"),
}


def committed(here: Place) -> int:
    """Return how many transactions are committed, as far as the members know."""
    return len(here.crew.lines("committed"))


@pytest.mark.timeout(180)
@pytest.mark.row("K3", "K5")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", ["lost", "frozen", "slow", "cut"])
def test_the_network_is_bad(how, kind, servers, broker, forks, tmp_path):
    """Answers are lost, connections stand still, are slow, are cut; the application goes on."""
    with (
        Wire(broker.port) as wire,
        place(kind, servers, broker, forks, tmp_path / "crew", broker_url=wire.url) as here,
    ):
        here.crew.start("c1", timeout=1.0)
        writer = here.crew.start(
            "w1", count=10**9, compensate=False, timeout=1.0, pause_s=0.01, rolled_back=0.1
        )
        wait_until(lambda: committed(here) >= 20, "some are committed")
        before = committed(here)
        if how == "lost":
            wire.lost = SEND
            wait_until(lambda: wire.lost_count >= 4, "inconclusive: answers are lost")
            wire.lost = 0
        elif how == "frozen":
            wire.frozen = True
            hold(3.0)  # longer than the timeout of clients
            assert shop.rows_left(here.engine) > 2, "inconclusive: rows wait"
            wire.frozen = False
        elif how == "slow":
            wire.delay_s = 0.2
            carried = wire.down_bytes
            wait_until(lambda: wire.down_bytes > carried + 2000, "answers come", pause=0.05)
            wire.delay_s = 0.0
        else:
            for _ in range(5):
                cut_and_wait(wire)
        wait_until(lambda: committed(here) >= before + 20, "the application goes on")
        written = writer.end()
        verdict = here.judge()
        counts = here.crew.end()
    assert verdict.unknown == 0, "the application noticed nothing"
    if how == "lost":
        assert verdict.copies == 0
        assert any(one["duplicates"] for one in [written, *counts]), "they were sent again"


@pytest.mark.timeout(180)
@pytest.mark.row("J4", "K5")
@pytest.mark.parametrize("kind", KINDS)
def test_a_lock_on_the_table_is_held_for_long(kind, servers, broker, forks, tmp_path):
    """Nobody can write the table, or read it, or both; then all goes on by itself."""
    with place(kind, servers, broker, forks, tmp_path / "crew") as here:
        here.crew.start("first", count=10, compensate=False).said("done")
        engine = sa.create_engine(here.url, poolclass=sa.NullPool, isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            for statement in LOCKS[kind]:
                connection.exec_driver_sql(statement)
            here.crew.start("c1")
            writer = here.crew.start("w1", count=10, compensate=False)
            writer.said("started")
            hold(HELD_S)
            connection.exec_driver_sql("ROLLBACK")
        engine.dispose()
        writer.said("done")
        verdict = here.judge()
        here.crew.end()
    assert verdict.committed + verdict.unknown == 20
    if kind != "sqlite":
        assert verdict.unknown == 0, "the application waited"


def cut_and_wait(wire: Wire) -> None:
    """Cut all connections; wait until somebody has come again."""
    made = wire.connections
    wire.cut()
    wait_until(lambda: wire.connections > made, "they connect again")


def hold(seconds: float) -> None:
    """Let a lock be held: it is the fault."""
    threading.Event().wait(seconds)


@pytest.mark.timeout(180 if ROWS < 5000 else 3000)
@pytest.mark.row("K5")
@pytest.mark.parametrize("kind", SERVED)
def test_a_transaction_stays_open_while_many_rows_pass(kind, servers, broker, forks, tmp_path):
    """Its rows have small numbers; what is deleted cannot be vacuumed meanwhile."""
    with place(kind, servers, broker, forks, tmp_path / "crew", accounts=65) as here:
        here.crew.start("c1", resend_after=60)
        late = here.crew.start(
            "late", count=1, account="a64", compensate=False, stop_at="commit", resend_after=60
        )
        late.stands("commit")
        for number in range(2):
            here.crew.start(
                f"w{number}", count=ROWS // 2, threads=4, accounts=64, compensate=False, seed=number
            )
        for member in here.crew.members[2:]:
            member.said("done", seconds=1500)
        checks.wait_until_empty(here.engine)
        assert "late-0" not in shop.committed(here.engine)
        late.go_on()
        late.said("committed")
        verdict = here.judge()
        counts = here.crew.end()
    assert verdict.committed == ROWS + 1
    assert verdict.unknown == 0
    assert not any(one["duplicates"] for one in counts), counts


@pytest.mark.timeout(180 if ROWS < 5000 else 3000)
@pytest.mark.row("K5")
def test_a_reader_of_sqlite_stays_open_while_many_rows_pass(servers, broker, forks, tmp_path):
    """SQLite has one writer; what a reader sees stays in its log, which grows meanwhile."""
    with place("sqlite", servers, broker, forks, tmp_path / "crew", accounts=64) as here:
        here.crew.start("c1")
        here.crew.start("first", count=1, compensate=False).said("done")
        engine = sa.create_engine(here.url, poolclass=sa.NullPool)
        with engine.connect() as connection:
            connection.exec_driver_sql("BEGIN")
            seen = connection.exec_driver_sql("SELECT count(*) FROM orders").scalar_one()
            writer = here.crew.start("w1", count=ROWS, threads=2, accounts=64, compensate=False)
            writer.said("done", seconds=1500)
            checks.wait_until_empty(here.engine)
            again = connection.exec_driver_sql("SELECT count(*) FROM orders").scalar_one()
            assert (seen, again) == (1, 1), "inconclusive: it was open"
        engine.dispose()
        verdict = here.judge()
        here.crew.end()
    assert verdict.committed == ROWS + 1
    assert verdict.unknown == 0


@pytest.mark.timeout(180)
@pytest.mark.row("J1", "K5")
def test_the_database_is_full(servers, broker, forks, tmp_path):
    """Transactions fail whole; with room again, all goes on by itself."""
    need_root()
    with Memory(tmp_path / "disk", 4 << 20) as disk:
        path = disk.point / "shop.db"
        with closing(sqlite3.connect(path)) as made:
            made.execute("PRAGMA journal_mode=WAL")
        url = f"sqlite:///{path}"
        with place("sqlite", servers, broker, forks, tmp_path / "crew", url=url) as here:
            here.crew.start("c1")
            writer = here.crew.start("w1", count=10**9, compensate=False, pause_s=0.01)
            wait_until(lambda: committed(here) >= 20, "some are committed")
            ballast = disk.fill()
            wait_until(
                lambda: any("full" in one["error"] for one in here.crew.lines("unknown")),
                "inconclusive: it is full",
            )
            ballast.unlink()
            before = committed(here)
            wait_until(lambda: committed(here) >= before + 20, "the application goes on")
            writer.end()
            verdict = here.judge()
            here.crew.end()
    assert verdict.committed >= 40


@pytest.fixture
def disk() -> Iterator[Memory]:
    """A small disk for a server, which is another user's process."""
    need_root()
    folder = Path(tempfile.mkdtemp(prefix="ternmq-disk-"))
    folder.chmod(0o755)
    with Memory(folder / "disk", SERVER_BYTES) as made:
        yield made
    shutil.rmtree(folder)


@pytest.mark.timeout(300)
@pytest.mark.row("J1", "K5")
@pytest.mark.parametrize("kind", SERVED)
def test_the_disk_of_the_server_is_full(kind, disk, broker, forks, tmp_path):
    """Transactions fail whole, or the server ends and is started again; then all goes on."""
    with Servers(tmp_path / "sqlite", data=disk.point) as servers:
        servers.of(kind)
        with place(kind, servers, broker, forks, tmp_path / "crew") as here:
            here.crew.start("c1")
            writer = here.crew.start("w1", count=10**9, threads=4, compensate=False)
            wait_until(lambda: committed(here) >= 20, "some are committed")
            fills = Filler(here.url)
            ballast = disk.fill()
            wait_until(fills.is_full, "inconclusive: it is full", pause=0.0)
            assert os.statvfs(disk.point).f_bavail == 0, "inconclusive: the disk is full"
            ballast.unlink()
            if servers.ended(kind):
                servers.again(kind)
            wait_until(fills.has_room, "the server works again")
            before = committed(here)
            wait_until(lambda: committed(here) >= before + 20, "the application goes on")
            writer.end()
            verdict = here.judge()
            here.crew.end()
    assert verdict.committed >= 40


class Filler:
    """Somebody else's table, which grows until the server has no room."""

    def __init__(self, url: str) -> None:
        self._engine = sa.create_engine(url, poolclass=sa.NullPool)
        with self._engine.begin() as connection:
            connection.exec_driver_sql("CREATE TABLE filler (data TEXT)")

    def _grow(self, text: str) -> bool:
        try:
            with self._engine.begin() as connection:
                connection.execute(sa.text("INSERT INTO filler VALUES (:text)"), {"text": text})
        except sa.exc.DBAPIError:
            return False
        return True

    def is_full(self) -> bool:
        """Write some more; return whether the server had no room for it."""
        return not self._grow(secrets.token_hex(30_000))

    def has_room(self) -> bool:
        """Return whether the server writes again."""
        return self._grow("a line")
