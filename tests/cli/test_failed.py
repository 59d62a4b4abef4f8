from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

import ternmq
import ternmq.sync
from ternmq.cli.groups.redrive import _report
from ternmq.cli.terminal.exits import Failed
from ternmq.client.admin.redriving import Redriven
from ternmq.testing import broker
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
    assert " ".join(rows[0][5:]) == r"bank\n\x1b[31mbusy"
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
    assert said.err == f"2 messages of {failed} are delivered to billing again now\n"
    out = cli("consume", failed, "-g", "billing", "--wait", "0", "--raw").out
    assert out == "message 3\nmessage 4\n"
    ended = cli("retry", "now", failed, "billing", 5, 7, "--json", code=4)
    assert ended.json == {"done": 1, "missing": [7]}
    assert "do not wait for a retry: 0/7" in ended.err
    cli("consume", failed, "-g", "billing", "--wait", "0")
    assert "0 messages" in cli("retry", "now", failed, "billing", "--all").err


def test_dead_letters(cli: CommandLine, failed: str, tmp_path: Path) -> None:
    rows = cli("deadletter", "list", failed, "billing").rows
    assert [row[0] for row in rows] == ["0/0", "0/1", "0/2"]
    assert rows[0][5:] == ["card", "expired"]
    shown = cli("deadletter", "show", failed, "billing", 1, "--json").json
    assert (shown["reason"], shown["message"]["body"]) == ("card expired", "message 1")
    assert "card expired" in cli("deadletter", "show", failed, "billing", 1).out
    cli("deadletter", "show", failed, "billing", 5, code=4)

    exported = cli("deadletter", "export", failed, "billing")
    assert [one["offset"] for one in exported.lines] == [0, 1, 2]
    file = tmp_path / "dead.ndjson"
    cli("deadletter", "export", failed, "billing", "-o", file)
    assert [json.loads(line) for line in file.read_text().splitlines()] == exported.lines
    assert [one.name for one in tmp_path.iterdir() if "dead" in one.name] == ["dead.ndjson"]
    assert cli("deadletter", "export", failed, "billing", "-o", "-").out == exported.out
    cli("send", failed, "--json-in", "--lines", file)
    assert cli("tail", failed, "-n", 3, "--raw").out == "message 0\nmessage 1\nmessage 2\n"

    for command, question in (
        ("delete", f"delete 3 dead letters of billing on {failed}?"),
        ("redrive", f"deliver 3 dead letters of {failed} to billing again?"),
    ):  # without a terminal, what would be done is shown
        ended = cli("deadletter", command, failed, "billing", "--all", code=1)
        assert ended.err.splitlines() == [
            "3 dead letters: 0/0, 0/1, 0/2",
            question,
            "ternmq: nothing was changed: add --yes to do it",
        ]
    assert "add --yes" in cli("deadletter", "delete", failed, "billing", "0-1", code=1).err
    cli("deadletter", "delete", failed, "billing", "0-1", "--yes")
    ended = cli("deadletter", "delete", failed, "billing", 1, 2, "--yes", "--json", code=4)
    assert ended.json == {"done": 1, "missing": [1]}
    cli("deadletter", "delete", failed, "billing", "--all", "--yes")
    empty = cli("deadletter", "list", failed, "billing")
    assert "no dead letters" in empty.err


