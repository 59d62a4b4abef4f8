"""``ternmq sequence``: operators look at orderly sessions, and decide, on three databases."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import sqlalchemy as sa

from ternmq.cli.outbox import sequence
from ternmq.reliable.database.prepare import prepare
from ternmq.reliable.libraries.alchemy import AlchemyDatabase
from ternmq.reliable.modes.numbering import Numbered
from ternmq.reliable.steps.course import Change, Refused, Rules
from ternmq.reliable.steps.item import Item
from ternmq.reliable.steps.store import Store
from ternmq.reliable.steps.table import Consumer, SequenceTable
from tests.cli.conftest import CommandLine
from tests.cli.test_escapes import EVIL
from tests.databases import run

RULES = Rules(wait_ms=1_000, give_up_ms=60_000, on_failure="stop", attempts=1)


@dataclass
class Bank:
    """A database with sessions; no process does their steps."""

    url: str
    database: AlchemyDatabase

    def arrive(
        self, session: str, *numbers: int, size: int = 3, group: str = "bank", body: bytes = b"{}"
    ) -> None:
        """Store items, as the consumer does."""
        table = SequenceTable(self.database.dialect)
        store = Store(self.database, table, Consumer("transfers", group), RULES, lambda: 0)
        for number in numbers:
            item = Item(number, f"{session}.{number}", "", "", "application/json", {}, body)
            told = store.arrive(Numbered(session, number, size), item)
            assert isinstance(told, Change), told

    def set(self, session: str, **values: object) -> None:
        """Change the row of a session, as if its consumer had."""
        engine = sa.create_engine(self.url, poolclass=sa.NullPool)
        changes = ", ".join([f"{name} = :{name}" for name in values])
        with engine.begin() as connection:
            connection.execute(
                sa.text(f"UPDATE ternmq_sequence SET {changes} WHERE session = :session"),
                {**values, "session": session.encode()},
            )

    def wake_ups(self) -> int:
        """Return how many wake-ups the outbox has."""
        [[count]] = run(self.url, "SELECT count(*) FROM ternmq_outbox")
        return int(str(count))


@pytest.fixture
def bank(database: str) -> Iterator[Bank]:
    opened = AlchemyDatabase(database)
    prepare(opened)
    yield Bank(database, opened)
    opened.close()


def test_operators_find_what_needs_them(bank: Bank, cli: CommandLine) -> None:
    told = cli("sequence", "list", "--database", bank.url)
    assert "no session needs an operator" in told.out + told.err
    bank.arrive("waits", 1)
    bank.arrive("gone", 1, 3)
    bank.arrive("stuck", 1, 2, 3)
    bank.set("gone", state=6, next_ms=1_000)
    bank.set("stuck", state=5, step=1, tries=1, error="ValueError: no money", next_ms=2_000)
    lines = cli("sequence", "list", "--database", bank.url).out.splitlines()
    assert [line.split()[0] for line in lines] == ["session", "gone", "stuck"]
    assert lines[1].split()[1:3] == ["incomplete", "0/3"]
    assert lines[2].split()[1:3] == ["stopped", "1/3"]
    assert "no money" in lines[2]
    told = cli("sequence", "list", "--database", bank.url, "--all", "--json")
    plain = {one["session"]: one for one in map(json.loads, told.out.splitlines())}
    assert plain["gone"]["missing"] == [2]
    assert plain["waits"]["missing"] == [2, 3]
    assert plain["waits"]["state"] == "collecting"
    assert plain["stuck"]["error"] == "ValueError: no money"
    assert (plain["stuck"]["done"], plain["stuck"]["size"]) == (1, 3)
    told = cli("sequence", "list", "--database", bank.url, "--state", "collecting")
    assert [line.split()[0] for line in told.out.splitlines()] == ["session", "waits"]
    told = cli("sequence", "list", "--database", bank.url, "--all", "-n", 1)
    assert len(told.out.splitlines()) == 2
    assert "there are more" in told.err


def test_missing_messages_are_listed_by_number(bank: Bank, cli: CommandLine) -> None:
    bank.arrive("few", 2, size=4)
    bank.arrive("many", 1, size=100)
    listed = cli("sequence", "list", "--database", bank.url, "--all").out.splitlines()
    place = listed[0].split().index("missing")
    cells = {line.split()[0]: line.split()[place] for line in listed[1:]}
    assert cells["few"] == "1,3,4"
    shown = [str(number) for number in range(2, 2 + sequence._MOST_MISSING)]
    assert cells["many"] == ",".join([*shown, f"+{99 - sequence._MOST_MISSING}"])
    told = cli("sequence", "show", "few", "--database", bank.url)
    assert "1, 3, 4" in told.out


def test_sessions_of_a_topic_or_a_group(bank: Bank, cli: CommandLine) -> None:
    bank.arrive("a", 1, group="bank")
    bank.arrive("a", 1, group="other")
    for options, groups in (
        (("--topic", "transfers"), ["bank", "other"]),
        (("--group", "other"), ["other"]),
        (("--topic", "transfers", "--group", "bank"), ["bank"]),
        (("--topic", "transfer_"), []),
        (("--group", "ther"), []),
    ):
        told = cli("sequence", "list", "--database", bank.url, "--all", "--json", *options)
        found = [json.loads(line)["group"] for line in told.out.splitlines()]
        assert sorted(found) == groups
    told = cli("sequence", "show", "a", "--database", bank.url, code=2)
    assert "add --topic and --group" in told.err
    told = cli("sequence", "show", "a", "--database", bank.url, "--group", "other", "--json")
    assert json.loads(told.out)["group"] == "other"


def test_a_session_is_shown_with_its_messages(bank: Bank, cli: CommandLine) -> None:
    bank.arrive("stuck", 1, 2, 3, body=b'{"debit": 5}')
    bank.set("stuck", state=5, step=1, tries=2, error="no money")
    told = cli("sequence", "show", "stuck", "--database", bank.url)
    assert "steps done" in told.out
    assert "1 of 3" in told.out
    assert '{"debit": 5}' in told.out
    plain = json.loads(cli("sequence", "show", "stuck", "--database", bank.url, "--json").out)
    assert [(one["number"], one["done"]) for one in plain["items"]] == [
        (1, True), (2, False), (3, False),
    ]  # fmt: skip
    assert plain["items"][0]["body"] == {"debit": 5}
    assert plain["tries"] == 2
    told = cli("sequence", "show", "nobody", "--database", bank.url, code=4)
    assert "there is no session nobody" in told.err


def test_resume_skip_and_cancel(bank: Bank, cli: CommandLine) -> None:
    bank.arrive("a", 1, 2, 3)
    bank.set("a", state=5, step=1, error="no money")
    before = bank.wake_ups()
    assert "session a is running" in cli("sequence", "resume", "a", "--database", bank.url).err
    assert bank.wake_ups() == before + 1  # whichever process has an outbox sends it
    told = cli("sequence", "resume", "a", "--database", bank.url, code=1)
    assert "it is running: only a session that stopped is resumed" in told.err
    told = cli("sequence", "skip", "a", "--database", bank.url, "--yes", code=1)
    assert "only a step that failed" in told.err
    bank.set("a", state=5)
    told = cli("sequence", "skip", "a", "--database", bank.url, code=1)
    assert "nothing was changed: add --yes" in told.err
    told = cli("sequence", "skip", "a", "--database", bank.url, "--yes", "--json")
    assert json.loads(told.out) == {"session": "a", "state": "running"}
    bank.set("a", state=5)
    told = cli("sequence", "cancel", "a", "--undo", "--database", bank.url, "--yes")
    assert "session a is undoing" in told.err
    told = cli("sequence", "cancel", "a", "--database", bank.url, "--yes")
    assert "session a is cancelled" in told.err
    told = cli("sequence", "cancel", "a", "--database", bank.url, "--yes", code=1)
    assert "it is cancelled already" in told.err
    assert bank.wake_ups() == before + 3


def test_texts_of_others_are_escaped(bank: Bank, cli: CommandLine) -> None:
    name = EVIL.replace("\0", "")  # which PostgreSQL cannot store
    bank.arrive(name, 1)
    for words in (("list", "--all"), ("show", name), ("cancel", name, "--yes")):
        told = cli("sequence", *words, "--database", bank.url)
        assert "\x1b" not in told.out + told.err


def test_refused_items_change_nothing(bank: Bank) -> None:
    bank.arrive("a", 2)
    table = SequenceTable(bank.database.dialect)
    store = Store(bank.database, table, Consumer("transfers", "bank"), RULES, lambda: 0)
    before = run(bank.url, "SELECT * FROM ternmq_sequence")
    for place, body in ((Numbered("a", 2, 3), b"[]"), (Numbered("a", 1, 4), b"{}")):
        item = Item(place.number, "x", "", "", "application/json", {}, body)
        assert isinstance(store.arrive(place, item), Refused)
    same = Item(2, "x", "", "", "application/json", {}, b"{}")
    assert store.arrive(Numbered("a", 2, 3), same) is None
    assert run(bank.url, "SELECT * FROM ternmq_sequence") == before
