"""A blocking client whose ``with`` block was never entered leaves no thread behind."""

from __future__ import annotations

import socket
import threading

import pytest

import ternmq.sync


def loops() -> set[threading.Thread]:
    return {one for one in threading.enumerate() if one.name == "ternmq-loop"}


def nowhere() -> str:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return f"ternmq://127.0.0.1:{taken.getsockname()[1]}"


def test_a_block_that_cannot_be_entered_ends_its_thread() -> None:
    before = loops()
    client = ternmq.sync.connect(nowhere(), timeout=0.2)
    for _ in range(2):  # it can be tried again
        with pytest.raises(ternmq.CannotConnect), client:
            raise AssertionError("it was entered")
        assert loops() <= before


def test_a_client_that_was_used_before_goes_on() -> None:
    client = ternmq.sync.connect(nowhere(), timeout=0.2)
    with pytest.raises(ternmq.CannotConnect):
        client.send("orders", b"1")
    with pytest.raises(ternmq.CannotConnect), client:
        raise AssertionError("it was entered")
    with pytest.raises(ternmq.CannotConnect):
        client.send("orders", b"2")
    client.close()
