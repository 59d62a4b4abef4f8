"""Rows of MISSION, retry, dead letters and order: shown with one broker process."""

from __future__ import annotations

import asyncio
import random
import sqlite3
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Coroutine
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

import pytest

import ternmq
import ternmq.sync
from tests.black_box.process import BrokerProcess, wait_until
from tests.black_box.wire import Wire

T = TypeVar("T")
SLEW = 0.99
"""The broker's time may run faster than this machine's by so much, after the wall clock."""


def run(url: str, work: Callable[[ternmq.Client], Coroutine[Any, Any, T]]) -> T:
    """Run an asyncio program with a client of its own."""

    async def main() -> T:
        async with asyncio.timeout(60), ternmq.connect(url) as client:
            return await work(client)

    return asyncio.run(main())


def policy(client: ternmq.sync.Client, topic: str, **fields: Any) -> None:
    """Have group g of a topic retry as stated, without chance."""
    client.admin.create_group(topic, "g")
    retry = ternmq.RetryPolicy(jitter=0.0, **fields)
    client.admin.change_group(topic, "g", retry=retry)


def fail(client: ternmq.sync.Client, topic: str, reason: str = "") -> float:
    """Take the next message of group g and fail; return when it came."""
    (one,) = client.pull(topic, group="g", max_messages=1, wait=20)
    came = time.monotonic()
    one.retry(reason=reason)
    return came


def due_in(client: ternmq.sync.Client, topic: str) -> float:
    """Return how many seconds after its failure the message comes again, as the broker says."""
    (failed,) = client.deadletters.waiting(topic, "g")
    assert failed.when is not None
    return failed.when.timestamp() - failed.failures[-1].time_us / 1e6


# ---------------------------------------------------------------------------------------- retries


@pytest.mark.slow
@pytest.mark.row("G1")
def test_a_failing_message_comes_after_1_2_and_4_seconds(
    client: ternmq.sync.Client, topic: str
) -> None:
    client.send(topic, b"x")
    client.admin.create_group(topic, "g")  # with the default policy: jitter of 20 %
    came = [fail(client, topic)]
    for expected in (1.0, 2.0, 4.0):
        assert 0.8 * expected <= due_in(client, topic) <= 1.2 * expected
        came.append(fail(client, topic))  # it does come, and not before
        assert came[-1] - came[-2] >= 0.79 * expected


@pytest.mark.row("G3", "G4")
def test_reasons_and_counts_can_be_asked_and_the_last_is_a_dead_letter(
    client: ternmq.sync.Client, topic: str
) -> None:
    client.send(topic, {"n": 1}, key="order-1")
    policy(client, topic, first=0.05, attempts=3)
    for number in (1, 2):
        fail(client, topic, f"reason {number}")
        (failed,) = client.deadletters.waiting(topic, "g")
        assert failed.attempts == number
        assert failed.reason == f"reason {number}"
        assert [one.reason for one in failed.failures] == [
            f"reason {n}" for n in range(1, number + 1)
        ]
    fail(client, topic, "the last")
    assert list(client.deadletters.waiting(topic, "g")) == []
    (dead,) = client.deadletters.browse(topic, "g")
    assert (dead.attempts, dead.reason) == (3, "the last")
    assert dead.message is not None
    assert (dead.message.key, dead.message.value) == ("order-1", {"n": 1})
    assert not client.pull(topic, group="g", wait=0.3)


@pytest.mark.row("G5")
def test_each_field_of_the_policy_is_changed_live(client: ternmq.sync.Client, topic: str) -> None:
    """All but jitter, and what follows the last attempt."""

    def delay() -> float:
        fail(client, topic)
        told = due_in(client, topic)
        (one,) = client.pull(topic, group="g", max_messages=1, wait=10)
        one.release()
        return told

    client.send(topic, b"x")
    policy(client, topic, first=0.5)
    assert delay() == pytest.approx(0.5, abs=1e-3)
    policy(client, topic, first=0.1, factor=4.0)
    assert delay() == pytest.approx(0.4, abs=1e-3)  # 0.1 × 4: it is the second failure
    policy(client, topic, first=0.1, factor=4.0, cap=0.2)
    assert delay() == pytest.approx(0.2, abs=1e-3)
    policy(client, topic, first=0.1, enabled=False)
    fail(client, topic, "off")
    assert [one.reason for one in client.deadletters.browse(topic, "g")] == ["off"]
    client.send(topic, b"y")
    policy(client, topic, first=0.1, attempts=1)
    fail(client, topic, "one attempt")
    assert len(list(client.deadletters.browse(topic, "g"))) == 2
    client.send(topic, b"z")
    policy(client, topic, first=0.2, expires=0.1)
    fail(client, topic, "too old for another attempt")
    assert len(list(client.deadletters.browse(topic, "g"))) == 3


