from __future__ import annotations

import asyncio
import contextlib
import json
import re
import shlex
from typing import Any, cast

import msgspec
import pytest

import ternmq
import ternmq.sync
from ternmq.cli.groups.group_lag import Rates, by_backlog, speed_of
from ternmq.cli.topics.consume import _Pulls
from tests.black_box.process import BrokerProcess, wait_until
from tests.cli.conftest import CommandLine, Processes


@pytest.fixture
def filled(cli: CommandLine, topic: str) -> str:
    cli("topic", "create", topic)
    cli("send", topic, *[f"message {n}" for n in range(10)])
    return topic


def test_a_group_is_made_listed_shown_changed_and_deleted(cli: CommandLine, filled: str) -> None:
    made = cli("group", "create", filled, "billing", "--tags", "paid || new")
    assert made.err == f"created group billing on {filled}, starting at earliest\n"
    assert "consumes" in cli("group", "create", filled, "billing", code=1).err

    (row,) = cli("group", "list", filled).rows
    assert row == [filled, "billing", "shared", "10", "0", "0", "0", "running", "paid", "||", "new"]

    cli("group", "set", filled, "billing", "--tags", "", "--lease", "45s", "--window", 50,
        "--retry-first", "2s", "--retry-factor", 3, "--retry-cap", "1h", "--retry-jitter", 0.5,
        "--retry-attempts", 4)  # fmt: skip
    shown = cli("group", "show", filled, "billing", "--json").json
    assert (shown["tags"], shown["lease_s"], shown["window"]) == ("", 45, 50)
    assert shown["retry"] == {
        "enabled": True, "first_s": 2, "factor": 3, "cap_s": 3600, "jitter": 0.5, "attempts": 4,
        "exhausted": "dead-letter", "expires_s": 0,
    }  # fmt: skip
    cli("group", "set", filled, "billing", "--no-retry")
    assert cli("group", "show", filled, "billing", "--json").json["retry"]["enabled"] is False
    assert "retry    off" in cli("group", "show", filled, "billing").out
    both = cli("group", "set", filled, "billing", "--no-retry", "--retry-attempts", 3, code=2)
    assert "--retry-attempts and --no-retry contradict each other" in both.err
    cli("group", "set", filled, "billing", "--no-retry", "--exhausted", "dead-letter")
    said = cli("group", "set", filled, "billing", "--retry-attempts", 3).err
    assert said.startswith(f"changed group billing on {filled}; retry is off: ")
    said = cli("group", "set", filled, "billing", "--retry").err
    assert said == f"changed group billing on {filled}\n"
    said = cli("group", "set", filled, "billing", "--retry").err
    assert said == f"group billing on {filled} has these settings already\n"
    said = cli("group", "set", filled, "billing", "--exhausted", "hold").err
    assert "group billing has mode shared: its messages become dead letters" in said
    shown = cli("group", "show", filled, "billing", "--json").json
    assert shown["retry"]["exhausted"] == "dead-letter", "that is what counts"

    assert "add --yes" in cli("group", "delete", filled, "billing", code=1).err
    cli("group", "delete", filled, "billing", "--yes")
    assert cli("group", "list", filled, "--json").json == []


def test_a_group_that_locks_queues(cli: CommandLine, filled: str) -> None:
    cli("group", "create", filled, "sums", "--mode", "queue_lock")
    assert cli("group", "list", filled, "--json").json[0]["mode"] == "queue_lock"
    assert cli("group", "show", filled, "sums", "--json").json["mode"] == "queue_lock"
    assert "queue_lock" in cli("group", "show", filled, "sums").out
    said = cli("group", "set", filled, "sums", "--exhausted", "hold").err
    assert said == f"changed group sums on {filled}\n"
    shown = cli("group", "show", filled, "sums", "--json").json
    assert shown["retry"]["exhausted"] == "hold", "it keeps an order"
    said = cli("group", "set", filled, "sums", "--tags", "a", code=2).err
    assert "takes no tag filter" in said
    cli("group", "create", filled, "no", "--mode", "queue_lock", "--tags", "a", code=2)
    cli("group", "create", filled, "no", "--mode", "queue-lock", code=2)
    cli("consume", filled, "-g", "sums", "--mode", "shared", "--wait", 0, code=1)
    taken = cli("consume", filled, "-g", "sums", "--mode", "queue_lock", "--wait", 0, "--json")
    assert [one["offset"] for one in taken.lines] == list(range(10))


