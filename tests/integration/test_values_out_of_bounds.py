"""Values that a user gives by mistake, or with white space around them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

import ternmq
import ternmq.sync
from ternmq.testing import InProcessBroker, broker

TOKEN = "a token that is long enough for a test"


def test_a_token_with_a_newline_behind_it() -> None:
    with (
        broker(manual=False, settings={"auth": True, "admin_token": TOKEN}) as one,
        ternmq.sync.connect(one.url, app="admin", token=f" {TOKEN}\n") as client,
    ):
        client.admin.create_topic("t")


@pytest.mark.parametrize("number", [-1, 1 << 64])
def test_numbers_of_a_transaction_are_named(real: InProcessBroker, number: int) -> None:
    with ternmq.sync.connect(real.url) as client:
        client.admin.create_topic("t")
        with pytest.raises(ternmq.InvalidRequest, match=r"batch_id is a whole number from 0"):
            client.prepare("t", [b"x"], writer="w", batch_id=number)
        prepared = client.prepare("t", [b"x"], writer="w", batch_id=1)
        with pytest.raises(ternmq.InvalidRequest, match=r"digest is a whole number from 0"):
            client.commit_prepared("w", 1, prepared, digest=number)
        assert client.commit_prepared("w", 1, prepared, digest=7).rows == 1


def test_a_reset_to_a_time_before_all_clocks(real: InProcessBroker) -> None:
    with ternmq.sync.connect(real.url) as client:
        client.send_many("t", [b"a", b"b"])
        client.pull("t", group="g").ack()
        (queue,) = client.admin.reset_group("t", "g", datetime(1800, 1, 1, tzinfo=UTC))
        assert (queue.offset, queue.unread) == (0, 2)
