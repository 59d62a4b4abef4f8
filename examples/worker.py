"""A worker: payments are charged sixteen at a time; what fails is tried again, then set aside.

    ternmq dev                    # a broker, in one terminal
    python examples/worker.py     # in another; Ctrl-C stops it when running payments are finished

With ``--demo`` it sends itself five payments, two of which fail, and ends when all are settled.
"""

import asyncio
import sys
from dataclasses import dataclass

import ternmq

client = ternmq.connect()  # no I/O yet: handlers can be declared when a module is imported


@dataclass
class Payment:
    """Money that a customer owes."""

    order: int
    card: str
    cents: int


class BankDown(Exception):
    """The bank does not answer."""


@client.handler("payments", group="charging", concurrency=16)
async def charge(payment: Payment, delivery: ternmq.Delivery) -> None:
    """Charge a card. Returning acks; any exception has the message come again."""
    if payment.card == "stolen":
        raise ternmq.Reject("the card is reported stolen")  # never again: to the dead letters
    if payment.card == "slow-bank" and delivery.attempt == 1:
        raise ternmq.Retry("the bank asks us to wait", after=0.2)  # we know when
    if payment.card == "flaky-bank" and delivery.attempt < 3:
        raise BankDown("no answer")  # the retry policy knows when: 1 s, 2 s, 4 s ... by default
    told = f"order {payment.order}: charged {payment.cents} cents at attempt {delivery.attempt}"
    print(told, flush=True)  # a line at a time into a pipe, a file or a service's log too


async def settle_dead_letters() -> None:
    """What an operator does in the morning: look at what failed for good, and decide."""
    async for dead in client.deadletters.browse("payments", "charging"):
        assert dead.message is not None
        print(f"dead: {dead.message.value}: {dead.reason}", flush=True)
        # The customer gave another card: the payment is sent anew, the old one forgotten.
        await client.send("payments", {**dead.message.value, "card": "new"}, key=dead.message.key)
        await client.deadletters.delete("payments", "charging", [dead])


async def demo() -> None:
    await client.admin.create_group("payments", "charging")
    retry = ternmq.RetryPolicy(first=0.1, attempts=5)  # 0.1 s, 0.2 s ...; five in all
    await client.admin.change_group("payments", "charging", retry=retry)
    cards = ["visa", "slow-bank", "flaky-bank", "stolen", "visa"]
    for order, card in enumerate(cards, start=1):
        await client.send("payments", Payment(order, card, 999), key=f"order-{order}")

    running = asyncio.create_task(client.run())
    await settled(dead=1)
    await settle_dead_letters()
    await settled(dead=0)
    client.stop()
    await running


async def settled(dead: int) -> None:
    """Return when nothing is left but this many dead letters."""
    while True:
        (queue,) = (await client.admin.group("payments", "charging")).queues
        open_ = queue.lag + queue.ready + queue.leased + queue.waiting
        if open_ == 0 and queue.dead == dead:
            return
        await asyncio.sleep(0.05)


if __name__ == "__main__":
    asyncio.run(demo() if "--demo" in sys.argv else client.run())
