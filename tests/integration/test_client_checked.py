"""Transactions with check-back, by both clients."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

import ternmq
import ternmq.sync
from ternmq import Decision
from ternmq.testing import InProcessBroker
from tests.asynchronous import until, until_true
from tests.integration.client_shapes import API
from tests.integration.proxy import Proxy

GROUP = "order-service"


async def taken(client: Any, topic: str, group: str = "g") -> list[Any]:
    """Pull and settle all there is; return the bodies."""
    found: list[Any] = []
    while deliveries := await client.pull(topic, group=group, wait=0):
        for delivery in deliveries:
            found.append(delivery.body)
            await delivery.ack()
    return found


def unknowing(client: Any) -> None:
    """Declare a checker that knows nothing."""
    client.checker(GROUP)(nothing)


async def broken(client: Any, work: Callable[[Any], Awaitable[None]], **settings: Any) -> Any:
    """Run a block whose application fails after some work; return the transaction."""
    tx = client.transaction(GROUP, **settings)
    with pytest.raises(ZeroDivisionError):
        await _failing(tx, work)
    return tx


async def _failing(tx: Any, work: Callable[[Any], Awaitable[None]]) -> None:
    async with tx:
        await work(tx)
        raise ZeroDivisionError


async def sent(client: Any, topic: str, *bodies: bytes) -> Any:
    """Send messages in a transaction; return it."""
    async with client.transaction(GROUP) as tx:
        for body in bodies:
            await tx.send(topic, body)
    return tx


def nothing(tx: object) -> Decision:
    return Decision.UNKNOWN


# -- the block -------------------------------------------------------------------------------------


@pytest.mark.row("J0a", "J0b")
async def test_a_commit_shows_all_and_a_roll_back_none(api: API, real: InProcessBroker) -> None:
    client = api.connect(real.url)
    unknowing(client)
    async with client:
        async with client.transaction(GROUP, query_id="order-7") as tx:
            first = await tx.send("orders", b"a", key="k", headers={"h": "1"})
            many = await tx.send_many("stock", [b"b", ternmq.Message(b"c", key="x")])
            assert (first.offset, first.durable, len(many)) == (None, True, 2)
            assert tx.id.startswith("t-")
            assert await taken(client, "orders") == await taken(client, "stock") == []
        assert await taken(client, "orders") == [b"a"]
        assert sorted(await taken(client, "stock")) == [b"b", b"c"]
        assert await client.transaction_outcome(tx.id) is Decision.COMMIT
        assert (await client.get("orders", first.id)).offset == 0

        undone = await broken(client, lambda tx: tx.send("orders", b"d"))
        assert await taken(client, "orders") == []
        assert await client.transaction_outcome(undone.id) is Decision.ROLLBACK
        state = await client.admin.transaction(undone.id)
        assert (state.state, state.group, state.rows) == ("rolled-back", GROUP, 0)


async def test_commit_and_rollback_inside_the_block(api: API, real: InProcessBroker) -> None:
    client = api.connect(real.url)
    unknowing(client)
    async with client:
        async with client.transaction(GROUP) as tx:
            await tx.send_many("t", [b"1", b"2"])
            assert await tx.commit() == 2
            assert await taken(client, "t") == [b"1", b"2"]
            with pytest.raises(ternmq.TransactionNotOpen, match="was committed"):
                await tx.send("t", b"3")
        async with client.transaction(GROUP) as tx:
            await tx.send("t", b"4")
            await tx.rollback()
            with pytest.raises(ternmq.TransactionNotOpen, match="was rolled back"):
                await tx.commit()
        async with client.transaction(GROUP) as tx:
            pass
        assert tx.id == ""
        async with client.transaction(GROUP) as tx:
            id_ = await tx.open()
            assert id_ == tx.id != ""
        assert await client.transaction_outcome(id_) is Decision.COMMIT
        assert await taken(client, "t") == []


@pytest.mark.row("J0c", "J0h", "J0i")
async def test_an_error_may_leave_it_to_the_checker(api: API, real: InProcessBroker) -> None:
    client = api.connect(real.url)
    asked: list[Any] = []

    def check(tx: ternmq.sync.PreparedTransaction) -> Decision:
        bodies = [one.body for one in tx.messages], [one.body for one in tx.read()]
        asked.append((tx.id, tx.group, tx.query_id, tx.attempt, tx.topics, tx.rows, *bodies))
        return Decision.COMMIT

    client.checker(GROUP)(check)
    async with client:
        tx = await broken(
            client, lambda tx: tx.send("t", {"n": 1}), query_id="order-7", on_error="check"
        )
        assert await client.transaction_outcome(tx.id) is Decision.UNKNOWN
        await client.admin.check_transaction(tx.id)
        await decided(client, tx.id, Decision.COMMIT)
        body = b'{"n":1}'
        assert asked == [(tx.id, GROUP, "order-7", 1, ["t"], 1, [body], [body])]
        assert await taken(client, "t") == [body]


async def test_a_client_that_is_closed_in_a_block_rolls_back(
    api: API, real: InProcessBroker
) -> None:
    """It was left to the checker, though the client could have rolled it back at once."""
    async with api.connect(real.url) as watcher:
        unknowing(watcher)
        await watcher.send("orders", b"order")
        client = api.connect(real.url)
        unknowing(client)
        await client.connect()
        (delivery,) = await client.pull("orders", group="g", wait=10)
        tx = client.transaction(GROUP)

        async def work() -> None:
            async with tx:
                await tx.send("t", b"1")
                await tx.ack(delivery)
                await client.close()
                with pytest.raises(ternmq.ClientClosed):
                    await tx.send("t", b"2")

        with pytest.raises(ternmq.ClientClosed) as caught:
            await work()
        assert api.blocking or "was rolled back" in str(caught.value)
        assert await watcher.transaction_outcome(tx.id) is Decision.ROLLBACK
        assert await taken(watcher, "orders") == [b"order"]
        assert await taken(watcher, "t") == []


async def test_a_client_that_is_closed_leaves_the_others_to_their_checkers(
    api: API, real: InProcessBroker
) -> None:
    async with api.connect(real.url) as watcher:
        unknowing(watcher)
        client = api.connect(real.url)
        unknowing(client)
        await client.connect()
        tx = client.transaction(GROUP, on_error="check")

        async def work() -> None:
            async with tx:
                await tx.send("t", b"1")
                await client.close()

        with pytest.raises(ternmq.ClientClosed):
            await work()
        state = await watcher.admin.transaction(tx.id)
        assert state.state == "undecided"
        await watcher.admin.resolve_transaction(tx.id, commit=False)


async def decided(client: Any, id_: str, decision: Decision) -> None:
    async def known() -> bool:
        return await client.transaction_outcome(id_) is not Decision.UNKNOWN

    await until_true(known, "it is decided")
    assert await client.transaction_outcome(id_) is decision


async def test_without_a_checker_nothing_is_opened(api: API, real: InProcessBroker) -> None:
    async with api.connect(real.url) as client:
        with pytest.raises(ternmq.NoChecker):
            await sent(client, "t", b"1")
        assert await taken(client, "t") == []
        client.checker(GROUP)(nothing)  # while it is connected

        async def there() -> bool:
            try:
                await sent(client, "t", b"2")
            except ternmq.NoChecker:
                return False
            return True

        await until_true(there, "the checker is offered")
        assert await taken(client, "t") == [b"2"]


# -- answers that are lost -------------------------------------------------------------------------


async def test_a_lost_answer_is_healed_by_a_repeat(api: API, real: InProcessBroker) -> None:
    """Of an opening, a batch, a settle, a commit: each is sent again, and counts once."""
    async with Proxy(real.port) as proxy:
        client = api.connect(proxy.url)
        unknowing(client)
        async with client:

            async def lost(call: Awaitable[Any]) -> Any:
                proxy.mute = True
                task = asyncio.ensure_future(call)
                await asyncio.sleep(0.05)
                assert not task.done()
                proxy.mute = False
                proxy.cut()
                return await task

            await client.send("in", b"x")
            (delivery,) = await client.pull("in", group="g", wait=5)
            async with client.transaction(GROUP) as tx:
                await lost(tx.send("t", b"1"))
                await lost(tx.send_many("t", [b"2", b"3"]))
                await lost(tx.ack(delivery))
                assert await lost(tx.commit()) == 3
            assert await taken(client, "t") == [b"1", b"2", b"3"]
            assert await taken(client, "in") == []


async def test_a_commit_that_is_not_answered(api: API, real: InProcessBroker) -> None:
    async with Proxy(real.port) as proxy:
        client = api.connect(proxy.url, timeout=0.5)
        unknowing(client)
        async with client:
            tx = client.transaction(GROUP)

            async def commits() -> None:
                async with tx:
                    await tx.send("t", b"1")
                    proxy.mute = True

            with pytest.raises(ternmq.OutcomeUnknown) as caught:
                await commits()
            proxy.mute = False
            assert caught.value.transaction_id == tx.id
            assert tx.id in str(caught.value)
            assert await client.transaction_outcome(tx.id) is Decision.COMMIT
            assert await taken(client, "t") == [b"1"]


async def test_a_cancelled_block_is_rolled_back(real: InProcessBroker) -> None:
    client = ternmq.connect(real.url)
    unknowing(client)
    async with client:
        tx = client.transaction(GROUP)

        async def waits() -> None:
            async with tx:
                await tx.send("t", b"1")
                await asyncio.sleep(60)

        task = asyncio.create_task(waits())
        await until(lambda: tx.id != "")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await client.transaction_outcome(tx.id) is Decision.ROLLBACK


async def test_an_operator_decides_before(api: API, real: InProcessBroker) -> None:
    client = api.connect(real.url)
    unknowing(client)
    async with client:
        tx = client.transaction(GROUP)

        async def commits() -> None:
            async with tx:
                await tx.send("t", b"1")
                assert await client.admin.resolve_transaction(tx.id, commit=False)
                assert not await client.admin.resolve_transaction(tx.id, commit=False)

        with pytest.raises(ternmq.TransactionDecided):
            await commits()
        with pytest.raises(ternmq.TransactionDecided):
            await client.admin.resolve_transaction(tx.id, commit=True)
        assert await taken(client, "t") == []


# -- settling --------------------------------------------------------------------------------------


async def test_what_it_settles_is_done_when_it_commits(api: API, real: InProcessBroker) -> None:
    client = api.connect(real.url)
    unknowing(client)
    async with client:
        await client.send_many("in", [b"1", b"2", b"3", b"4"])
        deliveries = await client.pull("in", group="g", wait=5)
        one, two, three, four = deliveries
        async with client.transaction(GROUP) as tx:
            await tx.send("out", b"of 1")
            await tx.ack(one)
            await tx.reject(two, "bad")
            assert one.settled
            assert two.settled
            with pytest.raises(ternmq.AlreadySettled):
                await tx.ack(one)
            with pytest.raises(ternmq.AlreadySettled):
                await one.ack()
        assert await taken(client, "out") == [b"of 1"]
        dead = [one async for one in client.deadletters.browse("in", "g")]
        assert [(one.message.body, one.reason) for one in dead] == [(b"2", "bad")]
        await broken(client, lambda tx: tx.ack(three))
        assert three.lost
        await four.ack()
        (again,) = await client.pull("in", group="g", wait=5)
        assert (again.body, again.attempt) == (b"3", 1)
        await again.ack()


async def test_all_that_is_left_of_deliveries(api: API, real: InProcessBroker) -> None:
    client = api.connect(real.url)
    unknowing(client)
    async with client:
        await client.send_many("in", [b"1", b"2", b"3"])
        deliveries = await client.pull("in", group="g", wait=5)
        await deliveries[1].ack()
        async with client.transaction(GROUP) as tx:
            await tx.ack(deliveries)
            with pytest.raises(ternmq.AlreadySettled):
                await tx.ack(deliveries)
        assert deliveries.unsettled == 0
        assert await taken(client, "in") == []


async def test_in_a_handler_the_message_is_settled_once(
    real: InProcessBroker, caplog: pytest.LogCaptureFixture
) -> None:
    client = ternmq.connect(real.url)
    unknowing(client)
    done: list[str] = []

    @client.handler("in", group="g")
    async def work(delivery: ternmq.Delivery) -> None:
        async with client.transaction(GROUP) as tx:
            await tx.send("out", delivery.body)
            await tx.ack(delivery)
        done.append(tx.id)

    running = asyncio.create_task(client.run(signals=False))
    async with ternmq.connect(real.url) as other:
        await other.send_many("in", [b"1", b"2"])
        await until(lambda: len(done) == 2)
        assert sorted(await taken(other, "out")) == [b"1", b"2"]
        client.stop()
        await running
        assert await taken(other, "in") == []
    assert not [one for one in caplog.records if one.levelno > logging.INFO]


async def test_offsets_move_with_it(api: API, real: InProcessBroker) -> None:
    client = api.connect(real.url)
    unknowing(client)
    async with client:
        await client.send_many("in", [b"1", b"2", b"3"])
        await client.pull("in", group="g", max_messages=1, wait=0)
        async with client.transaction(GROUP) as tx:
            await tx.commit_offset("in", "g", 0, 2)
            for wrong in (-1, "x", None):
                with pytest.raises(ternmq.InvalidRequest, match="offset"):
                    await tx.commit_offset("in", "g", 0, wrong)


# -- wrong uses ------------------------------------------------------------------------------------


async def test_wrong_uses_of_a_transaction(api: API, real: InProcessBroker) -> None:
    client = api.connect(real.url)
    unknowing(client)
    async with client:
        tx = client.transaction(GROUP)
        with pytest.raises(ternmq.TransactionNotOpen, match="has not begun"):
            await tx.send("t", b"1")
        async with tx:
            with pytest.raises(ternmq.TransactionNotOpen, match="is open"):
                await tx.__aenter__()
            with pytest.raises(ternmq.InvalidRequest, match="id="):
                await tx.send_many("t", [ternmq.Message(b"1", id="x")])
            with pytest.raises(ternmq.InvalidName):
                await tx.send("a b", b"1")
            with pytest.raises(ternmq.EncodeError):
                await tx.send("t", object())
            with pytest.raises(ternmq.InvalidRequest, match="settles deliveries, not an int"):
                await tx.ack(7)
            with pytest.raises(ternmq.InvalidRequest, match="list of messages"):
                await tx.send_many("t", b"1")
            await tx.send("t", b"2")
        assert await taken(client, "t") == [b"2"]
        with pytest.raises(ternmq.TransactionNotOpen):
            await tx.commit()
        for wrong in ({"on_error": "x"}, {"check_after": 0.5}, {"query_id": 7}, {"timeout": 0}):
            with pytest.raises(ternmq.InvalidRequest):
                client.transaction(GROUP, **wrong)
        with pytest.raises(ternmq.InvalidName):
            client.transaction("a b")
        with pytest.raises(ternmq.UnknownTransaction):
            await client.transaction_outcome("t-fff")
        for wrong_id in ("7", "", None, "t-", "t-G"):
            with pytest.raises(ternmq.InvalidRequest, match="looks like"):
                await client.transaction_outcome(wrong_id)
        read = [one async for one in client.read("t")]
        async with client.transaction(GROUP) as tx:
            with pytest.raises(ternmq.InvalidRequest, match="without a group"):
                await tx.ack(read[0])


async def test_deliveries_of_another_client(api: API, real: InProcessBroker) -> None:
    client = api.connect(real.url)
    unknowing(client)
    async with client, api.connect(real.url) as other:
        await other.send("in", b"1")
        (delivery,) = await other.pull("in", group="g", wait=5)
        async with client.transaction(GROUP) as tx:
            with pytest.raises(ternmq.InvalidRequest, match="another client"):
                await tx.ack(delivery)
        await delivery.ack()


async def test_two_tasks_at_a_time(real: InProcessBroker) -> None:
    client = ternmq.connect(real.url)
    unknowing(client)
    async with client:
        async with client.transaction(GROUP) as tx:
            first = asyncio.ensure_future(tx.send("t", b"1"))
            await asyncio.sleep(0)
            with pytest.raises(ternmq.TransactionInUse):
                await tx.send("t", b"2")
            await first
        assert await taken(client, "t") == [b"1"]


async def test_a_step_without_an_outcome_cannot_be_committed(real: InProcessBroker) -> None:
    async with Proxy(real.port) as proxy:
        client = ternmq.connect(proxy.url, timeout=0.5)
        unknowing(client)
        async with client:
            tx = client.transaction(GROUP)

            async def catches_it() -> None:
                async with tx:
                    await tx.send("t", b"1")
                    proxy.mute = True
                    with suppress(ternmq.ConnectionLost):
                        await tx.send("t", b"2")
                    proxy.mute = False

            with pytest.raises(ternmq.TransactionFailed, match="not known"):
                await catches_it()
            assert await client.transaction_outcome(tx.id) is Decision.ROLLBACK


# -- checkers --------------------------------------------------------------------------------------


async def test_an_async_checker_and_what_it_gets(real: InProcessBroker) -> None:
    client = ternmq.connect(real.url)
    seen: list[Any] = []

    @client.checker(GROUP)
    async def check(tx: ternmq.PreparedTransaction) -> Decision:
        seen.append((tx, [one async for one in tx.read()]))
        return Decision.ROLLBACK

    async with client:

        async def work(tx: ternmq.Transaction) -> None:
            await tx.send("a", {"x": 1}, key="k", tag="t", headers={"h": "v"})
            await tx.send("b", b"y")

        tx = await broken(client, work, on_error="check")
        await client.admin.check_transaction(tx.id)
        await decided(client, tx.id, Decision.ROLLBACK)
    ((prepared, messages),) = seen
    first, second = messages
    assert (first.topic, first.key, first.tag, first.headers) == ("a", "k", "t", {"h": "v"})
    assert (first.value, second.body, second.topic) == ({"x": 1}, b"y", "b")
    assert [one.id for one in prepared.messages] == [first.id, second.id]


@pytest.mark.parametrize("wrong", ["raises", "returns"])
async def test_a_checker_that_fails_is_asked_again(
    wrong: str, api: API, real: InProcessBroker, caplog: pytest.LogCaptureFixture
) -> None:
    client = api.connect(real.url)
    calls: list[int] = []

    def check(tx: ternmq.sync.PreparedTransaction) -> Any:
        calls.append(tx.attempt)
        if len(calls) > 1:
            return Decision.COMMIT
        if wrong == "raises":
            raise ValueError("no database")
        return True

    client.checker(GROUP)(check)
    async with client:
        tx = await broken(client, lambda tx: tx.send("t", b"1"), on_error="check")
        await client.admin.check_transaction(tx.id)
        await until(lambda: any(tx.id in one.getMessage() and one.levelno == logging.ERROR
                                for one in caplog.records))  # fmt: skip
        assert await client.transaction_outcome(tx.id) is Decision.UNKNOWN
        await client.admin.check_transaction(tx.id)
        await decided(client, tx.id, Decision.COMMIT)
    assert len(calls) == 2
    for info in [one.exc_info for one in caplog.records if one.exc_info]:
        assert info[2] is not None
        assert info[2].tb_frame.f_code.co_filename == __file__, "it begins at the checker"


async def test_checkers_that_cannot_be_declared(api: API, real: InProcessBroker) -> None:
    client = api.connect(real.url)
    unknowing(client)

    def generator(tx: object) -> Any:
        yield tx

    for wrong in (lambda: None, lambda a, b: None, 7, generator):
        with pytest.raises(ternmq.InvalidHandler):
            client.checker("other")(wrong)
    with pytest.raises(ternmq.InvalidHandler, match="has a checker"):
        client.checker(GROUP)(nothing)
    with pytest.raises(ternmq.InvalidName):
        client.checker("a b")(nothing)


async def test_the_block_decides_while_it_runs(real: InProcessBroker) -> None:
    client = ternmq.connect(real.url)
    calls: list[str] = []

    @client.checker(GROUP)
    async def check(tx: ternmq.PreparedTransaction) -> Decision:
        calls.append(tx.id)
        return Decision.ROLLBACK

    async with client:
        async with client.transaction(GROUP) as tx:
            await tx.send("t", b"1")
            await client.admin.check_transaction(tx.id)
            await client.admin.status()
        assert await taken(client, "t") == [b"1"]
    assert calls == []


async def test_the_offer_ends_with_the_connection_and_comes_back(real: InProcessBroker) -> None:
    async with Proxy(real.port) as proxy:
        client = ternmq.connect(proxy.url)
        unknowing(client)
        async with client, ternmq.connect(real.url) as other:
            await sent(other, "t", b"1")
            await client.close()
            with pytest.raises(ternmq.NoChecker):
                await sent(other, "t", b"2")
        again = ternmq.connect(proxy.url)
        unknowing(again)
        async with again:
            proxy.cut()
            await sent(again, "t", b"3")
            await again.admin.status()


async def test_a_producer_group_of_another_app(real: InProcessBroker) -> None:
    first = ternmq.connect(real.url, app="one")
    unknowing(first)
    async with first:
        second = ternmq.connect(real.url, app="two")
        unknowing(second)
        with pytest.raises(ternmq.ProducerGroupTaken):
            await second.connect()
        with pytest.raises(ternmq.ProducerGroupTaken):
            await sent(second, "t", b"1")
        await second.close()


def test_a_checker_alone_keeps_a_program_running(real: InProcessBroker) -> None:
    client = ternmq.sync.connect(real.url)
    unknowing(client)
    threading.Timer(0.3, client.stop).start()
    client.run(signals=False)
