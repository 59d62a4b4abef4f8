"""Options that say which broker, and as whom."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Final

from ternmq.client.address import DEFAULT_PORT, Address, parse
from ternmq.client.connecting import TOKEN
from ternmq.model.errors import InvalidName, InvalidUrl, OptionError
from ternmq.model.secret import HIDDEN
from ternmq.model.specs import check_name
from ternmq.spark.values import wrong

SERVERS: Final = "bootstrap.servers"


@dataclass(slots=True, frozen=True)
class Broker:
    """Where brokers are, and as whom to come. Travels to the workers, and shows no token.

    Attributes:
        addresses: Tried in this order.
        app: The application; empty where the broker asks for none.
        token: Its secret, if it was given as an option.
        token_file: A file with it, on every machine that reads or writes; read when needed.
        timeout_ms: How long a request may take, being asked again included.
    """

    addresses: tuple[Address, ...]
    app: str = ""
    token: str = field(default="", repr=False)
    token_file: str = ""
    timeout_ms: int = 30_000

    def secret(self) -> str:
        """Return the token, from wherever it is.

        Raises:
            OptionError: Its file cannot be read.
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
        """Return where it is, for messages."""
        return ", ".join(map(str, self.addresses))


def addresses(name: str, text: str, *, tls: bool, ca: str) -> tuple[Address, ...]:
    """Return the addresses of ``host:port,host:port``, or of urls.

    Raises:
        OptionError: One is none.
    """
    found: list[Address] = []
    for one in (part.strip() for part in text.split(",")):
        url = one if "://" in one else f"{'ternmqs' if tls else 'ternmq'}://{one}"
        try:
            address = parse("" if " " in url else url)
        except InvalidUrl:
            raise wrong(
                name,
                text.rpartition("@")[2],
                f"host:port is wanted, such as localhost:{DEFAULT_PORT}; several parted by commas",
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
    return tuple(found)


def app(name: str, text: str) -> str:
    """Return the name of an app."""
    try:
        return check_name(text.strip())
    except InvalidName:
        raise wrong(name, text, "no name of an app: 1 to 127 of A-Z a-z 0-9 . _ -") from None
