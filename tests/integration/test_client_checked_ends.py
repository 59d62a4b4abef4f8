"""How a block ends while one of its steps, or its commit, is under way."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import ternmq
import ternmq.sync
from ternmq import Decision
from ternmq.client.connection.link import Link
from ternmq.client.transaction.steps import Steps
from ternmq.testing import InProcessBroker
from ternmq.wire.commands import Command
from tests.asynchronous import until, until_true
from tests.integration.proxy import Proxy
from tests.integration.test_client_checked import GROUP, taken, unknowing

pytestmark = pytest.mark.row("J0a")


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Hold back every step but the first of each transaction until it is set."""
    prepare, free = Steps.prepare, asyncio.Event()
    seen: list[Steps] = []

    async def waits(self: Steps, *words: Any) -> Any:
        if seen:
            await free.wait()
        seen.append(self)
        return await prepare(self, *words)

    monkeypatch.setattr(Steps, "prepare", waits)
    return free


async def test_a_block_that_fails_while_a_step_is_under_way_is_not_left_to_its_checker(
    real: InProcessBroker, held: asyncio.Event
) -> None:
    """The step may fail: the checker would commit a part."""
    client = ternmq.connect(real.url)
    unknowing(client)
    async with client:
        tx = client.transaction(GROUP, on_error="check")
        step: list[asyncio.Task[Any]] = []

        async def fails() -> None:
            async with tx:
                await tx.send("t", b"1")
                step.append(asyncio.create_task(tx.send("t", b"2")))
                await asyncio.sleep(0)
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await fails()
        assert await client.transaction_outcome(tx.id) is Decision.ROLLBACK
        held.set()
        with pytest.raises(ternmq.TernMQError):
            await step[0]
        assert await taken(client, "t") == []


async def test_a_client_that_is_closed_while_a_step_is_under_way_rolls_back(
    real: InProcessBroker, held: asyncio.Event
) -> None:
    async with ternmq.connect(real.url) as other:
        client = ternmq.connect(real.url)
        unknowing(client)
        tx = client.transaction(GROUP, on_error="check")

        async def sends() -> None:
            async with tx:
                await tx.send("t", b"1")
                await tx.send("t", b"2")

        task = asyncio.create_task(sends())
        await until(lambda: tx._busy and tx.id != "")
        await client.close()
        held.set()
        with pytest.raises(ternmq.TernMQError):
            await task
        assert await other.transaction_outcome(tx.id) is Decision.ROLLBACK


@pytest.mark.parametrize("ends", ["closed", "refused"])
async def test_a_commit_that_was_sent_has_an_unknown_outcome_whatever_comes_then(
    real: InProcessBroker, ends: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a client that is closed, nor a broker that refuses it, says what became of it."""
    async with Proxy(real.port) as proxy, ternmq.connect(real.url) as other:
        client = ternmq.connect(proxy.url, timeout=30)
        unknowing(client)
        tx = client.transaction(GROUP)

        async def commits() -> None:
            async with tx:
                await tx.send("t", b"1")
                proxy.mute = True
                await tx.commit()

        task = asyncio.create_task(commits())
        await until(lambda: tx.id != "")
        deadline = asyncio.get_running_loop().time() + 30
        while await other.transaction_outcome(tx.id) is None:
            assert asyncio.get_running_loop().time() < deadline
            await asyncio.sleep(0.01)
        if ends == "closed":
            proxy.refuse(on=True)
        else:

            async def refused() -> None:
                raise ternmq.Unauthenticated("the token was changed")

            monkeypatch.setattr(client._session, "_open", refused)
        proxy.cut()
        if ends == "closed":
            await until(lambda: client._session.link is None)
            await client.close()
        with pytest.raises(ternmq.OutcomeUnknown) as caught:
            await task
        assert caught.value.transaction_id == tx.id
        assert await other.transaction_outcome(tx.id) is Decision.COMMIT
        await client.close()


async def test_a_refusal_is_told_rather_than_a_last_try_without_an_answer(
    real: InProcessBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker takes most of the time to refuse: another try would end without an answer."""
    ask = Link.ask

    def refused_late(self: Link, command: Command, body: bytes, asker: Any) -> None:
        if command is Command.TRANSACTION_PREPARE:
            loop = asyncio.get_running_loop()
            loop.call_later(0.3, asker.refused, ternmq.Busy("there are as many as may be"))
        else:
            ask(self, command, body, asker)

    async with ternmq.connect(real.url) as client:
        unknowing(client)
        monkeypatch.setattr(Link, "ask", refused_late)
        tx = client.transaction(GROUP, timeout=0.5)
        with pytest.raises(ternmq.Busy, match="as many as may be"):
            async with tx:
                await tx.send("t", b"1")


@pytest.mark.row("J0a", "J0c")
async def test_a_question_may_come_before_the_answer_to_the_opening(
    real: InProcessBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an outage: the client does not know yet that the question is about its own block."""
    called: list[str] = []
    prepare = Steps.prepare
    async with ternmq.connect(real.url) as other, ternmq.connect(real.url) as client:

        async def asked() -> bool:
            return any(one.attempt > 0 for one in await other.admin.checked_transactions())

        async def late(self: Steps, *words: Any) -> Any:
            answers = await prepare(self, *words)
            if not words[1]:  # it was the opening
                await until_true(asked, "the broker asked")
            return answers

        monkeypatch.setattr(Steps, "prepare", late)

        @client.checker(GROUP)
        def check(tx: ternmq.sync.PreparedTransaction) -> Decision:
            called.append(tx.id)
            return Decision.COMMIT

        async with client.transaction(GROUP, check_after=1) as tx:
            await tx.send("t", b"1")
            await tx.send("t", b"2")
        assert called == []
        assert await taken(client, "t") == [b"1", b"2"]
