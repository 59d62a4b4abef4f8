"""Rows of MISSION, priority: a broker process, seen from outside, also one that is killed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import ternmq
import ternmq.sync
from tests.black_box.process import BrokerProcess
from tests.black_box.users import Async, Blocking, User


@pytest.fixture(params=[Async, Blocking])
def make(request: pytest.FixtureRequest) -> Callable[..., User]:
    made: Callable[..., User] = request.param
    return made


@pytest.fixture
def own(tmp_path: Path) -> Iterator[BrokerProcess]:
    """Yield a broker that the test may kill."""
    with BrokerProcess("dev", tmp_path) as broker:
        yield broker


def one_by_one(user: User, topic: str, most: int) -> list[bytes]:
    """Pull one message at a time; return at most so many bodies."""
    found: list[bytes] = []
    while len(found) < most and (some := user.bodies(topic, "g", max_messages=1, wait=0)):
        found += some
    return found


@pytest.mark.row("K19")
def test_a_message_of_a_high_priority_overtakes_a_backlog(
    make: Callable[..., User], dev: BrokerProcess, topic: str
) -> None:
    with make(dev.url) as user:
        user.admin("create_topic", topic, levels=3, queues=2)
        user.send_many(topic, [b"small %d" % one for one in range(500)])
        assert all(body.startswith(b"small") for body in one_by_one(user, topic, 5))
        user.send(topic, b"large", priority=2)
        user.send(topic, b"middle", priority=1)
        assert one_by_one(user, topic, 2) == [b"large", b"middle"]
        assert len(one_by_one(user, topic, 1000)) == 495


@pytest.mark.row("K19")
def test_no_level_starves(make: Callable[..., User], dev: BrokerProcess, topic: str) -> None:
    with make(dev.url) as user:
        user.admin("create_topic", topic, levels=3)
        for priority in range(3):
            messages = [ternmq.Message(b"%d" % priority, priority=priority)] * 200
            user.send_many(topic, messages)
        found = one_by_one(user, topic, 160)
        assert [found.count(b"%d" % priority) for priority in range(3)] == [5, 5, 150]


@pytest.mark.row("K19")
def test_priorities_survive_kill_9(make: Callable[..., User], own: BrokerProcess) -> None:
    with make(own.url) as user:
        user.admin("create_topic", "t", levels=3, queues=2)
        user.bodies("t", "g", wait=0)
        for one in range(60):
            receipt = user.send("t", b"%d" % one, priority=one % 3)
            assert receipt.queue % 3 == one % 3
        user.send("t", b"61", priority=1, deliver_after=0.5)
        own.kill()
        own.start()
        until = time.monotonic() + 30
        found: list[bytes] = []
        while len(found) < 61:
            assert time.monotonic() < until, f"{len(found)} of 61 came"
            found += one_by_one(user, "t", 100)
        assert sorted(map(int, found)) == [*range(60), 61]
        first = [int(body) % 3 for body in found[:15]]
        assert first == [2] * 15
