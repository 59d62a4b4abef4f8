"""The testing kit's clock: long leaps, what is due on the way, and what clients know of it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

import ternmq
import ternmq.sync
from ternmq.journal.disk.memory import MemoryFile
from ternmq.settings import SettingsError
from ternmq.testing import InProcessBroker, ManualClock, broker
from ternmq.testing.clock import START_US
from tests.asynchronous import until
from tests.fault.processes import patience

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


SECONDS = (1, 3600, 30 * 86_400, 400 * 86_400)


@pytest.mark.parametrize("slow", [False, True])
async def test_scheduled_messages_come_at_their_times(
    manual: InProcessBroker, slow: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A year in a leap, with stops where a message is due; also if a slow disk is read for them."""
    times: list[int] = []
    reads: list[int] = []
    async with ternmq.connect(manual.url) as client:
        for seconds in SECONDS:
            await client.send("t", b"x", deliver_after=seconds)
        if slow:
            pread = MemoryFile.pread

            def read_slowly(file: MemoryFile, length: int, offset: int) -> bytes:
                if threading.current_thread().name == "ternmq-work":
                    reads.append(offset)
                    threading.Event().wait(0.03)
                return pread(file, length, offset)

            manual.restart()  # now their records are only on disk
            monkeypatch.setattr(MemoryFile, "try_pread", lambda *_: None)
            monkeypatch.setattr(MemoryFile, "pread", read_slowly)

        async def work() -> None:
            async with client.consume("t", group="g") as deliveries:
                async for delivery in deliveries:
                    times.append((manual.clock.now_us - START_US) // 1_000_000)
                    await delivery.ack()

        task = asyncio.create_task(work())
        await until(lambda: manual._server.core.broker.parked_pulls == 1, "a pull that waits")
        before, began = turns(manual), time.monotonic()
        await asyncio.to_thread(manual.clock.advance, days=401)
        assert times == list(SECONDS)
        assert time.monotonic() - began < 5 * patience()
        assert turns(manual) - before < 3000
        assert bool(reads) is slow
        task.cancel()


async def test_a_handler_may_schedule_the_next_while_time_moves(manual: InProcessBroker) -> None:
    times: list[int] = []
    async with ternmq.connect(manual.url) as client:
        await client.send("t", b"x", deliver_after=timedelta(days=10))

        async def work() -> None:
            async with client.consume("t", group="g") as deliveries:
                async for delivery in deliveries:
                    times.append((manual.clock.now_us - START_US) // 1_000_000)
                    await client.send("t", b"x", deliver_after=timedelta(days=10))
                    await delivery.ack()

        task = asyncio.create_task(work())
        await until(lambda: manual._server.core.broker.parked_pulls == 1, "a pull that waits")
        await asyncio.to_thread(manual.clock.advance, timedelta(days=45))
        assert times == [864_000 * number for number in (1, 2, 3, 4)]
        task.cancel()


def test_messages_in_many_hours_come_at_their_times(manual: InProcessBroker) -> None:
    with ternmq.sync.connect(manual.url) as client:
        messages = [
            ternmq.Message(b"%d" % number, deliver_after=timedelta(minutes=37 * number))
            for number in range(1, 301)
        ]
        client.send_many("t", messages)
        manual.clock.advance(timedelta(days=3))
        found: list[bytes] = []
        while deliveries := client.pull("t", group="g", wait=0):
            for delivery in deliveries:
                assert delivery.stored_at == delivery.due_at
                found.append(delivery.body)
                delivery.ack()
        assert found == [b"%d" % number for number in range(1, 4320 // 37 + 1)]


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


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"seconds": float("nan")}, "^seconds must be a finite time.*; it is nan"),
        ({"hours": float("inf")}, "^hours must be a finite time"),
        (
            {"days": 1e12},
            r"^days must be a finite time, and end before the year 9999; it is 1e\+12",
        ),
        ({"days": 10**400}, "^days is out of range"),
        ({"minutes": "5"}, "^minutes is a number, not str"),
        ({"days": 366 * 7973}, "^the clock cannot go beyond the year 9998"),
        ({"seconds": -1}, "time does not go back"),
        ({"delta": timedelta.max}, "^the clock cannot go beyond the year 9998"),
    ],
)
def test_a_duration_that_cannot_be_names_the_argument(wrong: Any, says: str) -> None:
    clock = ManualClock()
    with pytest.raises(ternmq.InvalidRequest, match=says):
        clock.advance(**wrong)
    assert clock.monotonic_us() == 0
    clock.advance(timedelta(milliseconds=1), days=0.5, seconds=-1)
    assert clock.monotonic_us() == 43_199_001_000


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


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("days", [60, 299])
def test_a_restart_after_many_idle_days_does_not_set_the_time_back(
    manual: InProcessBroker, clean: bool, days: int
) -> None:
    with ternmq.sync.connect(manual.url) as client:
        client.send("t", b"x", deliver_after=timedelta(days=days + 1))
        manual.clock.advance(days=days)
        before = client.admin.status().now
        manual.restart(clean=clean)
        after = client.admin.status()
        assert after.now >= before
        assert abs(after.clock_gap) < timedelta(minutes=1)
        manual.clock.advance(days=1, seconds=1)
        assert [one.body for one in client.pull("t", group="g", wait=5)] == [b"x"]
