"""The server's own limits: bodies that do not end, sessions of many callers, errors of its own."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from ternmq.http.api import app as api_app
from ternmq.http.api import guard, pool
from ternmq.http.api.app import Api, Settings
from ternmq.http.api.call import Answer, Call, Route
from ternmq.http.api.credentials import Credential
from ternmq.http.api.pool import Pool
from ternmq.model.errors import Busy, ShuttingDown, Unauthenticated
from ternmq.model.units import Address
from ternmq.wire.commands import Command
from tests.asynchronous import until

NOWHERE = "ternmq://127.0.0.1:1"


@asynccontextmanager
async def served() -> AsyncIterator[tuple[Api, int]]:
    """Serve the routes; no broker is asked, as long as a route asks none."""
    api = Api(Settings(NOWHERE, Address("127.0.0.1", 0)))
    runner = web.AppRunner(api.application(), handler_cancellation=True, access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        yield api, runner.addresses[0][1]
    finally:
        await runner.cleanup()


async def answer(port: int, data: bytes) -> tuple[int, dict[str, object]]:
    """Send bytes, and return status and body of the answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(data)
        head = await reader.readuntil(b"\r\n\r\n")
        sizes = [one for one in head.split(b"\r\n") if one.lower().startswith(b"content-length")]
        body = await reader.readexactly(int(sizes[0].split(b":")[1]))
        return int(head.split()[1]), json.loads(body)
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


def posting(length: int, body: bytes) -> bytes:
    return (
        b"POST /v1/echo HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        b"Content-Length: %d\r\n\r\n" % length
    ) + body  # fmt: skip


@pytest.fixture
def echo(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the routes by one that answers the size of its body."""

    async def size(call: Call) -> Answer:
        if call.body == b"fail":
            raise RuntimeError("a mistake of ours")
        return Answer({"size": len(call.body)})

    route = Route("POST", "/v1/echo", (Command.STATUS,), "Echo.", size, (), bytes)
    monkeypatch.setattr(api_app, "ROUTES", (route,))


async def test_a_body_that_does_not_end(echo: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "BODY_S", 0.05)
    async with served() as (api, port):
        status, told = await answer(port, posting(100, b"half"))
        assert (status, told["title"]) == (408, "BodyTooSlow")
        assert api._guarding._held == 0
        assert await answer(port, posting(4, b"full")) == (200, {"size": 4})


async def test_bodies_of_all_have_a_limit_together(
    echo: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "BODIES_BYTES", 1000)
    async with served() as (api, port):
        slow, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(posting(900, b"x" * 800))
        await until(lambda: api._guarding._held == 800, "the first part was read")
        status, told = await answer(port, posting(300, b"y" * 300))
        assert (status, told["title"], told["retriable"]) == (429, "Busy", True)
        writer.write(b"x" * 100)
        assert (await slow.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
        assert await answer(port, posting(300, b"y" * 300)) == (200, {"size": 300})
        writer.close()
        await writer.wait_closed()


async def test_a_mistake_of_ours_is_in_the_log(
    echo: None, caplog: pytest.LogCaptureFixture
) -> None:
    async with served() as (_, port):
        status, told = await answer(port, posting(4, b"fail"))
    assert (status, told["detail"]) == (500, "an error of the server: see its log")
    assert str(told["request_id"]) in caplog.text
    assert "a mistake of ours" in caplog.text
    assert "a mistake of ours" not in json.dumps(told)


async def used(one: Pool, *names: str) -> None:
    for name in names:
        async with one.session(Credential(name, "token")):
            pass


async def test_a_credential_has_one_session_and_the_oldest_idle_one_goes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pool, "MOST", 2)
    one = Pool(NOWHERE, 1.0)
    async with one.session(Credential("a", "t")) as first, one.session(Credential("a", "t")) as two:
        assert first is two
        async with one.session(Credential("a", "other")) as three:
            assert three is not first, "another token is another caller"
            assert (three.client.options.app, three.client.options.token) == ("a", "other")
            with pytest.raises(Busy):
                await used(one, "b")
        await used(one, "b")
        assert len(one) == 2
        async with one.session(Credential("a", "t")) as again:
            assert again is first, "it was in use"
    await one.close()
    with pytest.raises(ShuttingDown):
        await used(one, "a")


async def test_no_identity_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERNMQ_APP", "admin")
    monkeypatch.setenv("TERNMQ_TOKEN", "secret")
    one = Pool("ternmq://admin:secret@127.0.0.1:1", 1.0)
    async with one.session(Credential("", "")) as nobody:
        assert (nobody.client.options.app, nobody.client.options.token) == ("", "")
    await one.close()


async def test_idle_sessions_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    one = Pool(NOWHERE, 1.0)
    await used(one, "a", "b")
    one.sweep()
    assert len(one) == 2
    monkeypatch.setattr(pool, "IDLE_S", -1.0)
    async with one.session(Credential("a", "token")):
        one.sweep()
        assert len(one) == 1, "one is in use"
    await one.close()


async def test_what_was_refused_is_refused_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    one = Pool(NOWHERE, 1.0)

    async def refused() -> None:
        async with one.session(Credential("a", "token")):
            raise Unauthenticated("the token is wrong")

    with pytest.raises(Unauthenticated, match="the token is wrong"):
        await refused()
    assert len(one) == 0
    with pytest.raises(Unauthenticated, match="the token is wrong"):
        await used(one, "a")
    await used(one, "b")
    monkeypatch.setattr(pool, "REFUSED_S", -1.0)
    with pytest.raises(Unauthenticated):
        await refused()
    await used(one, "b")
    await one.close()
