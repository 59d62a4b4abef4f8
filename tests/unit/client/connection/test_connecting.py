"""Errors of connections that could not be made."""

from __future__ import annotations

import ssl

import pytest

from ternmq.client.connection.address import parse
from ternmq.client.connection.connecting import closed_at_once, refused
from ternmq.model.errors import CannotConnect

OTHER = {"ternmq://localhost:1": "requires TLS, connect to ternmqs://localhost:1;",
         "ternmqs://localhost:1": "does not use TLS, connect to ternmq://localhost:1;"}  # fmt: skip


@pytest.mark.parametrize("url", OTHER)
def test_a_connection_that_is_closed_at_once_says_what_happened_and_what_to_try(url: str) -> None:
    said = str(closed_at_once(parse(url), ConnectionResetError(104, "Connection reset by peer")))
    assert said.startswith(
        f"connected to {url}, but the other side closed the connection without an answer "
        "(connection reset by peer) (if the port "
    )
    assert OTHER[url] in said
    assert "is starting or stopping, try again; if another program listens there, set " in said
    assert "Errno" not in said
    assert "blocked" not in said
    assert "without an answer (if the port" in str(closed_at_once(parse(url), None))


@pytest.mark.parametrize(
    "error",
    [ssl.SSLEOFError(8, "EOF occurred in violation of protocol"), ConnectionResetError(),
     ConnectionAbortedError()],
)  # fmt: skip
def test_an_end_in_the_tls_handshake_is_the_end_of_a_connection(error: OSError) -> None:
    """A program listens there: `ternmq dev` would be the wrong advice, and its port is taken."""
    told = refused(parse("ternmqs://localhost:1"), error)
    assert type(told) is CannotConnect
    assert "the other side closed the connection without an answer (if the port does" in str(told)


@pytest.mark.parametrize("url", OTHER)
def test_a_connection_that_nobody_accepts_in_time(url: str) -> None:
    told = str(refused(parse(url), TimeoutError("timed out")))
    assert f"to {url} in time" in told
    assert "a firewall" in told
    assert "()" not in told
    assert ("does not use TLS, connect to ternmq://localhost:1" in told) is ("ternmqs" in url)
