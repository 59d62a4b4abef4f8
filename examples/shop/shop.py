"""An application: invoices are mailed, and a reminder two weeks later, unless they are paid.

Its tests are in ``test_shop.py``.
"""

from datetime import timedelta

import ternmq

REMINDER = timedelta(days=14)


class Mailer:
    """Talks to the mail server."""

    def send(self, address: str, text: str) -> None:
        """Send a mail, or raise ``ConnectionError``."""
        raise ConnectionError(f"no mail server for {address}: {text}")


def make_client(url: str | None, mailer: Mailer) -> ternmq.Client:
    """Return a client whose ``run()`` mails invoices and reminders."""
    client = ternmq.connect(url)
    paid: set[str] = set()  # a real shop asks its database

    @client.handler("invoices", group="mailing")
    async def mail(invoice: dict[str, str]) -> None:
        try:
            mailer.send(invoice["to"], invoice["text"])
        except ConnectionError as error:
            raise ternmq.Retry(str(error), after=2 * 60 * 60) from error  # in two hours
        # The id makes a second try of this handler harmless: the reminder is stored once.
        id_ = f"reminder-{invoice['number']}"
        await client.send("reminders", invoice, id=id_, deliver_after=REMINDER)

    @client.handler("payments", group="reminding")
    async def take(payment: dict[str, str]) -> None:
        paid.add(payment["number"])
        try:
            await client.cancel("reminders", f"reminder-{payment['number']}")
        except (ternmq.AlreadyDelivered, ternmq.MessageNotFound):
            pass  # the reminder was sent, or the customer was faster than the mail

    @client.handler("reminders", group="mailing")
    async def remind(invoice: dict[str, str]) -> None:
        if invoice["number"] not in paid:  # it may be paid a moment before this is due
            mailer.send(invoice["to"], f"please pay {invoice['text']}")

    return client