def test_queues_are_assigned_to_consumers(cli: CommandLine, topic: str) -> None:
    cli("topic", "create", topic, "--queues", 4)
    entries = ("--assign", "0-1=billing-*", "--assign", "3=web-?")
    cli("group", "create", topic, "sums", "--mode", "owned", *entries)

    def assigned() -> object:
        shown = cli("group", "show", topic, "sums", "--json").json
        assert shown["mode"] == "owned"
        return shown["assign"]

    assert assigned() == ["0-1=billing-*", "3=web-?"]
    assert "0-1=billing-* 3=web-?" in cli("group", "show", topic, "sums").out
    # The queues of one pattern come together, each once; two patterns may name the same queue.
    again = ("--assign", "2=a", "--assign", "0=b", "--assign", "0,2=a", "--assign", "0=b")
    said = cli("group", "set", topic, "sums", *again).err
    assert said == f"changed group sums on {topic}\n"
    assert assigned() == ["0,2=a", "0=b"]
    said = cli("group", "set", topic, "sums", *again).err
    assert said == f"group sums on {topic} has these settings already\n"
    cli("group", "set", topic, "sums", "--window", 50)
    assert assigned() == ["0,2=a", "0=b"], "an option that is not named changes nothing"
    done, note = cli("group", "set", topic, "sums", "--mode", "shared").err.splitlines()
    assert done == f"changed group sums on {topic}"
    assert "its assignment of queues is removed" in note
    _, *lost = shlex.split(note[note.index(" add ") :])
    cli("group", "set", topic, "sums", "--mode", "owned", *lost)
    assert assigned() == ["0,2=a", "0=b"], "the command that the note shows"
    assert "removed" not in cli("group", "set", topic, "sums", "--assign", "").err
    assert assigned() == []
    assert "removed" not in cli("group", "set", topic, "sums", "--mode", "shared").err


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        (("4=a",), "has 2 queues, from 0 on: there is no queue 4 to assign to a"),
        (("0=a", "1-2=b"), "there is no queue 2 to assign to b"),
        (("0=a b",), "not a pattern of member names: 'a b'"),
        (("0=",), "not a pattern of member names: ''"),
        (("0",), "not an assignment: '0': write queues=member, such as 0-2,5=billing-*"),
        (("=a",), "not an assignment: '=a'"),
        (("1-0=a",), "not a range of queues: '1-0'"),
        (tuple(f"0=m{n}" for n in range(257)), "assign has 257 entries: at most 256"),
    ],
)
def test_assignments_that_cannot_be(
    cli: CommandLine, topic: str, entries: tuple[str, ...], said: str
) -> None:
    """Nothing is made or changed."""
    cli("topic", "create", topic, "--queues", 2)
    options = [part for entry in entries for part in ("--assign", entry)]
    made = cli("group", "create", topic, "sums", "--mode", "owned", *options, code=2)
    assert said in made.err
    assert cli("group", "list", topic, "--json").json == []
    cli("group", "create", topic, "sums", "--mode", "owned", "--assign", "0=first")
    assert said in cli("group", "set", topic, "sums", *options, code=2).err
    shown = cli("group", "show", topic, "sums", "--json").json
    assert shown["assign"] == ["0=first"]


def test_only_groups_of_mode_owned_have_assignments(cli: CommandLine, topic: str) -> None:
    cli("topic", "create", topic)
    for mode in ("shared", "queue_lock", "exclusive"):
        entry = ("--mode", mode, "--assign", "0=a")
        said = cli("group", "create", topic, "sums", *entry, code=2).err
        assert f"assign is for groups of mode owned: this one has mode {mode}" in said
    cli("group", "create", topic, "sums", "--mode", "owned", "--assign", "0=a")
    cli("group", "set", topic, "sums", "--mode", "exclusive")
    shown = cli("group", "show", topic, "sums", "--json").json
    assert (shown["mode"], shown["assign"]) == ("exclusive", [])
    said = cli("group", "set", topic, "sums", "--assign", "0=a", code=2).err
    assert "assign is for groups of mode owned" in said


def test_deleting_a_group_that_is_consumed_says_that_it_is_made_again(
    cli: CommandLine, filled: str, client: ternmq.sync.Client
) -> None:
    held = client.pull(filled, group="billing", max_messages=4)
    for more in ({"code": 1}, {}):
        said = cli("group", "delete", filled, "billing", *([] if more else ["--yes"]), **more).err
        assert f"1 member of group billing consumes {filled} now" in said
        assert "creates the group again, starting with the oldest message that is kept" in said
    with contextlib.suppress(ternmq.TernMQError):
        held.release()
    cli("group", "create", filled, "billing")
    assert "member" not in cli("group", "delete", filled, "billing", "--yes").err


def test_what_cannot_be_changed_is_said(cli: CommandLine, filled: str) -> None:
    cli("group", "create", filled, "billing")
    said = cli("group", "set", filled, "billing", "--start", "latest", code=2).err
    assert "`ternmq group reset`" in said
    said = cli("topic", "set", filled, "--ordered", code=2).err
    assert "whether a topic is ordered cannot be changed" in said


