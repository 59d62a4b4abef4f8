"""The retry policy and the topic that applications write."""

from __future__ import annotations

import dataclasses
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ternmq
from ternmq.client.declaration.policy import spec_of
from ternmq.model import specs

DAY = 86_400


def test_the_default_is_that_of_a_new_group():
    assert spec_of(ternmq.RetryPolicy()) == specs.RetryPolicy()


def test_times_are_seconds_or_timedeltas():
    by_number = ternmq.RetryPolicy(first=0.05, cap=90)
    by_delta = ternmq.RetryPolicy(first=timedelta(milliseconds=50), cap=timedelta(seconds=90))
    assert by_number == by_delta
    assert by_number.first == timedelta(milliseconds=50)
    assert spec_of(by_number).first_us == 50_000
    assert ternmq.Topic("a", retention=60) == ternmq.Topic("a", retention=timedelta(minutes=1))


@given(
    first=st.integers(0, 10**9),
    more=st.integers(0, 10**12),
    factor=st.floats(1, 1000),
    jitter=st.floats(0, 0.99),
    attempts=st.integers(1, 65_000),
    exhausted=st.sampled_from(specs.Exhausted),
    enabled=st.booleans(),
)
def test_what_a_group_has_comes_back_the_same(
    first, more, factor, jitter, attempts, exhausted, enabled
):
    spec = specs.RetryPolicy(
        enabled=enabled, first_us=first, cap_us=first + more, factor=factor, jitter=jitter,
        attempts=attempts, exhausted=exhausted,
    )  # fmt: skip
    assert spec_of(ternmq.RetryPolicy.of(spec)) == spec


def test_a_policy_is_changed_by_replacing_fields():
    policy = dataclasses.replace(ternmq.RetryPolicy(first=2, attempts=3), attempts=7)
    assert (policy.first, policy.attempts) == (timedelta(seconds=2), 7)
    with pytest.raises(dataclasses.FrozenInstanceError):
        policy.attempts = 3  # type: ignore[misc]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"first": -1}, "first must be"),
        ({"first": 10, "cap": 9}, "at most cap, not 10 s with a cap of 9 s"),
        ({"factor": 0.5}, "factor must be 1 to 1000, not 0.5"),
        ({"jitter": 1.0}, "jitter must be from 0 to below 1, not 1"),
        ({"attempts": 0}, "attempts must be 1 to 65000, not 0"),
        ({"first": "1s"}, "first is a number of seconds or a timedelta, not str"),
        ({"cap": float("nan")}, "cap"),
        ({"cap": True}, "cap is a number of seconds"),
        ({"factor": 0.5}, "factor"),
        ({"jitter": 1}, "jitter"),
        ({"attempts": 0}, "attempts"),
        ({"exhausted": "drop"}, "exhausted"),
    ],
)
def test_an_error_names_the_argument(arguments, named):
    with pytest.raises(ternmq.InvalidRequest, match=named) as caught:
        ternmq.RetryPolicy(**arguments)
    assert "_us" not in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"queues": 0}, "queues"),
        ({"retention": 0}, "retention must be more than 0 seconds and at most a hundred years"),
        ({"retention": -1}, "retention must be more than 0 seconds and at most a hundred years"),
        ({"retention": timedelta(0)}, "retention must be more than 0 seconds"),
        ({"retention": float("nan")}, "retention must be more than 0 seconds"),
        ({"retention": 200 * 366 * DAY}, "retention must be more than 0 seconds and at most a h"),
        ({"retention": "7d"}, "retention is a number of seconds"),
        ({"durability": "strange"}, "durability"),
    ],
)
def test_an_error_of_a_topic_names_the_argument(arguments, named):
    with pytest.raises(ternmq.InvalidRequest, match=named) as caught:
        ternmq.Topic("orders", **arguments)
    assert "_us" not in str(caught.value)


def test_a_topic_has_a_name_that_can_be():
    with pytest.raises(ternmq.InvalidName):
        ternmq.Topic("no spaces")


def test_a_topic_is_declared_once():
    client = ternmq.connect()
    client.declare(ternmq.Topic("orders", queues=2), ternmq.Topic("orders", queues=2))
    with pytest.raises(ternmq.InvalidRequest, match="declared twice"):
        client.declare(ternmq.Topic("orders", queues=3))
    with pytest.raises(ternmq.InvalidRequest, match=r"a ternmq\.Topic can be declared, not a str"):
        client.declare("orders")  # type: ignore[arg-type]
