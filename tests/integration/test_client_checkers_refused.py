"""A client that only has checkers, and whom the broker refuses while it runs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial

import pytest

import ternmq
import ternmq.sync
from ternmq.testing import InProcessBroker, broker
from tests.asynchronous import until, until_true

ADMIN = "the-token-of-the-admin"
GROUP = "payments"


@pytest.fixture
def guarded() -> Iterator[InProcessBroker]:
    with broker(settings={"auth": True, "admin_token": ADMIN}, manual=False) as one:
        yield one


def admin_of(one: InProcessBroker) -> ternmq.Client:
    return ternmq.connect(one.url, app="admin", token=ADMIN)


def checking(one: InProcessBroker, token: str | None) -> ternmq.Client:
    client = ternmq.connect(one.url, app="shop", token=token)

    @client.checker(GROUP)
    def nothing(tx: ternmq.PreparedTransaction) -> ternmq.Decision:
        return ternmq.Decision.UNKNOWN

    return client


async def offered(admin: ternmq.Client) -> bool:
    found = await admin.admin.producer_groups()
    return any(one.group == GROUP and one.checkers for one in found)


async def test_a_run_ends_when_its_token_is_replaced(guarded: InProcessBroker) -> None:
    async with admin_of(guarded) as admin:
        await admin.admin.create_topic("t")
        token = await admin.admin.put_app("shop", grants=["produce:*"], new_token=True)
        running = asyncio.create_task(checking(guarded, token).run(signals=False))
        async with asyncio.timeout(60):
            await until_true(partial(offered, admin))
            await admin.admin.put_app("shop", grants=["produce:*"], new_token=True)
            with pytest.raises(ternmq.Unauthenticated):
                await running


async def test_a_refusal_before_the_offers_were_answered_ends_the_start(
    guarded: InProcessBroker,
) -> None:
    """The connection is lost then, and the token is not valid any more."""
    client = checking(guarded, None)
    client._session.bind()
    refused = ternmq.Unauthenticated("the token is not valid")
    client._checking._waiting.add(GROUP)
    ready = asyncio.create_task(client._checking.ready(60))
    await asyncio.sleep(0)
    client._checking.refused(refused)
    async with asyncio.timeout(30):
        with pytest.raises(ternmq.Unauthenticated):
            await ready
        with pytest.raises(ternmq.Unauthenticated):
            await client._checking.failed()
    await client.close()


async def test_an_offer_that_was_refused_is_made_again(guarded: InProcessBroker) -> None:
    async with admin_of(guarded) as admin:
        await admin.admin.create_topic("t")
        token = await admin.admin.put_app("shop", grants=["produce:*"], new_token=True)
        client = checking(guarded, token)
        serving = client.serving
        running = asyncio.create_task(client.run(signals=False))
        async with asyncio.timeout(60):
            await until_true(partial(offered, admin))
            assert serving.not_ready() == ""
            await admin.admin.put_app("shop", grants=[])
            await asyncio.to_thread(guarded.restart)
            await until(lambda: "payments cannot be offered" in serving.not_ready())
            await admin.admin.put_app("shop", grants=["produce:*"])
            await until(lambda: serving.not_ready() == "")
            await until_true(partial(offered, admin))
        client.stop()
        await running
