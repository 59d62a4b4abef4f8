"""Rows of MISSION, delayed messages: a broker process that is killed while they wait."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import ternmq
import ternmq.sync
from ternmq.reliable import Throttle
from tests.black_box.process import BrokerProcess, wait_until
from tests.black_box.users import Async, Blocking, User
from tests.fault.processes import patience


@pytest.fixture(params=[Async, Blocking])
def make(request: pytest.FixtureRequest) -> Callable[..., User]:
    made: Callable[..., User] = request.param
    return made


@pytest.fixture
def own(tmp_path: Path) -> Iterator[BrokerProcess]:
    """Yield a broker that the test may kill."""
    with BrokerProcess("dev", tmp_path) as broker:
        yield broker


def now() -> datetime:
    return datetime.fromtimestamp(time.time(), UTC)


def received(user: User, topic: str, count: int, group: str = "g") -> list[bytes]:
    """Pull and ack until so many bodies came; return them."""
    found: list[bytes] = []
    until = time.monotonic() + 60
    while len(found) < count:
        assert time.monotonic() < until, f"{len(found)} of {count} came"
        found += user.bodies(topic, group, wait=1.0)
    return found


def stored(user: User, topic: str) -> list[bytes]:
    return sorted(user.values(topic))


@pytest.mark.row("K10", "L0b", "L0l")
def test_delays_and_times(make: Callable[..., User], dev: BrokerProcess, topic: str) -> None:
    with make(dev.url) as user:
        user.send(topic, b"")
        began = now()
        user.send(topic, b"after", deliver_after=1.0)
        user.send(topic, b"at", deliver_at=began + timedelta(seconds=0.6))
        user.send(topic, b"past", deliver_at=began - timedelta(days=1))
        assert received(user, topic, 2) == [b"", b"past"]
        assert received(user, topic, 1) == [b"at"]
        assert now() >= began + timedelta(seconds=0.6)
        assert received(user, topic, 1) == [b"after"]
        assert now() >= began + timedelta(seconds=1)


@pytest.mark.slow
@pytest.mark.row("L0a", "L0c")
def test_a_delay_is_of_any_length_up_to_two_years(
    make: Callable[..., User], own: BrokerProcess
) -> None:
    delays = [0.05, 1.3, 2.718, 6.21, 17.0]
    with make(own.url) as user:
        far = user.send("t", b"far", deliver_after=timedelta(days=729))
        with pytest.raises(ternmq.DueTooFar, match=r"at most 731 days"):
            user.send("t", b"too far", deliver_after=timedelta(days=732))
        due: dict[bytes, datetime] = {}
        for number, delay in enumerate(delays):
            began = now()
            receipt = user.send("t", b"%d" % number, deliver_after=delay)
            assert receipt.due_at is not None
            assert receipt.due_at >= began + timedelta(seconds=delay) - timedelta(milliseconds=1)
            due[b"%d" % number] = receipt.due_at
        own.restart(kill=True)
        found: list[bytes] = []
        while len(found) < len(delays):
            came = received(user, "t", 1)
            assert all(now() >= due[body] for body in came)
            found += came
        assert found == list(due)
    with ternmq.sync.connect(own.url) as client:
        left = client.get("t", far.id)
        assert (left.state, left.due_at, left.body) == ("scheduled", far.due_at, b"far")
        assert far.due_at is not None
        assert timedelta(days=728) < far.due_at - now() < timedelta(days=729)


@pytest.mark.row("K20")
def test_a_limit_of_a_hundred_a_second_is_kept_by_delaying(
    make: Callable[..., User], dev: BrokerProcess, topic: str
) -> None:
    """A thousand calls take ten seconds: each is scheduled for when the limit allows it."""
    count, per_s = 1000, 100
    with make(dev.url) as user:
        user.send(topic, b"")
        assert received(user, topic, 1) == [b""]
        # The sends are over before the first one is due, so that none is late from the beginning.
        begin = now() + timedelta(seconds=5 * patience())
        for number in range(count):
            due = begin + timedelta(seconds=number / per_s)
            user.send(topic, b"%d" % number, deliver_at=due)
        got: list[int] = []
        until = time.monotonic() + 120 * patience()
        while len(got) < count:
            assert time.monotonic() < until, f"{len(got)} of {count} came"
            got += [int(body) for body in user.bodies(topic, "g", wait=1.0)]
            seconds = (now() - begin).total_seconds()
            allowed = 0 if seconds < 0 else 1 + int(seconds * per_s)
            assert len(got) <= allowed, f"{len(got)} came, {allowed} may"
        assert now() - begin >= timedelta(seconds=(count - 1) / per_s)
    assert sorted(got) == list(range(count))


@pytest.mark.row("K20")
def test_a_throttle_spreads_a_burst_over_ten_seconds(
    make: Callable[..., User], dev: BrokerProcess, topic: str
) -> None:
    """A thousand sends at once, 100 a second: in 10 s, give or take 10 %; none is lost."""
    count, per_s = 1000, 100

    async def burst(client: ternmq.Client) -> list[ternmq.Receipt]:
        throttle = Throttle(client, rate=per_s)
        return await asyncio.gather(*(throttle.send(topic, b"%d" % one) for one in range(count)))

    with make(dev.url) as user:
        user.send(topic, b"")
        assert received(user, topic, 1) == [b""]
        if isinstance(user, Async):
            receipts = user.call(burst)
        else:
            shared = Throttle(user.client, rate=per_s)
            with ThreadPoolExecutor(16) as pool:
                receipts = list(pool.map(lambda n: shared.send(topic, b"%d" % n), range(count)))
    got: dict[int, datetime] = {}
    due: list[datetime] = []
    until = time.monotonic() + 120 * patience()
    with ternmq.sync.connect(dev.url) as client:
        while len(got) < count:
            assert time.monotonic() < until, f"{len(got)} of {count} came"
            deliveries = client.pull(topic, group="g", wait=1.0)
            for one in deliveries:
                assert int(one.body) not in got, "none comes twice"
                got[int(one.body)] = one.stored_at
                if one.due_at is not None:
                    assert one.stored_at >= one.due_at, "none is early"
                    due.append(one.due_at)
            deliveries.ack()
    assert sorted(got) == list(range(count))
    assert sorted(due) == sorted(one.due_at for one in receipts if one.due_at is not None)
    # When the broker put them into their queue, from which a consumer gets them at once.
    took = max(got.values()) - min(got.values())
    assert timedelta(seconds=9) <= took <= timedelta(seconds=11)


@pytest.mark.row("L0f", "L0i")
@pytest.mark.parametrize("down", [False, True], ids=["up when due", "down when due"])
def test_an_answered_message_survives_kill_9(
    make: Callable[..., User], own: BrokerProcess, down: bool
) -> None:
    with make(own.url) as user:
        user.send("t", b"first")
        delay = 0.5 if down else 3.0
        began = time.monotonic()
        receipts = [user.send("t", b"%d" % one, deliver_after=delay) for one in range(20)]
        assert all(one.due_at is not None and one.durable for one in receipts)
        own.kill()
        if down:
            wait_until(lambda: time.monotonic() > began + delay + 0.5, "all of them due")
        own.start()
        assert received(user, "t", 21) == [b"first", *(b"%d" % one for one in range(20))]
        assert time.monotonic() >= began + delay
        assert len(stored(user, "t")) == 21


@pytest.mark.row("L0h")
def test_each_becomes_a_message_once_however_often_the_broker_is_killed(
    own: BrokerProcess,
) -> None:
    """Killed while they come due: none is missing, none is stored twice, none came early."""
    chance = random.Random(3)
    count = 1500
    with ternmq.sync.connect(own.url, timeout=60) as client:
        client.send("t", b"first")
        messages = [
            ternmq.Message(b"%d" % one, deliver_after=1 + 3 * chance.random())
            for one in range(count)
        ]
        client.send_many("t", messages)
        over = threading.Event()
        kills = 0

        def kill() -> None:
            nonlocal kills
            while not over.wait(chance.uniform(0.3, 0.8)):
                own.restart(kill=True)
                kills += 1

        killer = threading.Thread(target=kill)
        killer.start()
        try:
            wait_until(lambda: count < len(list(client.read("t"))), "all of them stored", 60)
        finally:
            over.set()
            killer.join()
        found = list(client.read("t"))[1:]
        assert kills
        assert Counter(one.body for one in found) == Counter(one.body for one in messages)
        times = [(one.due_at, one.stored_at) for one in found]
        assert all(due is not None and due <= at for due, at in times)
        assert [due for due, _ in times] == sorted(due for due, _ in times if due is not None)


@pytest.mark.row("L0h")
def test_a_clean_stop_delivers_none_twice(own: BrokerProcess) -> None:
    with ternmq.sync.connect(own.url, timeout=60) as client:
        client.send("t", b"first")
        client.send_many(
            "t", [ternmq.Message(b"%d" % one, deliver_after=one * 0.005) for one in range(1, 401)]
        )
        found: list[tuple[bytes, int]] = []
        stops = 0
        until = time.monotonic() + 60
        while len(found) < 401:
            assert time.monotonic() < until
            deliveries = client.pull("t", group="g", wait=0.2)
            found += [(one.body, one.deliveries) for one in deliveries]
            deliveries.ack()
            if stops < 3 and len(found) > 100 * (stops + 1):
                own.restart()
                stops += 1
        assert stops
        assert {deliveries for _, deliveries in found} == {1}
        assert len({body for body, _ in found}) == 401


@pytest.mark.row("L0n")
def test_a_cancel_survives_kill_9(own: BrokerProcess) -> None:
    with ternmq.sync.connect(own.url, timeout=60) as client:
        receipts = client.send_many("t", [b"%d" % one for one in range(20)], deliver_after=2)
        for receipt in receipts[::2]:
            client.cancel(receipt)
        own.restart(kill=True)
        client.cancel(receipts[0])
        with Blocking(own.url) as user:
            assert received(user, "t", 10) == [b"%d" % one for one in range(1, 20, 2)]
        with pytest.raises(ternmq.AlreadyDelivered):
            client.cancel(receipts[1])
        assert client.get("t", receipts[0].id).state == "cancelled"
        with pytest.raises(ternmq.MessageNotFound):
            client.cancel("t", "never sent")


@pytest.mark.row("L0j")
def test_a_message_outlives_the_journal_it_was_stored_in(tmp_path: Path) -> None:
    with (
        BrokerProcess("dev", tmp_path, segment="4MiB", retention_max="12MiB") as broker,
        ternmq.sync.connect(broker.url, timeout=60) as client,
    ):
        client.admin.create_topic("filler", retention=1, keep_until_consumed=False)
        client.admin.create_topic("t", retention=1, keep_until_consumed=False)
        seconds = (5, 15, 30, 60)
        receipts = [client.send("t", b"%d" % one, deliver_after=one) for one in seconds]
        journal = broker.data / "journal"
        first = min(journal.glob("*.seg"))

        def gone() -> bool:
            client.send_many("filler", [bytes(60_000)] * 40)
            return not first.exists()

        wait_until(gone, "the file with them removed", 60)
        broker.restart(kill=True)
        waiting = [one for one in receipts if client.get("t", one.id).state == "scheduled"]
        assert waiting
        wait_until(lambda: client.get("t", waiting[0].id).state == "stored", "it came due", 65)
        found = client.get("t", waiting[0].id)
        assert found.due_at is not None
        assert found.stored_at >= found.due_at == waiting[0].due_at
        for receipt in waiting[1:]:
            client.cancel(receipt)
