"""Peers that speak another protocol at the port for clients: how they are told.

A browser or ``curl`` shows the answer of HTTP; a client that expects TLS shows the error.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ternmq.model.errors import ProtocolError

_HTTP: Final = (b"GET ", b"HEAD ", b"POST ", b"PUT ", b"DELETE ", b"OPTIONS ", b"PATCH ", b"PRI * ")
"""First bytes of HTTP requests."""
_TLS: Final = b"\x16\x03"
"""First bytes of a TLS handshake."""
_NO_TLS: Final = (
    "a TLS handshake (ternmqs:// or https://), but this broker has no TLS (setting tls_cert)"
)


class Mistaken(NamedTuple):
    """What is wrong with a peer, and what it is told.

    Attributes:
        error: For the log.
        words: The last bytes that it gets; None: a frame with the error.
    """

    error: ProtocolError
    words: bytes | None


def mistaken(first: bytes, http_address: str) -> Mistaken | None:
    """Return what to tell a peer whose first bytes begin no frame; None: nothing in particular.

    Args:
        first: The bytes.
        http_address: HOST:PORT of the port for HTTP; empty: there is none.
    """
    if first.startswith(_HTTP):
        return Mistaken(ProtocolError("HTTP on the port for clients"), _answer(http_address))
    if first.startswith(_TLS):
        return Mistaken(ProtocolError(_NO_TLS), None)
    return None


def _answer(http_address: str) -> bytes:
    """Return the answer to a client of HTTP: one line with the address of the HTTP port."""
    told = f"HTTP, for metrics and health, is at http://{http_address}"
    text = f"this is the port for clients of TernMQ; {told if http_address else 'HTTP is off'}\n"
    return (
        "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\n"
        f"Content-Length: {len(text)}\r\nConnection: close\r\n\r\n{text}"
    ).encode()
