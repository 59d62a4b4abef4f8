"""Levels of topics and priorities of messages on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

import ternmq.sync
from tests.cli.conftest import CommandLine


def test_a_topic_with_levels_is_made_listed_and_shown(cli: CommandLine, topic: str) -> None:
    cli("topic", "create", topic, "--levels", 3, "--queues", 2)
    (listed,) = [row for row in cli("topic", "list").rows if row[0] == topic]
    assert listed[:4] == [topic, "2", "3_levels", "normal"]
    shown = cli("topic", "show", topic, "--json").json
    assert (shown["levels"], len(shown["queues"])) == (3, 6)
    cli("send", topic, "x", "--priority", 1)
    text = cli("topic", "show", topic).out
    assert "3 levels" in text
    rows = [line.split() for line in text.splitlines()]
    assert ["queue", "level", "first", "next", "messages"] in rows
    stored = [row for row in rows if row[:1] and row[0].isdecimal()]
    assert [row[:2] for row in stored] == [[f"{at}", f"{at % 3}"] for at in range(6)]
    assert sum(int(row[4]) for row in stored if row[1] == "1") == 1
    cli("topic", "set", topic, "--queues", 3)
    assert len(cli("topic", "show", topic, "--json").json["queues"]) == 9


@pytest.mark.parametrize("levels", [0, 9, -1, "x"])
def test_levels_are_one_to_eight(cli: CommandLine, topic: str, levels: object) -> None:
    assert "--levels" in cli("topic", "create", topic, "--levels", levels, code=2).err
    assert topic not in cli("topic", "list").out


def test_what_cannot_have_levels(cli: CommandLine, topic: str) -> None:
    refused = cli("topic", "create", topic, "--levels", 2, "--ordered", code=2).err
    assert "an ordered topic has no levels" in refused
    refused = cli("topic", "create", topic, "--levels", 8, "--queues", 513, code=2).err
    assert "queues times levels must be at most 4096" in refused
    cli("topic", "create", topic, "--levels", 2)
    refused = cli("topic", "set", topic, "--levels", 3, code=2).err
    assert "the levels of a topic cannot be changed" in refused


def test_send_with_a_priority(cli: CommandLine, topic: str, client: ternmq.sync.Client) -> None:
    cli("topic", "create", topic, "--levels", 3)
    cli("send", topic, "low")
    cli("send", topic, "high", "--priority", 2)
    cli("send", topic, "a", "b", "--priority", 1)
    cli("send", topic, "later", "--priority", 2, "--delay", "1h")
    found = [(one.body, one.priority) for one in client.read(topic)]
    assert sorted(found) == [(b"a", 1), (b"b", 1), (b"high", 2), (b"low", 0)]
    pulled = cli("consume", topic, "-g", "g", "-n", 2, "--json").lines
    assert [(one["body"], one["priority"]) for one in pulled] == [("high", 2), ("a", 1)]


def test_json_lines_have_a_priority(
    cli: CommandLine, topic: str, client: ternmq.sync.Client
) -> None:
    cli("topic", "create", topic, "--levels", 3)
    told = cli("send", topic, '{"body": "x", "priority": 2}', "--json-in", "--json").lines
    assert told[0]["queue"] == 2
    (line,) = cli("tail", topic, "--json").lines
    assert line["priority"] == 2
    shown = cli("message", "get", topic, told[0]["id"])
    assert "priority" in shown.out
    cli("send", topic, '{"body": "y"}', "--json-in", "--priority", 1)
    assert sorted(one.priority for one in client.read(topic)) == [1, 2]
    refused = cli("send", topic, '{"body": "z", "priority": "2"}', "--json-in", code=2).err
    assert "has a priority that is not a whole number" in refused


def test_the_option_replaces_the_priority_of_a_line(
    cli: CommandLine, topic: str, client: ternmq.sync.Client, tmp_path: Path
) -> None:
    """So dead letters of a topic with levels can be sent to a topic without."""
    cli("topic", "create", topic, "--levels", 3)
    cli("topic", "create", f"{topic}-plain")
    cli("send", topic, "x", "--priority", 2)
    cli("group", "create", topic, "g")
    (got,) = client.pull(topic, group="g", wait=5)
    got.reject()
    file = tmp_path / "dead.ndjson"
    cli("deadletter", "export", topic, "g", "-o", file)
    refused = cli("send", f"{topic}-plain", "--json-in", "--lines", file, code=2).err
    assert "has no levels" in refused
    cli("send", f"{topic}-plain", "--json-in", "--lines", file, "--priority", 0)
    assert [(one.body, one.priority) for one in client.read(f"{topic}-plain")] == [(b"x", 0)]
    cli("send", topic, "--json-in", "--lines", file, "--priority", 1)
    assert sorted(one.priority for one in client.read(topic)) == [1, 2]
    wrong = cli(
        "send", topic, '{"body": "z", "priority": "2"}', "--json-in", "--priority", 1, code=2
    )
    assert "has a priority that is not a whole number" in wrong.err


def test_a_priority_that_a_topic_does_not_have(cli: CommandLine, topic: str) -> None:
    cli("topic", "create", topic)
    refused = cli("send", topic, "x", "--priority", 1, code=2).err
    assert f"topic '{topic}' has no levels" in refused
    cli("topic", "create", f"{topic}-levels", "--levels", 2)
    refused = cli("send", f"{topic}-levels", "x", "--priority", 2, code=2).err
    assert "has 2 levels: priority is 0 to 1, not 2" in refused
    refused = cli("send", f"{topic}-levels", "x", "--priority", 8, code=2).err
    assert "--priority" in refused
    assert cli("topic", "show", topic, "--json").json["messages"] == 0
