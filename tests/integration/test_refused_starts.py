"""A start of a worker that the broker refuses: what it leaves, and what it names."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Any

import pytest

import ternmq
import ternmq.sync
from ternmq.cli.terminal.exits import ExitCode
from ternmq.cli.terminal.problems import code_of
from ternmq.client.consumer.puller import Puller
from ternmq.testing import InProcessBroker, broker
from tests.integration.client_shapes import API, AsyncAPI, run, run_until_member

ADMIN = "root-token-of-the-test"
GROUP = "shop-worker"


@pytest.fixture
def strict() -> Iterator[InProcessBroker]:
    """A broker that checks the rights of apps."""
    with broker(manual=False, settings={"auth": True, "admin_token": ADMIN}) as one:
        yield one


def root(one: InProcessBroker) -> ternmq.Client:
    return ternmq.connect(one.url, app="admin", token=ADMIN)


def shop(api: API, url: str, topic: object, **settings: Any) -> Any:
    """Return a client with a handler and a checker."""
    connect: Any = ternmq.sync.connect if api.blocking else ternmq.connect
    client = connect(url, **settings)
    client.checker(GROUP)(lambda tx: ternmq.Decision.UNKNOWN)

    def handle(body: object) -> None: ...

    async def handle_soon(body: object) -> None: ...

    client.handler(topic, group="fulfil")(handle if api.blocking else handle_soon)
    return client


@pytest.mark.parametrize("topic", ["orders", ternmq.Topic("orders"), ternmq.Topic("missing")])
async def test_a_refused_start_takes_no_producer_group(
    api: API, strict: InProcessBroker, topic: object
) -> None:
    async with root(strict) as admin:
        await admin.admin.create_topic("orders")
        web = await admin.admin.put_app("web", ["produce:orders"])
        token = await admin.admin.put_app("worker", ["consume:orders:fulfil", "produce:orders"])
        with pytest.raises((ternmq.Forbidden, ternmq.TopologyMismatch)) as refused:
            await run(shop(api, strict.url, topic, app="web", token=web))
        assert code_of(refused.value) is ExitCode.NOT_ALLOWED
        assert await admin.admin.producer_groups() == []

        right = shop(api, strict.url, "orders", app="worker", token=token)
        await run_until_member(right, admin, "fulfil")
        (group,) = await admin.admin.producer_groups()
        assert (group.group, group.app) == (GROUP, "worker")


async def test_a_start_with_the_producer_group_of_another_app(
    api: API, strict: InProcessBroker, caplog: pytest.LogCaptureFixture
) -> None:
    async with root(strict) as admin:
        await admin.admin.create_topic("orders")
        await admin.admin.put_producer_group(GROUP, app="web")
        grants = ["consume:orders:fulfil", "produce:orders"]
        token = await admin.admin.put_app("worker", grants)
        client = shop(api, strict.url, "orders", app="worker", token=token)
        with (
            caplog.at_level(logging.ERROR, "ternmq"),
            pytest.raises(ternmq.ProducerGroupTaken) as refused,
        ):
            await run(client)
        assert [one for one in caplog.messages if GROUP in one] == [], "it is raised"
        assert code_of(refused.value) is ExitCode.NOT_ALLOWED
        assert "`ternmq transaction policy GROUP --delete`" in refused.value.hint


async def test_one_refused_start_names_every_grant_that_is_lacking(
    strict: InProcessBroker,
) -> None:
    async def handle(body: object) -> None: ...

    def client(token: str, *declared: ternmq.Topic) -> ternmq.Client:
        made = ternmq.connect(strict.url, app="hint", token=token)
        made.declare(*declared)
        made.handler("orders", group="fulfil")(handle)
        made.handler("orders", group="count")(handle)
        made.handler(ternmq.Topic("payments"), group="charging")(handle)
        made.handler("mails", group="mailer")(handle)
        return made

    async with root(strict) as admin:
        for name in ("orders", "payments", "mails", "reminders"):
            await admin.admin.create_topic(name)
        token = await admin.admin.put_app("hint", ["produce:orders", "consume:mails:mailer"])
        with pytest.raises(ternmq.TopologyMismatch) as told:
            await client(token, ternmq.Topic("reminders")).run()
        named = set(told.value.hint.partition("`")[2].partition("`")[0].split()[5::2])
        assert named == {
            "consume:orders:fulfil", "consume:orders:count", "consume:payments:charging",
            "produce:reminders",
        }  # fmt: skip
        assert "` is enough; otherwise run " in told.value.hint

        await admin.admin.put_app("hint", ["produce:orders", "produce:payments", "produce:mails"])
        with pytest.raises(ternmq.Forbidden) as refused:
            await client(token).run()
        assert refused.value.hint == (
            "`ternmq app set hint --grant consume:orders:fulfil --grant consume:orders:count "
            "--grant consume:payments:charging --grant consume:mails:mailer` gives all rights that "
            "the handlers of this program need"
        )


async def test_a_transaction_beside_a_start_waits_for_it(
    strict: InProcessBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its checker is offered only when the groups are joined."""
    joins, joined = asyncio.Event(), asyncio.Event()
    join = Puller.join

    async def slow(puller: Puller, *arguments: Any) -> Any:
        joins.set()
        await joined.wait()
        return await join(puller, *arguments)

    monkeypatch.setattr(Puller, "join", slow)
    async with root(strict) as admin:
        await admin.admin.create_topic("orders")
        token = await admin.admin.put_app("worker", ["consume:orders:fulfil", "produce:orders"])
        client = shop(AsyncAPI(), strict.url, "orders", app="worker", token=token)
        running = asyncio.ensure_future(client.run())

        async def send() -> None:
            async with client.transaction(GROUP) as tx:
                await tx.send("orders", 1)

        await asyncio.wait_for(joins.wait(), 10)
        sending = asyncio.ensure_future(send())
        assert len([one async for one in admin.read("orders")]) == 0
        assert await admin.admin.producer_groups() == []
        assert not sending.done()
        joined.set()
        await asyncio.wait_for(sending, 10)
        client.stop()
        await running
