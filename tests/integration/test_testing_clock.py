"""The testing kit's clock: long leaps, what is due on the way, and what clients know of it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from datetime import timedelta

import pytest

import ternmq
import ternmq.sync
from ternmq.settings import SettingsError
from ternmq.testing import InProcessBroker, ManualClock, broker
from ternmq.testing.clock import START_US
from tests.asynchronous import until

DAY_US = 86_400_000_000


@pytest.fixture
def manual() -> Iterator[InProcessBroker]:
    with broker() as one:
        yield one


def turns(one: InProcessBroker) -> int:
    return one._server.core.turns


@pytest.mark.parametrize("days", [30, 400])
def test_many_days_are_a_leap(manual: InProcessBroker, days: int) -> None:
    with ternmq.sync.connect(manual.url) as client:
        client.send("t", b"x")
        pulled = threading.Event()

        def work() -> None:
            with client.consume("other", group="g") as deliveries:
                for delivery in deliveries:
                    delivery.ack()
                    pulled.set()
                    return

        thread = threading.Thread(target=work)
        thread.start()
        before = turns(manual)
        manual.clock.advance(timedelta(days=days))
        # One a second would be millions.
        assert turns(manual) - before < 3000
        assert manual.clock.now_us == START_US + days * DAY_US
        client.send("other", b"y")
        assert pulled.wait(10)
        thread.join()
        assert client.send("t", b"x").offset is not None


def test_what_is_due_on_the_way_happens_at_its_time(manual: InProcessBroker) -> None:
    with ternmq.sync.connect(manual.url) as client:
        client.send("t", b"x")
        (delivery,) = client.pull("t", group="g")
        delivery.retry(delay=timedelta(days=100))
        manual.clock.advance(timedelta(days=99))
        assert not client.pull("t", group="g", wait=0)
        manual.clock.advance(timedelta(days=300))
        (delivery,) = client.pull("t", group="g")
        assert delivery.attempt == 2
        delivery.reject("no")
        assert len(list(client.deadletters.browse("t", "g"))) == 1
        manual.clock.advance(timedelta(days=40))
        assert list(client.deadletters.browse("t", "g")) == []  # they are kept for 30 days


async def test_each_attempt_comes_at_its_time(manual: InProcessBroker) -> None:
    times: list[int] = []
    async with ternmq.connect(manual.url) as client:
        await client.send("t", b"x")

        async def work() -> None:
            async with client.consume("t", group="g") as deliveries:
                async for delivery in deliveries:
                    times.append((manual.clock.now_us - START_US) // 1_000_000)
                    if delivery.attempt == 4:
                        await delivery.ack()
                        return
                    await delivery.retry(delay=timedelta(days=10))

        task = asyncio.create_task(work())
        await until(lambda: len(times) == 1, "the first attempt")
        await asyncio.to_thread(manual.clock.advance, timedelta(days=400))
        await task
        assert times == [0, 864_000, 1_728_000, 2_592_000]


def test_deduplication_is_forgotten_as_time_passes(manual: InProcessBroker) -> None:
    with ternmq.sync.connect(manual.url) as client:
        assert client.send("t", b"x", id="one").offset == 0
        manual.clock.advance(minutes=9)
        assert client.send("t", b"x", id="one").duplicate
        manual.clock.advance(hours=2)
        again = client.send("t", b"x", id="one")
        assert (again.offset, again.duplicate) == (1, False)


def states(*deliveries: ternmq.Delivery) -> list[bool]:
    return [one.lost for one in deliveries]


async def test_a_delivery_is_lost_once_another_has_it(manual: InProcessBroker) -> None:
    async with ternmq.connect(manual.url) as one, ternmq.connect(manual.url) as other:
        await one.send("t", b"x")
        (delivery,) = await one.pull("t", group="g")
        (kept,) = await one.pull("t", group="kept")
        assert states(delivery, kept) == [False, False]
        await asyncio.to_thread(manual.clock.advance, seconds=20)
        assert states(delivery) == [False]
        await kept.extend(3600)
        await asyncio.to_thread(manual.clock.advance, seconds=11)
        (again,) = await other.pull("t", group="g")
        assert again.attempt == 2
        assert states(delivery, kept, again) == [True, False, False]
        with pytest.raises(ternmq.LeaseExpired):
            await delivery.ack()
        await again.ack()
        await kept.ack()


def test_a_delivery_is_lost_for_a_blocking_client_too(manual: InProcessBroker) -> None:
    with ternmq.sync.connect(manual.url) as client:
        client.send("t", b"x")
        (delivery,) = client.pull("t", group="g")
        manual.clock.advance(hours=1)
        assert delivery.lost


def test_a_leap_runs_what_is_due_in_order() -> None:
    clock, told = ManualClock(), []
    for at in (30, 10, 20, 40):
        clock.call_at(at, lambda at=at: told.append(at))  # type: ignore[misc]
    cancel = clock.call_at(15, lambda: told.append(15))
    cancel()
    for call in clock.leap(30):
        call()
    assert (told, clock.monotonic_us()) == ([10, 20, 30], 30)
    assert clock.leap(20) == []
    assert clock.monotonic_us() == 30


@pytest.mark.parametrize("wrong", [5, 5.0, "1h", True])
def test_a_clock_takes_a_timedelta(wrong: object) -> None:
    with pytest.raises(ternmq.InvalidRequest, match=r"^delta is a timedelta"):
        ManualClock().advance(wrong)  # type: ignore[arg-type]
    with pytest.raises(ternmq.InvalidRequest, match="no time"):
        ManualClock().advance(seconds=float("nan"))
    with pytest.raises(ValueError, match="back"):
        ManualClock().advance(seconds=-1)


def test_a_broker_that_cannot_start_again_says_why_and_has_nothing_to_stop() -> None:
    with broker(manual=False) as one:
        one.stop()
        one._settings["listen"] = "not an address"
        with pytest.raises(SettingsError, match="listen"):
            one.start()
        one.stop()


def test_a_broker_that_runs_is_not_started_again() -> None:
    with broker(manual=False) as one:
        port = one.port
        with pytest.raises(RuntimeError, match="runs already"):
            one.start()
        assert one.port == port
        one.restart()
        assert one.port == port
        one.stop()
        assert one._thread is None
