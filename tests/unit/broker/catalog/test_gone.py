"""Names of what is gone: kept while the journal may mention them, at every moment of a set."""

from __future__ import annotations

from ternmq.broker.catalog.gone import Gone, GoneName, Sort
from ternmq.broker.query.names import Name, names
from ternmq.model.specs import Limits
from tests.unit.broker.kit import World, explore
from tests.unit.broker.upkeep.test_upkeep import pressed

EVERYTHING = 1 << 30


def every_name(world: World, sort: Sort, position: int = 0) -> list[Name]:
    """Return all names, which must be the same by pages of one and by few looks."""
    page = names(world.broker.ledger, sort, position, 0, EVERYTHING)
    assert page.next is None
    for limit, looks in ((1, EVERYTHING), (EVERYTHING, 1)):
        found: list[Name] = []
        some = names(world.broker.ledger, sort, position, 0, limit, looks)
        found += some.found
        while some.next is not None:
            some = names(world.broker.ledger, sort, position, some.next, limit, looks)
            assert len(some.found) <= min(limit, looks)
            found += some.found
        assert found == page.found
    return page.found


def told(world: World, sort: Sort, position: int = 0) -> dict[int, tuple[str, bool]]:
    """Return name and whether it is gone, by number."""
    found = every_name(world, sort, position)
    assert [one.number for one in found] == sorted({one.number for one in found})
    return {one.number: (one.name, bool(one.gone)) for one in found}


def test_names_are_kept_at_every_moment_of_a_set() -> None:
    def scenario(world: World) -> None:
        first = world.topic("orders")
        billing = world.group("orders", "billing")
        kept = world.group("orders", "kept")
        one = world.join("client-one-is-long")
        world.run(lambda: world.broker.administration.unsubscribe(world.now, "orders", "billing"))
        world.leave(one)
        two = world.join("client-two-is-long")
        again = world.group("orders", "billing")
        world.run(lambda: world.broker.administration.delete_topic(world.now, "orders"))
        second = world.topic("orders")
        third = world.topic("stock")
        last = world.group("orders", "billing")
        assert told(world, Sort.TOPIC) == {
            first: ("orders", True),
            second: ("orders", False),
            third: ("stock", False),
        }
        assert told(world, Sort.GROUP) == {
            billing: ("billing", True),
            kept: ("kept", True),
            again: ("billing", True),
            last: ("billing", False),
        }
        sessions = every_name(world, Sort.SESSION)
        assert [(s.number, s.name, s.client, bool(s.gone)) for s in sessions] == [
            (one, "app", "client-o", True),
            (two, "app", "client-t", False),
        ]
        groups = every_name(world, Sort.GROUP)
        assert {g.topic for g in groups if g.number != last} == {first}

    explore(scenario)


def test_what_was_gone_before_a_position_is_left_out() -> None:
    world = World()
    first = world.topic("a")
    second = world.topic("b")
    world.run(lambda: world.broker.administration.delete_topic(world.now, "a"))
    after = world.broker.journal.end
    world.run(lambda: world.broker.administration.delete_topic(world.now, "b"))
    assert set(told(world, Sort.TOPIC)) == {first, second}
    assert set(told(world, Sort.TOPIC, after)) == {second}
    assert told(world, Sort.TOPIC, world.broker.journal.end) == {}


def test_they_go_with_the_last_segment_that_may_mention_them() -> None:
    kept = pressed()
    kept.topic("t", keep_until_consumed=False)
    kept.topic("short")
    kept.run(lambda: kept.broker.administration.delete_topic(kept.now, "short"))
    gone = kept.broker.views.gone
    assert len(gone.entries) == 1
    position = next(iter(gone.entries.values())).position
    while kept.broker.journal.first <= position:
        assert len(gone.entries) == 1
        kept.grow("t", 1)
    assert not gone.entries
    assert not gone.pages
    kept.restart(clean=True)
    assert not kept.broker.views.gone.entries


def test_a_cap_keeps_the_newest() -> None:
    world = World(Limits(gone_names=3))
    for at in range(5):
        world.topic(f"t{at}")
        world.run(lambda at=at: world.broker.administration.delete_topic(world.now, f"t{at}"))  # type: ignore[misc]
    left = {one.name for one in world.broker.views.gone.entries.values()}
    assert left == {"t2", "t3", "t4"}
    world.restart(clean=True)
    assert {one.name for one in world.broker.views.gone.entries.values()} == left


def test_a_cap_keeps_the_newest_after_a_start_as_well() -> None:
    """What a set of STATE holds comes by sort and number, not by age."""
    live, again = Gone(4), Gone(4)
    for number in (1, 2, 3):
        live.add(Sort.SESSION, GoneName(number, "app", 10 * number))
    live.add(Sort.TOPIC, GoneName(1, "first", 40))
    for page in sorted(live.pages):
        again.load(page.sort, page.page, live.encode(page.sort, page.page), 45)
    for gone in (live, again):
        gone.add(Sort.TOPIC, GoneName(2, "second", 50))
    again.finish()
    assert list(again.entries.items()) == list(live.entries.items())
    assert list(live.entries) == [(3, 2), (3, 3), (1, 1), (1, 2)]


def test_pages_forget_with_their_entries() -> None:
    gone = Gone(100)
    for number in (1, 63, 64, 200):
        gone.add(Sort.SESSION, GoneName(number, "app", 1000 + number))
    gone.add(Sort.SESSION, GoneName(64, "another", 5))
    assert [page.page for page in sorted(gone.pages)] == [0, 1, 3]
    copy = Gone(100)
    for page in sorted(gone.pages, reverse=True):
        copy.load(page.sort, page.page, gone.encode(page.sort, page.page), 7)
    copy.finish()
    assert list(copy.entries.items()) == list(gone.entries.items())
    gone.forget_below(1064)
    assert list(gone.numbers(Sort.SESSION)) == [64, 200]
    assert list(copy.numbers(Sort.SESSION)) == [1, 63, 64, 200]
    assert [page.page for page in sorted(gone.pages)] == [1, 3]
    assert list(gone.numbers(Sort.TOPIC)) == []
