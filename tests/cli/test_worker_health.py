"""The health port of ``ternmq worker``: what it answers while things happen to real processes."""

from __future__ import annotations

import asyncio
import http.client
import os
import re
import signal
import socket
from pathlib import Path

import pytest

import ternmq.sync
from ternmq.cli.worker import board as boards
from ternmq.cli.worker.board import Board
from ternmq.cli.worker.reports import Reader, Report, Writer
from ternmq.client.handler.counts import HandlerCounts
from tests.black_box.process import DEADLINE, BrokerProcess, wait_until
from tests.cli.conftest import Processes
from tests.cli.workers import Start, Worker, begun

ANYWHERE = ("--http", "127.0.0.1:0")
MANY = """
import pathlib, time
import ternmq

client = ternmq.connect()

@client.handler("{topic}", group="g")
def many(number: int) -> None:
    if number < 0:
        raise ternmq.Reject("negative")
    while number == 0 and not pathlib.Path("go").exists():
        time.sleep(0.01)
"""
OF_A_BLOCKING_CLIENT = MANY.replace("import ternmq\n", "import ternmq, ternmq.sync\n").replace(
    "ternmq.connect", "ternmq.sync.connect"
)
STUCK = """
import pathlib, time
import ternmq
from ternmq.cli.worker import board

board.STUCK_S = 1.0
client = ternmq.connect()

@client.handler("{topic}", group="g")
async def stuck(body: str) -> None:
    while not pathlib.Path("go").exists():
        time.sleep(0.01)
"""


class Asked:
    """The health port of a worker."""

    def __init__(self, worker: Worker) -> None:
        (port,) = worker.says(r"health and metrics: http://127\.0\.0\.1:(\d+)/livez")
        self._port = int(port)

    def __call__(self, path: str) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=DEADLINE)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def until(self, path: str, status: int, pattern: str) -> None:
        """Wait for an answer."""

        def answered() -> bool:
            found, text = self(path)
            return found == status and re.search(pattern, text) is not None

        wait_until(answered, f"{path}: {status} {pattern}")

    def count(self, name: str, number: int) -> None:
        """Wait until a metric has at least this value: messages can come again."""

        def counted() -> bool:
            status, text = self("/metrics")
            assert status == 200
            values = re.findall(rf"(?m)^ternmq_worker_{name}(?:\{{.*\}})? (\S+)$", text)
            return sum(map(float, values)) >= number

        wait_until(counted, f"{name} {number}")


def test_a_worker_from_its_start_to_its_end(
    processes: Processes, tmp_path: Path, start: Start, topic: str
) -> None:
    with BrokerProcess("dev", tmp_path / "own", segment="4MiB") as broker:
        broker.kill()
        processes.environment["TERNMQ_URL"] = broker.url
        worker = start(MANY, *ANYWHERE)
        ask = Asked(worker)
        lost = f"^no connection to the broker at {broker.url}\n$"
        ask.until("/readyz", 503, lost)
        assert ask("/livez") == (200, "ok\n")
        broker.start()
        ask.until("/readyz", 200, "^ok\n$")

        with ternmq.sync.connect(broker.url) as client:
            client.send_many(topic, [1, 2, 3, -1, "no number"])
            ask.count("done_total", 3)
            ask.count("failed_total", 2)
            labels = f'{{group="g",handler="many",topic="{topic}"}}'
            assert labels in ask("/metrics")[1]

        broker.kill()
        ask.until("/readyz", 503, lost)
        assert ask("/livez") == (200, "ok\n")
        broker.start()
        ask.until("/readyz", 200, "^ok\n$")

        with ternmq.sync.connect(broker.url) as client:
            client.send(topic, 0)
        ask.count("running", 1)
        worker.process.send_signal(signal.SIGTERM)
        ask.until("/readyz", 503, "^stopping\n$")
        assert ask("/livez") == (200, "ok\n")
        (worker.folder / "go").touch()
        assert worker.process.wait(DEADLINE) == 0


def test_a_worker_of_a_blocking_client(
    start: Start, client: ternmq.sync.Client, topic: str
) -> None:
    worker = start(OF_A_BLOCKING_CLIENT, *ANYWHERE)
    ask = Asked(worker)
    ask.until("/readyz", 200, "^ok\n$")
    client.send_many(topic, [1, 0])
    ask.count("done_total", 1)
    ask.count("running", 1)
    worker.process.send_signal(signal.SIGTERM)
    ask.until("/readyz", 503, "^stopping\n$")
    (worker.folder / "go").touch()
    assert worker.process.wait(DEADLINE) == 0


def test_a_loop_that_is_stuck_is_not_live(
    start: Start, client: ternmq.sync.Client, topic: str
) -> None:
    worker = start(STUCK, *ANYWHERE)
    ask = Asked(worker)
    ask.until("/readyz", 200, "^ok\n$")
    client.send(topic, "one")
    stuck = r"its event loop has not run for \d+ s\n$"
    ask.until("/livez", 503, f"^process {worker.process.pid}: {stuck}")
    assert ask("/readyz")[0] == 503
    (worker.folder / "go").touch()
    ask.until("/livez", 200, "^ok\n$")
    ask.until("/readyz", 200, "^ok\n$")
    assert worker.end() == 0


