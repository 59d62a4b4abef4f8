"""Connections that come as a broker ends: none is left behind."""

from __future__ import annotations

import gc
import socket
import warnings

import pytest

from ternmq.testing import broker


@pytest.mark.parametrize("clean", [True, False])
def test_a_connection_of_the_last_moment_is_closed(*, clean: bool) -> None:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", ResourceWarning)
        for _ in range(20):
            with broker() as one:
                address = "127.0.0.1", one.port
                sockets = [socket.create_connection(address) for _ in range(8)]
                one.stop(clean=clean)
            for connection in sockets:
                connection.close()
        gc.collect()
    assert [str(one.message) for one in told] == []
