"""A broker that is frozen for longer than leases takes none away that consumers have extended."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

import ternmq.sync
from tests.black_box.process import BrokerProcess
from tests.fault.processes import wait_until

LEASE_S = 1.0


@pytest.mark.slow
@pytest.mark.row("F6")
def test_what_waits_in_sockets_counts_before_the_end_of_leases(tmp_path: Path) -> None:
    with BrokerProcess("dev", tmp_path) as broker, ternmq.sync.connect(broker.url) as client:
        client.admin.create_topic("orders", queues=1)
        client.admin.create_group("orders", "g", start="earliest", lease=LEASE_S)
        client.send_many("orders", ["a", "b"])
        (first,) = client.pull("orders", group="g", max_messages=1, wait=10)
        assert broker.process is not None
        with ternmq.sync.connect(broker.url) as other:
            (second,) = other.pull("orders", group="g", max_messages=1, wait=10)
            os.kill(broker.process.pid, signal.SIGSTOP)
            thaw = time.monotonic() + 3 * LEASE_S
            wait_until(lambda: time.monotonic() > thaw, "three leases later")
            os.kill(broker.process.pid, signal.SIGCONT)
            assert list(other.pull("orders", group="g", wait=2 * LEASE_S)) == []
            second.ack()
        first.ack()
        assert [first.lost, second.lost] == [False, False]
        (group,) = client.admin.groups("orders")
        (queue,) = group.queues
        assert (queue.leased, queue.ready, queue.floor) == (0, 0, 2)
