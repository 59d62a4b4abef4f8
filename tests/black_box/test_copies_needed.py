"""``copies=2``: new messages are taken and answered only while two copies count."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

import pytest

import ternmq.sync
from ternmq.cluster.coordination.wishes import GroupSettings
from tests.black_box.pair import Pair
from tests.black_box.process import DEADLINE, wait_until
from tests.black_box.test_pair import consumed, made

OPEN = "ternmq_cluster_writes_open"
SHORT = 'ternmq_cluster_writes_closed{reason="copies"}'


def shown(pair: Pair) -> str:
    with ternmq.sync.connect(pair.url, timeout=DEADLINE) as client:
        return client.admin.status().broker_group.read_only


@pytest.mark.row("D4")
@pytest.mark.timeout(240)
def test_with_one_copy_messages_are_refused_and_deliveries_go_on(tmp_path: Path) -> None:
    with Pair(tmp_path, http=True) as pair:
        made(pair, "orders")
        with ternmq.sync.connect(pair.url, timeout=DEADLINE) as client:
            for number in range(10):
                client.send("orders", {"n": number})
            pair["b"].kill()
            client.send("orders", {"n": 10})  # as without the setting
            assert pair["a"].metric(SHORT) == 0
            pair.set(GroupSettings(copies=2))
            wait_until(lambda: pair["a"].metric(OPEN) == 0, "new messages are refused")
            assert pair["a"].metric(SHORT) == 1
            assert "1 of 2 copies count" in shown(pair)
            with (
                ternmq.sync.connect(pair.url, timeout=2) as hasty,
                pytest.raises((ternmq.ReadOnly, ternmq.SendTimeout)) as refused,
            ):
                hasty.send("orders", {"n": 11})
            assert "1 of 2 copies" in str(refused.value)
            assert sorted(consumed(pair.url, "orders", 11)) == list(range(11))
            pair["b"].start()
            wait_until(lambda: pair["a"].metric(OPEN) == 1, "new messages are taken")
            assert (pair["a"].metric(SHORT), shown(pair)) == (0, "")
            client.send("orders", {"n": 12})
        assert consumed(pair.url, "orders", 1) == [12]


@pytest.mark.timeout(240)
def test_what_was_taken_with_two_copies_is_not_answered_with_one(tmp_path: Path) -> None:
    """The follower falls out while a message is on its way to it."""
    with Pair(tmp_path, http=True) as pair:
        made(pair, "orders")
        pair["b"].kill()
        pair.set(GroupSettings(copies=2))
        wait_until(lambda: pair["a"].metric(OPEN) == 0, "the primary knows the setting")
        pair["b"].start()
        wait_until(lambda: pair["a"].metric(OPEN) == 1, "two copies count")
        with ternmq.sync.connect(pair.url, timeout=2 * DEADLINE) as client:
            client.send("orders", {"n": 0})
            process = pair["b"].process
            assert process is not None
            process.send_signal(signal.SIGSTOP)
            sender = threading.Thread(target=client.send, args=("orders", {"n": 1}), daemon=True)
            sender.start()
            try:
                wait_until(lambda: len(pair.record().members) == 1, "b is no member")
                wait_until(lambda: pair["a"].metric(OPEN) == 0, "the primary acts on it")
                assert sender.is_alive(), "answered with one copy"
            finally:
                process.send_signal(signal.SIGCONT)
            sender.join(2 * DEADLINE)
            assert not sender.is_alive()
            assert len(pair.record().members) == 2
        assert sorted(consumed(pair.url, "orders", 2)) == [0, 1]
