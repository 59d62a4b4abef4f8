"""A report that failed lost the counts of the topics behind it, and of buckets long past."""

from __future__ import annotations

import pytest

import ternmq
from ternmq.client.producer.reports import BUCKET_US, Counts
from ternmq.model.errors import Busy, TernMQError
from ternmq.testing import InProcessBroker
from ternmq.wire.control import Report


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
    assert len(counts._topics["orders"][0].buckets) == 2


async def test_a_topic_that_is_gone_keeps_no_other_back(real: InProcessBroker) -> None:
    client = await ternmq.connect(real.url)
    await client.send("first", b"one")
    await client.send("second", b"two")
    await client.admin.delete_topic("first")
    await client._reporter.report(5.0)
    assert not client._producer.counts.reports(client._producer.id, 0)
    await client.close()


async def test_the_last_report_is_tried_again(
    real: InProcessBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await ternmq.connect(real.url)
    await client.send("first", b"one")
    asked: list[Report] = []
    control = client._session.control

    async def refused_once(command, request, answer, seconds=None):  # type: ignore[no-untyped-def]
        asked.append(request)
        if len(asked) == 1:
            raise Busy("not now")
        return await control(command, request, answer, seconds)

    monkeypatch.setattr(client._session, "control", refused_once)
    await client.close()
    assert len(asked) == 2
    assert asked[0] == asked[1]
    assert asked[1].entries[0].closed
