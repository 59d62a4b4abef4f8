"""Messages that a group gets again: ``group replay`` and ``deadletter redrive``."""

from __future__ import annotations

import time
from typing import Any

import pytest

import ternmq.sync
from ternmq.client.admin.replay import Replayed
from ternmq.client.client import Client
from tests.cli.conftest import CommandLine


@pytest.fixture
def consumed(cli: CommandLine, topic: str) -> str:
    """Ten messages, of which group billing has consumed eight."""
    cli("topic", "create", topic)
    cli("send", topic, *[f"message {n}" for n in range(10)])
    cli("consume", topic, "-g", "billing", "-n", 8, "--wait", "0")
    return topic


@pytest.fixture
def dead(cli: CommandLine, topic: str, client: ternmq.sync.Client) -> str:
    """Six dead letters, for two reasons."""
    cli("topic", "create", topic)
    cli("send", topic, *[f"message {n}" for n in range(6)])
    for one in client.pull(topic, group="billing", max_messages=6):
        one.reject("card expired" if one.offset % 2 else "bank is closed")
    return topic


def bodies(cli: CommandLine, topic: str) -> list[str]:
    """Consume what is there; return the numbers of the messages."""
    out = cli("consume", topic, "-g", "billing", "--wait", "0", "--raw").out
    return [line.removeprefix("message ") for line in out.splitlines()]


def test_replay_of_offsets(cli: CommandLine, consumed: str) -> None:
    dry = cli("group", "replay", consumed, "billing", "--offset", "2-4", "--offset", 9, "--dry-run")
    assert [line.split()[-1] for line in dry.out.splitlines()] == ["3", "1", "0", "0"]
    cli("group", "replay", consumed, "billing", "--offset", "2-4", "--json", code=1)
    told = cli("group", "replay", consumed, "billing", "--offset", "2-4", "--yes", "--json").json
    assert told == {
        "done": True, "again": 3, "unread": 0, "expired": 0, "filtered": 0, "missing": [],
    }  # fmt: skip
    assert sorted(bodies(cli, consumed)) == ["2", "3", "4", "8", "9"]
    assert bodies(cli, consumed) == []


def test_what_comes_again_says_so(cli: CommandLine, consumed: str) -> None:
    """After a replay, and after a reset."""
    consume = ("consume", consumed, "-g", "billing", "--wait", "0", "--json")
    first = {one["offset"]: one["deliveries"] for one in cli(*consume).lines}
    assert set(first.values()) == {1}
    cli("group", "replay", consumed, "billing", "--offset", "2-4", "-y")
    assert {one["offset"]: one["deliveries"] for one in cli(*consume).lines} == {2: 2, 3: 2, 4: 2}
    cli("group", "reset", consumed, "billing", "--to", "earliest", "-y")
    cli("send", consumed, "new")
    again = {one["offset"]: one["deliveries"] for one in cli(*consume).lines}
    assert again == dict.fromkeys(range(10), 2) | {10: 1}


def test_replay_of_times_and_ids(
    cli: CommandLine, consumed: str, client: ternmq.sync.Client
) -> None:
    bodies(cli, consumed)
    said = cli("group", "replay", consumed, "billing", "--since", "1h", "-y")
    assert said.err.endswith(f"10 messages of {consumed} are delivered to billing again\n")
    assert bodies(cli, consumed) == [str(n) for n in range(10)]
    assert cli("group", "replay", consumed, "billing", "--until", "1h", "-y").err.startswith("0 ")
    ahead = cli("group", "replay", consumed, "billing", "--until", "2999-01-01", "--dry-run").out
    assert ahead.startswith("stored              until 2")
    assert "2999" not in ahead
    span = ("--since", "1m", "--until", "2m")
    turned = cli("group", "replay", consumed, "billing", *span, "-y", code=2)
    assert "must be before --until" in turned.err
    assert "10m means 10 minutes ago, so --since takes the longer one" in turned.err
    id_ = client.get(consumed, offset=5).id
    ended = cli("group", "replay", consumed, "billing", "--id", id_, "--id", "7:7", "-y", code=4)
    assert [line.split()[-1] for line in ended.out.splitlines()] == ["1", "0", "0", "0", "1"]
    assert ended.out.splitlines()[-1].startswith("not found")
    assert ended.err.endswith(
        f"ternmq: {consumed} has no message with the id 7:7: the id may be mistyped, or its "
        f"message is no longer kept\n"
    )
    assert bodies(cli, consumed) == ["5"]


