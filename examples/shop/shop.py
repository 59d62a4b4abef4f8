"""An application: invoices are mailed. Its tests are in ``test_shop.py``."""

import ternmq


class Mailer:
    """Talks to the mail server."""

    def send(self, address: str, text: str) -> None:
        """Send a mail, or raise ``ConnectionError``."""
        raise ConnectionError(f"no mail server for {address}: {text}")


def make_client(url: str | None, mailer: Mailer) -> ternmq.Client:
    """Return a client whose ``run()`` mails invoices."""
    client = ternmq.connect(url)

    @client.handler("invoices", group="mailing")
    async def mail(invoice: dict[str, str]) -> None:
        try:
            mailer.send(invoice["to"], invoice["text"])
        except ConnectionError as error:
            raise ternmq.Retry(str(error), after=2 * 60 * 60) from error  # in two hours

    return client
