"""Payments with Django: the payment is in the database and its message is sent, or neither.

A worker writes each payment into the books, once, however often its message comes.

ternmq dev                          # a broker, in one terminal
python examples/django_shop.py      # in another
"""

import tempfile
import threading
from collections.abc import Iterator

import django
from django.conf import settings

# A project of one file. In yours, these are settings.py and models.py.
settings.configure(
    DATABASES={
        "default": {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": f"{tempfile.mkdtemp()}/shop.sqlite3",
            # The outbox writes to the file as well: begin each transaction as one that writes.
            "OPTIONS": {"transaction_mode": "IMMEDIATE", "timeout": 20},
        }
    },
    INSTALLED_APPS=["ternmq.reliable.django"],  # `manage.py migrate` makes the tables
    USE_TZ=True,
)
django.setup()

from django.core.management import call_command  # noqa: E402
from django.db import connection, models, transaction  # noqa: E402

import ternmq.sync  # noqa: E402
from ternmq.reliable import Inbox, Outbox, idempotent  # noqa: E402


class Payment(models.Model):
    user = models.IntegerField()
    cents = models.IntegerField()

    class Meta:
        app_label = "shop"


class Entry(models.Model):
    payment = models.IntegerField()
    cents = models.IntegerField()

    class Meta:
        app_label = "shop"


# Made once, at import; none of them connects before it is used.
client = ternmq.sync.connect()
outbox = Outbox.django(client, require=["payments"])
inbox = Inbox.django()


@transaction.atomic
def pay(user: int, cents: int) -> ternmq.Receipt:
    """Take a payment. Nothing here waits for the broker, or says that there is an outbox."""
    payment = Payment.objects.create(user=user, cents=cents)
    receipt = client.send(
        "payments", {"id": payment.id, "cents": cents}, ordering_key=f"user-{user}"
    )
    if cents <= 0:
        raise ValueError(f"{cents} cents are no payment")  # row and message are rolled back
    return receipt


@client.handler("payments", group="books")
@idempotent(inbox, by=lambda payment: payment["id"])
def book(payment: dict[str, int]) -> None:
    """Write a payment into the books: the entry and the id of the payment are one transaction."""
    Entry.objects.create(payment=payment["id"], cents=payment["cents"])


@client.handler_middleware
def stop_after_three(delivery: ternmq.sync.Delivery) -> Iterator[None]:
    """End the worker of this example; yours runs until it is stopped: `ternmq worker`."""
    del delivery
    yield
    if inbox.stats().handled + inbox.stats().suppressed == 3:
        client.stop()


def main() -> None:
    call_command("migrate", verbosity=0)
    with connection.schema_editor() as editor:
        editor.create_model(Payment)
        editor.create_model(Entry)
    receipt = pay(3, 500)
    print(f"paid 500; the message is a row: pending={receipt.pending}")
    try:
        pay(3, -1)
    except ValueError as error:
        print(f"not paid: {error}")
    pay(3, 700)
    try:
        client.send("payments", {"id": 0})
    except ternmq.OutsideTransaction:
        print("a payment outside a transaction was refused")
    outbox.flush()
    print("stored at the broker:", [one.value["cents"] for one in client.read("payments")])
    print("rows left:", len(outbox.rows()))

    with transaction.atomic():  # a careless sender: the payment of 700 once more
        client.send("payments", {"id": 2, "cents": 700}, ordering_key="user-3")
    worker = threading.Thread(target=client.run)
    worker.start()
    worker.join()
    print("in the books:", [entry.cents for entry in Entry.objects.order_by("payment")])


if __name__ == "__main__":
    main()
    inbox.close()
    outbox.close()
    client.close()
