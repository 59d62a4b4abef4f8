"""What apps hold: sums agree, nothing is negative, nobody below the fair share is held back."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ternmq.server.desk.accounts import (
    MUCH,
    PORTION,
    ROUND,
    SHARED_ROUND,
    Account,
    Accounts,
    AppAccounts,
    Budget,
    Places,
)

LIMIT = 1000
APPS = 6
STEPS = st.lists(st.tuples(st.integers(0, APPS - 1), st.integers(-400, 400)), max_size=200)


@given(STEPS)
def test_accounts_agree_with_their_budget(steps):
    budget = Budget(LIMIT)
    accounts = [Account(budget) for _ in range(APPS)]
    for app, size in steps:
        account = accounts[app]
        account.take(max(size, -account.held))
        holding = [one.held for one in accounts if one.held]
        assert all(held > 0 for held in holding)
        assert budget.held == sum(holding)
        assert budget.holders == len(holding)
        for one in accounts:
            fair = LIMIT / max(1, len(holding))
            assert one.over == (sum(holding) > LIMIT and one.held > fair)


@given(STEPS)
def test_who_asks_before_each_step_holds_no_more_than_the_bound(steps):
    budget = Budget(LIMIT)
    accounts = [Account(budget) for _ in range(APPS)]
    for app, size in steps:
        account = accounts[app]
        if size < 0:
            account.take(max(size, -account.held))
        elif not account.over:
            account.take(size)
        bound = sum(LIMIT / n for n in range(1, APPS + 1)) + 400 * APPS
        assert budget.held <= bound


def test_alone_an_app_may_use_all_and_others_still_get_their_share():
    budget = Budget(LIMIT)
    evil, good = Account(budget), Account(budget)
    while not evil.over:
        evil.take(100)
    assert evil.held == LIMIT + 100
    taken = 0
    while not good.over:
        good.take(100)
        taken += 100
    assert taken == LIMIT // 2 + 100
    evil.take(-evil.held)
    assert not good.over, "the whole is below the budget"


@given(st.integers(1, 200), st.lists(st.tuples(st.sampled_from("abcdef"), st.booleans())))
def test_places_are_never_more_than_the_limit_and_there_is_one_for_who_has_none(limit, steps):
    places = Places(limit)
    held: Counter[str] = Counter()
    for app, more in steps:
        if more:
            free = limit - sum(held.values())
            got = places.take(app)
            if got:
                held[app] += 1
            if not held[app]:
                assert free == 0
        elif held[app]:
            places.give(app)
            held[app] -= 1
        assert places.taken == sum(held.values()) <= limit
        assert all(places.of(name) == held[name] for name in "abcdef")


@pytest.mark.parametrize("limit", [8, 100, 10_000])
def test_one_app_leaves_the_last_places(limit):
    places = Places(limit)
    while places.take("evil"):
        pass
    assert places.taken == limit - limit // 8
    assert places.refused == 1
    for number in range(limit // 8):
        assert places.take(f"good{number}")
    assert not places.take("late")


def test_a_limit_of_an_app():
    places = Places(100)
    assert places.take("a", 2)
    assert places.take("a", 2)
    assert not places.take("a", 2)
    assert places.take("b", 2)


def test_what_a_connection_left_is_charged_for_a_while():
    accounts = Accounts(LIMIT, 10.0)
    app_accounts = accounts.enter("evil")
    app_accounts.unwritten.take(700)
    accounts.leave(app_accounts, 700, now=5.0)
    assert accounts.enter("evil") is app_accounts, "to come again begins no new accounts"
    app_accounts.unwritten.take(600)
    assert app_accounts.unwritten.over
    accounts.cool_down(14.9)
    assert app_accounts.unwritten.over
    accounts.cool_down(15.0)
    assert app_accounts.unwritten.held == 600
    accounts.leave(app_accounts, 600, now=16.0)
    accounts.cool_down(26.0)
    assert not accounts.by_app
    assert accounts.unwritten.held == accounts.unwritten.holders == 0


def test_an_app_that_left_nothing_is_forgotten():
    accounts = Accounts(LIMIT, 10.0)
    first, second = accounts.enter("shop"), accounts.enter("shop")
    assert first is second
    accounts.leave(first, 0, now=0.0)
    assert accounts.by_app == {"shop": first}
    accounts.leave(first, 0, now=0.0)
    assert not accounts.by_app


def test_an_app_has_less_done_in_a_turn_while_others_ask():
    accounts = Accounts(LIMIT, 10.0)
    evil, good = accounts.enter("evil"), accounts.enter("good")
    evil.begin(1)
    assert evil.units == ROUND
    good.begin(1)
    evil.begin(1)
    assert evil.units == ROUND, "once a turn"
    for second in (1.0, 2.0):
        evil.begin(evil.round + 1)
        assert evil.units == PORTION
        accounts.cool_down(second)
    evil.begin(evil.round + 1)
    assert evil.units == ROUND, "the other asked for nothing in the second before"


def second(
    accounts: Accounts, number: int, asking: list[AppAccounts], much: list[AppAccounts]
) -> tuple[bool, int]:
    """Have a second in which some ask, and some of them for much; return what a turn is then."""
    for app_accounts in asking:
        app_accounts.begin(app_accounts.round + 1)
    for app_accounts in much:
        for _ in range(MUCH + 1):
            app_accounts.left_over()
    accounts.cool_down(float(number))
    return accounts.mixed, accounts.units


def test_turns_are_short_while_one_app_asks_for_much_and_another_for_little():
    accounts = Accounts(LIMIT, 10.0)
    evil, good, other = (accounts.enter(name) for name in ("evil", "good", "other"))
    assert second(accounts, 1, [evil, good], [evil]) == (True, PORTION)
    assert second(accounts, 2, [evil, good], [evil, good]) == (False, SHARED_ROUND)
    assert second(accounts, 3, [evil, good, other], [evil, good]) == (True, PORTION)
    second(accounts, 4, [evil], [evil])
    assert second(accounts, 5, [evil], [evil]) == (False, ROUND), "it is alone"


def test_a_burst_is_not_much():
    accounts = Accounts(LIMIT, 10.0)
    evil, good = accounts.enter("evil"), accounts.enter("good")
    for number in range(5):
        for _ in range(MUCH - 1):
            good.left_over()
        assert second(accounts, number, [evil, good], [evil]) == (True, PORTION)


def test_the_connections_that_an_app_opens_are_counted_by_the_second() -> None:
    accounts = Accounts(1000, 10.0)
    for number in range(1, 4):
        assert accounts.enter("a").entered == number
    assert accounts.enter("b").entered == 1
    accounts.cool_down(1.0)
    assert accounts.enter("a").entered == 1
