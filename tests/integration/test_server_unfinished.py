"""Requests that never become whole: what is kept of them is bounded, and so is their time."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import Callable

from ternmq.record.batch.batch import Row
from ternmq.testing import InProcessBroker, broker
from ternmq.wire import bodies, frames
from ternmq.wire.commands import Command
from tests.integration.raw import RawClient

MEMORY = 1 << 20
PART = 100 << 10
LARGE = frames.head(Command.SEND, 0, 9, 2 * MEMORY - PART)
HEAD = frames.head(Command.SEND, 0, 9, MEMORY)
DEADLINE_S = 30.0


def cut(sock: socket.socket) -> bool:
    """Tell whether the broker closed a connection."""
    sock.setblocking(False)
    try:
        return not sock.recv(1 << 16)
    except BlockingIOError:
        return False
    except OSError:
        return True


def test_together_they_are_bounded_and_others_go_on() -> None:
    with (
        broker(manual=False, settings={"memory": "1MiB"}) as one,
        contextlib.ExitStack() as stack,
    ):
        counters = one._server.hub.counters
        unfinished = one._server.hub.accounts.unfinished
        good = stack.enter_context(RawClient(one.port))
        slow = [stack.enter_context(RawClient(one.port)) for _ in range(40)]
        for peer in slow:
            with contextlib.suppress(OSError):  # it was cut off on the way
                peer.socket.sendall(HEAD + bytes(PART))
            assert good.send("orders", "a").stored == 1
            assert unfinished.held <= 2 * MEMORY + PART
        until = time.monotonic() + DEADLINE_S
        while sum(map(cut, [peer.socket for peer in slow])) < 40 - 2 * MEMORY // PART - 1:
            assert time.monotonic() < until
        assert counters.cut_off["slow"] + counters.cut_off["memory"] >= 40 - 2 * MEMORY // PART - 1
        assert cut(slow[0].socket), "who had been at it for longest went first"
        assert not cut(slow[-1].socket)
        assert good.send("orders", "b").stored == 1
        stack.close()
        while unfinished.held:
            assert time.monotonic() < until
            time.sleep(0.01)


def test_who_sends_a_byte_now_and_then_is_late_in_the_end() -> None:
    with (
        broker(manual=False, settings={"heartbeat": "1s"}) as one,
        RawClient(one.port) as slow,
    ):
        slow.socket.sendall(HEAD)
        until = time.monotonic() + DEADLINE_S
        with contextlib.suppress(OSError):
            while not cut(slow.socket):
                slow.socket.sendall(b"\0")
                assert time.monotonic() < until
                time.sleep(0.05)
        counters = one._server.hub.counters
        assert counters.cut_off["slow"] == 1


def in_loop(one: InProcessBroker, call: Callable[[], None]) -> None:
    """Do something in the broker's loop."""

    async def run() -> None:
        call()

    asyncio.run_coroutine_threadsafe(run(), one._loop).result(DEADLINE_S)


def until(done: Callable[[], bool]) -> None:
    """Wait until something is so."""
    end = time.monotonic() + DEADLINE_S
    while not done():
        assert time.monotonic() < end
        time.sleep(0.01)


def a_minute_later(one: InProcessBroker) -> None:
    """Have the broker look for what is not whole for too long."""
    hub = one._server.hub
    in_loop(one, lambda: hub.make_room(hub.core.loop.time() + 60))


def test_the_largest_body_may_take_its_time_while_no_other_app_holds_anything() -> None:
    with (
        broker(manual=False, settings={"memory": "2MiB", "body": "2MiB"}) as one,
        RawClient(one.port) as alone,
    ):
        hub = one._server.hub
        row = Row(b"x" * (2 * MEMORY))
        body = bodies.pack_send("orders", None, alone.batch("orders", [row]))
        id_, frame = alone.session.ask(Command.SEND, body)
        alone.socket.sendall(frame[:-1])
        until(lambda: hub.accounts.unfinished.held == len(frame) - 1)
        assert hub.accounts.unfinished.held > hub.accounts.unfinished.limit
        a_minute_later(one)
        alone.socket.sendall(frame[-1:])
        assert bodies.unpack_receipt(alone.wait(id_)).stored == 1
        assert not hub.counters.cut_off


def test_while_another_app_holds_something_it_may_not() -> None:
    with (
        broker(manual=False, settings={"memory": "1MiB"}) as one,
        RawClient(one.port, app="greedy") as greedy,
        RawClient(one.port, app="other") as other,
    ):
        hub = one._server.hub
        other.socket.sendall(HEAD + bytes(PART))
        greedy.socket.sendall(LARGE + bytes(MEMORY))
        until(lambda: hub.accounts.unfinished.held > MEMORY + PART)
        a_minute_later(one)
        until(lambda: cut(greedy.socket))
        assert not cut(other.socket)
        assert dict(hub.counters.cut_off) == {"slow": 1}


def test_who_is_not_slow_is_not_called_slow() -> None:
    large = LARGE + bytes(MEMORY + PART)
    with (
        broker(manual=False, settings={"memory": "1MiB"}) as one,
        RawClient(one.port) as first,
        RawClient(one.port) as second,
    ):
        counters = one._server.hub.counters
        for peer in (first, second):
            with contextlib.suppress(OSError):  # the first one is cut off on the way
                peer.socket.sendall(large)
        until(lambda: cut(first.socket))
        assert dict(counters.cut_off) == {"memory": 1}
        assert not cut(second.socket)
