"""Scheduled messages: sent, listed, cancelled from the command line."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import ternmq.sync
from ternmq.cli.topics import delay
from tests.cli.conftest import CommandLine

DAY = timedelta(days=1)


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


@pytest.mark.row("L0m")
def test_a_message_is_sent_with_a_delay(
    cli: CommandLine, topic: str, client: ternmq.sync.Client
) -> None:
    before = datetime.now(UTC)  # noqa: TID251
    sent = cli("send", topic, "later", "-k", "k", "--delay", "10m")
    assert sent.out.startswith(f"{topic} (scheduled, due at 20")
    (found,) = client.find(topic, key="k")
    assert found.due_at is not None
    assert before <= found.due_at - timedelta(minutes=10) <= datetime.now(UTC)  # noqa: TID251
    assert sent.out.rstrip().endswith(found.id)
    assert (found.state, found.value) == ("scheduled", "later")

    at = cli("send", topic, "at", "--at", "2099-01-31T14:30", "-q", code=2).err
    assert "--at is more than 731 days ahead, the longest delay" in at
    due = (before + 30 * DAY).replace(microsecond=0)
    told = cli("send", topic, "at", "--at", f"{due:%Y-%m-%dT%H:%M:%SZ}", "--json").lines
    assert (moment(told[0]["due_at"]), told[0]["offset"]) == (due, None)
    told = cli("send", topic, "level", "--delay-level", 18, "--json").lines
    assert timedelta(hours=1.9) < moment(told[0]["due_at"]) - before < timedelta(hours=2.1)
    assert cli("send", topic, "now", "--json").lines[0]["due_at"] is None


def test_what_is_due_already_is_delivered_at_once(cli: CommandLine, topic: str) -> None:
    for place, more in enumerate([("--delay", "0"), ("--at", "2020-01-31"), ("--at", "now")]):
        assert cli("send", topic, "x", *more).out.startswith(f"{topic}/0/{place}  ")


def test_lines_files_and_json_are_scheduled_too(
    cli: CommandLine, topic: str, client: ternmq.sync.Client, tmp_path: Path
) -> None:
    (tmp_path / "lines").write_text("a\nb\nc\n", encoding="utf-8")
    said = cli("send", topic, "--lines", tmp_path / "lines", "--delay", "1d").err
    assert said == f"stored 3 messages in {topic}, not due yet\n"
    (tmp_path / "one").write_text("a\n", encoding="utf-8")
    said = cli("send", topic, "--lines", tmp_path / "one", "--delay", "1d").err
    assert said == f"stored 1 message in {topic}, not due yet\n"
    cli("send", topic, "--json-in", json.dumps({"body": "x", "key": "k"}), "--delay", "1d")
    cli("send", topic, "-f", tmp_path / "one", "--delay", "1d")
    assert client.find(topic, key="k")[0].state == "scheduled"
    assert sum(one.messages for one in client.admin.scheduled(topic)) == 6
    assert list(client.read(topic)) == []
    again = [cli("send", topic, "x", "--id", "r-1", "--delay", "1d", "--json") for _ in range(2)]
    assert [one.lines[0]["duplicate"] for one in again] == [False, True]


@pytest.fixture
def noon(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Be in a time zone where it is about noon: midnight is past, whenever this runs."""
    monkeypatch.setenv("TZ", f"XXX{time.gmtime().tm_hour - 12:+d}")  # POSIX counts westwards
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("noon")
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--delay", "soon"], "a duration such as 10m"),
        (["--delay", "10"], "a duration such as 10m"),
        (["--delay", "-10m"], "a duration such as 10m"),
        (["--delay", "732d"], "--delay is more than 731 days ahead, the longest delay"),
        (["--delay", "99999999999d"], "longer than any"),
        (["--at", "10m"], "'10m' is a duration: write --delay 10m"),
        (["--at", "tomorrow"], "is not a time such as 14:30, 2026-01-31"),
        (["--at", "00:00:00"], "is past today: give the date too"),
        (["--at", "9999-12-31"], "--at is more than 731 days ahead"),
        (["--delay-level", "0"], "1<=x<=18"),
        (["--delay-level", "19"], "1<=x<=18"),
        (["--delay", "1m", "--at", "now"], "give only one of --delay, --at and --delay-level"),
        (["--delay", "1m", "--delay-level", "3"], "give only one of --delay"),
        (["--at", "2030-01-31", "--delay-level", "3"], "give only one of --delay"),
    ],
)
def test_wrong_times_are_named_and_nothing_is_sent(
    cli: CommandLine, topic: str, client: ternmq.sync.Client, options: list[str], said: str
) -> None:
    ended = cli("send", topic, "x", *options, code=2)
    assert said in ended.err
    assert (ended.err.count("\n"), ended.out) == (1, "")
    assert topic not in [one.spec.name for one in client.admin.topics()]


