"""Which broker reads from a replica go to, against fake brokers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

import ternmq
from ternmq.client.connection import replica
from ternmq.client.connection.replica import ReplicaSession
from ternmq.model.errors import MessageNotFound, Unauthenticated
from ternmq.wire import bodies, control
from ternmq.wire.commands import Command
from ternmq.wire.session import Request
from tests.unit.client.connection.test_routes import JOURNAL, place
from tests.unit.client.fake import FakeBroker, Told

DEADLINE = 20.0


def routes(
    primary: str, epoch: int, brokers: dict[str, FakeBroker], **roles: str
) -> control.Routes:
    told = [
        control.BrokerRoute(
            name=name,
            addresses=[place(one)],
            role=roles.get(name, "primary" if name == primary else "member"),
        )
        for name, one in brokers.items()
    ]
    route = control.BrokerGroupRoute(
        name="main", journal=JOURNAL, epoch=epoch, primary=primary, brokers=told
    )
    return control.Routes(group="main", groups=[route])


@asynccontextmanager
async def group(*names: str, **roles: str) -> AsyncIterator[dict[str, FakeBroker]]:
    """Yield fake brokers of one group; the first one leads, the others serve readers."""
    brokers = {name: FakeBroker() for name in names}
    for name, one in brokers.items():
        one.welcomes = {"broker": name, "routes": True, "journal": JOURNAL}
        if name != names[0]:
            one.welcomes |= {"follows": True, "session": 90, "resumed": False}
        one.on[Command.FIND] = found
        await one.__aenter__()
    for one in brokers.values():
        one.routes = routes(names[0], 1, brokers, **roles)
    try:
        yield brokers
    finally:
        for one in brokers.values():
            await one.__aexit__()


def found(request: Request) -> Told:
    return MessageNotFound("none is kept")


async def read(client: ternmq.Client) -> str:
    """Look something up; return the name of the broker that was asked."""
    with pytest.raises(MessageNotFound):
        await client.get("orders", "own-1", from_="replica")
    session = client._replica or client._session
    assert session.welcome is not None
    return session.welcome.broker


def client_of(*brokers: FakeBroker) -> ternmq.Client:
    return ternmq.connect("ternmq://" + ",".join(map(place, brokers)), timeout=DEADLINE)


async def test_a_url_of_the_primary_leads_to_a_replica() -> None:
    async with group("a", "b") as brokers:
        client = client_of(brokers["a"])
        assert await read(client) == "b"
        assert [one.reads for one in brokers["a"].hellos] == [True]
        assert [one.reads for one in brokers["b"].hellos] == [True]
        assert await read(client) == "b"
        assert len(brokers["a"].hellos) == len(brokers["b"].hellos) == 1
        await client.close()


async def test_other_requests_go_to_the_primary() -> None:
    async with group("a", "b") as brokers:
        async with client_of(brokers["a"], brokers["b"]) as client:
            assert await read(client) == "b"
            await client.send("orders", b"1")
            with pytest.raises(MessageNotFound):
                await client.get("orders", "own-1")
        assert len(brokers["a"].sends) == 1
        # Not stated by a client that does not only read: the broker would take it for one.
        assert [one.reads is True for one in brokers["a"].hellos] == [False]


@pytest.mark.parametrize("role", ["follower", "primary"])
async def test_a_copy_that_does_not_count_is_not_asked(role: str) -> None:
    async with group("a", "b", b=role) as brokers:
        client = client_of(brokers["a"])
        assert await read(client) == "a"
        assert not brokers["b"].hellos
        await client.close()


async def test_it_is_asked_if_nobody_else_answers() -> None:
    async with group("a", "b", b="follower") as brokers:
        client = client_of(brokers["a"], brokers["b"])
        await brokers["a"].__aexit__()
        assert await read(client) == "b"
        await client.close()


async def test_a_replica_that_refuses_is_left_alone_for_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with group("a", "b") as brokers:
        a, b = brokers.values()
        b.leads = False  # it has no views yet
        client = client_of(a)
        for _ in range(20):
            assert await read(client) == "a"
        assert len(b.hellos) == 1
        assert client.behind() is None
        b.leads = True
        assert await read(client) == "a"
        monkeypatch.setattr(replica, "SEEK_S", 0.0)
        assert await read(client) == "b"
        await client.close()


async def test_a_replica_that_does_not_count_any_more_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with group("a", "b") as brokers:
        client = client_of(brokers["a"])
        assert await read(client) == "b"
        for one in brokers.values():
            one.routes = routes("a", 2, brokers, b="follower")
        assert await read(client) == "b"
        monkeypatch.setattr(replica, "SEEK_S", 0.0)
        assert await read(client) == "a"
        await client.close()


async def test_readers_are_spread_over_the_replicas() -> None:
    async with group("a", "b", "c", "d") as brokers:
        asked: set[str] = set()
        for _ in range(60):
            client = client_of(brokers["a"])
            asked.add(await read(client))
            await client.close()
        assert asked == {"b", "c", "d"}


async def test_a_session_of_a_replica_is_not_claimed_elsewhere() -> None:
    """Its number is another client's at the primary."""
    async with group("a", "b") as brokers:
        a, b = brokers.values()
        client = client_of(a, b)
        assert await read(client) == "b"
        b.leads = False
        b.cut()
        assert await read(client) == "a"
        assert b.welcomes["session"] not in {one.session for one in [*a.hellos, *b.hellos]}
        await client.close()


