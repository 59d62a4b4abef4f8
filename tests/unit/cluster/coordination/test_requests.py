"""Requests to ZooKeeper: answers come from threads, late, wrong or never."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from kazoo.exceptions import BadVersionError, ConnectionLoss, SessionExpiredError

from ternmq.cluster.coordination.port import Unknown
from ternmq.cluster.coordination.requests import answer, asked

CONNECTED: Any = SimpleNamespace(connected=True)
AWAY: Any = SimpleNamespace(connected=False)


class Request:
    """A request as kazoo returns it; the test answers it, from a thread."""

    def __init__(self) -> None:
        self._said: Any = None
        self._call: Callable[[Any], None] | None = None

    def rawlink(self, callback: Callable[[Any], None]) -> None:
        self._call = callback

    def get(self) -> Any:
        if isinstance(self._said, Exception):
            raise self._said
        return self._said

    def say(self, what: Any) -> None:
        self._said = what
        assert self._call is not None
        thread = threading.Thread(target=self._call, args=(self,))
        thread.start()
        thread.join()


async def test_an_answer_is_returned() -> None:
    request = Request()
    waiting = asyncio.create_task(asked(CONNECTED, 30, lambda: answer(request)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    request.say("yes")
    assert await waiting == "yes"


async def test_without_a_connection_nothing_is_asked() -> None:
    async def ask() -> None:
        raise AssertionError("asked")

    assert isinstance(await asked(AWAY, 30, ask), Unknown)


@pytest.mark.parametrize("error", [ConnectionLoss(), SessionExpiredError(), OSError("broken")])
async def test_a_connection_that_ends_leaves_it_unknown(error: Exception) -> None:
    request = Request()

    async def ask() -> None:
        asyncio.get_running_loop().call_soon(request.say, error)
        await answer(request)

    outcome = await asked(CONNECTED, 30, ask)
    assert isinstance(outcome, Unknown)
    assert outcome.why.startswith(type(error).__name__)


async def test_an_error_that_is_an_answer_reaches_the_function() -> None:
    request = Request()

    async def ask() -> str:
        asyncio.get_running_loop().call_soon(request.say, BadVersionError())
        try:
            await answer(request)
        except BadVersionError:
            return "refused"
        return "made"

    assert await asked(CONNECTED, 30, ask) == "refused"


async def test_an_answer_that_does_not_come_is_unknown_and_may_come_later() -> None:
    request = Request()
    outcome = await asked(CONNECTED, 0.01, lambda: answer(request))
    assert isinstance(outcome, Unknown)
    assert "0.01 s" in outcome.why
    request.say("late")
    await asyncio.sleep(0)


def test_a_loop_that_closed_does_not_matter() -> None:
    request = Request()

    async def give_up() -> None:
        await asked(CONNECTED, 0.01, lambda: answer(request))

    asyncio.run(give_up())
    request.say("late")