def test_the_mode_and_the_limits_of_a_group_are_changed(
    cli: CommandLine, filled: str, client: ternmq.sync.Client
) -> None:
    cli("group", "create", filled, "billing")
    said = cli("group", "set", filled, "billing", "--mode", "ordered", code=2).err
    assert f"topic '{filled}' is not ordered" in said
    cli("group", "set", filled, "billing", "--mode", "queue_lock", "--concurrency", 2)
    shown = cli("group", "show", filled, "billing", "--json").json
    assert (shown["mode"], shown["concurrency"], shown["offline"]) == ("queue_lock", 2, [])
    batch = client.pull(filled, group="billing")
    assert len(batch) == 2
    batch.release()
    assert "concurrency  2" in cli("group", "show", filled, "billing").out
    cli("group", "set", filled, "billing", "--mode", "shared", "--concurrency", 0)
    assert "concurrency" not in cli("group", "show", filled, "billing").out
    cli("group", "set", filled, "billing", "--concurrency", "-1", code=2)
    cli("group", "set", filled, "billing", "--mode", "locked", code=2)


def test_a_group_that_is_owed_messages_does_not_become_ordered(
    cli: CommandLine, topic: str, client: ternmq.sync.Client
) -> None:
    cli("topic", "create", topic, "--ordered")
    cli("group", "create", topic, "billing", "--mode", "shared")
    client.send(topic, "a", ordering_key="k")
    batch = client.pull(topic, group="billing")
    said = cli("group", "set", topic, "billing", "--mode", "ordered", code=1).err
    assert f"it is owed 1 message of topic '{topic}'" in said
    assert "`ternmq group pause`" in said
    batch.ack()
    cli("group", "set", topic, "billing", "--mode", "ordered")


def test_clients_are_switched_off_and_on(
    cli: CommandLine, filled: str, client: ternmq.sync.Client
) -> None:
    cli("group", "create", filled, "billing")
    held = client.pull(filled, group="billing", max_messages=1)
    listed = [one for one in cli("client", "list", "--json").json if one["consumes"]]
    (name,) = [one["client"] for one in listed for of in one["consumes"] if of["topic"] == filled]
    said = cli("client", "offline", filled, "billing", name).err
    assert said == f"switched off for group billing on {filled}: {name}\n"
    assert not client.pull(filled, group="billing", wait=0)
    assert f"{filled}/billing(off)" in cli("client", "list").out
    assert name in cli("group", "show", filled, "billing").out
    assert cli("group", "show", filled, "billing", "--json").json["offline"] == [name]
    assert "is not switched off" in cli("client", "online", filled, "billing", "x", code=2).err
    cli("client", "offline", filled, "billing", "a name", code=2)
    said = cli("client", "offline", filled, "billing", "shop/*").err
    assert f"{name}, shop/*" in said
    assert "no client is named shop/* now: `ternmq client list` lists them\n" in said
    part = cli("client", "offline", filled, "billing", name[:4], "nonsense", f"{name[:4]}*").err
    lists = "now: `ternmq client list` lists them"
    whole = f"; for all clients whose names begin with {name[:4]}, write '{name[:4]}*'"
    assert part.splitlines()[1:] == [
        f"no client is named {name[:4]} {lists}{whole}",
        f"no client is named nonsense {lists}",
    ]
    cli("client", "online", filled, "billing", name[:4], "nonsense", f"{name[:4]}*")
    said = cli("client", "online", filled, "billing", name).err
    assert said == f"still switched off for group billing on {filled}: shop/*\n"
    said = cli("client", "online", filled, "billing").err
    assert said == f"no client is switched off for group billing on {filled}\n"
    held.ack()
    assert client.pull(filled, group="billing", wait=5)


def test_clients_that_cannot_be_switched_off(cli: CommandLine, filled: str) -> None:
    cli("group", "create", filled, "billing")
    for entry in ("", "a name", "123456789", "a/b/c", "a*b", "*/"):
        said = cli("client", "offline", filled, "billing", entry, code=2).err
        assert "not the name of a client" in said
    assert cli("group", "show", filled, "billing", "--json").json["offline"] == []
    cli("client", "offline", filled, "none", "shop/*", code=4)
    cli("client", "online", filled, "none", code=4)
    cli("client", "offline", "no-topic", "billing", "shop/*", code=4)
    cli("client", "offline", filled, "billing", "a", "b")
    said = cli("client", "offline", filled, "billing", "a").err
    assert cli("group", "show", filled, "billing", "--json").json["offline"] == ["a", "b"], said
    many = [f"c{n}" for n in range(255)]
    said = cli("client", "offline", filled, "billing", *many, code=2).err
    assert "at most 256 entries of clients can be switched off, not 257" in said
    assert cli("group", "show", filled, "billing", "--json").json["offline"] == ["a", "b"]


def test_a_group_of_other_settings_is_told_of(cli: CommandLine, filled: str) -> None:
    cli("group", "create", filled, "billing", "--tags", "paid")
    said = cli("consume", filled, "-g", "billing", "--tags", "new", "--wait", 0, code=1).err
    assert "leave out the options that differ (tags, filter, mode or start" in said


