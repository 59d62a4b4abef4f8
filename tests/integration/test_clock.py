"""A wall clock that jumps brings nothing early and nothing late, until an operator accepts it."""

from __future__ import annotations

import logging
import random
import threading
import time
from datetime import timedelta
from pathlib import Path

import pytest

import ternmq
import ternmq.sync
from ternmq.broker.start import Options, open_broker
from ternmq.journal.disk.real import RealDisk
from ternmq.model.errors import Forbidden, InvalidRequest
from ternmq.model.specs import TopicSpec
from ternmq.model.types import DAY_US
from ternmq.testing import InProcessBroker, broker
from ternmq.testing.clock import START_US
from tests.black_box.process import BrokerProcess, wait_until

YEARS = timedelta(days=70 * 365)
JUMPS = [timedelta(hours=1), timedelta(hours=-1), timedelta(days=1), timedelta(days=-1), YEARS]


def lost(delivery: ternmq.sync.Delivery) -> bool:
    return delivery.lost


@pytest.mark.parametrize("jump", JUMPS, ids=str)
def test_retries_and_leases_end_neither_early_nor_late(jump: timedelta) -> None:
    with broker() as one, ternmq.sync.connect(one.url) as client:
        client.send("t", b"x")
        client.send("u", b"y")
        (delivery,) = client.pull("t", group="g")
        (leased,) = client.pull("u", group="g")
        delivery.retry(delay=timedelta(minutes=30))
        one.clock.jump_wall(jump)
        assert client.admin.status().clock_gap == jump
        assert not client.admin.status().clock_followed
        assert not client.pull("t", group="g", wait=0)
        one.clock.advance(seconds=29)
        assert lost(leased) is False
        one.clock.advance(seconds=2)
        assert lost(leased) is True
        one.clock.advance(minutes=29, seconds=28)
        assert not client.pull("t", group="g", wait=0)
        one.clock.advance(seconds=1)
        (delivery,) = client.pull("t", group="g", wait=0)
        assert delivery.attempt == 2
        assert one.clock.now_us == START_US + (jump + timedelta(minutes=30)) // timedelta(
            microseconds=1
        )


@pytest.mark.parametrize("jump", JUMPS, ids=str)
def test_a_delayed_message_comes_neither_early_nor_late(jump: timedelta) -> None:
    with broker() as one, ternmq.sync.connect(one.url) as client:
        client.send("t", b"before", deliver_after=timedelta(days=3))
        one.clock.jump_wall(jump)
        # Clients reckon by the clock of the broker, so their own clock does no harm either.
        client.send("t", b"behind", deliver_after=timedelta(days=3, seconds=10))
        assert not client.pull("t", group="g", wait=0)
        one.clock.advance(days=3, seconds=-1)
        assert not client.pull("t", group="g", wait=0)
        one.clock.advance(seconds=1)
        assert [one.body for one in client.pull("t", group="g", wait=0)] == [b"before"]
        one.clock.advance(seconds=9)
        assert not client.pull("t", group="g", wait=0)
        one.clock.advance(seconds=1)
        assert [one.body for one in client.pull("t", group="g", wait=0)] == [b"behind"]


@pytest.mark.parametrize("clean", [True, False])
def test_a_start_with_a_clock_of_2099_delivers_no_delayed_message(clean: bool) -> None:
    with broker() as one, ternmq.sync.connect(one.url) as client:
        client.send("t", b"x", deliver_after=timedelta(days=400))
        one.stop(clean=clean)
        one.clock.jump_wall(YEARS)
        one.start()
        one.clock.advance(days=399)
        assert not client.pull("t", group="g", wait=0)
        one.clock.advance(days=1)
        assert [one.body for one in client.pull("t", group="g")] == [b"x"]