@pytest.fixture
def filled(client: ternmq.sync.Client, topic: str) -> dict[str, datetime]:
    """Schedule five messages in another order than they are due; return when each is due."""
    base = datetime(*time.gmtime()[:3], tzinfo=UTC)
    due = {
        "d": base + 9 * DAY + timedelta(minutes=30),
        "b": base + 8 * DAY + timedelta(minutes=10),
        "e": base + 10 * DAY,
        "a": base + 8 * DAY,
        "c": base + 8 * DAY + timedelta(minutes=50),
    }
    for name, at in due.items():
        client.send(topic, name, id=f"id-{name}", key="k", deliver_at=at)
    return dict(sorted(due.items()))


def iso(at: datetime) -> str:
    return f"{at:%Y-%m-%dT%H:%M:%SZ}"


def test_hours_are_counted(cli: CommandLine, topic: str, filled: dict[str, datetime]) -> None:
    listed = cli("delay", "list", topic)
    hours = [f"{filled[one]:%Y-%m-%dT%H:00Z}" for one in "ade"]
    assert listed.out.splitlines()[0].split() == ["hour", "messages"]
    assert listed.rows == [[hours[0], "3"], [hours[1], "1"], [hours[2], "1"]]
    told = cli("delay", "list", topic, "--json").lines
    assert [(one["hour"][:16] + "Z", one["messages"]) for one in told] == [
        (hours[0], 3), (hours[1], 1), (hours[2], 1)
    ]  # fmt: skip
    few = cli("delay", "list", topic, "-n", 1)
    assert few.rows == [[hours[0], "3"]]
    assert few.err == "showing the first 1 of 3 hours with 5 messages in all (--limit)\n"


def test_messages_are_listed_in_the_order_in_which_they_are_due(
    cli: CommandLine, topic: str, filled: dict[str, datetime], monkeypatch: pytest.MonkeyPatch
) -> None:
    def listed(*options: object) -> str:
        told = cli("delay", "list", topic, *options, "--json").lines
        return "".join(one["application_id"].removeprefix("id-") for one in told)

    assert listed("--since", "now") == listed("--until", "30d") == "abcde"
    assert listed("--since", iso(filled["b"])) == "bcde"
    assert listed("--until", iso(filled["d"])) == "abc"
    assert listed("--since", iso(filled["b"]), "--until", iso(filled["c"])) == "b"
    for count in range(1, 6):
        assert listed("--since", "now", "-n", count) == "abcde"[:count]
        assert listed("--since", iso(filled["b"]), "-n", count) == "bcde"[:count]
    few = cli("delay", "list", topic, "--since", "now", "-n", 2)
    assert few.err == "showing the first 2; there are more (--limit)\n"
    head, first, second = [line.split() for line in few.out.splitlines()]
    assert head == ["due", "id", "application_id", "key", "ordering_key"]
    assert (first[0][:16], first[2:]) == (f"{filled['a']:%Y-%m-%dT%H:%M}", ["id-a", "k", "-"])
    assert second[2] == "id-b"
    (found,) = cli("delay", "list", topic, "--since", iso(filled["e"]), "--json").lines
    assert moment(found["due_at"]) == filled["e"]
    assert set(found) == {
        "id", "due_at", "stored_at", "application_id", "key", "ordering_key", "queue",
    }  # fmt: skip
    assert cli("message", "get", topic, found["id"], "--raw").out == "e"

    # Too many to sort: the order in which they were sent.
    monkeypatch.setattr(delay, "SORTED", 2)
    many = cli("delay", "list", topic, "--since", "now", "-n", 2)
    assert [row[2] for row in many.rows] == ["id-b", "id-a"]
    said = f"more than 2 messages are due before {filled['d']:%Y-%m-%dT%H:00}:00.000Z: showing the"
    assert many.err.startswith(said)


def test_nothing_is_scheduled(cli: CommandLine, topic: str) -> None:
    cli("topic", "create", topic)
    nothing = cli("delay", "list", topic)
    assert (nothing.out.split(), nothing.err) == (
        ["hour", "messages"], f"no message of {topic} is scheduled\n"
    )  # fmt: skip
    nothing = cli("delay", "list", topic, "--until", "1d")
    assert nothing.err == f"no message of {topic} is due in this time\n"
    assert cli("delay", "list", topic, "--json").out == ""
    assert cli("delay", "list", topic, "--until", "1d", "--json").out == ""


