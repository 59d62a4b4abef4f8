"""A coroutine of an asyncio client that a thread made and nobody awaits is not missed."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import traceback
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from unittest import mock

import pytest

import ternmq
import ternmq.sync
from ternmq.testing import InProcessBroker
from tests.asynchronous import until, until_true

ONCE = ternmq.RetryPolicy(first=0.0, attempts=1, jitter=0)


async def reasons_of(handle: Callable[[ternmq.Client, int], object], url: str) -> list[str]:
    """Run a `def` handler of an asyncio client on one message; return why that is dead, if so."""
    client = ternmq.connect(url)

    @client.handler("numbers", group="g", retry=ONCE)
    def handler(number: int) -> object:
        return handle(client, number)

    running = asyncio.ensure_future(client.run())
    async with ternmq.connect(url) as other:
        await other.send("numbers", 5)

        async def is_through() -> bool:
            assert not running.done(), "the worker ended"
            with contextlib.suppress(ternmq.UnknownGroup):
                queue = (await other.admin.group("numbers", "g")).queues[0]
                return queue.lag == 0 or queue.dead == 1
            return False

        await until_true(is_through)
        client.stop()
        await running
        dead = [one async for one in other.deadletters.browse("numbers", "g")]
        return [one.failures[-1].reason for one in dead]


SENT = "WrongEventLoop: client.send() was called in a thread and not awaited: nothing was done"


def forgets(client: ternmq.Client, number: int) -> None:
    client.send("forwarded", number)  # type: ignore[unused-coroutine]


def keeps_it_until_its_end(client: ternmq.Client, number: int) -> None:
    sent = client.send("forwarded", number)
    assert sent is not None


def asks_admin(client: ternmq.Client, number: int) -> None:
    client.admin.create_topic(f"t-{number}")  # type: ignore[unused-coroutine]


@pytest.mark.parametrize(
    ("handle", "reason"),
    [
        (forgets, SENT),
        (keeps_it_until_its_end, SENT),
        (asks_admin, SENT.replace("client.send", "client.admin.create_topic")),
        (
            lambda client, number: client.send("forwarded", number),
            "TypeError: the handler returned",
        ),
    ],
    ids=["forgotten", "kept", "admin", "returned"],
)
async def test_a_def_handler_that_sends_without_await_has_failed(
    handle: Callable[[ternmq.Client, int], object], reason: str, real: InProcessBroker
) -> None:
    (told,) = await reasons_of(handle, real.url)
    assert told.startswith(reason)


async def test_a_def_handler_sends_by_the_loop(real: InProcessBroker) -> None:
    loop = asyncio.get_running_loop()
    soon: list[Future[ternmq.Receipt]] = []

    def handle(client: ternmq.Client, number: int) -> None:
        receipt = asyncio.run_coroutine_threadsafe(client.send("forwarded", number), loop).result()
        assert receipt.offset == 0
        soon.append(asyncio.run_coroutine_threadsafe(client.send("forwarded", number + 1), loop))

    assert await reasons_of(handle, real.url) == []
    assert (await asyncio.wrap_future(soon[0])).offset == 1
    async with ternmq.connect(real.url) as other:
        assert [one.value async for one in other.read("forwarded")] == [5, 6]


async def test_another_thread_that_forgets_to_await_is_logged(
    real: InProcessBroker, caplog: pytest.LogCaptureFixture
) -> None:
    async with ternmq.connect(real.url) as client:
        await client.send("numbers", 1)
        await asyncio.to_thread(forgets, client, 5)
        assert "client.send() was called in a thread and not awaited" in caplog.text
        assert "ternmq.sync.connect()" in caplog.text
        assert f"it was called in forgets, {__file__}:" in caplog.text


async def test_the_log_shows_the_line_that_is_not_awaited_and_no_library(
    real: InProcessBroker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "ternmq")
    (told,) = await reasons_of(keeps_it_until_its_end, real.url)
    (failed,) = [one for one in caplog.records if "failed, attempt 1 of 1" in one.getMessage()]
    assert failed.exc_info is not None
    shown = "".join(traceback.format_exception(*failed.exc_info))
    line = keeps_it_until_its_end.__code__.co_firstlineno + 1
    assert f'  File "{__file__}", line {line}, in keeps_it_until_its_end\n' in shown
    assert '    sent = client.send("forwarded", number)' in shown
    assert "client/handler/handlers.py" not in shown
    assert f"in keeps_it_until_its_end, {__file__}:{line}" in told


def test_mocks_still_know_what_is_awaited() -> None:
    client = mock.create_autospec(ternmq.Client)
    assert isinstance(client.send, mock.AsyncMock)
    assert not isinstance(mock.create_autospec(ternmq.sync.Client).send, mock.AsyncMock)


async def test_the_next_handler_call_of_the_thread_is_not_blamed(real: InProcessBroker) -> None:
    client = ternmq.connect(real.url)
    done: list[int] = []

    @client.lifespan
    async def around() -> AsyncIterator[None]:
        yield

    @client.handler("numbers", group="g", retry=ONCE, concurrency=1)
    def handler(number: int) -> None:
        if number == 0:
            client.send("forwarded", number)  # type: ignore[unused-coroutine]
            raise ValueError("after it")
        done.append(number)

    running = asyncio.ensure_future(client.run())
    async with ternmq.connect(real.url) as other:
        await other.send_many("numbers", [0, 1])
        await until(lambda: done == [1])
        client.stop()
        await running
        (dead,) = [one async for one in other.deadletters.browse("numbers", "g")]
        assert dead.failures[-1].reason == "ValueError: after it"
