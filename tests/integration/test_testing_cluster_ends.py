"""The cluster of the testing kit leaves nothing behind, and names what it cannot do."""

from __future__ import annotations

import contextlib
import gc
import pickle
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import ternmq
import ternmq.sync
import ternmq.testing
from ternmq.client.content.broker_time import moved_clocks
from ternmq.model.errors import SettingsError
from ternmq.testing import Cluster, cluster
from tests.black_box.process import DEADLINE

PATIENCE_S = 30.0


@pytest.fixture
def pair() -> Iterator[Cluster]:
    with cluster() as one:
        yield one


def ports_of(one: Cluster) -> list[int]:
    return [int(part.rpartition(":")[2]) for part in one.url.split(",")]


def refuses(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    except ConnectionRefusedError:
        return True
    return False


class Broken(Exception):
    """The test of an application failed."""


def _nothing(_: Cluster) -> None: ...


def _fails(_: Cluster) -> None:
    raise Broken


def _all_killed(pair: Cluster) -> None:
    pair.kill("a")
    pair.kill("b")


def _primary_killed(pair: Cluster) -> None:
    pair.kill()


def _just_promoted(pair: Cluster) -> None:
    pair.kill()
    pair.clock.advance(seconds=3)
    pair.start("a")


def _switched(pair: Cluster) -> None:
    pair.switch(to="b")


def _waits_for_the_clock(pair: Cluster) -> None:
    pair.kill("a")
    pair.kill("b")
    pair.start("a")  # it begins to lead, and waits for b


def _killed_and_fails(pair: Cluster) -> None:
    pair.kill()
    raise Broken


@pytest.mark.parametrize(
    "do",
    [
        _nothing, _fails, _all_killed, _primary_killed, _just_promoted, _switched,
        _waits_for_the_clock, _killed_and_fails,
    ],
)  # fmt: skip
def test_nothing_is_left(
    do: Callable[[Cluster], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before = set(threading.enumerate())
    fails = do in {_fails, _killed_and_fails}
    with pytest.raises(Broken) if fails else contextlib.nullcontext(), cluster() as pair:
        ports = ports_of(pair)
        with ternmq.sync.connect(pair.url) as client:
            client.send("orders", 1)
            do(pair)
    gc.collect()  # what was not closed is a warning, and that is an error
    assert set(threading.enumerate()) <= before
    assert all(refuses(port) for port in ports)
    assert list(tmp_path.iterdir()) == []
    assert not moved_clocks.keys() & set(ports)


def test_a_worker_that_nobody_stopped_ends_with_it() -> None:
    with cluster() as pair:
        worker = ternmq.sync.connect(pair.url)

        @worker.handler("orders", group="g")
        def handle(_: int) -> None: ...

        thread = threading.Thread(target=worker.run, kwargs={"signals": False})
        thread.start()
        pair.wait_idle("orders", "g")
        pair.kill()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()


def test_a_cluster_that_cannot_start_leaves_nothing() -> None:
    before = set(threading.enumerate())
    with (
        pytest.raises(SettingsError, match="create_topics"),
        cluster(settings={"create_topics": "perhaps"}),
    ):
        pytest.fail("it has started")
    gc.collect()
    assert set(threading.enumerate()) <= before


PROGRAM = """
import ternmq.sync, ternmq.testing

with ternmq.testing.cluster(replicas=2) as group, ternmq.sync.connect(group.url) as client:
    client.send("orders", 1)
    group.kill()
    group.clock.advance(seconds=3)
    client.send("orders", 2)
    print(client.pull("orders", group="g").values, group.primary.name in "bc")
"""


def test_a_program_prints_no_warning() -> None:
    ended = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", PROGRAM],
        capture_output=True, text=True, timeout=DEADLINE, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == "[1, 2] True\n"
    assert "Warning" not in ended.stderr
    assert "Traceback" not in ended.stderr


# -- misuse -------------------------------------------------------------------------------------


def test_unknown_names(pair: Cluster) -> None:
    wrong: list[Any] = ["c", "", "A", None, 7, ["a"]]
    for name in wrong:
        for call in (pair.start, lambda one: pair.switch(to=one)):
            with pytest.raises(ternmq.InvalidRequest, match=r"no broker .*: it has a, b$"):
                call(name)
    for name in ("c", 7):
        with pytest.raises(ternmq.InvalidRequest, match=r"no broker .*: it has a, b$"):
            pair.kill(name)  # type: ignore[arg-type]


def test_what_runs_is_not_started_and_what_does_not_is_not_killed(pair: Cluster) -> None:
    for name in "ab":
        with pytest.raises(RuntimeError, match=f"^{name} runs already"):
            pair.start(name)
    pair.kill("b")
    for end in (pair.kill, pair.stop):
        with pytest.raises(RuntimeError, match=r"^b does not run$"):
            end("b")
    pair.kill()
    with pytest.raises(RuntimeError, match=r"no broker leads: start a"):
        pair.kill()


def test_what_a_switch_cannot_do(pair: Cluster) -> None:
    with pytest.raises(RuntimeError, match=r"^a is the primary already$"):
        pair.switch(to="a")
    pair.kill("b")
    with pytest.raises(RuntimeError, match=r"^b cannot take over: it does not run$"):
        pair.switch(to="b")
    pair.clock.advance(seconds=2)
    pair.kill("a")
    with pytest.raises(RuntimeError, match=r"nobody can hand over: no broker leads: start a"):
        pair.switch(to="b")
    pair.start("b")
    with pytest.raises(RuntimeError, match=r"nobody can hand over: no broker leads: start a"):
        pair.switch(to="b")
    with cluster(0) as alone:
        with pytest.raises(ternmq.InvalidRequest, match=r"no broker 'b': it has a$"):
            alone.switch(to="b")
        alone.kill()
        alone.start("a")
        assert alone.primary.name == "a"


def test_whom_nobody_promotes(pair: Cluster) -> None:
    with pytest.raises(RuntimeError, match=r"^b is not promoted: a leads; see switch$"):
        pair.promote("b")
    with pytest.raises(ternmq.InvalidRequest, match=r"no broker 'c': it has a, b$"):
        pair.promote("c")
    pair.kill("b")
    pair.clock.advance(seconds=2)
    pair.kill("a")
    for name in "ab":
        with pytest.raises(RuntimeError, match=f"^{name} is not promoted: it does not run$"):
            pair.promote(name)
    pair.start("b")
    with pytest.raises(RuntimeError, match=r"^b is not promoted: its copy does not count"):
        pair.promote("b")
    with cluster(0) as alone, pytest.raises(RuntimeError, match=r"^a is not promoted: a leads"):
        alone.promote("a")


@pytest.mark.parametrize("wrong", ["never", None, 3])
def test_policies_that_there_are_not(wrong: Any) -> None:
    with pytest.raises(ternmq.InvalidRequest, match=r"^failover .*automatic, reads, operator$"):
        cluster(failover=wrong).__enter__()


def test_a_wait_says_what_it_waited_for(pair: Cluster) -> None:
    pair.wait_for_copies(2, timeout=0)
    pair.kill("b")
    with pytest.raises(
        TimeoutError,
        match=r"after 0 s: 1 \(a\), not 2; a leads; b counts until .* 2 s: .*; b does not run$",
    ):
        pair.wait_for_copies(2, timeout=0)
    with pytest.raises(TimeoutError, match="no topic 'orders'"):
        pair.wait_idle("orders", "g", timeout=0)
    pair.clock.advance(seconds=2)
    with ternmq.sync.connect(pair.url) as client:
        with pytest.raises(TimeoutError, match=r": 1 \(a\), not 2; a leads; b does not run$"):
            pair.wait_for_copies(2, timeout=0)
        client.send("orders", 1)
        pair.kill("a")
        with pytest.raises(TimeoutError, match=r": none, not 1; no broker leads: start a"):
            pair.wait_for_copies(1, timeout=0)
        with pytest.raises(TimeoutError, match="no broker leads"):
            pair.wait_idle("orders", "g", timeout=0)
        with pytest.raises(TimeoutError, match="no broker leads"):
            pair.wait_failed("orders", "g", timeout=0)


@pytest.mark.parametrize("wrong", [0, -1, 3, "2", True])
def test_copies_that_there_cannot_be(pair: Cluster, wrong: Any) -> None:
    with pytest.raises(ternmq.InvalidRequest, match=r"^copies"):
        pair.wait_for_copies(wrong)


@pytest.mark.parametrize("wrong", [-1, 5, "1", 1.5, None])
def test_replicas_that_there_cannot_be(wrong: Any) -> None:
    with pytest.raises(ternmq.InvalidRequest, match=r"^replicas"), cluster(wrong):
        pytest.fail("it has started")


@pytest.mark.parametrize("name", ["name", "listen", "http", "data"])
def test_settings_that_the_cluster_sets(name: str) -> None:
    with pytest.raises(ternmq.InvalidRequest, match=f"'{name}' cannot be set"):
        cluster(settings={name: "x"}).__enter__()


def test_a_coordinator_is_no_setting_of_a_cluster_in_memory() -> None:
    with pytest.raises(SettingsError, match=r"cluster.*is for `ternmq serve`"):
        cluster(settings={"cluster": "sqlite:////tmp/x"}).__enter__()


def test_after_its_end_it_says_so() -> None:
    with cluster(0) as one:
        pass
    calls: list[Callable[[], object]] = [
        one.kill, lambda: one.start("a"), lambda: one.clock.advance(seconds=1),
        lambda: one.brokers, lambda: one.wait_for_copies(1),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(RuntimeError, match="does not run in this process"):
            call()
    with pytest.raises(RuntimeError, match="used once"):
        one.__enter__()


def test_settings_are_those_of_every_broker() -> None:
    with (
        cluster(settings={"create_topics": False}) as pair,
        ternmq.sync.connect(pair.url) as client,
    ):
        for _ in range(2):
            with pytest.raises(ternmq.UnknownTopic):
                client.send("orders", 1)
            if pair.primary.name == "a":
                pair.kill()
                pair.clock.advance(seconds=3)


def test_it_is_not_pickled(pair: Cluster) -> None:
    with pytest.raises(TypeError, match="pass its url"):
        pickle.dumps(pair)
