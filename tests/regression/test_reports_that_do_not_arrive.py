"""A report that failed lost the counts of the topics behind it, and of buckets long past."""

from __future__ import annotations

import pytest

import ternmq
from ternmq.client.reports import BUCKET_US, Counts
from ternmq.model.errors import TernMQError
from ternmq.testing import InProcessBroker


async def test_topics_behind_it_are_told_later(real: InProcessBroker) -> None:
    client = await ternmq.connect(real.url)
    await client.send("first", b"one")
    await client.send("second", b"two")
    real.stop()
    with pytest.raises(TernMQError):
        await client._reporter.report(0.05)
    left = client._producer.counts.reports(client._producer.id, 0)
    assert {one.topic for one in left} == {"first", "second"}
    await client.close()


def test_an_old_bucket_is_not_told_as_empty() -> None:
    counts = Counts()
    for bucket in range(5):
        counts.sent("orders", bucket * BUCKET_US, 7 * bucket, 7)
    now = 5 * BUCKET_US
    (report,) = counts.reports(1, now)
    counts.again(report)
    (again,) = counts.reports(1, now)
    assert again.entries == report.entries
    assert not counts.reports(1, now)
    assert len(counts._topics["orders"]) == 2


async def test_a_topic_that_is_gone_keeps_no_other_back(real: InProcessBroker) -> None:
    client = await ternmq.connect(real.url)
    await client.send("first", b"one")
    await client.send("second", b"two")
    await client.admin.delete_topic("first")
    await client._reporter.report(5.0)
    assert not client._producer.counts.reports(client._producer.id, 0)
    await client.close()