def test_a_header_filter_is_set_shown_and_changed(cli: CommandLine, filled: str) -> None:
    cli("send", filled, "eu", "--header", "region=eu", "--header", "n=10")
    cli("send", filled, "us", "--header", "region=us", "--header", "n=20")
    wanted = "region = 'eu' AND n >= 9"
    cli("group", "create", filled, "billing", "--filter", wanted)
    assert cli("group", "show", filled, "billing", "--json").json["filter"] == wanted
    assert f"filter   {wanted}" in cli("group", "show", filled, "billing").out
    (listed,) = cli("group", "list", filled, "--json").json
    assert listed["filter"] == wanted
    same = "region='eu' and n>=9"
    got = cli("consume", filled, "-g", "billing", "--filter", same, "--wait", 0, "--json").out
    assert [json.loads(line)["body"] for line in got.splitlines()] == ["eu"]
    said = cli("consume", filled, "-g", "billing", "--filter", "n = 1", "--wait", 0, code=1).err
    assert "has filter" in said
    assert "tags, filter, mode or start" in said


def test_a_wrong_filter_makes_no_group(cli: CommandLine, filled: str) -> None:
    said = cli("consume", filled, "-g", "billing", "--tags", "a & b", code=2).err
    assert "not a tag filter" in said
    assert "is new" not in said
    said = cli("consume", filled, "-g", "billing", "--filter", "n = 1 AND", code=2).err
    assert "not a filter: 'n = 1 AND'; column 10" in said
    assert "is new" not in said
    assert (
        "column 3" in cli("group", "create", filled, "billing", "--filter", "n LIKE 1", code=2).err
    )
    cli("group", "show", filled, "billing", code=4)
    cli("group", "create", filled, "billing")
    said = cli("group", "set", filled, "billing", "--filter", "n = 1 AND", code=2).err
    assert "column 10" in said
    cli("group", "set", filled, "billing", "--filter", "n = 1")
    assert cli("group", "show", filled, "billing", "--json").json["filter"] == "n = 1"
    cli("group", "set", filled, "billing", "--filter", "")
    assert cli("group", "show", filled, "billing", "--json").json["filter"] == ""


def test_pausing_and_resuming(cli: CommandLine, filled: str) -> None:
    cli("group", "create", filled, "billing")
    cli("group", "pause", filled, "billing")
    assert cli("group", "list", filled).rows[0][7] == "paused"
    said = cli("consume", filled, "-g", "billing", "--wait", "0", code=7)
    assert said.out == ""
    assert said.err.count("group resume") == 1
    said = cli("consume", filled, "-g", "billing", "--wait", "50ms", code=7)
    assert said.err.splitlines() == [
        f"ternmq: group 'billing' is paused on {filled!r}: `ternmq group resume` resumes it"
    ]
    cli("group", "resume", filled, "billing")
    assert len(cli("consume", filled, "-g", "billing", "--wait", "0").out.splitlines()) == 10


def test_consume_waits_for_a_group_that_is_paused(capsys: pytest.CaptureFixture[str]) -> None:
    answers: list[object] = [
        ternmq.GroupPaused("x"), ternmq.GroupPaused("x"), "batch", ternmq.GroupPaused("x"), "more",
    ]  # fmt: skip

    class Paused:
        async def pull(self, topic: str, **settings: object) -> object:
            answer = answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer

    async def consumed() -> list[object]:
        pulls = _Pulls(cast("Any", Paused()), "t", "g", {}, None, paused=True)
        return [await pulls.next(1, at_once=False) for _ in range(2)]

    assert asyncio.run(consumed()) == ["batch", "more"]
    note = "group g is paused on t: `ternmq group resume` resumes it\n"
    assert capsys.readouterr().err == 2 * note, "once for each time that it is paused"


def test_what_is_asked_of_an_unknown_group_ends_in_one_way(cli: CommandLine, filled: str) -> None:
    for command in (
        ("group", "lag"), ("group", "lag", "--json"), ("group", "show"), ("group", "pause"),
        ("deadletter", "list"), ("deadletter", "list", "--json"), ("retry", "list"),
    ):  # fmt: skip
        verb, flags = command[:2], command[2:]
        said = cli(*verb, filled, "nobody", *flags, code=4)
        assert (said.out, "group 'nobody'" in said.err) == ("", True), command
        said = cli(*verb, "no-such-topic", "nobody", *flags, code=4)
        assert (said.out, "topic 'no-such-topic'" in said.err) == ("", True), command
    assert "no groups" in cli("group", "lag", filled).err


