"""``ternmq outbox run``: compensators for many databases, as a process."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

import ternmq.sync
from ternmq.reliable import Outbox
from tests.black_box.process import DEADLINE, BrokerProcess, free_port, wait_until
from tests.cli.conftest import CommandLine, Processes
from tests.cli.test_outbox import Shop, bodies, name_of, only_sqlite, shop
from tests.databases import Servers, run

__all__ = ["shop"]


class Running:
    """``ternmq outbox run`` as a process, and its log."""

    def __init__(self, processes: Processes, number: int, *arguments: object) -> None:
        self._log = processes.folder / f"run{number}.log"
        with self._log.open("wb") as log:
            self.process = processes.start(
                "outbox", "run", *arguments,
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log,
            )  # fmt: skip

    @property
    def said(self) -> str:
        return self._log.read_text()

    def says(self, pattern: str) -> None:
        """Wait until it has said something."""
        wait_until(lambda: re.search(pattern, self.said) is not None, f"{pattern}: {self._log}")

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(DEADLINE)


Begin = Callable[..., Running]


@pytest.fixture
def begin(processes: Processes) -> Iterator[Begin]:
    started: list[Running] = []

    def start(*arguments: object) -> Running:
        started.append(Running(processes, len(started), *arguments))
        return started[-1]

    yield start
    for one in started:
        if one.process.poll() is None:
            one.process.kill()
        one.process.wait(DEADLINE)


def metrics_at(port: int) -> dict[str, float]:
    """Return the samples: name with labels -> value."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=DEADLINE) as answer:
        lines = answer.read().decode().splitlines()
    pairs = [line.rpartition(" ") for line in lines if not line.startswith("#")]
    return {name: float(value) for name, _, value in pairs}


def test_it_sends_what_applications_left(
    shop: Shop, begin: Begin, cli: CommandLine, topic: str
) -> None:
    shop.client.admin.create_topic(topic, ordered=True)
    shop.write(topic, range(3))
    one = begin("--database", shop.url)
    shop.wait_for()
    assert bodies(shop, topic) == [0, 1, 2]
    name = re.escape(name_of(shop.url))
    one.says(rf"ternmq [^ ]+, outbox of {name}, process {one.process.pid}\n")
    one.says(rf"{name}: this process is the compensator, epoch 1\n")
    assert f":{one.process.pid}:" in cli("outbox", "status", "--database", shop.url).out
    assert one.stop() == 0
    assert re.search(rf"{name}: ended, sent 3 rows\n", one.said)
    assert "compensator  none" in cli("outbox", "status", "--database", shop.url).out


@only_sqlite
def test_another_one_waits_and_takes_over(shop: Shop, begin: Begin, topic: str) -> None:
    shop.client.admin.create_topic(topic, ordered=True)
    first = begin("--database", shop.url)
    first.says("this process is the compensator, epoch 1")
    second = begin("--database", shop.url)
    second.says(rf"the compensator is \S+:{first.process.pid}:\w+; this process waits")
    assert first.stop(signal.SIGINT) == 0
    second.says("this process is the compensator, epoch 2")
    shop.write(topic, ["late"])
    shop.wait_for()
    assert second.stop(signal.SIGHUP) == 0


