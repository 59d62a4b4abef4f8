from __future__ import annotations

import json
from pathlib import Path

import pytest

import ternmq
import ternmq.sync
from tests.cli.conftest import CommandLine

HOUR_US = 3_600_000_000


@pytest.fixture
def failed(cli: CommandLine, topic: str, client: ternmq.sync.Client) -> str:
    """Ten messages: three are dead letters, three wait, one of them failed in a strange way."""
    cli("topic", "create", topic)
    cli("send", topic, *[f"message {n}" for n in range(10)], "-k", "k")
    cli("group", "create", topic, "billing")
    cli("group", "set", topic, "billing", "--retry-first", "1h", "--retry-cap", "1h")
    got = client.pull(topic, group="billing", max_messages=6)
    for n, one in enumerate(got):
        if n < 3:
            one.reject("card expired")
        else:
            one.retry(reason="bank\n\x1b[31mbusy")
    return topic


def test_what_waits(cli: CommandLine, failed: str) -> None:
    rows = cli("retry", "list", failed, "billing").rows
    assert [row[0] for row in rows] == ["0/3", "0/4", "0/5"]
    assert rows[0][1] == "1"
    assert " ".join(rows[0][4:]) == r"bank\n\x1b[31mbusy"
    told = cli("retry", "list", failed, "billing", "--json", "-n", 2)
    assert [one["offset"] for one in told.lines] == [3, 4]
    assert "--limit" in told.err
    shown = cli("retry", "show", failed, "billing", 3, "--json").json
    assert shown["message"]["body"] == "message 3"
    assert [one["outcome"] for one in shown["failures"]] == ["retry"]
    assert "message 3" in cli("retry", "show", failed, "billing", 3).out
    cli("retry", "show", failed, "billing", 0, code=4)


def test_waiting_messages_come_at_once(cli: CommandLine, failed: str) -> None:
    cli("group", "skip", failed, "billing", "--offset", 10, "-y")
    said = cli("retry", "now", failed, "billing", "3-4")
    assert said.err == f"2 messages of {failed} come again to billing now\n"
    out = cli("consume", failed, "-g", "billing", "--wait", "0", "--raw").out
    assert out == "message 3\nmessage 4\n"
    ended = cli("retry", "now", failed, "billing", 5, 7, "--json", code=4)
    assert ended.json == {"done": 1, "missing": [7]}
    assert "did not wait: 7" in ended.err
    cli("consume", failed, "-g", "billing", "--wait", "0")
    assert "0 messages" in cli("retry", "now", failed, "billing", "--all").err


def test_dead_letters(cli: CommandLine, failed: str, tmp_path: Path) -> None:
    rows = cli("deadletter", "list", failed, "billing").rows
    assert [row[0] for row in rows] == ["0/0", "0/1", "0/2"]
    assert rows[0][4:] == ["card", "expired"]
    shown = cli("deadletter", "show", failed, "billing", 1, "--json").json
    assert (shown["reason"], shown["message"]["body"]) == ("card expired", "message 1")
    assert "card expired" in cli("deadletter", "show", failed, "billing", 1).out
    cli("deadletter", "show", failed, "billing", 5, code=4)

    exported = cli("deadletter", "export", failed, "billing")
    assert [one["offset"] for one in exported.lines] == [0, 1, 2]
    file = tmp_path / "dead.ndjson"
    cli("deadletter", "export", failed, "billing", "-o", file)
    assert [json.loads(line) for line in file.read_text().splitlines()] == exported.lines
    cli("send", failed, "--json-in", "--lines", file)
    assert cli("tail", failed, "-n", 3, "--raw").out == "message 0\nmessage 1\nmessage 2\n"

    assert "say --yes" in cli("deadletter", "delete", failed, "billing", "0-1", code=1).err
    cli("deadletter", "delete", failed, "billing", "0-1", "--yes")
    ended = cli("deadletter", "delete", failed, "billing", 1, 2, "--yes", "--json", code=4)
    assert ended.json == {"done": 1, "missing": [1]}
    cli("deadletter", "delete", failed, "billing", "--all", "--yes")
    empty = cli("deadletter", "list", failed, "billing")
    assert "no dead letters" in empty.err


def test_what_is_not_clear(cli: CommandLine, failed: str) -> None:
    for command in (["retry", "now"], ["deadletter", "delete"]):
        assert "offsets or --all" in cli(*command, failed, "billing", code=2).err
        assert "offsets or --all" in cli(*command, failed, "billing", 1, "--all", code=2).err
        for wrong in ("x", "1-", "-", "3-1", "1.5", "1-99999999999", "9" * 30):
            cli(*command, failed, "billing", "--yes" if "delete" in command else "--json", "--",
                wrong, code=2)  # fmt: skip
        assert "did you mean billing?" in cli(*command, failed, "biling", "--all", code=4).err
        cli(*command, failed, "billing", 1, "--queue", 9, code=4)
    cli("topic", "set", failed, "--queues", 2)
    assert "2 queues" in cli("retry", "now", failed, "billing", 3, code=2).err
    cli("deadletter", "list", failed, "billing", "--queue", 1)
    cli("deadletter", "show", failed, "billing", "one", code=2)
    cli("deadletter", "export", failed, "billing", "-o", "/nowhere/at/all", code=2)
