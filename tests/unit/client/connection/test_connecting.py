"""Errors of connections that could not be made."""

from __future__ import annotations

import pytest

from ternmq.client.connection.address import parse
from ternmq.client.connection.connecting import closed_at_once


@pytest.mark.parametrize("url", ["ternmq://localhost", "ternmqs://localhost"])
def test_a_connection_that_is_closed_at_once_names_the_usual_cause_first(url: str) -> None:
    said = str(closed_at_once(parse(url), ConnectionResetError(104, "Connection reset by peer")))
    assert "closed the connection at once (connection reset by peer): the broker is stop" in said
    assert "Errno" not in said
    assert ("the port requires TLS" in said) is url.startswith("ternmq:")
    assert "closed the connection at once: the broker is" in str(closed_at_once(parse(url), None))
    assert "blocked" not in said
