"""Figures of all groups, kept as things change; ``kit.check`` compares them after every step."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ternmq.broker.group.figures import Greatest
from ternmq.record.fact.facts import Outcome
from tests.unit.broker.kit import World, check, check_figures


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9)), max_size=60))
def test_the_greatest_is_that_of_all_numbers(steps: list[tuple[int, int]]) -> None:
    greatest, numbers = Greatest(), [0] * 6
    for place, now in steps:
        greatest.change(numbers[place], now)
        numbers[place] = now
        assert greatest.value() == max(numbers)


def test_a_look_costs_what_changed_and_no_walk_over_all() -> None:
    world = World()
    for number in range(50):
        world.topic(f"t{number}")
        world.group(f"t{number}", "g")
    figures = world.broker.views.figures
    world.broker.tick(world.now)
    session = world.join()
    for name in ("t3", "t4"):
        world.send(name, 5)
        world.pull(session, name, "g")
    assert {progress.topic for progress in figures.changed} == {4, 5}, "two changed, of fifty"
    world.broker.tick(world.now)
    assert not figures.changed, "each turn takes over what changed in it"
    assert (figures.leased, figures.most_open_runs()) == (10, 1)
    assert [progress.topic for progress in figures.leased_to(session)] == [4, 5]


def test_what_a_deleted_group_held_counts_no_more() -> None:
    world = World()
    world.topic("orders")
    world.group("orders", "billing")
    session = world.join()
    world.send("orders", 6)
    pulled = world.pull(session, "orders", "billing", 4)
    assert pulled is not None
    world.settle(session, "orders", "billing", pulled, Outcome.DEAD, [(0, 2)])
    figures = world.broker.views.figures
    check_figures(world.broker)
    assert (figures.leased, figures.dead, figures.most_failures()) == (2, 2, 2)
    world.run(lambda: world.broker.administration.delete_topic(world.now, "orders"))
    check_figures(world.broker)
    assert (figures.leased, figures.dead, figures.most_failures()) == (0, 0, 0)
    assert not figures.with_dead
    assert not figures.by_session, "nothing keeps what is gone"


def test_they_are_the_same_after_a_restart() -> None:
    world = World()
    world.topic("orders", ordered=True)
    world.group("orders", "billing")
    session = world.join()
    world.send("orders", "abcabcabcabcabcabc")
    pulled = world.pull(session, "orders", "billing", 10)
    assert pulled is not None
    world.settle(session, "orders", "billing", pulled, Outcome.RETRY, [(0, 1)])
    check(world.broker)
    before = world.broker.views.figures
    sums = [before.leased, before.ready, before.waiting, before.dead, before.most_open_runs()]
    assert any(sums)
    world.restart()
    check_figures(world.broker)
    after = world.broker.views.figures
    assert [
        after.leased, after.ready, after.waiting, after.dead, after.most_open_runs()
    ] == sums  # fmt: skip
