"""Clients that learn of brokers that their URL does not name, against fake brokers."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import pytest

import ternmq
import ternmq.sync
from ternmq.client.bulk import Bulk, BulkOptions
from ternmq.client.connection import session as sessions
from ternmq.client.connection.address import parse
from ternmq.model.errors import CannotConnect, NotPrimary, Unauthenticated
from ternmq.wire import control
from ternmq.wire.commands import Command
from ternmq.wire.session import Request
from tests.asynchronous import until
from tests.unit.client.fake import FakeBroker

JOURNAL = 77
DEADLINE = 20.0


def place(broker: FakeBroker) -> str:
    return broker.url.removeprefix("ternmq://")


def routes(primary: str, epoch: int, **places: str) -> control.Routes:
    brokers = [
        control.BrokerRoute(name=name, addresses=[at] if at else []) for name, at in places.items()
    ]
    route = control.BrokerGroupRoute(
        name="main", journal=JOURNAL, epoch=epoch, primary=primary, brokers=brokers
    )
    return control.Routes(group="main", groups=[route])


@asynccontextmanager
async def group(*names: str) -> AsyncIterator[list[FakeBroker]]:
    """Yield fake brokers of one group, of which the first leads and all know all."""
    brokers = [FakeBroker() for _ in names]
    for broker, name in zip(brokers, names, strict=True):
        broker.welcomes = {"broker": name, "routes": True, "journal": JOURNAL}
        await broker.__aenter__()
    places = {name: place(one) for name, one in zip(names, brokers, strict=True)}
    for one in brokers:
        one.routes, one.leads = routes(names[0], 1, **places), one is brokers[0]
    try:
        yield brokers
    finally:
        for one in brokers:
            await one.__aexit__()


def take_over(to: FakeBroker, brokers: list[FakeBroker], name: str, **places: str) -> None:
    """Have another broker lead; the connections to the others end."""
    for one in brokers:
        one.leads = one is to
        one.routes = routes(name, 2, **places)
        if one is not to:
            one.cut()


def _answer(body: bytes, request: Request) -> bytes:
    return body


def learned(client: ternmq.Client) -> list[str]:
    return [str(one) for one in client._session.known.learned]


async def test_no_send_waits_for_the_routes() -> None:
    asked: list[Request] = []
    async with group("a", "b") as (a, b):
        a.on[Command.ROUTES] = asked.append
        async with ternmq.connect(a.url) as client:
            await client.send("orders", b"1")
            await client.send("orders", b"2")
            assert len(asked) == 1
            assert learned(client) == []
            a.tell(asked[0], control.encode(a.routes or control.Routes()))
            await until(lambda: learned(client) == [b.url])
        assert a.hellos[0].routes is True
        assert not b.hellos


async def test_a_broker_that_offers_no_routes_is_not_asked() -> None:
    async with FakeBroker() as old:
        old.on[Command.ROUTES] = lambda request: pytest.fail("an older broker refuses ROUTES")
        async with ternmq.connect(old.url) as client:
            await client.send("orders", b"1")
            await client.send("orders", b"2")
            assert learned(client) == []


async def test_it_goes_on_at_a_broker_that_the_url_does_not_name() -> None:
    async with group("a", "b") as brokers:
        a, b = brokers
        async with ternmq.connect(a.url, timeout=DEADLINE) as client:
            await client.send("orders", b"1")
            await until(lambda: learned(client) == [b.url])
            take_over(b, brokers, "b", b=place(b))
            await client.send("orders", b"2")
            assert len(b.sends) == 1
            assert b.hellos[-1].session == 1, "the session goes on"
            take_over(a, brokers, "a", a=place(a))
            for one in brokers:
                one.routes = routes("a", 3, a=place(a))
            await client.send("orders", b"3")
            assert len(a.sends) == 2


async def test_the_first_connection_may_be_to_one_that_follows() -> None:
    async with group("a", "b") as (a, b):
        async with ternmq.connect(b.url, timeout=DEADLINE) as client:
            await client.send("orders", b"1")
        assert len(a.sends) == 1
        assert len(b.hellos) <= 2

        def blocking() -> None:
            with ternmq.sync.connect(b.url, timeout=DEADLINE) as client:
                client.send("orders", b"2")

        await asyncio.to_thread(blocking)
        assert len(a.sends) == 2


async def test_the_primary_by_the_routes_is_tried_first() -> None:
    async with group("a", "b", "c", "d") as brokers:
        a, b, c, d = brokers
        async with ternmq.connect(a.url, timeout=DEADLINE) as client:
            await client.send("orders", b"1")
            await until(lambda: len(learned(client)) == 3)
            places = {name: place(one) for name, one in zip("abcd", brokers, strict=True)}
            take_over(d, brokers, "d", **places)
            await client.send("orders", b"2")
            assert len(d.sends) == 1
            hellos = len(b.hellos) + len(c.hellos)
            assert hellos <= 2, "a, which was asked first, or one of these named d"


async def test_after_a_push_it_asks_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "_ROUTES_SPREAD_S", 0.01)
    async with group("a", "b", "c") as (a, b, c):
        a.routes = routes("a", 1, a=place(a), b=place(b))
        async with ternmq.connect(a.url) as client:
            await client.send("orders", b"1")
            await until(lambda: learned(client) == [b.url])
            a.routes = routes("a", 2, a=place(a), c=place(c))
            for _ in range(3):
                a.push(Command.ROUTES_CHANGED, control.RoutesChanged())
            await until(lambda: learned(client) == [c.url])


async def test_an_answer_that_cannot_be_read_changes_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with group("a", "b") as (a, _):
        for body in (b"", b"\xc1", b"\x91\x01", b"\x81\xa6groups\x05"):
            a.on[Command.ROUTES] = partial(_answer, body)
            caplog.clear()
            async with ternmq.connect(a.url) as client:
                await client.send("orders", b"1")
                await until(lambda: "cannot be read" in caplog.text)
                await client.send("orders", b"2")
                assert learned(client) == []
                assert client.stats().reconnects == 0


async def test_a_stranger_at_a_learned_address_gets_no_message() -> None:
    async with group("a", "b") as (a, b), FakeBroker() as stranger:
        stranger.welcomes = {"broker": "b", "routes": True, "journal": 5}
        a.routes = routes("a", 1, a=place(a), b=place(stranger))
        async with ternmq.connect(a.url, timeout=DEADLINE) as client:
            await client.send("orders", b"1")
            await until(lambda: learned(client) == [stranger.url])
            a.leads = False
            a.refusal = NotPrimary("not now")
            a.cut()
            sending = asyncio.ensure_future(client.send("orders", b"2"))
            await until(lambda: stranger.hellos)
            a.leads = True
            await sending
        assert not stranger.sends
        assert len(a.sends) == 2
        assert not b.hellos


async def test_a_refusal_at_a_learned_address_is_not_final() -> None:
    async with group("a", "b") as (a, b):
        b.refusal = Unauthenticated("this is not your broker")
        async with ternmq.connect(a.url, timeout=DEADLINE) as client:
            await client.send("orders", b"1")
            await until(lambda: learned(client) == [b.url])
            a.leads = False
            a.cut()
            sending = asyncio.ensure_future(client.send("orders", b"2"))
            await until(lambda: len(b.hellos) > 1, "it is tried again")
            a.leads = True
            await sending
        with pytest.raises(Unauthenticated):
            async with ternmq.connect(b.url, timeout=DEADLINE):
                pass


async def test_a_wrong_token_is_final_for_a_client_that_was_never_served() -> None:
    async with group("a", "b") as (a, b):
        a.leads = False
        b.refusal = Unauthenticated("the token is wrong")
        with pytest.raises(Unauthenticated, match="the token is wrong"):
            await ternmq.connect(a.url, timeout=DEADLINE)

        def send() -> None:
            with ternmq.sync.connect(a.url, timeout=DEADLINE) as client:
                client.send("orders", b"1")

        with pytest.raises(Unauthenticated, match="the token is wrong"):
            await asyncio.to_thread(send)


async def test_at_an_address_of_the_url_it_is_final() -> None:
    async with group("a", "b") as (a, b):
        b.refusal = Unauthenticated("your token was revoked")
        async with ternmq.connect(f"{a.url},{place(b)}", timeout=DEADLINE) as client:
            await client.send("orders", b"1")
            a.leads = False
            a.cut()
            with pytest.raises(ternmq.SendTimeout, match="your token was revoked"):
                await client.send("orders", b"2")
            assert len(b.hellos) == 1, "it was not tried until the timeout"


async def test_a_learned_primary_that_is_silent_costs_little() -> None:
    with socket.create_server(("127.0.0.1", 0)) as hole:
        there = f"127.0.0.1:{hole.getsockname()[1]}"
        async with group("a") as (a,):
            a.routes = routes("b", 1, a=place(a), b=there)
            patient = ternmq.Options(
                address=parse(a.url), timeout=DEADLINE, connect_timeout=10 * DEADLINE
            )
            async with ternmq.connect(options=patient) as client:
                await client.send("orders", b"1")
                await until(lambda: learned(client) == [f"ternmq://{there}"])
                first, *_ = client._session.in_order()
                assert str(first) == f"ternmq://{there}", "it is the first that is tried"
                a.cut()
                await client.send("orders", b"2")  # else it would wait for the silent one
                assert len(a.sends) == 2


async def test_the_bulk_client_learns_too() -> None:
    async with group("a", "b") as brokers:
        a, b = brokers
        spec = control.Topics(topics=[])
        for one in brokers:
            one.on[Command.TOPIC_LIST] = lambda request: control.encode(spec)

        bulk = Bulk(BulkOptions(url=a.url, first_backoff=0.01))

        def known() -> list[str]:
            return [str(one) for one in bulk._line._known.learned]

        def ask() -> None:
            bulk._line.ask(Command.TOPIC_LIST, control.encode(control.TopicList(names=["t"])))

        def learn() -> None:
            for _ in range(1000):
                ask()
                if known():
                    return

        await asyncio.to_thread(learn)
        assert known() == [b.url]
        asked = len(a.hellos)
        take_over(b, brokers, "b", b=place(b))
        await asyncio.to_thread(ask)
        assert b.hellos
        assert len(a.hellos) <= asked + 1
        await asyncio.to_thread(bulk.close)


async def test_the_bulk_client_finds_the_primary_from_one_that_follows() -> None:
    async with group("a", "b") as (a, b):
        a.on[Command.TOPIC_LIST] = lambda request: control.encode(control.Topics(topics=[]))

        def ask() -> None:
            bulk = Bulk(BulkOptions(url=b.url, first_backoff=0.01))
            bulk._line.ask(Command.TOPIC_LIST, control.encode(control.TopicList(names=["t"])))
            bulk.close()

        await asyncio.to_thread(ask)
        assert a.hellos


async def test_the_bulk_client_asks_again_after_a_push() -> None:
    async with group("a", "b", "c") as (a, b, c):
        a.routes = routes("a", 1, a=place(a), b=place(b))
        a.on[Command.TOPIC_LIST] = lambda request: control.encode(control.Topics(topics=[]))
        bulk = Bulk(BulkOptions(url=a.url))

        def ask_until_known(url: str) -> None:
            for _ in range(1000):
                bulk._line.ask(Command.TOPIC_LIST, control.encode(control.TopicList(names=["t"])))
                if [str(one) for one in bulk._line._known.learned] == [url]:
                    return

        await asyncio.to_thread(ask_until_known, b.url)
        a.routes = routes("a", 2, a=place(a), c=place(c))
        a.push(Command.ROUTES_CHANGED, control.RoutesChanged())
        await asyncio.to_thread(ask_until_known, c.url)
        assert [str(one) for one in bulk._line._known.learned] == [c.url]
        await asyncio.to_thread(bulk.close)


async def test_the_bulk_client_uses_no_stranger() -> None:
    async with group("a") as (a,), FakeBroker() as stranger:
        stranger.welcomes = {"broker": "b", "routes": True, "journal": 5}
        a.routes = routes("b", 1, a=place(a), b=place(stranger))
        a.leads = False
        bulk = Bulk(BulkOptions(url=a.url, tries=3, first_backoff=0.01))
        with pytest.raises((CannotConnect, NotPrimary)):
            await asyncio.to_thread(lambda: bulk._line.welcome)
        assert stranger.hellos
        bulk.close()


async def test_the_lease_keeper_learns_from_one_that_follows() -> None:
    async with group("a", "b") as (a, b):
        a.routes = routes("a", 1, a=place(a))
        async with ternmq.connect(a.url, timeout=DEADLINE) as client:
            await client.send("orders", b"1")
            keeper = client._keeper
            a.leads, b.leads = False, True
            a.routes = b.routes = routes("b", 2, b=place(b))
            with pytest.raises(NotPrimary):
                await asyncio.to_thread(keeper._connect)
            await asyncio.to_thread(keeper._connect)
            assert b.hellos[-1].auxiliary
            assert (
                client._session.known.in_order(client._session.address, stepped_down=False)[0]
                == keeper._at
            ), "the session goes there, too"
            keeper._hang_up()
            a.leads = True
