"""Rows of MISSION, messages that expire: a broker process that is killed meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import ternmq
import ternmq.sync
from tests.black_box.process import BrokerProcess


@pytest.fixture
def own(tmp_path: Path) -> Iterator[BrokerProcess]:
    """Yield a broker that the test may kill."""
    with BrokerProcess("dev", tmp_path) as broker:
        yield broker


def bodies(client: ternmq.sync.Client, group: str) -> list[bytes]:
    """Pull and ack all there is; return the bodies."""
    found: list[bytes] = []
    while deliveries := client.pull("t", group=group, wait=0):
        for delivery in deliveries:
            found.append(delivery.body)
            delivery.ack()
    return found


@pytest.mark.row("G13")
def test_what_expired_is_never_delivered_also_behind_a_kill(own: BrokerProcess) -> None:
    with ternmq.sync.connect(own.url) as client:
        client.admin.create_topic("t")
        for group in ("early", "late", "drops"):
            client.admin.create_group("t", group)
        client.admin.change_group("t", "drops", expired="drop")
        client.send("t", b"short", expires_after=600)
        assert bodies(client, "early") == [b"short"]
        client.send("t", b"brief", expires_after=0.001)
        client.send("t", b"ever")
    own.kill()
    own.start()
    with ternmq.sync.connect(own.url) as client:
        assert bodies(client, "early") == [b"ever"]
        assert bodies(client, "late") == [b"short", b"ever"]
        assert bodies(client, "drops") == [b"short", b"ever"]
        dead = {
            group: [(one.message.body, one.attempts, one.reason)
                    for one in client.deadletters.browse("t", group) if one.message]
            for group in ("early", "late", "drops")
        }  # fmt: skip
    expired = [(b"brief", 0, "expired")]
    assert dead == {"early": expired, "late": expired, "drops": []}
