"""An error of the client keeps nothing that its caller holds, also where no garbage is collected.

The client extends the lease of a message whose delivery is alive. So a cycle of an error and the
frames that it passed would keep a message from all consumers.
"""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from logging.handlers import MemoryHandler
from pathlib import Path
from typing import Any

import pytest

import ternmq
import ternmq.sync
from ternmq import Decision
from ternmq.client.bulk import Bulk, BulkOptions
from tests.asynchronous import pytest_pyfunc_call, until
from tests.black_box.process import BrokerProcess
from tests.references import Held, blocking_keeps_nothing, keeps_nothing, no_collection

__all__ = ["pytest_pyfunc_call"]

GROUP = "order-service"
LARGE = b"x" * 20_000_000


@pytest.fixture
def own(tmp_path: Path) -> Iterator[BrokerProcess]:
    """Yield a broker that the test may kill; no garbage is collected meanwhile."""
    with no_collection(), BrokerProcess("dev", tmp_path) as broker:
        yield broker


def checked(client: Any) -> None:
    @client.checker(GROUP)  # type: ignore[untyped-decorator]
    def check(tx: object) -> Decision:
        return Decision.UNKNOWN


async def transacted(
    client: ternmq.Client, group: str, *acked: ternmq.Delivery, body: object = b"x"
) -> None:
    async with client.transaction(group) as tx:
        await tx.send("out", body)
        for delivery in acked:
            await tx.ack(delivery)


async def test_a_refusal(own: BrokerProcess) -> None:
    async with ternmq.connect(own.url) as client:
        checked(client)
        await client.send_many("in", [b"x"] * 9)
        admin = client.admin
        await admin.create_group("in", "g")
        await admin.create_group("in", "late", start="latest")
        one, two, three, four = await client.pull("in", group="g", max_messages=4, wait=10)
        await one.ack()

        async def ends_early() -> None:
            async with asyncio.timeout(0.05):
                await client.pull("in", group="late", wait=30)

        await client.pull("in", group="gone", wait=10)
        await admin.delete_group("in", "gone")  # the client does not know it when it pulls again
        await admin.delete_group("in", "g")
        for call, error in (
            (lambda: admin.topic("none"), ternmq.UnknownTopic),
            (lambda: client.send("in", LARGE), ternmq.MessageTooLarge),
            (lambda: client.send_many("in", [LARGE]), ternmq.PartialSendError),
            (lambda: client.transaction_outcome("t-fff"), ternmq.UnknownTransaction),
            (lambda: transacted(client, "without a checker"), ternmq.InvalidRequest),
            (lambda: transacted(client, "unchecked"), ternmq.NoChecker),
            (lambda: transacted(client, GROUP, two), ternmq.TernMQError),
            (lambda: transacted(client, GROUP, body=object()), ternmq.EncodeError),
            (lambda: transacted(client, GROUP, body=LARGE), ternmq.MessageTooLarge),
            (one.ack, ternmq.AlreadySettled),
            (lambda: client.pull("in", group="gone", wait=0), ternmq.UnknownGroup),
            (lambda: three.extend(5), ternmq.TernMQError),
            (four.ack, ternmq.TernMQError),
            (ends_early, TimeoutError),
        ):
            await keeps_nothing(call, error)


@pytest.mark.parametrize("more", ["", ",127.0.0.1:1"])
async def test_a_broker_that_is_away(own: BrokerProcess, more: str) -> None:
    async with ternmq.connect(f"{own.url}{more}", timeout=0.5) as client:
        checked(client)
        await client.send_many("in", [b"x"] * 9)
        one, two, three, four = await client.pull("in", group="g", max_messages=4, wait=10)

        async def ends_early() -> None:
            async with asyncio.timeout(0.1):
                await client.admin.topic("in")

        await asyncio.to_thread(own.kill)
        for call, error in (
            (lambda: client.admin.topic("in"), ternmq.CannotConnect),
            (lambda: client.send("in", b"x"), ternmq.TernMQError),
            (lambda: client.send_many("in", [b"x"]), ternmq.PartialSendError),
            (lambda: client.pull("in", group="g", wait=0.1), ternmq.CannotConnect),
            (lambda: client.transaction_outcome("t-fff"), ternmq.CannotConnect),
            (lambda: transacted(client, GROUP, four), ternmq.TernMQError),
            (one.ack, ternmq.ConnectionLost),
            (two.retry, ternmq.ConnectionLost),
            (lambda: three.extend(5), ternmq.CannotConnect),
            (ends_early, TimeoutError),
        ):
            await keeps_nothing(call, error)
    await keeps_nothing(lambda: client.send("in", b"x"), ternmq.ClientClosed)


async def test_a_client_that_is_not_let_in(own: BrokerProcess) -> None:
    own.stop()
    own.settings |= {"auth": "true", "admin_token": "the-token-of-the-operator"}
    own.start()
    client = ternmq.connect(own.url, app="unknown", token="wrong")
    for call in (
        client.connect,
        client.connect,
        lambda: client.send("in", b"x"),
        lambda: client.admin.topic("in"),
        lambda: client.pull("in", group="g", wait=0),
    ):
        await keeps_nothing(call, ternmq.Unauthenticated)
    await client.close()


