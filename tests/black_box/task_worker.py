"""A process with a task: ``python -m tests.black_box.task_worker DATABASE NAME``.

Each second, in one process of all: the next rows of ``numbers`` are copied to ``copies``, a hundred
in a transaction, with the place up to which they were copied. The process notes in ``runs`` which
tick it runs, and in ``copies`` which rows it copied.
"""

from __future__ import annotations

import signal
import sys
import threading

import sqlalchemy as sa

from ternmq.reliable import every

RUN = sa.text("INSERT INTO runs SELECT :name, tick FROM ternmq_lease WHERE name = 'task:copy'")


def main(database: str, name: str) -> None:
    """Work until a signal."""
    engine = sa.create_engine(database)
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())

    @every(engine, "copy", seconds=1, lease=3)
    def copy() -> None:
        with engine.begin() as connection:
            connection.execute(RUN, {"name": name})
        while True:
            with engine.begin() as connection:
                if not copy_some(connection):
                    return

    def copy_some(connection: sa.Connection) -> bool:
        if engine.dialect.name == "sqlite":
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        run = connection.exec_driver_sql
        done = int(run("SELECT place FROM progress FOR UPDATE" if engine.dialect.name != "sqlite"
                       else "SELECT place FROM progress").scalar_one())  # fmt: skip
        values = {"low": done, "high": done + 500, "name": name}
        copied = connection.execute(
            sa.text(
                "INSERT INTO copies SELECT n, :name FROM numbers WHERE n > :low AND n <= :high"
            ),
            values,
        ).rowcount
        connection.execute(sa.text("UPDATE progress SET place = place + :count"), {"count": copied})
        ended.wait(0.005)
        return copied > 0

    with copy:
        ended.wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
