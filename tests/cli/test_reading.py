from __future__ import annotations

import json

import pytest

import ternmq.sync
from tests.black_box.process import wait_until
from tests.cli.conftest import CommandLine, Processes


@pytest.fixture
def filled(cli: CommandLine, topic: str) -> str:
    cli("topic", "create", topic, "--queues", 2)
    for n in range(12):
        cli("send", topic, f"message {n}", "--queue", n % 2, "-k", f"key-{n}")
    return topic


def test_tail_shows_the_newest_of_all_queues_in_the_order_they_came(
    cli: CommandLine, filled: str
) -> None:
    assert cli("tail", filled, "-n", 3, "--raw").out == "message 9\nmessage 10\nmessage 11\n"
    assert len(cli("tail", filled).out.splitlines()) == 10
    assert len(cli("tail", filled, "-n", 100).out.splitlines()) == 12
    assert cli("tail", filled, "-n", 0).out == ""
    assert cli("tail", filled, "-n", 2, "--queue", 1, "--raw").out == "message 9\nmessage 11\n"
    line = cli("tail", filled, "-n", 1).out
    assert line.split("  ", 1)[1] == f"{filled}/1/5  key=key-11  message 11\n"
    told = cli("tail", filled, "-n", 1, "--json").lines
    assert (told[0]["queue"], told[0]["offset"], told[0]["body"]) == (1, 5, "message 11")


def test_tail_since(cli: CommandLine, filled: str) -> None:
    assert len(cli("tail", filled, "--since", "1h").out.splitlines()) == 12
    assert cli("tail", filled, "--since", "now").out == ""
    later = json.loads(cli("tail", filled, "-n", 1, "--json").out)["stored_at"]
    # Milliseconds are printed, microseconds are kept.
    assert "message 11" in cli("tail", filled, "--since", later, "--raw").out
    assert "14:30" in cli("tail", filled, "--since", "yesterday", code=2).err
    both = cli("tail", filled, "--since", "1h", "-n", 3, code=2)
    assert "give only one of -n and --since" in both.err


def test_tail_acks_nothing(cli: CommandLine, filled: str) -> None:
    cli("group", "create", filled, "billing")
    cli("tail", filled, "-n", 100)
    assert cli("group", "lag", filled).rows[0][2] == "12"


@pytest.mark.parametrize("queue", [[], ["--queue", "1"]])
def test_tail_follows(
    processes: Processes, cli: CommandLine, filled: str, queue: list[str]
) -> None:
    process = processes.start("tail", filled, "-f", "-n", 1, "--raw", *queue)
    assert process.stdout is not None
    assert process.stdout.readline() == b"message 11\n"
    for n in range(3):
        cli("send", filled, f"new {n}", "--queue", 1 if queue else n % 2)
        assert process.stdout.readline() == f"new {n}\n".encode()
    process.terminate()
    assert process.communicate(timeout=30)[1] == b""
    assert process.returncode == 143


def test_control_characters_reach_nobody(cli: CommandLine, topic: str) -> None:
    cli("send", topic, "a\x1b[31mb\nc\td\x00", "-k", "k\x07 x", "-H", "h=\x9b1m")
    out = cli("tail", topic).out
    assert out.count("\n") == 1
    assert r'key="k\\x07 x"  h:\x9b1m  a\x1b[31mb\nc\td\x00' in out
    assert all(sign.isprintable() for sign in out.rstrip("\n"))
    cli("send", topic, "--json-in", '{"body_base64": "/wD+"}')
    assert cli("tail", topic, "-n", 1).out.endswith("\\xff\\x00\\xfe\n")


def test_consume_acks_what_it_printed(cli: CommandLine, filled: str) -> None:
    first = cli("consume", filled, "-g", "billing", "-n", 5, "--raw")
    assert first.err == (
        f"group billing is new on {filled}: it starts at earliest, the oldest message kept\n"
    )
    rest = cli("consume", filled, "-g", "billing", "--wait", "0", "--raw")
    assert rest.err == ""
    assert sorted((first.out + rest.out).splitlines()) == sorted(f"message {n}" for n in range(12))
    assert cli("group", "lag", filled).rows[0][2:6] == ["0"] * 4


def test_consume_says_where_a_new_group_begins(cli: CommandLine, filled: str) -> None:
    said = cli("consume", filled, "-g", "late", "--start", "latest", "--wait", "0")
    assert "starts at latest" in said.err
    assert said.out == ""
    assert "earliest" in cli("consume", filled, "-g", "late", "--start", "earliest", "--wait", "0",
                             code=1).err  # fmt: skip


