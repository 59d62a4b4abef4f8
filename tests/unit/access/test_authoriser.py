"""Every command against every kind of app: made from the command table, so none is forgotten."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ternmq.access import Authoriser, admin_app, new_token, seal
from ternmq.access import authoriser as module
from ternmq.model.errors import Forbidden, InvalidRequest, Unauthenticated
from ternmq.record.fact.control import App, Grant
from ternmq.wire.commands import TABLE, Command, Right, Scope

TOKEN = new_token(bytes(32))
OTHER = new_token(bytes([1]) * 32)
TOPIC, NEIGHBOUR = "orders.eu", "orders-eu"
GROUP = "billing.a"


def app(name: str, *grants: Grant) -> App:
    return seal(name, TOKEN, grants=grants, now_us=0, salt=bytes(16))


def authoriser(*apps: App, required: bool = True) -> Authoriser:
    return Authoriser({one.name: one for one in apps}, required=required)


def named(
    command: Command, topic: str = TOPIC, group: str = GROUP
) -> tuple[str | None, str | None]:
    """Return what the request of a command names."""
    scope = TABLE[command].policy.scope
    return (
        None if scope in (Scope.NOTHING, Scope.BROKER) else topic,
        group if scope is Scope.GROUP else None,
    )


def grants_for(command: Command, *, deny: bool = False) -> Iterator[tuple[Grant, ...]]:
    """Yield sets of grants each of which is just enough for the command (or denies just it)."""
    policy = TABLE[command].policy
    for right in policy.rights:
        groups = (
            ["*"]
            if policy.scope is not Scope.GROUP or right is Right.PRODUCE
            else [GROUP, "billing.*"]
        )
        topics = ["*"] if policy.scope is Scope.BROKER else [TOPIC, "orders.*"]
        for topic in topics:
            for group in groups:
                yield (Grant(right.value, topic, group, deny),)


ANY_TOPIC = [one for one in TABLE if TABLE[one].policy.scope is Scope.ANY_TOPIC]
"""Commands that name no topic, for which a grant for one topic is enough; tested at the end."""
RESTRICTED = [
    one for one in TABLE if TABLE[one].policy.scope not in (Scope.NOTHING, Scope.ANY_TOPIC)
]
FREE = [one for one in TABLE if TABLE[one].policy.scope is Scope.NOTHING]


def test_the_table_has_every_command_and_the_matrix_every_row() -> None:
    assert {*RESTRICTED, *ANY_TOPIC, *FREE} == set(TABLE)
    assert ANY_TOPIC == [Command.CHECKER_OFFER]
    assert {one.name for one in FREE} == {
        "HELLO", "PING", "BYE", "CANCEL", "KEEP", "TOPIC_LIST", "GROUP_LIST", "STATUS",
        "TRANSACTION_LIST", "RIGHTS_CHECK", "ROUTES",
    }  # fmt: skip


@pytest.mark.parametrize("command", TABLE, ids=lambda one: one.name)
def test_no_app_no_command(command: Command) -> None:
    who = authoriser(app("shop"))
    for name in ("", "other", "shop2", "SHOP"):
        with pytest.raises(Unauthenticated):
            who.check(name, command, *named(command))


@pytest.mark.parametrize("command", RESTRICTED, ids=lambda one: one.name)
def test_what_was_not_granted_is_refused(command: Command) -> None:
    policy = TABLE[command].policy
    others = [Grant(right.value) for right in Right if right not in policy.rights]
    rights = [right.value for right in policy.rights]
    cases: list[list[Grant]] = [[], others]
    if policy.scope is not Scope.BROKER:
        cases.append([Grant(right, NEIGHBOUR) for right in rights])
        cases.append([Grant(right, "order") for right in rights])
        cases.append([Grant(right, "orders.eu.*") for right in rights])
    else:
        cases.append([Grant(right, "orders.*") for right in rights])
        cases.append([Grant(right, "*", "billing.*") for right in rights])
    if policy.scope is Scope.GROUP:
        cases.append([Grant(right, TOPIC, "billing") for right in rights])
        cases.append([Grant(right, TOPIC, "billing-a") for right in rights])
    elif Right.PRODUCE not in policy.rights:
        cases.append([Grant(right, TOPIC, GROUP) for right in rights])
    for grants in cases:
        who = authoriser(app("shop", *grants))
        with pytest.raises(Forbidden) as caught:
            who.check("shop", command, *named(command))
        text = str(caught.value)
        assert "no grant" in text
        assert all(right in text for right in rights)
        if policy.scope is not Scope.BROKER:
            assert TOPIC in text


def test_a_checker_without_the_right_to_produce_is_told_what_it_needs() -> None:
    who = authoriser(app("works", Grant("consume")))
    with pytest.raises(Forbidden) as caught:
        who.check("works", Command.CHECKER_OFFER, None, None)
    assert str(caught.value).startswith(
        "app 'works' has no grant to produce to any topic, which a checker needs; "
        "`ternmq app set works --grant produce:TOPIC` gives it"
    )


@pytest.mark.parametrize("command", RESTRICTED, ids=lambda one: one.name)
def test_just_enough_is_enough_and_not_for_the_neighbour(command: Command) -> None:
    for grants in grants_for(command):
        who = authoriser(app("shop", *grants))
        for _ in range(2):  # the second time from what is remembered
            who.check("shop", command, *named(command))
        scope = TABLE[command].policy.scope
        if scope is not Scope.BROKER:
            for topic in (NEIGHBOUR, "orders", "orders.", TOPIC + "\0", TOPIC + "\n", "оrders.eu"):
                if grants[0].topic == "orders.*" and topic.startswith("orders."):
                    continue
                with pytest.raises(Forbidden):
                    who.check("shop", command, *named(command, topic))
        if scope is Scope.GROUP:
            for group in ("billing", "billing-a", "xbilling.a"):
                with pytest.raises(Forbidden):
                    who.check("shop", command, *named(command, TOPIC, group))


@pytest.mark.parametrize("command", RESTRICTED, ids=lambda one: one.name)
def test_a_deny_wins_over_every_grant(command: Command) -> None:
    all_of_it = [Grant(right.value) for right in Right]
    everything = authoriser(app("shop", *all_of_it))
    everything.check("shop", command, *named(command))
    denies = [one for (one,) in grants_for(command, deny=True)]
    rights = TABLE[command].policy.rights
    for topic in {one.topic for one in denies}:
        for group in {one.group for one in denies}:
            denied = [Grant(right.value, topic, group, deny=True) for right in rights]
            for grants in ([*all_of_it, *denied], [*denied, *all_of_it]):
                with pytest.raises(Forbidden) as caught:
                    authoriser(app("shop", *grants)).check("shop", command, *named(command))
                assert "denied" in str(caught.value)


@pytest.mark.parametrize("command", RESTRICTED, ids=lambda one: one.name)
def test_a_deny_of_something_else_is_no_matter(command: Command) -> None:
    if TABLE[command].policy.scope is Scope.BROKER:
        return
    grants = [Grant(right.value) for right in Right]
    grants += [Grant(right.value, NEIGHBOUR, deny=True) for right in Right]
    authoriser(app("shop", *grants)).check("shop", command, *named(command))


@pytest.mark.parametrize("command", TABLE, ids=lambda one: one.name)
def test_the_first_app_may_do_everything(command: Command) -> None:
    authoriser(admin_app(TOKEN, 0)).check("admin", command, *named(command))


@pytest.mark.parametrize("command", FREE, ids=lambda one: one.name)
def test_some_commands_need_no_right(command: Command) -> None:
    authoriser(app("shop", Grant("manage", deny=True))).check("shop", command)


def test_one_denied_topic_is_enough_to_be_no_administrator() -> None:
    who = authoriser(app("shop", Grant("manage"), Grant("manage", "secret", "g", deny=True)))
    with pytest.raises(Forbidden):
        who.check("shop", Command.APP_PUT)


@pytest.mark.parametrize("command", RESTRICTED, ids=lambda one: one.name)
def test_what_a_command_is_not_about_narrows_nothing(command: Command) -> None:
    """A group that comes along with a command for whole topics makes it no smaller."""
    policy = TABLE[command].policy
    if policy.scope is Scope.GROUP or Right.PRODUCE in policy.rights:
        return
    for grant_topic in (TOPIC, "*"):
        grants = [Grant(right.value, grant_topic, GROUP) for right in policy.rights]
        with pytest.raises(Forbidden):
            authoriser(app("shop", *grants)).check("shop", command, TOPIC, GROUP)
    if policy.scope is Scope.BROKER:
        grants = [Grant(right.value, TOPIC) for right in policy.rights]
        with pytest.raises(Forbidden):
            authoriser(app("shop", *grants)).check("shop", command, TOPIC, GROUP)


@pytest.mark.parametrize("command", RESTRICTED, ids=lambda one: one.name)
def test_a_request_that_names_nothing_is_refused(command: Command) -> None:
    scope = TABLE[command].policy.scope
    who = authoriser(app("shop", *[Grant(right.value) for right in Right]))
    if scope is Scope.BROKER:
        return
    for topic in (None, ""):
        with pytest.raises(Forbidden):
            who.check("shop", command, topic, GROUP)
    if scope is Scope.GROUP:
        for group in (None, ""):
            with pytest.raises(Forbidden):
                who.check("shop", command, TOPIC, group)


@pytest.mark.parametrize("command", ANY_TOPIC, ids=lambda one: one.name)
def test_a_command_that_names_no_topic_needs_the_right_for_some_topic(command: Command) -> None:
    """A producer group belongs to who names it first, so not every app may name one."""
    of_orders = Grant("produce", "orders.*")
    for grants in (
        [],
        [Grant("consume"), Grant("manage"), Grant("audit")],
        [Grant("produce", deny=True)],
        [of_orders, Grant("produce", "orders.*", deny=True)],
        [of_orders, Grant("produce", "order*", deny=True), Grant("consume")],
    ):
        with pytest.raises(Forbidden, match="produce"):
            authoriser(app("shop", *grants)).check("shop", command)
    for grants in (
        [of_orders],
        [Grant("produce", "orders.eu")],
        [of_orders, Grant("produce", "orders.eu", deny=True)],
        [of_orders, Grant("consume", "orders.*", deny=True)],
    ):
        authoriser(app("shop", *grants)).check("shop", command)


@pytest.mark.parametrize("command", [Command.TRANSACTION_COMMIT, Command.TRANSACTION_ABORT])
def test_a_transaction_without_topics_needs_the_right_for_some_topic(command: Command) -> None:
    for grants in ([], [Grant("consume")], [Grant("produce", deny=True)]):
        with pytest.raises(Forbidden):
            authoriser(app("shop", *grants)).check_some("shop", command)
    authoriser(app("shop", Grant("produce", "orders.*"))).check_some("shop", command)
    authoriser(required=False).check_some("nobody", command)
    with pytest.raises(Unauthenticated):
        authoriser().check_some("shop", command)


def test_only_who_manages_everything_may_decide_what_is_another_apps() -> None:
    abort, commit = Command.TRANSACTION_ABORT, Command.TRANSACTION_COMMIT
    for grants in (
        [], [Grant("produce")], [Grant("manage", "orders.*")], [Grant("audit")],
        [Grant("manage"), Grant("manage", "secret", deny=True)],
    ):  # fmt: skip
        assert not authoriser(app("shop", *grants)).operates("shop", abort)
    operator = authoriser(app("op", Grant("manage")))
    assert operator.operates("op", abort)
    assert not operator.operates("gone", abort)
    cancel = Command.SCHEDULE_CANCEL
    assert [one for one in TABLE if operator.operates("op", one)] == [
        abort,
        Command.TRANSACTION_DECIDE,
        Command.TRANSACTION_SHOW,
        cancel,
    ]
    assert not operator.operates("op", commit)
    assert authoriser(required=False).operates("nobody", abort)


def test_the_last_app_that_manages_everything_stays() -> None:
    everything, half = Grant("manage"), Grant("manage", "secret", deny=True)
    apps = {"admin": app("admin", everything), "half": app("half", everything, half)}
    who = Authoriser(apps)
    for left in ([], [Grant("manage", "orders.*")], [everything, half]):
        with pytest.raises(InvalidRequest, match="'admin' is the last one with manage"):
            who.check_left("admin", left)
    who.check_left("admin", [everything, Grant("produce")])
    who.check_left("half")
    who.check_left("nobody")
    Authoriser(apps, required=False).check_left("admin")
    apps["other"] = app("other", everything)
    who.check_left("admin")


def test_a_change_of_the_grants_counts_at_once() -> None:
    apps = {"shop": app("shop", Grant("produce", "orders.*"))}
    who = Authoriser(apps)
    who.check("shop", Command.SEND, TOPIC)
    apps["shop"] = app("shop")
    with pytest.raises(Forbidden):
        who.check("shop", Command.SEND, TOPIC)
    apps["shop"] = app("shop", Grant("produce"))
    who.check("shop", Command.SEND, TOPIC)
    del apps["shop"]
    with pytest.raises(Unauthenticated):
        who.check("shop", Command.SEND, TOPIC)


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_REMEMBERED", 10)
    who = authoriser(app("shop", Grant("produce", "t*")))
    for at in range(100):
        who.check("shop", Command.SEND, f"t{at}")
        with pytest.raises(Forbidden):
            who.check("shop", Command.SEND, f"u{at}")
    assert len(who._known) == 1
    assert len(who._known["shop"].yes) <= 10


# -- tokens ----------------------------------------------------------------------------------------


def test_only_an_app_with_its_own_token_comes_in() -> None:
    who = authoriser(app("shop"), seal("other", OTHER, now_us=0))
    who.authenticate("shop", TOKEN.reveal())
    who.authenticate("other", OTHER.reveal())
    for name, token in [
        ("shop", OTHER.reveal()), ("other", TOKEN.reveal()), ("none", TOKEN.reveal()),
        ("shop", ""), ("", TOKEN.reveal()), ("", ""), ("shop", TOKEN.reveal() + " "),
        ("shop", TOKEN.reveal()[:-1]), ("shop", "x" * 100_000), ("shop", "\ud800"),
        ("nobody", new_token(bytes(32)).reveal()),
    ]:  # fmt: skip
        with pytest.raises(Unauthenticated) as caught:
            who.authenticate(name, token)
        assert not token.strip() or token[:20] not in str(caught.value)


def test_what_is_told_of_a_refusal_helps_nobody_to_guess() -> None:
    who = authoriser(app("shop"))

    def told(name: str, token: str) -> str:
        with pytest.raises(Unauthenticated) as caught:
            who.authenticate(name, token)
        return str(caught.value).replace(repr(name), "X")

    assert told("shop", OTHER.reveal()) == told("none", OTHER.reveal())
    assert "not copied completely" in told("shop", TOKEN.reveal()[:30])
    assert told("shop", TOKEN.reveal()[:30]) == told("none", TOKEN.reveal()[:30])


def test_how_a_token_was_miscopied() -> None:
    who = authoriser(app("shop"))
    token = TOKEN.reveal()
    other = "A" if token[20] != "A" else "B"
    for text, says in (
        (token[:-1], "incomplete: it was not copied completely"),
        (f"{token}x", "not copied exactly: it has 1 character too many"),
        (token + token, f"not copied exactly: it has {len(token)} characters too many"),
        (token[:20] + other + token[21:], "not copied exactly: at least one character is wrong"),
        (token.upper(), "app 'shop' is not known, or the token is wrong"),
    ):
        with pytest.raises(Unauthenticated, match=says):
            who.authenticate("shop", text)


def test_names_from_outside_are_shown_in_one_short_line() -> None:
    who = authoriser(app("shop"))
    for name in ("a\nb" * 1000, "\x1b[2J", "x" * 10_000):
        with pytest.raises(Unauthenticated) as refused:
            who.authenticate(name, TOKEN.reveal())
        with pytest.raises(Forbidden) as forbidden:
            who.check("shop", Command.SEND, name)
        for text in (str(refused.value), str(forbidden.value)):
            assert text.isprintable()
            assert len(text) < 400


# -- lists, and brokers without apps ---------------------------------------------------------------


def test_lists_name_what_the_app_has_a_right_on() -> None:
    who = authoriser(
        app("shop", Grant("produce", "orders.*"), Grant("consume", "stock", "billing")),
        admin_app(TOKEN, 0),
    )
    names = ("orders.eu", "orders", "stock", "users")
    assert [one for one in names if who.sees_topic("shop", one)] == ["orders.eu", "stock"]
    assert who.sees_group("shop", "stock", "billing")
    assert not who.sees_group("shop", "stock", "audit")
    assert not who.sees_group("shop", "orders.eu", "billing")
    assert who.sees_group("admin", "users", "any")
    assert not who.sees_topic("none", "stock")
    assert not who.sees_group("none", "stock", "billing")


@pytest.mark.parametrize("command", TABLE, ids=lambda one: one.name)
def test_where_no_apps_are_required_everybody_may_do_everything(command: Command) -> None:
    who = authoriser(required=False)
    who.authenticate("", "")
    who.authenticate("anybody", "anything")
    who.check("anybody", command, *named(command))
    assert who.sees_topic("anybody", "t")
    assert who.sees_group("anybody", "t", "g")


@pytest.mark.parametrize("group", ["$broadcast", "$b.web-1", "$b-17"])
def test_instances_need_the_right_of_the_group_broadcast(group: str) -> None:
    granted = authoriser(
        app("all", Grant("consume", TOPIC)),
        app("instances", Grant("consume", TOPIC, "$broadcast")),
        app("group", Grant("consume", TOPIC, "web-1")),
        app("denied", Grant("consume", TOPIC), Grant("consume", TOPIC, "$broadcast", deny=True)),
    )
    for name in ("all", "instances"):
        for command in (Command.GROUP_JOIN, Command.PULL, Command.SETTLE):
            granted.check(name, command, TOPIC, group)
        assert granted.sees_group(name, TOPIC, group)
    for name in ("group", "denied"):
        with pytest.raises(Forbidden, match="broadcast"):
            granted.check(name, Command.PULL, TOPIC, group)
        assert not granted.sees_group(name, TOPIC, group)
    with pytest.raises(Forbidden):
        granted.check("instances", Command.PULL, TOPIC, "web-1")
    with pytest.raises(Forbidden, match=r"'consume:orders.eu:\$broadcast'"):
        granted.check("group", Command.PULL, TOPIC, group)
