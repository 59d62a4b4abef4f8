"""Requests that never become whole: what is kept of them is bounded, and so is their time."""

from __future__ import annotations

import contextlib
import socket
import time

from ternmq.testing import broker
from ternmq.wire import frames
from ternmq.wire.commands import Command
from tests.integration.raw import RawClient

MEMORY = 1 << 20
PART = 100 << 10
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
        unfinished = one._server.hub.ledgers.unfinished
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
        assert counters.cut_off["slow"] >= 40 - 2 * MEMORY // PART - 1
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
