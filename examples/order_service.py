"""An order service: an order is on disk before the customer reads "thank you".

ternmq dev                          # a broker, in one terminal
python examples/order_service.py    # in another
"""

import asyncio
from dataclasses import dataclass

import ternmq


@dataclass
class Order:
    """What a customer wants."""

    number: int
    customer: str
    cents: int


async def place(client: ternmq.Client, order: Order) -> ternmq.Receipt:
    """Take an order. When this returns, a power cut does not lose it."""
    return await client.send(
        "orders",
        order,
        key=f"order-{order.number}",  # to find it again
        tag="large" if order.cents >= 100_000 else "small",  # for groups that want only some
        headers={"source": "web"},
        id=f"order-{order.number}",  # placed twice, stored once
    )


async def import_prices(client: ternmq.Client, lines: list[str]) -> None:
    """Send a file of prices with one call; what cannot be sent does not keep the rest back."""
    try:
        receipts = await client.send_many("prices", lines)
    except ternmq.PartialSendError as error:
        for failure in error.failures:
            print(f"line {failure.row + 1} was not sent: {failure.error}")
        receipts = [one for one in error.receipts if one is not None]
    print(f"{len(receipts)} prices are stored")


async def main() -> None:
    async with ternmq.connect() as client:
        receipt = await place(client, Order(7, "Ada", 1250))
        print(f"order 7 is message {receipt.offset} of {receipt.topic}, durable: {receipt.durable}")

        again = await place(client, Order(7, "Ada", 1250))  # the browser sent the form twice
        print(f"placed again: duplicate={again.duplicate}, still message {again.offset}")

        # What is sent at the same time shares batches and disk syncs.
        await asyncio.gather(*(place(client, Order(n, "Bob", n * 2000)) for n in range(8, 108)))
        (found,) = await client.find("orders", key="order-60")
        print(f"order 60: {found.value}")

        await import_prices(client, ["apple;120", "x" * 2_000_000, "pear;95"])


if __name__ == "__main__":
    asyncio.run(main())
