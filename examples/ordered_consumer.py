"""Order per key: the steps of an account come in the order they were sent, whoever works on them.

    ternmq dev                              # a broker, in one terminal
    python examples/ordered_consumer.py     # in another: sends, then three processes consume

Accounts are worked on at the same time; the steps of one account one after the other, also when a
step fails and is tried again: then its account waits, the others do not.
"""

import asyncio
import os
import subprocess
import sys

import ternmq

STEPS = 8
ACCOUNTS = 5


async def produce() -> None:
    """Send the steps of all accounts; the ordering key says what belongs together."""
    async with ternmq.connect() as client:
        try:
            await client.admin.create_topic("steps", ordered=True, queues=2)
        except ternmq.TopicExists:
            pass
        for number in range(STEPS):
            for account in range(ACCOUNTS):
                step = {"account": account, "number": number}
                await client.send("steps", step, ordering_key=f"account-{account}")


async def consume() -> None:
    """Work until nothing has come for a second; run it in as many processes as you like."""
    async with (
        ternmq.connect() as client,
        client.consume("steps", group="bookkeeping", mode="ordered") as deliveries,
    ):
        while True:
            try:
                delivery = await asyncio.wait_for(anext(deliveries), timeout=1.0)
            except TimeoutError:
                return
            async with delivery.process():
                step = delivery.value
                if step == {"account": 2, "number": 3} and delivery.attempt == 1:
                    raise ternmq.Retry("the ledger is locked", after=0.1)
                line = f"{os.getpid()} account {step['account']} step {step['number']}\n"
                print(line, end="", flush=True)  # line and end in one write: three processes print


def main() -> None:
    asyncio.run(produce())
    workers = [subprocess.Popen([sys.executable, __file__, "consume"]) for _ in range(3)]
    for worker in workers:
        worker.wait()


if __name__ == "__main__":
    if sys.argv[1:] == ["consume"]:
        asyncio.run(consume())
    else:
        main()
