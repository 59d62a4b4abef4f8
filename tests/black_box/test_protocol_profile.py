"""What a broker runs while messages move, seen by a profiler: no msgpack for any of them."""

from __future__ import annotations

import os
import struct
import threading
from collections import Counter
from types import FrameType
from typing import Any, Self

import pytest

import ternmq.testing
from tests.black_box import stranger
from tests.black_box.stranger import (
    EXTEND,
    GROUP_JOIN,
    PING,
    READ,
    TOPIC_CREATE,
    TOPIC_LIST,
    Stranger,
)

MESSAGES = 50


class Profile:
    """Counts calls into msgspec, in every thread that begins while it is on."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()

    def __enter__(self) -> Self:
        threading.setprofile(self._event)
        return self

    def __exit__(self, *_: object) -> None:
        threading.setprofile(None)

    def _event(self, _frame: FrameType, event: str, called: Any) -> None:
        if event == "c_call":
            owner = getattr(called, "__self__", None)
            module = getattr(owner, "__module__", None) or type(owner).__module__
            name = f"{module}.{called.__name__}"
            if "msgspec" in name or "msgpack" in name:
                self.calls[called.__name__] += 1


@pytest.mark.row("A8")
def test_no_msgpack_for_sends_pulls_settles_extensions_and_reads() -> None:
    with (
        Profile() as profile,
        ternmq.testing.broker() as broker,
        Stranger(("127.0.0.1", broker.port)) as client,
    ):
        client.hello(client=os.urandom(16).hex())
        client.control(TOPIC_CREATE, topic="t", spec={"name": "t"})
        client.control(GROUP_JOIN, topic="t", group="g")
        assert profile.calls["decode"] >= 3, "the profiler sees control commands"
        profile.calls.clear()
        for number in range(MESSAGES):
            client.send("t", [b"%d" % number] * 3, 1, 3 * number)
            got = client.pull("t", "g", wait_ms=5000)
            client.ask(EXTEND, stranger.extend_body("t", "g", got, 60_000_000))
            assert client.settle("t", "g", got) == (len(got.rows), 0)
            body = client.ask(READ, stranger.read_body("t", 0, 3 * number))
            assert struct.unpack_from("<QQ", body, 8)[0] == 3 * number
            client.ask(PING)
        assert not profile.calls
        client.control(TOPIC_LIST)
        assert profile.calls