def test_what_cannot_be_listed(cli: CommandLine, topic: str) -> None:
    assert "there is no topic" in cli("delay", "list", topic, code=4).err
    assert "there is no topic" in cli("delay", "list", topic, "--until", "1d", code=4).err
    cli("topic", "create", topic)
    said = cli("delay", "list", topic, "--since", "2h", "--until", "1h", code=2).err
    assert "must be before --until" in said
    assert "10m means 10 minutes from now, so --until takes the longer one" in said
    assert "10m (from now)" in cli("delay", "list", topic, "--since", "soon", code=2).err
    cli("delay", "list", topic, "-n", 0, code=2)
    assert "Missing argument 'TOPIC'" in cli("delay", "list", code=2).err


def test_scheduled_messages_are_cancelled(
    cli: CommandLine, topic: str, filled: dict[str, datetime], client: ternmq.sync.Client
) -> None:
    first = client.find(topic, key="k", limit=10)
    ids = {one.row.application_id: one.id for one in first}
    said = cli("delay", "cancel", topic, "id-a", ids["id-b"])
    assert (said.out, said.err) == ("", f"cancelled 2 messages of {topic}\n")
    assert cli("delay", "cancel", topic, "id-a").err == f"cancelled 1 message of {topic}\n"
    told = cli("delay", "cancel", topic, "id-a", "id-c", "id-c", "--json").json
    assert told == {"cancelled": ["id-a", "id-c"], "delivered": [], "unknown": []}
    left = cli("delay", "list", topic, "--since", "now", "--json").lines
    assert [one["application_id"] for one in left] == ["id-d", "id-e"]
    assert client.get(topic, "id-a").state == "cancelled"


def test_what_cannot_be_cancelled(
    cli: CommandLine, topic: str, filled: dict[str, datetime], client: ternmq.sync.Client
) -> None:
    client.send(topic, "now", id="sent")
    once = cli("delay", "cancel", topic, "sent", code=1).err
    assert "the message is in queue 0 at offset 0" in once
    assert "a message can only be cancelled before it is due" in once
    unknown = cli("delay", "cancel", topic, "nothing", code=4).err
    assert "has no message with id 'nothing'" in unknown
    for said in (once, unknown):
        assert said.count("\n") == 1

    several = cli("delay", "cancel", topic, "id-a", "nothing", "sent", "id-b", code=1).err
    lines = several.splitlines()
    assert lines[0] == f"cancelled 2 messages of {topic}"
    assert lines[1].startswith("nothing: ")
    assert lines[2].startswith("sent: the message is in queue 0 at offset 0")
    assert lines[3:] == ["ternmq: 2 of 4 messages were not cancelled"]
    ended = cli("delay", "cancel", topic, "nothing", "id-c", code=4).err
    assert ended.splitlines()[-1] == "ternmq: 1 of 2 messages was not cancelled"
    told = cli("delay", "cancel", topic, "nothing", "sent", "id-d", "--json", code=1)
    assert told.json == {"cancelled": ["id-d"], "delivered": ["sent"], "unknown": ["nothing"]}
    assert "Missing argument 'ID...'" in cli("delay", "cancel", topic, code=2).err
    assert "there is no topic" in cli("delay", "cancel", f"{topic}-x", "a", "b", code=4).err


def test_very_many_are_cancelled(cli: CommandLine, topic: str, client: ternmq.sync.Client) -> None:
    client.send_many(
        topic, [ternmq.Message("x", id=f"m-{n}", deliver_after=DAY) for n in range(250)]
    )
    said = cli("delay", "cancel", topic, *[f"m-{n}" for n in range(250)]).err
    assert said == f"cancelled 250 messages of {topic}\n"
    assert client.admin.scheduled(topic) == []


def test_topics_say_how_many_messages_are_scheduled(
    cli: CommandLine, topic: str, filled: dict[str, datetime]
) -> None:
    head = cli("topic", "list").out.splitlines()[0].split()
    (row,) = [row for row in cli("topic", "list").rows if row[0] == topic]
    assert dict(zip(head, row, strict=True))["scheduled"] == "5"
    assert "scheduled   5 messages not due yet" in cli("topic", "show", topic).out
    assert cli("topic", "show", topic, "--json").json["scheduled"] == 5
    cli("delay", "cancel", topic, "id-a")
    assert cli("topic", "show", topic, "--json").json["scheduled"] == 4
    said = cli("topic", "delete", topic, "--yes").err
    assert said == f"deleted topic {topic} with 0 messages and 4 scheduled messages\n"
