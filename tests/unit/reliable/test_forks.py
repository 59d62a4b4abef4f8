"""Forks beside threads that work with a SQLite file."""

from __future__ import annotations

import os
import sqlite3
import threading
from pathlib import Path

import sqlalchemy as sa

from ternmq.reliable.libraries.alchemy import AlchemyDatabase
from ternmq.reliable.libraries.forks import Stillness
from tests.black_box.process import wait_until


def test_a_child_is_not_locked_out_by_what_a_thread_of_its_parent_did(tmp_path: Path) -> None:
    """SQLite's locks are inherited; without stillness, a child hangs or finds the file locked."""
    path = tmp_path / "shop.db"
    engine = sa.create_engine(f"sqlite:///{path}")
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE orders (id INTEGER)")
    engine.dispose()
    database, ended, goes_on = AlchemyDatabase(engine), threading.Event(), threading.Event()
    goes_on.set()

    def work() -> None:
        while not ended.is_set():
            goes_on.wait(10)  # else the child might wait for its turn for long
            with database.writing() as one:
                one.run("INSERT INTO orders VALUES (1)", {})

    thread = threading.Thread(target=work)
    thread.start()
    try:
        for _ in range(40):
            child = os.fork()
            if not child:
                try:
                    sqlite3.connect(path, timeout=5).execute("BEGIN IMMEDIATE")
                except sqlite3.OperationalError:
                    os._exit(1)
                os._exit(0)
            goes_on.clear()
            try:
                assert os.waitpid(child, 0)[1] == 0
            finally:
                goes_on.set()
    finally:
        ended.set()
        thread.join()
        database.close()


def test_a_fork_waits_for_work_and_work_for_the_fork() -> None:
    still, steps = Stillness(), list[str]()
    begun, release = threading.Event(), threading.Event()

    def work() -> None:
        with still.work():
            begun.set()
            release.wait(10)
            steps.append("worked")

    def fork() -> None:
        still.before()
        steps.append("forked")

    threads = [threading.Thread(target=one) for one in (work, fork)]
    threads[0].start()
    assert begun.wait(10)
    threads[1].start()
    wait_until(lambda: still._forking, "the fork waits")
    assert steps == []
    release.set()
    for thread in threads:
        thread.join(10)
    assert steps == ["worked", "forked"]
    late = threading.Thread(target=work)
    late.start()
    still.after()
    late.join(10)
    assert steps[-1] == "worked"
