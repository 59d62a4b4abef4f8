"""``ternmq pipeline replay``: messages of the archive sent again."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("deltalake", reason="needs the extra spark")

import ternmq.sync
from ternmq.cli.reach import archived
from ternmq.client.bulk import Bulk, BulkOptions
from ternmq.pipeline.archive.archive import ArchiveJob
from ternmq.pipeline.archive.commit import Archive
from ternmq.pipeline.tables.folder import Folder
from ternmq.testing import broker as started
from ternmq.wire.control import GrantInfo
from tests.black_box.process import BrokerProcess, free_port
from tests.cli.conftest import CommandLine

NOW = 1_795_262_400_000_000
REPLAY = ("pipeline", "replay")


@pytest.fixture
def tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: CommandLine) -> Folder:
    monkeypatch.setenv(archived.TABLES, str(tmp_path / "tables"))
    return Folder(str(tmp_path / "tables"))


@pytest.fixture
def old(broker: BrokerProcess, client: ternmq.sync.Client, topic: str, tables: Folder) -> str:
    """Archive a topic of two queues."""
    client.admin.create_topic(topic, queues=2)
    for n in range(40):
        client.send(
            topic, b'{"n": %d}' % n, key=f"k{n % 5}", tag="t", id=f"own-{n}", headers={"h": str(n)}
        )
    archive(broker, tables, topic)
    return topic


def archive(broker: BrokerProcess, tables: Folder, topic: str) -> None:
    with Bulk(BulkOptions(url=broker.url)) as bulk:
        ArchiveJob(bulk, Archive(tables), topics=[topic]).once(NOW)


@pytest.fixture
def new(client: ternmq.sync.Client, topic: str) -> str:
    client.admin.create_topic(f"{topic}-again", queues=2)
    return f"{topic}-again"


def rows(client: ternmq.sync.Client, topic: str) -> dict[int, list[Any]]:
    found: dict[int, list[Any]] = {}
    for one in client.read(topic):
        found.setdefault(one.queue, []).append(one)
    return found


@pytest.mark.row("R10")
def test_each_once_in_order_with_all_that_it_had(
    cli: CommandLine, client: ternmq.sync.Client, old: str, new: str
) -> None:
    before = rows(client, old)
    client.admin.delete_topic(old)
    dry = cli(*REPLAY, "--topic", old, "--to-topic", new, "--dry-run", "--json").json
    assert sum(one["messages"] for one in dry["queues"]) == 40
    assert rows(client, new) == {}
    done = cli(*REPLAY, "--topic", old, "--to-topic", new, "-y", "--json").json
    assert done["sent"] == 40
    after = rows(client, new)
    assert after.keys() == before.keys()
    for queue, some in before.items():
        assert [one.body for one in after[queue]] == [one.body for one in some]
        for was, is_ in zip(some, after[queue], strict=True):
            assert (is_.key, is_.tag) == (was.key, was.tag)
            assert is_.headers == {
                **was.headers,
                "x-replay": done["name"],
                "x-source": f"{old}/{queue}/{was.offset}",
            }
    again = cli(*REPLAY, "--topic", old, "--to-topic", new, "-y", "--json").json
    assert (again["name"], again["sent"]) == (done["name"], 0)
    assert {one["sent_before"] for one in again["queues"]} == {"all"}
    assert rows(client, new).keys() == after.keys()
    assert sum(map(len, rows(client, new).values())) == 40
    cli(*REPLAY, "--topic", old, "--to-topic", new, "-y", "--name", "once-more")
    assert sum(map(len, rows(client, new).values())) == 80


@pytest.mark.row("R10")
def test_what_came_since_is_sent_by_the_same_request(
    cli: CommandLine, broker: BrokerProcess, client: ternmq.sync.Client, tables: Folder, old: str,
    new: str,
) -> None:  # fmt: skip
    cli(*REPLAY, "--topic", old, "--to-topic", new, "-y")
    for n in range(40, 50):
        client.send(old, b"%d" % n, key=f"k{n % 5}")
    archive(broker, tables, old)
    done = cli(*REPLAY, "--topic", old, "--to-topic", new, "-y", "--json").json
    assert done["sent"] == 10
    found = rows(client, new)
    assert {queue: [one.body for one in some] for queue, some in found.items()} == {
        queue: [one.body for one in some] for queue, some in rows(client, old).items()
    }


def test_chosen_by_key_id_and_condition(
    cli: CommandLine, client: ternmq.sync.Client, old: str, new: str
) -> None:
    def sent(*arguments: str) -> list[bytes]:
        before = sum(map(len, rows(client, new).values()))
        cli(*REPLAY, "--topic", old, "--to-topic", new, "-y", "--no-marks", *arguments)
        found = sorted(
            (one for some in rows(client, new).values() for one in some),
            key=lambda one: one.stored_at,
        )
        return sorted(one.body for one in found[before:])

    assert sent("-k", "k3") == sorted(b'{"n": %d}' % n for n in range(3, 40, 5))
    assert sent("--id", "own-7", "--id", "own-8") == [b'{"n": 7}', b'{"n": 8}']
    assert sent("--where", "(text->>'n')::int between 3 and 5") == [
        b'{"n": 3}', b'{"n": 4}', b'{"n": 5}',
    ]  # fmt: skip
    assert sent("-k", "k3", "--where", 'tag is null or "offset" < 0 -- nothing') == []


def test_with_another_body_and_key(
    cli: CommandLine, client: ternmq.sync.Client, old: str, new: str
) -> None:
    cli(
        *REPLAY, "--topic", old, "--to-topic", new, "-y", "--no-marks", "--id", "own-7",
        "--set", "body '<' || text || '>'", "--set", "key = upper(key)",
        "--set", "headers map(['n'], [text->>'n'])",
    )  # fmt: skip
    ((found,),) = rows(client, new).values()
    assert (found.body, found.key, found.headers) == (b'<{"n": 7}>', "K2", {"n": "7"})


def test_chosen_by_time(cli: CommandLine, client: ternmq.sync.Client, old: str, new: str) -> None:
    stored = sorted(one.stored_at for some in rows(client, old).values() for one in some)

    def count(span: str) -> int:
        told = cli(
            *REPLAY, "--topic", old, "--to-topic", new, "--dry-run", "--json", "--time", span
        ).json
        return sum(one["messages"] for one in told["queues"])

    assert count(f"{stored[10].isoformat()}..{stored[20].isoformat()}") == 10
    assert count(f"{stored[10].isoformat()}..") == 30
    assert count(f"..{stored[10].isoformat()}") == 10
    assert count(stored[0].date().isoformat()) + count(
        (stored[0] + timedelta(days=1)).date().isoformat()
    ) == 40  # fmt: skip


def test_into_an_ordered_topic(cli: CommandLine, client: ternmq.sync.Client, old: str) -> None:
    into = f"{old}-ordered"
    client.admin.create_topic(into, queues=3, ordered=True)
    ended = cli(*REPLAY, "--topic", old, "--to-topic", into, "-y", code=1)
    assert "--set 'ordering_key key'" in ended.err
    assert "order_key" not in ended.err
    assert rows(client, into) == {}
    dry = cli(*REPLAY, "--topic", old, "--to-topic", into, "--dry-run", code=1)
    assert "/0/0 of the archive: ordering_key: topic" in dry.err
    cli(*REPLAY, "--topic", old, "--to-topic", into, "-y", "--set", "ordering_key key")
    of_key: dict[str, list[int]] = {}
    for some in rows(client, into).values():
        for one in some:
            assert one.ordering_key == one.key
            of_key.setdefault(one.key, []).append(int(one.headers["h"]))
    assert of_key == {f"k{n}": list(range(n, 40, 5)) for n in range(5)}


BODY = 'body case when "offset" = 3 then {} else text end'


@pytest.mark.parametrize(
    ("told", "code", "said", "offset"),
    [
        ("tag 'a b'", 2, "tag: not a tag: 'a b'", 0),
        ("tag '*'", 2, "tag: not a tag: '*'", 0),
        ("key repeat('k', 5000)", 2, "key has 5000 bytes, at most 4096", 0),
        ("headers map {'h': repeat('x', 100000)}", 2, "header 'h' has 100000 bytes", 0),
        (
            BODY.format("repeat('x', 2000000)"),
            2,
            "the body has 2000000 bytes; the broker accepts",
            3,
        ),
        (BODY.format("null"), 1, "body: a row has null", 3),
        ("ordering_key key", 1, "say --set 'ordering_key NULL'", 0),
    ],
)
def test_what_no_send_takes_is_refused_and_a_dry_run_says_so(
    cli: CommandLine, client: ternmq.sync.Client, old: str, new: str, told: str, code: int,
    said: str, offset: int,
) -> None:  # fmt: skip
    for more in ("--dry-run", "-y"):
        ended = cli(*REPLAY, "--topic", old, "--to-topic", new, "--set", told, more, code=code)
        assert said in ended.err
        assert f"message {old}/0/{offset} of the archive" in ended.err
    assert rows(client, new) == {}


def test_a_dry_run_refuses_what_the_run_would(
    cli: CommandLine, tables: Folder, old: str, tmp_path: Path
) -> None:
    root = "root-token-of-the-test"
    with (
        started(settings={"auth": True, "admin_token": root}) as guarded,
        ternmq.sync.connect(guarded.url, app="admin", token=root) as admin,
    ):
        admin.admin.create_topic(f"{old}-again", queues=2)
        token = admin.admin.put_app("reader", [GrantInfo(right="consume")])
        as_reader = ("--url", guarded.url, "--app", "reader", "--token", token)
        wanted = (*REPLAY, "--topic", old, "--to-topic", f"{old}-again")
        for more in ("--dry-run", "-y"):
            assert "no grant to produce" in cli(*wanted, more, *as_reader, code=5).err
        admin.admin.put_app("reader", [GrantInfo(right="consume"), GrantInfo(right="produce")])
        cli(*wanted, "--dry-run", *as_reader)


@pytest.mark.row("R10")
def test_a_name_is_that_of_one_request(
    cli: CommandLine, client: ternmq.sync.Client, old: str, new: str
) -> None:
    other = f"{new}-other"
    client.admin.create_topic(other)
    asked = (*REPLAY, "--topic", old, "--name", "two")
    # What sent nothing takes no name.
    cli(*asked, "--to-topic", new, "--set", "tag 'a b'", "-y", code=2)
    cli(*asked, "--to-topic", new, "-k", "k1", "-k", "k2", "-y")
    for arguments in (
        ("--to-topic", other, "-k", "k1", "-k", "k2"),
        ("--to-topic", new, "-k", "k1"),
        ("--to-topic", new, "-k", "k1", "-k", "k2", "--set", "key upper(key)"),
    ):
        for more in ("--dry-run", "-y"):
            ended = cli(*asked, *arguments, more, code=1)
            assert "the name two belongs to another replay" in ended.err
            assert "use another --name" in ended.err
    assert rows(client, other) == {}
    assert sum(map(len, rows(client, new).values())) == 16
    again = cli(*asked, "--to-topic", new, "-k", "k2", "-k", "k1", "-y", "--json").json
    assert again["sent"] == 0


@pytest.mark.row("R10")
def test_to_one_group(
    cli: CommandLine, broker: BrokerProcess, client: ternmq.sync.Client, tables: Folder, topic: str
) -> None:
    client.admin.create_topic(topic)
    for group in ("billing", "stock"):
        client.admin.create_group(topic, group, start="earliest")
    for n in range(10):
        client.send(topic, b"%d" % n, key=f"k{n % 2}")
    for group in ("billing", "stock"):
        for one in client.pull(topic, group=group, max_messages=10):
            one.ack()
    archive(broker, tables, topic)
    asked = (*REPLAY, "--topic", topic, "--to-group", "billing", "-k", "k1")
    dry = cli(*asked, "--dry-run", "--json").json
    assert (dry["done"], dry["again"], dry["expired"]) == (False, 5, 0)
    done = cli(*asked, "-y", "--json").json
    assert (done["done"], done["again"]) == (True, 5)
    again = client.pull(topic, group="billing", max_messages=10)
    assert sorted(one.body for one in again) == [b"1", b"3", b"5", b"7", b"9"]
    for one in again:
        one.ack()
    assert not client.pull(topic, group="stock", wait=0)


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("--to-topic", "a", "--to-group", "b"), 2, "only one of --to-topic and --to-group"),
        ((), 2, "give one of --to-topic and --to-group"),
        (("--to-group", "g", "--set", "key 1"), 2, "leave out --set and --name"),
        (("--to-topic", "no-such-topic"), 4, "there is no topic 'no-such-topic'"),
        (("--to-topic", "{new}", "--where", " "), 2, "--where is empty"),
        (("--to-topic", "{new}", "--where", "nope = 1"), 2, "--where 'nope = 1': Binder Error"),
        (("--to-topic", "{new}", "--where", "(1 = 1"), 2, "--where '(1 = 1': Parser Error"),
        (("--to-topic", "{new}", "--set", "key nope"), 2, "--set key 'nope'"),
        (("--to-topic", "{new}", "--set", "queue 1"), 2, "this column cannot be set"),
        (("--to-topic", "{new}", "--set", "body 3"), 2, "write (3)::varchar"),
        (("--to-topic", "{new}", "--where", "offset < 3"), 2, 'is written "offset"'),
        (("--to-topic", "{new}", "--where", "1=0) or (1=1"), 2, "--where '1=0) or (1=1': Parser"),
        (
            ("--to-topic", "{new}", "--set", "key 1", "--set", "key 2"),
            2,
            "key is given twice",
        ),
        (("--to-topic", "{new}", "--set", "key"), 2, "is not COLUMN EXPRESSION"),
        (("--to-topic", "{new}", "--time", "soon"), 2, "'soon' is neither A..B"),
        (
            ("--to-topic", "{new}", "--time", "2026-01-02..2026-01-01"),
            2,
            "the end of the time is not after its beginning",
        ),
        (("--to-topic", "{new}", "--json"), 1, "--json does not prompt"),
        (("--to-topic", "{new}"), 1, "nothing was changed"),
    ],
)
def test_what_cannot_be_is_said_and_nothing_is_sent(
    cli: CommandLine, client: ternmq.sync.Client, old: str, new: str, arguments: tuple[str, ...],
    code: int, said: str,
) -> None:  # fmt: skip
    given = [one.replace("{new}", new) for one in arguments]
    assert said in cli(*REPLAY, "--topic", old, *given, code=code).err
    assert rows(client, new) == {}


def test_no_broker_and_no_archive(cli: CommandLine, old: str, new: str, tmp_path: Path) -> None:
    asked = (*REPLAY, "--topic", old, "--to-topic", new, "-y")
    cli("--url", f"ternmq://127.0.0.1:{free_port()}", *asked, code=3)
    assert "no table archive" in cli(*asked, "--from", tmp_path / "none", code=1).err


def test_what_is_not_there(cli: CommandLine, old: str, new: str) -> None:
    ended = cli(*REPLAY, "--topic", old, "--key", "none", "--to-topic", new, "-y")
    assert "no such message is in the archive" in ended.err
    for more in ((), ("--dry-run",), ("--json",)):
        ended = cli(*REPLAY, "--topic", f"x{old}", "--to-topic", new, "-y", *more, code=4)
        said = f"the archive has no message of topic 'x{old}': did you mean {old}?"
        assert ended.err == f"ternmq: {said}\n"
        assert ended.out == ""
    said = cli(*REPLAY, "--topic", "another", "--to-group", "g", "-y", code=4).err
    assert f"it has messages of {old}" in said
