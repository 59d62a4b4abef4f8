"""Grants: patterns, what is about everything, and that a deny wins."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ternmq.access.grants import Decision, covers, judge, sees
from ternmq.record.fact.control import Grant


@pytest.mark.parametrize(
    ("pattern", "inside", "outside"),
    [
        ("orders", ["orders"], ["orders.eu", "order", "Orders", "", "orders*"]),
        ("orders.*", ["orders.eu", "orders.", "orders.eu.1"], ["orders", "ordersx", "xorders.eu"]),
        ("ord*", ["ord", "orders"], ["or", "Ord"]),
        ("*", ["orders", ""], []),
        ("a.c", ["a.c"], ["abc"]),
    ],
)
def test_a_pattern_is_a_name_or_the_beginning_of_names(
    pattern: str, inside: list[str], outside: list[str]
) -> None:
    assert all(covers(pattern, name) for name in inside)
    assert not any(covers(pattern, name) for name in outside)
    assert covers(pattern, None) == (pattern == "*")


ALLOW_ALL = Grant("consume")


@pytest.mark.parametrize(
    ("grants", "topic", "group", "verdict"),
    [
        ([], "t", "g", Decision.MISSING),
        ([Grant("manage")], "t", "g", Decision.MISSING),
        ([ALLOW_ALL], "t", "g", Decision.ALLOWED),
        ([ALLOW_ALL], None, None, Decision.ALLOWED),
        ([Grant("consume", "t", "g")], "t", "g", Decision.ALLOWED),
        ([Grant("consume", "t", "g")], "t", "h", Decision.MISSING),
        ([Grant("consume", "t", "g")], "t", None, Decision.MISSING),
        ([Grant("consume", "t*", "g*")], "tt", "gg", Decision.ALLOWED),
        ([Grant("consume", "t*", "*")], None, None, Decision.MISSING),
        # Two halves make no whole: no one grant covers the topic for every group.
        ([Grant("consume", "t", "a*"), Grant("consume", "t", "b*")], "t", None, Decision.MISSING),
        # A deny wins, wherever it stands, however narrow or wide it is.
        ([ALLOW_ALL, Grant("consume", "t", "g", deny=True)], "t", "g", Decision.DENIED),
        ([Grant("consume", "t", "g", deny=True), ALLOW_ALL], "t", "g", Decision.DENIED),
        ([Grant("consume", "t", "g"), Grant("consume", deny=True)], "t", "g", Decision.DENIED),
        ([ALLOW_ALL, Grant("consume", "t", "g", deny=True)], "t", "h", Decision.ALLOWED),
        ([ALLOW_ALL, Grant("manage", "t", "g", deny=True)], "t", "g", Decision.ALLOWED),
        # What is about all is refused when any part of it is denied.
        ([ALLOW_ALL, Grant("consume", "t", "g", deny=True)], "t", None, Decision.DENIED),
        ([ALLOW_ALL, Grant("consume", "t", "g", deny=True)], "u", None, Decision.ALLOWED),
        ([ALLOW_ALL, Grant("consume", "t", "g", deny=True)], None, None, Decision.DENIED),
    ],
)
def test_verdicts(
    grants: list[Grant], topic: str | None, group: str | None, verdict: Decision
) -> None:
    assert judge(grants, "consume", topic, group) is verdict


patterns = st.sampled_from(["*", "a", "a*", "ab", "b*", "ab*"])
some_grants = st.lists(
    st.builds(Grant, st.sampled_from(["consume", "manage"]), patterns, patterns, st.booleans()),
    max_size=5,
)
NAMES = ["a", "ab", "abc", "b", "c"]


@given(some_grants)
def test_what_is_allowed_for_all_is_allowed_for_each(grants: list[Grant]) -> None:
    """The verdict on a whole topic, or the whole broker, is never wider than on its parts."""
    for topic, group in itertools.product(NAMES, NAMES):
        if judge(grants, "consume", None, None) is Decision.ALLOWED:
            assert judge(grants, "consume", topic, None) is Decision.ALLOWED
        if judge(grants, "consume", topic, None) is Decision.ALLOWED:
            assert judge(grants, "consume", topic, group) is Decision.ALLOWED


@given(some_grants, some_grants)
def test_order_is_no_matter_and_a_deny_only_takes_away(one: list[Grant], two: list[Grant]) -> None:
    for topic, group in itertools.product(NAMES, NAMES):
        assert judge(one + two, "consume", topic, group) is judge(
            two + one, "consume", topic, group
        )
        allowed = judge(one, "consume", topic, group) is Decision.ALLOWED
        denies = [grant for grant in two if grant.deny]
        if judge(one + denies, "consume", topic, group) is Decision.ALLOWED:
            assert allowed


@given(some_grants)
def test_a_topic_is_seen_where_something_may_be_done(grants: list[Grant]) -> None:
    for topic in NAMES:
        may = any(
            judge(grants, right, topic, group) is Decision.ALLOWED
            for right in ("consume", "manage")
            for group in [*NAMES, "only-here"]
        )
        if may:
            assert sees(grants, topic)


def test_a_topic_without_a_right_is_not_seen() -> None:
    assert not sees([], "t")
    assert not sees([Grant("consume", "u")], "t")
    assert not sees([Grant("consume"), Grant("consume", "t", deny=True)], "t")
    assert not sees([Grant("consume", "t", "g"), Grant("consume", "t", "g", deny=True)], "t")
    assert sees([Grant("consume"), Grant("consume", "t", "g", deny=True)], "t")
    assert sees([Grant("consume"), Grant("produce"), Grant("consume", "t", deny=True)], "t")
