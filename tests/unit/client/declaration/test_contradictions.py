"""Groups that a broker refuses, told from what is declared and what is there."""

from __future__ import annotations

import pytest

import ternmq
from ternmq.client.declaration.contradictions import contradiction
from ternmq.client.declaration.source import Source
from ternmq.model.specs import Mode, SubscriptionSpec, TopicSpec

ORDERED = TopicSpec(name="scans", ordered=True)
PLAIN = TopicSpec(name="scans")
KEEPS_ORDER = SubscriptionSpec(mode=Mode.ORDERED)
LOCKS = SubscriptionSpec(mode=Mode.QUEUE_LOCK)
SHARED = SubscriptionSpec(mode=Mode.SHARED)
FIRST = Source("scans", "first")


def topic(ordered: bool | None) -> ternmq.Topic:
    return ternmq.Topic("scans", ordered=ordered)


@pytest.mark.parametrize(
    ("declared", "there", "has", "remedy"),
    [
        (topic(True), None, None, 'state mode="shared" for group late on scans'),
        (topic(None), ORDERED, None, 'state mode="shared" for group late on scans'),
        (None, ORDERED, None, 'state mode="shared" for group late on scans'),
        (topic(False), ORDERED, None, 'state mode="shared" for group late on scans'),
        (topic(False), ORDERED, KEEPS_ORDER, 'new group with mode="shared" instead of group late'),
        (None, ORDERED, KEEPS_ORDER, 'new group with mode="shared" instead of group late on scans'),
    ],
)
def test_a_filter_where_order_is_kept(
    declared: ternmq.Topic | None,
    there: TopicSpec | None,
    has: SubscriptionSpec | None,
    remedy: str,
) -> None:
    found = contradiction(Source("scans", "late", tags="a || b"), declared, there, has, FIRST)
    assert found is not None
    assert (found.setting, found.wants) == ("tags", "'a || b'")
    assert "topic scans is ordered" in found.why
    assert remedy in found.remedy
    found = contradiction(Source("scans", "late", filter="a = 1"), declared, there, has, FIRST)
    assert found is not None
    assert (found.setting, found.wants) == ("filter", "'a = 1'")
    assert "cannot have a header filter" in found.why
    assert found.remedy.endswith("leave its filter out")


def test_a_filter_of_a_group_that_locks_queues() -> None:
    found = contradiction(Source("scans", "late", tags="a"), None, PLAIN, LOCKS, FIRST)
    assert found is not None
    assert (found.setting, found.wants) == ("tags", "'a'")
    assert found.why == "the group has mode queue_lock, and such a group cannot have a tag filter"
    assert 'in a new group with mode="shared"' in found.remedy


@pytest.mark.parametrize("there", [None, PLAIN])
def test_a_group_that_keeps_an_order_that_there_is_not(there: TopicSpec | None) -> None:
    found = contradiction(Source("scans", "late", mode="ordered"), topic(None), there, None, FIRST)
    assert found is not None
    assert (found.setting, found.wants) == ("mode", "ordered")
    assert found.why == f"topic scans is not {'declared as ' if there is None else ''}ordered"
    assert ('ternmq.Topic("scans", ordered=True)' in found.remedy) == (there is None)


@pytest.mark.parametrize(
    ("source", "declared", "there", "has"),
    [
        (Source("scans", "late", tags="a", mode="shared"), topic(True), None, None),
        (Source("scans", "late", tags="a"), topic(True), ORDERED, SHARED),
        (Source("scans", "late", tags="a"), topic(None), None, None),
        (Source("scans", "late", tags="a"), None, PLAIN, None),
        (Source("scans", "late", tags=" * "), topic(True), None, None),
        (Source("scans", "late", tags=""), topic(True), ORDERED, KEEPS_ORDER),
        (Source("scans", "late", filter=" "), topic(True), ORDERED, KEEPS_ORDER),
        (Source("scans", "late", filter="a = 1"), topic(None), None, None),
        (Source("scans", "late", mode="ordered"), topic(True), None, None),
        # That the topic differs from its declaration is said of the topic.
        (Source("scans", "late"), topic(False), ORDERED, KEEPS_ORDER),
        (Source("scans", "late", mode="ordered"), topic(False), ORDERED, None),
        (Source("scans", "late", tags="a"), topic(True), PLAIN, None),
        (Source("scans", "late", mode="queue_lock"), topic(None), None, None),
        (Source("scans", "late", mode="queue_lock"), topic(True), ORDERED, LOCKS),
        # A join makes it as the group's mode says.
        (Source("scans", "late", mode="ordered"), None, None, None),
    ],
)
def test_what_a_broker_takes(
    source: Source,
    declared: ternmq.Topic | None,
    there: TopicSpec | None,
    has: SubscriptionSpec | None,
) -> None:
    assert contradiction(source, declared, there, has, source) is None


def test_the_first_group_makes_a_topic_that_nobody_declared() -> None:
    ordered, shared = Source("scans", "a", mode="ordered"), Source("scans", "b", mode="shared")
    filtered = Source("scans", "c", tags="late")
    assert contradiction(shared, None, None, None, ordered) is None
    assert contradiction(filtered, None, None, None, shared) is None
    for source, first, setting in ((ordered, shared, "mode"), (filtered, ordered, "tags")):
        found = contradiction(source, None, None, None, first)
        assert found is not None
        assert found.setting == setting
