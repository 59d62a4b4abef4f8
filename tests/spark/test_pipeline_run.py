"""The jobs with a session, as one driver runs them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta

import pytest

pytest.importorskip("deltalake", reason="needs pyspark and a Java: pip install ternmq[spark]")

import ternmq.sync
from ternmq.client.connection.address import parse
from ternmq.pipeline.tables.folder import Folder
from ternmq.spark.broker.connecting import Broker
from tests.spark.killing import START_S, kept, often, sent, traces
from tests.spark.sessions import JAVA_OPTIONS

NOW = 1_795_262_400_000_000


def send(client, first, count):
    client.send_many(
        "orders", [ternmq.sync.Message(b"%d" % n, key=f"k{n}") for n in range(first, first + count)]
    )


@pytest.mark.row("R6")
def test_rounds_of_one_driver(spark, real, client, tmp_path):
    from ternmq.pipeline.running.jobs import chosen
    from ternmq.pipeline.running.runner import Runner

    tables = tmp_path / "tables"
    client.admin.create_topic("orders", queues=3)
    runner = Runner(
        chosen(["archive", "compaction"]),
        Folder(str(tables)),
        Broker((parse(real.url),)),
        lambda: NOW,
        spark=spark,
        settings={"archive": {"spark_from_mb": "0"}},
    )
    runner.open()
    for at in range(3):
        send(client, 500 * at, 500)
        done = runner.round(at + 1)
        assert [one.error for one in done.ran] == ["", ""]
        outcome = done.ran[0].outcome
        assert outcome is not None
        assert outcome.rows == 500
        assert kept(tables) == sent(client)
    (group,) = client.admin.groups("orders")
    assert (group.group, sum(one.cursor for one in group.queues)) == ("spark.archive", 1500)


def test_what_a_worker_says_is_told_in_a_line(spark, real, client, tmp_path):
    from ternmq.pipeline.running.jobs import chosen
    from ternmq.pipeline.running.runner import Runner

    tables = tmp_path / "tables"
    client.admin.create_topic("orders")
    send(client, 0, 10)
    runner = Runner(
        chosen(["archive"]), Folder(str(tables)), Broker((parse(real.url),)), lambda: NOW,
        spark=spark, settings={"archive": {"spark_from_mb": "0"}},
    )  # fmt: skip
    runner.open()
    for days in (0, 1):
        day = (datetime.fromtimestamp(time.time(), UTC) + timedelta(days)).date()
        (tables / "archive" / f"day={day}").write_text("in the way")
    (ran,) = runner.round().ran
    assert "/archive/day=" in ran.error
    assert "\n" not in ran.error


@pytest.mark.row("R10")
def test_a_replay_by_workers(spark, real, client, tmp_path):
    from ternmq.pipeline.replay.plan import plan
    from ternmq.pipeline.replay.replay import Replay
    from ternmq.pipeline.replay.select import Selection
    from ternmq.pipeline.replay.spark import send_all
    from ternmq.pipeline.running.jobs import chosen
    from ternmq.pipeline.running.runner import Runner

    folder = Folder(str(tmp_path / "tables"))
    broker = Broker((parse(real.url),))
    for topic in ("orders", "again"):
        client.admin.create_topic(topic, queues=3)
    send(client, 0, 1000)
    runner = Runner(chosen(["archive"]), folder, broker, lambda: NOW)
    runner.open()
    runner.round()
    chosen_ = Selection("orders")
    sources = plan(folder, chosen_)
    replay = Replay("r", folder.uri, broker, "again", chosen_)
    assert sum(one.rows for one in send_all(spark, replay, sources)) == 1000
    assert sum(one.rows for one in send_all(spark, replay, sources)) == 0
    assert [one[1:] for one in sent(client, "again")] == [one[1:] for one in sent(client)]


@pytest.mark.row("R6")
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_driver_that_is_killed_with_its_workers(spark, real, client, tmp_path):
    """Whatever was under way, the next run has each message once; Spark is not asked for twice."""
    tables = tmp_path / "tables"
    client.admin.create_topic("orders", queues=2)
    body = b"x" * 50_000
    client.send_many("orders", [ternmq.sync.Message(b"%d " % n + body) for n in range(400)])

    def start():
        kept_ = {name: value for name, value in os.environ.items() if "TERNMQ" not in name}
        return subprocess.Popen(
            [
                sys.executable, "-m", "ternmq", "--url", real.url, "pipeline", "run", "--once",
                "--jobs", "archive,compaction", "--tables", str(tables), "--master", "local[2]",
                "--conf", f"spark.driver.extraJavaOptions={JAVA_OPTIONS}",
                "--set", "archive.spark_from_mb=0", "--set", "archive.pass_mb=1", "--json",
            ],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True,
            env={
                **kept_, "XDG_CONFIG_HOME": str(tmp_path),
                "PYTHONPATH": os.pathsep.join(one for one in sys.path if one),
            },
        )  # fmt: skip

    for more in (4, 9) if often(1) > 1 else (6,):
        process = start()
        wanted = traces(tables) + more
        until = time.monotonic() + START_S
        while traces(tables) < wanted and process.poll() is None and time.monotonic() < until:
            time.sleep(0.01)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    process = start()
    out, _ = process.communicate(timeout=START_S)
    assert process.returncode == 0
    assert [one.get("error") for one in json.loads(out)["jobs"]] == [None, None]
    assert kept(tables) == sent(client)
