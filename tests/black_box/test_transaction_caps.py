"""Limits of transactions with check-back, as an application meets them at a broker process.

What is over a limit is refused with one named error, nothing of it is stored, and neither the
transaction nor anybody else notices.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

import ternmq
import ternmq.sync
from tests.black_box.others import Others
from tests.black_box.process import BrokerProcess

OPEN = 20
SHARE = 18
"""What one app may have of them while others have none."""
SETTLES = 10
BATCHES = 5
GROUP = "order-service"


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """Yield a broker whose transactions are soon at their limits."""
    with BrokerProcess(
        "dev", tmp_path_factory.mktemp("small"), limits_open_transactions=str(OPEN),
        limits_transaction_settles=str(SETTLES), limits_transaction_batches=str(BATCHES),
    ) as broker:  # fmt: skip
        yield broker


@pytest.fixture
def client(small: BrokerProcess) -> Iterator[ternmq.sync.Client]:
    with ternmq.sync.connect(small.url, timeout=2) as one:
        one.checker(GROUP)(lambda tx: ternmq.Decision.UNKNOWN)
        yield one


def bodies(client: ternmq.sync.Client, topic: str) -> list[bytes]:
    return [one.body for one in client.read(topic)]


def undecided(client: ternmq.sync.Client) -> int:
    return len(client.admin.checked_transactions(limit=1000))


@pytest.mark.row("J0a")
def test_one_open_transaction_too_many_is_busy_and_nobody_else_notices(
    small: BrokerProcess, client: ternmq.sync.Client
) -> None:
    others = Others(small.url)
    with ExitStack() as blocks, others:
        opened = [blocks.enter_context(client.transaction(GROUP)) for _ in range(SHARE)]
        for number, tx in enumerate(opened):
            tx.send("many", b"%d" % number)
        for _ in range(3):
            with client.transaction(GROUP) as tx, pytest.raises(ternmq.Busy, match="18 trans"):
                tx.send("many", b"too many")
            with pytest.raises(ternmq.TernMQError):
                tx.send("many", b"after it")
        assert undecided(client) == SHARE
        other = blocks.enter_context(ternmq.sync.connect(small.url, app="other"))

        @other.checker("theirs")
        def check(tx: ternmq.sync.PreparedTransaction) -> ternmq.Decision:
            return ternmq.Decision.UNKNOWN

        theirs = [blocks.enter_context(other.transaction("theirs")) for _ in range(OPEN - SHARE)]
        for tx in theirs:  # the rest is for others
            tx.send("theirs", b"theirs")
        with other.transaction("theirs") as tx, pytest.raises(ternmq.Busy, match="20 trans"):
            tx.send("theirs", b"too many")
        assert undecided(client) == OPEN
        opened[0].send("many", b"more")  # those that are open go on
        for tx in (opened[0], *theirs):
            tx.commit()
        with client.transaction(GROUP) as tx:  # and there is room for another one
            tx.send("many", b"the next")
    assert others.done > 0
    found = [b"%d" % number for number in range(SHARE)]
    assert sorted(bodies(client, "many")) == sorted([*found, b"more", b"the next"])
    assert undecided(client) == 0


def test_one_batch_too_many_is_refused_and_the_rest_is_rolled_back(
    client: ternmq.sync.Client,
) -> None:
    tx = client.transaction(GROUP)

    def sends() -> None:
        with tx:
            for number in range(BATCHES + 1):
                tx.send("batches", b"%d" % number)

    with pytest.raises(ternmq.TransactionTooLarge, match="limit transaction_batches is 5"):
        sends()
    assert client.transaction_outcome(tx.id) is ternmq.Decision.ROLLBACK
    assert bodies(client, "batches") == []
    with client.transaction(GROUP) as tx:  # as the error says: larger batches
        tx.send_many("batches", [b"%d" % number for number in range(10 * BATCHES)])
    assert len(bodies(client, "batches")) == 10 * BATCHES


def test_one_settle_too_many_is_refused_and_its_message_is_still_held(
    client: ternmq.sync.Client,
) -> None:
    count = 2 * SETTLES + 2
    client.send_many("settles", [b"%d" % number for number in range(count)])
    deliveries = client.pull("settles", group="g", max_messages=count, wait=10)
    assert len(deliveries) == count
    apart = deliveries[::2]  # neighbours that are settled together count once
    tx = client.transaction(GROUP)

    def settles() -> None:
        with tx:
            for delivery in apart:
                tx.ack(delivery)

    with pytest.raises(ternmq.TransactionTooLarge, match="limit transaction_settles is 10"):
        settles()
    assert client.transaction_outcome(tx.id) is ternmq.Decision.ROLLBACK
    assert [one.lost for one in apart] == [True] * SETTLES + [False]
    kept = [*deliveries[1::2], apart[-1]]
    assert not any(one.settled or one.lost for one in kept)
    for delivery in kept:
        delivery.ack()
    came: dict[bytes, int] = {}
    while len(came) < SETTLES:
        again = client.pull("settles", group="g", max_messages=count, wait=10)
        assert again, f"{len(came)} came again"
        with client.transaction(GROUP) as tx:
            tx.ack(again)
        came |= {one.body: one.attempt for one in again}
    assert came == {one.body: 1 for one in apart[:-1]}, "a roll back is no attempt"
    assert client.admin.group("settles", "g").queues[0].floor == count
