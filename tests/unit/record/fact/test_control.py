"""Records of the control plane: round trips, and that older ones still read."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ternmq.model.specs import (
    Durability,
    Exhausted,
    Mode,
    RetryPolicy,
    Start,
    SubscriptionSpec,
    TopicSpec,
)
from ternmq.record.fact import control
from ternmq.record.fact.control import (
    Alarm,
    App,
    AppDeleted,
    ClockAccepted,
    Count,
    Counts,
    Grant,
    Joined,
    Left,
    SequenceRange,
    Subscribed,
    SubscriptionChanged,
    TopicChanged,
    TopicCreated,
    TopicDeleted,
    Unsubscribed,
)

u32 = st.integers(0, 2**32 - 1)
times = st.integers(1, 2**62)
names = st.text("abcXYZ.-_019", min_size=1, max_size=20)

topic_specs = st.builds(
    TopicSpec,
    name=names,
    queues=st.integers(1, 4096),
    ordered=st.booleans(),
    durability=st.sampled_from(Durability),
    retention_us=times,
    keep_until_consumed=st.booleans(),
)
policies = st.builds(
    RetryPolicy,
    enabled=st.booleans(),
    first_us=times,
    factor=st.floats(1, 100),
    cap_us=times,
    jitter=st.floats(0, 0.99),
    attempts=st.integers(1, 65_000),
    exhausted=st.sampled_from(Exhausted),
)
subscription_specs = st.builds(
    SubscriptionSpec,
    mode=st.sampled_from(Mode),
    tags=st.text(max_size=20),
    start=st.sampled_from(Start),
    retry=policies,
    lease_us=times,
    window=st.integers(1, 60_000),
    paused=st.booleans(),
)
changes = st.one_of(
    st.builds(TopicCreated, u32, topic_specs),
    st.builds(TopicChanged, u32, topic_specs),
    st.builds(TopicDeleted, u32),
    st.builds(
        Subscribed, u32, names, u32, subscription_specs, st.lists(st.integers(0, 2**63), max_size=4)
    ),
    st.builds(SubscriptionChanged, u32, u32, subscription_specs),
    st.builds(Unsubscribed, u32, u32),
    st.builds(
        App,
        names,
        st.text(max_size=20),
        st.binary(min_size=16, max_size=16),
        st.binary(min_size=32, max_size=32),
        st.lists(st.builds(Grant, names, names, names, st.booleans()), max_size=4).map(tuple),
        times,
    ),
    st.builds(AppDeleted, names),
    st.builds(ClockAccepted, st.integers(0, 2**62), names),
)
u64 = st.integers(0, 2**64 - 1)


@given(changes, st.integers(0, 7))
def test_config_round_trip(change: control.Config, padding: int) -> None:
    assert control.unpack_config(control.pack(change) + bytes(padding)) == change


@given(
    st.builds(Joined, u32, names, names, st.text(max_size=20), u32, st.text(max_size=9), times),
    st.integers(0, 7),
)
def test_joined_round_trip(joined: Joined, padding: int) -> None:
    assert control.unpack_joined(control.pack(joined) + bytes(padding)) == joined


@given(st.builds(Left, u32, st.text(max_size=20)))
def test_left_round_trip(left: Left) -> None:
    assert control.unpack_left(control.pack(left)) == left


@given(st.builds(Alarm, names, st.text(max_size=50), names, st.booleans(), st.integers(0, 2**62)))
def test_alarm_round_trip(alarm: Alarm) -> None:
    assert control.unpack_alarm(control.pack(alarm)) == alarm


def test_an_alarm_of_before_it_could_be_cleared_is_read() -> None:
    data = msgspec.msgpack.encode({"type": "alarm", "name": "clock", "text": "7 s ahead"})
    body = len(data).to_bytes(4, "little") + bytes(4) + data
    assert control.unpack_alarm(body) == Alarm("clock", "7 s ahead", "", raised=True, since_us=0)
    assert control.pack(Alarm("clock", "7 s ahead")) == body


runs = st.lists(st.builds(SequenceRange, u64, u64), max_size=3).map(tuple)


@given(
    st.builds(
        Counts,
        u64,
        u32,
        st.lists(
            st.builds(Count, times, u64, u64, u64, u64, st.booleans(), runs, u64), max_size=5
        ).map(tuple),
    ),
    st.integers(0, 7),
)
def test_counts_round_trip(counts: Counts, padding: int) -> None:
    assert control.unpack_counts(control.pack_counts(counts) + bytes(padding)) == counts


def test_no_part_of_a_token_is_printed() -> None:
    app = App("shop", "me", b"saltsaltsaltsalt", b"hashhash" * 4, (Grant("produce"),), 1)
    for text in (repr(app), str(app), f"{[app]}"):
        assert "salt" not in text
        assert "hashhash" not in text
        assert "token=***" in text


def test_kinds_are_not_mixed_up() -> None:
    joined = control.pack(Joined(1, "app", "client"))
    with pytest.raises(msgspec.ValidationError):
        control.unpack_config(joined)
    with pytest.raises(msgspec.ValidationError):
        control.unpack_left(joined)


def test_fields_of_a_later_version_are_passed_over_and_missing_ones_have_defaults() -> None:
    data = msgspec.msgpack.encode(
        {"type": "topic-created", "number": 7, "spec": {"name": "t", "colour": "blue"}}
    )
    body = control._LENGTH.pack(len(data), 0) + data
    assert control.unpack_config(body) == TopicCreated(7, TopicSpec(name="t"))


def test_fixed_layouts() -> None:
    assert control.SEGMENT.size == 32
    assert control.EPOCH.size == 24
    assert control.MARK.size == 8
    assert control.COUNTS_HEAD.size == 16
    assert control.COUNTS_ENTRY.size == 56
    assert control.COUNTS_RUN.size == 16
