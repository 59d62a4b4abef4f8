"""Addresses of brokers: ``ternmq://[app[:token]@]host[:port][,host[:port]...]``.

With ``ternmqs://``, the connection uses TLS; ``?ca=FILE`` after such an address names a PEM file of
the certificates to trust. Several hosts are brokers of one broker group, of which one serves: app,
token and ``?ca=FILE`` apply to all of them.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qs, quote, unquote, urlsplit

from ternmq.model.errors import InvalidUrl

DEFAULT_PORT: Final = 7117
_FILE: Final = "ca= names a PEM file, below the folder that the process runs in or by a whole path"
_QUOTED: Final = "write %2F, %3F or %23 for it, or give app= and token= besides the url"
_SCHEME: Final = re.compile(r"[A-Za-z0-9+.-]*://")
_SCHEME_AGAIN: Final = re.compile(r",\s*ternmqs?://")
_SCHEME_ONCE: Final = "write it once: ternmq://APP:TOKEN@a:7117,b:7117"
_ENDS_HOST: Final = re.compile(r"[/?#]")
_SECOND_APP: Final = re.compile(r"@.*,")
DEFAULT_URL: Final = f"ternmq://localhost:{DEFAULT_PORT}"
MOST_HOSTS: Final = 16
"""Most hosts in a url: each is tried 250 ms after the one before."""
_ONE_HOST: Final = "one address is required here; separate urls name separate brokers"
_ONCE: Final = (
    "app and token precede the first host, once; write %40 for an @ that is part of the token"
)
_HOSTS: Final = "leave out what is not needed: ternmq://a:7117,b:7117,c:7117"


@dataclass(slots=True, frozen=True)
class Address:
    """A broker's address: ``client.options.address``. ``ternmq.connect`` makes it of a url.

    A url of several brokers has several: ``client.options.addresses``.

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


def url_of(addresses: Sequence[Address], *, ca: bool = False) -> str:
    """Return the url of brokers that share scheme and file of certificates, without app and token.

    Args:
        addresses: At least one.
        ca: Whether to include the file of certificates.
    """
    first = addresses[0]
    scheme = f"{'ternmqs' if first.tls else 'ternmq'}://"
    hosts = ",".join(str(one).removeprefix(scheme) for one in addresses)
    return f"{scheme}{hosts}" + (f"?ca={quote(first.ca)}" if ca and first.ca else "")


def parse(url: str) -> Address:
    """Return the address in a url of one broker.

    Raises:
        InvalidUrl: It is not a TernMQ url, or names several brokers.
    """
    found = parse_all(url)
    if len(found) > 1:
        raise _wrong(f"{_shown(url)} names {len(found)} brokers", _ONE_HOST)
    return found[0]


def parse_all(url: str) -> tuple[Address, ...]:
    """Return the addresses in a url, in its order; app and token are those of each.

    Raises:
        InvalidUrl: It is not a TernMQ url, or names a broker twice, or too many.
    """
    if _SCHEME_AGAIN.search(str(url)):
        raise _wrong(f"{_shown(url)} has its scheme more than once", _SCHEME_ONCE)
    try:
        return _all_parsed(str(url))
    except InvalidUrl:
        before, at, _ = _behind_scheme(str(url)).rpartition("@")
        if at and _ENDS_HOST.search(before):  # the other error's text may contain the token
            raise _wrong(
                f"{_shown(url)}: app or token contains a '/', '?' or '#'", _QUOTED
            ) from None
        raise


def _all_parsed(url: str) -> tuple[Address, ...]:
    rest = _behind_scheme(url)
    scheme = url[: len(url) - len(rest)]
    end = _ENDS_HOST.search(rest)
    place, after = (rest, "") if end is None else (rest[: end.start()], rest[end.start() :])
    before, at, hosts = place.rpartition("@")
    if _SECOND_APP.search(before):  # else the first host and port would be part of the token
        raise _wrong(f"{_shown(url)}: app and token are given for several hosts", _ONCE)
    if "," not in hosts:
        return (_parsed(url),)
    names = [one.strip() for one in hosts.split(",")]
    if len(names) > MOST_HOSTS:
        raise _wrong(f"{_shown(url)} has {len(names)} hosts, at most {MOST_HOSTS} are allowed",
                     _HOSTS)  # fmt: skip
    found: list[Address] = []
    for number, name in enumerate(names, 1):
        if not name:
            raise _wrong(f"{_shown(url)}: host {number} of {len(names)} is empty", _HOSTS)
        # The same app and token for each; the text of an error has neither.
        address = _parsed(f"{scheme}{before}{at}{name}{after}")
        if address in found:
            raise _wrong(f"{_shown(url)} names {address} twice", _HOSTS)
        found.append(address)
    return tuple(found)


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
