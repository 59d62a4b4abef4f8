"""Numbers of processes: unique, in order, and there although the broker is not."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from array import array
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

import ternmq.sync
from ternmq.reliable import Ids, text_id
from tests.black_box.pair import Pair
from tests.black_box.process import DEADLINE, BrokerProcess, wait_until
from tests.black_box.takers import TOPIC, Taker

PROCESSES = 8
EACH = 20_000
"""Of ``bench/ids.py``, 1,000,000."""
PATIENT = 25.0
"""Seconds: no process falls back, however long the broker takes to start again."""
RESERVE = 1 << 62


@contextlib.contextmanager
def takers(
    broker: BrokerProcess, folder: Path, count: int, patience: float
) -> Iterator[list[Taker]]:
    """Start takers, which have their first block and their reserve."""
    with contextlib.ExitStack() as stack:
        started = [
            stack.enter_context(Taker(broker.url, folder / f"taken{at}", patience))
            for at in range(count)
        ]
        for one in started:
            one.wait()
        yield started


def increasing(numbers: array[int]) -> bool:
    return all(one < other for one, other in pairwise(numbers))


def a_second_later() -> None:
    later = time.monotonic() + 1.0
    wait_until(lambda: time.monotonic() > later, "a second later")


@pytest.mark.row("M4")
def test_numbers_of_eight_processes_are_unique_and_in_order(tmp_path: Path) -> None:
    with BrokerProcess("dev", tmp_path / "broker") as broker:
        with ternmq.sync.connect(broker.url) as client:
            client.admin.create_topic(TOPIC)
        with takers(broker, tmp_path, PROCESSES, PATIENT) as processes:
            before: list[array[int]] = []
            for killed in (False, True):
                for one in processes:
                    one.begin(EACH)
                assert [one.wait() for one in processes] == [0] * PROCESSES
                if not killed:
                    before = [one.taken() for one in processes]
                    broker.restart(kill=True)
                    a_second_later()
            taken = [one.taken() for one in processes]
    assert all(map(increasing, taken))
    assert len({number for numbers in taken for number in numbers}) == 2 * PROCESSES * EACH
    assert min(numbers[EACH] for numbers in taken) > max(numbers[-1] for numbers in before)


@pytest.mark.row("M4")
def test_a_broker_that_is_killed_again_and_again_repeats_no_number(tmp_path: Path) -> None:
    with BrokerProcess("dev", tmp_path / "broker") as broker:
        with ternmq.sync.connect(broker.url) as client:
            client.admin.create_topic(TOPIC)
        with takers(broker, tmp_path, 4, 0.05) as processes:
            fallbacks: list[int] = []
            for _ in range(3):
                for one in processes:
                    one.begin(EACH)
                broker.restart(kill=True)
                fallbacks = [one.wait() for one in processes]
            taken = [one.taken() for one in processes]
    assert [len(numbers) for numbers in taken] == [3 * EACH] * 4
    assert len({number for numbers in taken for number in numbers}) == 12 * EACH
    for numbers, reserved in zip(taken, fallbacks, strict=True):
        both = [array("q", filter(lambda n: n < RESERVE, numbers)),
                array("q", filter(lambda n: n >= RESERVE, numbers))]  # fmt: skip
        assert all(map(increasing, both))
        assert len(both[1]) == reserved


@pytest.mark.row("M5")
@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_ids_and_sends_go_on_while_the_broker_does_not_answer(how: str, tmp_path: Path) -> None:
    with (
        BrokerProcess("dev", tmp_path / "broker") as broker,
        ternmq.sync.connect(broker.url, timeout=600.0) as client,
    ):
        client.admin.create_topic(TOPIC)
        ids = Ids(client, TOPIC)
        ids.start()
        seen = [ids.next() for _ in range(10)]
        assert broker.process is not None
        pid = broker.process.pid
        if how == "killed":
            broker.kill()
        else:
            os.kill(pid, signal.SIGSTOP)
        # Whatever returns now does so without the broker: the client waits for ten minutes.
        try:
            while not ids.stats().away:
                seen.append(ids.next())
            seen += [ids.next() for _ in range(100)]
            names = [text_id() for _ in range(100)]
            sent = [client.send_soon(TOPIC, b"order", id=name) for name in names]
            assert not any(one.done() for one in sent)
        finally:
            if how == "killed":
                broker.start()
            else:
                os.kill(pid, signal.SIGCONT)
        assert {one.result(30).id for one in sent}
        wait_until(lambda: ids.next() < RESERVE, "numbers of the broker again")
        seen.append(ids.next())
        stats = ids.stats()
        assert len(set(seen)) == len(seen)
        assert stats.fallbacks >= 100
        assert stats.fallbacks >= sum(number >= RESERVE for number in seen)
        assert not stats.away
        found = [one.application_id for one in client.read(TOPIC)]
        assert sorted(found) == names  # increasing, each once


_FORKED = """
import os, sys
import ternmq.sync
from ternmq.reliable import Ids, text_id
with ternmq.sync.connect() as client:
    ids = Ids(client, "orders", patience=25.0)
    seen = [ids.next() for _ in range(60)]  # half a block is left, and its reserve
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        mine = [ids.next() for _ in range(300)]
        reserved = client.reach()[1].numbers.reserve.take()
        os.write(write, " ".join(map(str, [reserved, *mine])).encode())
        client.close()
        os._exit(0)
    os.close(write)
    seen += [ids.next() for _ in range(300)]
    reserved = client.reach()[1].numbers.reserve.take()
    with open(read, "rb") as pipe:
        theirs = [int(one) for one in pipe.read().split()]
    assert os.waitpid(child, 0)[1] == 0
    assert len(theirs) == 301 and len(set(seen) | set(theirs[1:])) == 660
    assert theirs[1:] == sorted(theirs[1:]) and seen == sorted(seen)
    assert reserved >= 1 << 62 and theirs[0] - reserved == 1 << 40
