"""Address of a broker: ``ternmq://[app[:token]@]host[:port]``, ``ternmqs://`` over TLS.

``?ca=FILE`` after a ``ternmqs://`` address names a PEM file of the certificates to trust.
"""

from __future__ import annotations

import re
import ssl
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qs, unquote, urlsplit

from ternmq.model.errors import InvalidUrl

DEFAULT_PORT: Final = 7117
_FILE: Final = "ca= names a PEM file, below the folder that the process runs in or by a whole path"
_QUOTED: Final = "write %2F, %3F or %23 for it, or give app= and token= besides the url"
_SCHEME: Final = re.compile(r"[A-Za-z0-9+.-]*://")
_ENDS_HOST: Final = re.compile(r"[/?#]")
DEFAULT_URL: Final = f"ternmq://localhost:{DEFAULT_PORT}"


@dataclass(slots=True, frozen=True)
class Address:
    """A broker's address: ``client.options.address``. ``ternmq.connect`` makes it of a url.

    Attributes:
        host: Name or IP address.
        port: Port.
        tls: Whether the connection uses TLS.
        app: Name of the app, if the url has one; else empty.
        token: Its token, if the url has one; else empty.
        ca: File with the certificates to trust; empty: those of the system.
    """

    host: str
    port: int
    tls: bool = False
    app: str = ""
    token: str = ""
    ca: str = ""

    def __str__(self) -> str:
        """Return the url, without app and token."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'ternmqs' if self.tls else 'ternmq'}://{host}:{self.port}"

    def __repr__(self) -> str:
        return f"Address({str(self)!r})"

    def ssl_context(self) -> ssl.SSLContext | None:
        """Return the TLS context, or None without TLS.

        Raises:
            InvalidUrl: The file of certificates cannot be read.
        """
        if not self.tls:
            return None
        try:
            return ssl.create_default_context(cafile=self.ca or None)
        except ssl.SSLError as error:  # an OSError, too
            raise _wrong(f"ca={self.ca} is not a PEM file of certificates", _FILE) from error
        except OSError as error:
            raise _wrong(f"ca={self.ca} cannot be read: {error.strerror}", _FILE) from error


def parse(url: str) -> Address:
    """Return the address in a url.

    Raises:
        InvalidUrl: It is not a TernMQ url.
    """
    try:
        return _parsed(url)
    except InvalidUrl:
        before, at, _ = _behind_scheme(str(url)).rpartition("@")
        if at and _ENDS_HOST.search(before):  # the other error's text may contain the token
            raise _wrong(
                f"{_shown(url)}: app or token contains a '/', '?' or '#'", _QUOTED
            ) from None
        raise


def _parsed(url: str) -> Address:
    try:
        parts = urlsplit(str(url))
        port = parts.port
    except ValueError as error:
        raise InvalidUrl(f"{_shown(url)}: {error}") from error
    if parts.scheme not in {"ternmq", "ternmqs"}:
        raise InvalidUrl(f"{_shown(url)} begins with neither ternmq:// nor ternmqs://")
    if not parts.hostname:
        raise InvalidUrl(f"{_shown(url)} has no host")
    try:
        parts.hostname.encode("idna")  # as the look-up of the name does
    except UnicodeError as error:
        raise InvalidUrl(
            f"{_shown(url)}: {parts.hostname!r} is not a valid host: {error}"
        ) from error
    if port == 0:
        raise InvalidUrl(f"{_shown(url)}: port 0 is no broker's; leave it out for {DEFAULT_PORT}")
    if parts.path not in {"", "/"} or parts.fragment:
        raise InvalidUrl(f"{_shown(url)}: nothing may follow the port")
    options = parse_qs(parts.query)
    unknown = sorted(options.keys() - {"ca"})
    if unknown:
        raise _wrong(f"{_shown(url)}: {unknown[0]}= is not an option", "the only one is ?ca=FILE")
    if options and parts.scheme != "ternmqs":
        raise _wrong(f"{_shown(url)}: ca= is for TLS", "use ternmqs:// if the broker has TLS")
    return Address(
        parts.hostname,
        DEFAULT_PORT if port is None else port,
        parts.scheme == "ternmqs",
        unquote(parts.username or ""),
        unquote(parts.password or ""),
        options.get("ca", [""])[-1],
    )


def _wrong(text: str, hint: str) -> InvalidUrl:
    """Return an error with a hint of its own."""
    error = InvalidUrl(text)
    error.hint = hint
    return error


def _shown(url: str) -> str:
    """Return a url for an error text, without what precedes the host: it may be a secret."""
    text = str(url)
    rest = _behind_scheme(text)
    return repr(f"{text[: len(text) - len(rest)]}{rest.rpartition('@')[2]}"[:100])


def _behind_scheme(text: str) -> str:
    """Return what follows ``SCHEME://``; all of it if there is none."""
    found = _SCHEME.match(text)
    return text[found.end() :] if found else text
