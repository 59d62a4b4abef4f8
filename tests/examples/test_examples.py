"""The programs in examples/, run as a user runs them: processes beside a broker's process."""

from __future__ import annotations

import random
import re
import runpy
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import pytest

import ternmq.sync
from tests.black_box.process import BrokerProcess, wait_until
from tests.examples.conftest import ROOT

EXAMPLES = ROOT / "examples"
TIMEOUT = 60


@pytest.fixture
def run(environment: dict[str, str], tmp_path: Path) -> Callable[..., list[str]]:
    """Return what runs a program to its end and returns the lines that it printed."""

    def run(program: str, *arguments: str) -> list[str]:
        done = subprocess.run(
            [sys.executable, str(EXAMPLES / program), *arguments],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    return run


def test_order_service(run: Callable[..., list[str]], dev: BrokerProcess) -> None:
    assert run("order_service.py") == [
        "order 7 is message 0 of orders, durable: True",
        "placed again: duplicate=True, still message 0",
        "order 60: {'number': 60, 'customer': 'Bob', 'cents': 120000}",
        (
            "line 2 was not sent: the body has 2000000 bytes; the broker accepts 1048576"
            " (make it smaller; the broker's setting `body` is the limit for one message, 16MiB "
            "at most)"
        ),
        "2 prices are stored",
    ]
    with ternmq.sync.connect(dev.url) as client:
        stored = client.pull("orders", group="check", max_messages=1000)
        assert sorted(one.value["number"] for one in stored) == list(range(7, 108))
        assert {one.tag for one in stored} == {"small", "large"}
        assert {tuple(one.headers.items()) for one in stored} == {(("source", "web"),)}
        assert [one.value for one in client.read("prices")] == ["apple;120", "pear;95"]


def test_order_api(run: Callable[..., list[str]], dev: BrokerProcess) -> None:
    assert run("order_api.py") == [
        "Ada: 200 1",
        "Bob: 402 {'detail': 'too much to be paid later'}",
        "Cy: 200 2",
        "invoices of orders: [1, 2]",
        "rows left in the outbox: 0",
        "handled once: 2",
    ]
    with ternmq.sync.connect(dev.url) as client:
        assert sorted(one.value["cents"] for one in client.read("orders")) == [700, 1250]
        assert sorted(one.value["order_id"] for one in client.read("invoices")) == [1, 2]


def test_django_shop(run: Callable[..., list[str]], dev: BrokerProcess) -> None:
    assert run("django_shop.py") == [
        "paid 500; the message is a row: pending=True",
        "not paid: -1 cents are no payment",
        "a payment outside a transaction was refused",
        "stored at the broker: [500, 700]",
        "rows left: 0",
        "in the books: [500, 700]",
    ]
    with ternmq.sync.connect(dev.url) as client:
        assert {one.ordering_key for one in client.read("payments")} == {"user-3"}


def test_worker(run: Callable[..., list[str]], dev: BrokerProcess) -> None:
    lines = run("worker.py", "--demo")
    assert sorted(lines) == [
        "dead: {'order': 4, 'card': 'stolen', 'cents': 999}: the card is reported stolen",
        "order 1: charged 999 cents at attempt 1",
        "order 2: charged 999 cents at attempt 2",
        "order 3: charged 999 cents at attempt 3",
        "order 4: charged 999 cents at attempt 1",
        "order 5: charged 999 cents at attempt 1",
    ]
    assert lines[-1] == "order 4: charged 999 cents at attempt 1"
    with ternmq.sync.connect(dev.url) as client:
        (queue,) = client.admin.group("payments", "charging").queues
        assert (queue.floor, queue.dead) == (6, 0)


def test_worker_ends_at_sigterm(environment: dict[str, str], dev: BrokerProcess) -> None:
    """Run as it would in production: until told to stop, and then nothing is left half done."""
    worker = subprocess.Popen(
        [sys.executable, str(EXAMPLES / "worker.py")], env=environment, stdout=subprocess.PIPE
    )
    try:
        with ternmq.sync.connect(dev.url) as client:
            client.send_many(
                "payments", [{"order": n, "card": "visa", "cents": 1} for n in range(100)]
            )
            client.admin.create_group("payments", "charging")
            wait_until(
                lambda: client.admin.group("payments", "charging").queues[0].floor == 100, "done"
            )
        worker.send_signal(signal.SIGTERM)
        said = worker.communicate(timeout=TIMEOUT)[0]
        assert worker.returncode == 0
        assert len(said.splitlines()) == 100
    finally:
        if worker.poll() is None:
            worker.kill()
            worker.communicate()


ENDS = ["transfer-1 done", "transfer-2 undone", "ada 700", "bob 1300", "cem 1000"]


def test_transfer(run: Callable[..., list[str]]) -> None:
    assert run("transfer.py", "bank.db") == ENDS
    assert run("transfer.py", "bank.db") == ENDS  # what is begun again has happened


def test_transfers_that_are_killed(
    environment: dict[str, str], run: Callable[..., list[str]], tmp_path: Path
) -> None:
    """However often it is killed, the next start goes on."""
    chance = random.Random(20_261_130)
    for _ in range(3):
        program = subprocess.Popen(
            [sys.executable, str(EXAMPLES / "transfer.py"), "bank.db"], cwd=tmp_path,
            env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        with suppress(subprocess.TimeoutExpired):
            program.wait(chance.uniform(1.0, 4.0))
        program.kill()
        program.wait()
    assert run("transfer.py", "bank.db") == ENDS


def test_ordered_consumer(run: Callable[..., list[str]]) -> None:
    steps: dict[str, list[int]] = {}
    for line in run("ordered_consumer.py"):
        found = re.fullmatch(r"\d+ account (\d) step (\d)", line)
        assert found, line
        steps.setdefault(found[1], []).append(int(found[2]))
    # Each line was written before its step was acked: what stands here is the order of the work.
    assert steps == {str(account): list(range(8)) for account in range(5)}


def test_sqlite_consumer_counts_each_message_once_though_it_is_killed(
    environment: dict[str, str], dev: BrokerProcess, tmp_path: Path
) -> None:
    path = tmp_path / "readings.db"
    command = [sys.executable, str(EXAMPLES / "sqlite_consumer.py"), str(path)]

    def rows() -> int:
        try:
            with closing(sqlite3.connect(path)) as database:
                (count,) = database.execute("SELECT count(*) FROM readings").fetchone()
                return int(count)
        except sqlite3.OperationalError:
            return 0

    with ternmq.sync.connect(dev.url) as client:
        for _ in range(2):
            before = rows()
            client.send_many("readings", [{"sensor": "a", "celsius": n} for n in range(2000)])
            with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as consumer:
                wait_until(lambda before=before: rows() > before, "a batch is stored")  # type: ignore[misc]
                consumer.kill()
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as consumer:
            wait_until(
                lambda: client.admin.group("readings", "warehouse").queues[0].floor == 4000,
                "all are stored",
            )
            consumer.send_signal(signal.SIGINT)
            said = consumer.communicate(timeout=TIMEOUT)[0].decode()
        assert consumer.returncode == 0, said
    assert rows() == 4000


@pytest.mark.slow
@pytest.mark.row("H8", "H6")
def test_a_replayed_change_log_yields_an_identical_table_though_processes_are_killed(
    run: Callable[..., list[str]], environment: dict[str, str], dev: BrokerProcess, tmp_path: Path
) -> None:
    source, replica = tmp_path / "source.db", tmp_path / "replica.db"
    sql = runpy.run_path(str(EXAMPLES / "change_log.py"))["SOURCE"]
    chance = random.Random(7)
    with closing(sqlite3.connect(source)) as database, database:
        database.executescript(sql)
        for number in range(1200):
            id_ = chance.randrange(60)
            if chance.random() < 0.2:
                database.execute("DELETE FROM accounts WHERE id = ?", (id_,))
            else:
                database.execute(
                    "INSERT INTO accounts VALUES (?, ?, ?) ON CONFLICT (id) DO UPDATE"
                    " SET owner = excluded.owner, cents = excluded.cents",
                    (id_, f"owner {number % 7}", number),
                )

    def rows(path: Path) -> list[tuple[object, ...]]:
        with closing(sqlite3.connect(path, timeout=30)) as database:
            return database.execute("SELECT * FROM accounts ORDER BY id").fetchall()

    def done() -> int:
        return sum(queue.floor for queue in client.admin.group("accounts", "replica").queues)

    (sent,) = run("change_log.py", "publish", str(source))
    command = [sys.executable, str(EXAMPLES / "change_log.py"), "replay", str(replica)]
    with ternmq.sync.connect(dev.url) as client, ExitStack() as processes:

        def begin() -> subprocess.Popen[bytes]:
            began = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
            processes.callback(began.wait)
            processes.callback(began.kill)
            return began

        count = int(sent.split()[0])
        working = [begin(), begin()]
        for share in (4, 2):
            wait_until(lambda share=share: done() > count // (2 * share), "some are applied")  # type: ignore[misc]
            working.pop(0).kill()
            working.append(begin())
        wait_until(lambda: done() == count, "all are applied", 90)
        for one in working:
            one.send_signal(signal.SIGINT)
            assert one.wait(TIMEOUT) == 0
    assert rows(replica) == rows(source)
    assert rows(source)


def test_sync_script(run: Callable[..., list[str]], tmp_path: Path) -> None:
    names = tmp_path / "names.txt"
    names.write_text("Ada\n\nGrace\n", encoding="utf-8")
    assert run("sync_script.py", "send", str(names)) == ["3 lines are stored, the last at offset 2"]
    assert run("sync_script.py", "work") == [
        "hello Ada",
        "hello Grace",
        "not greeted: line 2: an empty line",
    ]


def test_pytest_suite_of_a_user(environment: dict[str, str], tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(EXAMPLES / "shop")],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "5 passed" in done.stdout


def test_a_program_without_a_broker_says_what_to_do(
    environment: dict[str, str], dev: BrokerProcess
) -> None:
    dev.stop()
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "order_service.py")],
        env=environment, capture_output=True, text=True, timeout=TIMEOUT, check=False,
    )  # fmt: skip
    assert done.returncode != 0
    assert "`ternmq dev` starts " in done.stderr.splitlines()[-1]
