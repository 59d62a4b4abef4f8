"""An ack that was applied, and whose answer was lost, was told to have failed.

It was asked again over the next connection, refused since the lease was no longer there, and raised
LeaseExpired, as if the message would come again. The broker knows the same word of the same session
again; after a restart it does not, and the client says that the outcome is not known.
"""

from __future__ import annotations

import asyncio
import logging

import pytest

import ternmq
from ternmq.server.desk.settled import SettledLately
from ternmq.testing import InProcessBroker
from tests.asynchronous import until, until_true
from tests.integration.proxy import Proxy


async def applied(client: ternmq.Client, floor: int) -> None:
    """Wait until the broker has carried the settle out."""

    async def there() -> bool:
        return (await client.admin.group("orders", "g")).queues[0].floor == floor

    await until_true(there, "the settle has arrived")


async def test_it_is_not_told_as_a_failure(
    real: InProcessBroker, caplog: pytest.LogCaptureFixture
) -> None:
    async with Proxy(real.port) as proxy, ternmq.connect(real.url) as other:
        client = await ternmq.connect(proxy.url)
        await client.send("orders", b"x")
        await client.send("orders", b"y")
        first, second = await client.pull("orders", group="g", max_messages=2)
        assert first.lease is second.lease
        proxy.mute = True
        told = asyncio.ensure_future(asyncio.gather(first.ack(), second.ack()))

        await applied(other, 2)
        with caplog.at_level(logging.WARNING, logger="ternmq"):
            proxy.mute = False
            proxy.cut()
            await told
        assert "not settled" not in caplog.text
        await client.close()


async def test_after_a_restart_nobody_knows(
    real: InProcessBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Proxy(real.port) as proxy, ternmq.connect(real.url) as other:
        client = await ternmq.connect(proxy.url)
        await client.send("orders", b"x")
        (delivery,) = await client.pull("orders", group="g", max_messages=1)
        proxy.mute = True
        told = asyncio.ensure_future(delivery.ack())
        await applied(other, 1)
        monkeypatch.setattr(SettledLately, "told", lambda *_: None)
        proxy.mute = False
        proxy.cut()
        with pytest.raises(ternmq.ConnectionLost, match="whether this was settled is not known"):
            await told
        await client.close()


async def test_one_that_nobody_waits_for_is_not_logged_as_one(
    real: InProcessBroker, caplog: pytest.LogCaptureFixture
) -> None:
    async with Proxy(real.port) as proxy, ternmq.connect(real.url) as other:
        client = await ternmq.connect(proxy.url)
        await client.send("orders", b"x")
        (delivery,) = await client.pull("orders", group="g", max_messages=1)
        proxy.mute = True
        async with delivery.process():
            pass

        await applied(other, 1)
        with caplog.at_level(logging.WARNING, logger="ternmq"):
            proxy.mute = False
            proxy.cut()
            await until(lambda: not client._settler.core.unfinished, "the settle is over", 30.0)
        assert "not settled" not in caplog.text
        await client.close()