def test_replay_of_offsets_that_there_are_not(cli: CommandLine, consumed: str) -> None:
    """As of an unknown id: the others are delivered, and the exit status says that some are not."""
    replay = ("group", "replay", consumed, "billing")
    said = f"ternmq: {consumed} has no message at offset"
    for more in ((), ("--json",)):
        dry = cli(*replay, "--offset", 99, "--dry-run", *more, code=4)
        assert dry.err.endswith(f"{said} 0/99: the next offset of queue 0 is 10\n")
        assert "0/99" in dry.out or not more
    ended = cli(*replay, "--offset", 7, "--offset", "10-11", "-y", code=4)
    assert [line.split()[-1] for line in ended.out.splitlines()] == ["1", "0", "0", "0", "2"]
    assert ended.err.endswith(f"{said}s 0/10, 0/11: the next offset of queue 0 is 10\n")
    assert sorted(bodies(cli, consumed)) == ["7", "8", "9"]


def test_replay_of_places(cli: CommandLine, topic: str) -> None:
    """As lists print them, of several queues, as `deadletter` and `retry` take them."""
    cli("topic", "create", topic, "--queues", 2)
    for queue in (0, 1):
        cli("send", topic, *[f"message {queue}{n}" for n in range(3)], "--queue", queue)
    assert len(bodies(cli, topic)) == 6
    replay = ("group", "replay", topic, "billing")
    named = ("--offset", "0/1-2", "--offset", "1/0", "--offset", f"{topic}/1/2")
    told = cli(*replay, *named, "--yes", "--json").json
    assert (told["done"], told["again"], told["missing"]) == (True, 4, [])
    assert sorted(bodies(cli, topic)) == ["01", "02", "10", "12"]
    unclear = cli(*replay, "--offset", 1, "-y", code=2).err
    assert f"{topic} has 2 queues: name one with --queue, or in the place, such as 1/1" in unclear
    other = cli(*replay, "--offset", "0/1", "--queue", 1, "-y", code=2).err
    assert "'0/1' is on queue 0, not 1" in other
    assert "has no queue 2: it has 2" in cli(*replay, "--offset", "2/1", "-y", code=4).err


def test_the_preview_of_a_replay_and_the_replay_agree(cli: CommandLine, consumed: str) -> None:
    """Also if there is nothing to do, and though messages are stored and consumed in between."""
    replay = ("group", "replay", consumed, "billing")
    unread = cli(*replay, "--offset", "8-9", "--dry-run", "--json").json
    assert (unread["again"], unread["unread"]) == (0, 2)
    assert cli(*replay, "--offset", "8-9", "--yes", "--json").json == unread | {"done": True}
    bodies(cli, consumed)
    shown = cli(*replay, "--since", "1h", "--dry-run", "--json").json
    assert shown["again"] == 10
    cli("send", consumed, "message 10")
    assert bodies(cli, consumed) == ["10"]
    span = ("--since", shown["since"], "--until", shown["until"])
    assert cli(*replay, *span, "--yes", "--json").json == shown | {"done": True}
    assert bodies(cli, consumed) == [str(n) for n in range(10)]


def test_replay_of_a_message_by_an_id_of_its_own(cli: CommandLine, topic: str) -> None:
    """By the id that `message get` and `message trace` take as well."""
    cli("topic", "create", topic)
    cli("send", topic, "message 7", "--id", "order-7-paid")
    assert bodies(cli, topic) == ["7"]
    replay = ("group", "replay", topic, "billing", "--id", "order-7-paid")
    assert cli(*replay, "--dry-run", "--json").json["again"] == 1
    ended = cli(*replay, "--id", "order-8-paid", "--yes", code=4)
    assert "has no message with the id order-8-paid: the id may be mistyped" in ended.err
    assert bodies(cli, topic) == ["7"]
    for more in ((), ("--json",)):  # a dry run ends as the run would
        dry = cli(*replay, "--id", "order-8-paid", "--dry-run", *more, code=4)
        assert "has no message with the id order-8-paid: the id may be mistyped" in dry.err
        assert "order-8-paid" in dry.out or not more


