"""The error of a request without a broker said the same in two tracebacks, below a third one."""

from __future__ import annotations

import traceback

import pytest

import ternmq.sync
from ternmq.model.errors import CannotConnect
from ternmq.testing import broker


def test_its_traceback_has_the_error_and_its_cause() -> None:
    with broker(manual=False) as one, ternmq.sync.connect(one.url, timeout=1.0) as client:

        @client.checker("orders")
        def check(transaction: object) -> None:
            del transaction

        client.connect()
        with (  # noqa: PT012 - the error goes through the end of the block
            pytest.raises(CannotConnect) as caught,
            client.transaction("orders") as tx,
        ):
            tx.send("orders", b"one")
            one.stop()
            tx.send("orders", b"two")
    lines = traceback.format_exception(caught.value)
    text = "".join(lines)
    assert isinstance(caught.value.__cause__, ConnectionRefusedError)
    assert text.count("Traceback (most recent call last)") == 2, text
    assert text.count("CannotConnect: ") == 1, text
    assert "During handling" not in text
