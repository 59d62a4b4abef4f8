"""The tests of an application that uses TernMQ. Run them: ``pytest examples/shop``.

``ternmq_broker`` is a fixture that comes with TernMQ: the real broker, in memory, whose clock the
test moves. A fresh one for each test takes milliseconds.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from shop import Mailer, make_client

import ternmq
from ternmq.testing import InProcessBroker

INVOICE = {"number": "7", "to": "ada@example.org", "text": "12.50"}


class MailerOfATest(Mailer):
    """Remembers mails; is down when told so."""

    def __init__(self, *, down: bool = False) -> None:
        self.mails: list[str] = []
        self.tries = 0
        self.tried = asyncio.Event()
        self.down = down

    def send(self, address: str, text: str) -> None:
        self.tries += 1
        self.tried.set()
        if self.down:
            raise ConnectionError("the mail server is down")
        self.mails.append(f"{address}: {text}")


@asynccontextmanager
async def running(url: str, mailer: Mailer) -> AsyncIterator[ternmq.Client]:
    """Run the application for the length of a block."""
    client = make_client(url, mailer)
    task = asyncio.create_task(client.run())
    async with asyncio.timeout(10):
        yield client
    client.stop()
    await task


def test_an_invoice_is_mailed(ternmq_broker: InProcessBroker) -> None:
    mailer = MailerOfATest()

    async def scenario() -> None:
        async with running(ternmq_broker.url, mailer) as client:
            await client.send("invoices", INVOICE)
            await mailer.tried.wait()

    asyncio.run(scenario())
    assert mailer.mails == ["ada@example.org: 12.50"]


def test_it_is_mailed_two_hours_later(ternmq_broker: InProcessBroker) -> None:
    mailer = MailerOfATest(down=True)

    async def scenario() -> None:
        async with running(ternmq_broker.url, mailer) as client:
            await client.send("invoices", INVOICE)
            await mailer.tried.wait()
            mailer.down = False
            # When advance returns, what came due is done: no waiting, no sleeping.
            await asyncio.to_thread(ternmq_broker.clock.advance, minutes=119)
            assert mailer.tries == 1
            await asyncio.to_thread(ternmq_broker.clock.advance, minutes=2)
            assert mailer.mails == ["ada@example.org: 12.50"]

    asyncio.run(scenario())


def test_two_weeks_later_there_is_a_reminder(ternmq_broker: InProcessBroker) -> None:
    mailer = MailerOfATest()

    async def scenario() -> None:
        async with running(ternmq_broker.url, mailer) as client:
            await client.send("invoices", INVOICE)
            await asyncio.to_thread(ternmq_broker.wait_idle, "invoices", "mailing")
            await asyncio.to_thread(ternmq_broker.clock.advance, days=13)
            assert mailer.mails == ["ada@example.org: 12.50"]
            await asyncio.to_thread(ternmq_broker.clock.advance, days=2)
            assert mailer.mails[1:] == ["ada@example.org: please pay 12.50"]

    asyncio.run(scenario())


def test_a_paid_invoice_has_no_reminder(ternmq_broker: InProcessBroker) -> None:
    mailer = MailerOfATest()

    async def scenario() -> None:
        async with running(ternmq_broker.url, mailer) as client:
            await client.send("invoices", INVOICE)
            await asyncio.to_thread(ternmq_broker.wait_idle, "invoices", "mailing")
            await asyncio.to_thread(ternmq_broker.clock.advance, days=3)
            await client.send("payments", {"number": "7"})
            await asyncio.to_thread(ternmq_broker.wait_idle, "payments", "reminding")
            assert await client.admin.scheduled("reminders") == []  # it was cancelled
            await asyncio.to_thread(ternmq_broker.clock.advance, days=30)
            assert mailer.mails == ["ada@example.org: 12.50"]

    asyncio.run(scenario())


def test_what_is_no_invoice_is_among_the_dead_letters(ternmq_broker: InProcessBroker) -> None:
    async def scenario() -> None:
        mailer = MailerOfATest()
        async with running(ternmq_broker.url, mailer) as client:
            await client.send("invoices", "12.50")
            await client.send("invoices", INVOICE)
            await mailer.tried.wait()  # the bad one did not stop the worker
            (dead,) = [one async for one in client.deadletters.browse("invoices", "mailing")]
            assert dead.reason.startswith("decode")

    asyncio.run(scenario())
