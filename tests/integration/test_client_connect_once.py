"""``connect`` is one attempt, made at once, also where the client connects again by itself.

Its own attempts have pauses of an hour here, and an hour for each.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

import ternmq
from ternmq.testing import InProcessBroker
from tests.asynchronous import until
from tests.integration.client_shapes import API, AsyncAPI
from tests.integration.proxy import Proxy

_HOUR = 3600.0
_NOBODY = "ternmq://127.0.0.1:9"
"""Where nobody listens."""


def patient(api: API, url: str) -> Any:
    options = replace(
        ternmq.connect(url).options,
        connect_timeout=_HOUR,
        first_backoff=_HOUR,
        longest_backoff=_HOUR,
    )
    return api.connect(url, options=options)


async def used(api: API, url: str) -> Any:
    """Return a client that connects again by itself, the next time in half an hour or more."""
    client = patient(api, url)
    with pytest.raises(ternmq.CannotConnect):
        await client.send("t", b"1", timeout=0.05)
    return client


async def test_a_used_client_is_told_at_once(api: API) -> None:
    client = await used(api, _NOBODY)
    for _ in range(2):
        async with asyncio.timeout(20):
            with pytest.raises(ternmq.CannotConnect, match="no broker at"):
                await client
            with pytest.raises(ternmq.CannotConnect, match="no broker at"):
                await client.__aenter__()
    await client.close(0)


async def test_a_used_client_finds_the_broker_at_once(api: API, real: InProcessBroker) -> None:
    async with Proxy(real.port) as proxy:
        proxy.refuse(on=True)
        client = await used(api, proxy.url)
        proxy.refuse(on=False)
        async with asyncio.timeout(20):
            await client
            assert (await client.send("t", b"2")).durable
        await client.close()


async def test_all_who_connect_at_a_time_are_told() -> None:
    async with asyncio.timeout(20):
        client = patient(AsyncAPI(), _NOBODY)
        told = await asyncio.gather(*[client.connect() for _ in range(3)], return_exceptions=True)
        assert [type(one) for one in told] == [ternmq.CannotConnect] * 3
        # Each has its own: an error that is raised in two tasks would have the frames of both.
        errors = [one for one in told if isinstance(one, ternmq.CannotConnect)]
        assert len({id(one) for one in errors}) == 3
        assert len({str(one) for one in errors}) == 1
        assert {type(one.__cause__) for one in errors} == {ConnectionRefusedError}
        await client.close()


async def test_whoever_goes_on_connecting_is_not_cancelled_with_another(
    real: InProcessBroker,
) -> None:
    async with asyncio.timeout(20), Proxy(real.port) as proxy:
        proxy.mute = True
        client = patient(AsyncAPI(), proxy.url)
        first, second = [asyncio.ensure_future(client.connect()) for _ in range(2)]
        await until(lambda: proxy.made == 1)
        proxy.mute = False
        first.cancel()
        await second
        assert first.cancelled()
        assert proxy.made == 2
        assert (await client.send("t", b"1")).durable
        await client.close()


async def test_whoever_waits_for_another_attempt_learns_of_the_end(real: InProcessBroker) -> None:
    async with asyncio.timeout(20), Proxy(real.port) as proxy:
        proxy.mute = True
        client = patient(AsyncAPI(), proxy.url)
        waiting = [asyncio.ensure_future(client.connect()) for _ in range(2)]
        await until(lambda: proxy.made == 1)
        await client.close()
        told = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(one) for one in told] == [ternmq.ClientClosed] * 2
