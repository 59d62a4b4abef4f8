"""``ternmq transaction`` and transactions with check-back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NoReturn

import pytest

import ternmq
import ternmq.sync
from tests.cli.conftest import CommandLine

pytestmark = pytest.mark.row("J0e", "J0i")


@pytest.fixture
def group(topic: str, cli: CommandLine) -> Iterator[str]:
    """A producer group of this test's own, whose checker never knows."""
    with ternmq.sync.connect(cli.url) as checking:
        checking.checker(topic)(lambda tx: ternmq.Decision.UNKNOWN)
        checking.admin.topics()
        yield topic


def fail() -> NoReturn:
    raise ZeroDivisionError


def left(client: ternmq.sync.Client, group: str, query_id: str = "") -> str:
    """Leave a transaction undecided; return its id."""
    tx = client.transaction(group, query_id=query_id, on_error="check", check_after=3600)
    try:
        with tx:
            tx.send(group, b"paid", key="k")
            fail()
    except ZeroDivisionError:
        return tx.id


def test_undecided_ones_are_listed_and_shown(
    cli: CommandLine, client: ternmq.sync.Client, group: str
) -> None:
    first, second = left(client, group, "order-7"), left(client, group)
    out = cli("transaction", "list", "--group", group).out
    head, *rows = [line.split() for line in out.splitlines()]
    assert head[:3] == ["id", "group", "query_id"]
    assert [row[0] for row in rows] == [first, second]
    (told,) = cli("transaction", "list", "--query-id", "order-7", "--json").json["checked"]
    assert (told["id"], told["state"], told["rows"]) == (first, "undecided", 1)
    out = cli("transaction", "list").out
    assert first in out
    assert all(len(table.splitlines()) > 1 for table in out.split("\n\n")), "no empty table"
    shown = cli("transaction", "show", first).out
    assert "order-7" in shown
    assert "undecided" in shown
    assert cli("transaction", "show", first, "--json").json["group"] == group


def test_a_list_without_transactions_names_what_was_asked_for(
    cli: CommandLine, client: ternmq.sync.Client, group: str
) -> None:
    cli("transaction", "resolve", left(client, group), "--rollback", "--yes")
    listed = cli("transaction", "list", "--group", group)
    assert listed.err == f"no undecided transaction of producer group {group}\n"
    listed = cli("transaction", "list", "--group", group, "--query-id", "order-9")
    assert listed.err.endswith(f" of producer group {group} with query id order-9\n")
    assert cli("transaction", "list", "--group", group, "--json").json["checked"] == []
    said = cli("transaction", "list", "--group", f"{group}-", code=4).err
    assert f"did you mean {group}?" in said


def test_a_list_of_any_length(cli: CommandLine, client: ternmq.sync.Client, group: str) -> None:
    id_ = left(client, group)
    for most in (10_000, 10**18):
        listed = cli("transaction", "list", "--group", group, "-n", most, "--json").json
        assert [one["id"] for one in listed["checked"]] == [id_]
    assert "--query-id is empty" in cli("transaction", "list", "--query-id", "", code=2).err
    assert "a b" in cli("transaction", "list", "--group", "a b", code=2).err
    cli("transaction", "resolve", id_, "--rollback", "--yes")


def test_an_operator_decides(cli: CommandLine, client: ternmq.sync.Client, group: str) -> None:
    one, two = left(client, group), left(client, group)
    assert "one of --commit and --rollback" in cli("transaction", "resolve", one, code=2).err
    assert "add --yes" in cli("transaction", "resolve", one, "--commit", code=1).err
    assert cli("transaction", "resolve", one, "--commit", "--yes").err == (
        f"committed transaction {one}\n"
    )
    assert "already" in cli("transaction", "resolve", one, "--commit", "--yes").err
    said = cli("transaction", "resolve", one, "--rollback", "--yes", code=1).err
    assert "was committed" in said
    cli("transaction", "resolve", two, "--roll-back", "--yes")
    assert cli("transaction", "show", two, "--json").json["state"] == "rolled-back"
    assert cli("transaction", "show", one, "--json").json["decided_by"] == "client"
    assert [one.body for one in client.pull(group, group="g", wait=5)] == [b"paid"]


def test_policies(cli: CommandLine, client: ternmq.sync.Client, group: str) -> None:
    id_ = left(client, group)
    assert group in cli("transaction", "policy").out
    told = cli("transaction", "policy", group, "--json").json
    assert (told["attempts"], told["then"], told["checkers"], told["undecided"]) == (
        15, "park", 1, 1,
    )  # fmt: skip
    cli("transaction", "policy", group, "--attempts", 3, "--then", "roll-back", "--cap", "5m")
    told = cli("transaction", "policy", group, "--json").json
    assert (told["attempts"], told["then"], told["cap_s"], told["first_s"]) == (
        3, "roll-back", 300, 60,
    )  # fmt: skip
    assert "undecided" in cli("transaction", "policy", group, "--delete", "--yes", code=2).err
    cli("transaction", "check", id_)
    cli("transaction", "resolve", id_, "--rollback", "--yes")
    cli("transaction", "policy", group, "--delete", "--yes")
    assert "no producer group" in cli("transaction", "policy", group, code=4).err


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("show", "t-ffffff"), 4, "no transaction t-ffffff"),
        (("show", "nonsense"), 2, "looks like 't-1f3'"),
        (("check", "t-0"), 2, "must be 1 or more"),
        (("resolve", "t-ffffff", "--commit", "--yes"), 4, "no transaction"),
        (("policy", "--attempts", "3"), 2, "name the producer group"),
        (("policy", "x", "--attempts", "0"), 2, "attempts"),
        (("policy", "x", "--first", "2h"), 2, "must be 1 s to 1 h, not 7200 s"),
        (("policy", "x", "--first", "0s"), 2, "must be 1 s to 1 h, not 0 s"),
        (("policy", "x", "--cap", "30s"), 2, "must be at least first (60 s), and at most a day"),
        (("policy", "x", "--give-up", "0s"), 2, "must be at least first (60 s)"),
        (("policy", "x", "--jitter", "1"), 2, "0<=x<1"),
        (("list", "--group", "no-group"), 4, "there is no producer group 'no-group'"),
        (("list", "--group", "no-group", "--json"), 4, "there is no producer group 'no-group'"),
        (("list", "--group", "g", "--writer", "w"), 2, "not both"),
    ],
)
def test_what_is_wrong_is_told_in_one_line(
    cli: CommandLine, arguments: tuple[str, ...], code: int, text: str
) -> None:
    said = cli("transaction", *arguments, code=code).err
    assert text in said, said
    assert "Traceback" not in said
