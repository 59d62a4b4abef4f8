"""Options from arguments and the environment, and errors of failed connections."""

from __future__ import annotations

import os
import re
import socket
import ssl
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Final

from ternmq.client.connection.address import DEFAULT_URL, Address, parse_all, url_of
from ternmq.client.connection.options import Options
from ternmq.client.content.reasons import safe_str
from ternmq.model.errors import CannotConnect, InvalidRequest, InvalidUrl, NotABroker, TernMQError
from ternmq.model.specs import check_name

URL: Final = "TERNMQ_URL"
APP: Final = "TERNMQ_APP"
TOKEN: Final = "TERNMQ_TOKEN"  # noqa: S105 - the name of a variable
INSTANCE: Final = "TERNMQ_INSTANCE"


def options_of(
    url: str | None,
    app: str | None,
    token: str | None,
    timeout: float | timedelta,
    max_processing_time: float | timedelta,
    drain_timeout: float | timedelta = 30.0,
    instance: str | None = None,
) -> Options:
    """Return options; what is None comes from the url, then from the environment.

    Raises:
        InvalidUrl, InvalidName, InvalidRequest: A value is not valid; the text names it.
    """
    if url is not None and not isinstance(url, str):
        raise InvalidUrl(f"url is a str, not {type(url).__name__}: {safe_str(url):.80}")
    if url is not None and not url.strip():
        raise InvalidUrl(f"url is empty: leave it out for {URL}, else the broker of this machine")
    addresses = parse_all(url or os.environ.get(URL) or DEFAULT_URL)
    address = addresses[0]
    app = app if app is not None else address.app or os.environ.get(APP, "")
    if app:
        check_name(app, "app")
    token = token if token is not None else address.token or os.environ.get(TOKEN, "")
    if not isinstance(token, str):
        raise InvalidRequest(f"token is a str, not {type(token).__name__}")
    token = token.strip()  # a file that it was read from ends with a newline
    return Options(
        address=address,
        addresses=addresses,
        app=app,
        token=token,
        timeout=timeout,
        max_processing_time=max_processing_time,
        drain_timeout=drain_timeout,
        instance=os.environ.get(INSTANCE, "") if instance is None else instance,
    )


def why_not_yet(error: TernMQError) -> str:
    """Return in a few words why there is no connection, for a line that names the address."""
    cause = error.__cause__
    return _words(cause) if isinstance(cause, OSError) else str(error.args[0])


def _words(error: OSError) -> str:
    """Return why a connection failed, without error numbers; addresses as in the error."""
    if isinstance(error, ssl.SSLError):  # its number is not an errno
        return str(error)
    if isinstance(error, socket.gaierror):
        return _NAMES.get(error.errno or 0, error.strerror or str(error))
    # An error for several addresses has no number of its own.
    number = error.errno or next(map(int, _ERRNO.findall(str(error))), 0)
    return os.strerror(number).lower() if number > 0 else str(error)


_ERRNO: Final = re.compile(r"\[Errno (\d+)\]")
_NAMES: Final = {
    getattr(socket, name, 0): text
    for name, text in (
        ("EAI_NONAME", "there is no host with this name"),
        ("EAI_AGAIN", "the host's name cannot be resolved"),
        ("EAI_NODATA", "the host's name has no address"),
    )
    if hasattr(socket, name)
}


def refused(address: Address, error: OSError) -> TernMQError:
    """Return the error for a connection that could not be made."""
    if isinstance(error, TimeoutError):
        return silent(address, accepted=False)
    if isinstance(error, ssl.SSLEOFError | ConnectionResetError | ConnectionAbortedError):
        return closed_at_once(address, error)  # by a program that listens there
    if isinstance(error, ssl.SSLCertVerificationError):
        untrusted = CannotConnect(
            f"no broker at {address}: its certificate is not trusted: {error.verify_message}"
        )
        advice = _OTHER_AUTHORITY if address.ca else _NO_AUTHORITY
        untrusted.hint = _UNTRUSTED.get(
            error.verify_code, advice.format(address=address, ca=address.ca)
        )
        return untrusted
    if isinstance(error, ssl.SSLError) and error.reason in _NO_TLS:
        without = NotABroker(f"{address}: this port does not use TLS")
        without.hint = (
            f"connect to {replace(address, tls=False)} if a broker without TLS listens there; "
            f"{_ELSEWHERE}"
        )
        return without
    return CannotConnect(f"no broker at {address} ({_words(error)})")