def test_consume_without_ack_gives_back_uncounted(cli: CommandLine, filled: str) -> None:
    for _ in range(2):
        seen = cli("consume", filled, "-g", "look", "--no-ack", "-n", 7, "--json")
        assert len(seen.lines) == 7
        assert {one["attempt"] for one in seen.lines} == {1}
        assert "7 messages back" in seen.err
    seen = cli("consume", filled, "-g", "look", "--no-ack", "-n", 1, "--json")
    assert "giving 1 message back to look" in seen.err
    lag = cli("group", "lag", filled, "--json").lines[0]
    assert lag["leased"] == 0
    assert len(cli("consume", filled, "-g", "look", "--wait", "0").out.splitlines()) == 12


def test_consume_filters_and_waits(
    processes: Processes, topic: str, client: ternmq.sync.Client
) -> None:
    client.admin.create_topic(topic)
    client.send(topic, b"other", tag="new")
    process = processes.start("consume", topic, "-g", "g", "--tags", "paid", "-n", 1, "--json")
    wait_until(lambda: bool(client.admin.groups(topic)), "a group that waits")
    client.send(topic, b"late", tag="paid")
    out, _ = process.communicate(timeout=30)
    assert process.returncode == 0
    assert (json.loads(out)["body"], json.loads(out)["group"]) == ("late", "g")


def test_one_message_by_id_or_place(cli: CommandLine, filled: str) -> None:
    sent = cli("send", filled, '{"a": 1}', "-k", "k", "--id", "mine", "--json").lines[0]
    ways = [
        [filled, sent["id"]],
        [filled, "mine"],
        [f"{filled}/{sent['queue']}/{sent['offset']}"],
        [filled, "--queue", sent["queue"], "--offset", sent["offset"]],
    ]
    found = [cli("message", "get", *way, "--json").json for way in ways]
    assert all(one == found[0] for one in found)
    assert (found[0]["id"], found[0]["body"]) == (sent["id"], {"a": 1})
    assert cli("message", "get", *ways[0], "--raw").out == '{"a": 1}'
    shown = cli("message", "get", *ways[0]).out
    assert "application id  mine" in shown
    assert shown.endswith('\n\n{"a": 1}\n')


def test_messages_that_are_not_there(cli: CommandLine, filled: str) -> None:
    cli("message", "get", filled, "0123456789abcdef:1", code=4)
    cli("message", "get", filled, "nobody", code=4)
    cli("message", "get", f"{filled}/0/999", code=4)
    cli("message", "get", f"{filled}/7/0", code=4)
    assert "did you mean" in cli("message", "get", f"{filled}s/0/0", code=4).err
    assert "TOPIC/QUEUE/OFFSET" in cli("message", "get", f"{filled}/x/0", code=2).err
    assert "twice" in cli("message", "get", f"{filled}/0/0", "--offset", 1, code=2).err
    alone = cli("message", "get", filled, code=2).err
    assert f"{filled} is taken as the topic: give an id or a place as well" in alone
    assert "only one of" in cli("message", "get", filled, "x", "--offset", 1, code=2).err


def test_finding_by_key_and_time(cli: CommandLine, filled: str) -> None:
    cli("send", filled, "again", "-k", "key-3")
    found = cli("message", "find", filled, "--key", "key-3", "--json").lines
    assert [one["body"] for one in found] == ["again", "message 3"]
    assert len(cli("message", "find", filled, "-k", "key-3", "-n", 1).out.splitlines()) == 1
    turned = cli("message", "find", filled, "--since", "1m", "--until", "2m", code=2)
    assert "is the start and must be before --until (20" in turned.err
    assert "10m means 10 minutes ago, so --since takes the longer one" in turned.err
    assert "message find TOPIC --since" in cli("tail", filled, "--until", "1h", code=2).err
    none = cli("message", "find", filled, "--key", "key-3", "--until", "1h", code=4)
    assert (none.out, none.err) == ("", f"ternmq: no such message is kept in {filled}\n")
    assert len(cli("message", "find", filled, "--since", "1h").out.splitlines()) == 13
    assert len(cli("message", "find", filled, "--until", "now").out.splitlines()) == 13
    assert cli("message", "find", filled, "--since", "now", "--json", code=4).out == ""
    assert "--key" in cli("message", "find", filled, code=2).err


def test_an_offset_of_a_topic_with_several_queues_is_not_clear(
    cli: CommandLine, filled: str
) -> None:
    assert "2 queues: name one" in cli("message", "get", filled, "--offset", 0, code=2).err
    assert cli("message", "get", filled, "--offset", 0, "--queue", 1, "--raw").out == "message 1"
    assert "no topic" in cli("message", "get", f"{filled}-none", "--offset", 0, code=4).err
