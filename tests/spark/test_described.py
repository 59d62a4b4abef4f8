"""Spark's user interface says which job of the pipeline its work is for."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("deltalake", reason="needs pyspark and a Java: pip install ternmq[spark]")

from ternmq.client.connection.address import parse
from ternmq.pipeline.job.described import described
from ternmq.pipeline.running.jobs import chosen
from ternmq.pipeline.running.runner import Runner
from ternmq.pipeline.tables.folder import Folder
from ternmq.spark.broker.connecting import Broker

NOW = 1_795_262_400_000_000


def descriptions(spark: Any) -> dict[int, str]:
    """Return the description of each job that Spark ran, as its user interface shows it, by id."""
    jobs = spark._jsparkSession.sparkContext().statusStore().jobsList(None)
    listed = [jobs.apply(number) for number in range(jobs.size())]
    told = [(job.jobId(), job.description()) for job in listed]
    return {job: text.get() if text.isDefined() else "none" for job, text in told}


def test_each_job_of_the_pipeline_has_its_own(spark, real, client, tmp_path):
    client.admin.create_topic("orders", queues=2)
    client.send_many("orders", [b"%d" % number for number in range(100)])
    client.pull("orders", group="billing", max_messages=30).ack()
    here = {
        "archive": {"spark_from_mb": "0"}, "audit": {"spark_from_mb": "0"},
        "trace": {"spark_bytes": "0"},
    }  # fmt: skip
    runner = Runner(
        chosen([*here]), Folder(str(tmp_path / "tables")), Broker((parse(real.url),)), lambda: NOW,
        spark=spark, settings=here,
    )  # fmt: skip
    runner.open()
    before = descriptions(spark).keys()
    assert [one.error for one in runner.round().ran] == ["", "", ""]
    told = {job: text for job, text in descriptions(spark).items() if job not in before}
    assert {text.partition(":")[0] for text in told.values()} == {"archive", "audit", "trace"}


def test_the_description_of_before_is_there_again(spark):
    context = spark.sparkContext
    context.setJobDescription("of the user")
    try:
        with described(spark, "archive: 3 ranges"):
            assert context.getLocalProperty("spark.job.description") == "archive: 3 ranges"
        assert context.getLocalProperty("spark.job.description") == "of the user"
    finally:
        context.setLocalProperty("spark.job.description", None)
    with pytest.raises(ZeroDivisionError), described(spark, "fails"):
        raise ZeroDivisionError
    assert context.getLocalProperty("spark.job.description") is None
