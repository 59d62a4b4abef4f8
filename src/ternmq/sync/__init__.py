"""The client for programs without an event loop: the same names as ``ternmq``, blocking.

    with ternmq.sync.connect("ternmq://localhost:7117") as client:
        client.send("orders", {"id": 7})
        with client.consume("orders", group="billing") as deliveries:
            for delivery in deliveries:
                with delivery.process():
                    ...

A client may be used by many threads. It runs a ``ternmq.Client`` in an event loop in its own
thread, and gives the same guarantees. In a forked child it starts over, with its own thread,
connection and client id; objects that were opened before the fork raise ``ClientForked``.
"""

from __future__ import annotations

from datetime import timedelta

from ternmq.client.connection.connecting import options_of
from ternmq.client.connection.options import Options
from ternmq.client.consumer.concluding import Reject, Retry
from ternmq.client.content.message import Failure, Message, Receipt
from ternmq.client.handler.blocking import BlockingDelivery as Delivery
from ternmq.client.transaction.blocking import BlockingPreparedTransaction as PreparedTransaction
from ternmq.client.transaction.decision import Decision
from ternmq.client.transaction.prepared import PreparedMessage
from ternmq.sync.client import Client
from ternmq.sync.consumer import Consumer
from ternmq.sync.deliveries import Deliveries
from ternmq.sync.transactions import Transaction


def connect(
    url: str | None = None,
    *,
    app: str | None = None,
    token: str | None = None,
    timeout: float | timedelta = 10.0,
    max_processing_time: float | timedelta = 600.0,
    drain_timeout: float | timedelta = 30.0,
    instance: str | None = None,
    options: Options | None = None,
) -> Client:
    """Return a client of a broker. No I/O: entering it, or its first use, connects.

    The arguments are those of ``ternmq.connect``.
    """
    if options is None:
        options = options_of(url, app, token, timeout, max_processing_time, drain_timeout, instance)
    return Client(Options.checked(options))


__all__ = [
    "connect", "Client", "Options", "Message", "Receipt", "Failure", "Consumer", "Delivery",
    "Deliveries", "Retry", "Reject", "Transaction", "PreparedTransaction", "PreparedMessage",
    "Decision",
]  # fmt: skip
