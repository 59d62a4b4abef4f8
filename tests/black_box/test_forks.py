"""Clients in processes that fork: each child begins anew, and the parent is not disturbed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.black_box.process import DEADLINE, BrokerProcess, wait_until
from tests.black_box.users import Blocking

pytestmark = pytest.mark.row("B18")


@contextlib.contextmanager
def started(scenario: str, dev: BrokerProcess, topic: str) -> Iterator[subprocess.Popen[str]]:
    """Start a program that forks. Leaving ends whatever is left of it."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.black_box.forking.children", scenario, topic],
        env={**os.environ, "TERNMQ_URL": dev.url},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with process:
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def run(scenario: str, dev: BrokerProcess, topic: str) -> str:
    """Run a program that forks; return what it printed."""
    with started(scenario, dev, topic) as process:
        said, errors = process.communicate(timeout=2 * DEADLINE)
    assert process.returncode == 0, errors
    assert "Traceback" not in errors
    assert "Exception ignored" not in errors
    return said


def stored(dev: BrokerProcess, topic: str) -> list[str]:
    with Blocking(dev.url) as user:
        return sorted(user.values(topic))


def of_threads(*children: str, count: int = 10) -> list[str]:
    """Return what the threads of children sent."""
    return [f"{child}-{t}-{n}" for child in children for t in range(4) for n in range(count)]


def test_whichever_thread_of_a_child_comes_first(dev: BrokerProcess, topic: str) -> None:
    run("threads_in_children", dev, topic)
    expected = ["before", "after", *of_threads(*[f"child{n}" for n in range(8)])]
    assert stored(dev, topic) == sorted(expected)


def test_forks_while_four_threads_send(dev: BrokerProcess, topic: str) -> None:
    counts = [int(count) for count in run("fork_during_sends", dev, topic).split()]
    parents = [f"parent-{t}-{n}" for t, count in enumerate(counts) for n in range(count)]
    expected = parents + of_threads(*[f"child{n}" for n in range(8)])
    assert stored(dev, topic) == sorted(expected)


def test_forks_while_threads_use_a_client_for_the_first_time(
    dev: BrokerProcess, topic: str
) -> None:
    run("fork_at_first_use", dev, topic)
    who = [f"{who}{n}" for who in ("parent", "child") for n in range(20)]
    assert stored(dev, topic) == sorted(of_threads(*who, count=1))


def test_a_fork_in_a_thread(dev: BrokerProcess, topic: str) -> None:
    run("fork_in_a_thread", dev, topic)
    assert stored(dev, topic) == sorted(["before", *of_threads(*[f"child{n}" for n in range(4)])])


def test_a_fork_of_a_fork(dev: BrokerProcess, topic: str) -> None:
    run("fork_of_a_fork", dev, topic)
    sent = of_threads("child", "grandchild0", "grandchild1")
    assert stored(dev, topic) == sorted(["before", "after", "child-after", *sent])


def test_a_fork_of_a_fork_that_never_used_the_client(dev: BrokerProcess, topic: str) -> None:
    run("fork_of_an_idle_fork", dev, topic)
    assert stored(dev, topic) == sorted(["before", *of_threads("grandchild")])


def test_a_fork_that_runs_no_hooks_of_python(dev: BrokerProcess, topic: str) -> None:
    run("fork_without_hooks", dev, topic)
    assert stored(dev, topic) == sorted(["before", "after", *of_threads("child")])


@pytest.mark.parametrize("start", ["fork", "forkserver", "spawn"])
def test_multiprocessing(start: str, dev: BrokerProcess, topic: str) -> None:
    run(f"multiprocessing_{start}", dev, topic)
    soon = [f"soon{n}-{m}" for n in range(3) for m in range(100)]
    sent = of_threads("parent", *[f"child{n}" for n in range(3)])
    assert stored(dev, topic) == sorted(["before", *sent, *soon])


def test_what_waits_at_the_fork_is_sent_once_by_the_parent(dev: BrokerProcess, topic: str) -> None:
    told = int(run("pending", dev, topic))
    assert told > 0, "nothing waited at the fork"
    sent = [*[f"parent-{n}" for n in range(1000)], *[f"child-{n}" for n in range(100)]]
    assert stored(dev, topic) == sorted(["before", *sent])


def test_what_was_opened_before_the_fork(dev: BrokerProcess, topic: str) -> None:
    run("opened_before", dev, topic)
    assert stored(dev, topic) == [f"m{n}" for n in range(6)]


def test_handlers_that_were_declared_before_the_fork(dev: BrokerProcess, topic: str) -> None:
    assert run("handlers", dev, topic) == "True before\n"


@pytest.mark.parametrize("scenario", ["exits", "idle_exits"])
def test_the_exit_of_a_child(scenario: str, dev: BrokerProcess, topic: str) -> None:
    run(scenario, dev, topic)
    sent = [f"child-{n}" for n in range(100)] if scenario == "exits" else []
    assert stored(dev, topic) == sorted(["before", "after", *sent])


@pytest.mark.parametrize("scenario", ["signals", "signals_of_asyncio"])
def test_a_signal_to_a_child_of_a_handler(scenario: str, dev: BrokerProcess, topic: str) -> None:
    run(scenario, dev, topic)


def test_an_asyncio_client_in_a_child(dev: BrokerProcess, topic: str) -> None:
    run("asyncio_in_a_child", dev, topic)
    assert stored(dev, topic) == ["after", "before", "child"]


def test_a_bulk_client_in_a_child(dev: BrokerProcess, topic: str) -> None:
    run("bulk_in_a_child", dev, topic)


def test_a_parent_that_is_killed_while_a_child_lives_on(topic: str, tmp_path: Path) -> None:
    """The broker sees the end of its connections at once, though the child was forked with them."""
    # No heartbeat tells in time.
    with (
        BrokerProcess("dev", tmp_path / "dev", http=True, heartbeat="60s") as dev,
        started("outlives", dev, topic) as process,
    ):
        assert process.stdout is not None
        child = int(process.stdout.readline())
        assert process.wait(DEADLINE) == -signal.SIGKILL
        wait_until(lambda: not dev.metric("ternmq_connections"), "the end of the connections")
        os.kill(child, 0)  # it lives
