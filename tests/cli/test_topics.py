from __future__ import annotations

import pytest

from tests.cli.conftest import CommandLine


def test_a_topic_is_made_listed_shown_changed_and_deleted(cli: CommandLine, topic: str) -> None:
    made = cli("topic", "create", topic, "--queues", 3, "--durability", "fast",
               "--retention", "90m", "--drop-unread")  # fmt: skip
    assert made.out == ""
    assert made.err == f"created topic {topic}\n"

    (listed,) = [row for row in cli("topic", "list").rows if row[0] == topic]
    assert listed == [topic, "3", "plain", "fast", "90m", "0", "0", "0"]
    shown = cli("topic", "show", topic, "--json").json
    assert shown["retention_s"] == 5400
    assert shown["keep_until_consumed"] is False
    assert shown["queues"] == [{"queue": n, "first": 0, "next": 0} for n in range(3)]
    assert "plain" in cli("topic", "show", topic).out

    seven = ("--queues", 4, "--retention", "7d", "--keep-until-consumed")
    assert cli("topic", "set", topic, *seven).err == f"changed topic {topic}\n"
    assert cli("topic", "set", topic, *seven).err == f"topic {topic} has these settings already\n"
    shown = cli("topic", "show", topic, "--json").json
    assert (len(shown["queues"]), shown["retention_s"]) == (4, 7 * 86_400)
    assert (shown["durability"], shown["keep_until_consumed"]) == ("fast", True)

    cli("topic", "delete", topic, "--yes")
    assert topic not in cli("topic", "list").out


def test_a_topic_whose_messages_do_not_expire(cli: CommandLine, topic: str) -> None:
    def expires() -> object:
        return cli("topic", "show", topic, "--json").json["expires_s"]

    for given, seconds in (("10m", 600), ("0", 0), ("0s", 0)):
        cli("topic", "create", topic, "--expires", given)
        assert expires() == seconds
        cli("topic", "set", topic, "--expires", "5m")
        assert expires() == 300
        cli("topic", "set", topic, "--expires", given)
        assert expires() == seconds
        cli("topic", "delete", topic, "--yes")


def test_an_ordered_topic(cli: CommandLine, topic: str) -> None:
    cli("topic", "create", topic, "--ordered")
    assert cli("topic", "show", topic, "--json").json["ordered"] is True
    more = cli("topic", "set", topic, "--queues", 2, code=2).err
    assert f"ordered topic '{topic}' keeps its 1 queue" in more
    assert "create a new ordered topic with 2 queues" in more
    cli("topic", "create", f"{topic}-plain", "--queues", 3)
    fewer = cli("topic", "set", f"{topic}-plain", "--queues", 1, code=2).err
    assert f"topic '{topic}-plain' has 3 queues, and cannot have fewer" in fewer


def test_all_topics_as_json(cli: CommandLine, topic: str) -> None:
    cli("topic", "create", topic)
    cli("send", topic, "a", "b")
    (found,) = [one for one in cli("topic", "list", "--json").json if one["topic"] == topic]
    assert found["messages"] == 2
    assert found["ordered"] is False


def test_nothing_is_deleted_that_nobody_agreed_to(
    cli: CommandLine, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli("topic", "create", topic)
    cli("send", topic, "a")
    refused = cli("topic", "delete", topic, code=1)
    assert f"this deletes topic {topic} with 1 message;" in refused.err
    assert "add --yes" in refused.err
    cli("topic", "show", topic)
    cli("group", "create", topic, "billing")
    assert "with 1 message and 1 group;" in cli("topic", "delete", topic, code=1).err
    assert (
        "1 unread message and 0 open ones" in cli("group", "delete", topic, "billing", code=1).err
    )


def test_a_topic_that_is_there_already(cli: CommandLine, topic: str) -> None:
    cli("topic", "create", topic)
    assert topic in cli("topic", "create", topic, code=1).err


@pytest.mark.parametrize("command", ["show", "set", "delete"])
def test_a_wrong_name_gets_the_right_one_told(cli: CommandLine, topic: str, command: str) -> None:
    cli("topic", "create", f"{topic}-invoices")
    more = ["--queues", "2"] if command == "set" else []
    said = cli("topic", command, f"{topic}-invoice", *more, code=4).err
    assert f"there is no topic '{topic}-invoice'" in said
    assert f"did you mean {topic}-invoices?" in said
    assert "ternmq topic list" in cli("topic", command, "zzzz", *more, code=4).err


def test_set_without_anything_to_set(cli: CommandLine, topic: str) -> None:
    cli("topic", "create", topic)
    assert "name at least one option to change" in cli("topic", "set", topic, code=2).err


def test_strict_is_not_promised_without_a_replica(cli: CommandLine, topic: str) -> None:
    made = cli("topic", "create", topic, "--durability", "strict").err
    assert "sends to it are refused while only one copy counts" in made
    said = cli("send", topic, "x", code=1).err
    assert "there is only one copy now" in said
    assert "`ternmq topic set NAME --durability normal`" in said
    assert "replica" not in cli("topic", "create", f"{topic}-plain").err
