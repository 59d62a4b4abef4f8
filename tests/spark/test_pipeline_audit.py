"""The audit by Spark's workers says the same as the audit in process."""

from __future__ import annotations

import pytest

pytest.importorskip("deltalake", reason="needs the extra spark")

import ternmq.sync
from tests.integration.auditing import LATER_US, Audit, now_us
from tests.integration.dropping import DroppingProxy


@pytest.mark.row("R8")
def test_workers_gather_and_the_driver_judges(spark, real, tmp_path):
    with (
        DroppingProxy(real.port, lambda number: number == 1) as proxy,
        ternmq.sync.connect(proxy.url) as client,
    ):
        client.admin.create_topic("orders", queues=2)
        client.send_many("orders", [b"%d" % n for n in range(100)])
        for n in range(3):
            client.send_oneway("orders", b"%d" % n)
            client.flush()
        client.pull("orders", group="billing", max_messages=30).ack()
    now = now_us() + LATER_US
    by_spark, here = Audit(real.port, tmp_path / "spark"), Audit(real.port, tmp_path / "here")
    by_spark.run(now, spark=spark, spark_from_mb="0")
    here.run(now)
    assert by_spark.rows() == here.rows() != []
    assert by_spark.findings() == here.findings()
    assert "lost" in by_spark.verdicts()
    (lost,) = by_spark.named("lost")
    assert lost.endswith(":66")
    with ternmq.sync.connect(real.url) as client:
        client.send("orders", b"more")
    by_spark.run(now + 1, spark=spark, spark_from_mb="0")
    here.run(now + 1)
    assert by_spark.rows() == here.rows()
    assert by_spark.total("stored") == 103
