"""A process with handlers and an inbox: ``python -m tests.black_box.inbox_worker BROKER DATABASE``.

It handles topic ``orders`` in group ``billing``: a row of ``effects``, and a message to
``invoices``. Where it dies, if it does, is the third argument:

    before      between the effect and the commit
    after       between the commit and the ack
    hold        nowhere; the handler stays in its transaction until the file DATABASE.go is there

``DATABASE.begun`` gets a line for each call of the handler.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.orm import Session

import ternmq
import ternmq.sync
from ternmq.reliable import Inbox, Outbox, idempotent


def main(broker: str, database: str, where: str, notes: str) -> None:
    """Work until a signal."""
    engine = sa.create_engine(database)
    client = ternmq.sync.connect(broker)
    outbox = Outbox(client, engine, resend_after=1.0)
    inbox = Inbox(engine)

    def die(here: str) -> None:
        if where == here:
            os.kill(os.getpid(), signal.SIGKILL)

    @client.handler_middleware
    def acked_after(delivery: ternmq.sync.Delivery) -> Iterator[None]:
        yield
        die("after")

    @client.handler(
        "orders", group="billing", lease=2.0, retry=ternmq.RetryPolicy(first=0.05, jitter=0)
    )
    @idempotent(inbox)
    def bill(order: str, session: Session) -> None:
        with Path(notes).open("a", encoding="utf-8") as file:
            file.write(f"{order}\n")
        session.execute(sa.text("INSERT INTO effects VALUES (:id, 1)"), {"id": order})
        client.send("invoices", order)
        die("before")
        pause = threading.Event()
        while where == "hold" and not Path(f"{notes}.go").exists():
            pause.wait(0.02)

    client.run()
    outbox.close()
    inbox.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