def test_blocking_calls(own: BrokerProcess) -> None:
    with ternmq.sync.connect(own.url, timeout=0.5) as client:
        checked(client)
        client.send_many("in", [b"x"] * 9)
        one, two, three = client.pull("in", group="g", max_messages=3, wait=10)
        one.ack()

        def transacted(group: str, *acked: ternmq.sync.Delivery) -> None:
            with client.transaction(group) as tx:
                tx.send("out", b"x")
                for delivery in acked:
                    tx.ack(delivery)

        blocking_keeps_nothing(one.ack, ternmq.AlreadySettled)
        blocking_keeps_nothing(lambda: client.admin.topic("none"), ternmq.UnknownTopic)
        blocking_keeps_nothing(lambda: client.send("in", LARGE), ternmq.MessageTooLarge)
        blocking_keeps_nothing(lambda: transacted("unchecked"), ternmq.NoChecker)
        blocking_keeps_nothing(lambda: list(client.read("none")), ternmq.UnknownTopic)
        for body, error in ((LARGE, ternmq.MessageTooLarge), (object(), ternmq.EncodeError)):
            soon = partial(client.send_soon, "in", body)
            blocking_keeps_nothing(lambda soon=soon: soon().result(9), error)  # type: ignore[misc]
        own.kill()
        blocking_keeps_nothing(two.ack, ternmq.ConnectionLost)
        blocking_keeps_nothing(lambda: client.send("in", b"x"), ternmq.TernMQError)
        blocking_keeps_nothing(lambda: client.pull("in", group="g", wait=0.1), ternmq.CannotConnect)
        blocking_keeps_nothing(lambda: transacted(GROUP, three), ternmq.TernMQError)


def test_bulk_calls(own: BrokerProcess) -> None:
    options = BulkOptions(url=own.url, tries=3, first_backoff=0.01, longest_backoff=0.01)
    with ternmq.sync.connect(own.url) as client, Bulk(options) as bulk:
        client.send("in", b"x")
        blocking_keeps_nothing(lambda: list(bulk.fetch("none", 0, 0, 1)), ternmq.UnknownTopic)
        blocking_keeps_nothing(lambda: bulk.commit("in", "g", {9: 1}), ternmq.UnknownQueue)
        own.kill()
        own.start()
        blocking_keeps_nothing(bulk.status, None)  # the second try succeeds
        own.kill()
        blocking_keeps_nothing(bulk.status, ternmq.CannotConnect)


async def test_sends_with_middlewares(own: BrokerProcess) -> None:
    async with ternmq.connect(own.url) as client:

        @client.send_middleware
        def catches(outbound: ternmq.Outbound) -> Iterator[None]:
            with suppress(ternmq.MessageTooLarge):
                yield

        await client.send("in", b"x")
        await keeps_nothing(lambda: client.send("in", LARGE), ternmq.MessageTooLarge)


async def test_handlers_and_checkers(own: BrokerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    # Records have the tracebacks of the application's errors, and pytest keeps the records.
    monkeypatch.setattr(logging.getLogger("ternmq"), "disabled", True)
    kept: dict[str, weakref.ref[Held]] = {}

    def fails(name: str) -> None:
        held = Held()
        kept[name] = weakref.ref(held)
        raise ValueError(name)

    client = ternmq.connect(own.url)

    @client.handler("in", group="def")
    def in_thread(body: bytes) -> None:
        fails("def handler")

    @client.handler("in", group="async")
    async def in_loop(body: bytes) -> None:
        fails("async handler")

    @client.checker(GROUP)
    def check(tx: ternmq.sync.PreparedTransaction) -> Decision:
        fails("checker")
        return Decision.COMMIT

    async with client:
        await client.send("in", b"x")
        run = asyncio.create_task(client.run())
        with suppress(ZeroDivisionError):
            async with client.transaction(GROUP, on_error="check", check_after=1) as tx:
                await tx.send("out", b"x")
                raise ZeroDivisionError
        await until(lambda: len(kept) == 3, "all were called", 30)
        await until(lambda: not [name for name, one in kept.items() if one() is not None])
        client.stop()
        await run


async def test_the_log(own: BrokerProcess) -> None:
    """A handler of the log may keep the records: with them it keeps no message of a batch."""
    log, records = logging.getLogger("ternmq"), MemoryHandler(1000, logging.CRITICAL)
    log.addHandler(records)
    try:
        async with ternmq.connect(own.url) as client:
            await client.send_many("in", [b"x"] * 3)

            def rejected() -> None:
                raise ternmq.Reject("wrong")

            async def rejects() -> weakref.ref[object]:
                batch = await client.pull("in", group="g", wait=10)
                async with batch[0].process():
                    rejected()
                return weakref.ref(batch[1].lease)

            lease = await rejects()
            assert "rejected: wrong" in records.buffer[-1].getMessage()
            await until(lambda: lease() is None)
    finally:
        log.removeHandler(records)


@pytest.mark.row("E4")
async def test_a_message_dropped_in_an_outage_is_delivered_again(
    own: BrokerProcess, caplog: pytest.LogCaptureFixture
) -> None:
    """The keeper tried to extend its lease while there was no broker."""
    async with ternmq.connect(own.url) as holder:
        await holder.send("in", b"x")
        await holder.admin.create_group("in", "g", lease=3)
        deliveries = await holder.pull("in", group="g", wait=10)
        lease = weakref.ref(deliveries[0].lease)
        await asyncio.to_thread(own.kill)
        with caplog.at_level(logging.DEBUG, "ternmq"):
            await until(lambda: "the keeper's connection is lost" in caplog.text, "it tried", 30)
        del deliveries
        await until(lambda: lease() is None, "nothing keeps the lease")
        await asyncio.to_thread(own.start)
        async with ternmq.connect(own.url) as other:
            (again,) = await other.pull("in", group="g", wait=45)
            await again.ack()
