"""Answers that nobody takes: counted over all connections, and what waits for them to be taken."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

from ternmq.record.batch.batch import Row
from ternmq.testing import InProcessBroker, broker
from ternmq.wire import bodies, control
from ternmq.wire.commands import Command
from tests.asynchronous import until
from tests.integration.raw import RawClient, texts

MUCH = 1 << 40


def in_loop(one: InProcessBroker, call: Callable[[], None]) -> None:
    """Do something in the broker's loop."""

    async def run() -> None:
        call()

    asyncio.run_coroutine_threadsafe(run(), one._loop).result(20)


def test_while_answers_are_too_many_sends_and_settles_go_on(timed: InProcessBroker) -> None:
    core, accounts = timed._server.core, timed._server.hub.accounts

    def fill() -> None:
        accounts.by_app[""].unwritten.take(MUCH)

    def empty() -> None:
        accounts.by_app[""].unwritten.take(-MUCH)
        core.touch()

    with RawClient(timed.port) as client, RawClient(timed.port) as other:
        client.send("orders", "a", "b")
        client.join("orders", "billing")
        held = client.pull("orders", "billing", 1)
        client.create("prices")
        client.join("prices", "billing")
        parked = client.ask_pull("prices", "billing", wait_ms=300_000)
        follower = client.ask(
            Command.READ, bodies.pack_read(bodies.Read("prices", 0, 0, 10, 0, 300_000))
        )
        client.call(Command.PING)
        in_loop(timed, fill)
        pull = client.ask_pull("orders", "billing")
        read = client.ask(Command.READ, bodies.pack_read(bodies.Read("orders", 0, 0, 10, 0, 0)))
        find = client.ask(Command.FIND, control.encode(control.Find(topic="orders", offset=0)))
        assert client.send("orders", "c").first_offset == 2
        assert client.settle("orders", "billing", held).rows == 1
        other.send("prices", "d")
        client.call(Command.PING)
        assert not client.answers, "pulls, reads and look-ups wait"
        in_loop(timed, empty)
        assert texts(bodies.unpack_delivery(client.wait(pull))) == {1: "b", 2: "c"}
        assert bodies.unpack_rows(client.wait(read)).stop == 3
        client.wait(find)
        woken = bodies.unpack_delivery(client.wait(parked))
        assert texts(woken) == {0: "d"}
        assert [run.attempt for run in woken.runs] == [1]
        assert bodies.unpack_rows(client.wait(follower)).stop == 1
        assert accounts.unwritten.held == 0
    assert accounts.pending.held == 0


async def test_what_frozen_peers_hold_is_counted_and_forgotten_with_them() -> None:
    settings = {"send_buffer": "64KiB", "stall_timeout": "5s"}
    with broker(manual=False, settings=settings) as one:
        accounts = one._server.hub.accounts
        with RawClient(one.port) as client:
            rows = [Row(b"x" * 1000) for _ in range(800)]
            client.call(
                Command.SEND, bodies.pack_send("orders", None, client.batch("orders", rows))
            )
            frozen = [RawClient(one.port) for _ in range(3)]
            read = bodies.pack_read(bodies.Read("orders", 0, 0, 1000, 0, 0))
            for peer in frozen:
                peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                frames = [peer.session.ask(Command.READ, read)[1] for _ in range(30)]
                peer.socket.sendall(b"".join(frames))

            def told() -> float:
                status = client.manage(Command.STATUS, control.StatusAsk(), control.Status)
                return status.metrics["ternmq_unwritten_bytes"]

            await until(lambda: told() > 3 * 64 * 1024, "answers pile up", 30)
            for peer in frozen:
                peer.close()
            await until(lambda: accounts.unwritten.held == 0, "nothing is left of them", 30)
        await until(lambda: accounts.pending.held == 0)