def reason_at(address: Address, error: TernMQError) -> str:
    """Return in a few words why an address does not serve, for a list of addresses."""
    cause = error.__cause__
    if isinstance(cause, OSError) and not isinstance(cause, TimeoutError | ssl.SSLError):
        return _words(cause)
    text = str(error.args[0]) if error.args else ""
    before = f"no broker at {address} ("
    if text.startswith(before) and text.endswith(")"):
        return text[len(before) : -1]
    for before in (f"{address}: ", f"no broker at {address}: "):
        text = text.removeprefix(before)
    return text.replace(f" to {address}", "") or type(error).__name__


def none_in_time(addresses: Sequence[Address], failure: TernMQError | None) -> CannotConnect:
    """Return the error for a timeout without a connection; ``failure``: of the last attempt."""
    place = url_of(addresses)
    if failure is None:
        return CannotConnect(f"no connection to {place}")
    why = str(failure.args[0])
    named = any(str(address) in why for address in addresses)
    error = CannotConnect(why if named else f"no connection to {place}: {why}")
    error.hint = failure.hint
    return error


_NO_AUTHORITY: Final = (
    "{address}?ca=FILE trusts the certificates in a PEM file, such as those of a CA of your own;"
    " the variable SSL_CERT_FILE names such a file for every program"
)
_OTHER_AUTHORITY: Final = (
    "no certificate in {ca} signed it; ca= names the PEM file of the CA that did"
)
_UNTRUSTED: Final = {
    9: "it is not valid yet: look at the clocks of both machines",
    10: "it has expired: the broker needs another one",
    62: "connect with a name that it contains, or create a certificate for this name",
    64: "connect with a name or address that it contains, or create a certificate for this one",
}
"""Advice by OpenSSL's ``X509_V_ERR_*``, for errors that another file to trust would not fix."""
_NO_TLS: Final = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG")
"""Reasons that OpenSSL gives when the other side's first bytes are not TLS."""


def known_at(address: Address, error: TernMQError) -> TernMQError:
    """Return an error in place of the answer to HELLO, with the address where it helps."""
    if not isinstance(error, NotABroker):
        return error
    known = NotABroker(f"{address}: {error.args[0]}")
    known.hint = error.hint
    return known


_ELSEWHERE: Final = (
    "if another program listens there, set the address of the broker with TERNMQ_URL or"
    " connect(url)"
)


def silent(address: Address, *, accepted: bool) -> CannotConnect:
    """Return the error for a connection that got no answer in time.

    Args:
        address: Of the broker.
        accepted: Whether the connection was accepted, and the TLS handshake done.
    """
    if accepted:
        error = CannotConnect(f"connected to {address}, but got no answer in time")
        error.hint = f"if it is the broker, it is blocked at the moment; {_ELSEWHERE}"
        return error
    what = "connection with TLS" if address.tls else "connection"
    error = CannotConnect(f"no {what} to {address} in time")
    error.hint = "check host and port, and whether a firewall drops the packets"
    if address.tls:
        error.hint += f"; if the port does not use TLS, connect to {replace(address, tls=False)}"
    return error


def closed_at_once(address: Address, error: Exception | None) -> CannotConnect:
    """Return the error for a connection that was accepted, and ended before HELLO was answered."""
    # OpenSSL's words for an end in the handshake say no more than this text.
    words = "" if isinstance(error, ssl.SSLEOFError) else error
    words = _words(words) if isinstance(words, OSError) else words
    why = f" ({words})" if words else ""
    other = replace(address, tls=not address.tls)
    tls = "does not use TLS" if address.tls else "requires TLS"
    closed = CannotConnect(
        f"connected to {address}, but the other side closed the connection without an answer{why}"
    )
    closed.hint = (
        f"if the port {tls}, connect to {other}; if the broker is starting or stopping, try again;"
        f" {_ELSEWHERE}"
    )
    return closed
