"""The client library through kills of the broker: what it promises its users holds."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

import ternmq
from ternmq.record.batch.batch import Batch
from ternmq.record.fact import messages
from ternmq.record.fact.header import HEADER
from tests.fault.processes import DEADLINE, wait_until
from tests.fault.server.broker import APP, TOKEN, Address, Broker
from tests.fault.server.proxy import Proxy
from tests.fault.server.raw import Peer, Queue
from tests.fault.server.tools import KILLS, SMALL

pytestmark = [pytest.mark.fault, pytest.mark.slow]

TOPIC, GROUP = "steps", "walkers"
SENDERS = 8
LEASE_US = 4_000_000


@dataclass
class Seen:
    """What an application was told."""

    stored: dict[str, int | None] = field(default_factory=dict)
    """Body -> offset of its receipt."""
    failed: list[str] = field(default_factory=list)
    came: dict[int, str] = field(default_factory=dict)
    acked: set[int] = field(default_factory=set)
    problems: list[str] = field(default_factory=list)


class Application:
    """Sends and consumes with ``ternmq.connect`` in a thread until it is told to stop."""

    def __init__(self, address: Address) -> None:
        self.seen = Seen()
        self._url = f"ternmq://{address.host}:{address.port}"
        self._sending = True
        self._consuming = True
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop_sending(self) -> None:
        """Send nothing new."""
        self._sending = False

    def stored(self, more: int) -> None:
        """Wait until it has so many more receipts."""
        seen = self.seen
        goal = len(seen.stored) + more
        wait_until(lambda: len(seen.stored) >= goal or bool(seen.problems), f"{more} receipts")
        assert not seen.problems, seen.problems[:5]

    def has_consumed_all(self) -> bool:
        """Return whether everything that has a receipt has come."""
        return len(self.seen.came) >= len(self.seen.stored) or bool(self.seen.problems)

    def join(self) -> None:
        """Stop, and wait for the end."""
        self._sending = self._consuming = False
        self._thread.join(DEADLINE)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        try:
            asyncio.run(self._main())
        except Exception as error:  # noqa: BLE001 - the test must hear of it
            self.seen.problems.append(repr(error))

    async def _main(self) -> None:
        async with ternmq.connect(self._url, app=APP, token=TOKEN, timeout=30) as client:
            await asyncio.gather(
                *[self._send(client, number) for number in range(SENDERS)], self._consume(client)
            )

    async def _send(self, client: ternmq.Client, number: int) -> None:
        count = 0
        while self._sending:
            body = f"{number}:{count}"
            count += 1
            try:
                receipt = await client.send(TOPIC, body)
            except ternmq.TernMQError as error:
                self.seen.failed.append(f"{body}: {error!r}")
                continue
            if not receipt.durable:
                self.seen.problems.append(f"{body} is not durable")
            self.seen.stored[body] = receipt.offset

    async def _consume(self, client: ternmq.Client) -> None:
        while self._consuming:
            for delivery in await client.pull(TOPIC, group=GROUP, max_messages=50, wait=0.5):
                await self._take(delivery)

    async def _take(self, delivery: Any) -> None:
        seen, offset = self.seen, delivery.offset
        body = delivery.body.decode()
        if offset in seen.acked:
            seen.problems.append(f"{offset} was acknowledged and comes again")
        if offset in seen.came and not (delivery.deliveries > 1 or delivery.maybe_redelivered):
            seen.problems.append(f"{offset} comes again without saying so")
        if seen.came.setdefault(offset, body) != body:
            seen.problems.append(f"{offset} is {body}, was {seen.came[offset]}")
        # Too late, or not known: the answer was lost, and the lease with it.
        with contextlib.suppress(ternmq.LeaseExpired, ternmq.ConnectionLost):
            await delivery.ack()
            seen.acked.add(offset)


def stored_rows(queue: Queue) -> Iterator[tuple[int, str]]:
    """Yield offset and body of everything that the topic holds."""
    start = 0
    while True:
        rows = queue.read(start)
        if rows.stop <= rows.start:
            return
        at = 0
        while at < len(rows.records):
            length = HEADER.unpack_from(rows.records, at)[2]
            record = messages.of_record(rows.records[at : at + length])
            at += length
            batch = Batch(record.batch)
            for offset in range(record.first_offset, record.first_offset + record.count):
                if rows.start <= offset < rows.stop:
                    yield offset, batch.row(record.row_of(offset)).body.decode()
        start = rows.stop


def check(seen: Seen, rows: dict[int, str]) -> None:
    """Compare what the application was told with what the topic holds."""
    assert not seen.problems, seen.problems[:5]
    assert not seen.failed, seen.failed[:5]
    assert {offset: body for body, offset in seen.stored.items()}.items() <= rows.items()
    assert seen.came == rows, "what came is not what is stored"
    assert len(set(rows.values())) == len(rows), "a message is stored twice"
    assert set(rows.values()) == set(seen.stored), "a message is stored that has no receipt"
    print(f"{len(rows)} stored, {len(seen.acked)} acknowledged")


def finished(application: Application, address: Address) -> None:
    """Let an application come to its end, and check it."""
    application.stop_sending()
    wait_until(application.has_consumed_all, "all consumed")
    application.join()
    with Peer(address, name="reader") as peer:
        check(application.seen, dict(stored_rows(Queue(peer, TOPIC, GROUP))))


@pytest.mark.timeout(180)
@pytest.mark.row("B1")
def test_an_application_through_kills(memory_folder):
    """Nothing that has a receipt is lost or stored twice; nothing acknowledged comes again."""
    data, logs = memory_folder / "data", memory_folder / "logs"
    with contextlib.ExitStack() as stack:
        broker = stack.enter_context(Broker(data, logs, **SMALL))
        proxy = stack.enter_context(Proxy(broker.ready(), 0.0))
        with Peer(proxy.address, name="maker") as maker:
            Queue(maker, TOPIC, GROUP).make(LEASE_US)
        application = Application(proxy.address)
        stack.callback(application.join)
        for _ in range(KILLS):
            application.stored(200)
            broker.kill()
            broker = stack.enter_context(Broker(data, logs, **SMALL))
            proxy.target = broker.ready()
        application.stored(100)
        finished(application, proxy.address)


@pytest.mark.timeout(180)
def test_an_application_through_cuts(memory_folder):
    """The same, its connection reset every 200 ms."""
    data, logs = memory_folder / "data", memory_folder / "logs"
    with contextlib.ExitStack() as stack:
        broker = stack.enter_context(Broker(data, logs, **SMALL))
        proxy = stack.enter_context(Proxy(broker.ready(), 0.2))
        with Peer(proxy.target, name="maker") as maker:
            Queue(maker, TOPIC, GROUP).make(LEASE_US)
        application = Application(proxy.address)
        stack.callback(application.join)
        application.stored(2000)
        wait_until(lambda: proxy.cuts >= 20 or bool(application.seen.problems), "twenty cuts")
        finished(application, proxy.target)
