"""``ternmq message trace``: what became of a message."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("deltalake", reason="needs the extra spark")

import ternmq
import ternmq.sync
from ternmq.cli.reach import archived
from ternmq.cli.topics.message_trace import _NOW, trace
from tests.black_box.process import wait_until
from tests.cli.conftest import CommandLine

TRACE = ("message", "trace")


@pytest.fixture
def tables(tmp_path: Path, cli: CommandLine) -> Path:
    return tmp_path / "tables"


@pytest.fixture
def ids(client: ternmq.sync.Client, topic: str) -> dict[int, str]:
    """Send ten, of which a group has handled three; the fourth has failed."""
    client.admin.create_topic(topic)
    client.admin.create_group(topic, "billing", start="earliest")
    for n in range(10):
        client.send(topic, b"%d" % n, key=f"{topic}-k{n}")
    for one in client.pull(topic, group="billing", max_messages=4):
        if one.offset < 3:
            one.ack()
        else:
            one.reject("no such customer")
    for one in client.pull(topic, group="billing", max_messages=1):
        one.retry(delay=3600, reason="later")
    return {one.offset: one.id for one in client.read(topic)}


def of(told: Any) -> dict[str, Any]:
    ((group),) = told[0]["groups"]
    assert group["group"] == "billing"
    found: dict[str, Any] = group
    return found


def test_the_help_explains_every_state() -> None:
    explained = " ".join((trace.help or "").split())
    for state in (*_NOW.values(), "held", "dead", "waits behind offset N of its ordering key"):
        assert f"`{state}`:" in explained


def test_what_the_broker_says(cli: CommandLine, topic: str, ids: dict[int, str]) -> None:
    assert of(cli(*TRACE, ids[0], "--json").json)["now"] == "done or skipped"
    assert of(cli(*TRACE, ids[3], "--json").json)["now"] == "dead: no such customer"
    assert of(cli(*TRACE, ids[4], "--json").json)["now"] == "waits for a retry: later"
    assert of(cli(*TRACE, ids[9], "--json").json)["now"] == "not delivered yet"
    by_key = cli(*TRACE, "--key", f"{topic}-k3", "--json").json
    assert [(one["id"], one["offset"], one["kept"]) for one in by_key] == [(ids[3], 3, True)]
    assert "no such customer" in cli(*TRACE, ids[3], "--topic", topic).out
    failed = of(by_key)
    assert (failed["deliveries"], failed["attempts"]) == (1, 1)
    (failure,) = failed["failures"]
    assert (failure["attempt"], failure["outcome"]) == (1, "dead")
    assert failed["state_time"] == failure["time"]
    *_, columns, row, _, names, line = [one.split() for one in cli(*TRACE, ids[3]).out.splitlines()]
    assert columns == ["group", "since", "deliveries", "attempts", "now"]
    assert (row[0], row[2:]) == ("billing", ["1", "1", "dead:", "no", "such", "customer"])
    assert names == ["failed_in", "time", "attempt", "outcome", "cause", "reason"]
    assert (line[0], line[2:]) == (
        "billing", ["1", "dead", "rejected", "no", "such", "customer"]
    )  # fmt: skip
    assert cli(*TRACE, ids[9]).out.splitlines()[-2].split() == ["group", "now"]
    assert cli(*TRACE, f"{topic}/0/3", "--json").json[0]["id"] == ids[3]
    cli(*TRACE, f"{topic}/0/99", code=4)
    cli(*TRACE, f"{topic}/7/3", code=4)


def test_an_id_of_ones_own_is_shown(cli: CommandLine, topic: str) -> None:
    cli("topic", "create", topic)
    cli("send", topic, "x", "--id", f"mine-{topic}")
    cli("send", topic, "y")
    (found,) = cli(*TRACE, f"mine-{topic}", "--json").json
    assert found["application_id"] == f"mine-{topic}"
    said = cli(*TRACE, f"mine-{topic}").out
    assert said.splitlines()[1].split(maxsplit=2) == ["application", "id", f"mine-{topic}"]
    assert "application id" not in cli(*TRACE, f"{topic}/0/1").out


def test_an_id_of_ones_own_that_reads_like_a_place(
    cli: CommandLine, client: ternmq.sync.Client, topic: str
) -> None:
    for place in (f"{topic}/7/3", f"{topic}/{2**70}/3", f"{topic}/0/{2**70}", "nowhere/0/0"):
        sent = client.send(topic, b"x", id=place)
        assert [one["id"] for one in cli(*TRACE, place, "--json").json] == [sent.id]


def test_what_a_group_does_not_get_is_not_called_settled(
    cli: CommandLine, topic: str, ids: dict[int, str]
) -> None:
    """The broker keeps only that a message is over for a group: not whether anybody handled it."""
    cli("deadletter", "delete", topic, "billing", "--all", "--yes")
    cli("group", "create", topic, "latecomer", "--start", "latest")
    told = cli(*TRACE, ids[3], "--json").json[0]["groups"]
    assert [(one["group"], one["now"]) for one in told] == [
        ("billing", "done or skipped"), ("latecomer", "done or skipped"),
    ]  # fmt: skip
    said = cli(*TRACE, ids[3]).err
    assert said.startswith(
        "done or skipped: the group does not receive it any more. It was acked, "
    )
    assert "or stored before the group's start; the broker does not record which" in said


def test_what_nobody_holds_is_not_called_handed_out(
    cli: CommandLine, client: ternmq.sync.Client, topic: str
) -> None:
    client.admin.create_topic(topic, ordered=True)
    client.admin.create_group(topic, "billing", start="earliest")
    ids = [client.send(topic, b"x", ordering_key="alice").id for _ in range(3)]
    held = client.pull(topic, group="billing", max_messages=1)
    client.pull(topic, group="billing", max_messages=5, wait=0)  # passes the others
    assert of(cli(*TRACE, ids[0], "--json").json)["now"] == "leased"
    behind = "waits behind offset 0 of its ordering key"
    assert of(cli(*TRACE, ids[2], "--json").json)["now"] == behind
    held.release()
    assert of(cli(*TRACE, ids[0], "--json").json)["now"] == "waits for a consumer: given back"
    assert of(cli(*TRACE, ids[1], "--json").json)["now"] == behind
    for one in client.pull(topic, group="billing", max_messages=1):
        one.ack()
    assert of(cli(*TRACE, ids[1], "--json").json)["now"] == "waits for a consumer"


def test_a_retry_that_is_due_waits_for_a_consumer(
    cli: CommandLine, client: ternmq.sync.Client, topic: str
) -> None:
    client.admin.create_topic(topic)
    sent = client.send(topic, b"x")
    client.pull(topic, group="billing")[0].retry(delay=0.05, reason="later")
    wait_until(
        lambda: of(cli(*TRACE, sent.id, "--json").json)["now"].startswith("waits for a consumer"),
        "the retry is due",
    )
    now = of(cli(*TRACE, sent.id, "--json").json)["now"]
    due = r"waits for a consumer, its retry has been due since \d{4}-\d\d-\d\dT[\d:.]+Z: later"
    assert re.fullmatch(due, now)


def test_what_failed_before_is_known_while_it_is_handed_out_again(
    cli: CommandLine, client: ternmq.sync.Client, topic: str, ids: dict[int, str]
) -> None:
    (told,) = cli("retry", "list", topic, "billing", "--json").lines
    assert told["offset"] == 4
    cli("retry", "now", topic, "billing", 4)
    again = client.pull(topic, group="billing", max_messages=1)
    found = of(cli(*TRACE, ids[4], "--json").json)
    assert (found["now"], found["attempts"], found["deliveries"]) == ("leased", 1, 2)
    told = [(one["cause"], one["reason"]) for one in found["failures"]]
    assert told == [("consumer", "later"), ("operator", "")]
    again.ack()
    found = of(cli(*TRACE, ids[4], "--json").json)
    assert (found["now"], found["failures"]) == ("done or skipped", [])


@pytest.mark.row("R7")
def test_going_on_in_the_table(
    cli: CommandLine,
    client: ternmq.sync.Client,
    tables: Path,
    topic: str,
    ids: dict[int, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(archived.TABLES, str(tables))
    cli("pipeline", "run", "--once", "--engine", "local", "--jobs", "archive,trace")
    told = of(cli(*TRACE, ids[0], "--json").json)
    assert (told["state"], told["deliveries"], told["now"]) == ("done", 1, "done or skipped")
    client.admin.delete_topic(topic)
    (life,) = cli(*TRACE, ids[3], "--json").json
    assert (life["kept"], life["topic"], life["offset"]) == (False, topic, 3)
    (group,) = life["groups"]
    assert (group["state"], group["now"]) == ("dead", None)
    assert [one["reason"] for one in group["failures"]] == ["no such customer"]
    for placed in (cli(*TRACE, f"{topic}/0/3", "--json"),
                   cli(*TRACE, f"{topic}/0/3", "--topic", topic, "--json")):  # fmt: skip
        assert placed.json == [life]
    cli(*TRACE, f"{topic}/0/99", code=4)
    cli(*TRACE, f"{topic}/0/{2**63}", code=4)
    (by_key,) = cli(*TRACE, "-k", f"{topic}-k3", "--json").json
    assert by_key["id"] == ids[3]
    text = cli(*TRACE, ids[3]).out
    assert text.splitlines()[-2].split()[:3] == ["failed_in", "time", "attempt"]
    assert text.splitlines()[-1].split()[2:4] == ["1", "dead"]
    assert "no such customer" in text


def test_what_nobody_has(cli: CommandLine, tables: Path, topic: str, ids: dict[int, str]) -> None:
    said = cli(*TRACE, "00f3a1c2d4e5b697:1f", code=4).err
    assert "no message 00f3a1c2d4e5b697:1f" in said
    assert "--tables DIR finds what the pipeline has archived" in said
    assert str(tables) in cli(*TRACE, "-k", "none", "--tables", tables, code=4).err
    assert "give one of an id or place, and --key" in cli(*TRACE, code=2).err


def test_a_topic_that_is_not_there_is_named(
    cli: CommandLine, tables: Path, topic: str, ids: dict[int, str]
) -> None:
    for of in (["1:1"], ["-k", "none"], ["nope/0/1"]):
        said = cli(*TRACE, *of, "--topic", "nope", code=4).err
        assert said.startswith("ternmq: there is no topic 'nope', or this app has no right on it: ")
    assert "has no queue 7" in cli(*TRACE, f"{topic}/7/0", "--topic", topic, code=4).err
    # An id may look like a place, and the tables keep messages of deleted topics.
    for of in (["nope/0/1"], ["nope/0/1", "--topic", "nope", "--tables", str(tables)]):
        said = cli(*TRACE, *of, code=4).err
        assert said.startswith("ternmq: no message nope/0/1 is kept ")
        assert "(no topic 'nope')" in said
    assert cli(*TRACE, ids[0], "--topic", topic).out


def test_a_held_message_and_what_stands_behind_it(
    cli: CommandLine, client: ternmq.sync.Client, topic: str
) -> None:
    client.admin.create_topic(topic, ordered=True)
    cli("group", "create", topic, "billing")
    cli("group", "set", topic, "billing", "--retry-attempts", 1, "--exhausted", "hold")
    ids = [client.send(topic, b"x", ordering_key="alice").id for _ in range(2)]
    client.pull(topic, group="billing", max_messages=1).retry(reason="no stock")
    client.pull(topic, group="billing", max_messages=5, wait=0)  # passes the other
    assert of(cli(*TRACE, ids[0], "--json").json)["now"] == "held: no stock"
    behind = "waits behind offset 0 of its ordering key"
    assert of(cli(*TRACE, ids[1], "--json").json)["now"] == behind


def test_what_the_filter_excludes_is_said_to_be_excluded(
    cli: CommandLine, client: ternmq.sync.Client, topic: str
) -> None:
    client.admin.create_topic(topic)
    cli("group", "create", topic, "billing", "--tags", "paid")
    ids = [client.send(topic, b"x", tag=tag).id for tag in ("new", "paid", "paid")]
    held = client.pull(topic, group="billing", max_messages=1)
    said = [of(cli(*TRACE, one, "--json").json)["now"] for one in ids]
    excluded = "not for this group: its filter excludes it"
    assert said == [excluded, "leased", "not delivered yet"]
    late = client.send(topic, b"x", tag="new").id  # the group has not come as far
    assert of(cli(*TRACE, late, "--json").json)["now"] == excluded
    assert cli(*TRACE, late).err == ""
    held.ack()
    cli("group", "set", topic, "billing", "--filter", "n IN (1, 2) AND $tag = 'paid'")
    for number, now in (("2", "not delivered yet"), ("3", excluded)):
        id_ = client.send(topic, b"x", tag="paid", headers={"n": number}).id
        assert of(cli(*TRACE, id_, "--json").json)["now"] == now


def test_the_transactions_that_sent_and_settled_it(
    cli: CommandLine, client: ternmq.sync.Client, topic: str, tables: Path
) -> None:
    sent, group = f"{topic}-sent", f"{topic}-pay"
    client.checker(group)(lambda tx: ternmq.Decision.UNKNOWN)
    client.send(topic, b"x")
    (delivery,) = client.pull(topic, group="billing", wait=10)
    with client.transaction(group) as tx:
        tx.send(sent, b"y")
        tx.ack(delivery)
    cli("pipeline", "run", "--tables", tables, "--once", "--engine", "local", "--jobs", "trace")
    with_tables = (*TRACE, "--tables", tables)
    said = cli(*with_tables, f"{topic}/0/0", "--json").json
    assert (said[0]["transaction"], of(said)["settled_by"]) == (None, tx.id)
    assert tx.id in cli(*with_tables, f"{topic}/0/0").out
    said = cli(*with_tables, f"{sent}/0/0", "--json").json
    assert said[0]["transaction"] == tx.id
    assert f"sent in transaction  {tx.id}" in cli(*with_tables, f"{sent}/0/0").out