@pytest.mark.row("G5")
def test_jitter_and_what_follows_the_last_attempt_are_changed_live(
    client: ternmq.sync.Client, topic: str
) -> None:
    client.admin.create_topic(topic, ordered=True)
    client.admin.create_group(topic, "g")

    def change(**fields: Any) -> None:
        client.admin.change_group(topic, "g", retry=ternmq.RetryPolicy(first=10, cap=10, **fields))

    def delays(keys: str) -> list[float]:
        for key in keys:
            client.send(topic, key, ordering_key=key)
        for one in client.pull(topic, group="g", max_messages=len(keys), wait=10):
            one.retry(reason="no")
        failed = client.deadletters.matching(topic, "g", ternmq.FailedQuery(states=["waiting"]))
        found = [(one.when, one.failures[-1].time, one.offset) for one in failed]
        client.deadletters.delete(topic, "g", [offset for *_, offset in found])
        return [(when - failed_at).total_seconds() for when, failed_at, _ in found if when]

    change(jitter=0)
    assert delays("abcdef") == [pytest.approx(10, abs=1e-3)] * 6
    change(jitter=0.9)
    varied = delays("abcdef")
    assert len(varied) == 6
    assert len({round(one, 3) for one in varied}) > 1
    assert all(1 <= one <= 19 for one in varied)

    def fate() -> str:
        client.send(topic, b"x", ordering_key="x")
        (one,) = client.pull(topic, group="g", max_messages=1, wait=10)
        one.retry(reason="no")
        (failed,) = client.deadletters.matching(topic, "g")
        client.deadletters.delete(topic, "g", [failed])
        return failed.state

    change(attempts=1, exhausted=ternmq.Exhausted.HOLD)
    assert fate() == "held"
    change(attempts=1, exhausted=ternmq.Exhausted.DEAD_LETTER)
    assert fate() == "dead"
    change(attempts=2, exhausted=ternmq.Exhausted.HOLD)
    assert fate() == "waiting"


@pytest.mark.row("G3")
def test_who_gets_a_message_again_is_told_why(client: ternmq.sync.Client, topic: str) -> None:
    client.send_many(topic, [b"a", b"b"])
    policy(client, topic, first=0.05)
    (first, second) = client.pull(topic, group="g", wait=10)
    assert (first.last_reason, second.last_reason) == ("", "")
    first.retry(reason="no money")
    second.retry(reason="ü" * 2000)
    came: dict[bytes, ternmq.sync.Delivery] = {}
    while len(came) < 2:
        for again in client.pull(topic, group="g", wait=10):
            came[again.body] = again
    assert {one.attempt for one in came.values()} == {2}
    assert came[b"a"].last_reason == "no money"
    assert came[b"b"].last_reason == "ü" * 512
    for again in came.values():
        again.ack()


def test_attempts_and_the_policy_s_switch_are_changed_live(
    client: ternmq.sync.Client, topic: str
) -> None:
    """What waits already is judged by the policy at its next failure."""
    client.send_many(topic, [b"a", b"b"])
    policy(client, topic, first=0.05, attempts=2)
    batch = client.pull(topic, group="g", max_messages=2)
    batch.retry(reason="first")
    policy(client, topic, first=0.05, attempts=4)
    for number in (2, 3, 4):
        for _ in range(2):
            (one,) = client.pull(topic, group="g", max_messages=1, wait=20)
            assert one.attempt == number
            one.retry(reason=f"number {number}")
    dead = list(client.deadletters.browse(topic, "g"))
    assert [(one.attempts, one.reason) for one in dead] == [(4, "number 4")] * 2


