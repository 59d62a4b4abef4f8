"""Row P2: a task runs once a tick, in one process of all, and goes on when that one is killed."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa

from ternmq.reliable import Inbox
from tests import coordinators
from tests.black_box.process import DEADLINE, wait_until

ROOT = Path(__file__).parents[2]
ROWS = 100_000
TABLES = ("numbers", "copies", "progress", "runs", "ternmq_lease", "ternmq_schema",
          "ternmq_outbox", "ternmq_inbox")  # fmt: skip


@pytest.fixture(scope="module")
def postgresql() -> Iterator[coordinators.Server]:
    with coordinators.postgresql() as server:
        if server is None:
            pytest.skip("needs PostgreSQL")
        yield server


@pytest.fixture(scope="module")
def mariadb() -> Iterator[coordinators.Server]:
    with coordinators.mariadb() as server:
        if server is None:
            pytest.skip("needs MariaDB")
        yield server


@pytest.fixture(params=["sqlite", "postgresql", "mariadb"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[sa.Engine]:
    url = f"sqlite:///{tmp_path}/shop.db"
    if request.param != "sqlite":
        url = request.getfixturevalue(request.param).url
    made = sa.create_engine(url)
    try:
        if made.dialect.name == "sqlite":
            with made.connect() as connection:
                connection.exec_driver_sql("PRAGMA journal_mode=WAL")
        with made.begin() as connection:
            for table in TABLES:
                connection.exec_driver_sql(f"DROP TABLE IF EXISTS {table}")
            connection.exec_driver_sql("CREATE TABLE numbers (n INTEGER PRIMARY KEY)")
            connection.exec_driver_sql("CREATE TABLE copies (n INTEGER, name VARCHAR(9))")
            connection.exec_driver_sql("CREATE TABLE progress (place INTEGER)")
            connection.exec_driver_sql("CREATE TABLE runs (name VARCHAR(9), tick BIGINT)")
            connection.exec_driver_sql("INSERT INTO progress VALUES (0)")
        with Inbox(made, clean=False) as inbox:
            inbox.prepare()
        yield made
    finally:
        made.dispose()


@contextmanager
def worker(engine: sa.Engine, name: str) -> Iterator[subprocess.Popen[bytes]]:
    url = engine.url.render_as_string(hide_password=False)
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.black_box.task_worker", url, name], cwd=ROOT
    )
    try:
        yield process
        process.send_signal(signal.SIGTERM)
        process.wait(DEADLINE)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def fill(engine: sa.Engine) -> None:
    with engine.begin() as connection:
        connection.execute(
            sa.text("INSERT INTO numbers VALUES (:n)"), [{"n": n} for n in range(1, ROWS + 1)]
        )


def column(engine: sa.Engine, query: str) -> list[str]:
    with engine.connect() as connection:
        return list(connection.exec_driver_sql(query).scalars())


def copied(engine: sa.Engine) -> int:
    with engine.connect() as connection:
        return int(connection.exec_driver_sql("SELECT count(*) FROM copies").scalar_one())


@pytest.mark.row("P2")
def test_each_tick_runs_once_in_one_of_three_processes(engine) -> None:
    with ExitStack() as stack:
        for name in "abc":
            stack.enter_context(worker(engine, name))
        wait_until(lambda: len(column(engine, "SELECT tick FROM runs")) >= 5, "five ticks run")
    ticks = Counter(column(engine, "SELECT tick FROM runs"))
    assert set(ticks.values()) == {1}


@pytest.mark.timeout(240)
@pytest.mark.row("P2")
def test_another_goes_on_when_the_executor_is_killed(engine) -> None:
    fill(engine)
    names = ("a", "b")
    with worker(engine, "a") as a, worker(engine, "b") as b:
        wait_until(lambda: bool(column(engine, "SELECT 1 FROM copies LIMIT 1")), "a job runs")
        [executor] = set(column(engine, "SELECT name FROM runs"))
        killed, (other,) = (a, "b") if executor == "a" else (b, "a")
        killed.kill()
        killed.wait()
        done = copied(engine)
        assert 0 < done < ROWS, "it was killed in the middle"
        wait_until(lambda: copied(engine) == ROWS, "the other goes on", 3 * DEADLINE)
    numbers = Counter(column(engine, "SELECT n FROM copies"))
    assert len(numbers) == ROWS
    assert set(numbers.values()) == {1}
    by_name = Counter(column(engine, "SELECT name FROM copies"))
    assert set(by_name) == set(names)
    assert by_name[other] == ROWS - by_name[executor]
