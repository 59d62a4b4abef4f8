"""The first use of a topic by a client: its timeouts hold, and a run beside it is not disturbed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence

import pytest

import ternmq
from ternmq.client.admin.admin import Admin
from ternmq.testing import InProcessBroker, broker
from ternmq.wire import control
from tests.asynchronous import until
from tests.integration.proxy import Proxy

TIMEOUT_S = 0.3
PATIENT_S = 60.0
"""The client's own timeout: a call that waits for so long is found by the test's."""


async def a_transaction(client: ternmq.Client) -> None:
    async with client.transaction("g", timeout=TIMEOUT_S) as tx:
        await tx.send("fresh", b"x")


async def a_step_with_a_timeout(client: ternmq.Client) -> None:
    tx = client.transaction("g", timeout=TIMEOUT_S)
    async with tx:
        await tx.send("fresh", b"x", timeout=TIMEOUT_S)


async def a_prepare(client: ternmq.Client) -> None:
    await client.prepare("fresh", [b"x"], writer="w", batch_id=1, timeout=TIMEOUT_S)


async def a_send(client: ternmq.Client) -> None:
    await client.send("fresh", b"x", timeout=TIMEOUT_S)


@pytest.mark.timeout(50)
@pytest.mark.parametrize("call", [a_transaction, a_step_with_a_timeout, a_prepare, a_send])
async def test_a_broker_that_does_not_say_what_the_topic_is(
    call: Callable[[ternmq.Client], Awaitable[None]], real: InProcessBroker
) -> None:
    """The client's own timeout is longer than the test may take."""
    async with Proxy(real.port) as proxy:
        client = ternmq.connect(proxy.url, timeout=PATIENT_S, drain_timeout=0)

        @client.checker("g")
        def nothing(tx: ternmq.PreparedTransaction) -> ternmq.Decision:
            return ternmq.Decision.UNKNOWN

        async with client:
            await client.send("known", b"x")
            proxy.mute = True
            with pytest.raises((ternmq.CannotConnect, ternmq.ConnectionLost)) as caught:
                await call(client)
            assert not isinstance(caught.value, ternmq.BufferFull)
            assert "TOPIC_LIST" in str(caught.value)
            proxy.mute = False
            proxy.cut()


async def test_a_topic_declared_while_a_run_compares_is_not_missed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The run asked about the topics that were declared then: the new one is not compared."""
    token = "the-token-of-the-admin"
    topics = Admin.topics
    sent: list[object] = []

    with broker(settings={"auth": True, "admin_token": token}) as one:
        async with ternmq.connect(one.url, app="admin", token=token) as admin:
            await admin.admin.create_topic("orders", queues=4)
            await admin.admin.create_topic("tariffs", broadcast=True)
            grants = ["produce:*", "consume:tariffs:$broadcast"]
            shop = await admin.admin.put_app("shop", grants=grants, new_token=True)
        client = ternmq.connect(one.url, app="shop", token=shop)

        async def asked(self: Admin, names: Sequence[str] = ()) -> list[control.TopicInfo]:
            found = await topics(self, names)
            if not sent:
                sent.append(None)
                sent[0] = await client.send(ternmq.Topic("orders", queues=4), b"x")
            return found

        monkeypatch.setattr(Admin, "topics", asked)
        began = time.monotonic()

        @client.handler(ternmq.Topic("tariffs", broadcast=True))
        async def reload(value: bytes) -> None:
            client.stop()

        running = asyncio.create_task(client.run(signals=False))
        await until(lambda: bool(sent and sent[0]) or running.done())
        assert not running.done() or running.exception() is None
        async with ternmq.connect(one.url, app="admin", token=token) as admin:
            while not running.done():
                assert time.monotonic() < began + 60
                await admin.send("tariffs", b"9")
                await asyncio.wait({running}, timeout=0.2)
        await running
