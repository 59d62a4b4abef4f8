"""Rows of MISSION: what many scheduled messages cost, what rests on the journal alone, one API."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import ternmq
import ternmq.sync
from tests.black_box.process import BrokerProcess, wait_until
from tests.black_box.users import Async, Blocking, User

MANY = 300_000
BYTES_EACH = 100
"""What a message that is due next month may cost in memory, its share of the index included."""


def rss_bytes(broker: BrokerProcess) -> int:
    assert broker.process is not None
    status = Path(f"/proc/{broker.process.pid}/status").read_text(encoding="ascii")
    (kib,) = re.findall(r"VmRSS:\s+(\d+) kB", status)
    return int(kib) * 1024


@pytest.mark.row("L0e")
@pytest.mark.timeout(240)
def test_messages_due_next_month_are_not_in_memory(tmp_path: Path) -> None:
    """Their bodies stay on disk: a row of 32 bytes each, and their share of the index."""
    chance = random.Random(1)  # no two bodies are alike: nothing makes them smaller together

    def bodies() -> list[bytes]:
        return [chance.randbytes(200) for _ in range(20_000)]

    month = timedelta(days=31)
    with (
        BrokerProcess("dev", tmp_path) as broker,
        ternmq.sync.connect(broker.url, timeout=60) as client,
    ):
        for _ in range(MANY // 20_000):  # what sending itself takes is taken now
            client.send_many("t", bodies())
        before = rss_bytes(broker)
        for _ in range(MANY // 20_000):
            client.send_many("t", [ternmq.Message(one, deliver_after=month) for one in bodies()])
        grown = rss_bytes(broker) - before
        assert sum(hour.messages for hour in client.admin.scheduled("t")) == MANY
    print(f"{grown / MANY:.0f} bytes each")
    assert grown < MANY * BYTES_EACH, "half of what the bodies alone would take"


@pytest.mark.row("L0d")
def test_messages_of_every_hour_of_two_years_are_on_disk_in_a_few_files(tmp_path: Path) -> None:
    """They survive a kill. No hour takes a file of its own: docs/adr/0017-scheduled-rows.md."""
    hours = 731 * 24 - 1
    with (
        BrokerProcess("dev", tmp_path) as broker,
        ternmq.sync.connect(broker.url, timeout=60) as client,
    ):
        client.send_many("t", [
            ternmq.Message(b"%d" % hour, deliver_after=timedelta(hours=hour))
            for hour in range(1, hours + 1)
        ])  # fmt: skip
        broker.kill()
        broker.start()
        found = list(client.admin.scheduled("t"))
        assert sum(hour.messages for hour in found) == hours
        assert hours - 1 <= len(found) <= hours + 1, "a row for each hour of the list"
        files = [one for one in broker.data.rglob("*") if one.is_file()]
    assert len(files) < 50


@pytest.mark.row("L0g")
@pytest.mark.parametrize("kill", [True, False], ids=["kill -9", "clean stop"])
def test_what_is_scheduled_is_rebuilt_from_the_journal(tmp_path: Path, kill: bool) -> None:
    """Every file that is not of the journal itself is deleted: all is there, also a cancel."""
    with (
        BrokerProcess("dev", tmp_path, segment="4MiB") as broker,
        ternmq.sync.connect(broker.url, timeout=60) as client,
    ):
        due = [ternmq.Message(b"%d" % one, deliver_after=3600 * one) for one in range(1, 200)]
        receipts = client.send_many("t", due)
        soon = client.send("t", b"soon", deliver_after=5)
        client.cancel(receipts[7])
        client.send_many("filler", [bytes(1000)] * 10_000)
        wait_until(lambda: any(broker.data.rglob("*.idx")), "the first segment is indexed")
        before = list(client.admin.scheduled("t"))
        if kill:
            broker.kill()
        else:
            broker.stop()
        for path in list(broker.data.rglob("*.idx")):
            path.unlink()
        broker.start()
        assert list(client.admin.scheduled("t")) == before
        assert client.get("t", receipts[7].id).state == "cancelled"
        assert client.get("t", receipts[8].id).state == "scheduled"
        client.cancel(receipts[8])
        wait_until(lambda: client.get("t", soon.id).state == "stored", "it came due")
        assert [one.body for one in client.read("t")] == [b"soon"]


@pytest.mark.row("Q4")
@pytest.mark.parametrize("make", [Async, Blocking])
def test_one_message_for_every_scenario(
    make: Callable[..., User], dev: BrokerProcess, topic: str
) -> None:
    """At once, delayed, in a transaction, ordered: one class of message, one of deliveries."""
    began = datetime.fromtimestamp(time.time(), UTC)
    with (
        make(dev.url) as user,
        ternmq.sync.connect(dev.url) as client,
    ):
        user.admin("create_topic", topic, ordered=True, queues=2)

        def given(way: str) -> dict[str, Any]:
            return {"ordering_key": "k", "tag": "a", "headers": {"way": way}}

        user.send(topic, b"body", **given("now"))
        user.send(topic, b"body", **given("delayed"), deliver_after=0.5)
        client.admin.put_producer_group(topic, without_checker=True)
        with client.transaction(topic, query_id="1") as tx:
            tx.send(topic, b"body", **given("in transaction"))
        found: dict[str, ternmq.sync.Delivery] = {}

        def received() -> bool:
            for one in client.pull(topic, group="g", wait=1):
                found[one.headers["way"]] = one
                one.ack()
            return len(found) == 3

        wait_until(received, "all received")
    assert {type(one) for one in found.values()} == {ternmq.sync.Delivery}
    assert {(one.body, one.ordering_key, one.tag, one.attempt) for one in found.values()} == {
        (b"body", "k", "a", 1)
    }
    assert found["delayed"].stored_at >= began + timedelta(seconds=0.5)