def test_a_replay_that_differs_from_its_preview_says_so(
    cli: CommandLine, consumed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    replay = Client.replay

    async def consumed_in_between(self: Client, *given: Any, **named: Any) -> Replayed:
        found = await replay(self, *given, **named)
        if named.get("dry_run"):
            await self.pull(consumed, group="billing", max_messages=2, wait=0)
        return found

    monkeypatch.setattr(Client, "replay", consumed_in_between)
    said = cli("group", "replay", consumed, "billing", "--since", "1h", "--yes").err
    assert "10 messages of" in said
    assert said.endswith(
        "again; the preview counted 8: meanwhile the group received others of these messages, or "
        "some were removed\n"
    )


def test_what_a_replay_asks_for(cli: CommandLine, consumed: str) -> None:
    for wrong in (
        [], ["--offset", 1, "--id", "1:1"], ["--id", "1:1", "--queue", 0], ["--offset", "x"],
    ):  # fmt: skip
        cli("group", "replay", consumed, "billing", *wrong, code=2)
    ways = "one of --offset, --id, and a time (--since, --until or both)"
    assert f"give {ways}" in cli("group", "replay", consumed, "billing", code=2).err
    both = ("--offset", "0-5", "--since", "1h")
    assert f"give only {ways}" in cli("group", "replay", consumed, "billing", *both, code=2).err
    cli("group", "replay", consumed, "billing", "--offset", 1, "--queue", 7, code=4)
    cli("group", "replay", consumed, "nobody", "--offset", 1, code=4)


def test_redrive_of_some_by_reason_and_of_all(cli: CommandLine, dead: str) -> None:
    dry = cli("deadletter", "redrive", dead, "billing", "--all", "--dry-run")
    assert dry.err == f"6 dead letters of {dead} would be delivered to billing again\n"
    assert bodies(cli, dead) == []
    told = cli("deadletter", "redrive", dead, "billing", 0, 7, "--yes", "--json", code=4)
    assert told.json["messages"] == [
        {"queue": 0, "offset": 0, "outcome": "redriven"},
        {"queue": 0, "offset": 7, "outcome": "no dead letter"},
    ]
    assert "not dead letters: 0/7" in told.err
    assert bodies(cli, dead) == ["0"]
    said = cli("deadletter", "redrive", dead, "billing", "--reason", "expired", "-y")
    assert said.err == f"3 dead letters of {dead} are delivered to billing again\n"
    assert bodies(cli, dead) == ["1", "3", "5"]
    assert cli("deadletter", "redrive", dead, "billing", "--all", "-y").err.startswith("2 dead")
    assert bodies(cli, dead) == ["2", "4"]
    assert cli("deadletter", "redrive", dead, "billing", "--all", "-y").err.startswith("0 dead")
    for wrong in (
        [], ["--all", "--reason", "x"], [1, "--reason", "x"], [1, "--rate", 0],
        ["--all", "-y", "--rate", "inf"], ["--all", "-y", "--rate", "nan"],
        ["--fingerprint", "x", "--reason", "x"], [1, "--fingerprint", "x"],
    ):  # fmt: skip
        cli("deadletter", "redrive", dead, "billing", *wrong, code=2)


def test_redrive_of_what_is_no_dead_letter_does_not_ask(cli: CommandLine, dead: str) -> None:
    redrive = ("deadletter", "redrive", dead, "billing")
    said = cli(*redrive, 7, code=4).err
    assert "these messages are not dead letters: 0/7" in said
    assert "--yes" not in said
    told = cli(*redrive, 7, "--json", code=4)
    assert told.json == {
        "done": True,
        "redriven": 0,
        "messages": [{"queue": 0, "offset": 7, "outcome": "no dead letter"}],
    }
    for option in ([], ["--json"]):
        assert "add --yes" in cli(*redrive, 0, 7, *option, code=1).err
    assert bodies(cli, dead) == []


@pytest.mark.row("R13")
def test_redrive_by_fingerprint(cli: CommandLine, dead: str) -> None:
    pytest.importorskip("deltalake", reason="needs the extra spark")
    from ternmq.pipeline.deadletters.deadletters import fingerprint

    lying = cli("deadletter", "list", dead, "billing", "--json").lines
    reasons = [one["failures"][-1]["reason"] for one in lying]
    wanted = fingerprint(reasons[0], None)
    same = [one["offset"] for one, reason in zip(lying, reasons, strict=True)
            if fingerprint(reason, None) == wanted]  # fmt: skip
    assert 0 < len(same) < len(lying)
    told = cli("deadletter", "redrive", dead, "billing", "--fingerprint", wanted.id, "-y", "--json")
    assert [one["offset"] for one in told.json["messages"]] == same
    none = cli("deadletter", "redrive", dead, "billing", "--fingerprint", wanted.id, "-y")
    assert none.err.startswith("0 dead letters")


def test_redrive_at_a_rate(cli: CommandLine, dead: str) -> None:
    began = time.monotonic()
    cli("deadletter", "redrive", dead, "billing", "--all", "--rate", 10, "-y")
    assert time.monotonic() - began >= 0.39  # two at once, every fifth of a second two more
    assert len(bodies(cli, dead)) == 6
