"""Rows of the mission about two copies: what an operator sees, what both disks have."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import ternmq.sync
from tests.black_box.pair import Pair
from tests.black_box.process import DEADLINE, BrokerProcess, wait_until
from tests.black_box.test_pair import consumed, made

SILENT_S = 2.0
"""After this time a silent member is taken out."""


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    with Pair(tmp_path, http=True) as one:
        made(one, "orders")
        yield one


def command(pair: Pair, *arguments: str) -> Any:
    """Return the document of a command that ends well."""
    environment = dict(os.environ, TERNMQ_URL=pair.url, TERNMQ_CLUSTER=pair.cluster)
    ended = subprocess.run(
        [sys.executable, "-m", "ternmq", *arguments, "--json"],
        capture_output=True, env=environment, timeout=DEADLINE, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def page(broker: BrokerProcess, path: str) -> tuple[int, str]:
    """Return the status and the text of a page for probes."""
    address = f"http://127.0.0.1:{broker.http_port}{path}"
    try:
        with urllib.request.urlopen(address, timeout=DEADLINE) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode()


def journal(broker: BrokerProcess) -> bytes:
    """Return the bytes of the segments of a broker."""
    return b"".join(one.read_bytes() for one in sorted(broker.data.glob("journal/*")))


@contextlib.contextmanager
def stopped(broker: BrokerProcess) -> Iterator[None]:
    """Stop a process for a while, as a machine that hangs."""
    assert broker.process is not None
    broker.process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        broker.process.send_signal(signal.SIGCONT)


@pytest.mark.row("D1")
@pytest.mark.timeout(180)
def test_an_answered_send_is_in_both_journals_and_on_the_primarys_disk(pair: Pair) -> None:
    with ternmq.sync.connect(pair.url, timeout=DEADLINE) as client:
        for number in range(10):
            before = pair["a"].metric("ternmq_syncs_total")
            mark = f"in-both-{number}-"
            client.send("orders", {"n": number, "mark": mark})
            assert all(mark.encode() in journal(one) for one in pair.all)
            assert pair["a"].metric("ternmq_syncs_total") > before


@pytest.mark.row("D3")
@pytest.mark.timeout(180)
def test_a_follower_acknowledges_before_it_syncs(pair: Pair) -> None:
    sends = 300
    with ternmq.sync.connect(pair.url, timeout=DEADLINE) as client:
        client.send("orders", {"n": 0})
        before = pair["b"].metric("ternmq_copy_syncs_total")
        first = pair["a"].metric("ternmq_syncs_total")
        for number in range(sends):
            client.send("orders", {"n": number})
    assert pair["a"].metric("ternmq_syncs_total") - first >= sends / 2
    # Each send was answered, so the follower had acknowledged it; its disk follows 100 ms later.
    assert pair["b"].metric("ternmq_copy_syncs_total") - before < sends / 4
    assert pair["a"].metric("ternmq_cluster_copies") == 2
    wait_until(
        lambda: pair["b"].metric("ternmq_copy_synced") == pair["b"].metric("ternmq_copy_written"),
        "the disk has what the file has",
    )


@pytest.mark.row("D4")
@pytest.mark.row("D5")
@pytest.mark.timeout(240)
def test_a_lost_follower_is_an_alarm_and_one_that_comes_back_ends_it(pair: Pair) -> None:
    with ternmq.sync.connect(pair.url, timeout=DEADLINE) as client:
        client.send("orders", {"n": 0})
        pair["b"].kill()
        began = time.monotonic()
        client.send("orders", {"n": 1})
        assert time.monotonic() - began < SILENT_S + 5  # the rest is for a busy machine
        group = command(pair, "broker", "status")["broker_group"]
        assert (group["copies"], group["takes_strict"]) == (1, False)
        (lost,) = group["followers"]
        assert (lost["broker"], lost["connected"], lost["member"]) == ("b", False, False)
        wait_until(lambda: pair["a"].metric("ternmq_alarms") == 1, "it is an alarm", 2 * DEADLINE)
        (alarm,) = command(pair, "alarm", "list")
        assert (alarm["alarm"], alarm["subject"]) == ("one-copy", "main")
        assert "one copy" in alarm["text"]
        # At first the coordinator may still show b; then the alarm gets its text anew.
        wait_until(
            lambda: "b does not run" in command(pair, "alarm", "list")[0]["text"],
            "the alarm says who is missing",
            2 * DEADLINE,
        )
        assert command(pair, "cluster", "status")["well"] is False

        pair["b"].start()
        wait_until(lambda: pair["a"].metric("ternmq_cluster_copies") == 2, "there are two copies")
        wait_until(
            lambda: pair["a"].metric("ternmq_alarms") == 0, "the alarm is over", 2 * DEADLINE
        )
        assert command(pair, "alarm", "list") == []
        found = command(pair, "cluster", "status")
        assert found["well"] is True
        assert found["says"] == "two copies: a (primary), b"
        # A send waits for it again: it is answered only when it is known that b does not count.
        with stopped(pair["b"]):
            began = time.monotonic()
            client.send("orders", {"n": 2})
            assert time.monotonic() - began > SILENT_S / 2
            assert pair["a"].metric("ternmq_cluster_copies") == 1


@pytest.mark.row("D11")
@pytest.mark.timeout(240)
def test_a_follower_without_a_folder_is_brought_up_while_the_primary_runs(pair: Pair) -> None:
    body = "x" * 1000
    with ternmq.sync.connect(pair.url, timeout=DEADLINE) as client:
        client.send_many("orders", [{"n": number, "body": body} for number in range(6000)])
        epoch = pair.record().epoch
        process = pair["a"].process
        pair["b"].stop()
        shutil.rmtree(pair["b"].data)
        pair["b"].start()
        for number in range(6000, 6100):  # the primary goes on meanwhile
            client.send("orders", {"n": number})
        wait_until(lambda: pair["a"].metric("ternmq_cluster_copies") == 2, "it is a member")
        assert pair["a"].process is process
        assert pair.record().epoch == epoch
        client.send("orders", {"n": 6100})
    end = int(pair["a"].metric("ternmq_journal_durable"))
    assert journal(pair["a"])[:end] == journal(pair["b"])[:end]
    pair["a"].kill()
    assert sorted(consumed(pair.url, "orders", 6101)) == list(range(6101))


@pytest.mark.row("D12")
@pytest.mark.timeout(180)
def test_what_was_acked_is_not_delivered_again_by_the_next_primary(pair: Pair) -> None:
    with ternmq.sync.connect(pair.url, timeout=DEADLINE) as client:
        client.send_many("orders", [{"n": number} for number in range(200)])
    acked = consumed(pair.url, "orders", 120)
    pair["a"].kill()
    with ternmq.sync.connect(pair.url, timeout=DEADLINE) as client:
        client.send("orders", {"n": 200})
    left = consumed(pair.url, "orders", 201 - len(acked))
    assert not set(left) & set(acked)
    assert sorted(acked + left) == list(range(201))


@pytest.mark.row("O7")
@pytest.mark.timeout(180)
def test_every_broker_shows_its_role_its_place_and_how_far_it_is_behind(pair: Pair) -> None:
    with ternmq.sync.connect(pair.url, timeout=DEADLINE) as client:
        for number in range(50):
            client.send("orders", {"n": number})
        status = command(pair, "broker", "status")
        assert (status["broker"], status["role"], status["epoch"]) == ("a", "primary", 1)
        assert status["uptime_s"] > 0
        assert status["rates"].keys() == {"sent_a_second", "delivered_a_second"}
        assert 0 < status["disk"]["free_bytes"] < status["disk"]["total_bytes"]
        assert 0 <= status["journal"]["first"] < status["journal"]["durable"]
        group = status["broker_group"]
        assert (group["name"], group["copies"], group["takes_strict"]) == ("main", 2, True)
        (follower,) = group["followers"]
        assert (follower["broker"], follower["kind"]) == ("b", "member")
        assert follower["member"]
        assert follower["connected"]
        assert follower["behind_bytes"] >= 0
        assert follower["heard_s"] < DEADLINE
    roles = {one["broker"]: one["role"] for one in command(pair, "broker", "list")}
    assert roles == {"a": "primary", "b": "member"}
    # The follower has no journal of its own; its page for probes shows the same of it.
    assert page(pair["b"], "/livez") == (200, "ok\n")
    wait_until(lambda: pair["b"].metric("ternmq_cluster_member") == 1, "it knows that it counts")
    code, text = page(pair["b"], "/readyz")
    assert code == 503
    address = f"127.0.0.1:{pair['a'].port}"
    assert text == f"follows a at {address}, 0 bytes behind; its copy counts\n"
    assert page(pair["a"], "/readyz") == (200, "ok\n")
    shown = page(pair["b"], "/metrics")[1]
    assert 'ternmq_cluster_role{broker_group="main",role="follower"} 1.0' in shown
    assert pair["b"].metric("ternmq_copy_behind_bytes") == 0
    assert pair["b"].metric("ternmq_copy_written") >= status["journal"]["durable"]
    assert pair["b"].metric("ternmq_uptime_seconds") > 0
    # Its port answers in every role; it is the same one.
    pair["a"].kill()
    wait_until(lambda: page(pair["b"], "/readyz") == (200, "ok\n"), "b leads")
    assert 'role="primary"} 1.0' in page(pair["b"], "/metrics")[1]


@pytest.mark.row("A4")
@pytest.mark.timeout(240)
def test_a_third_broker_that_is_attached_while_it_runs_becomes_a_copy(pair: Pair) -> None:
    with ternmq.sync.connect(pair.url, timeout=DEADLINE) as client:
        client.send_many("orders", [{"n": number} for number in range(1000)])
        third = pair.add("c").start()
        wait_until(lambda: pair["a"].metric("ternmq_cluster_copies") == 3, "three copies")
        found = command(pair, "cluster", "status")
        assert found["says"] == "three copies: a (primary), b, c"
        followers = command(pair, "broker", "status")["broker_group"]["followers"]
        assert [one["broker"] for one in followers] == ["b", "c"]
        client.send("orders", {"n": 1000})
        mark = int(pair["a"].metric("ternmq_journal_durable"))
        assert journal(third)[:mark] == journal(pair["a"])[:mark]
        pair["a"].kill()
        wait_until(lambda: pair.record().primary in {"b", "c"}, "one of the others leads")
    assert sorted(consumed(pair.url, "orders", 1001)) == list(range(1001))


@pytest.mark.row("D8")
@pytest.mark.timeout(240)
def test_an_operator_moves_the_primary_and_it_stays_there(pair: Pair) -> None:
    with ternmq.sync.connect(pair.url, timeout=DEADLINE) as client:
        client.send("orders", {"n": 0})
        for number, to in enumerate(("b", "a", "b"), 1):
            # Longer than a lease: nothing that this broker has promised holds any more.
            until = time.monotonic() + 4
            wait_until(lambda until=until: time.monotonic() > until, "it has led for a while")  # type: ignore[misc]
            wait_until(lambda: len(pair.record().members) == 2, "both are members")
            done = command(pair, "cluster", "switch", "--to", to)
            assert done["primary"] == to
            client.send("orders", {"n": number})
            assert pair.record().primary == to
    assert sorted(consumed(pair.url, "orders", 4)) == [0, 1, 2, 3]
    found = command(pair, "cluster", "status")
    assert found["primary"] == "b"
    wait_until(lambda: command(pair, "cluster", "status")["well"], "there are two copies")
