"""The comparison with other brokers, as far as it runs without them."""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import ClassVar

import pytest

BENCH = Path(__file__).parents[2] / "bench"
LOADS = ("sends-256", "sends-1", "bulk", "consume", "end-to-end", "footprint")


@pytest.fixture
def bench(monkeypatch) -> Callable[[str], ModuleType]:
    monkeypatch.syspath_prepend(BENCH)
    return importlib.import_module


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_smoke_run_with_this_broker_alone_measures_every_load(tmp_path):
    out = tmp_path / "peers.json"
    command = [sys.executable, str(BENCH / "peers.py"), "--quick", "--out", str(out)]
    done = subprocess.run(
        [*command, "--data", str(tmp_path / "data")],
        capture_output=True, text=True, check=False,
        env={**os.environ, "BENCH_COLUMNS": "ternmq", "BENCH_CACHE": str(tmp_path / "cache")},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    written = json.loads(out.read_text())["measurements"]
    assert tuple(written) == LOADS
    for load in LOADS[:4]:
        assert written[load]["figures"]["ternmq_per_s"]["median"] > 0
    for figure in ("start_s", "idle_mib", "loaded_mib", "topics_s"):
        assert written["footprint"]["figures"][f"ternmq_{figure}"]["median"] > 0
    assert "uvloop" in written["bulk"]["versions"]
    assert not list((tmp_path / "data").iterdir())  # it cleans up


class Recorded:
    """A client that answers at once in the loop's next turn, and keeps what was under way."""

    pipelined: ClassVar = False
    under_way = 0
    most = 0
    sent: ClassVar[list[bytes]] = []

    def __init__(self) -> None:
        self.came: Callable[[bytes], None] | None = None

    async def send(self, bodies: Sequence[bytes]) -> None:
        kind = type(self)
        kind.under_way += len(bodies)
        kind.most = max(kind.most, kind.under_way)
        await asyncio.sleep(0)
        kind.under_way -= len(bodies)
        kind.sent.extend(bodies)
        if kind.listening is not None:
            for body in bodies:
                kind.listening(body)

    listening: ClassVar[Callable[[bytes], None] | None] = None

    async def subscribe(self, came: Callable[[bytes], None]) -> asyncio.Future[None]:
        type(self).listening = came
        return asyncio.get_running_loop().create_future()

    async def stop(self, listening: asyncio.Future[None]) -> None:
        listening.cancel()

    async def consume(self, of: int, taken: Callable[[int], bool]) -> None:
        while taken(of):
            pass

    async def close(self) -> None:
        pass


def recorded(*, pipelined: bool = False) -> type[Recorded]:
    """Return a kind of client with records of its own."""
    return type("Kind", (Recorded,), {"pipelined": pipelined, "sent": []})


@pytest.mark.parametrize("pipelined", [False, True])
def test_as_many_messages_are_under_way_by_pipelines_as_by_lanes(bench, pipelined):
    clients = bench("peer_clients")
    kind = recorded(pipelined=pipelined)

    async def connect() -> Recorded:
        return kind()

    found = asyncio.run(clients.sends(connect, connections=3, in_flight=5, seconds=0.05, warm=0.01))
    assert kind.most == 15
    assert found["count"] == len(kind.sent)
    assert {len(body) for body in kind.sent} == {1024}
    assert found["per_s"] * 0.05 <= found["count"]  # what came before the clock is not counted


@pytest.mark.parametrize("pipelined", [False, True])
def test_every_message_of_a_paced_load_is_received_and_what_warms_up_is_not_counted(
    bench, pipelined
):
    clients = bench("peer_clients")
    kind = recorded(pipelined=pipelined)

    async def connect() -> Recorded:
        return kind()

    found = asyncio.run(clients.end_to_end(connect, per_s=2000, seconds=0.05, warm=0.02))
    numbers = [int.from_bytes(body[:8], "little") for body in kind.sent]
    assert sorted(numbers) == list(range(140))
    assert found["count"] == 140
    assert found["p99_ms"] >= found["p50_ms"] >= 0


def test_the_clock_of_a_backlog_begins_after_what_warms_up(bench):
    clients = bench("peer_clients")

    async def connect() -> Recorded:
        return recorded()()

    found = asyncio.run(clients.consume(connect, count=5000, of=1000, warm_count=1500))
    assert found["count"] == 5000
    assert found["per_s"] > 0


class NotReadyError(Exception):
    """What a client makes of a broker that listens and is not ready."""


def test_a_broker_that_listens_and_is_not_ready_is_asked_again(bench):
    clients = bench("peer_clients")
    refusals = [NotReadyError("no route"), NotReadyError("no leader")]

    async def connect() -> Recorded:
        if refusals:
            raise refusals.pop()
        return recorded()()

    assert isinstance(asyncio.run(clients.patiently(connect)), Recorded)
    assert not refusals


def test_a_broker_that_is_never_ready_is_given_up_with_its_last_word(bench):
    clients = bench("peer_clients")

    async def connect() -> Recorded:
        raise NotReadyError("no route")

    with pytest.raises(TimeoutError, match=r"not ready within 0\.05 s") as caught:
        asyncio.run(clients.patiently(connect, 0.05))
    assert isinstance(caught.value.__cause__, NotReadyError)


JAVA_CLIENT = """
import java.util.function.Consumer;
import java.util.function.IntPredicate;

final class Late implements Load.Client {
    private static int tries;

    public static void main(String[] arguments) {
        Load.main(arguments, url -> {
            if (++tries < 3) {
                throw new IllegalStateException("No route info of this topic: orders");
            }
            System.err.println("opened at try " + tries);
            return new Late();
        });
    }

    public void send(byte[] body, Consumer<Throwable> answered) {
        answered.accept(null);
    }

    public void consume(int of, IntPredicate taken) {}

    public void subscribe(Consumer<byte[]> taken) {}

    public void topics(int count, int underWay) {}

    public void close() {}
}
"""
GO_CLIENT = """
package main

import (
	"errors"
	"fmt"
	"os"
	"time"
)

func fail(err error) {
	fmt.Println(err)
	os.Exit(1)
}

func main() {
	tries := 0
	made := patiently(time.Minute, func() (int, error) {
		if tries++; tries < 3 {
			return 0, errors.New("no stream")
		}
		return tries, nil
	})
	fmt.Println("made at try", made)
	patiently(50*time.Millisecond, func() (int, error) { return 0, errors.New("no stream") })
}
"""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("javac") is None, reason="no javac on this machine")
def test_clients_in_java_wait_for_a_broker_outside_the_timing(tmp_path):
    (tmp_path / "Late.java").write_text(JAVA_CLIENT)
    sources = [str(BENCH / "native" / "java" / "Load.java"), str(tmp_path / "Late.java")]
    subprocess.run(["javac", "-d", str(tmp_path), *sources], check=True)
    command = ["java", "-cp", str(tmp_path), "Late", "late_bulk", "late://"]
    done = subprocess.run(
        [*command, "count=2000", "of=1000", "warm_count=1000"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr.strip() == "opened at try 3"
    assert json.loads(done.stdout)["count"] == 3000


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("go") is None, reason="no go on this machine")
def test_clients_in_go_wait_for_a_broker_and_give_up_with_its_last_word(tmp_path):
    (tmp_path / "late.go").write_text(GO_CLIENT)
    shutil.copy(BENCH / "native" / "go" / "patience.go", tmp_path)
    done = subprocess.run(
        ["go", "run", "late.go", "patience.go"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert done.stdout.splitlines() == ["made at try 3", "not ready within 50ms: no stream"]


def test_the_cpu_time_of_a_server_has_that_of_threads_that_ended(bench):
    script = (
        "import threading, time\n"
        "def work():\n"
        "    until = time.thread_time() + 0.3\n"
        "    while time.thread_time() < until: pass\n"
        "one = threading.Thread(target=work); one.start(); one.join()\n"
        "print(flush=True); input()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert bench("broker_kit").ServerProcess(process.pid).cpu_s() >= 0.3
        process.communicate(b"\n")


def test_messages_are_made_one_by_one_each_with_its_number(bench):
    brokers = bench("peer_brokers")
    parts = list(brokers.small(2500, 1000))
    assert [len(part) for part in parts] == [1000, 1000, 500]
    bodies = [body for part in parts for body in part]
    assert len(set(bodies)) == 2500
    assert {len(body) for body in bodies} == {100}


def test_what_cannot_be_built_is_left_out_and_the_reason_is_kept(bench, monkeypatch, tmp_path):
    native, peers = bench("peer_native"), bench("peers")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("BENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("BENCH_ROOT", str(tmp_path))  # no Redis and no RabbitMQ there
    for cached in (native.go_client, native.nats_server, native.java_server, native.java_folder,
                   native.java_client):  # fmt: skip
        cached.cache_clear()
    assert [column.name for column in peers.columns()] == ["ternmq"]
    told = peers.peer_versions()
    assert told["nats server"] == "left out (no go on this machine)"
    assert told["kafka server"] == "left out (no javac on this machine)"
    assert told["redis server"] == "left out (no redis-server on this machine)"
    assert told["column kafka_java"] == "left out (no javac on this machine)"
    assert not (tmp_path / "cache").exists()


def test_a_build_that_fails_is_not_kept(bench, monkeypatch, tmp_path):
    native = bench("peer_native")
    monkeypatch.setenv("BENCH_CACHE", str(tmp_path / "cache"))
    source = tmp_path / "source"
    source.write_text("a")

    def fails(into: Path) -> None:
        (into / "half").write_text("made")
        native.run([sys.executable, "-c", "import sys; sys.exit('no such module')"], into)

    with pytest.raises(native.Absent, match="no such module"):
        native.built("one", [source], fails)
    assert not list((tmp_path / "cache").iterdir())
    made = native.built("one", [source], lambda into: (into / "whole").write_text("made") and None)
    assert (made / "whole").read_text() == "made"
    assert native.built("one", [source], fails) == made  # it is built once
    source.write_text("b")
    with pytest.raises(native.Absent):
        native.built("one", [source], fails)


def test_the_modules_of_the_clients_in_go_are_named_with_their_versions(bench):
    told = bench("peer_native").go_modules()
    assert {"nats.go", "amqp091-go", "rueidis"} <= set(told)
    assert all(version.startswith("v") for version in told.values())


@pytest.mark.parametrize(
    ("told", "count"),
    [
        ("7,,syscalls:sys_enter_fsync,1,100.00,,\n5,,syscalls:sys_enter_msync,1,100.00,,\n", 12),
        ("0,,syscalls:sys_enter_fsync,1,100.00,,\n", 0),
        ("<not counted>,,syscalls:sys_enter_fsync,0,100.00,,\n", None),
        ("Error: no permission\n", None),
    ],
)
def test_syncs_are_summed_and_none_were_counted_is_not_zero(bench, told, count):
    assert bench("peer_syncs").read(told) == count


def figure(median: float) -> dict[str, object]:
    return {"median": median, "spread": 0.1, "values": [median]}


def test_the_page_shows_what_was_measured_and_says_what_was_left_out(bench):
    page_text = bench("page_text")
    figures = {
        "raw_p50_ms": figure(0.1),
        "ternmq_per_s": figure(2000.0),
        "ternmq_p50_ms": figure(0.3),
        "ternmq_p99_ms": figure(0.7),
        "ternmq_server_cpu_us_each": figure(100.0),
        "ternmq_syncs_each": figure(1.004),
    }
    one = {
        "about": "one at a time",
        "load_before": 1.5,
        "figures": figures,
        "versions": {"nats server": "left out (no go on this machine)"},
    }
    text = page_text._peers({"peers": {"sends-1": one}})
    row = (
        "| sends-1 | TernMQ (Python) | 2 k/s | 0.3 ms | 0.7 ms | one round | 100 us | 1 | 0.1 ms |"
    )
    assert row in text.splitlines()
    assert "nats server: left out (no go on this machine)" in text
    assert "Kafka" not in text
    assert "**Not a ranking:** sends-1 had fewer than 3 rounds" in text
    assert "Not measured yet in this form: sends-256, bulk, consume, end-to-end, footprint." in text
    assert "rounds: 1; load of other work when they began: 1.5" in text


def test_the_page_shows_what_a_broker_needs(bench):
    page_text = bench("page_text")
    names = {"start_s": 0.5, "idle_mib": 45.0, "loaded_mib": 90.0, "topics_s": 0.2}
    figures = {f"nats_go_{name}": figure(value) for name, value in names.items()}
    figures["nats_go_disk_bytes_each"] = figure(130.0)
    text = page_text._footprint({"peers": {"footprint": {"figures": figures}}})
    assert "| NATS JetStream (Go) | 0.5 s | 45 MiB | 90 MiB | 0.2 s | 130 B |" in text.splitlines()
    assert page_text._footprint({"peers": {}}) == ""
