"""Rows of the mission about reads from a replica: real processes, one of which is stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

import ternmq.sync
from ternmq.cluster.coordination.wishes import Change, Failover, GroupSettings
from tests.black_box.pair import TOKEN, Pair
from tests.black_box.process import DEADLINE, wait_until
from tests.black_box.test_pair import made
from tests.black_box.test_rows_copies import stopped

MESSAGES = 500


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    with Pair(tmp_path, http=True) as one:
        made(one, "orders")
        with ternmq.sync.connect(one.url, timeout=DEADLINE) as client:
            for number in range(MESSAGES):
                client.send_soon("orders", number, key=f"k{number % 7}", id=f"own-{number}")
            client.flush()
        # Else the replica takes over while a test has stopped the primary.
        one.set(GroupSettings(failover=Failover.OPERATOR))
        wait_until(lambda: count(one) == MESSAGES, "the replica shows all messages")
        yield one


def count(pair: Pair) -> int:
    """Return how many messages the replica shows."""
    client = ternmq.sync.connect(pair.url, timeout=DEADLINE)
    try:
        return len(list(client.read("orders", from_="replica")))
    finally:
        client.close()


def values(found: Any) -> list[Any]:
    return [one.value for one in found]


def command(pair: Pair, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = dict(os.environ, TERNMQ_URL=pair.url, TERNMQ_CLUSTER=pair.cluster)
    return subprocess.run(
        [sys.executable, "-m", "ternmq", *arguments],
        capture_output=True, env=environment, timeout=DEADLINE, check=False, text=True,
    )  # fmt: skip


@pytest.mark.row("E16")
@pytest.mark.timeout(180)
def test_a_reader_takes_no_work_from_the_primary(pair: Pair) -> None:
    """The primary is stopped, as a machine that hangs: the replica answers everything."""
    client = ternmq.sync.connect(pair.url, timeout=DEADLINE)
    with stopped(pair["a"]):
        assert values(client.read("orders", from_="replica")) == list(range(MESSAGES))
        assert values(client.read("orders", start=7, stop=10, from_="replica")) == [7, 8, 9]
        assert client.get("orders", "own-3", from_="replica").value == 3
        found = client.find("orders", key="k2", limit=1000, from_="replica")
        assert sorted(values(found)) == list(range(2, MESSAGES, 7))
        behind = client.behind()
        assert behind is not None
        assert behind > timedelta(0)
    client.close()


@pytest.mark.row("E16")
@pytest.mark.timeout(180)
def test_it_says_how_far_it_is_behind(pair: Pair) -> None:
    with ternmq.sync.connect(pair.url, timeout=DEADLINE) as client:

        def near_now() -> timedelta | None:
            last = values(client.read("orders", start=MESSAGES - 1, from_="replica"))
            assert last == [MESSAGES - 1]
            return client.behind()

        # A replica that fell silent for a moment is no member, and the primary answers.
        wait_until(lambda: near_now() is not None, "a replica answers")
        near = near_now()
        assert near is not None
        assert near < timedelta(seconds=10)  # a quarter of a second, if the machine is not busy
        pair["a"].kill()

        def far() -> bool:
            assert values(client.read("orders", start=1, stop=3, from_="replica")) == [1, 2]
            behind = client.behind()
            return behind is not None and behind > near + timedelta(seconds=3)

        wait_until(far, "it says that it is further behind", DEADLINE)
        assert pair["b"].metric("ternmq_copy_behind_seconds") > 3
        assert pair["b"].metric("ternmq_copy_readers") >= 1
        pair.ask(Change.PROMOTE, "b")
        pair.wait_for_primary("b")
        client.send("orders", MESSAGES)
        assert values(client.read("orders", start=MESSAGES, from_="replica")) == [MESSAGES]
        assert client.behind() is None  # there is no replica now


@pytest.mark.row("E16")
@pytest.mark.timeout(240)
@pytest.mark.parametrize("lost", ["a", "b"])
def test_a_reader_goes_on_when_a_broker_is_killed(pair: Pair, lost: str) -> None:
    """Each message comes once and in order, whichever broker answers."""
    pair.set(GroupSettings(failover=Failover.AUTOMATIC))
    seen: SimpleQueue[Any] = SimpleQueue()
    reader = ternmq.sync.connect(pair.url, timeout=DEADLINE)

    def follow() -> None:
        try:
            for one in reader.read("orders", follow=True, from_="replica"):
                seen.put(one.value)
        except ternmq.ClientClosed:
            pass
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            seen.put(error)

    thread = threading.Thread(target=follow)
    thread.start()
    try:
        with ternmq.sync.connect(pair.url, timeout=DEADLINE) as client:
            client.send("orders", MESSAGES)
            for number in range(MESSAGES + 1):
                assert seen.get(timeout=DEADLINE) == number
            pair[lost].process.send_signal(signal.SIGKILL)  # type: ignore[union-attr]
            for number in range(MESSAGES + 1, MESSAGES + 50):
                client.send("orders", number)
                assert seen.get(timeout=DEADLINE) == number
    finally:
        reader.close()
        thread.join(DEADLINE)
    assert not thread.is_alive()


@pytest.mark.row("E16")
@pytest.mark.timeout(180)
def test_the_command_line_reads_from_a_replica(pair: Pair) -> None:
    with stopped(pair["a"]):
        for arguments, told in (
            (("tail", "orders", "-n", "2", "--raw"), f"{MESSAGES - 2}\n{MESSAGES - 1}\n"),
            (("message", "get", "orders/0/17", "--raw"), "17"),
        ):
            ended = command(pair, *arguments, "--from", "replica")
            assert ended.returncode == 0, ended.stderr
            assert ended.stdout.rstrip("\n") == told.rstrip("\n")
            assert "read from a replica, " in ended.stderr
            assert " behind" in ended.stderr
        ended = command(pair, "message", "find", "orders", "-k", "k3", "--from", "replica")
        assert ended.stdout.count("\n") >= MESSAGES // 7 - 1 or "showing 100" in ended.stderr
    pair["b"].stop()
    ended = command(pair, "message", "get", "orders/0/17", "--raw", "--from", "replica")
    assert ended.stdout.rstrip("\n") == "17"
    assert "no replica answers: this was read from the primary" in ended.stderr


@pytest.mark.row("E16")
@pytest.mark.timeout(180)
def test_tokens_and_rights_hold_at_the_replica(pair: Pair) -> None:
    with ternmq.sync.connect(pair.url, timeout=DEADLINE) as client:
        token = client.admin.put_app("auditor", ["consume:other"])
    hosts = pair.url.rpartition("@")[2]

    def refused() -> str:
        one = ternmq.sync.connect(f"ternmq://auditor:{token}@{hosts}", timeout=DEADLINE)
        try:
            list(one.read("orders", from_="replica"))
        except ternmq.Unauthenticated:
            return ""  # the replica does not know the app yet
        except ternmq.TernMQError as error:
            return type(error).__name__
        finally:
            one.close()
        return "nothing"

    wait_until(lambda: refused() != "", "the replica knows the app", DEADLINE)
    assert refused() in {"Forbidden", "UnknownTopic"}
    wrong = ternmq.sync.connect(f"ternmq://admin:{TOKEN[::-1]}@{hosts}", timeout=DEADLINE)
    with pytest.raises(ternmq.Unauthenticated):
        list(wrong.read("orders", from_="replica"))
    wrong.close()