def test_lag_of_a_group_without_members_notes_its_retries(
    cli: CommandLine, filled: str, client: ternmq.sync.Client
) -> None:
    client.pull(filled, group="billing", max_messages=1)[0].retry(delay=3600)
    note = (
        f"group billing on {filled} has no members: its 1 retrying message stays undelivered "
        "until a consumer asks for messages, even if the retry is due"
    )
    held = "held messages also need"

    def noted() -> bool:
        return note in " ".join(cli("group", "lag", filled).err.split())

    wait_until(noted, "the group has no member")
    assert held not in cli("group", "lag", filled).err
    cli("group", "set", filled, "billing", "--exhausted", "hold")
    assert held in " ".join(cli("group", "lag", filled).err.split())
    assert cli("group", "lag", filled, "--json").err == ""
    with client.consume(filled, group="billing") as consumer:
        next(iter(consumer))
        assert cli("group", "lag", filled).err == ""


def test_lag(cli: CommandLine, filled: str, client: ternmq.sync.Client) -> None:
    cli("group", "create", filled, "billing")
    held = client.pull(filled, group="billing", max_messages=4)
    held.ack(rows=[0])
    (row,) = cli("group", "lag", filled).rows
    assert row[:6] == [filled, "billing", "6", "0", "3", "0"]
    (told,) = cli("group", "lag", filled, "billing", "--json").lines
    assert (told["lag"], told["leased"]) == (6, 3)
    assert told["queues"] == [
        {
            "queue": 0,
            "lag": 6,
            "ready": 0,
            "leased": 3,
            "retrying": 0,
            "dead": 0,
            "floor": 1,
            "cursor": 4,
            "end": 10,
        }
    ]
    (row,) = cli("group", "lag", filled, "--queues").rows
    assert row == [filled, "billing", "0", "6", "0", "3", "0", "0", "1", "4", "10"]
    held.release()


def test_what_was_given_back_is_ready_and_retries_nothing(
    cli: CommandLine, filled: str, broker: BrokerProcess
) -> None:
    cli("consume", filled, "-g", "billing", "-n", 5, "--no-ack", "--wait", 0)
    (row,) = cli("group", "lag", filled, "billing").rows
    assert row[:7] == [filled, "billing", "5", "5", "0", "0", "0"]
    (told,) = cli("group", "lag", filled, "billing", "--json").lines
    assert (told["lag"], told["ready"], told["retrying"]) == (5, 5, 0)
    assert (told["queues"][0]["ready"], told["queues"][0]["retrying"]) == (5, 0)
    (shown,) = cli("group", "show", filled, "billing", "--json").json["queues"]
    assert (shown["ready"], shown["retrying"], shown["waiting"]) == (5, 0, 0)
    labels = re.escape(f'{{group="billing",topic="{filled}"}}')
    assert broker.metric(f"ternmq_group_ready{labels}") == 5
    assert broker.metric(f"ternmq_group_retrying{labels}") == 0
    assert cli("retry", "list", filled, "billing", "--json").lines == []

    cli("consume", filled, "-g", "billing", "--wait", 0)
    assert cli("group", "lag", filled).rows[0][2:4] == ["0", "0"]


def test_a_backlog_behind_a_key_is_not_done(cli: CommandLine, client: ternmq.sync.Client) -> None:
    """On an ordered topic what stands behind a message in hand is ready, and the lag is 0."""
    client.admin.create_topic("behind", ordered=True)
    client.admin.create_group("behind", "billing")
    for number in range(5):
        client.send("behind", b"%d" % number, ordering_key="alice")
    held = client.pull("behind", group="billing", max_messages=1)
    client.pull("behind", group="billing", max_messages=5, wait=0)  # passes the others
    (row,) = cli("group", "lag", "behind").rows
    assert row[2:5] == ["0", "4", "1"]
    assert cli("group", "list", "behind").rows[0][3:5] == ["0", "4"]

    rates = Rates()
    info = client.admin.group("behind", "billing")
    assert rates.of([info], 1.0) == {}
    assert speed_of(info, rates.of([info], 2.0)["behind", "billing"]) == (0, 0, "unchanged")

    held.ack()
    for one in client.pull("behind", group="billing", max_messages=2):
        one.ack()
    info = client.admin.group("behind", "billing")
    assert speed_of(info, rates.of([info], 3.0)["behind", "billing"]) == (0, 2, "1s")
    for one in client.pull("behind", group="billing", max_messages=2):
        one.ack()
    info = client.admin.group("behind", "billing")
    assert speed_of(info, rates.of([info], 4.0)["behind", "billing"]) == (0, 2, "done")


@pytest.fixture
def retrying(client: ternmq.sync.Client, topic: str) -> str:
    """A topic with a group `waits` that has three retries and no member, and a group `behind`."""
    client.admin.create_topic(topic)
    client.admin.create_group(topic, "waits", start="earliest")
    client.send_many(topic, [1, 2, 3])
    client.admin.create_group(topic, "behind", start="earliest")
    client.send(topic, 4)
    client.pull(topic, group="waits", max_messages=3).retry(delay=3600)
    for one in client.pull(topic, group="waits"):
        one.ack()
    return topic