def test_a_consumer_that_waits_gets_it_at_its_time() -> None:
    with broker() as one, ternmq.sync.connect(one.url) as client:
        times: list[int] = []

        def work() -> None:
            with client.consume("t", group="g") as deliveries:
                for delivery in deliveries:
                    times.append(one.clock.monotonic_us() // 1_000_000)
                    if delivery.attempt == 2:
                        delivery.ack()
                        return
                    delivery.retry(delay=timedelta(hours=2))

        thread = threading.Thread(target=work)
        thread.start()
        client.send("t", b"x")
        one.wait_failed("t", "g")
        one.clock.jump_wall(days=3)
        one.clock.advance(hours=1)
        one.clock.jump_wall(days=-6)
        assert len(times) == 1
        one.clock.advance(hours=2)
        thread.join(10)
        assert times == [0, 7200]


def test_an_id_is_remembered_for_ten_minutes_and_forgotten_after_eleven() -> None:
    with broker() as one, ternmq.sync.connect(one.url) as client:
        first = client.send("t", b"x", id="order-1")
        one.clock.advance(minutes=9, seconds=59)
        again = client.send("t", b"x", id="order-1")
        assert (again.duplicate, again.offset) == (True, first.offset)
        one.clock.advance(minutes=11)
        assert not client.send("t", b"x", id="order-1").duplicate


def test_a_small_jump_is_followed_slowly() -> None:
    with broker() as one, ternmq.sync.connect(one.url) as client:
        one.clock.jump_wall(seconds=1)
        assert client.admin.status().clock_followed
        one.clock.advance(seconds=50)
        assert client.admin.status().clock_gap == timedelta(seconds=0.5)
        one.clock.advance(seconds=50)
        assert client.admin.status().clock_gap == timedelta()


def test_accepting_brings_what_is_due_by_then() -> None:
    with broker() as one, ternmq.sync.connect(one.url) as client:
        client.send("t", b"x")
        client.send("u", b"y", deliver_after=timedelta(days=30))
        (delivery,) = client.pull("t", group="g")
        delivery.retry(delay=timedelta(days=30))
        one.clock.jump_wall(days=31)
        before = client.admin.status().now
        done = client.admin.accept_clock()
        assert done.before == before
        assert done.now - done.before == timedelta(days=31)
        status = client.admin.status()
        assert status.now == done.now
        assert (status.clock_gap, status.clock_followed) == (timedelta(), True)
        (delivery,) = client.pull("t", group="g")
        assert delivery.attempt == 2
        assert [one.body for one in client.pull("u", group="g")] == [b"y"]
        again = client.admin.accept_clock()
        assert again.now == again.before
        one.restart(clean=False)
        assert client.admin.status().now == done.now


def test_a_clock_that_is_behind_is_not_accepted() -> None:
    with broker() as one, ternmq.sync.connect(one.url) as client:
        one.clock.jump_wall(hours=-2)
        with pytest.raises(InvalidRequest, match="2 hours behind"):
            client.admin.accept_clock()
        assert client.admin.status().now_us == START_US


async def test_the_asynchronous_client_accepts_it_too() -> None:
    with broker() as one:
        one.clock.jump_wall(hours=2)
        async with ternmq.connect(one.url) as client:
            done = await client.admin.accept_clock()
            assert done.now - done.before == timedelta(hours=2)


@pytest.mark.parametrize("days", [0, 200])
@pytest.mark.parametrize("accepts", ["it", "another"])
def test_a_delay_that_begins_right_after_an_accepted_jump_is_not_shorter(
    accepts: str, days: int
) -> None:
    """The client is told of the jump: it counts delays from broker time, which it knows."""
    with (
        broker() as one,
        ternmq.sync.connect(one.url) as client,
        ternmq.sync.connect(one.url) as other,
    ):
        client.send("t", b"first")
        other.send("t", b"second")
        one.clock.advance(days=days)
        one.clock.jump_wall(hours=3)
        now = (client if accepts == "it" else other).admin.accept_clock().now

        def counted() -> bool:  # the news may be on its way to the others for a moment
            receipt = client.send("t", b"late", deliver_after=600)
            return receipt.due_at is not None and receipt.due_at - now < timedelta(seconds=601)

        receipt = (client if accepts == "it" else other).send("t", b"x", deliver_after=600)
        assert receipt.due_at is not None
        assert receipt.due_at - now >= timedelta(seconds=600)
        wait_until(counted, "delays are counted from the new time, as precisely as before")
        one.clock.advance(seconds=599)
        bodies = [delivery.body for delivery in client.pull("t", group="g", wait=1)]
        assert bodies == [b"first", b"second"]


@pytest.mark.parametrize("clean", [True, False])
def test_a_start_goes_on_from_the_last_record(
    clean: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with broker() as one, ternmq.sync.connect(one.url) as client:
        client.send("t", b"x")
        (delivery,) = client.pull("t", group="g")
        delivery.retry(delay=timedelta(hours=1))
        one.stop(clean=clean)
        one.clock.jump_wall(YEARS)
        one.start()
        status = client.admin.status()
        assert status.now_us == START_US
        assert (status.clock_gap, status.clock_followed) == (YEARS, False)
        assert "the wall clock is 70 years ahead of the last record" in caplog.text
        assert not client.pull("t", group="g", wait=0)
        one.clock.advance(hours=1)
        (delivery,) = client.pull("t", group="g")
        assert delivery.attempt == 2
        client.admin.accept_clock()
        one.restart(clean=clean)
        assert client.admin.status().now_us == START_US + (YEARS + timedelta(hours=1)) // timedelta(
            microseconds=1
        )


def test_the_setting_says_how_far_a_start_believes_it() -> None:
    def start_after(days: int) -> int:
        with broker(settings={"start_jump": "10d"}) as one:
            one.stop()
            one.clock.advance(days=days)
            one.start()
            with ternmq.sync.connect(one.url) as client:
                return client.admin.status().now_us - START_US

    assert start_after(9) == 9 * DAY_US
    assert start_after(11) == 0


def test_only_who_may_manage_everything_accepts_it(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="ternmq.audit")
    token = "the-token-of-the-admin"
    with (
        broker(settings={"auth": True, "admin_token": token}) as one,
        ternmq.sync.connect(one.url, app="admin", token=token) as admin,
    ):
        given = admin.admin.put_app("shop", grants=["manage:t"], new_token=True)
        with (
            ternmq.sync.connect(one.url, app="shop", token=given) as shop,
            pytest.raises(Forbidden),
        ):
            shop.admin.accept_clock()
        admin.admin.accept_clock()
    said = [line for line in caplog.messages if "CLOCK_ACCEPT" in line]
    assert [("app='admin'" in line, "outcome='done'" in line) for line in said] == [
        (False, False),
        (True, True),
    ]


def test_a_process_whose_clock_is_far_ahead_of_its_journal(tmp_path: Path) -> None:
    """Its journal was written by a broker of 100 days ago: its clock is that much ahead."""
    data = tmp_path / "data"
    data.mkdir()
    disk = RealDisk(str(data))
    disk.lock()
    then_us = time.time_ns() // 1000 - 100 * DAY_US
    started = open_broker(
        disk, wall_us=then_us, chance=random.Random(1), options=Options(segment_bytes=4 << 20)
    )
    started.broker.administration.create_topic(then_us, TopicSpec(name="t"))
    started.broker.close(then_us)
    disk.close()
    with BrokerProcess("dev", tmp_path, http=True, segment="4MiB") as one:
        wait_until(lambda: "ahead of the last record" in one.log, "told in the log")
        assert "the wall clock is 100 days ahead of the last record" in one.log
        assert one.metric("ternmq_clock_gap_seconds") == pytest.approx(100 * 86400, abs=60)
        with ternmq.sync.connect(one.url) as client:
            assert client.admin.status().now_us - then_us < DAY_US
            client.admin.accept_clock()
            assert abs(client.admin.status().now_us / 1e6 - time.time()) < 60
        one.restart(kill=True)
        with ternmq.sync.connect(one.url) as client:
            assert abs(client.admin.status().now_us / 1e6 - time.time()) < 60
            assert client.admin.status().clock_followed
        assert one.log.count("ahead of the last record") == 1


def test_what_is_no_time_is_refused() -> None:
    with broker() as one:
        with pytest.raises(InvalidRequest):
            one.clock.jump_wall("an hour")  # type: ignore[arg-type]
        with pytest.raises(InvalidRequest):
            one.clock.jump_wall(hours=float("nan"))
        with pytest.raises(InvalidRequest, match="1970"):
            one.clock.jump_wall(days=-60 * 365)


def test_a_clock_without_a_broker_jumps_too() -> None:
    one = InProcessBroker(clock=ternmq.testing.ManualClock())
    one.clock.jump_wall(days=-1, hours=1)
    assert one.clock.now_us == START_US - 23 * 3600 * 1_000_000
