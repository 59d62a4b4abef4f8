"""``ternmq outbox``: databases are prepared, rows are looked at and decided, on three databases."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
import sqlalchemy as sa

import ternmq.sync
from ternmq.reliable import Outbox, ddl
from ternmq.reliable.database.tables import VERSIONS
from tests.black_box.process import BrokerProcess, wait_until
from tests.cli.conftest import CommandLine
from tests.cli.test_escapes import EVIL, PLANTED, in_a_terminal
from tests.databases import Servers, run


@dataclass
class Shop:
    """An application with an outbox that sends nothing with an ordering key: no compensator."""

    client: ternmq.sync.Client
    url: str
    engine: sa.Engine
    outbox: Outbox
    stack: ExitStack

    def write(
        self,
        topic: str,
        bodies: Sequence[object],
        key: str = "k",
        tag: str = "",
        id: str | None = None,  # noqa: A002 - as that of send
    ) -> None:
        """Write rows that wait for a compensator."""
        with self.engine.begin() as connection:
            for body in bodies:
                self.client.send(topic, body, ordering_key=key, tag=tag, id=id, within=connection)

    def compensate(self) -> Outbox:
        """Begin to send; what the broker refuses has failed."""
        outbox = Outbox(self.other(), self.engine, attempts=1, poll=0.02)
        self.stack.enter_context(outbox)
        return outbox

    def other(self) -> ternmq.sync.Client:
        """Return another client: each has one outbox on a database."""
        return self.stack.enter_context(ternmq.sync.connect(self.client.options.url))

    def states(self) -> list[str]:
        """The states of the rows, in order."""
        rows = run(self.url, "SELECT state FROM ternmq_outbox ORDER BY seq")
        return [("sending", "held", "failed", "sent")[int(str(state))] for (state,) in rows]

    def wait_for(self, *states: str) -> None:
        wait_until(lambda: self.states() == list(states), f"rows are {states}")


@pytest.fixture
def shop(database: str, broker: BrokerProcess, cli: CommandLine) -> Iterator[Shop]:
    with ExitStack() as stack:
        client = stack.enter_context(ternmq.sync.connect(broker.url))
        engine = sa.create_engine(database, poolclass=sa.NullPool)
        outbox = stack.enter_context(Outbox(client, engine, compensate=False))
        cli("outbox", "prepare", "--database", database)
        yield Shop(client, database, engine, outbox, stack)


only_sqlite = pytest.mark.parametrize("database", ["sqlite"], indirect=True)
"""For tests that are not about statements."""


def name_of(url: str) -> str:
    return sa.make_url(url).render_as_string()


# -- prepare --------------------------------------------------------------------------------------


@pytest.mark.row("J5e")
def test_one_command_prepares_an_instance(database: str, cli: CommandLine) -> None:
    name = name_of(database)
    told = cli("outbox", "prepare", "--database", database)
    lines = told.out.splitlines()
    if database.startswith("sqlite"):
        assert lines.pop(0) == f"{name}: made the file"
        assert "warning: the file is in journal mode 'delete'" in told.err
    else:
        assert not told.err
    assert lines == [f"{name}: made the tables of {one!r}, version 1" for one in VERSIONS]
    told = cli("outbox", "prepare", "--database", database)
    assert told.out.splitlines() == [
        f"{name}: the tables of {one!r} are there, version 1" for one in VERSIONS
    ]


@pytest.mark.row("J5e")
def test_one_command_prepares_several_instances(
    servers: Servers, cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = servers.new("sqlite", tmp_path), servers.new("sqlite", tmp_path)
    monkeypatch.setenv("SHOP_DATABASE", second)
    words = ("outbox", "prepare", "--database", first, "--database", "env:SHOP_DATABASE")
    told_of = [line.split(": ")[0] for line in cli(*words).out.splitlines()]
    each = 1 + len(VERSIONS)  # the file, and its tables
    assert told_of == [name_of(first)] * each + [name_of(second)] * each
    away = "postgresql://me:hidden@127.0.0.1:1/shop"
    told = cli("outbox", "prepare", "--database", away, "--database", first, code=3)
    assert f"{name_of(first)}: the tables of 'outbox' are there" in told.out
    assert "postgresql://me:***@127.0.0.1:1/shop cannot be reached: " in told.err
    assert told.err.endswith("ternmq: 1 of 2 databases: not prepared, see above\n")
    assert "hidden" not in told.err + told.out


@pytest.mark.parametrize("dialect", ["postgresql", "mysql", "sqlite"])
def test_the_statements_are_printed_without_a_database(dialect: str, cli: CommandLine) -> None:
    url = f"{dialect}://me:hidden@127.0.0.1:1/shop"
    told = cli("outbox", "prepare", "--sql", "--database", url, "--schema", "queue")
    assert told.out == "".join([f"{one};\n" for one in ddl(dialect, "queue")])
    assert "queue" in told.out
    other = "mysql" if dialect == "sqlite" else "sqlite"
    cli("outbox", "prepare", "--sql", "--database", url, "--database", f"{other}:///x", code=2)


def test_what_is_no_database_is_told_without_its_password(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BROKEN", "me:hidden@nowhere")
    monkeypatch.delenv("MISSING", raising=False)
    for url, said in {
        "me:hidden@nowhere": "the URL of a database is like",
        "env:BROKEN": "the URL of a database is like",
        "env:MISSING": "there is no environment variable 'MISSING'",
        "oracle://me:hidden@host/x": "database 'oracle': it is one of postgresql",
        "sqlite://": "in memory",
        "sqlite:///:memory:": "in memory",
    }.items():
        told = cli("outbox", "prepare", "--database", url, code=2)
        assert said in told.err
        assert "hidden" not in told.err
    away = "postgresql://127.0.0.1:1/shop?user=me&password=hidden&connect_timeout=5"
    told = cli("outbox", "status", "--database", away, code=3)
    assert "postgresql://127.0.0.1:1/shop cannot be reached" in told.err
    assert "hidden" not in told.err


def test_a_missing_package_is_named(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "pymysql", None)
    told = cli("outbox", "status", "--database", "mysql://me@127.0.0.1:1/shop", code=2)
    assert "needs pymysql: pip install 'ternmq[mysql]'" in told.err


# -- looks ----------------------------------------------------------------------------------------


def test_a_look_makes_nothing(servers: Servers, cli: CommandLine, tmp_path: Path) -> None:
    url = servers.new("sqlite", tmp_path)
    for command in (("status",), ("list",), ("show", 1), ("resend", 1), ("discard", 1, "--yes")):
        told = cli("outbox", *command, "--database", url, code=4)
        assert "there is no file" in told.err
    assert list(tmp_path.glob("*.db")) == []


def test_a_database_that_is_not_prepared_is_told(database: str, cli: CommandLine) -> None:
    if database.startswith("sqlite"):
        sqlite3.connect(database.removeprefix("sqlite:///")).execute("CREATE TABLE x (y)")
    for command in (("status",), ("list",), ("show", 1), ("resend", 1), ("discard", 1, "--yes")):
        told = cli("outbox", *command, "--database", database, code=1)
        assert "lacks the tables of" in told.err
        assert "run `ternmq outbox prepare --database URL`" in told.err


def test_status_counts_rows_and_names_the_compensator(
    shop: Shop, cli: CommandLine, topic: str
) -> None:
    at = ("--database", shop.url)
    told = cli("outbox", "status", *at)
    assert told.out.splitlines()[1:] == [
        "sending      0", "held         0", "failed       0", "sent         0",
        "compensator  none",
    ]  # fmt: skip
    shop.write(topic, range(3))
    (plain,) = cli("outbox", "status", *at, "--json").lines
    assert plain["database"] == name_of(shop.url)
    assert [plain[one] for one in ("sending", "held", "failed", "sent")] == [3, 0, 0, 0]
    assert 0 <= plain["oldest_s"] < 60
    assert plain["compensator"] is None
    assert "sending      3, the oldest one for " in cli("outbox", "status", *at).out

    shop.client.admin.create_topic(topic, ordered=True)
    outbox = shop.compensate()
    shop.wait_for()
    (plain,) = cli("outbox", "status", *at, "--json").lines
    assert plain["oldest_s"] is None
    assert plain["compensator"]["epoch"] == 1
    assert 0 < plain["compensator"]["left_s"] <= 10
    assert f"compensator  {plain['compensator']['holder']}, epoch 1" in cli(
        "outbox", "status", *at
    ).out  # fmt: skip
    outbox.close()
    (plain,) = cli("outbox", "status", *at, "--json").lines
    assert plain["compensator"] is None
    run(shop.url, "UPDATE ternmq_lease SET holder = 'host:1:x', until_ms = 1")
    assert "none; the lease of host:1:x ended " in cli("outbox", "status", *at).out


@only_sqlite
def test_status_of_several(shop: Shop, cli: CommandLine, servers: Servers, tmp_path: Path) -> None:
    other = servers.new("sqlite", tmp_path)
    cli("outbox", "prepare", "--database", other)
    both = ("--database", shop.url, "--database", other)
    names = [one["database"] for one in cli("outbox", "status", *both, "--json").lines]
    assert names == [name_of(shop.url), name_of(other)]
    told = cli("outbox", "status", *both).out.split("\n\n")
    assert [one.splitlines()[0].split()[1] for one in told if one] == names


def test_rows_are_listed_and_shown(shop: Shop, cli: CommandLine, topic: str) -> None:
    at = ("--database", shop.url)
    assert cli("outbox", "list", *at).err == "the outbox is empty\n"
    shop.client.admin.create_topic(topic, ordered=True)
    shop.write(topic, [{"n": 1}], key="k one", tag="paid", id="first")
    shop.write(f"{topic}-other", [b"\xff\x00raw", "text"], key="x")
    rows = cli("outbox", "list", *at).rows
    assert [(row[0], row[1], row[2], row[4]) for row in rows] == [
        ("1", "sending", "0", topic),
        ("2", "sending", "0", f"{topic}-other"),
        ("3", "sending", "0", f"{topic}-other"),
    ]
    assert rows[0][-2:] == ["k_one", "-"]
    assert len(cli("outbox", "list", *at, "--topic", topic).rows) == 1
    assert cli("outbox", "list", *at, "--state", "failed").err == "the outbox has no such rows\n"
    told = cli("outbox", "list", *at, "--limit", 2, "--json")
    assert [one["seq"] for one in told.lines] == [1, 2]
    assert told.err == "showing the first 2; there are more (--limit)\n"
    assert "there are more" not in cli("outbox", "list", *at, "--limit", 3).err

    plain = cli("outbox", "show", 1, *at, "--json").json
    assert plain["body"] == {"n": 1}
    assert (plain["application_id"], plain["tag"], plain["ordering_key"]) == (
        "first", "paid", "k one",
    )  # fmt: skip
    assert {key: plain[key] for key in told.lines[0]} == told.lines[0]
    out = cli("outbox", "show", 1, *at).out
    assert out.endswith('\n\n{"n":1}\n')
    assert "state           sending" in out
    assert cli("outbox", "show", 3, *at, "--json").json["body"] == "text"
    assert cli("outbox", "show", 2, *at, "--json").json["body_base64"] == "/wByYXc="
    assert cli("outbox", "show", 2, *at).out.endswith("\n\\xff\\x00raw\n")
    assert "no row 9: its message is stored, or was discarded" in cli(
        "outbox", "show", 9, *at, code=4
    ).err  # fmt: skip


@only_sqlite
def test_a_large_body_is_shown(shop: Shop, cli: CommandLine, topic: str) -> None:
    shop.write(topic, ["x" * 200_000])
    plain = cli("outbox", "show", 1, "--database", shop.url, "--json").json
    assert plain["body"] == "x" * 200_000


BODY = "body \x1b]0;owned\x07\x9b31m"


def test_texts_of_others_reach_a_terminal_escaped(
    shop: Shop, environment: dict[str, str], topic: str, cli: CommandLine
) -> None:
    evil = EVIL.replace("\x00", "") if shop.url.startswith("postgresql") else EVIL
    headers = {f"name{EVIL}": f"value{EVIL}"}
    with shop.engine.begin() as connection:
        shop.client.send(
            topic, BODY.encode(), key=f"key{evil}", ordering_key=f"order{evil}",
            tag="tag", headers=headers, id=f"id{EVIL}", within=connection,
        )  # fmt: skip
    with shop.engine.begin() as connection:
        connection.execute(
            sa.text("UPDATE ternmq_outbox SET error = :error, tries = 1, state = 2"),
            {"error": f"error {evil}"},
        )
        connection.execute(
            sa.text("INSERT INTO ternmq_lease (name, holder, until_ms) VALUES (:n, :h, :u)"),
            {"n": "compensator", "h": f"holder{evil}", "u": 2**52},
        )
    shown = 0
    for command in (("list",), ("show", 1), ("status",)):
        seen = in_a_terminal(environment, "outbox", *command, "--database", shop.url)
        assert "Traceback" not in seen
        found = PLANTED.search(seen)
        assert found is None, (command, seen)
        assert "\n$ rm" not in seen
        shown += r"\x1b]0;owned" in seen
    assert shown == 3
    plain = cli("outbox", "show", 1, "--database", shop.url, "--json").json
    assert plain["headers"] == headers
    assert plain["body"] == BODY


# -- decisions ------------------------------------------------------------------------------------


@pytest.fixture
def failed(shop: Shop, topic: str) -> Shop:
    """Three rows of one key and one of another: the first of each failed."""
    shop.client.admin.create_topic(topic, ordered=True, durability="fast")
    shop.write(topic, ["a1", "a2", "a3"], key="a")
    shop.compensate()
    shop.wait_for("failed", "held", "held")
    shop.write(topic, ["b1"], key="b")
    shop.wait_for("failed", "held", "held", "failed")
    return shop


def bodies(shop: Shop, topic: str) -> list[object]:
    return [one.value for one in shop.client.read(topic)]


@only_sqlite
def test_failed_rows_are_listed_with_their_error(
    failed: Shop, cli: CommandLine, topic: str
) -> None:
    rows = cli("outbox", "list", "--database", failed.url, "--state", "failed", "--json").lines
    assert [(one["seq"], one["tries"]) for one in rows] == [(1, 1), (4, 1)]
    assert rows[0]["error"].startswith("TopicNotDurable: ")
    text = cli("outbox", "list", "--database", failed.url, "--state", "failed").out
    assert f"TopicNotDurable: topic '{topic}' is of durability fast" in text


def test_a_row_is_resent_and_those_behind_it_follow(
    failed: Shop, cli: CommandLine, topic: str
) -> None:
    failed.client.admin.change_topic(topic, durability="normal")
    told = cli("outbox", "resend", 1, "--database", failed.url)
    assert told.err == "1 row is sent again\n"
    failed.wait_for("failed")
    assert bodies(failed, topic) == ["a1", "a2", "a3"]


@pytest.mark.parametrize("how", ["--all-failed", "--topic"])
def test_all_failed_rows_are_resent(how: str, failed: Shop, cli: CommandLine, topic: str) -> None:
    failed.client.admin.change_topic(topic, durability="normal")
    words = [how, topic] if how == "--topic" else [how]
    other = cli("outbox", "resend", "--topic", "other", "--database", failed.url, "--json").json
    assert other == {"done": 0, "missing": []}
    told = cli("outbox", "resend", *words, "--database", failed.url, "--json").json
    assert told == {"done": 2, "missing": []}
    failed.wait_for()
    stored = bodies(failed, topic)
    assert sorted(map(str, stored)) == ["a1", "a2", "a3", "b1"]
    assert [one for one in stored if str(one).startswith("a")] == ["a1", "a2", "a3"]


@only_sqlite
def test_a_row_that_is_refused_again_fails_again(
    failed: Shop, cli: CommandLine, topic: str
) -> None:
    cli("outbox", "resend", 1, "--database", failed.url)

    def tried() -> bool:
        (row,) = run(failed.url, "SELECT tries FROM ternmq_outbox WHERE seq = 1")
        return failed.states() == ["failed", "held", "held", "failed"] and row == (1,)

    wait_until(tried, "failed again")
    assert bodies(failed, topic) == []


def test_a_row_is_discarded_and_those_behind_it_follow(
    failed: Shop, cli: CommandLine, topic: str
) -> None:
    failed.client.admin.change_topic(topic, durability="normal")
    at = ("--database", failed.url)
    told = cli("outbox", "discard", 1, *at, code=1)
    assert f"discard 1 row of {name_of(failed.url)}, so that" in told.err
    assert "nothing was changed: add --yes" in told.err
    assert failed.states() == ["failed", "held", "held", "failed"]
    assert cli("outbox", "discard", 1, "--yes", *at).err == "discarded 1 row\n"
    failed.wait_for("failed")
    assert bodies(failed, topic) == ["a2", "a3"]


@only_sqlite
def test_what_is_not_there_or_not_failed_is_told(
    failed: Shop, cli: CommandLine, topic: str
) -> None:
    at = ("--database", failed.url)
    told = cli("outbox", "resend", 2, 99, *at, "--json", code=4)
    assert told.json == {"done": 0, "missing": [2, 99]}
    assert "these rows are not failed: 2, 99" in told.err
    told = cli("outbox", "discard", 98, 99, "--yes", *at, code=4)
    assert "no such rows that are not sent: 98, 99" in told.err
    assert failed.states() == ["failed", "held", "held", "failed"]
    told = cli("outbox", "discard", 4, 99, "--yes", "--json", *at, code=4)
    assert told.json == {"done": 1, "missing": [99]}
    assert failed.states() == ["failed", "held", "held"]
    told = cli("outbox", "resend", *at, code=2)
    assert "give one of rows, --topic and --all-failed" in told.err
    cli("outbox", "resend", 1, "--all-failed", *at, code=2)
    cli("outbox", "resend", 2**63, *at, code=2)


@only_sqlite
def test_a_held_row_may_be_discarded(failed: Shop, cli: CommandLine, topic: str) -> None:
    cli("outbox", "discard", 2, "--yes", "--database", failed.url)
    failed.client.admin.change_topic(topic, durability="normal")
    cli("outbox", "resend", "--all-failed", "--database", failed.url)
    failed.wait_for()
    assert [one for one in bodies(failed, topic) if str(one).startswith("a")] == ["a1", "a3"]


@only_sqlite
def test_rows_that_were_sent_are_kept_and_cannot_be_discarded(
    shop: Shop, cli: CommandLine, topic: str
) -> None:
    shop.client.admin.create_topic(topic, ordered=True)
    shop.write(topic, ["one"])
    shop.stack.enter_context(Outbox(shop.other(), shop.engine, keep_sent=3600, poll=0.02))
    shop.wait_for("sent")
    (plain,) = cli("outbox", "status", "--database", shop.url, "--json").lines
    assert (plain["sent"], plain["sending"]) == (1, 0)
    told = cli("outbox", "discard", 1, "--yes", "--database", shop.url, code=4)
    assert "no such rows that are not sent: 1" in told.err


def test_many_failed_rows_are_resent_in_pages(shop: Shop, cli: CommandLine, topic: str) -> None:
    with shop.engine.begin() as connection, shop.outbox.bound(connection):
        for key in range(550):
            both = [ternmq.Message(n, ordering_key=str(key)) for n in range(2)]
            shop.client.send_many(topic, both)
    run(shop.url, "UPDATE ternmq_outbox SET state = 2, tries = 5, error = 'x'")
    told = cli("outbox", "resend", "--all-failed", "--database", shop.url)
    assert told.err == "1,100 rows are sent again\n"
    (row,) = run(
        shop.url,
        "SELECT count(*) FROM ternmq_outbox WHERE state = 0 AND tries = 0 AND error IS NULL",
    )
    assert row == (1_100,)
    shop.client.admin.create_topic(topic, ordered=True)
    shop.compensate()
    shop.wait_for()
    stored = [(one.ordering_key, one.value) for one in shop.client.read(topic)]
    assert len(stored) == 1_100
    seconds = {key for key, value in stored if value == 1}
    assert len(seconds) == 550
    assert stored.index(("7", 0)) < stored.index(("7", 1))
