"""Clients of a broker that does not lead are told who does; nonsense is sent away."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest

from ternmq.model.errors import Busy, NotPrimary
from ternmq.server.node import visitors
from ternmq.server.node.visitors import Porch
from ternmq.server.process.doorway import Doorway
from ternmq.wire import control, frames
from ternmq.wire.commands import Command
from ternmq.wire.segments import SegmentAsk
from ternmq.wire.session import ClientSession, Push, Refusal, ServerSession
from tests.unit.wire import examples

DEADLINE = 20.0
ROUTES = control.Routes(
    group="main",
    groups=[
        control.BrokerGroupRoute(
            name="main",
            journal=5,
            epoch=3,
            primary="a",
            brokers=[control.BrokerRoute(name="a", addresses=["host:1"], role="primary")],
        )
    ],
)


HTTP = "127.0.0.1:7118"
LENT: list[str] = []


def lend(transport: asyncio.Transport, session: ServerSession, address: str) -> None:
    """Answer a SEGMENT_READ as it is refused, and note who asked."""
    assert session.segment_read is not None
    LENT.append(address)
    transport.write(session.refuse(Busy("not now")))
    transport.close()


@asynccontextmanager
async def opened() -> AsyncIterator[int]:
    porch = Porch(
        lambda: "b does not lead; the primary is a at host:1", lambda: ROUTES, lend, lambda: HTTP
    )
    doorway = Doorway("127.0.0.1", 0)
    await porch.open(doorway, None)
    yield doorway.port
    await porch.close()
    doorway.close()


async def answered(port: int, data: bytes) -> bytes:
    """Send bytes; return everything that comes until the other side closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(data)
        async with asyncio.timeout(DEADLINE):
            return await reader.read()
    finally:
        writer.close()


def hello() -> control.Hello:
    return control.Hello(app="", token="", client="c" * 32, session=0, library="x", language="x")


async def test_hello_is_refused_and_the_primary_named() -> None:
    session = ClientSession()
    async with opened() as port:
        data = await answered(port, session.hello(hello()))
    (event,) = session.receive(data)
    assert isinstance(event, Refusal)
    assert isinstance(event.error, NotPrimary)
    assert event.error.refresh_routes
    assert "the primary is a at host:1" in str(event.error)


async def test_who_understands_routes_gets_them_before_the_refusal() -> None:
    session = ClientSession()
    greeting = msgspec.structs.replace(hello(), routes=True)
    async with opened() as port:
        push, event = session.receive(await answered(port, session.hello(greeting)))
    assert isinstance(push, Push)
    assert control.decode_answer(push.body, control.RoutesChanged).routes == ROUTES
    assert isinstance(event, Refusal)
    assert isinstance(event.error, NotPrimary)


async def test_who_gives_no_routes_refuses_all_the_same() -> None:
    doorway = Doorway("127.0.0.1", 0)
    porch = Porch(lambda: "b does not know yet", lambda: None, lend, str)
    await porch.open(doorway, None)
    session = ClientSession()
    greeting = msgspec.structs.replace(hello(), routes=True)
    (event,) = session.receive(await answered(doorway.port, session.hello(greeting)))
    assert isinstance(event, Refusal)
    await porch.close()
    doorway.close()


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n" * 3,
        b"\0" * 64,
        frames.pack(Command.PING, 0, 1, b""),
        b"\xff" * 5000,
    ],
    ids=["http", "zeros", "ping", "long"],
)
async def test_nonsense_ends_the_connection(data: bytes) -> None:
    async with opened() as port:
        await answered(port, data)
        assert await answered(port, ClientSession().hello(hello()))  # others are served


async def test_one_who_says_nothing_is_sent_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(visitors, "_PATIENCE_S", 0.05)
    async with opened() as port:
        session = ClientSession()
        session.hello(hello())
        (event,) = session.receive(await answered(port, b""))
        assert isinstance(event, Refusal)
        assert "no HELLO came in time" in str(event.error)


async def test_a_peer_of_another_protocol_is_told_so(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    async with opened() as port:
        head, _, text = (await answered(port, b"GET / HTTP/1.1\r\n\r\n")).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 400 ")
        assert f"HTTP, for metrics and health, is at http://{HTTP}\n".encode() in text
        told = await answered(port, b"\x16\x03\x01" + bytes(200))
        assert b"this broker has no TLS" in told
    http, tls = caplog.messages
    assert http.endswith(" broke the protocol: HTTP on the port for clients")
    assert " broke the protocol: a TLS handshake " in tls


async def test_there_are_not_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(visitors, "MOST", 2)
    async with opened() as port:
        held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
        assert await answered(port, ClientSession().hello(hello())) == b""
        for _, writer in held:
            writer.close()
        async with asyncio.timeout(DEADLINE):
            while not await answered(port, ClientSession().hello(hello())):  # noqa: ASYNC110
                await asyncio.sleep(0.01)


async def test_who_comes_while_nobody_accepts_is_served_by_the_next() -> None:
    doorway = Doorway("127.0.0.1", 0)
    first = Porch(lambda: "the first", lambda: None, lend, str)
    second = Porch(lambda: "the second", lambda: None, lend, str)
    await first.open(doorway, None)
    assert b"the first" in await answered(doorway.port, ClientSession().hello(hello()))
    await first.close()
    waiting = asyncio.create_task(answered(doorway.port, ClientSession().hello(hello())))
    await asyncio.sleep(0)
    await second.open(doorway, None)
    assert b"the second" in await waiting
    await second.close()
    doorway.close()
    with pytest.raises(OSError, match=r"refused|Connect"):
        await asyncio.open_connection("127.0.0.1", doorway.port)


@pytest.mark.parametrize("turns", range(5))
async def test_who_has_just_been_accepted_is_not_lost(turns: int) -> None:
    """asyncio forgets a socket that it has accepted when the server is closed: nobody closes it."""
    doorway = Doorway("127.0.0.1", 0)
    porch = Porch(lambda: "nobody", lambda: None, lend, str)
    await porch.open(doorway, None)
    with socket.create_connection(("127.0.0.1", doorway.port), DEADLINE) as peer:
        for _ in range(turns):
            await asyncio.sleep(0)
        await porch.close()
        doorway.close()
        with contextlib.suppress(ConnectionResetError):
            assert await asyncio.to_thread(peer.recv, 1) == b""
    gc.collect()  # an unclosed socket is a warning, and that is an error


async def test_a_port_that_is_taken_is_refused() -> None:
    doorway = Doorway("127.0.0.1", 0)
    with pytest.raises(OSError, match="in use"):
        Doorway("127.0.0.1", doorway.port)
    doorway.close()


async def test_another_broker_that_asks_for_records_is_handed_over():
    """It is no visitor from then on: it takes no place, and is not ended with the others."""
    LENT.clear()
    async with opened() as port:
        asking = SegmentAsk(1 << 16)
        answer = asking.receive(await answered(port, asking.ask(examples.SEGMENT_READ)))
    assert isinstance(answer, Refusal)
    assert isinstance(answer.error, Busy)
    assert LENT == ["127.0.0.1"]