def test_dead_letters_with_ids_are_sent_again_as_new_messages(
    cli: CommandLine, topic: str, client: ternmq.sync.Client, tmp_path: Path
) -> None:
    sent = client.send(topic, {"n": 1}, id="pay-1", key="k", headers={"h": "v"})
    cli("group", "create", topic, "billing")
    (got,) = client.pull(topic, group="billing", wait=5)
    got.reject("card declined")
    file = tmp_path / "dead.ndjson"
    cli("deadletter", "export", topic, "billing", "-o", file)
    assert json.loads(file.read_text())["message"]["application_id"] == "pay-1"
    cli("deadletter", "delete", topic, "billing", "--all", "--yes")

    said = cli("send", topic, "--json-in", "--lines", file)
    assert said.err == f"stored 1 message in {topic}\n"
    (again,) = client.pull(topic, group="billing", wait=5)
    assert (again.value, again.key, again.headers) == ({"n": 1}, "k", {"h": "v"})
    assert (again.offset, again.id == sent.id, again.application_id) == (1, False, "")
    again.ack()
    cli("send", topic, "--json-in", file.read_text().strip(), "--id", "pay-1-again")
    (named,) = client.pull(topic, group="billing", wait=5)
    assert named.application_id == "pay-1-again"
    named.ack()


def test_lines_that_had_been_stored_before_are_not_counted_as_stored(
    cli: CommandLine, topic: str, tmp_path: Path
) -> None:
    file = tmp_path / "lines"
    file.write_text('{"body": 1, "id": "a"}\n{"body": 2, "id": "b"}\n')
    assert cli("send", topic, "--json-in", "--lines", file).err.startswith("stored 2 messages")
    with file.open("a") as out:
        out.write('{"body": 3, "id": "c"}\n')
    said = cli("send", topic, "--json-in", "--lines", file).err
    assert said == (
        f"stored 1 message in {topic}; not stored again: 2 messages with an id that was stored "
        "before\n"
    )


def test_what_is_not_clear(cli: CommandLine, failed: str) -> None:
    for command in (["retry", "now"], ["deadletter", "delete"]):
        said = cli(*command, failed, "billing", code=2).err
        assert "give one of offsets, a selection (--since, --until, --attempts, --key, --id" in said
        said = cli(*command, failed, "billing", 1, "--all", code=2).err
        assert "give only one of offsets, a selection (" in said
        for wrong in ("x", "1-", "-", "3-1", "1.5", "1-99999999999", "9" * 30):
            cli(*command, failed, "billing", "--yes" if "delete" in command else "--json", "--",
                wrong, code=2)  # fmt: skip
        assert "did you mean billing?" in cli(*command, failed, "biling", "--all", code=4).err
        cli(*command, failed, "billing", 1, "--queue", 9, code=4)
    cli("topic", "set", failed, "--queues", 2)
    assert "2 queues" in cli("retry", "now", failed, "billing", 3, code=2).err
    cli("deadletter", "list", failed, "billing", "--queue", 1)
    cli("deadletter", "show", failed, "billing", "one", code=2)
    said = cli("deadletter", "export", failed, "billing", "-o", "/nowhere/at/all", code=2).err
    assert "/nowhere/at/all: No such file" in said


