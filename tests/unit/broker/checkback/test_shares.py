"""One app cannot take all transactions and producer groups of the broker."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ternmq.broker.transaction.shares import refuses
from ternmq.model.errors import Busy, DiskFull, JournalFull
from ternmq.model.specs import Limits
from ternmq.record.fact.header import Kind
from tests.unit.broker.checkback.kit import APP, Transacting
from tests.unit.broker.kit import check, difference, portrait, reopened


def start(limits: Limits) -> Transacting:
    world = Transacting(limits=limits)
    world.topic("t")
    world.checker()
    for app in ("b", "c"):
        world.offer(joined(world, app), f"pay-{app}", app=app)
    return world


def joined(world: Transacting, app: str) -> int:
    """Join a session of an app."""
    session = world.run(lambda: world.broker.clients.join(world.now, app, app)).value
    assert isinstance(session, int)
    return session


def same_after_a_start(world: Transacting) -> None:
    check(world.broker, world.now)
    other = reopened(world)
    assert not difference(portrait(world.broker.views), portrait(other.views))
    assert other.views.checked.of_app == world.broker.views.checked.of_app
    assert other.views.producer_groups.of_app == world.broker.views.producer_groups.of_app


@pytest.mark.parametrize(
    ("cap", "counts", "refused"),
    [
        (20, {"a": 17}, False),
        (20, {"a": 18}, True),
        (20, {"b": 18}, False),  # those that have none yet
        (20, {"a": 9, "b": 9}, True),
        (20, {"a": 5, "b": 13}, False),
        (20, {"a": 7, "b": 12}, True),
        (20, {"a": 1, "b": 19}, True),  # it is full
        (2, {"a": 1}, False),  # too few to be shared
        (2, {"a": 2}, True),
    ],
)
def test_who_may_have_one_more(cap: int, counts: dict[str, int], refused: bool) -> None:
    assert refuses(cap, Counter(counts), sum(counts.values()), "a") is refused


@given(
    st.integers(0, 40),
    st.dictionaries(st.sampled_from("abcd"), st.integers(1, 15)),
    st.integers(1, 12),
)
def test_several_are_granted_if_each_would_be(cap: int, counts: dict[str, int], more: int) -> None:
    before = Counter(counts)
    one_by_one = Counter(counts)
    refused = False
    for _ in range(more):
        refused = refused or refuses(cap, one_by_one, one_by_one.total(), "a")
        one_by_one["a"] += 1
    assert refuses(cap, before, before.total(), "a", more) is refused
    assert before == Counter(counts)


def test_an_app_that_takes_all_it_can_leaves_some_transactions_to_others() -> None:
    world = start(Limits(open_transactions=20))
    opened = [world.put(at, "t").transaction for at in range(18)]
    with pytest.raises(Busy, match="18 of them of this app"):
        world.put(18, "t")
    other = world.put(0, "t", app="b", group="pay-b").transaction
    world.put(0, "t", app="c", group="pay-c")
    with pytest.raises(Busy, match="20 transactions are undecided, 1 of them"):
        world.put(1, "t", app="b", group="pay-b")
    same_after_a_start(world)
    world.put(3, "t", number=opened[3])  # those that are open go on
    for number in opened[:3]:
        world.decided(number)
    world.decided(other, commit=False, app="b")
    world.put(19, "t")
    same_after_a_start(world)


def test_an_app_that_names_all_groups_it_can_leaves_some_to_others() -> None:
    world = start(Limits(producer_groups=20))
    session = world.join("d")
    world.offer(session, *[f"mine-{at}" for at in range(15)])
    with pytest.raises(Busy, match="16 of them of this app"):
        world.offer(session, "mine-15")
    world.offer(joined(world, "b"), "theirs", app="b")
    same_after_a_start(world)
    world.run(lambda: world.broker.checking.delete_group(world.now, "b", "theirs"))
    same_after_a_start(world)
    assert world.broker.views.producer_groups.of_app == {"app": 16, "b": 1, "c": 1}


def test_an_offer_of_too_many_groups_claims_none() -> None:
    world = start(Limits(producer_groups=20))
    asking, groups = world.broker.checking.asking, world.broker.views.producer_groups
    session = world.join("d")
    end = world.broker.journal.end
    with pytest.raises(Busy, match="1 of them of this app, and 16 would be new"):
        world.offer(session, *[f"mine-{at}" for at in range(16)], "mine-0", "pay")
    assert groups.of_app == {APP: 1, "b": 1, "c": 1}
    assert world.broker.journal.end == end
    assert not asking.offers("mine-0", APP)
    world.offer(session, *[f"mine-{at}" for at in range(15)], "mine-0", "pay")
    assert groups.of_app == {APP: 16, "b": 1, "c": 1}
    assert asking.offers("mine-14", APP)
    same_after_a_start(world)


def test_an_offer_that_finds_the_journal_full_can_be_repeated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = start(Limits(producer_groups=20))
    asking, groups = world.broker.checking.asking, world.broker.views.producer_groups
    session, wanted = world.join("d"), ["one", "two", "three"]
    world.offer(session, "before")
    journal = world.broker.journal
    append, room = journal.append, [2]

    def full(kind: Kind, body: bytes, now_us: int) -> int:
        if not room[0]:
            raise JournalFull("no segment")
        room[0] -= 1
        return append(kind, body, now_us)

    monkeypatch.setattr(journal, "append", full)
    with pytest.raises((Busy, DiskFull)):
        world.offer(session, *wanted)
    assert asking.offers("before", APP)
    assert not any(asking.offers(one, APP) for one in wanted)
    assert [one for one in wanted if one in groups.by_name] == wanted[:2]
    same_after_a_start(world)
    room[0] = 10
    world.offer(session, *wanted)
    assert room == [9]
    assert not asking.offers("before", APP)
    assert all(asking.offers(one, APP) for one in wanted)
    same_after_a_start(world)
