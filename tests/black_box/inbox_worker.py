"""A process with handlers and an inbox: ``python -m tests.black_box.inbox_worker`` with

    BROKER      its URL
    DATABASE    the URL of a database, or of a Redis
    WHERE       the process dies, if it does:
        before      between the effect and the commit; with Redis, and the mark
        after       between the commit or mark and the ack
        hold        nowhere; the handler does not return until the file NOTES.go is there
    NOTES       a file that gets a line for each call of the handler

It handles topic ``orders`` in group ``billing``: a row of ``effects``, and a message to
``invoices``. With Redis the effect is the line in NOTES.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import sqlalchemy as sa
from sqlalchemy.orm import Session

import ternmq
import ternmq.sync
from ternmq.reliable import Inbox, Outbox, idempotent

CLAIM_S: Final = 2.0
"""How long the claim in Redis of a process lasts that dies; that of others: the default."""


def main(broker: str, database: str, where: str, notes: str) -> None:
    """Work until a signal."""
    client = ternmq.sync.connect(broker)
    outbox = None
    if database.startswith("redis"):
        inbox = Inbox.redis(database, **({"claim": CLAIM_S} if where == "before" else {}))
    else:
        engine = sa.create_engine(database)
        outbox = Outbox(client, engine, resend_after=1.0)
        inbox = Inbox(engine)

    def die(here: str) -> None:
        if where == here:
            os.kill(os.getpid(), signal.SIGKILL)

    @client.handler_middleware
    def acked_after(delivery: ternmq.sync.Delivery) -> Iterator[None]:
        yield
        die("after")

    def note(order: str) -> None:
        with Path(notes).open("a", encoding="utf-8") as file:
            file.write(f"{order}\n")

    def finish(order: str) -> None:
        client.send("invoices", order)
        die("before")
        pause = threading.Event()
        while where == "hold" and not Path(f"{notes}.go").exists():
            pause.wait(0.02)

    def bill(order: str, session: Session) -> None:
        note(order)
        session.execute(sa.text("INSERT INTO effects VALUES (:id, 1)"), {"id": order})
        finish(order)

    def bill_without_transaction(order: str) -> None:
        note(order)
        finish(order)

    handler = idempotent(inbox)(bill_without_transaction if outbox is None else bill)
    client.handler(
        "orders", group="billing", lease=2.0, retry=ternmq.RetryPolicy(first=0.05, jitter=0)
    )(handler)
    client.run()
    if outbox is not None:
        outbox.close()
    inbox.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