def test_an_export_is_on_the_disk_before_one_may_delete(
    cli: CommandLine, failed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`deadletter delete` says to export first: that file must not be lost to a power cut."""
    file = tmp_path / "dead.ndjson"
    synced: list[tuple[bool, int]] = []
    fsync = os.fsync

    def noted(descriptor: int) -> None:
        found = os.fstat(descriptor)
        folder = stat.S_ISDIR(found.st_mode)
        synced.append((folder, 0 if folder else found.st_size))
        assert file.exists() is folder, "the file has its name only when its bytes are durable"
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    cli("deadletter", "export", failed, "billing", "-o", file)
    assert synced == [(False, file.stat().st_size), (True, 0)]


def test_places_as_lists_print_them(cli: CommandLine, failed: str) -> None:
    """``QUEUE/OFFSET`` and ``TOPIC/QUEUE/OFFSET`` go wherever an offset goes."""
    cli("topic", "set", failed, "--queues", 2)
    for command, offset in (("deadletter", 1), ("retry", 4)):
        told = cli(command, "show", failed, "billing", offset, code=2).err
        assert "has 2 queues: name one with --queue" in told
        for place in (f"0/{offset}", f"{failed}/0/{offset}"):
            assert cli(command, "show", failed, "billing", place, "--json").json["queue"] == 0
        cli(command, "show", failed, "billing", f"1/{offset}", code=4)
        cli(command, "show", failed, "billing", f"9/{offset}", code=4)
        for place, said in (
            (f"other/0/{offset}", "is on topic 'other'"),
            (f"a/b/0/{offset}", "is not a place"),
            (f"x/{offset}", "is not a place"),
            ("0/1-2", "names several messages: name one"),
            ("0/one", "neither an offset"),
        ):
            assert said in cli(command, "show", failed, "billing", place, code=2).err
    wrong = cli("deadletter", "show", failed, "billing", "0/1", "--queue", 1, code=2)
    assert "is on queue 0, not 1" in wrong.err
    cli("retry", "now", failed, "billing", "0/3", f"{failed}/0/4-5")
    cli("deadletter", "redrive", failed, "billing", "0/0", "-y")
    cli("deadletter", "delete", failed, "billing", f"{failed}/0/1-2", "-y")
    assert cli("deadletter", "list", failed, "billing", "--json").lines == []


def test_what_is_redriven_is_said_in_one_way(cli: CommandLine, failed: str) -> None:
    redrive = ("deadletter", "redrive", failed, "billing")
    selection = "a selection (--since, --until, --attempts, --key, --id)"
    ways = f"of offsets, --reason, --fingerprint, {selection} and --all"
    assert f"give one {ways}" in cli(*redrive, "--dry-run", code=2).err
    for named in ((0, "--all"), (0, "--reason", "card"), ("--all", "--fingerprint", "x")):
        assert f"give only one {ways}" in cli(*redrive, *named, "--dry-run", code=2).err
    for option in ("--reason", "--fingerprint"):
        ended = cli(*redrive, option, "", "--yes", code=2)
        assert (
            f"{option} is empty, which would select all dead letters: use --all for that"
            in ended.err
        )
    assert len(cli("deadletter", "list", failed, "billing").rows) == 3


def test_places_that_have_none_are_named_whole(cli: CommandLine, failed: str) -> None:
    """Of a topic with several queues an offset alone says little; nor is nothing reported done."""
    cli("topic", "set", failed, "--queues", 2)
    ended = cli("deadletter", "redrive", failed, "billing", "1/9999", "-y", code=4)
    assert ended.err == "ternmq: these messages are not dead letters: 1/9999\n"
    ended = cli("deadletter", "delete", failed, "billing", "1/9999", "0/77", "-y", code=4)
    assert ended.err == "ternmq: these messages are not dead letters: 1/9999, 0/77\n"
    ended = cli("retry", "now", failed, "billing", "1/9999", code=4)
    assert ended.err == "ternmq: these messages do not wait for a retry: 1/9999\n"
    ended = cli("retry", "now", failed, "billing", "0/3", "1/9999", code=4)
    assert ended.err.splitlines() == [
        f"1 message of {failed} is delivered to billing again now",
        "ternmq: these messages do not wait for a retry: 1/9999",
    ]
    ended = cli("deadletter", "redrive", failed, "billing", "0/1", "-y")
    assert ended.err == f"1 dead letter of {failed} is delivered to billing again\n"


def test_messages_that_wait_are_deleted(cli: CommandLine, failed: str) -> None:
    assert "add --yes" in cli("retry", "delete", failed, "billing", "0/3", code=1).err
    said = cli("retry", "delete", failed, "billing", "0/3", "-y").err
    assert said == (
        f"1 message of {failed} is not delivered to billing again; other groups are not affected\n"
    )
    assert [row[0] for row in cli("retry", "list", failed, "billing").rows] == ["0/4", "0/5"]
    ended = cli("retry", "delete", failed, "billing", "0/3", 4, "-y", "--json", code=4)
    assert (ended.json, ended.err) == (
        {"done": 1, "missing": [3]}, "ternmq: these messages do not wait for a retry: 0/3\n",
    )  # fmt: skip
    cli("retry", "delete", failed, "billing", "--all", "-y")
    assert cli("retry", "list", failed, "billing").rows == []
    assert len(cli("deadletter", "list", failed, "billing").rows) == 3


def test_a_key_that_is_held_goes_on_when_its_message_is_deleted(
    cli: CommandLine, topic: str, client: ternmq.sync.Client
) -> None:
    client.admin.create_topic(topic, ordered=True, queues=1)
    held = ternmq.RetryPolicy(attempts=1, exhausted=ternmq.Exhausted.HOLD)
    client.admin.create_group(topic, "billing", retry=held)
    client.send(topic, "bad", ordering_key="a")
    client.send(topic, "next", ordering_key="a")
    (bad,) = client.pull(topic, group="billing", max_messages=1, wait=5)
    bad.retry(reason="no stock")
    (row,) = cli("retry", "list", topic, "billing").rows
    assert row == ["0/0", "1", "held", "-", "a", "no", "stock"]
    (told,) = cli("retry", "list", topic, "billing", "--json").lines
    assert told["message"]["ordering_key"] == "a"
    (head, _) = cli("retry", "list", topic, "billing").out.splitlines()
    assert head.split()[-2:] == ["ordering_key", "reason"]
    cli("retry", "delete", topic, "billing", "0/0", "-y")
    (after,) = client.pull(topic, group="billing", wait=5)
    assert after.value == "next"
    after.ack()


def test_a_delete_takes_nothing_of_the_other_kind(cli: CommandLine, failed: str) -> None:
    """What waits for a retry is no dead letter: deleting it would lose a message."""
    ended = cli("deadletter", "delete", failed, "billing", "0/3", "-y", code=4)
    assert ended.err == "ternmq: these messages are not dead letters: 0/3\n"
    ended = cli("deadletter", "delete", failed, "billing", "2-3", "-y", "--json", code=4)
    assert ended.json == {"done": 1, "missing": [3]}
    ended = cli("retry", "delete", failed, "billing", "0/1", "-y", code=4)
    assert ended.err == "ternmq: these messages do not wait for a retry: 0/1\n"
    assert [row[0] for row in cli("retry", "list", failed, "billing").rows] == ["0/3", "0/4", "0/5"]
    assert [row[0] for row in cli("deadletter", "list", failed, "billing").rows] == ["0/0", "0/1"]


def test_what_is_wrong_with_a_place_is_said_first(cli: CommandLine, failed: str) -> None:
    cli("topic", "set", failed, "--queues", 2)
    for place, why in (
        ("1/7-1/999", "a range names its queue once, such as 1/7-999"),
        ("abc", "'abc' is neither an offset, such as 7, nor a range"),
        ("1/abc", "'abc' is neither an offset, such as 7, nor a range"),
        ("100-99", "'100-99' is an empty range: write the lower offset first"),
        ("0-1000000", "'0-1000000' names more than a million offsets"),
        (2**63, f"'{2**63}' is above the highest possible offset"),
        (7, f"{failed} has 2 queues: name one with --queue"),
    ):
        assert why in cli("deadletter", "delete", failed, "billing", place, code=2).err


SELECTED = [("--attempts", 1), ("--since", "1h"), ("--key", "k")]
"""Each selects all failed messages of ``failed``."""


@pytest.mark.row("G12")
@pytest.mark.parametrize("way", SELECTED)
def test_lists_of_what_is_selected(cli: CommandLine, failed: str, way: tuple[str, object]) -> None:
    rows = cli("deadletter", "list", failed, "billing", *way).rows
    assert sorted(row[0] for row in rows) == ["0/0", "0/1", "0/2"]
    told = cli("retry", "list", failed, "billing", *way, "--newest-first", "--json").lines
    assert [(one["offset"], one["state"]) for one in told] == [
        (5, "waiting"),
        (4, "waiting"),
        (3, "waiting"),
    ]
    some = cli("deadletter", "list", failed, "billing", "--newest-first", "-n", 2)
    assert [row[0] for row in some.rows] == ["0/2", "0/1"]
    assert "showing the first 2; there are more" in some.err
    assert cli("deadletter", "list", failed, "billing", "--count", *way).out == "3 dead letters\n"
    counted = cli("retry", "list", failed, "billing", "--count", *way)
    assert counted.out == "3 messages waiting, 0 held\n"
    assert cli("retry", "list", failed, "billing", "--count", "--json").lines == [
        {"waiting": 3, "held": 0}
    ]
    assert cli("deadletter", "list", failed, "billing", "--count", "--json").lines == [{"dead": 3}]


@pytest.mark.row("G12")
def test_the_newest_of_more_than_a_thousand(
    cli: CommandLine, topic: str, client: ternmq.sync.Client
) -> None:
    """The broker finds no more than a thousand by time: the list says that there are more."""
    cli("topic", "create", topic)
    cli("group", "create", topic, "billing")
    client.send_many(topic, [b"%d" % n for n in range(1001)])
    for _ in range(1001):
        (got,) = client.pull(topic, group="billing", max_messages=1, wait=5)
        got.reject()
    some = cli("deadletter", "list", topic, "billing", "--newest-first", "-n", 1000)
    assert len(some.rows) == 1000
    assert "showing the first 1,000 of 1,001: leave out --newest-first to see more" in some.err
    some = cli("deadletter", "list", topic, "billing", "--newest-first", "-n", 999)
    assert "showing the first 999; there are more (--limit)" in some.err
    cli("deadletter", "delete", topic, "billing", 3, "--yes")
    every = cli("deadletter", "list", topic, "billing", "--newest-first", "-n", 1000)
    assert len(every.rows) == 1000
    assert "showing" not in every.err


@pytest.mark.parametrize("what", [["0-1"], ["--all"], ["--key", "k"], ["--reason", "card"]])
def test_a_move_to_another_topic_is_asked_as_such(
    cli: CommandLine, failed: str, what: list[str]
) -> None:
    count = "2" if what == ["0-1"] else "3"
    ended = cli("deadletter", "redrive", failed, "billing", *what, "--to", "other", code=1)
    asked = f"move {count} dead letters of billing on {failed} to other?"
    assert ended.err.splitlines()[-2:] == [
        asked,
        "ternmq: nothing was changed: add --yes to do it",
    ]


def test_a_move_to_what_is_no_name_is_not_asked(cli: CommandLine, failed: str) -> None:
    for way in (["--key", "k"], ["--all"], [0], ["--key", "k", "--dry-run"]):
        ended = cli("deadletter", "redrive", failed, "billing", *way, "--to", "{x}", code=2)
        assert "not a name: '{x}'" in ended.err
        assert "move" not in ended.err


def test_offsets_of_which_nothing_is_done(cli: CommandLine, failed: str) -> None:
    deleted = cli("deadletter", "delete", failed, "billing", "0-1", "--dry-run")
    assert f"2 dead letters of billing on {failed} would be deleted" in deleted.err
    missing = cli("deadletter", "delete", failed, "billing", "0-3", "--dry-run", code=4)
    assert "these messages are not dead letters" in missing.err
    for verb, would in (("now", "would be delivered to billing again now"), ("delete", "would be")):
        ended = cli("retry", verb, failed, "billing", 3, "--dry-run")
        assert f"1 message of {failed}" in ended.err
        assert would in ended.err
        assert (
            "do not wait for a retry"
            in cli("retry", verb, failed, "billing", 0, "--dry-run", code=4).err
        )
        told = cli("retry", verb, failed, "billing", 3, 0, "--dry-run", "--json", code=4)
        assert told.json == {"done": 0, "missing": [0]}
    assert len(cli("deadletter", "list", failed, "billing").rows) == 3
    assert [row[0] for row in cli("retry", "list", failed, "billing").rows][:1]


def test_a_selection_that_selects_none(cli: CommandLine, failed: str) -> None:
    none = cli("deadletter", "list", failed, "billing", "--attempts", 2)
    assert f"group billing has no such dead letters on {failed}" in none.out + none.err
    assert cli("retry", "list", failed, "billing", "--state", "held", "--json").lines == []
    assert cli("deadletter", "list", failed, "billing", "--until", "1h", "--json").lines == []
    assert cli("deadletter", "list", failed, "billing", "--id", "nobody", "--json").lines == []
    for command in ("redrive", "delete"):
        said = cli("deadletter", command, failed, "billing", "--attempts", 9)
        assert said.err.startswith("0 dead letters")
    assert cli("retry", "now", failed, "billing", "--attempts", 9).err.startswith("0 messages")


def test_wrong_selections(cli: CommandLine, failed: str) -> None:
    for command, wrong in (
        (("deadletter", "list"), ["--since", "1h", "--until", "2h"]),
        (("deadletter", "list"), ["--key", "a", "--id", "b"]),
        (("deadletter", "list"), ["--newest-first", "-n", 1001]),
        (("deadletter", "list"), ["--count", "--newest-first"]),
        (("deadletter", "list"), ["--count", "-n", 100]),
        (("retry", "list"), ["--count", "--newest-first", "--json"]),
        (("deadletter", "list"), ["--attempts", 0]),
        (("retry", "list"), ["--state", "dead"]),
        (("retry", "now"), [3, "--attempts", 1]),
        (("retry", "now"), ["--all", "--attempts", 1]),
        (("retry", "now"), [3, "--rate", 5]),
        (("retry", "now"), ["--dry-run"]),
        (("retry", "now"), ["--all", "--rate", 0]),
        (("deadletter", "delete"), [0, "--rate", 5]),
        (("deadletter", "redrive"), ["--all", "--key", "k"]),
        (("deadletter", "redrive"), ["--reason", "x", "--key", "k"]),
        (("deadletter", "redrive"), []),
    ):
        cli(*command, failed, "billing", *wrong, code=2)
    cli("deadletter", "list", failed, "nobody", "--count", code=4)
    cli("deadletter", "list", failed, "billing", "--count", "--queue", 7, code=4)


def test_what_is_selected_is_retried_and_deleted(cli: CommandLine, failed: str) -> None:
    cli("group", "skip", failed, "billing", "--offset", 10, "-y")
    dry = cli("retry", "now", failed, "billing", "--key", "k", "--dry-run")
    assert dry.err == f"3 messages of {failed} would be delivered to billing again now\n"
    dry = cli("deadletter", "delete", failed, "billing", "--key", "k", "--dry-run", "--json").json
    assert (dry["done"], len(dry["messages"])) == (0, 3)
    assert cli("deadletter", "list", failed, "billing", "--count").out == "3 dead letters\n"
    told = cli("retry", "now", failed, "billing", "--attempts", 1, "--rate", 1000, "--json").json
    assert told == {
        "done": 3,
        "messages": [{"queue": 0, "offset": offset, "outcome": "retried"} for offset in (3, 4, 5)],
    }
    out = cli("consume", failed, "-g", "billing", "--wait", "0", "--raw").out
    assert out == "message 3\nmessage 4\nmessage 5\n"
    refused = cli("deadletter", "delete", failed, "billing", "--since", "1h", code=1)
    assert f"delete 3 dead letters of billing on {failed}?" in refused.err
    assert (
        "--json does not prompt"
        in cli("deadletter", "delete", failed, "billing", "--since", "1h", "--json", code=1).err
    )
    said = cli("deadletter", "delete", failed, "billing", "--since", "1h", "-y")
    assert said.err == f"3 dead letters of billing on {failed} are deleted\n"
    assert cli("deadletter", "list", failed, "billing", "--count").out == "0 dead letters\n"


def test_dead_letters_are_moved_to_another_topic(cli: CommandLine, failed: str) -> None:
    other = f"{failed}.repair"
    cli("topic", "create", other)
    redrive = ("deadletter", "redrive", failed, "billing")
    dry = cli(*redrive, "--all", "--to", other, "--dry-run")
    assert dry.err == f"3 dead letters of {failed} of billing would be moved to {other}\n"
    refused = cli(*redrive, "--key", "k", "--to", other, code=1)
    assert f"move 3 dead letters of billing on {failed} to {other}?" in refused.err
    told = cli(*redrive, 1, 7, "--to", other, "-y", "--json", code=4)
    assert told.json["messages"] == [
        {
            "queue": 0,
            "offset": 1,
            "outcome": "redriven",
            "to": {"topic": other, "queue": 0, "offset": 0, "duplicate": False},
        },
        {"queue": 0, "offset": 7, "outcome": "no dead letter"},
    ]
    said = cli(*redrive, "--key", "k", "--to", other, "-y")
    assert said.err == f"2 dead letters of {failed} of billing are moved to {other}\n"
    assert cli("tail", other, "-n", 3, "--raw").out == "message 1\nmessage 0\nmessage 2\n"
    header = cli("tail", other, "-n", 3, "--json").lines[0]["headers"]
    assert header == {"ternmq-redriven": f"{failed}/billing/0/1"}
    assert cli("deadletter", "list", failed, "billing", "--count").out == "0 dead letters\n"


def test_what_cannot_be_moved_stays(cli: CommandLine, failed: str) -> None:
    ordered = f"{failed}.ordered"
    cli("topic", "create", ordered, "--ordered")
    said = cli("deadletter", "redrive", failed, "billing", "--all", "--to", failed, "-y", code=2)
    assert "is the topic of the dead letters" in said.err
    for way in (["--all"], [0, 1], ["--key", "k"]):
        redrive = ("deadletter", "redrive", failed, "billing", *way, "--to", ordered)
        for dry_run, stay in (["--dry-run"], "would stay"), (["-y"], "stay"):
            said = cli(*redrive, *dry_run, code=1)
            assert f"ternmq: these {stay} dead letters: 0/0, 0/1" in said.err
            assert "the dead letter has no ordering key: redrive to a topic that is not" in said.err
            assert "moved" not in said.err
    assert cli("deadletter", "list", failed, "billing", "--count").out == "3 dead letters\n"


@pytest.fixture
def keyed(cli: CommandLine, topic: str, client: ternmq.sync.Client) -> str:
    """An ordered topic with two dead letters, as it is usual, and a plain topic for repair."""
    cli("topic", "create", topic, "--ordered")
    cli("topic", "create", f"{topic}.repair")
    cli("group", "create", topic, "billing")
    for key in "ab":
        client.send(topic, f"message {key}", ordering_key=key)
    got: list[ternmq.sync.Delivery] = []
    while len(got) < 2:
        for one in client.pull(topic, group="billing", wait=5):
            one.reject("card expired")
            got.append(one)
    return topic


@pytest.mark.parametrize("way", [["--all"], [], ["--attempts", "1"], ["--reason", "card"]])
def test_dead_letters_of_an_ordered_topic_to_one_that_is_not(
    cli: CommandLine, keyed: str, client: ternmq.sync.Client, way: list[str]
) -> None:
    repair = f"{keyed}.repair"
    letters = list(client.deadletters.browse(keyed, "billing"))
    way = way or [f"{one.queue}/{one.offset}" for one in letters]
    redrive = ("deadletter", "redrive", keyed, "billing", *way, "--to", repair)
    for option, stay in ("--dry-run", "would stay"), ("-y", "stay"):
        said = cli(*redrive, option, code=1)
        assert f"ternmq: these {stay} dead letters: " in said.err
        assert said.err.endswith(
            f"topic {repair!r} is not ordered: the dead letter has an ordering key: `ternmq topic "
            f"set {repair} --ignore-ordering-keys` makes the topic accept and ignore it, or "
            "redrive to an ordered topic\n"
        )
        assert "moved" not in said.err
        told = cli(*redrive, option, "--json", code=1).json
        assert (told["done"], told["redriven"]) == (option == "-y", 0)
        assert {one["outcome"] for one in told["messages"]} == {"not sent"}
        assert all("is not ordered" in one["error"] for one in told["messages"])
    assert cli("deadletter", "list", keyed, "billing", "--count").out == "2 dead letters\n"

    cli("topic", "set", repair, "--ignore-ordering-keys")
    said = cli(*redrive, "--dry-run")
    assert said.err == f"2 dead letters of {keyed} of billing would be moved to {repair}\n"
    assert f" moved to {repair}" in cli(*redrive, "-y").err


def test_a_topic_that_does_not_exist_is_named_as_such(cli: CommandLine) -> None:
    with broker(settings={"create_topics": False}) as strict:
        with ternmq.sync.connect(strict.url) as client:
            client.admin.create_topic("payments")
            client.admin.create_topic("repair")
            client.admin.create_group("payments", "charging")
            client.send("payments", "one", key="k")
            client.pull("payments", group="charging", wait=5)[0].reject("no")
        redrive = ("deadletter", "redrive", "--url", strict.url)
        for way in (["--all"], [0], ["--key", "k"], ["--reason", "no"]):
            for option in (["--dry-run"], ["-y"], ["-y", "--json"], []):
                named = (*redrive, "payments", "charging", *way, *option)
                said = cli(*named, "--to", "nowhere", code=4)
                assert said.out == ""
                assert said.err.startswith(
                    "ternmq: there is no topic 'nowhere', or this app has no right on it: `ternmq "
                )
                said = cli(*named, "--to", "repairs", code=4)
                assert said.err.endswith("no topic 'repairs', or this app has no right on it; did "
                                         "you mean repair?\n")  # fmt: skip
        # What is wrong with the source is said of the source.
        said = cli(*redrive, "payment", "charging", "--all", "--to", "repair", code=4)
        assert "no topic 'payment'" in said.err
        assert "did you mean payments?" in said.err
        said = cli(*redrive, "payments", "charger", "--all", "--to", "repair", code=4)
        assert (
            "group 'charger' does not consume topic 'payments'; did you mean charging" in said.err
        )
        told = cli("deadletter", "list", "payments", "charging", "--count", "--url", strict.url)
        assert told.out == "1 dead letter\n"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ternmq.TopicNotOrdered("topic 'other' is not ordered"), 1),
        (ternmq.MessageNotFound("the content of orders/0/7 is not kept"), 1),
        (ternmq.Forbidden("no right"), 5),
        (ternmq.UnknownTopic("no topic 'other'"), 4),
        (ternmq.DiskFull("the disk is full"), 7),
        (OSError("not of this library"), 1),
    ],
)
def test_the_status_of_what_another_topic_did_not_take(error: Exception, code: int) -> None:
    told = [Redriven(0, 7, done=False, error=error)]
    with pytest.raises(Failed, match=r"^these stay dead letters: 0/7: ") as failure:
        _report("orders", "g", told, "other", dry_run=False, as_json=False)
    assert failure.value.code == code


def test_letters_that_were_gone_after_the_send_are_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    sent = ternmq.Receipt("other", 0, 3, True, False, 1, 2)
    told = [
        Redriven(0, 7, done=True, receipt=sent),
        Redriven(0, 8, done=True, receipt=sent, gone=True),
    ]
    _report("orders", "billing", told, "other", dry_run=False, as_json=False)
    said = capsys.readouterr().err
    assert "2 dead letters of orders of billing are moved to other" in said
    assert "were sent to other, but somebody redrove or deleted them meanwhile" in said
    assert "so billing may have received them, too: 0/8" in said
    _report("orders", "billing", told, "other", dry_run=False, as_json=True)
    messages = json.loads(capsys.readouterr().out)["messages"]
    assert [one.get("gone", False) for one in messages] == [False, True]
