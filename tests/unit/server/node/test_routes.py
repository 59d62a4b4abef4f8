"""The routes that brokers of a group state: made of the record and announcements; in every role."""

from __future__ import annotations

import asyncio
from pathlib import Path

import ternmq
import ternmq.testing
from ternmq.cluster.coordination.group import Presence
from ternmq.cluster.coordination.memory import Register
from ternmq.cluster.coordination.record import Leadership, Member, Writer
from ternmq.cluster.coordination.wishes import Change, Order
from ternmq.model.types import Epoch
from ternmq.server.node.node import Node
from ternmq.server.node.routes import routes_of
from ternmq.wire import control
from ternmq.wire.commands import Command
from tests.asynchronous import until
from tests.unit.server.node.kit import has_member, node

DEADLINE = 30


def record(primary: str, *members: str) -> Leadership:
    return Leadership(
        version=9,
        writer=Writer("a", 1, 3),
        journal=5,
        epoch=Epoch(4),
        primary=primary,
        members=tuple(Member(one, 1) for one in members),
    )


def there(*names: str, tls: bool = False) -> dict[str, Presence]:
    return {name: Presence("main", name, 1, f"host-{name}:7117", tls) for name in names}


def test_roles_and_addresses() -> None:
    made = routes_of(
        "main", record("b", "a", "b"), there("b", "c", tls=True), up=True, writes_open=False
    )
    assert made.group == "main"
    (route,) = made.groups
    assert (route.journal, route.epoch, route.version) == (5, 4, 9)
    assert (route.primary, route.state, route.writes) == ("b", "up", "closed")
    assert [(one.name, one.role, one.addresses, one.tls) for one in route.brokers] == [
        ("a", "member", [], False),
        ("b", "primary", ["host-b:7117"], True),
        ("c", "follower", ["host-c:7117"], True),
    ]


def test_who_can_serve_has_a_place_among_many_and_they_fit_a_frame() -> None:
    names = [f"f{number:03}" for number in range(200)]
    long = {name: Presence("main", name, 1, "h" * 300) for name in names}
    made = routes_of("main", record("z", "y", "z"), long, up=False, writes_open=True)
    (route,) = made.groups
    assert len(route.brokers) == control.MAX_BROKERS
    assert {"y", "z"} <= {one.name for one in route.brokers}
    assert route.state == "down"
    assert len(control.encode(control.RoutesChanged(routes=made))) < 60_000


async def asked(client: ternmq.Client) -> control.Routes:
    return await client._session.control(Command.ROUTES, control.RoutesAsk(), control.Routes)


async def switch(led: Node, to: str) -> None:
    """Ask a primary to hand over, as an operator does."""
    epoch = led.sight.record.epoch if led.sight.record is not None else 0
    order = Order(change=Change.SWITCH, broker=to, epoch=Epoch(epoch))
    await led.sight.group.put_order(order)


async def test_a_pair_and_a_client_that_knows_one_of_them(tmp_path: Path) -> None:
    register = Register()
    a, b = (node(tmp_path / name, register, name) for name in "ab")
    running: list[asyncio.Task[int]] = []
    try:
        await a.start()
        running.append(asyncio.create_task(a.run()))
        await until(lambda: a.server is not None, "a leads", DEADLINE)
        assert a.server is not None
        token = (tmp_path / "a" / "admin.token").read_text().strip()
        url = f"ternmq://admin:{token}@127.0.0.1:{a.port}"
        async with ternmq.connect(url, timeout=DEADLINE) as client:
            await client.admin.create_topic("orders")
            known = client._session.known
            first = await asked(client)
            (route,) = first.groups
            assert (first.group, route.primary, route.state) == ("main", "a", "up")
            assert [(one.name, one.role) for one in route.brokers] == [("a", "primary")]
            assert [one.addresses for one in route.brokers] == [[str(a.address)]]
            assert list(known.learned) == []

            await b.start()
            running.append(asyncio.create_task(b.run()))
            await until(lambda: has_member(a), "b is a member", DEADLINE)
            await until(lambda: [one.port for one in known.learned] == [b.port], "pushed", DEADLINE)
            await client.send("orders", b"1")
            await switch(a, "b")
            await until(lambda: b.server is not None, "b leads", DEADLINE)
            await client.send("orders", b"2")
            assert client._session.address.port == b.port
            (route,) = (await asked(client)).groups
            assert (route.primary, route.state) == ("b", "up")
            assert {one.name for one in route.brokers} == {"a", "b"}

            # A new client, whose URL names the broker that follows now.
            async with ternmq.connect(url, timeout=DEADLINE) as other:
                await other.send("orders", b"3")
                assert other._session.address.port == b.port
            found = [one.body async for one in client.read("orders")]
            assert found == [b"1", b"2", b"3"]
    finally:
        for one in (a, b):
            one.stopping.set()
        if running:
            await asyncio.wait(running, timeout=DEADLINE)
    assert [one.result() for one in running] == [0, 0]


async def test_a_broker_alone_states_itself() -> None:
    with ternmq.testing.broker() as alone:
        async with ternmq.connect(alone.url) as client:
            await client.admin.create_topic("orders")
            made = await asked(client)
            (route,) = made.groups
            (one,) = route.brokers
            assert (made.cluster, made.generation, route.journal) == ("", 0, 0)
            assert (route.primary, one.role) == (one.name, "primary")
            assert one.addresses == [alone.url.removeprefix("ternmq://")]
            welcome = client._session.welcome
            assert welcome is not None
            assert not welcome.routes
            assert welcome.journal == 0
            assert list(client._session.known.learned) == []
