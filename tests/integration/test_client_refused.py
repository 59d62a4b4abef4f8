"""Steps and decisions of transactions that the broker refuses or does not answer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import pytest

import ternmq
from ternmq import Decision
from ternmq.broker.checkback.checking import Checking
from ternmq.testing import InProcessBroker
from tests.asynchronous import until_true
from tests.integration.client_shapes import API
from tests.integration.proxy import Proxy
from tests.integration.test_client_checked import GROUP, taken, unknowing


@contextmanager
def refusing(command: str, error: ternmq.TernMQError, times: int = 1) -> Iterator[None]:
    """Have the broker refuse the next uses of a command of transactions."""
    left = times
    before = getattr(Checking, command)

    def run(self: Any, *args: Any, **more: Any) -> Any:
        nonlocal left
        if left:
            left -= 1
            raise error
        return before(self, *args, **more)

    with patch.object(Checking, command, run):
        yield


async def test_after_a_refused_commit_the_block_rolls_back(api: API, real: InProcessBroker) -> None:
    client = api.connect(real.url)
    unknowing(client)
    async with client:
        tx = client.transaction(GROUP)

        async def commits() -> None:
            async with tx:
                await tx.send("t", b"1")

        with refusing("decide", ternmq.Forbidden("no")), pytest.raises(ternmq.Forbidden):
            await commits()
        assert await client.transaction_outcome(tx.id) is Decision.ROLLBACK


async def test_a_refused_commit_may_be_tried_again(api: API, real: InProcessBroker) -> None:
    client = api.connect(real.url)
    unknowing(client)
    async with client, client.transaction(GROUP) as tx:
        await tx.send("t", b"1")
        with refusing("decide", ternmq.Forbidden("no")), pytest.raises(ternmq.Forbidden):
            await tx.commit()
        assert await tx.commit() == 1
        assert await taken(client, "t") == [b"1"]


async def test_what_a_transaction_may_not_settle_is_still_held(
    api: API, real: InProcessBroker
) -> None:
    client = api.connect(real.url)
    unknowing(client)
    async with client:
        await client.send_many("in", [b"1", b"2"])
        one, two = await client.pull("in", group="g", wait=5)
        async with client.transaction(GROUP) as tx:
            await tx.ack(one)
            too_large = ternmq.TransactionTooLarge("no")
            with refusing("settle", too_large), pytest.raises(ternmq.TransactionTooLarge):
                await tx.ack(two)
        await two.retry(0)
        (again,) = await client.pull("in", group="g", wait=5)
        assert (again.body, again.attempt) == (b"2", 2)
        await again.ack()


async def test_a_refused_roll_back_is_said_again_to_the_broker(
    api: API, real: InProcessBroker
) -> None:
    """The checker, which would say something else, is not called."""
    client = api.connect(real.url)
    client.checker(GROUP)(lambda tx: Decision.COMMIT)
    async with client:
        tx = client.transaction(GROUP, check_after=1)

        async def fails() -> None:
            async with tx:
                await tx.send("t", b"1")
                raise ZeroDivisionError

        with refusing("decide", ternmq.Forbidden("no")), pytest.raises(ZeroDivisionError):
            await fails()
        await client.admin.check_transaction(tx.id)

        async def rolled_back() -> bool:
            return await client.transaction_outcome(tx.id) is Decision.ROLLBACK

        await until_true(rolled_back)


async def test_a_transaction_whose_opening_was_not_answered_is_never_committed(
    api: API, real: InProcessBroker
) -> None:
    """Its client does not know its number, and knows it by its name when it is asked."""
    async with Proxy(real.port) as proxy:
        client = api.connect(proxy.url, timeout=0.5)
        client.checker(GROUP)(lambda tx: Decision.COMMIT)
        async with client, api.connect(real.url) as other:
            await client.send("t", b"0")

            async def sends() -> None:
                async with client.transaction(GROUP, query_id="q") as tx:
                    proxy.mute = True
                    with pytest.raises(ternmq.ConnectionLost):
                        await tx.send("t", b"1")
                    raise ZeroDivisionError

            with refusing("decide", ternmq.Forbidden("no")), pytest.raises(ZeroDivisionError):
                await sends()
            (left,) = await other.admin.checked_transactions(GROUP)
            assert left.state == "undecided"
            proxy.mute = False
            await client.admin.status()
            await other.admin.check_transaction(left.id)

            async def decided() -> bool:
                return await other.transaction_outcome(left.id) is not Decision.UNKNOWN

            await until_true(decided)
            assert await other.transaction_outcome(left.id) is Decision.ROLLBACK
            assert await taken(other, "t") == [b"0"]


async def test_without_a_checker_no_topic_is_made(api: API, real: InProcessBroker) -> None:
    async with api.connect(real.url) as client:
        tx = client.transaction(GROUP)

        async def sends() -> None:
            async with tx:
                await tx.send("fresh", b"1")

        with pytest.raises(ternmq.NoChecker):
            await sends()
        assert not await client.admin.topics()
