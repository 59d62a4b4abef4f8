"""Windows in which a real Spark is cut: W5, W8, and W12 at a broker whose retention is quicker.

As the broker sees it, the driver dies: from a certain question on nothing of it comes any more, no
abort either. What is left is Spark's checkpoint, and what the broker has. Others of the windows are
in ``test_exactly_once``; all of them, without Spark, in ``tests/unit/spark/test_windows.py``.
"""

from __future__ import annotations

import re
from collections import Counter

import pytest

import ternmq.sync
from ternmq.wire.commands import Command
from tests.integration.expiring import expiring
from tests.spark import killing
from tests.spark.losing_proxy import LosingProxy
from tests.spark.queries import finish

WAIT_MS = "2000"
"""Longest that somebody who is cut off hopes."""
IDENTITY = "concat_ws('/', topic, partition, offset, crc)"


def copy(spark, folder, *, source, sink, rows=40, **options):
    """Copy ``orders`` to ``out``: what a row was is what its copy says."""
    read = {
        "bootstrap.servers": f"127.0.0.1:{source}", "subscribe": "orders", "group.id": "copy",
        "startingOffsets": "earliest", "maxOffsetsPerTrigger": rows, "metadataFields": "crc",
        "ternmq.timeoutMs": WAIT_MS, "fetchOffset.numRetries": 0,
    }  # fmt: skip
    table = spark.readStream.format("ternmq").options(**read | options).load()
    written = {"bootstrap.servers": f"127.0.0.1:{sink}", "topic": "out",
               "ternmq.timeoutMs": WAIT_MS}  # fmt: skip
    return finish(
        table.selectExpr("key", f"{IDENTITY} as value").writeStream.format("ternmq")
        .options(**written).option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True).start
    )  # fmt: skip


def send(client, first, count):
    client.send_many(
        "orders", [ternmq.sync.Message(b"%d" % n, key=f"k{n}") for n in range(first, first + count)]
    )


def sent(client):
    return Counter("/".join(map(str, one)) for one in killing.sent(client))


def copied(client):
    return Counter(one.body.decode() for one in client.read("out"))


def numbers(folder, log):
    """Return the batches that Spark has written down in one of its logs."""
    return {int(one.name) for one in (folder / "checkpoint" / log).glob("[0-9]*")}


@pytest.fixture(params=[1, 3])
def topics(request, client):
    for name in ("orders", "out"):
        client.admin.create_topic(name, queues=request.param)
    send(client, 0, 100)


@pytest.mark.row("R4")
def test_cut_between_the_tasks_and_the_commit(spark, real, client, topics, tmp_path):
    """W5: everything is prepared, nothing is decided; the batch comes again under its name."""
    with LosingProxy(real.port) as proxy:
        proxy.end_at[Command.TRANSACTION_COMMIT] = 0
        with pytest.raises(Exception, match="Writing job failed"):  # and so did the abort
            copy(spark, tmp_path, source=real.port, sink=proxy.port)
        assert proxy.ended.is_set()
    (last,) = numbers(tmp_path, "offsets") - numbers(tmp_path, "commits")
    (open_,) = client.admin.transactions().undecided
    assert (open_.batch_id, open_.rows) == (last, 40), "it died between tasks and commit"
    assert copied(client) == Counter()
    send(client, 100, 50)
    copy(spark, tmp_path, source=real.port, sink=real.port)
    assert copied(client) == sent(client)
    assert sum(copied(client).values()) == 150
    assert client.admin.transactions().undecided == [], "what was prepared at first is dropped"


def told(client):
    """Return how far the broker knows the query to be; 0 before anything was said."""
    groups = client.admin.groups(topic="orders")
    return sum(queue.cursor for group in groups for queue in group.queues)


@pytest.mark.row("R2", "R4")
def test_cut_between_the_commit_log_and_the_source(spark, real, client, topics, tmp_path):
    """W8: a batch is over for Spark, and the source was not told of it."""
    with LosingProxy(real.port) as proxy:
        proxy.end_at[Command.GROUP_COMMIT] = 1  # of the first batch, which has no rows
        with pytest.raises(Exception, match=r"ConnectionLost|CannotConnect"):
            copy(spark, tmp_path, source=proxy.port, sink=real.port)
        assert proxy.ended.is_set()
    done = numbers(tmp_path, "commits")
    visible = copied(client)
    assert max(done) == 1, "it died behind the first batch with rows, which Spark noted as done"
    assert sum(visible.values()) == 40
    assert told(client) == 0
    send(client, 100, 50)
    copy(spark, tmp_path, source=real.port, sink=real.port)
    assert copied(client) == sent(client)
    assert visible <= copied(client)
    assert told(client) > 0, "the source is told of later batches, and with them of that one"


@pytest.mark.row("R4")
@pytest.mark.parametrize("strict", [True, False])
def test_rows_of_a_batch_that_is_written_down_are_gone(spark, tmp_path, strict):
    """W12: the query planned a batch and died; retention removed segments before it came again.

    What is lost is said by workers, on their stderr: ``tests/integration/test_spark_retention.py``.
    """
    with expiring(tmp_path / "broker") as topic:
        topic.fill(2000, 600)
        topic.client.admin.create_topic("out", queues=2)
        port = topic.real.port
        with LosingProxy(port) as proxy:
            proxy.end_at[Command.READ] = 0
            with pytest.raises(Exception, match=r"ConnectionLost|CannotConnect"):
                copy(spark, tmp_path, source=proxy.port, sink=port, rows=10_000)
            assert proxy.ended.is_set()
        (last,) = numbers(tmp_path, "offsets") - numbers(tmp_path, "commits")
        assert copied(topic.client) == Counter()
        topic.expire()
        again = {"source": port, "sink": port, "rows": 10_000}
        if strict:
            with pytest.raises(Exception, match="DataLoss") as caught:
                copy(spark, tmp_path, **again)
            text = str(caught.value)
            assert re.search(
                r"\d+ messages from offset 0 on, of offsets 0 to 1300 of queue [01] of 'orders', "
                r"cannot be read: the queue keeps nothing below \d+ \(failOnDataLoss=false", text
            )  # fmt: skip
            assert last not in numbers(tmp_path, "commits")
            assert copied(topic.client) == Counter()
            return
        copy(spark, tmp_path, **again, failOnDataLoss="false")
        kept = topic.kept()
        assert copied(topic.client) == Counter("/".join(map(str, row)) for row in kept)
