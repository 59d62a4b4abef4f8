"""ZooKeeper as coordinator."""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit

import kazoo.client
import pytest

from ternmq.cli import main
from ternmq.cli.terminal.exits import ExitCode
from ternmq.cluster.coordination.opening import open_coordinator
from ternmq.cluster.coordination.port import Coordinator, Stored, Swapped, Unknown
from ternmq.cluster.coordination.resolving import change
from ternmq.cluster.coordination.zookeeper import ZooKeeperCoordinator
from tests import coordinators
from tests.asynchronous import until, until_true
from tests.coordinators import Server
from tests.integration.cluster.contract import KEY, Contract, newest, record
from tests.integration.cluster.faults import Faults
from tests.integration.cluster.stores import ZooKeeperStore, ready, shows, views

CHANGES = 30


@pytest.fixture
def server(zookeeper: Server) -> Server:
    return zookeeper


@pytest.fixture
def store(server: Server) -> ZooKeeperStore:
    return ZooKeeperStore(server.url)


class TestZooKeeper(Contract, Faults):
    """The contract, and faults."""


def expire(one: ZooKeeperCoordinator, hosts: str) -> None:
    """End a session, by a second client that has the same."""
    other = kazoo.client.KazooClient(hosts, client_id=one._client.client_id)
    other.start()
    other.stop()
    other.close()


def test_commands_ask_it_at_once(store: ZooKeeperStore, capsys: pytest.CaptureFixture[str]) -> None:
    """A command does not live long: its first question waits for the connection."""
    assert main.run(["cluster", "init", "--cluster", store.url]) == 0
    assert "it works: changed, read and announced" in capsys.readouterr().out
    assert main.run(["cluster", "status", "--cluster", store.url]) == ExitCode.NOT_FOUND
    assert "the coordinator has no broker group 'main'" in capsys.readouterr().err
    assert main.run(["broker", "list", "--cluster", store.url]) == 0
    assert "no broker runs with this coordinator" in capsys.readouterr().err


async def test_what_a_session_announced_is_announced_by_the_next(
    store: ZooKeeperStore, caplog: pytest.LogCaptureFixture
) -> None:
    async with views(store, 2) as (one, watcher):
        heard: list[int] = []
        await change(watcher, KEY, record(1))
        one.watch(KEY, lambda: heard.append(1))
        await one.announce("a", b"1")
        session = one._client.client_id
        await asyncio.to_thread(expire, one, urlsplit(store.url).netloc)

        async def again() -> bool:
            return bool(
                one._client.client_id != session and await watcher.announced() == {"a": b"1"}
            )

        await until_true(again)
        before = len(heard)
        assert await change(one, KEY, record(2)) == Swapped(2)
        await until(lambda: len(heard) > before, "a hint in the new session")
        assert "the session with ZooKeeper ended" in caplog.text


async def test_a_name_that_another_process_took_is_not_taken_back(
    store: ZooKeeperStore, caplog: pytest.LogCaptureFixture
) -> None:
    async with views(store, 2) as (one, watcher):
        await one.announce("a", b"1")
        async with views(store, 1) as (two,):
            await two.announce("a", b"2")
            await until(lambda: "another process announced the name a" in caplog.text)
            session = one._client.client_id
            await asyncio.to_thread(expire, one, urlsplit(store.url).netloc)
            await ready(one)
            await until(lambda: one._client.client_id not in {None, session})
            assert await watcher.announced() == {"a": b"2"}
        await shows(watcher, {"a": b"1"})


async def test_a_node_that_somebody_removes_is_made_again(store: ZooKeeperStore) -> None:
    async with views(store, 1) as (one,):
        await one.announce("a", b"1")
        await asyncio.to_thread(store.do, lambda client: client.delete("/ternmq/announced/a"))
        await shows(one, {"a": b"1"})


async def test_nodes_that_no_broker_makes_are_left_out(store: ZooKeeperStore) -> None:
    async with views(store, 1) as (one,):
        await one.announce("a", b"1")
        store.plant("announced/not a name", b"x")
        store.plant("announced/large", b"x" * 70_000)
        await shows(one, {"a": b"1"})


async def test_an_account_has_its_nodes_for_itself(store: ZooKeeperStore, server: Server) -> None:
    url = f"zk://user:p%40ss:word@127.0.0.1:{server.port}/ternmq/own"
    one = await open_coordinator(url)
    try:
        await ready(one)
        assert await one.create(KEY, b"x") == Swapped(1)
        assert await one.read(KEY) == Stored(b"x", 1)
        async with views(store, 1, url=f"{store.url}/own") as (other,):
            answer = await other.swap(KEY, 1, b"y")
            assert isinstance(answer, Unknown)
            assert "NoAuth" in answer.why
        assert await one.read(KEY) == Stored(b"x", 1)
    finally:
        await one.close()


@pytest.mark.slow
@pytest.mark.timeout(240)
async def test_a_leader_that_is_killed_loses_no_change() -> None:
    with coordinators.zookeeper(3) as servers:
        if servers is None:
            pytest.skip("needs ZooKeeper and a Java")
        hosts = ",".join(f"127.0.0.1:{one.port}" for one in servers)
        store = ZooKeeperStore(f"zk://{hosts}/ternmq")
        won: list[int] = []

        async def write(name: str, one: Coordinator) -> None:
            mine = 0
            while mine < CHANGES:
                found = await one.read(KEY)
                if not isinstance(found, Stored):
                    await asyncio.sleep(0.01)
                    continue
                new = record(found.version + 1, name)
                outcome = await change(one, KEY, new)
                while isinstance(outcome, Unknown):
                    await asyncio.sleep(0.01)
                    outcome = await change(one, KEY, new)
                if isinstance(outcome, Swapped):
                    won.append(outcome.version)
                    mine += 1

        async with views(store, 3, deadline_s=2.0) as made:
            await change(made[0], KEY, record(1))
            writers = [
                asyncio.create_task(write(f"b{number}", one)) for number, one in enumerate(made)
            ]
            await until(lambda: len(won) > CHANGES, seconds=60)
            (leader,) = [one for one in servers if coordinators.leads(one)]
            leader.kill()
            await asyncio.gather(*writers)
            assert sorted(won) == list(range(2, 2 + 3 * CHANGES))
            assert (await newest(made[0])).version == 1 + 3 * CHANGES
