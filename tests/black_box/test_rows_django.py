"""Rows of MISSION with Django: a worker is killed between effect and ack, on three databases."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

import ternmq
import ternmq.sync
from ternmq.reliable import sequence
from ternmq.reliable.database.prepare import prepare
from ternmq.reliable.libraries.alchemy import AlchemyDatabase
from tests.black_box.process import DEADLINE, BrokerProcess, wait_until
from tests.databases import database, run, servers

__all__ = ["database", "servers"]

ROOT = Path(__file__).parents[2]
TRANSFERS = ternmq.Topic("transfers", ordered=True)


@dataclass
class Shop:
    """A broker, a database, and workers that may be killed."""

    broker: BrokerProcess
    client: ternmq.sync.Client
    url: str
    notes: Path

    @contextmanager
    def worker(self, where: str = "nowhere") -> Iterator[subprocess.Popen[bytes]]:
        """Run a worker; leaving ends it, if it lives."""
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.black_box.django_worker", self.broker.url, self.url,
             where, str(self.notes)], cwd=ROOT,
        )  # fmt: skip
        try:
            yield process
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            process.wait(DEADLINE)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()

    def dies(self, where: str) -> None:
        """Run a worker until it has killed itself."""
        with self.worker(where) as process:
            assert process.wait(DEADLINE) == -signal.SIGKILL

    def ids(self, table: str = "effects") -> Counter[str]:
        found = [one for [one] in run(self.url, f"SELECT id FROM {table}")]
        return Counter(one if isinstance(one, str) else bytes(one).decode() for one in found)  # type: ignore[call-overload]

    def invoices(self) -> Counter[str]:
        with suppress(ternmq.UnknownTopic):
            return Counter(one.body.decode() for one in self.client.read("invoices"))
        return Counter()

    def calls(self) -> Counter[str]:
        return Counter(self.notes.read_text(encoding="utf-8").split())


@pytest.fixture
def shop(database: str, tmp_path: Path) -> Iterator[Shop]:
    opened = AlchemyDatabase(database)
    prepare(opened)
    opened.close()
    run(database, "CREATE TABLE effects (id varchar(64))")
    with (
        BrokerProcess("dev", tmp_path / "broker", limits_session_grace="2s") as broker,
        ternmq.sync.connect(broker.url) as client,
    ):
        yield Shop(broker, client, database, tmp_path / "notes")


@pytest.mark.row("M1")
@pytest.mark.row("M2")
@pytest.mark.parametrize("where", ["before", "after"])
def test_a_worker_killed_between_effect_and_ack(shop: Shop, where: str) -> None:
    shop.client.send("orders", "order-7", id="order-7")
    for _ in range(2):
        shop.dies(where)
        expected = {"order-7": 1} if where == "after" else {}
        assert shop.ids() == shop.ids("ternmq_inbox") == expected
    with shop.worker():
        shop.client.send("orders", "last", id="last")
        wait_until(lambda: len(shop.ids()) == 2, "both are handled")
        wait_until(lambda: len(shop.invoices()) == 2, "both invoices are sent")

        def unacked() -> int:
            queues = shop.client.admin.group("orders", "billing").queues
            return sum(one.end - one.floor + one.waiting for one in queues)

        wait_until(lambda: unacked() == 0, "both are acked")
    once = {"order-7": 1, "last": 1}
    assert shop.ids() == shop.ids("ternmq_inbox") == shop.invoices() == once
    assert shop.calls() == {"order-7": 1 if where == "after" else 3, "last": 1}


@pytest.mark.row("K15")
def test_a_consumer_killed_in_a_step(shop: Shop) -> None:
    with sequence(shop.client, TRANSFERS, id="a") as steps:
        for number in (1, 2, 3):
            steps.add({"number": number})
    shop.dies("step-before")
    assert shop.ids() == {"a-1": 1}
    shop.dies("step-after")
    assert shop.ids() == {"a-1": 1, "a-2": 1}
    with shop.worker():
        wait_until(lambda: len(shop.ids()) == 3, "all steps are done", 60)
        wait_until(lambda: len(shop.invoices()) == 3, "all invoices are sent", 60)
    assert shop.ids() == shop.invoices() == {"a-1": 1, "a-2": 1, "a-3": 1}
    assert shop.calls() == {"a-1": 1, "a-2": 2, "a-3": 1}