def test_retries_without_members_wait(client: ternmq.sync.Client, retrying: str) -> None:
    behind, info = client.admin.groups(retrying)
    alone = msgspec.structs.replace(info, members=[])
    joined = msgspec.structs.replace(info, members=["one"])
    still = (0.0, 0.0)
    assert speed_of(joined, still)[2] == "done"
    assert speed_of(alone, still)[2] == "unchanged"
    assert by_backlog([joined, alone, behind], {}) == [behind, alone, joined]
    busy = msgspec.structs.replace(joined, group="a")
    other = msgspec.structs.replace(joined, group="b")
    speed = {(retrying, "a"): (0.0, 1.0), (retrying, "b"): (0.0, 2.0)}
    assert by_backlog([busy, other], speed) == [other, busy]


def test_watching_notes_a_group_without_members_once(retrying: str, processes: Processes) -> None:
    watch = processes.start("group", "lag", retrying, "-w", "--interval", "50ms")
    assert watch.stdout is not None
    seen = [watch.stdout.readline() for _ in range(9)]
    watch.terminate()
    _, err = watch.communicate(timeout=30)
    assert sum(b"waits" in line for line in seen) >= 3
    assert err.count(b"group waits on") == 1
    assert b"has no members: its 3 retrying messages stay undelivered" in err


def test_a_reset_shows_what_it_does_and_does_it_when_told(cli: CommandLine, filled: str) -> None:
    cli("group", "create", filled, "billing")
    cli("consume", filled, "-g", "billing", "-n", 4)
    preview = cli("group", "reset", filled, "billing", "--to", "earliest", "--dry-run")
    assert preview.rows == [["0", "4", "0", "0", "10", "0"]]
    refused = cli("group", "reset", filled, "billing", "--to", "earliest", code=1)
    assert refused.rows == [["0", "4", "0", "0", "10", "0"]]
    assert "add --yes" in refused.err
    assert cli("group", "lag", filled).rows[0][2] == "6"

    cli("group", "reset", filled, "billing", "--to", "earliest", "--yes")
    assert cli("group", "lag", filled).rows[0][2] == "10"
    ahead = cli("group", "reset", filled, "billing", "--to", "latest", "--dry-run")
    assert ahead.rows == [["0", "0", "10", "10", "0", "0"]]
    assert "skipped: 10 messages that the group has not read" in ahead.err
    done = cli("group", "reset", filled, "billing", "--to", "latest", "--yes", "--json").json
    assert done == {
        "done": True,
        "queues": [
            {"queue": 0, "before": 0, "offset": 10, "skipped": 10, "unread": 0, "forgotten": 0}
        ],
    }
    cli("group", "reset", filled, "billing", "--offset", 7, "-y")
    assert cli("group", "lag", filled).rows[0][2] == "3"
    cli("group", "reset", filled, "billing", "--to", "1h", "-y")
    assert cli("group", "lag", filled).rows[0][2] == "10"
    cli("consume", filled, "-g", "billing", "-n", 4)
    cli("group", "replay", filled, "billing", "--offset", "0-2", "--yes")
    preview = cli("group", "reset", filled, "billing", "--to", "latest", "--dry-run")
    assert preview.rows == [["0", "4", "10", "6", "0", "3"]]
    assert (
        "forgotten: 3 messages that consumers hold, that are ready, or that wait for a retry; "
        "those below the new position are not delivered again"
    ) in preview.err


def test_a_reset_that_is_not_clear(cli: CommandLine, filled: str) -> None:
    cli("group", "create", filled, "billing")
    assert "give one of --to and --offset" in cli("group", "reset", filled, "billing", code=2).err
    both = cli("group", "reset", filled, "billing", "--to", "latest", "--offset", 1, code=2)
    assert "give only one of --to and --offset" in both.err
    assert "14:30" in cli("group", "reset", filled, "billing", "--to", "soon", code=2).err
    assert "--dry-run" in cli("group", "reset", filled, "billing", "--to", "latest", "--json",
                              code=1).err  # fmt: skip
    assert "has no queue 3" in cli("group", "reset", filled, "billing", "--offset", 1,
                                   "--queue", 3, code=4).err  # fmt: skip
    cli("topic", "set", filled, "--queues", 2)
    assert "2 queues" in cli("group", "reset", filled, "billing", "--offset", 1, code=2).err


def test_what_would_be_refused_is_refused_before_it_is_asked(cli: CommandLine, filled: str) -> None:
    cli("group", "create", filled, "billing")
    for how in ("--dry-run", "--yes"):
        said = cli("group", "reset", filled, "billing", "--offset", 999, how, code=2)
        assert (said.out, "offset must be 0 to 10" in said.err) == ("", True), how
    said = cli("group", "skip", filled, "billing", "--offset", 999, code=2)
    assert "offset must be 0 to 10" in said.err
    assert "will not be delivered" not in said.err
    assert cli("group", "lag", filled).rows[0][2] == "10"


