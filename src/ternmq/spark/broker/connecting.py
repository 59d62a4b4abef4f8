"""Options that select the broker and the app."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Final

from ternmq.client.connection.address import DEFAULT_PORT, Address, parse, parse_all, url_of
from ternmq.client.connection.connecting import TOKEN
from ternmq.model.errors import InvalidName, InvalidUrl, OptionError
from ternmq.model.secret import HIDDEN
from ternmq.model.specs import check_name
from ternmq.spark.broker.values import wrong

SERVERS: Final = "bootstrap.servers"


@dataclass(slots=True, frozen=True)
class Broker:
    """Addresses of a broker, and the app. Is sent to workers; its ``repr`` hides the token.

    Attributes:
        addresses: Of the brokers of one broker group, of which one serves; all with TLS or none.
        app: The app; empty if the broker requires none.
        token: The app's token, if it was given as an option.
        token_file: File with the token, on every machine that reads or writes; read when needed.
        timeout_ms: Longest time for a request, including its repetitions.
    """

    addresses: tuple[Address, ...]
    app: str = ""
    token: str = field(default="", repr=False)
    token_file: str = ""
    timeout_ms: int = 30_000

    def secret(self) -> str:
        """Return the token: from the option, the file or the environment.

        Raises:
            OptionError: The file cannot be read, or is empty.
        """
        if self.token:
            return self.token
        if not self.token_file:
            return os.environ.get(TOKEN, "")
        try:
            with open(self.token_file, encoding="utf-8") as file:  # noqa: PTH123
                found = file.read().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise OptionError(
                f"option ternmq.tokenFile={self.token_file!r} cannot be read on this machine: "
                f"{error}"
            ) from None
        if not found:
            raise OptionError(f"option ternmq.tokenFile={self.token_file!r}: the file is empty")
        return found

    def shown(self) -> str:
        """Return the addresses as a text for people."""
        return ", ".join(map(str, self.addresses))


def addresses(name: str, text: str, *, tls: bool, ca: str) -> tuple[Address, ...]:
    """Parse the addresses of ``host:port,host:port``, of a url with several hosts, or of urls.

    Raises:
        OptionError: One is not valid.
    """
    found: list[Address] = []
    scheme = f"{'ternmqs' if tls else 'ternmq'}://"
    for one in (part.strip() for part in text.split(",")):
        if "://" in one:  # of this host, and of those behind it without a scheme
            scheme = one[: one.index("://") + 3]
        url = one if "://" in one else f"{scheme}{one}"
        try:
            address = parse("" if " " in url else url)
        except InvalidUrl:
            raise wrong(
                name,
                text.rpartition("@")[2],
                f"host:port is required, such as localhost:{DEFAULT_PORT}; several separated by "
                "commas",
            ) from None
        if address.token:
            raise OptionError(
                f"option {name}={HIDDEN}: a token in an address would be shown in plans; "
                f"use ternmq.tokenFile"
            )
        if address.app:
            raise wrong(name, text, "the app is named by ternmq.app")
        found.append(
            Address(address.host, address.port, address.tls or tls, "", "", address.ca or ca)
        )
    try:
        parse_all(url_of(found))
    except InvalidUrl as error:
        raise wrong(name, text, str(error.args[0])) from None
    if len({(one.tls, one.ca) for one in found}) > 1:
        raise wrong(name, text, "the brokers use TLS all or none, with one file of certificates")
    return tuple(found)


def app(name: str, text: str) -> str:
    """Check and return the name of an app."""
    try:
        return check_name(text.strip())
    except InvalidName:
        raise wrong(
            name, text, "not a valid name of an app: 1 to 127 of A-Z a-z 0-9 . _ -"
        ) from None