def test_many_databases_and_their_metrics(
    servers: Servers, tmp_path: Path, begin: Begin, cli: CommandLine, topic: str,
    client: ternmq.sync.Client,
) -> None:  # fmt: skip
    client.admin.create_topic(topic, ordered=True)
    urls = [servers.new("sqlite", tmp_path) for _ in range(3)]
    for number, url in enumerate(urls):
        cli("outbox", "prepare", "--database", url)
        engine = sa.create_engine(url, poolclass=sa.NullPool)
        with Outbox(client, engine, compensate=False), engine.begin() as connection:
            for key in range(number + 1):
                client.send(topic, key, ordering_key=f"{number}-{key}", within=connection)
    port = free_port()
    words = [word for url in urls for word in ("--database", url)]
    one = begin(*words, "--metrics", port)
    one.says(rf"metrics: http://127.0.0.1:{port}/metrics, /livez")

    def value(name: str, url: str, more: str = "") -> float:
        return metrics_at(port).get(
            f'ternmq_outbox_{name}{{database="{name_of(url)}"{more}}}', -1.0
        )

    for number, url in enumerate(urls):
        wait_until(lambda url=url: value("leader", url) == 1, "it leads")  # type: ignore[misc]
        wait_until(
            lambda url=url, number=number: value("resent_total", url) == number + 1,  # type: ignore[misc]
            "all is sent",
        )
        assert value("lease_epoch", url) == 1
        assert value("duplicates_total", url) == 0
        assert value("failed_total", url) == 0
        assert value("scans_total", url) >= 1
        assert value("rows", url, ',state="failed"') == 0
        assert value("rows", url, ',state="sending"') >= 0
        assert value("oldest_seconds", url) >= 0
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/livez", timeout=DEADLINE) as answer:
        assert answer.read() == b"ok\n"
    assert one.stop() == 0
    assert one.said.count(": ended, sent ") == 3


@only_sqlite
def test_its_attempts_count_and_how_long_it_leaves_and_keeps_rows(
    shop: Shop, begin: Begin, topic: str
) -> None:
    """Not those of the application, which had `attempts=5` and no `keep_sent`."""
    shop.client.admin.create_topic(topic, durability="fast")
    with shop.engine.begin() as connection:  # its own try is the first one
        shop.client.send(topic, "one", within=connection)
    asked = "SELECT tries FROM ternmq_outbox"
    wait_until(lambda: run(shop.url, asked) == [(1,)], "the application has tried it")
    one = begin(
        "--database", shop.url, "--attempts", 3, "--resend-after", "100ms", "--keep-sent", "10m"
    )
    shop.wait_for("failed")
    assert run(shop.url, asked) == [(3,)]
    one.says("has failed")
    assert one.said.count("will be tried again") == 1
    shop.client.admin.change_topic(topic, durability="normal")
    run(shop.url, "UPDATE ternmq_outbox SET state = 0, tries = 0, next_ms = 0, by_writer = 1")
    shop.wait_for("sent")
    assert one.stop() == 0


@only_sqlite
def test_a_database_that_is_away_is_logged_once(shop: Shop, begin: Begin) -> None:
    away = "postgresql://127.0.0.1:1/shop"
    one = begin("--database", away)
    one.says(f"the outbox at {away} cannot work: ")
    assert one.said.count(away) == 2  # with the line that names what it serves
    assert one.stop() == 0


@only_sqlite
def test_a_broker_that_is_away_is_waited_for(
    shop: Shop, begin: Begin, topic: str, tmp_path: Path
) -> None:
    shop.write(topic, ["one"])
    with BrokerProcess("dev", tmp_path / "later") as later:
        url = later.url
        with ternmq.sync.connect(url) as client:
            client.admin.create_topic(topic, ordered=True)
        later.kill()
        one = begin("--database", shop.url, "--url", url, "--timeout", "1s")
        one.says(r"no broker at .*; it is tried again")
        one.says("this process is the compensator")
        later.start()
        shop.wait_for()
        with ternmq.sync.connect(url) as client:
            assert [row.value for row in client.read(topic)] == ["one"]
        assert one.stop() == 0


