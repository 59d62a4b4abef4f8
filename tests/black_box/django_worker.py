"""A process with Django, an inbox and orderly sessions, for tests that kill it.

``python -m tests.black_box.django_worker BROKER DATABASE WHERE NOTES``. It handles topic ``orders``
in group ``billing``: a row of ``effects``, and a message to ``invoices``; a step of ``transfers``
is a row as well. Where it dies, if it does, is WHERE:

    before, after             of the handler: before the commit; between the commit and the ack
    step-before, step-after   of step 2: likewise, before and after the commit

The file NOTES gets a line for each call of the handler or of the step.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from django.db import connection, transaction

import ternmq
import ternmq.sync
from ternmq.reliable import Inbox, Outbox, SequenceStep, Steps, idempotent
from tests.integration.reliable.django_project import set_up


def main(broker: str, database: str, where: str, notes: str) -> None:
    """Work until a signal."""
    set_up(database)
    client = ternmq.sync.connect(broker)
    outbox = Outbox.django(client, resend_after=1.0)
    inbox = Inbox.django()
    steps = Steps.django(client, ternmq.Topic("transfers", ordered=True), group="bank", wait=0.1)

    def die(here: str) -> None:
        if where == here:
            os.kill(os.getpid(), signal.SIGKILL)

    def effect(id_: str) -> None:
        with Path(notes).open("a", encoding="utf-8") as file:
            file.write(f"{id_}\n")
        with connection.cursor() as cursor:
            cursor.execute("INSERT INTO effects (id) VALUES (%s)", [id_])

    @client.handler_middleware
    def acked_after(delivery: ternmq.sync.Delivery) -> Iterator[None]:
        yield
        if delivery.topic == "orders":
            die("after")

    @client.handler(
        "orders", group="billing", lease=2.0, retry=ternmq.RetryPolicy(first=0.05, jitter=0)
    )
    @idempotent(inbox)
    def bill(order: str) -> None:
        effect(order)
        client.send("invoices", order)
        die("before")

    @steps.step
    def move(step: SequenceStep) -> None:
        effect(f"{step.session}-{step.number}")
        client.send("invoices", f"{step.session}-{step.number}")
        if step.number == 2:
            die("step-before")
            transaction.on_commit(partial(die, "step-after"))

    client.run()
    outbox.close()
    inbox.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