def test_skipping(cli: CommandLine, filled: str) -> None:
    cli("group", "create", filled, "billing")
    assert "10 messages" not in cli("group", "skip", filled, "billing", "--offset", 4, code=1).out
    said = cli("group", "skip", filled, "billing", "--offset", 4, "--yes")
    assert "skipped 4 messages" in said.err
    assert "nothing to skip" in cli("group", "skip", filled, "billing", "--offset", 4, "-y").err
    first = cli("consume", filled, "-g", "billing", "-n", 1, "--raw").out
    assert first == "message 4\n"


def test_a_wrong_name_gets_the_right_one_told(cli: CommandLine, filled: str) -> None:
    cli("group", "create", filled, "billing")
    for command in (["show"], ["pause"], ["set", "--window", "1"], ["delete", "-y"]):
        said = cli("group", command[0], filled, "biling", *command[1:], code=4).err
        assert "did you mean billing?" in said
    assert "ternmq group list" in cli("group", "show", filled, "zzz", code=4).err
    assert "there is no topic" in cli("group", "show", "nothing-like-it", "billing", code=4).err
    assert "there is no topic" in cli("group", "lag", "nothing-like-it", code=4).err


def test_settings_that_cannot_be(cli: CommandLine, filled: str) -> None:
    cli("group", "create", filled, "billing")
    assert "at least one option to change" in cli("group", "set", filled, "billing", code=2).err
    for wrong in (["--retry-factor", "0"], ["--lease", "0"], ["--lease", "10"], ["--window", "-1"],
                  ["--window", "many"], ["--retry-jitter", "2"], ["--exhausted", "never"],
                  ["--retry-first", "2d", "--retry-cap", "1h"]):  # fmt: skip
        cli("group", "set", filled, "billing", *wrong, code=2)
    for lease in ("1ms", "99ms", "25h"):
        said = cli("group", "set", filled, "billing", "--lease", lease, code=2).err
        assert "lease must be 0.1 s to a day" in said
    cli("group", "create", filled, "other", "--mode", "ordered", code=2)
    refused = cli("consume", filled, "-g", "other", "--mode", "ordered", "-n", 1, code=2)
    assert "is new" not in refused.err


def test_watching_is_a_stream(cli: CommandLine, filled: str, processes: Processes) -> None:
    cli("group", "create", filled, "billing")
    watch = processes.start("group", "lag", filled, "-w", "--interval", "50ms", "--json")
    assert watch.stdout is not None
    lines = [json.loads(watch.stdout.readline()) for _ in range(3)]
    watch.terminate()
    _, err = watch.communicate(timeout=30)
    assert watch.returncode == 143, err
    assert [one["lag"] for one in lines] == [10, 10, 10]
    assert len({one["time"] for one in lines}) == 3


@pytest.mark.row("R15")
def test_holds_on_the_journal(cli: CommandLine, filled: str, client: ternmq.sync.Client) -> None:
    name = f"spark.{filled}"
    cli("hold", "set", name, "0", "--note", "archive")
    client.send(filled, b"one more")
    shown = {row[1]: row for row in cli("group", "lag").rows}
    assert shown[name][0] == "(journal)"
    assert shown[name][-1] == "holding"
    told = [one for one in cli("group", "lag", "--json").lines if one.get("hold") == name]
    assert told[0]["lag_bytes"] > 0
    assert name not in {row[1] for row in cli("group", "lag", filled).rows}
    (listed,) = [one for one in cli("hold", "list", "--json").json if one["hold"] == name]
    assert (listed["note"], listed["state"]) == ("archive", "holding")
    position = told[0]["position"] + 1
    cli("hold", "set", name, str(position))
    said = cli("hold", "set", name, "0")
    assert f"hold {name} stays at position {position}: --back moves it back" in said.err
    holds = {one["hold"]: one["position"] for one in cli("hold", "list", "--json").json}
    assert holds[name] == position
    cli("hold", "set", name, "0", "--back")
    assert name in {row[0] for row in cli("hold", "list").rows}
    cli("hold", "delete", name, "--yes")
    assert "hold list" in cli("hold", "delete", name, "--yes", code=4).err


def test_a_skip_that_is_not_clear_or_skips_nothing(cli: CommandLine, filled: str) -> None:
    cli("group", "create", filled, "billing")
    cli("group", "skip", filled, "billing", "--offset", 4, "-y")
    said = cli("group", "skip", filled, "billing", "--offset", 4, "-y").err
    assert said == "nothing to skip: group billing is at offset 4 of queue 0\n"
    said = cli("group", "skip", filled, "billing", "--offset", 3, "-y").err
    assert said == "nothing to skip: group billing is at offset 4 of queue 0, past 3\n"
    cli("group", "skip", filled, "billing", "--offset", 10, "-y")
    said = cli("group", "skip", filled, "billing", "--offset", 99999, "-y").err
    assert said == "nothing to skip: group billing has read queue 0 to its end, offset 10\n"
    cli("topic", "set", filled, "--queues", 2)
    assert "2 queues" in cli("group", "skip", filled, "billing", "--offset", 1, code=2).err
    cli("group", "skip", filled, "billing", "--offset", 1, "--queue", 1, "-y")