@only_sqlite
def test_it_ends_after_the_page_that_is_under_way(
    shop: Shop, begin: Begin, topic: str, client: ternmq.sync.Client
) -> None:
    """No message is sent a second time because of a stop."""
    client.admin.create_topic(topic, ordered=True)
    with shop.engine.begin() as connection, shop.outbox.bound(connection):
        for key in range(3_000):
            client_message = ternmq.Message(key, ordering_key=str(key))
            shop.client.send_many(topic, [client_message])
    first = begin("--database", shop.url, "--drain-timeout", "30s")
    wait_until(lambda: len(shop.states()) < 3_000, "some rows are gone")
    assert first.stop() == 0
    left = len(shop.states())
    assert run(shop.url, "SELECT holder FROM ternmq_lease") == [("",)]
    port = free_port()
    second = begin("--database", shop.url, "--metrics", port)
    shop.wait_for()
    name = f'{{database="{name_of(shop.url)}"}}'
    wait_until(
        lambda: metrics_at(port)[f"ternmq_outbox_resent_total{name}"] == left, "the rest is sent"
    )
    assert metrics_at(port)[f"ternmq_outbox_duplicates_total{name}"] == 0
    assert len(list(client.read(topic))) == 3_000
    assert second.stop() == 0


@only_sqlite
def test_a_second_signal_ends_it_at_once(
    shop: Shop, begin: Begin, topic: str, tmp_path: Path
) -> None:
    """The broker answers nothing, so what is under way stays so."""
    with BrokerProcess("dev", tmp_path / "frozen") as frozen:
        with ternmq.sync.connect(frozen.url) as client:
            client.admin.create_topic(topic, ordered=True)
        assert frozen.process is not None
        one = begin(
            "--database", shop.url, "--url", frozen.url, "--drain-timeout", "10m",
            "--timeout", "10m",
        )  # fmt: skip
        one.says("this process is the compensator")
        frozen.process.send_signal(signal.SIGSTOP)
        try:
            shop.write(topic, ["never answered"])
            wait_until(lambda: _is_sending(frozen), "the message is under way")
            one.process.send_signal(signal.SIGTERM)
            one.says("ending after what is under way; a second signal ends it at once")
            assert one.stop() == 143
        finally:
            frozen.process.send_signal(signal.SIGCONT)
    assert shop.states() == ["sending"]


def _is_sending(broker: BrokerProcess) -> bool:
    """Return whether bytes wait in the socket of a broker that does not read."""
    rows = Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]
    port = f"{broker.port:04X}"
    return any(
        row.split()[1].endswith(f":{port}") and not row.split()[4].endswith(":00000000")
        for row in rows
    )


def test_what_it_cannot_work_with_is_told(
    servers: Servers, tmp_path: Path, processes: Processes, cli: CommandLine
) -> None:
    url = servers.new("sqlite", tmp_path)
    told = processes.run("outbox", "run", "--database", url, code=4)
    assert "there is no file" in told.err
    assert list(tmp_path.glob("*.db")) == []
    run(url, "CREATE TABLE x (y)")
    told = processes.run("outbox", "run", "--database", url, code=1)
    assert "lacks the tables of the outbox" in told.err
    assert "`ternmq outbox prepare --database URL`" in told.err
    cli("outbox", "prepare", "--database", url)
    told = processes.run("outbox", "run", "--database", url, "--database", url, code=2)
    assert f"{name_of(url)} is named twice" in told.err
    port = free_port()
    told = processes.run("outbox", "run", "--database", url, "--metrics", "x:y:1", code=2)
    assert "--metrics" in told.err
    run(url, "UPDATE ternmq_schema SET version = 2")
    told = processes.run("outbox", "run", "--database", url, "--metrics", port, code=1)
    assert "install a newer TernMQ" in told.err


def test_the_command_line_imports_no_database_until_one_is_opened() -> None:
    code = (
        "import sys; from ternmq.cli import main; main.run(['outbox', 'run', '--help']); "
        "assert 'sqlalchemy' not in sys.modules; assert 'prometheus_client' not in sys.modules"
    )
    environment = {key: value for key, value in os.environ.items() if "TERNMQ" not in key}
    subprocess.run(
        [sys.executable, "-c", code], check=True, timeout=DEADLINE, env=environment,
        capture_output=True,
    )  # fmt: skip
