"""Rows of MISSION: failed messages are found fast, and each goes on just once, whoever dies."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

import pytest

import ternmq
import ternmq.sync
from ternmq import FailedQuery
from tests.black_box.process import BrokerProcess

COUNT = 600
_REDRIVE = """
import sys
import ternmq.sync

url, topic, target = sys.argv[1:]
with ternmq.sync.connect(url, timeout=30) as client:
    print("begins", flush=True)
    for offset in range(0, 600, 20):
        client.deadletters.redrive(topic, "g", range(offset, offset + 20), to=target)
    print("done", flush=True)
"""


def failing(client: ternmq.sync.Client, topic: str) -> list[ternmq.Receipt]:
    """Send messages; of three, one waits, one waits after two attempts, and one is dead."""
    later = ternmq.RetryPolicy(first=3600, cap=3600, jitter=0)
    client.admin.create_group(topic, "g", retry=later)
    messages = [ternmq.Message(b"%d" % n, key=f"key-{n % 30}", id=f"own-{n}") for n in range(COUNT)]
    receipts = client.send_many(topic, messages)
    twice = range(1, COUNT, 3)
    _fail(client, topic, COUNT)
    assert not client.deadletters.retry(topic, "g", twice)
    _fail(client, topic, len(twice))
    return receipts


def _fail(client: ternmq.sync.Client, topic: str, count: int) -> None:
    done = 0
    while done < count:
        got = client.pull(topic, group="g", max_messages=100, wait=10)
        dead = [row for row, one in enumerate(got) if one.offset % 3 == 2]
        if dead:
            got.reject(dead, reason="declined")
        rest = [row for row, one in enumerate(got) if one.offset % 3 != 2]
        if rest:
            got.retry(rest, reason="busy")
        done += len(got)


@pytest.mark.row("G12")
def test_failed_messages_are_found_by_all_that_is_known_of_them(tmp_path: Path) -> None:
    with BrokerProcess("dev", tmp_path) as broker:
        with ternmq.sync.connect(broker.url) as client:
            receipts = failing(client, "t")
        broker.restart(kill=True)
        with ternmq.sync.connect(broker.url) as client:
            letters = client.deadletters

            def offsets(query: FailedQuery | None = None, **how: bool | int) -> list[int]:
                return [one.offset for one in letters.matching("t", "g", query, **how)]  # type: ignore[arg-type]

            counts = letters.count("t", "g")
            assert (counts.waiting, counts.held, counts.dead) == (400, 0, 200)
            assert offsets(FailedQuery(states=["dead"])) == list(range(2, COUNT, 3))
            assert offsets(FailedQuery(attempts=2)) == list(range(1, COUNT, 3))
            assert offsets(FailedQuery(key="key-4")) == list(range(4, COUNT, 30))
            both = FailedQuery(key="key-4", attempts=2)
            assert offsets(both) == [n for n in range(4, COUNT, 30) if n % 3 == 1]
            assert offsets(FailedQuery(id="own-77")) == [77]
            assert offsets(FailedQuery(id=receipts[78].id)) == [78]
            assert offsets(FailedQuery(id=receipts[78].id, states=["dead"])) == []
            newest = list(letters.matching("t", "g", newest_first=True, limit=150))
            times = [one.failures[-1].time for one in newest]
            assert times == sorted(times, reverse=True)
            assert all(one.attempts == 2 for one in newest)
            since = times[-1]
            found = list(letters.matching("t", "g", FailedQuery(since=since)))
            assert len(found) >= 150
            assert all(one.failures[-1].time >= since for one in found)
            before = FailedQuery(until=since)
            assert letters.count("t", "g", before).total == COUNT - len(found)
            none = FailedQuery(until=since - timedelta(days=1))
            assert offsets(none) == []
            retried = letters.retry_matching("t", "g", both)
            assert all(one.done for one in retried)
            assert {one.offset for one in retried} == {n for n in range(4, COUNT, 30) if n % 3 == 1}
            came = client.pull("t", group="g", max_messages=100, wait=10)
            assert {one.offset for one in came} == {one.offset for one in retried}
            came.ack()
            assert offsets(both) == []


@pytest.mark.slow
@pytest.mark.row("G7")
def test_a_redrive_to_another_topic_that_is_killed_again_and_again_sends_each_once(
    tmp_path: Path,
) -> None:
    """The program that redrives is killed at any moment, and every third time the broker."""
    chance = random.Random(5)
    with BrokerProcess("dev", tmp_path / "data") as broker:
        with ternmq.sync.connect(broker.url) as client:
            client.admin.create_topic("repair")
            client.admin.create_group("t", "g")
            client.send_many("t", [b"%d" % n for n in range(COUNT)])
            done = 0
            while done < COUNT:
                got = client.pull("t", group="g", max_messages=100, wait=10)
                got.reject(reason="no")
                done += len(got)
        cut = 0
        for attempt in range(40):
            command = [sys.executable, "-c", _REDRIVE, broker.url, "t", "repair"]
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
                assert program.stdout is not None
                assert program.stdout.readline() == "begins\n"
                if attempt < 8:
                    time.sleep(chance.uniform(0, 0.1))
                    if attempt % 3 == 2:
                        broker.restart(kill=True)
                    program.kill()
                ended = program.stdout.read() == "done\n"
            if ended:
                break
            with ternmq.sync.connect(broker.url) as client:
                cut += 0 < client.deadletters.count("t", "g").dead < COUNT
        assert cut
        with ternmq.sync.connect(broker.url) as client:
            assert client.deadletters.count("t", "g").total == 0
            bodies = [int(one.body) for one in client.read("repair")]
            assert sorted(bodies) == list(range(COUNT))
            assert not client.pull("t", group="g", wait=0.2)