@pytest.mark.row("G13")
def test_messages_that_expire(cli: CommandLine, topic: str) -> None:
    cli("topic", "create", topic, "--expires", "1h")
    assert "1h after it was stored" in cli("topic", "show", topic).out
    assert cli("topic", "show", topic, "--json").json["expires_s"] == 3600
    cli("topic", "set", topic, "--expires", "0s")
    assert cli("topic", "show", topic, "--json").json["expires_s"] == 0
    for wrong in ("0s", "-1s", "200000d", "soon"):
        assert cli("send", topic, "x", "--expires", wrong, code=2).err
    cli("group", "create", topic, "g")
    cli("group", "set", topic, "g", "--expired", "drop", "--retry-expires", "1h")
    shown = cli("group", "show", topic, "g", "--json").json
    assert (shown["expired"], shown["retry"]["expires_s"]) == ("drop", 3600)
    assert "at most 1h" in cli("group", "show", topic, "g").out
    assert cli("group", "set", topic, "g", "--expired", "later", code=2).err


@pytest.mark.row("I1", "I2")
def test_broadcast_instances(cli: CommandLine, topic: str) -> None:
    cli("topic", "create", topic, "--broadcast")
    assert "broadcast" in cli("topic", "show", topic).out
    assert cli("consume", topic, "--instance", "web-1", "--wait", "0s").out == ""
    cli("send", topic, "maintenance")
    got = cli("consume", topic, "--instance", "web-1", "--wait", "0s", "--raw")
    assert got.out == "maintenance\n"
    assert "web-1" not in cli("group", "list").out
    assert cli("group", "list", topic, "--json").json == []
    (listed,) = cli("group", "list", topic, "--broadcast", "--json").json
    assert (listed["group"], listed["mode"]) == ("$b.web-1", "broadcast")
    shown = cli("group", "show", topic, "$b.web-1").out
    assert "broadcast" in shown
    assert "none: a failed message is done for this instance" in shown
    for retried in (("--retry",), ("--exhausted", "hold")):
        refused = cli("group", "set", topic, "$b.web-1", *retried, code=2)
        assert "takes no retry policy" in refused.err
        assert not refused.out
    assert cli("topic", "show", topic, "--json").json["instances"] == 1
    said = cli("consume", topic, "-g", "g", "--wait", "0s", code=2).err
    assert said.endswith("its consumers are instances, which name no group\n")
    for none in (cli("group", "list", topic).err, cli("group", "lag", topic).err):
        has = f"topic {topic} has no groups, but 1 broadcast instance; "
        assert none == has + f"`ternmq group list {topic} --broadcast` lists them\n"
    for command in (
        ("deadletter", "list"), ("deadletter", "export"), ("deadletter", "delete", "--all"),
        ("deadletter", "redrive", "--all"), ("retry", "list"), ("retry", "now", "--all"),
    ):  # fmt: skip
        said = cli(*command[:2], topic, "$b.web-1", *command[2:], code=2).err
        assert "'$b.web-1' is a broadcast instance: instances have no retries" in said
    said = cli("group", "replay", topic, "$b.web-1", "--since", "1h", code=2).err
    assert "'$b.web-1' is a broadcast instance: instances have no retries" in said
    said = cli("group", "pause", topic, "$b.web-1").err
    resume = shlex.split(said[said.index("`") + 1 : said.rindex("`")])
    assert resume == ["ternmq", "group", "resume", topic, "$b.web-1"]
    assert "'$b.web-1'" in said, "a shell expands what is not quoted"
    cli(*resume[1:])
    assert cli("topic", "set", topic, "--broadcast", code=2).err
    cli("group", "delete", topic, "$b.web-1", "--yes")
    assert cli("group", "list", topic, "--broadcast", "--json").json == []
    assert "its consumers are instances, and it has none now" in cli("group", "lag", topic).err
    other = f"{topic}-plain"
    cli("topic", "create", other)
    said = cli("consume", other, "--wait", "0s", code=2).err
    assert "no broadcast topic: state a group, or consume it as a broadcast instance" in said
    assert cli("consume", other, "--broadcast", "--wait", "0s").out == ""
    for of_instance in (["--broadcast"], ["--instance", "a"]):
        said = cli("consume", other, "-g", "g", *of_instance, "--wait", "0s", code=2).err
        assert f"give only one of --group and {of_instance[0]}" in said