@pytest.mark.row("G7")
def test_a_dead_letter_is_kept_and_never_delivered_as_normal(tmp_path: Path, topic: str) -> None:
    """Not until it is handed back to its group, which alone gets it; also after a kill."""
    with BrokerProcess("dev", tmp_path) as broker:
        with ternmq.sync.connect(broker.url) as client:
            client.send_many(topic, [b"poison", b"good"])
            policy(client, topic, first=0.01, attempts=3)
            for number in (1, 2, 3):
                one = poison(client, topic)
                assert one.attempt == number
                one.retry(reason=f"failure {number}")
        broker.restart(kill=True)
        with ternmq.sync.connect(broker.url) as client:
            assert not client.pull(topic, group="g", wait=0.5)
            (dead,) = client.deadletters.browse(topic, "g")
            assert (dead.offset, dead.attempts, dead.reason) == (0, 3, "failure 3")
            assert dead.message is not None
            assert dead.message.body == b"poison"
            client.send(topic, b"later")
            later = client.pull(topic, group="g", wait=10)
            assert later.bodies == [b"later"]
            later.ack()
            client.pull(topic, group="other", wait=10).ack()
            (told,) = client.deadletters.redrive(topic, "g")
            assert (told.queue, told.offset, told.done) == (0, 0, True)
            assert list(client.deadletters.browse(topic, "g")) == []
        broker.restart(kill=True)
        with ternmq.sync.connect(broker.url) as client:
            again = poison(client, topic)
            assert (again.attempt, again.deliveries, again.last_reason) == (1, 4, "failure 3")
            assert not client.pull(topic, group="other", wait=0.2)
            again.retry(reason="failure 4")
            (waiting,) = client.deadletters.waiting(topic, "g")
            assert waiting.attempts == 1
            assert [one.reason for one in waiting.failures] == [f"failure {n}" for n in range(1, 5)]
            poison(client, topic).ack()
        broker.restart(kill=True)
        with ternmq.sync.connect(broker.url) as client:
            assert not client.pull(topic, group="g", wait=0.5)


def poison(client: ternmq.sync.Client, topic: str) -> ternmq.sync.Delivery:
    """Pull until it comes; the others are acked."""
    while True:
        (one,) = client.pull(topic, group="g", max_messages=1, wait=20)
        if one.body == b"poison":
            return one
        one.ack()


@pytest.mark.row("G8")
def test_only_the_group_that_fails_sees_the_retry(client: ternmq.sync.Client, topic: str) -> None:
    client.send(topic, b"x")
    policy(client, topic, first=0.1)
    other = client.pull(topic, group="other")
    other.ack()
    fail(client, topic)
    (again,) = client.pull(topic, group="g", wait=10)
    assert again.attempt == 2
    again.ack()
    assert not client.pull(topic, group="other", wait=0.2)


@pytest.mark.row("G9")
def test_the_consumer_says_when_it_comes_again(dev: BrokerProcess, topic: str) -> None:
    async def work(client: ternmq.Client) -> None:
        came: list[float] = []
        done = asyncio.Event()

        @client.handler(topic, group="g")
        async def on_message(delivery: ternmq.Delivery) -> None:
            came.append(time.monotonic())
            if delivery.attempt == 1:
                raise ternmq.Retry("later", after=0.7)
            done.set()

        running = asyncio.create_task(client.run())
        async with ternmq.connect(dev.url) as other:
            await other.send(topic, b"x")
            await done.wait()
        client.stop()
        await running
        assert came[1] - came[0] >= 0.7 * SLEW

    run(dev.url, work)


@pytest.mark.row("E5", "G14")
def test_a_handler_that_raises_goes_on_with_the_next_message(
    dev: BrokerProcess, client: ternmq.sync.Client, topic: str
) -> None:
    """By handler and by process(); the reason is on record."""

    async def by_handler(own: ternmq.Client, done: list[bytes]) -> None:
        @own.handler(topic, group="handler", concurrency=1)
        async def on_message(body: bytes) -> None:
            if body == b"0":
                raise ValueError("poison")
            done.append(body)
            if len(done) == 9:
                own.stop()

        await own.run()

    async def by_process(own: ternmq.Client, done: list[bytes]) -> None:
        async with own.consume(topic, group="process", max_in_flight=1) as deliveries:
            async for delivery in deliveries:
                async with delivery.process():
                    if delivery.body == b"0":
                        raise ValueError("poison")
                    done.append(delivery.body)
                if len(done) == 9:
                    return

    client.send_many(topic, [b"%d" % n for n in range(10)])
    for group, work in (("handler", by_handler), ("process", by_process)):
        client.admin.create_group(topic, group)
        client.admin.change_group(topic, group, retry=ternmq.RetryPolicy(first=60))
        done: list[bytes] = []
        run(dev.url, lambda own, work=work, done=done: work(own, done))  # type: ignore[misc]
        assert done == [b"%d" % n for n in range(1, 10)]
        (failed,) = client.deadletters.waiting(topic, group)
        assert (failed.offset, failed.reason) == (0, "ValueError: poison")