def test_one_port_for_several_processes(
    start: Start, client: ternmq.sync.Client, topic: str
) -> None:
    worker = start(MANY, "--processes", 2, *ANYWHERE)
    ask = Asked(worker)
    one, _ = begun(worker, 2)
    ask.until("/readyz", 200, "^ok\n$")
    client.send_many(topic, list(range(1, 101)))
    ask.count("done_total", 100)
    ask.count("processes_ready", 2)

    os.kill(one, signal.SIGKILL)
    ask.until("/readyz", 503, rf"^process {one}: ended with signal 9\n$")
    assert ask("/livez") == (200, "ok\n")
    ask.count("restarts_total", 1)
    ask.until("/readyz", 200, "^ok\n$")
    client.send(topic, 101)
    ask.count("done_total", 101)  # what the killed process did is not forgotten

    client.send(topic, 0)
    ask.count("running", 1)
    worker.process.send_signal(signal.SIGTERM)
    ask.until("/readyz", 503, "^stopping\n$")
    assert ask("/livez") == (200, "ok\n")
    (worker.folder / "go").touch()
    assert worker.process.wait(DEADLINE) == 0


def test_a_port_that_stays_while_the_source_changes(start: Start) -> None:
    worker = start(MANY, "--reload", *ANYWHERE)
    ask = Asked(worker)
    ask.until("/readyz", 200, "^ok\n$")
    code = (worker.folder / "shop.py").read_text()
    (worker.folder / "shop.py").write_text("this is no Python")
    ask.until("/readyz", 503, "^ended with status 2\n$")
    assert ask("/livez") == (200, "ok\n")
    (worker.folder / "shop.py").write_text(code)
    ask.until("/readyz", 200, "^ok\n$")
    assert worker.end() == 0


@pytest.mark.parametrize("more", [(), ("--processes", "2"), ("--reload",)])
def test_an_address_in_use_is_one_line(processes: Processes, more: tuple[str, ...]) -> None:
    (processes.folder / "shop.py").write_text("open('imported', 'w').close()")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        ended = processes.run("worker", "shop:client", "--http", address, "-q", *more, code=1)
    assert ended.err == f"ternmq: --http {address}: is in use; name another address\n"
    assert not (processes.folder / "imported").exists()


def test_no_port_unless_it_is_asked_for(start: Start) -> None:
    worker = start(MANY, "--http", "off")
    begun(worker)
    assert worker.end() == 0
    assert "health" not in worker.said


# -- without processes

COUNTS = HandlerCounts("mail", "orders", "mailing", 5, 2, 1)


def test_who_has_not_reported_for_long_is_stuck() -> None:
    board = Board(2)
    board.started(1, 71)
    board.started(2, 72)
    assert board.not_live(1000.0) == ""  # an import may take long
    assert board.not_ready(1000.0) == "process 71: starting; process 72: starting"
    board.reported(1, Report("", []), 1000.0)
    board.reported(2, Report("no connection", []), 1000.0)
    at = 1000.0 + boards.STUCK_S
    assert board.not_live(at) == ""
    assert board.not_ready(at) == "process 72: no connection"
    board.reported(2, Report("", []), at)
    assert board.not_ready(at) == ""
    assert board.not_live(at + 1) == "process 71: its event loop has not run for 11 s"
    assert board.not_ready(at + 1) == board.not_live(at + 1)


def test_processes_that_ended() -> None:
    board = Board(2)
    for number in (1, 2):
        board.started(number, 70 + number)
        board.reported(number, Report("", [COUNTS]), 0.0)
    board.ended(1, "ended with status 0", for_good=True)
    assert board.not_ready(0.0) == ""  # the one that is left is ready
    board.ended(2, "ended with status 1")
    assert board.not_ready(0.0) == "process 72: ended with status 1"
    assert board.not_live(1000.0) == ""
    board.started(2, 73)
    board.reported(2, Report("", [COUNTS]), 1000.0)
    assert board.handlers() == {("mail", "orders", "mailing"): (15, 6, 1)}
    assert board.processes(1000.0) == (1, 1, 1)
    board.ended(2, "ended with status 0", for_good=True)
    assert board.not_ready(1000.0) == "stopping"


def test_reports_arrive_whole_though_the_pipe_is_full() -> None:
    reports = [Report(f"{number}" * 3000, [COUNTS] * number) for number in range(100)]
    found: list[Report] = []

    async def run() -> None:
        reading, writing = os.pipe()
        write = Writer(writing)
        for report in reports:
            write(report)  # nobody reads: later ones are left out
        reader = Reader(reading, found.append)
        async with asyncio.timeout(DEADLINE):
            while not found or found[-1] != reports[-1]:
                write(reports[-1])
                await asyncio.sleep(0)
        os.close(writing)
        reader.close()

    asyncio.run(run())
    assert len(found) < len(reports)
    assert all(one in reports for one in found)
