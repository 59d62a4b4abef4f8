"""The pipeline's processes beside a broker's: run twice, killed on the way, run again."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time

import pytest

pytest.importorskip("deltalake", reason="needs the extra spark")

import ternmq.sync
from ternmq.client.connection.address import parse
from ternmq.model.errors import TableConflict
from ternmq.pipeline.archive.commit import Archive
from ternmq.pipeline.replay.plan import plan
from ternmq.pipeline.replay.replay import Replay, windows
from ternmq.pipeline.replay.select import Selection
from ternmq.pipeline.running.jobs import chosen
from ternmq.pipeline.running.runner import Runner
from ternmq.pipeline.tables.cleaning import DAY_US, clean
from ternmq.pipeline.tables.folder import Folder
from ternmq.spark.broker.connecting import Broker
from ternmq.wire.control import GrantInfo
from tests.black_box.process import BrokerProcess
from tests.spark.killing import kept, sent, traces

DEADLINE = 200.0
RUN = ("pipeline", "run", "--once", "--engine", "local", "--json")


@pytest.fixture
def broker(tmp_path):
    with BrokerProcess("dev", tmp_path / "broker", segment="4MiB") as one:
        yield one


@pytest.fixture
def client(broker):
    with ternmq.sync.connect(broker.url) as one:
        yield one


def start(broker, tables, *arguments):
    kept_ = {name: value for name, value in os.environ.items() if "TERNMQ" not in name}
    return subprocess.Popen(
        [sys.executable, "-m", "ternmq", "--url", broker.url, *arguments],
        env={**kept_, "TERNMQ_TABLES": str(tables), "XDG_CONFIG_HOME": str(tables.parent)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def run(broker, tables, *arguments):
    process = start(broker, tables, *arguments)
    out, err = process.communicate(timeout=DEADLINE)
    assert process.returncode == 0, err
    return json.loads(out)


def kill_on_the_way(process, reached):
    """Kill a process when something was reached, if it has not ended before."""
    until = time.monotonic() + DEADLINE
    while not reached() and process.poll() is None and time.monotonic() < until:
        time.sleep(0.002)
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


@pytest.mark.row("R6")
@pytest.mark.slow
def test_the_second_run_finds_nothing_to_do(broker, client, tmp_path):
    tables = tmp_path / "tables"
    client.admin.create_topic("orders", queues=2)
    client.send_many("orders", [ternmq.sync.Message(b"%d" % n, key=f"{n}") for n in range(1000)])
    first, second = run(broker, tables, *RUN), run(broker, tables, *RUN)
    assert [one["rows"] for one in first["jobs"][:1]] == [1000]
    assert [one["rows"] for one in second["jobs"][:1]] == [0]
    assert kept(tables) == sent(client)


ADMIN = "tmq_admin-token-of-this-test"


def as_app(broker, tables, app, token, *arguments):
    """Run a command as an app, whose token stands in the environment."""
    kept_ = {name: value for name, value in os.environ.items() if "TERNMQ" not in name}
    return subprocess.run(
        [sys.executable, "-m", "ternmq", *arguments],
        env={
            **kept_, "TERNMQ_URL": broker.url, "TERNMQ_APP": app, "TERNMQ_TOKEN": token,
            "TERNMQ_TABLES": str(tables), "XDG_CONFIG_HOME": str(tables.parent),
        },
        capture_output=True, text=True, timeout=DEADLINE, check=False,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_what_the_pipeline_must_be_granted(tmp_path):
    tables = tmp_path / "tables"
    with BrokerProcess("serve", tmp_path / "broker", admin_token=ADMIN) as broker:
        with ternmq.sync.connect(broker.url, app="admin", token=ADMIN) as client:
            client.admin.create_topic("orders")
            client.send("orders", b"1")
            tokens = {
                name: client.admin.put_app(
                    name, [GrantInfo(right=right, topic="*", group="*") for right in rights],
                    new_token=True,
                )
                for name, rights in {
                    "pipeline": ("consume", "audit"), "reader": ("consume",), "nobody": (),
                }.items()
            }  # fmt: skip
        all_ = as_app(broker, tables, "pipeline", tokens["pipeline"], *RUN)
        assert all_.returncode == 0, all_.stderr
        assert json.loads(all_.stdout)["jobs"][0]["rows"] == 1
        reader = as_app(broker, tables, "reader", tokens["reader"], *RUN)
        assert reader.returncode == 1
        jobs = {one["job"]: one for one in json.loads(reader.stdout)["jobs"]}
        assert "error" not in jobs["archive"]
        assert "audit" in jobs["trace"]["error"]
        wrong = as_app(broker, tables, "pipeline", "tmq_another-token", *RUN)
        assert wrong.returncode == 5
        said = [one.stdout + one.stderr for one in (all_, reader, wrong)]
        assert not any(token in text for token in tokens.values() for text in said)
        for file in tables.rglob("*"):
            assert file.is_dir() or tokens["pipeline"].encode() not in file.read_bytes()


@pytest.mark.row("R6")
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_killed_on_the_way_and_run_again(broker, client, tmp_path):
    tables = tmp_path / "tables"
    client.admin.create_topic("orders", queues=3)
    chance = random.Random(7)
    body = b"x" * 100_000
    for at in range(5):
        client.send_many(
            "orders",
            [ternmq.sync.Message(b"%d " % n + body) for n in range(at * 50, at * 50 + 50)],
        )
        wanted = traces(tables) + chance.randint(1, 12)
        process = start(broker, tables, *RUN, "--set", "archive.pass_mb=0")
        kill_on_the_way(process, lambda wanted=wanted: traces(tables) >= wanted)
    run(broker, tables, *RUN)
    assert kept(tables) == sent(client)
    table = Archive(Folder(str(tables))).table
    clean(table, time.time_ns() // 1000 + 2 * DAY_US)
    there = {one.path for one in table.folder.list() if not one.path.startswith("_delta_log")}
    assert there == {one.path for one in table.files()}


@pytest.mark.row("R10")
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_replay_that_is_killed_again_and_again_sends_each_once(broker, client, tmp_path):
    tables = tmp_path / "tables"
    for topic in ("orders", "again"):
        client.admin.create_topic(topic, queues=2)
    body = b"x" * 10_000
    client.send_many(
        "orders", [ternmq.sync.Message(b"%d " % n + body, key=f"k{n % 9}") for n in range(9000)]
    )
    run(broker, tables, *RUN)
    replay = ("pipeline", "replay", "--topic", "orders", "--to-topic", "again", "-y", "--no-marks")

    def there():
        return sum(one.next for one in client.admin.topic("again").queues)

    halfway = set()
    for _ in range(4):
        wanted = there() + 1
        process = start(broker, tables, *replay)
        kill_on_the_way(process, lambda wanted=wanted: there() >= wanted)
        halfway.add(there())
    assert len(halfway - {0, 9000}) > 1
    done = run(broker, tables, *replay, "--json")
    assert done["done"] is True
    assert [one[1:] for one in sent(client, "again")] == [one[1:] for one in sent(client)]
    assert run(broker, tables, *replay, "--json")["sent"] == 0
    assert there() == 9000


@pytest.mark.row("R10")
def test_a_broker_that_is_killed_while_it_is_sent_to(broker, client, tmp_path):
    tables = tmp_path / "tables"
    for topic in ("orders", "again"):
        client.admin.create_topic(topic)
    client.send_many("orders", [ternmq.sync.Message(b"%d" % n * 900) for n in range(20_000)])
    run(broker, tables, *RUN)
    replay = ("pipeline", "replay", "--topic", "orders", "--to-topic", "again", "-y", "--no-marks")
    process = start(broker, tables, *replay, "--json")
    until = time.monotonic() + DEADLINE
    while process.poll() is None and not client.admin.topic("again").queues[0].next:
        assert time.monotonic() < until, "nothing is sent"
        time.sleep(0.002)
    broker.kill()
    broker.start()
    process.communicate(timeout=DEADLINE)
    assert client.admin.topic("again").queues[0].next > 0
    if process.returncode:  # it had no answer for too long: it is run again
        run(broker, tables, *replay, "--json")
    assert [one[1:] for one in sent(client, "again")] == [one[1:] for one in sent(client)]


@pytest.mark.row("R10")
def test_two_that_send_the_same_at_once(broker, client, tmp_path):
    """One of them cuts the queue elsewhere: the archive had grown when it began."""
    tables = Folder(str(tmp_path / "tables"))
    for topic in ("orders", "again"):
        client.admin.create_topic(topic)
    here = Broker((parse(broker.url),))
    chosen_ = Selection("orders")
    replay = Replay("r", tables.uri, here, "again", chosen_)
    runner = Runner(chosen(["archive"]), tables, here, lambda: time.time_ns() // 1000)
    plans = []
    for count in (300, 100):
        client.send_many("orders", [ternmq.sync.Message(b"%d" % n) for n in range(count)])
        runner.round()
        plans.append(plan(tables, chosen_))
    (first,), (second,) = plans
    assert (first.rows, second.rows) == (300, 400)
    begun: list[object] = []

    def overtaken(rows, source, start):
        """Let the other one send its rows when this one has seen how far it is."""
        if not begun:
            begun.append(source)
            assert replay.send(first).rows == 300
        yield from windows(rows, source, start)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ternmq.pipeline.replay.replay.windows", overtaken)
        with pytest.raises(TableConflict, match="another process sends queue 0 as r"):
            replay.send(second)
    assert [one.next for one in client.admin.topic("again").queues] == [300]
    assert replay.send(second).rows == 100
    assert [one[1:] for one in sent(client, "again")] == [one[1:] for one in sent(client)]
