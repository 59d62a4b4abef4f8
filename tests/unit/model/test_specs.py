"""Names and settings: what is allowed, and that the defaults are allowed."""

from __future__ import annotations

import msgspec
import pytest

from ternmq.model.errors import InvalidName, InvalidRequest
from ternmq.model.specs import Limits, RetryPolicy, SubscriptionSpec, TopicSpec, check_name


@pytest.mark.parametrize("name", ["a", "A-z_0.9", "$sys"[1:], "x" * 127, "..."])
def test_names_that_are_allowed(name: str) -> None:
    assert check_name(name) == name


@pytest.mark.parametrize(
    "name", ["", ".", "..", "x" * 128, "a b", "a/b", "ü", "a\n", "$sys", "a\0"]
)
def test_names_that_are_not(name: str) -> None:
    with pytest.raises(InvalidName):
        check_name(name)


def test_defaults_are_allowed() -> None:
    TopicSpec(name="t").check()
    SubscriptionSpec().check()
    RetryPolicy().check()


@pytest.mark.parametrize(
    "spec",
    [
        TopicSpec(name="t", queues=0),
        TopicSpec(name="t", queues=4097),
        TopicSpec(name="t", levels=0),
        TopicSpec(name="t", levels=-1),
        TopicSpec(name="t", levels=9),
        TopicSpec(name="t", levels=8, queues=513),
        TopicSpec(name="t", levels=2, ordered=True),
        TopicSpec(name="t", retention_us=0),
        TopicSpec(name="$t"),
        SubscriptionSpec(lease_us=999),
        SubscriptionSpec(window=0),
        SubscriptionSpec(window=60_001),
        SubscriptionSpec(retry=RetryPolicy(attempts=0)),
        RetryPolicy(first_us=-1),
        RetryPolicy(first_us=10, cap_us=9),
        RetryPolicy(factor=0.5),
        RetryPolicy(jitter=1.0),
        RetryPolicy(jitter=-0.1),
        RetryPolicy(jitter=float("nan")),
        RetryPolicy(attempts=0),
        RetryPolicy(attempts=65_001),
    ],
)
def test_settings_that_are_refused(spec: TopicSpec | SubscriptionSpec | RetryPolicy) -> None:
    with pytest.raises(InvalidRequest):
        spec.check()


@pytest.mark.parametrize("spec", [TopicSpec(name="t"), SubscriptionSpec(), RetryPolicy(), Limits()])
def test_settings_are_frozen_and_travel(spec: msgspec.Struct) -> None:
    with pytest.raises(AttributeError):
        spec.queues = 3  # type: ignore[attr-defined]
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(spec), type=type(spec)) == spec
