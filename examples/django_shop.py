"""Payments with Django: the payment is in the database and its message is sent, or neither.

ternmq dev                          # a broker, in one terminal
python examples/django_shop.py      # in another
"""

import tempfile

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
from ternmq.reliable import Outbox  # noqa: E402


class Payment(models.Model):
    user = models.IntegerField()
    cents = models.IntegerField()

    class Meta:
        app_label = "shop"


# Made once, at import; neither connects before it is used.
client = ternmq.sync.connect()
outbox = Outbox.django(client, require=["payments"])


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


def main() -> None:
    call_command("migrate", verbosity=0)
    with connection.schema_editor() as editor:
        editor.create_model(Payment)
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


if __name__ == "__main__":
    main()
    outbox.close()
    client.close()
