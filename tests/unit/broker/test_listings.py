"""Lists of what there is: order, pages, only what is durable, and who is a member."""

from __future__ import annotations

import pytest

from ternmq.broker import listings
from ternmq.broker.listings import GroupPage, Listings, Member, QueueEnds, TopicPage
from ternmq.model.errors import InvalidRequest, UnknownGroup, UnknownTopic
from tests.unit.broker.kit import SECOND, START_US, World


def topics(world: World, *args: object, **more: object) -> TopicPage:
    return world.run(lambda: Listings(world.broker).topics(*args, **more))  # type: ignore[arg-type]


def groups(world: World, *args: object, **more: object) -> GroupPage:
    return world.run(lambda: Listings(world.broker).groups(*args, **more))  # type: ignore[arg-type]


def test_topics_come_by_name_with_durable_offsets_only() -> None:
    world = World(flaky=3)
    world.topic("b", queues=2)
    number = world.topic("a")
    world.group("a", "h")
    world.group("a", "g")
    world.send("a", 3)
    world.send("a", 2, commit=False)
    page = topics(world)
    assert [one.name for one in page.topics] == ["a", "b"]
    assert not page.more
    assert page.position == world.end
    first = page.topics[0]
    assert (first.number, first.queues, first.groups) == (number, (QueueEnds(0, 3),), ("g", "h"))
    assert page.topics[1].queues == (QueueEnds(0, 0),) * 2
    world.commit()
    assert topics(world, ["a"]).topics[0].queues == (QueueEnds(0, 5),)


def test_topics_come_in_pages_of_those_that_may_be_seen() -> None:
    world = World()
    for at in range(7):
        world.topic(f"t{at}")
    seen: list[str] = []
    after = ""
    while True:
        page = topics(world, None, after, 2, lambda name: name != "t3")
        seen += [one.name for one in page.topics]
        if not page.more:
            break
        after = seen[-1]
    assert seen == ["t0", "t1", "t2", "t4", "t5", "t6"]
    assert [one.name for one in topics(world, ["t5", "t1", "none", "t1"]).topics] == ["t1", "t5"]
    for limit in (0, 1001):
        with pytest.raises(InvalidRequest):
            topics(world, None, "", limit)


def test_a_page_ends_before_it_has_too_many_queues(monkeypatch) -> None:
    monkeypatch.setattr(listings, "MAX_QUEUES", 5)
    world = World()
    for name in "abc":
        world.topic(name, queues=3)
    assert [
        (len(page.topics), page.more) for page in (topics(world), topics(world, None, "b"))
    ] == [
        (1, True),
        (1, False),
    ]
    world.topic("d", queues=8)
    page = topics(world, None, "c")
    assert [one.name for one in page.topics] == ["d"]
    assert not page.more


def test_groups_come_by_topic_and_name_with_their_queues() -> None:
    world = World()
    for topic in ("b", "a"):
        world.topic(topic, queues=2)
        for name in ("h", "g"):
            world.group(topic, name)
    session = world.join("one")
    world.send("a", 5, queue=1)
    world.pull(session, "a", "g", 2, queue=1)
    page = groups(world)
    assert [(one.topic, one.group) for one in page.groups] == [
        ("a", "g"), ("a", "h"), ("b", "g"), ("b", "h"),
    ]  # fmt: skip
    assert page.position == world.end
    first = page.groups[0]
    assert [(one.cursor, one.end, one.leased, one.lag) for one in first.queues] == [
        (0, 0, 0, 0), (2, 5, 2, 3),
    ]  # fmt: skip
    assert first.members == ("one",)
    assert [one.topic for one in groups(world, None, "h").groups] == ["a", "b"]
    assert [one.group for one in groups(world, "b").groups] == ["g", "h"]
    assert [one.group for one in groups(world, "b", "g").groups] == ["g"]
    assert groups(world, None, "none").groups == []
    shown = groups(world, visible=lambda topic, group: (topic, group) == ("b", "h"))
    assert [(one.topic, one.group) for one in shown.groups] == [("b", "h")]
    with pytest.raises(UnknownTopic):
        groups(world, "none")
    with pytest.raises(UnknownGroup):
        groups(world, "a", "none")


def test_too_many_groups_at_once_are_refused_one_is_not(monkeypatch) -> None:
    monkeypatch.setattr(listings, "MAX_QUEUES", 5)
    world = World()
    world.topic("a", queues=6)
    world.group("a", "g")
    assert len(groups(world).groups[0].queues) == 6
    world.group("a", "h")
    with pytest.raises(InvalidRequest):
        groups(world)
    assert len(groups(world, "a", "h").groups) == 1


def test_members_hold_rows_or_wait_for_some() -> None:
    world = World()
    world.topic("a", queues=2)
    world.group("a", "g")
    holder, waiter, idle = world.join("holder"), world.join("waiter"), world.join("idle")
    for queue in (0, 1):
        world.send("a", 2, queue=queue)
        world.pull(holder, "a", "g", queue=queue)
    world.park(waiter, "a", "g")
    world.park(waiter, "a", "g")
    world.park(holder, "a", "g")
    found = Listings(world.broker).members("a", "g")
    assert found == [
        Member(holder, "app", "holder", 4, 1),
        Member(waiter, "app", "waiter", 0, 2),
    ]
    assert idle not in {one.session for one in found}
    assert groups(world).groups[0].members == ("holder", "waiter")
    with pytest.raises(UnknownGroup):
        Listings(world.broker).members("a", "h")


def test_sessions_say_who_is_here_and_since_when() -> None:
    world = World()
    first = world.broker.clients.join(world.now, "shop", "c-1", "10.0.0.1:5", 77, "0.1").value
    assert isinstance(first, int)
    world.pass_time(SECOND)
    second = world.join("c-2")
    world.broker.clients.disconnected(world.now, second)
    page = Listings(world.broker).sessions()
    assert page.position == world.broker.journal.end
    assert [(one.session, one.connected, one.since_us) for one in page.sessions] == [
        (first, True, START_US), (second, False, START_US + SECOND),
    ]  # fmt: skip
    one = page.sessions[0]
    assert (one.app, one.client, one.address, one.pid, one.version) == (
        "shop", "c-1", "10.0.0.1:5", 77, "0.1",
    )  # fmt: skip
    world.restart()
    again = Listings(world.broker).sessions().sessions
    assert [(one.connected, one.since_us) for one in again] == [
        (False, START_US), (False, START_US + SECOND),
    ]  # fmt: skip
