"""Rows of MISSION, modes with a database: batch sessions as rows, rapid beside confirm mode."""

from __future__ import annotations

import math
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

import ternmq
import ternmq.sync
from ternmq.reliable import Items, Outbox, batch
from tests.black_box.process import BrokerProcess, wait_until

ROWS = "SELECT count(*), coalesce(sum(items), 0) FROM ternmq_outbox"


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[sa.Engine]:
    made = sa.create_engine(f"sqlite:///{tmp_path}/shop.db")
    yield made
    made.dispose()


@pytest.fixture
def own(tmp_path: Path) -> Iterator[BrokerProcess]:
    """Yield a broker that the test may kill."""
    with BrokerProcess("dev", tmp_path / "broker") as broker:
        yield broker


def rows(engine: sa.Engine) -> tuple[int, int]:
    """Return how many rows the outbox has, and how many messages of the application in them."""
    with engine.connect() as connection:
        found = connection.exec_driver_sql(ROWS).one()
        return int(found[0]), int(found[1])


def sizes(client: ternmq.sync.Client, topic: str) -> list[int]:
    try:
        return [len(one.decode(Items[int])) for one in client.read(topic)]
    except ternmq.UnknownTopic:
        return []


@pytest.mark.row("J5b")
def test_the_same_call_is_a_row_inside_a_transaction_and_a_send_outside(own, engine) -> None:
    """``place`` knows nothing of sessions and outboxes."""
    with ternmq.sync.connect(own.url) as client:
        outbox = Outbox(client, engine, compensate=False)
        outbox.prepare()

        def place(number: int) -> ternmq.Receipt:
            receipt: ternmq.Receipt = client.send("orders", number)
            return receipt

        outside = place(1)
        assert (outside.pending, outside.offset) == (False, 0)
        with Session(engine) as session, session.begin(), outbox.bound(session):
            assert place(2).pending
            assert tuple(session.execute(sa.text(ROWS)).one()) == (1, 1)
            assert [one.decode(int) for one in client.read("orders")] == [1]
        outbox.flush(20)
        with Session(engine) as session, session.begin() as transaction, outbox.bound(session):
            place(3)
            transaction.rollback()
        assert not place(4).pending
        outbox.flush(20)
        assert [one.decode(int) for one in client.read("orders")] == [1, 2, 4]
        outbox.close()


@pytest.mark.row("K7")
@pytest.mark.row("J2")
def test_a_batch_session_is_one_row(own, engine) -> None:
    with ternmq.sync.connect(own.url) as client:
        outbox = Outbox(client, engine, compensate=False)
        outbox.prepare()
        with Session(engine) as session, session.begin():
            with batch(client, "orders", size=20, within=session) as holder:
                for number in range(25):
                    holder.add(number)
            inside = session.execute(sa.text(ROWS)).one()
            assert tuple(inside) == (2, 25)
        outbox.flush(20)
        assert rows(engine) == (0, 0)
        assert sizes(client, "orders") == [20, 5]
        with Session(engine) as session, session.begin() as transaction:
            with batch(client, "orders", size=20, within=session) as holder:
                for number in range(25):
                    holder.add(number)
            transaction.rollback()
        client.send("orders", 1, within=outbox)
        outbox.flush(20)
        assert len(list(client.read("orders"))) == 3
        outbox.close()


KILLED = """
    import os, signal, sys
    import sqlalchemy as sa
    from sqlalchemy.orm import Session
    import ternmq.sync
    from ternmq.reliable import Outbox, Step, batch

    client = ternmq.sync.connect(sys.argv[1])
    engine = sa.create_engine(sys.argv[2])
    outbox = Outbox(client, engine, compensate=False)

    def at(step, ids):
        if step is Step.COMMIT:  # told by a hook behind the commit
            os.kill(os.getpid(), signal.SIGKILL)

    outbox.observe(at)
    with Session(engine) as session, session.begin():
        with batch(client, "orders", size=20, within=session) as holder:
            for number in range(20):
                holder.add(number)
"""


@pytest.mark.row("K9")
@pytest.mark.row("K3")
def test_a_session_whose_process_was_killed_is_sent_by_another(own, engine) -> None:
    with ternmq.sync.connect(own.url) as client:
        outbox = Outbox(client, engine, resend_after=0.5)
        outbox.prepare()
        killed = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(KILLED), own.url, str(engine.url)], check=False
        )
        assert killed.returncode == -signal.SIGKILL
        assert rows(engine) == (1, 20)
        outbox.start()
        wait_until(lambda: sizes(client, "orders") == [20], "the session is stored, whole")
        wait_until(lambda: rows(engine) == (0, 0), "its row is gone")
        outbox.close()


@pytest.mark.row("K1")
def test_a_rapid_send_is_no_row(own, engine) -> None:
    with ternmq.sync.connect(own.url) as client:
        outbox = Outbox(client, engine, compensate=False)
        outbox.prepare()
        with Session(engine) as session, session.begin() as transaction, outbox.bound(session):
            client.send_oneway("orders", 1)
            assert tuple(session.execute(sa.text(ROWS)).one()) == (0, 0)
            transaction.rollback()
        wait_until(lambda: _count(client, "orders") == 1, "it was sent, whatever the transaction")
        outbox.close()


def _count(client: ternmq.sync.Client, topic: str) -> int:
    try:
        return len(list(client.read(topic)))
    except ternmq.UnknownTopic:
        return 0


@pytest.mark.row("L7")
def test_rapid_mode_is_faster_than_confirm_mode(own, engine) -> None:
    """In turns; each counts until the last message is stored."""
    with ternmq.sync.connect(own.url) as client:
        outbox = Outbox(client, engine, compensate=False)
        outbox.prepare()
        client.send("orders", 0, within=outbox)
        outbox.flush(20)
        count, stored = 100, 1

        def confirm() -> None:
            for number in range(count):
                with engine.begin() as connection:
                    client.send("orders", number, within=connection)
            outbox.flush(60)

        def rapid() -> None:
            for number in range(count):
                client.send_oneway("orders", number)
            wait_until(lambda: _count(client, "orders") == stored, "all are stored")

        slow, fast = math.inf, math.inf  # the best of each: others use the machine, too
        for _ in range(20):
            stored += count
            slow = min(slow, _timed(confirm))
            stored += count
            fast = min(fast, _timed(rapid))
            if slow >= 2 * fast:
                break
        assert slow >= 2 * fast
        outbox.close()


def _timed(work: Callable[[], None]) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began
