"""A process that pays orders in transactions, and dies: what a transaction has to hold against.

``python -m tests.fault.server.payer URL LEDGER NUMBER DEATHS`` takes messages of ``ORDERS``; for
each it sends to ``PAID``, ``MAIL`` and, with a due time, to ``LATER``, and settles the order, in
one transaction. Its own data is the ledger (``ledger``), which it writes last. Of a thousand
transactions, so many end in its death, at a place that chance chooses: before or after the ledger,
or while the commit is under way. Every process is a checker of all: it looks in the ledger.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
from contextlib import suppress
from pathlib import Path

import ternmq
from tests.fault.server.ledger import GROUP, LATER, MAIL, ORDERS, PAID, Ledger

DUE_S = 0.3


class Payer:
    """Pays orders until it is killed.

    Args:
        client: Of the broker.
        ledger: Its data.
        number: Of the process.
        deaths: Transactions of a thousand in which it dies.
    """

    def __init__(self, client: ternmq.Client, ledger: Ledger, number: int, deaths: int) -> None:
        self._client = client
        self._ledger = ledger
        self._number = number
        self._deaths = deaths
        self._chance = random.Random(number)
        self._count = 0
        self._dies_at = -1

    async def run(self) -> None:
        """Pay."""
        while True:
            with suppress(ternmq.TernMQError):
                for order in await self._client.pull(ORDERS, group="pay", max_messages=4, wait=1):
                    try:
                        await self._pay(order)
                    except ternmq.TernMQError:
                        # The client extends the lease of what is kept and not settled; the loop
                        # keeps the last one until the next pull finds another.
                        with suppress(ternmq.TernMQError):
                            await order.release()

    async def _pay(self, order: ternmq.Delivery) -> None:
        self._count += 1
        query = f"{self._number}-{self._count}"
        dies = self._chance.randrange(1000) < self._deaths
        self._dies_at = self._chance.randrange(5) if dies else -1
        body = b"%s %s" % (order.body, query.encode())
        try:
            async with self._client.transaction(
                GROUP,
                query_id=query,
                on_error=self._chance.choice(("check", "rollback")),
                check_after=1,
            ) as tx:
                await tx.send(PAID, body, key=order.body.decode())
                self._ledger.opened(query, tx.id)
                await tx.send_many(MAIL, [body] * 2)
                self._at(0)
                await tx.send(LATER, body, deliver_after=DUE_S)
                await tx.ack(order)
                self._at(1)
                self._work(query)
                self._at(2)
                if self._dies_at == 3:
                    await self._dies_in_commit(tx)
        except RuntimeError:
            self._at(4)

    def _work(self, query: str) -> None:
        """Do the work of which the messages tell; it may fail."""
        if self._chance.random() < 0.1:
            raise RuntimeError("the card is refused")
        if not self._ledger.write(query, "commit"):
            raise RuntimeError("a checker was quicker")

    async def _dies_in_commit(self, tx: ternmq.Transaction) -> None:
        commit = asyncio.ensure_future(tx.commit())
        await asyncio.sleep(self._chance.uniform(0, 0.01))  # anywhere in it
        os.kill(os.getpid(), signal.SIGKILL)
        await commit

    def _at(self, place: int) -> None:
        if self._dies_at == place:
            os.kill(os.getpid(), signal.SIGKILL)


async def pay(url: str, ledger: Ledger, number: int, deaths: int) -> None:
    """Pay orders, and answer questions."""
    client = ternmq.connect(url, timeout=8)
    chance = random.Random(-number)

    @client.checker(GROUP)
    async def check(tx: ternmq.PreparedTransaction) -> ternmq.Decision:
        if chance.random() < 0.1:
            return ternmq.Decision.UNKNOWN
        if chance.random() < 0.1:
            raise RuntimeError("the database does not answer")
        return ledger.decided(tx.query_id)

    while True:  # the broker may be away
        with suppress(ternmq.CannotConnect):
            await client.connect()
            break
    await Payer(client, ledger, number, deaths).run()


def main() -> None:
    """Pay orders until killed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("ledger", type=Path)
    parser.add_argument("number", type=int)
    parser.add_argument("deaths", type=int)
    given = parser.parse_args()
    asyncio.run(pay(given.url, Ledger(given.ledger), given.number, given.deaths))


if __name__ == "__main__":
    main()
