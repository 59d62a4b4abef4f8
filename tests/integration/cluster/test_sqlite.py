"""SQLite as coordinator: a file that the processes of one machine share."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from pathlib import Path

import pytest

from ternmq.cluster.coordination.port import Refused, Stored, Swapped, Unknown
from ternmq.cluster.coordination.record import BadRecord, unpack
from ternmq.cluster.coordination.resolving import change
from tests.integration.cluster.contract import KEY, Contract, newest, record
from tests.integration.cluster.faults import Kills
from tests.integration.cluster.stores import DatabaseStore, views

CHANGES = 25
_WRITES = """
import asyncio, sys
from ternmq.cluster.coordination.opening import open_coordinator
from ternmq.cluster.coordination.port import Swapped
from ternmq.cluster.coordination.resolving import change
from tests.integration.cluster.contract import KEY, newest, record
async def main(url, name, count):
    one = await open_coordinator(url, deadline_s=20)
    mine = 0
    while mine < int(count):
        new = record((await newest(one)).version + 1, name)
        outcome = await change(one, KEY, new)
        if isinstance(outcome, Swapped):
            print(outcome.version, flush=True)
            mine += 1
    await one.close()
asyncio.run(main(*sys.argv[1:]))
"""


@pytest.fixture
def store(tmp_path: Path) -> DatabaseStore:
    return DatabaseStore(f"sqlite:///{tmp_path}/cluster.db")


class TestSQLite(Contract, Kills):
    """The contract."""


async def test_of_processes_that_write_one_wins_each_version(store: DatabaseStore) -> None:
    async with views(store, 1) as (one,):
        await change(one, KEY, record(1))
        processes = [
            await asyncio.create_subprocess_exec(
                sys.executable, "-c", _WRITES, store.url, name, str(CHANGES),
                stdout=asyncio.subprocess.PIPE,
            )
            for name in ("a", "b")
        ]  # fmt: skip
        out = await asyncio.gather(*[process.communicate() for process in processes])
        won = sorted(int(line) for said, _ in out for line in said.split())
        assert won == list(range(2, 2 + 2 * CHANGES))
        found = await newest(one)
        assert found.version == won[-1]
        assert unpack(found.value, found.version).primary in {"a", "b"}


async def test_a_file_that_another_process_locks(store: DatabaseStore, tmp_path: Path) -> None:
    async with views(store, 1, deadline_s=0.5) as (one,):
        await one.create(KEY, b"x")
        other = sqlite3.connect(tmp_path / "cluster.db")
        other.execute("BEGIN IMMEDIATE")
        assert isinstance(await one.swap(KEY, 1, b"y"), Unknown)
        assert await one.read(KEY) == Stored(b"x", 1)
        other.rollback()
        other.close()
        # The first one may have been made late.
        assert await one.swap(KEY, 1, b"y") in {Swapped(2), Refused()}
        assert await one.read(KEY) == Stored(b"y", 2)


async def test_what_is_committed_is_synced(store: DatabaseStore) -> None:
    async with views(store, 1) as (one,):
        for pragma, value in (("journal_mode", "wal"), ("synchronous", 2)):
            found = await one._threads.run(
                lambda session, pragma=pragma: session._connection.exec_driver_sql(
                    f"PRAGMA {pragma}"
                ).scalar(),
                10,
            )
            assert found == value


@pytest.mark.parametrize(
    "row", ["1, 'a text'", "1, 5", "'a text', x'00'", "1.5, x'00'", "-1, x'00'", "0, x'00'"]
)
async def test_values_of_other_types(store: DatabaseStore, row: str) -> None:
    async with views(store, 1) as (one,):
        store.do(f"INSERT INTO ternmq_leadership (name, version, value) VALUES ('{KEY}', {row})")
        with pytest.raises(BadRecord):
            await one.read(KEY)


async def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "cluster.db").write_bytes(b"not a database" * 100)
    store = DatabaseStore.__new__(DatabaseStore)
    store.url = f"sqlite:///{tmp_path}/cluster.db"
    one = store.view()
    try:
        answer = await one.create(KEY, b"x")
        assert isinstance(answer, Unknown)
        assert "not a database" in answer.why
    finally:
        await one.close()
