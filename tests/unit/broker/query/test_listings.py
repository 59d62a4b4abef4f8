"""Lists of what there is: order, pages, only what is durable, and who is a member."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial

import pytest

from ternmq.broker.containers.sortedkeys import SortedKeys
from ternmq.broker.query import listings
from ternmq.broker.query.listings import (
    GroupPage,
    GroupPlace,
    Listings,
    Member,
    TopicPage,
    TransactionPlace,
)
from ternmq.broker.query.sight import EVERYTHING, Sight
from ternmq.model.errors import InvalidRequest, UnknownGroup, UnknownTopic
from ternmq.model.types import DAY_US
from ternmq.record.fact.control import App
from ternmq.wire.control.topics import QueueInfo
from tests.unit.broker.kit import SECOND, START_US, World


def seeing(
    *,
    topic: Callable[[str], bool] | None = None,
    group: Callable[[str, str], bool] | None = None,
    patterns: tuple[str, ...] = ("*",),
    looks: int = 1000,
) -> Sight:
    """Return a sight that is limited as stated."""
    return Sight(
        patterns,
        patterns,
        topic or EVERYTHING.sees_topic,
        group or EVERYTHING.sees_group,
        looks,
    )


def topics(world: World, *args: object, **more: object) -> TopicPage:
    return world.run(lambda: Listings(world.broker.ledger).topics(*args, **more))  # type: ignore[arg-type]


def groups(world: World, *args: object, **more: object) -> GroupPage:
    return world.run(lambda: Listings(world.broker.ledger).groups(*args, **more))  # type: ignore[arg-type]


def test_topics_come_by_name_with_durable_offsets_only() -> None:
    world = World(flaky=3)
    world.topic("b", queues=2)
    number = world.topic("a")
    world.group("a", "h")
    world.group("a", "g")
    world.send("a", 3)
    world.send("a", 2, commit=False)
    page = topics(world)
    assert [one.spec.name for one in page.topics] == ["a", "b"]
    assert not page.next
    assert page.position == world.end
    first = page.topics[0]
    assert (first.number, first.queues, first.groups) == (
        number,
        [QueueInfo(first=0, next=3)],
        ["g", "h"],
    )
    assert page.topics[1].queues == [QueueInfo(first=0, next=0)] * 2
    world.commit()
    assert topics(world, ["a"]).topics[0].queues == [QueueInfo(first=0, next=5)]


def test_topics_come_in_pages_of_those_that_may_be_seen() -> None:
    world = World()
    for at in range(7):
        world.topic(f"t{at}")
    seen: list[str] = []
    after = ""
    while True:
        page = topics(world, None, after, 2, seeing(topic=lambda name: name != "t3"))
        seen += [one.spec.name for one in page.topics]
        if not page.next:
            break
        after = page.next
    assert seen == ["t0", "t1", "t2", "t4", "t5", "t6"]
    assert [one.spec.name for one in topics(world, ["t5", "t1", "none", "t1"]).topics] == [
        "t1",
        "t5",
    ]
    for limit in (0, 1001):
        with pytest.raises(InvalidRequest):
            topics(world, None, "", limit)


def test_a_page_ends_before_it_costs_too_much(monkeypatch) -> None:
    monkeypatch.setattr(listings, "PAGE_WORK", 8)
    world = World()
    for name in "abc":
        world.topic(name, queues=3)
    assert [
        (len(page.topics), page.next) for page in (topics(world), topics(world, None, "b"))
    ] == [
        (1, "a"),
        (1, ""),
    ]
    world.topic("d", queues=80)
    page = topics(world, None, "c")
    assert [one.spec.name for one in page.topics] == ["d"]
    assert not page.next


class Names(SortedKeys[str]):
    """Counts the names that are looked at."""

    def __init__(self, keys: Iterable[str]) -> None:
        super().__init__(keys)
        self.looks = 0

    def _counted(self, keys: Iterator[str]) -> Iterator[str]:
        for key in keys:
            self.looks += 1
            yield key

    def behind(self, key: str) -> Iterator[str]:
        return self._counted(super().behind(key))

    def at_or_behind(self, key: str) -> Iterator[str]:
        return self._counted(super().at_or_behind(key))


def many(count: int) -> tuple[World, Names]:
    world = World()
    for number in range(count):
        world.topic(f"t{number:03}")
        world.group(f"t{number:03}", "g")
    names = world.broker.views.catalog.topic_names = Names(world.broker.views.catalog.topic_names)
    return world, names


def test_a_page_looks_at_no_more_than_is_on_it() -> None:
    world, names = many(100)
    for after, limit in (("", 5), ("t050", 5), ("t094", 5)):
        names.looks = 0
        assert len(topics(world, None, after, limit).topics) == limit
        assert names.looks <= limit + 1, "the last page as well"
        names.looks = 0
        assert len(groups(world, None, None, GroupPlace(after, ""), limit).groups) == limit
        assert names.looks <= limit + 1


def test_a_grant_leads_to_what_it_covers() -> None:
    world, names = many(100)
    sight = seeing(patterns=("t007", "t05*", "t099", "x*"))
    found = topics(world, None, "", 100, sight)
    assert [one.spec.name for one in found.topics] == [
        "t007", *[f"t05{n}" for n in range(10)], "t099",
    ]  # fmt: skip
    assert names.looks <= 11, "not the 88 others"
    names.looks = 0
    here = groups(world, sight=sight, limit=100)
    assert [one.topic for one in here.groups] == [one.spec.name for one in found.topics]
    assert names.looks <= 11
    assert [one.spec.name for one in topics(world, None, "t055", 2, sight).topics] == [
        "t056",
        "t057",
    ]


def test_a_page_ends_when_much_was_looked_at_for_nothing() -> None:
    world, names = many(50)
    hides = seeing(topic=lambda name: name == "t049", looks=20)
    found = [topics(world, None, "", 10, hides)]
    while found[-1].next:
        found.append(topics(world, None, found[-1].next, 10, hides))
    assert [len(page.topics) for page in found] == [0, 0, 1]
    names.looks = 0
    page = groups(world, None, "none", sight=seeing(looks=20))
    assert page.groups == []
    assert page.next == GroupPlace("t019", "none")
    assert names.looks <= 21
    last = groups(world, None, "none", GroupPlace("t040", "none"))
    assert last.next is None


def test_groups_go_on_behind_a_group_also_one_that_is_gone() -> None:
    world = World()
    for topic in ("a", "b", "c"):
        world.topic(topic)
    for group in ("g", "h", "i"):
        world.group("b", group)
    world.group("c", "g")
    listed: list[tuple[str, str]] = []
    place = None
    while True:
        page = groups(world, after=place, limit=1)
        listed += [(one.topic, one.group) for one in page.groups]
        if page.next is None:
            break
        place = page.next
    assert listed == [("b", "g"), ("b", "h"), ("b", "i"), ("c", "g")]
    behind = GroupPlace("b", "g")
    world.run(lambda: world.broker.administration.unsubscribe(world.now, "b", "g"))
    assert [one.group for one in groups(world, after=behind).groups] == ["h", "i", "g"]
    world.run(lambda: world.broker.administration.delete_topic(world.now, "b"))
    assert [one.topic for one in groups(world, after=behind).groups] == ["c"]


def test_sessions_and_apps_come_in_pages(monkeypatch) -> None:
    world = World()
    numbers = [world.join(f"c{n}") for n in range(5)]
    listed = Listings(world.broker.ledger)
    first = listed.sessions(limit=3)
    assert [one.session for one in first.sessions] == numbers[:3]
    world.leave(numbers[2])
    assert [one.session for one in listed.sessions(first.next).sessions] == numbers[3:]
    assert listed.sessions(first.next).next == 0
    for name in ("c", "a", "b"):
        made = App(name=name, salt=bytes(16), hash=bytes(32), owner="", created_us=0, grants=())
        world.run(partial(world.broker.administration.put_app, world.now, made))
    page = listed.apps(limit=2)
    assert ([one.name for one in page.apps], page.next) == (["a", "b"], "b")
    assert [one.name for one in listed.apps("b").apps] == ["c"]
    monkeypatch.setattr(listings, "PAGE_WORK", 5)
    assert [one.name for one in listed.apps().apps] == ["a", "b"]
    assert len(listed.sessions().sessions) == 2


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
    assert first.members == ["one"]
    assert [one.topic for one in groups(world, None, "h").groups] == ["a", "b"]
    assert [one.group for one in groups(world, "b").groups] == ["g", "h"]
    assert [one.group for one in groups(world, "b", "g").groups] == ["g"]
    assert groups(world, None, "none").groups == []
    shown = groups(world, sight=seeing(group=lambda topic, group: (topic, group) == ("b", "h")))
    assert [(one.topic, one.group) for one in shown.groups] == [("b", "h")]
    with pytest.raises(UnknownTopic):
        groups(world, "none")
    with pytest.raises(UnknownGroup):
        groups(world, "a", "none")


def test_a_page_of_groups_ends_before_it_costs_too_much(monkeypatch) -> None:
    monkeypatch.setattr(listings, "PAGE_WORK", 5)
    world = World()
    world.topic("a", queues=6)
    world.group("a", "g")
    assert len(groups(world).groups[0].queues) == 6
    world.group("a", "h")
    page = groups(world)
    assert [one.group for one in page.groups] == ["g"]
    assert page.next == GroupPlace("a", "g")
    assert [one.group for one in groups(world, after=page.next).groups] == ["h"]
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
    found = Listings(world.broker.ledger).members("a", "g")
    assert found == [
        Member(holder, "app", "holder", 4, 1),
        Member(waiter, "app", "waiter", 0, 2),
    ]
    assert idle not in {one.session for one in found}
    assert groups(world).groups[0].members == ["holder", "waiter"]
    with pytest.raises(UnknownGroup):
        Listings(world.broker.ledger).members("a", "h")


def test_sessions_say_who_is_here_and_since_when() -> None:
    world = World()
    first = world.broker.clients.join(world.now, "shop", "c-1", "10.0.0.1:5", 77, "0.1").value
    assert isinstance(first, int)
    world.pass_time(SECOND)
    second = world.join("c-2")
    world.broker.clients.disconnected(world.now, second)
    gone_us = world.now
    world.pass_time(SECOND)
    page = Listings(world.broker.ledger).sessions()
    assert page.position == world.broker.journal.end
    assert [(one.session, one.connected, one.since_us, one.away_us) for one in page.sessions] == [
        (first, True, START_US, 0), (second, False, START_US + SECOND, gone_us),
    ]  # fmt: skip
    one = page.sessions[0]
    assert (one.app, one.client, one.address, one.pid, one.version) == (
        "shop", "c-1", "10.0.0.1:5", 77, "0.1",
    )  # fmt: skip
    world.restart()
    again = Listings(world.broker.ledger).sessions().sessions
    assert [(one.connected, one.since_us) for one in again] == [
        (False, START_US), (False, START_US + SECOND),
    ]  # fmt: skip
    assert all(one.away_us == world.now for one in again)  # the broker knows no earlier time


def every_transaction(
    world: World, app: str | None, writer: str | None, limit: int
) -> tuple[list[tuple[str, int]], list[str]]:
    """Return what pages of a limit tell of: writers and batch ids, and writers."""
    undecided: list[tuple[str, int]] = []
    writers: list[str] = []
    place = TransactionPlace(0, "")
    while True:
        page = Listings(world.broker.ledger).transactions(app, writer, limit, place)
        assert len(page.undecided) <= limit
        assert len(page.writers) <= limit
        undecided += [(one.writer, one.batch_id) for one in page.undecided]
        writers += [one.writer for one in page.writers]
        if page.next is None:
            return undecided, writers
        place = page.next


def test_transactions_and_writers_come_in_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.topic("orders")
    ids = {}
    for number, (writer, app) in enumerate(
        [("d", "shop"), ("a", "shop"), ("c", "bank"), ("b", "shop"), ("e", "bank")]
    ):
        reply = world.prepare("orders", 2, writer, number, app=app)
        ids[writer] = reply.prepared
    world.decide([ids["b"]], "b", 3, app="shop")
    everything = [("d", 0), ("a", 1), ("c", 2), ("e", 4)], ["a", "b", "c", "d", "e"]
    of_shop = [("d", 0), ("a", 1)], ["a", "b", "d"]
    for _ in range(2):
        for limit in (1, 2, 10):
            assert every_transaction(world, None, None, limit) == everything
            assert every_transaction(world, "shop", None, limit) == of_shop
            assert every_transaction(world, "shop", "a", limit) == ([("a", 1)], ["a"])
            assert every_transaction(world, "shop", "c", limit) == ([], [])
            assert every_transaction(world, "nobody", None, limit) == ([], [])
        with monkeypatch.context() as patched:
            patched.setattr(listings, "PAGE_WORK", 2)
            assert every_transaction(world, None, None, 10) == everything
        world.restart()


def test_a_writer_that_is_forgotten_leaves_the_lists() -> None:
    world = World()
    world.topic("orders")
    reply = world.prepare("orders", 1, "w", 1, app="shop")
    world.decide([reply.prepared], "w", 1, app="shop")
    assert every_transaction(world, "shop", None, 5) == ([], ["w"])
    writers = world.broker.views.writers
    writers.sweep(world.now + 40 * DAY_US)
    assert every_transaction(world, None, None, 5) == ([], [])
    assert not writers.by_app, "nothing is kept of an app without writers"
