"""Topics, retry policies and leases that are declared in code."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any

import msgspec
import pytest

import ternmq
import ternmq.sync
from ternmq.client.admin.admin import Admin
from ternmq.client.declaration.policy import RetryPolicy
from ternmq.model.errors import UnknownCommand
from ternmq.testing import InProcessBroker, broker
from ternmq.wire.commands import Command
from ternmq.wire.control import GrantInfo, GroupChange, RightsQuestion
from tests.integration.client_shapes import API, AsyncAPI, run_until_member

ADMIN = "root-token-of-the-test"
_NO_RIGHTS = (
    r"topic orders: it does not exist, or app 'shop' has no right on it; declared with queues 3.*"
    r"no grant to manage.*ternmq apply"
)
API_ASYNC = AsyncAPI()


def declared(
    api: API, url: str, stated: Any = None, **settings: Any
) -> ternmq.Client | ternmq.sync.Client:
    """Return a client that declares a topic and a handler; ``stated``: more of its group."""
    connect: Callable[..., Any] = ternmq.sync.connect if api.blocking else ternmq.connect
    client: ternmq.Client | ternmq.sync.Client = connect(url, **settings)
    orders = ternmq.Topic("orders", queues=3, retention=timedelta(days=30))
    policy = RetryPolicy(first=0.05, attempts=2)
    more: dict[str, Any] = stated or {}

    if api.blocking:

        @client.handler(orders, group="billing", retry=policy, lease=9, **more)
        def handle(body: object) -> None: ...

    else:

        @client.handler(orders, group="billing", retry=policy, lease=9, **more)
        async def handle_soon(body: object) -> None: ...

    return client


async def test_run_makes_what_is_declared(api: API, real: InProcessBroker) -> None:
    async with ternmq.connect(real.url) as looking:
        await run_until_member(declared(api, real.url), looking)
        topic = await looking.admin.topic("orders")
        group = await looking.admin.group("orders", "billing")
    assert (topic.spec.queues, topic.retention) == (3, timedelta(days=30))
    policy = RetryPolicy.of(group.spec.retry)
    assert (policy.first, policy.attempts) == (timedelta(milliseconds=50), 2)
    assert group.lease == timedelta(seconds=9)


async def test_run_changes_what_differs_and_leaves_the_rest(
    api: API, real: InProcessBroker
) -> None:
    async with ternmq.connect(real.url) as looking:
        await looking.admin.create_topic("orders", durability="fast", retention=60)
        await looking.admin.create_group("orders", "billing", tags="a")
        await looking.admin.change_group("orders", "billing", window=7)
        await run_until_member(declared(api, real.url), looking)
        topic = await looking.admin.topic("orders")
        spec = (await looking.admin.group("orders", "billing")).spec
        assert await declared(api, real.url).topology.plan(looking.admin) == []
    assert (topic.spec.queues, topic.retention) == (3, timedelta(days=30))
    assert topic.spec.durability is ternmq.Durability.FAST
    assert (spec.tags, spec.window, spec.retry.attempts) == ("a", 7, 2)


async def test_what_cannot_be_changed_ends_the_run_and_nothing_was_changed(
    api: API, real: InProcessBroker
) -> None:
    async with ternmq.connect(real.url) as looking:
        await looking.admin.create_topic("orders", queues=5, retention=60)
        said = (
            r"queues 5 -> 3 cannot be changed.*declare the settings that exist.*"
            r"`ternmq topic delete orders`"
        )
        with pytest.raises(ternmq.TopologyMismatch, match=said):
            await run_until_member(declared(api, real.url), looking)
        topic = await looking.admin.topic("orders")
        assert (topic.spec.queues, topic.retention) == (5, timedelta(minutes=1))
        assert await looking.admin.groups("orders") == []


@pytest.mark.parametrize(
    ("stated", "said"),
    [
        ({"mode": "ordered"}, "mode ordered is not possible: topic orders is not ordered"),
        ({"mode": "queue_lock"}, "mode shared -> queue_lock cannot be changed"),
        ({"start": "latest", "tags": "b"}, "start earliest -> latest cannot be changed"),
    ],
    ids=["mode", "locked", "start"],
)
async def test_a_group_that_cannot_be_what_is_declared_ends_the_run_before_anything_is_changed(
    api: API, real: InProcessBroker, stated: dict[str, str], said: str
) -> None:
    async with ternmq.connect(real.url) as looking:
        await looking.admin.create_topic("orders", retention=60)
        await looking.admin.create_group("orders", "billing", tags="a")
        before = (await looking.admin.group("orders", "billing")).spec
        client = declared(api, real.url, stated)
        with pytest.raises(ternmq.TopologyMismatch, match=f"group billing on orders: {said}"):
            await run_until_member(client, looking)
        assert (await looking.admin.group("orders", "billing")).spec == before
        assert (await looking.admin.topic("orders")).retention == timedelta(minutes=1)


@pytest.mark.parametrize("there", [False, True], ids=["new", "there"])
@pytest.mark.parametrize(
    ("topic", "stated", "said"),
    [
        (
            ternmq.Topic("scans", ordered=True),
            {"tags": "late"},
            (
                r"group late on scans: tags 'late' is not possible: topic scans is ordered, and an "
                r"ordered group cannot have a tag filter.*mode=\"shared\""
            ),
        ),
        (
            ternmq.Topic("scans"),
            {"mode": "ordered"},
            r"on scans: mode ordered is not possible: topic scans is not (declared as )?ordered",
        ),
    ],
    ids=["filter", "mode"],
)
async def test_a_group_that_its_topic_does_not_allow_ends_the_run_before_anything_is_made(
    real: InProcessBroker, topic: ternmq.Topic, stated: Any, said: str, there: bool
) -> None:
    async with ternmq.connect(real.url) as looking:
        if there:
            await looking.admin.create_topic("scans", ordered=bool(topic.ordered))
        client = ternmq.connect(real.url)
        client.declare(ternmq.Topic("others"))

        @client.handler("others", group="late")
        async def other(body: object) -> None: ...

        @client.handler(topic, group="late", **stated)
        async def handle(body: object) -> None: ...

        with pytest.raises(ternmq.TopologyMismatch) as told:
            await client.run()
        assert re.search(said, f"{told.value}")
        assert [one.spec.name for one in await looking.admin.topics()] == ["scans"] * there
        assert await looking.admin.groups() == []


async def test_groups_that_want_an_undeclared_topic_both_ordered_and_not(
    real: InProcessBroker,
) -> None:
    """The first one would make it; the second would be refused."""
    client = ternmq.connect(real.url)

    @client.handler("scans", group="first")
    async def first(body: object) -> None: ...

    @client.handler("scans", group="second", mode="ordered")
    async def second(body: object) -> None: ...

    async with ternmq.connect(real.url) as looking:
        with pytest.raises(ternmq.TopologyMismatch, match="group second on scans: mode ordered"):
            await client.topology.apply(looking.admin)
        assert await looking.admin.topics() == []


async def test_a_filter_for_a_group_that_keeps_order_changes_nothing(real: InProcessBroker) -> None:
    async with ternmq.connect(real.url) as looking:
        await looking.admin.create_topic("scans", ordered=True)
        await looking.admin.create_group("scans", "late", lease=7)
        client = ternmq.connect(real.url)

        @client.handler("scans", group="late", tags="late", lease=9)
        async def handle(body: object) -> None: ...

        said = r"tags 'late' is not possible.*new group with mode=\"shared\""
        with pytest.raises(ternmq.TopologyMismatch) as told:
            await client.run()
        assert re.search(said, f"{told.value}")
        assert (await looking.admin.group("scans", "late")).lease == timedelta(seconds=7)
        for refused in (
            looking.admin.change_group("scans", "late", tags="a"),
            looking.admin.create_group("scans", "new", tags="a"),
        ):
            with pytest.raises(
                ternmq.InvalidRequest,
                match=r"group '(late|new)' keeps the order of topic 'scans', so it takes no tag",
            ):
                await refused


async def test_ignoring_keys_where_order_is_kept_cannot_be_changed(real: InProcessBroker) -> None:
    async with ternmq.connect(real.url) as looking:
        await looking.admin.create_topic("scans", ordered=True, retention=60)
        client = ternmq.connect(real.url)
        client.declare(ternmq.Topic("scans", ignore_ordering_keys=True, retention=90))
        client.declare(ternmq.Topic("others"))
        changes = await client.topology.plan(looking.admin)
        assert [(one.action, one.setting) for one in changes] == [
            ("change", "retention"),
            ("conflict", "ignore_ordering_keys"),
            ("create", ""),
        ]
        with pytest.raises(ternmq.TopologyMismatch, match="cannot be changed"):
            await client.topology.apply(looking.admin)
        assert [one.spec.name for one in await looking.admin.topics()] == ["scans"]


async def test_a_filter_that_is_all_that_is_declared_is_changed_by_the_run(
    real: InProcessBroker,
) -> None:
    async with ternmq.connect(real.url) as looking:
        await looking.admin.create_topic("orders")
        await looking.admin.create_group("orders", "billing", tags="a", lease=7)
        client = ternmq.connect(real.url)

        @client.handler("orders", group="billing", tags="a || b")
        async def handle(body: object) -> None: ...

        await run_until_member(client, looking)
        group = await looking.admin.group("orders", "billing")
        assert (group.spec.tags, group.lease) == ("a || b", timedelta(seconds=7))


async def test_an_app_that_may_not_manage_runs_where_all_is_as_declared(api: API) -> None:
    with broker(manual=False, settings={"auth": True, "admin_token": ADMIN}) as one:
        async with ternmq.connect(one.url, app="admin", token=ADMIN) as admin:
            token = await admin.admin.put_app(
                "shop", [GrantInfo(right="consume", topic="orders", group="billing")]
            )
            as_shop = {"app": "shop", "token": token}
            with pytest.raises(ternmq.TopologyMismatch, match=_NO_RIGHTS) as refused:
                await run_until_member(declared(api, one.url, **as_shop), admin)
            # It has the right to use the topic, so the topic does not exist.
            assert refused.value.hint == (
                "run `ternmq apply MODULE:CLIENT` as an app that has the right to manage them"
            )

            done = await declared(api, one.url).topology.apply(admin.admin)
            assert [str(change).partition(" with")[0] for change in done] == [
                "topic orders: created",
                "group billing on orders: created",
            ]
            await run_until_member(declared(api, one.url, **as_shop), admin)

            await admin.admin.change_group("orders", "billing", retry=RetryPolicy(attempts=9))
            with pytest.raises(ternmq.TopologyMismatch, match=r"retry .* 9 attempts.* -> .* 2 att"):
                await run_until_member(declared(api, one.url, **as_shop), admin)

            await declared(api, one.url).topology.apply(admin.admin)
            tagged = declared(api, one.url, {"tags": "a"}, **as_shop)
            with pytest.raises(ternmq.TopologyMismatch, match=r"tags '' -> 'a'.*no grant to man"):
                await run_until_member(tagged, admin)


async def test_an_app_without_a_right_is_told_the_smallest_one_first(
    real: InProcessBroker,
) -> None:
    with broker(manual=False, settings={"auth": True, "admin_token": ADMIN}) as one:
        async with ternmq.connect(one.url, app="admin", token=ADMIN) as admin:
            await admin.admin.create_topic("parcels")
            await admin.admin.create_topic("bills")
            token = await admin.admin.put_app("mailer", ["consume:mails:mailer"])
            client = ternmq.connect(one.url, app="mailer", token=token)
            client.declare(ternmq.Topic("parcels"))

            @client.handler("mails", group="mailer")
            async def mail(body: object) -> None: ...

            with pytest.raises(ternmq.TopologyMismatch) as told:
                await client.run()
            assert str(told.value) == (
                "topic parcels: it does not exist, or app 'mailer' has no right on it. Nothing was "
                "changed: app 'mailer' has no grant to manage topic 'parcels' for every group "
                "('*') (if the topic exists, `ternmq app set mailer --grant produce:parcels` is "
                "enough; otherwise run `ternmq apply MODULE:CLIENT` as an app that has the right "
                "to manage them)"
            )
            client = ternmq.connect(one.url, app="mailer", token=token)
            client.declare(ternmq.Topic("parcels"))
            client.handler(ternmq.Topic("bills"), group="b")(mail)
            with pytest.raises(ternmq.TopologyMismatch) as told:
                await client.run()
            assert told.value.hint.startswith(
                "if these topics exist, `ternmq app set mailer --grant produce:parcels "
                "--grant consume:bills:b` is enough; otherwise run "
            )
            client = ternmq.connect(one.url, app="mailer", token=token)
            client.handler(ternmq.Topic("rates", broadcast=True))(mail)
            with pytest.raises(ternmq.TopologyMismatch) as told:
                await client.run()
            assert "--grant 'consume:rates:$broadcast'` is enough" in told.value.hint


async def test_what_is_possible_is_not_told_as_a_problem(real: InProcessBroker) -> None:
    client = ternmq.connect(real.url)

    @client.handler(ternmq.Topic("d5", ordered=True), group="gg", tags="a")
    async def handle(body: object) -> None: ...

    with pytest.raises(ternmq.TopologyMismatch) as told:
        await client.run()
    said = str(told.value.args[0])
    assert said.startswith("group gg on d5: tags 'a' is not possible: ")
    assert said.endswith(
        ". Nothing was changed. Possible, but not made either: topic d5: would be created with "
        "ordered yes"
    )


async def test_a_group_that_is_missing_is_made_as_stated_by_whoever_may_consume(
    api: API,
) -> None:
    with broker(manual=False, settings={"auth": True, "admin_token": ADMIN}) as one:
        async with ternmq.connect(one.url, app="admin", token=ADMIN) as admin:
            await admin.admin.create_topic("orders", queues=3, retention=timedelta(days=30))
            token = await admin.admin.put_app(
                "shop", [GrantInfo(right="consume", topic="orders", group="billing")]
            )
            await run_until_member(declared(api, one.url, app="shop", token=token), admin)
            group = await admin.admin.group("orders", "billing")
            assert (group.spec.retry.attempts, group.lease) == (2, timedelta(seconds=9))


async def test_what_has_no_effect_in_a_mode_is_no_difference(api: API) -> None:
    """A shared group holds no messages, whatever its policy says: `group set` allows it."""
    with broker(manual=False, settings={"auth": True, "admin_token": ADMIN}) as one:
        async with ternmq.connect(one.url, app="admin", token=ADMIN) as admin:
            token = await admin.admin.put_app(
                "shop", [GrantInfo(right="consume", topic="orders", group="billing")]
            )
            await declared(api, one.url, app="admin", token=ADMIN).topology.apply(admin.admin)
            held = RetryPolicy(first=0.05, attempts=2, exhausted="hold")
            await admin.admin.change_group("orders", "billing", retry=held)
            client = declared(api, one.url, app="shop", token=token)
            assert await client.topology.plan(admin.admin) == []
            await run_until_member(client, admin)


async def test_a_filter_written_in_another_way_is_no_difference(api: API) -> None:
    with broker(manual=False) as one:
        async with ternmq.connect(one.url) as looking:
            await declared(api, one.url, {"tags": "paid || refunded"}).topology.apply(looking.admin)
            for same in ("refunded||paid", " paid || refunded || paid"):
                client = declared(api, one.url, {"tags": same})
                assert await client.topology.plan(looking.admin) == []
                await run_until_member(client, looking)
            other = declared(api, one.url, {"tags": "paid"})
            (change,) = await other.topology.plan(looking.admin)
            assert (change.setting, change.has, change.wants) == (
                "tags", "'paid || refunded'", "'paid'",
            )  # fmt: skip


async def test_joining_with_another_policy_than_the_groups_is_refused(
    real: InProcessBroker,
) -> None:
    async with ternmq.connect(real.url) as client:
        await client.admin.create_topic("orders")
        await client.admin.create_group("orders", "g", retry=RetryPolicy(first=2), lease=5)
        await client.admin.create_group("orders", "g", retry=RetryPolicy(first=2), lease=5)
        await client.admin.create_group("orders", "g")
        with pytest.raises(ternmq.GroupSettingsMismatch, match=r"has retry 2s x 2.*not 3s x 2"):
            await client.admin.create_group("orders", "g", retry=RetryPolicy(first=3))
        with pytest.raises(ternmq.GroupSettingsMismatch, match=r"has lease 5s, not 6s"):
            await client.admin.create_group("orders", "g", lease=6)
        with pytest.raises(ternmq.InvalidRequest, match=r"lease must be"):
            await client.admin.create_group("orders", "g", lease=0)


async def test_many_workers_begin_at_the_same_time(real: InProcessBroker) -> None:
    async with ternmq.connect(real.url) as looking:
        made = await asyncio.gather(
            *[declared(API_ASYNC, real.url).topology.apply(looking.admin) for _ in range(8)]
        )
        assert await declared(API_ASYNC, real.url).topology.plan(looking.admin) == []
    assert sum(bool(changes) for changes in made) >= 1


async def test_an_ordered_topic_stays_ordered_and_keeps_its_queues(real: InProcessBroker) -> None:
    async with ternmq.connect(real.url) as client:
        await client.admin.create_topic("orders", ordered=True, queues=2)
        client.declare(ternmq.Topic("orders", ordered=False, queues=4))
        first, second = await client.topology.plan(client.admin)
        assert (first.action, second.action) == ("conflict", "conflict")
        assert str(first) == "topic orders: queues 2 -> 4 cannot be changed"
        assert str(second) == "topic orders: ordered yes -> no cannot be changed"


async def test_a_mode_and_a_filter_that_differ_are_changed(real: InProcessBroker) -> None:
    async with ternmq.connect(real.url) as client:
        await client.admin.create_topic("orders", ordered=True)
        await client.admin.create_group("orders", "g")

        @client.handler("orders", group="g", tags="b", mode="shared")
        async def handle(body: object) -> None: ...

        changes = await client.topology.plan(client.admin)
        assert {one.setting: one.action for one in changes} == {
            "tags": "change",
            "mode": "change",
        }
        await client.topology.apply(client.admin)
        spec = (await client.admin.group("orders", "g")).spec
        assert (spec.mode, spec.tags) == (ternmq.Mode.SHARED, "b")


async def test_a_broker_that_does_not_say_which_rights_an_app_has(
    real: InProcessBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = Admin._ask

    async def old(self: Any, command: Command, *more: Any) -> Any:
        if command is Command.RIGHTS_CHECK:
            raise UnknownCommand("command 73")
        return await asked(self, command, *more)

    async with ternmq.connect(real.url) as client:
        question = RightsQuestion(command=Command.TOPIC_CREATE, topic="orders")
        assert await client.admin.refusals([question] * 70) == [""] * 70  # several requests
        monkeypatch.setattr(Admin, "_ask", old)
        assert await client.admin.refusals([question]) is None
        made = await declared(API_ASYNC, real.url).topology.apply(client.admin)
        assert [one.action for one in made] == ["create", "create"]


async def test_a_group_that_has_too_short_a_lease_keeps_it_until_another_is_stated(
    real: InProcessBroker,
) -> None:
    """One that an earlier version, or another client, gave it."""
    async with ternmq.connect(real.url) as client:
        await client.admin.create_topic("orders")
        await client.admin.create_group("orders", "g")
        spec = (await client.admin.group("orders", "g")).spec
        short = msgspec.structs.replace(spec, lease_us=1000)
        asked = GroupChange(topic="orders", group="g", spec=short)
        await client.admin._do(Command.GROUP_CHANGE, asked)
        await client.admin.change_group("orders", "g", tags="a")
        assert (await client.admin.group("orders", "g")).lease == timedelta(milliseconds=1)
        await client.admin.change_group("orders", "g", lease=0.1)
        assert (await client.admin.group("orders", "g")).lease == timedelta(milliseconds=100)


async def test_rights_that_end_while_others_make_the_same_do_not_deny_what_was_made(
    real: InProcessBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first topic is made, somebody else makes the second, and then the app may do no more."""
    made, refused = Admin.create_topic, Admin.refusals

    async def create(self: Any, name: str, **settings: Any) -> Any:
        await made(self, name, **settings)
        if name == "b":
            raise ternmq.TopicExists("b is there")
        monkeypatch.setattr(Admin, "refusals", refuse)

    async def refuse(_: Admin, asked: Iterable[object]) -> list[str]:
        return ["no grant to manage" for _ in asked]

    client = ternmq.connect(real.url)
    client.declare(ternmq.Topic("a"), ternmq.Topic("b"))

    @client.handler("a", group="g")
    async def handle(body: object) -> None: ...

    async with ternmq.connect(real.url) as looking:
        monkeypatch.setattr(Admin, "create_topic", create)
        with pytest.raises(ternmq.TopologyMismatch) as caught:
            await client.topology.apply(looking.admin)
        assert refused is not Admin.refusals
    assert "Made before: topic a: created. no grant to manage" in str(caught.value)
    assert "Nothing was changed" not in str(caught.value)
    assert str(caught.value).startswith("group g on a: it does not exist")
