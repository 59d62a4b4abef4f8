"""The audit of topics that are deleted, or made again, while their producer goes on."""

from __future__ import annotations

import pytest

pytest.importorskip("deltalake", reason="needs the extra spark")

import ternmq
import ternmq.sync
from ternmq.testing import InProcessBroker
from tests.integration.auditing import Audit


@pytest.fixture
def audit(real: InProcessBroker, tmp_path):
    return Audit(real.port, tmp_path / "tables")


def test_a_topic_that_its_producer_deletes_is_reported_before(real, audit):
    with ternmq.sync.connect(real.url) as client:
        client.send_many("gone", [b"x"] * 20)
        client.send("kept", b"y")
        client.admin.delete_topic("gone")
    audit.run()
    assert audit.findings() == []
    assert audit.verdicts() == {"ok"}
    assert audit.total("sent") == 21


@pytest.mark.parametrize("by_another", [False, True])
def test_a_topic_that_is_made_again_lacks_nothing_of_the_first(real, audit, by_another):
    with ternmq.sync.connect(real.url) as client, ternmq.sync.connect(real.url) as other:
        client.send_many("again", [b"x"] * 20)
        (other if by_another else client).admin.delete_topic("again")
        client.send_many("again", [b"x"] * 5)
    audit.run()
    assert audit.findings() == []
    assert audit.verdicts() == {"ok"}
    assert sorted(row["sent"] for row in audit.rows(tier="stored")) == [5, 20]


def test_a_topic_that_another_deletes_is_reported_at_close(real, audit):
    with ternmq.sync.connect(real.url) as client, ternmq.sync.connect(real.url) as other:
        client.send_many("gone", [b"x"] * 20)
        other.admin.delete_topic("gone")
        other.send_many("gone", [b"y"] * 3)
    audit.run()
    assert audit.findings() == []
    assert sorted(row["sent"] for row in audit.rows(tier="stored")) == [3, 20]