"""


@pytest.mark.row("M4")
def test_a_forked_child_takes_numbers_of_its_own(tmp_path: Path) -> None:
    with BrokerProcess("dev", tmp_path / "broker") as broker:
        with ternmq.sync.connect(broker.url) as client:
            client.admin.create_topic(TOPIC)
        done = subprocess.run(
            [sys.executable, "-c", _FORKED], env={**os.environ, "TERNMQ_URL": broker.url},
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr


def reserve_of(client: ternmq.sync.Client) -> int:
    """Return a number of a client's reserve."""
    number = client.reach()[1].numbers.reserve.take()
    assert number is not None
    return number


@pytest.mark.row("M4")
@pytest.mark.timeout(240)
def test_another_broker_that_takes_over_repeats_no_number(tmp_path: Path) -> None:
    with Pair(tmp_path) as pair, ternmq.sync.connect(pair.url, timeout=DEADLINE) as client:
        client.admin.create_topic(TOPIC)
        ids = Ids(client, TOPIC)
        ids.start()
        seen = [ids.next() for _ in range(5_000)]
        pair["a"].kill()
        while not ids.stats().away:  # what it has, it uses
            seen.append(ids.next())
        pair.wait_for_primary("b")

        def given_by_b() -> bool:
            seen.append(ids.next())
            return seen[-1] < RESERVE

        wait_until(given_by_b, "b gives numbers")
        seen += [ids.next() for _ in range(5_000)]
        assert len(set(seen)) == len(seen)
        given = [number for number in seen if number < RESERVE]
        assert given == sorted(given)
        with ternmq.sync.connect(pair.url, timeout=DEADLINE) as other:
            Ids(other, TOPIC).start()
            assert abs(reserve_of(other) - reserve_of(client)) >= (1 << 40) - len(seen)