async def test_a_refusal_of_the_token_is_final() -> None:
    async with group("a", "b") as brokers:
        for one in brokers.values():
            one.leads, one.refusal = False, Unauthenticated("the token is wrong")
        client = client_of(*brokers.values())
        with pytest.raises(Unauthenticated):
            await client.get("orders", "own-1", from_="replica")
        await client.close()


async def test_an_older_broker_answers_as_before() -> None:
    async with FakeBroker() as old:
        old.on[Command.FIND] = found
        client = client_of(old)
        assert await read(client) == "fake"
        assert await read(client) == "fake"
        assert len(old.hellos) == 1
        assert client.behind() is None
        await client.close()


async def test_it_is_known_how_far_the_last_answer_was_behind() -> None:
    async with group("a", "b") as brokers:
        b = brokers["b"]

        def late(request: Request) -> Told:
            b.push(Command.BEHIND, control.Behind(behind_us=1_500_000))
            return found(request)

        b.on[Command.FIND] = late
        client = client_of(brokers["a"])
        assert client.behind() is None
        assert await read(client) == "b"
        assert client.behind() == timedelta(seconds=1.5)
        b.leads = False
        b.cut()
        assert await read(client) == "a"
        assert client.behind() is None
        await client.close()


async def test_many_readers_at_once_find_it_once() -> None:
    async with group("a", "b") as brokers:
        a, asked = brokers["a"], []

        def tell(request: Request) -> Told:
            asked.append(request)
            assert a.routes is not None
            return control.encode(a.routes)

        a.on[Command.ROUTES] = tell
        client = client_of(a)
        assert set(await asyncio.gather(*[read(client) for _ in range(30)])) == {"b"}
        assert len(a.hellos) == len(brokers["b"].hellos) == 1
        assert len(asked) <= 2  # as after each connection, and to decide
        await client.close()


async def test_requests_that_were_asked_are_repeated_when_a_replica_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One task finds a replica, while the read of another waits at the primary."""
    async with group("a", "b") as brokers:
        a, b = brokers.values()
        b.leads = False
        client = client_of(a)
        assert await read(client) == "a"
        asked = asyncio.Event()

        def waits(request: Request) -> Told:
            asked.set()
            return None

        a.on[Command.READ] = waits
        rows = bodies.rows_head(1, 0, 3, 3, 0, 3)
        b.on[Command.READ] = lambda _: rows
        session = client._replica
        assert isinstance(session, ReplicaSession)
        body = bodies.pack_read(bodies.Read("orders", 0, 3, 1, 0, 1000))
        waiting = asyncio.create_task(session.ask(Command.READ, body))
        await asked.wait()
        b.leads = True
        monkeypatch.setattr(replica, "SEEK_S", 0.0)
        assert await read(client) == "b"
        assert await asyncio.wait_for(waiting, DEADLINE) == rows
        await client.close()


async def test_one_that_only_reads_needs_no_other_session() -> None:
    """As the command line has it: everything goes to the replica."""
    async with group("a", "b") as brokers:
        options = client_of(brokers["a"]).options
        async with ternmq.Client(options, session=ReplicaSession(options)) as client:
            assert await read(client) == "b"
            with pytest.raises(MessageNotFound):
                await client.get("orders", "own-1")
            assert client.stats().connections_open == 1
        assert len(brokers["b"].hellos) == 1
