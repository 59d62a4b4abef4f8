"""The client leaves the module ``random`` alone: an application may have seeded it."""

from __future__ import annotations

import random
import socket

import pytest

import ternmq


async def test_tries_to_connect_do_not_take_the_applications_random_numbers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    client = ternmq.connect(f"ternmq://127.0.0.1:{port}", timeout=0.2)
    before = random.getstate()
    with pytest.raises(ternmq.CannotConnect):
        await client.send("orders", b"1")
    assert random.getstate() == before
    await client.close()
