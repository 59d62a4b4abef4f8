"""Slots of a throttle, and how it passes on what it is given."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any, assert_type

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ternmq
import ternmq.sync
from ternmq.model.errors import InvalidRequest
from ternmq.reliable import Throttle
from ternmq.reliable.modes.throttle import Slots


def test_a_burst_gets_one_slot_after_the_other() -> None:
    slots = Slots(10_000_000)
    assert [slots.take(1_000_000) for _ in range(4)] == [0, 10_000, 20_000, 30_000]
    assert slots.take(1_015_000) == 25_000
    assert slots.take(1_200_000) == 0, "nobody had sent for a while: no slot is saved up"
    assert slots.take(1_200_000) == 10_000


def test_a_distance_that_is_no_whole_number_of_microseconds_does_not_drift() -> None:
    slots = Slots(333_333)
    assert [slots.take(0) for _ in range(4)] == [0, 334, 667, 1000]
    assert [slots.take(0) for _ in range(996)][-1] == 333_000


@given(st.integers(1_000, 10**9), st.lists(st.integers(0, 50_000), min_size=1, max_size=200))
def test_in_no_span_are_there_more_than_the_rate_allows(every_ns: int, waits: list[int]) -> None:
    slots, now, due = Slots(every_ns), 0, []
    for wait in waits:
        now += wait
        due.append(now + slots.take(now))
    for first in range(len(due)):
        for last in range(first, len(due)):
            span_ns = (due[last] - due[first] + 1) * 1000  # due times are rounded to a µs
            assert last - first <= span_ns / every_ns


def test_threads_never_get_the_same_slot() -> None:
    slots, found = Slots(1_000_000), []
    start = threading.Barrier(8)

    def take() -> None:
        start.wait()
        mine = [slots.take(0) for _ in range(1000)]
        found.extend(mine)

    threads = [threading.Thread(target=take) for _ in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert sorted(found) == [n * 1000 for n in range(8000)]


@pytest.mark.parametrize("rate", [0, -1, 1e-7, 1_000_001, float("nan"), float("inf"), True, "9"])
def test_a_rate_that_is_none_is_refused(rate: Any) -> None:
    with pytest.raises(InvalidRequest, match="rate"):
        Throttle(ternmq.connect(), rate=rate)


def test_what_is_no_client_is_refused() -> None:
    client: Any = "ternmq://127.0.0.1"
    with pytest.raises(InvalidRequest, match=r"ternmq\.connect"):
        Throttle(client, rate=1)


class Noting(ternmq.Client):
    """Notes what it is asked to send."""

    async def send(self, *given: Any, **named: Any) -> Any:
        self.__dict__.setdefault("asked", []).append((given, named))


async def test_arguments_are_passed_on_and_within_only_if_it_is_given() -> None:
    client = Noting(ternmq.connect("ternmq://127.0.0.1").options)
    throttle = Throttle(client, rate=0.001)
    await throttle.send("sms", "a", key="k", priority=1)
    session = object()
    await throttle.send("sms", "b", within=session, expires_after=9)
    (first, one), (second, other) = client.__dict__["asked"]
    assert (first, second) == (("sms", "a"), ("sms", "b"))
    assert one == {"key": "k", "priority": 1, "deliver_after": timedelta(0)}
    after = other.pop("deliver_after")
    assert timedelta(seconds=990) < after <= timedelta(seconds=1000)
    assert other == {"within": session, "expires_after": 9}


async def test_the_slot_is_taken_when_the_send_begins() -> None:
    client = Noting(ternmq.connect("ternmq://127.0.0.1").options)
    throttle = Throttle(client, rate=0.001)
    forgotten = throttle.send("sms", "never awaited")
    await throttle.send("sms", "first")
    assert client.__dict__["asked"][0][1]["deliver_after"] == timedelta(0)
    forgotten.close()


def test_a_wrong_argument_is_an_error_at_once() -> None:
    throttle: Any = Throttle(ternmq.connect(), rate=1)
    for name in ("deliver_after", "deliver_at", "prio"):
        with pytest.raises(TypeError, match=f"no argument '{name}'"):
            throttle.send("sms", b"", **{name: timedelta(1)})


def types() -> None:
    """Is not called: mypy checks it."""
    one = Throttle(ternmq.connect(), rate=100)
    other = Throttle(ternmq.sync.connect(), rate=0.5)
    assert_type(one, Throttle[ternmq.Client])
    assert_type(other, Throttle[ternmq.sync.Client])
    assert_type(other.send("sms", b"", key="k"), ternmq.Receipt)


async def awaited() -> None:
    """Is not called: mypy checks it."""
    assert_type(await Throttle(ternmq.connect(), rate=100).send("sms", b""), ternmq.Receipt)