@pytest.mark.slow
@pytest.mark.row("G6")
def test_retries_and_live_messages_do_not_starve_one_another(
    client: ternmq.sync.Client, topic: str
) -> None:
    """Ten thousand that fail again and again, and live traffic beside."""
    client.send_many(topic, [b"old"] * 10_000)
    policy(client, topic, first=0.2, cap=0.2, attempts=1000)
    for _ in range(10):
        client.pull(topic, group="g", max_messages=1000).retry()
    retried = live = 0
    until = time.monotonic() + 60
    sent = 0
    while (live < 500 or retried < 5000) and time.monotonic() < until:
        if sent < 500:
            client.send_many(topic, [b"live"] * 10)
            sent += 10
        batch = client.pull(topic, group="g", max_messages=200)
        old = [row for row, body in enumerate(batch.bodies) if body == b"old"]
        new = [row for row, body in enumerate(batch.bodies) if body == b"live"]
        retried, live = retried + len(old), live + len(new)
        if new:
            batch.ack(rows=new)
        if old:
            batch.retry(rows=old)
    assert (live, retried >= 5000) == (500, True)


# ------------------------------------------------------------------------------------------- order


@pytest.mark.slow
@pytest.mark.row("H1", "H6")
def test_each_key_is_consumed_in_order_while_consumers_come_and_go(
    dev: BrokerProcess, client: ternmq.sync.Client, topic: str
) -> None:
    """10,000 messages of 100 keys: one at a time for each key, and each key increasing."""
    client.admin.create_topic(topic, ordered=True, queues=2)
    client.send_many(
        topic,
        [ternmq.Message(b"%d" % (n // 100), ordering_key=f"k-{n % 100}") for n in range(10_000)],
    )
    seen: defaultdict[str, list[int]] = defaultdict(list)
    at_work: set[str] = set()
    overlaps: list[str] = []
    lock = threading.Lock()

    def consume(most: int) -> None:
        with ternmq.sync.connect(dev.url) as own:
            for _ in range(most):
                batch = own.pull(topic, group="g", max_messages=50, wait=0.3, mode="ordered")
                keys = {one.ordering_key for one in batch}
                with lock:
                    overlaps.extend(keys & at_work)
                    at_work.update(keys)
                    for one in batch:
                        seen[one.ordering_key].append(int(one.body))
                with lock:
                    at_work.difference_update(keys)
                batch.ack()

    wave = 0
    while sum(map(len, seen.values())) < 10_000:
        wave += 1
        assert wave < 60
        threads = [threading.Thread(target=consume, args=(5 + n + wave % 5,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert overlaps == []
    assert seen == {f"k-{n}": list(range(100)) for n in range(100)}


@pytest.mark.row("H2")
def test_a_failing_message_holds_its_key_only(dev: BrokerProcess, topic: str) -> None:
    async def work(client: ternmq.Client) -> list[str]:
        await client.admin.create_topic(topic, ordered=True)
        for number in range(3):
            for key in ("a", "b", "c"):
                await client.send(topic, f"{key}{number}", ordering_key=key)
        order: list[str] = []
        async with client.consume(topic, group="g") as deliveries:
            async for delivery in deliveries:
                async with delivery.process():
                    text = delivery.decode(str)
                    if text == "b0" and delivery.attempt < 3:
                        raise ternmq.Retry(after=0.2)
                    order.append(text)
                if len(order) == 9:
                    return order
        return order

    order = run(dev.url, work)
    assert [one for one in order if one[0] == "b"] == ["b0", "b1", "b2"]
    assert set(order[:6]) == {"a0", "a1", "a2", "c0", "c1", "c2"}


@pytest.mark.row("H3")
def test_an_ordered_producer_is_not_overtaken_by_itself(
    dev: BrokerProcess, client: ternmq.sync.Client, topic: str
) -> None:
    """The connection is cut again and again while messages of one key are on their way."""
    client.admin.create_topic(topic, ordered=True)
    with Wire(dev.port) as wire, ternmq.sync.connect(wire.url) as own:
        own.send(topic, b"0", ordering_key="k")
        for number in range(1, 3000):
            own.send_soon(topic, b"%d" % number, ordering_key="k")
            if number % 300 == 0:
                before = wire.connections
                wire.cut()
                wait_until(lambda before=before: wire.connections > before, "it is back")  # type: ignore[misc]
        own.flush()
        assert wire.connections >= 10
    stored = [int(one.body) for one in client.read(topic)]
    assert stored == list(range(3000))


@pytest.mark.row("H5")
def test_a_shared_group_of_an_ordered_topic_keeps_order_as_well_as_it_can(
    client: ternmq.sync.Client, topic: str
) -> None:
    """A group's choice, by mode: a failing message waits apart, the later ones of its key go on."""
    client.admin.create_topic(topic, ordered=True)
    client.admin.create_group(topic, "g", mode="shared")
    policy(client, topic, first=0.2)
    keyed = [ternmq.Message(b"%d" % n, ordering_key="k") for n in range(5)]
    client.send_many(topic, keyed)
    (first,) = client.pull(topic, group="g", max_messages=1)
    first.retry(reason="not now")
    rest = client.pull(topic, group="g", max_messages=10)
    assert rest.bodies == [b"1", b"2", b"3", b"4"]
    rest.ack()
    (again,) = client.pull(topic, group="g", wait=20)
    assert (again.body, again.attempt) == (b"0", 2)
    again.ack()
    # The same messages, for a group that keeps the order.
    (one,) = client.pull(topic, group="strict", max_messages=1)
    one.retry(delay=0.2)
    after = client.pull(topic, group="strict", max_messages=10, wait=20)
    assert after.bodies[0] == b"0"


def test_a_topic_with_order_says_what_it_needs(client: ternmq.sync.Client, topic: str) -> None:
    client.admin.create_topic(topic, ordered=True)
    with pytest.raises(ternmq.OrderingKeyRequired, match="needs an ordering key"):
        client.send(topic, b"x")
    client.send("unordered", b"x")
    with pytest.raises(ternmq.ModeNotAllowed, match="needs an ordered topic"):
        client.pull("unordered", group="g", mode="ordered")


@pytest.mark.row("H8")
def test_a_log_of_changes_makes_an_identical_table(
    dev: BrokerProcess, client: ternmq.sync.Client, topic: str
) -> None:
    """Changes of the rows of a table go through the broker and make the same table elsewhere."""
    client.admin.create_topic(topic, ordered=True, queues=3)
    with (
        closing(sqlite3.connect(":memory:")) as source,
        closing(sqlite3.connect(":memory:", check_same_thread=False)) as copy,
    ):
        for database in (source, copy):
            database.execute("CREATE TABLE accounts (id INTEGER PRIMARY KEY, cents INTEGER)")
        chance = random.Random(7)
        changes: list[ternmq.Message] = []
        for _ in range(2000):
            number, cents = chance.randrange(40), chance.randrange(1000)
            values = {"number": number, "cents": cents}
            sql = chance.choice(
                [
                    "INSERT OR IGNORE INTO accounts VALUES (:number, :cents)",
                    "UPDATE accounts SET cents = cents * 3 % 1009 + :cents WHERE id = :number",
                    "DELETE FROM accounts WHERE id = :number AND :cents < 300",
                ]
            )
            source.execute(sql, values)
            changes.append(ternmq.Message([sql, values], ordering_key=f"row-{number}"))
        client.send_many(topic, changes)
        lock = threading.Lock()
        applied = [0]

        def apply() -> None:
            with ternmq.sync.connect(dev.url) as own:
                while batch := own.pull(topic, group="copy", max_messages=70, wait=0.5):
                    with lock:
                        for one in batch:
                            copy.execute(*one.value)
                        applied[0] += len(batch)
                    batch.ack()

        threads = [threading.Thread(target=apply) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert applied == [2000]
        tables = [
            database.execute("SELECT * FROM accounts ORDER BY id").fetchall()
            for database in (source, copy)
        ]
        assert tables[0] == tables[1]
        assert len(tables[0]) > 10
