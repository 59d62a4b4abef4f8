"""``ternmq inbox``: what is remembered, and what is over its time, on three databases."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from ternmq.reliable.database.prepare import prepare
from ternmq.reliable.inbox.entry import Entry, consumer_of
from ternmq.reliable.inbox.table import InboxTable
from ternmq.reliable.libraries.alchemy import AlchemyDatabase
from tests.cli.conftest import CommandLine
from tests.cli.test_outbox import name_of
from tests.databases import Servers, run

DAY_MS = 24 * 3_600_000


@dataclass
class Shop:
    """A database with an inbox."""

    url: str
    database: AlchemyDatabase

    def remember(
        self, *ids: int, keep_ms: int = DAY_MS, topic: str = "orders", group: str = "billing"
    ) -> None:
        """Insert rows, as handlers do; of a negative ``keep_ms``, their time is over."""
        table = InboxTable(self.database.dialect)
        with self.database.writing() as work:
            for id_ in ids:
                entry = Entry(consumer_of(topic, group), b"%d" % id_)
                assert table.enter(work, entry, keep_ms, 1.0)

    def rows(self) -> int:
        [[count]] = run(self.url, "SELECT count(*) FROM ternmq_inbox")
        return int(str(count))


@pytest.fixture
def shop(database: str) -> Iterator[Shop]:
    opened = AlchemyDatabase(database)
    prepare(opened)
    yield Shop(database, opened)
    opened.close()


def test_status_counts_rows_by_topic_and_group(shop: Shop, cli: CommandLine) -> None:
    at = ("--database", shop.url)
    assert cli("inbox", "status", *at).out.splitlines()[1:] == [
        "rows      0", "over      0", "cleaned   never",
    ]  # fmt: skip
    shop.remember(1, 2)
    shop.remember(3, keep_ms=-60_000)
    shop.remember(1, group="stock")
    shop.remember(1, topic="payments", keep_ms=2 * DAY_MS)
    (told,) = cli("inbox", "status", *at, "--json").lines
    assert (told["database"], told["rows"], told["over"]) == (name_of(shop.url), 5, 1)
    assert told["cleaned_at"] is None
    found = [(one["topic"], one["group"], one["rows"], one["over"]) for one in told["consumers"]]
    assert found == [
        ("orders", "billing", 3, 1), ("orders", "stock", 1, 0), ("payments", "billing", 1, 0),
    ]  # fmt: skip
    over, day, days = [one["kept_until"] for one in told["consumers"]]
    assert over < day < days
    lines = cli("inbox", "status", *at).out.splitlines()
    assert lines[1:3] == ["rows      5", "over      1"]
    assert lines[5].split()[:2] == ["topic", "group"]
    assert lines[6].split() == ["orders", "billing", "3", "1", over]


def test_status_says_when_rows_were_removed_last(shop: Shop, cli: CommandLine) -> None:
    tick = {"sqlite": "CAST(strftime('%s', 'now') AS integer) / 60",
            "postgresql": "CAST(extract(epoch FROM now()) AS bigint) / 60",
            "mysql": "UNIX_TIMESTAMP() DIV 60"}[shop.database.dialect.name]  # fmt: skip
    run(shop.url, f"INSERT INTO ternmq_lease (name, tick) VALUES ('task:ternmq-inbox', {tick} - 5)")
    (told,) = cli("inbox", "status", "--database", shop.url, "--json").lines
    assert told["cleaned_at"].endswith(":00.000Z")
    [line] = [one for one in cli("inbox", "status", "--database", shop.url).out.splitlines()
              if one.startswith("cleaned")]  # fmt: skip
    assert line.split()[1][:2] in {"5m", "6m"}
    assert line.endswith(" ago")


def test_clean_removes_what_is_over_its_time(shop: Shop, cli: CommandLine) -> None:
    at = ("--database", shop.url)
    name = name_of(shop.url)
    shop.remember(1, 2)
    shop.remember(*range(10, 1_211), keep_ms=-1000)  # more than one transaction removes
    told = cli("inbox", "clean", *at, "--dry-run").out
    assert told == f"{name}: 1,201 rows are over, and would be removed\n"
    (plain,) = cli("inbox", "clean", *at, "--dry-run", "--json").lines
    assert plain == {"database": name, "removed": 0, "over": 1201}
    assert shop.rows() == 1_203
    assert cli("inbox", "clean", *at).out == f"{name}: removed 1,201 rows\n"
    assert shop.rows() == 2
    (plain,) = cli("inbox", "clean", *at, "--json").lines
    assert plain == {"database": name, "removed": 0, "over": 0}
    assert shop.rows() == 2


def test_several_databases(servers: Servers, cli: CommandLine, tmp_path: Path) -> None:
    urls = [servers.new("sqlite", tmp_path) for _ in range(2)]
    for url in urls:
        cli("outbox", "prepare", "--database", url)
    both = [word for url in urls for word in ("--database", url)]
    names = [name_of(url) for url in urls]
    assert [one["database"] for one in cli("inbox", "status", *both, "--json").lines] == names
    assert [one.split(": ")[0] for one in cli("inbox", "clean", *both).out.splitlines()] == names
    away = "postgresql://me:hidden@127.0.0.1:1/shop"
    told = cli("inbox", "clean", "--database", away, "--database", urls[0], code=3)
    assert told.out == f"{names[0]}: removed 0 rows\n"
    assert "cannot be reached: " in told.err
    assert told.err.endswith("ternmq: 1 of 2 databases: not cleaned, see above\n")
    assert "hidden" not in told.err


COMMANDS = (("status",), ("clean",), ("clean", "--dry-run"))


@pytest.mark.parametrize("command", COMMANDS)
def test_what_is_refused(
    servers: Servers, cli: CommandLine, tmp_path: Path, command: tuple[str, ...]
) -> None:
    told = cli("inbox", *command, "--database", "me:hidden@nowhere", code=2)
    assert "the URL of a database is like" in told.err
    assert "hidden" not in told.err
    url = servers.new("sqlite", tmp_path)
    assert "there is no file" in cli("inbox", *command, "--database", url, code=4).err
    assert list(tmp_path.glob("*.db")) == []
    sqlite3.connect(url.removeprefix("sqlite:///")).execute("CREATE TABLE x (y)")
    told = cli("inbox", *command, "--database", url, code=1)
    assert "lacks the tables of the inbox" in told.err
    assert "run `ternmq outbox prepare --database URL`" in told.err
    cli("outbox", "prepare", "--database", url)
    cli("inbox", *command, "--database", url)
    run(url, "UPDATE ternmq_schema SET version = 99 WHERE component = 'inbox'")
    told = cli("inbox", *command, "--database", url, code=1)
    assert "version 99" in told.err
