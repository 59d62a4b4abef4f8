from __future__ import annotations

import pytest

import ternmq.sync
import ternmq.testing
from tests.cli.conftest import CommandLine


@pytest.fixture
def filled(client: ternmq.sync.Client, topic: str) -> str:
    """Prepare batches of a writer: 1 is committed, 2 rolled back, 3 and 4 are open."""
    client.admin.create_topic(topic)
    client.admin.create_topic(f"{topic}-b")
    one = client.prepare(topic, [b"a", b"b"], writer=topic, batch_id=1)
    client.commit_prepared(topic, 1, one, digest=1)
    client.prepare(topic, [b"a"], writer=topic, batch_id=2)
    client.abort_prepared(topic, 2)
    client.prepare(topic, [b"a"], writer=topic, batch_id=3)
    client.prepare(f"{topic}-b", [b"b", b"c"], writer=topic, batch_id=3)
    client.prepare(topic, [b"a"], writer=topic, batch_id=4)
    return topic


def test_what_is_undecided_is_listed_and_then_the_writers(cli: CommandLine, filled: str) -> None:
    undecided, _, writers = cli("transaction", "list", "--writer", filled).out.partition("\n\n")
    head, *rows = [line.split() for line in undecided.splitlines()]
    assert head == ["writer", "batch", "app", "rows", "size", "opened", "ends", "topics"]
    assert [(row[0], row[1], row[3]) for row in rows] == [(filled, "3", "3"), (filled, "4", "1")]
    assert rows[0][-2:] == [filled, f"{filled}-b"]
    head, row = [line.split() for line in writers.splitlines()]
    assert head == ["writer", "app", "last_active", "batch", "decided", "rows", "decision"]
    assert (row[0], row[3], row[-2:]) == (filled, "2", ["rolled", "back"])
    everything = cli("transaction", "list").out
    assert everything.count(f"\n{filled} ") == 3

    told = cli("transaction", "list", "--writer", filled, "--json").json
    one = told["undecided"][0]
    assert (one["batch"], one["batches"], one["rows"]) == (3, 2, 3)
    assert one["topics"] == [filled, f"{filled}-b"]
    assert one["bytes"] > 0
    assert one["opened_at"] < one["ends_at"]
    (writer,) = told["writers"]
    assert (writer["highest_committed"], writer["decisions"]) == (1, 2)
    assert (writer["newest"]["batch"], writer["newest"]["decision"]) == (2, "rolled back")
    assert told["more"] is False
    some = cli("transaction", "list", "--writer", filled, "-n", 1)
    assert "there are more" in some.err
    assert cli("transaction", "list", "--writer", filled, "-n", 1, "--json").json["more"] is True


def test_what_is_undecided_is_rolled_back_once_somebody_agrees(
    cli: CommandLine, filled: str, client: ternmq.sync.Client
) -> None:
    assert "add --rollback" in cli("transaction", "resolve", filled, 3, "--yes", code=2).err
    assert "add --yes" in cli("transaction", "resolve", filled, 3, "--rollback", code=1).err
    assert len(client.admin.transactions(filled).undecided) == 2
    said = cli("transaction", "resolve", filled, 3, "--rollback", "--yes").err
    assert said == (f"rolled back batch 3 of writer {filled} (3 rows for {filled}, {filled}-b)\n")
    (left,) = client.admin.transactions(filled).undecided
    assert left.batch_id == 4
    again = cli("transaction", "resolve", filled, 3, "--rollback", "--yes", code=4).err
    assert "is not undecided" in again
    assert "(undecided: 4)" in again


def test_what_cannot_be_rolled_back_is_told_in_one_line(
    cli: CommandLine, filled: str, client: ternmq.sync.Client
) -> None:
    def told(writer: str, batch: object, code: int) -> str:
        said = cli("transaction", "resolve", writer, batch, "--rollback", "--yes", code=code).err
        assert said.count("\n") == 1
        return said

    assert f"batch 1 of writer {filled!r} is committed, and cannot be rolled back" in told(
        filled, 1, 1
    )
    assert "never prepared (undecided: 3, 4)" in told(filled, 9, 4)
    assert f"did you mean {filled}?" in told(filled.replace("topic", "topc"), 3, 4)
    assert "`ternmq transaction list` shows them" in told("zzz", 3, 4)
    assert "there is no writer" in told("", 3, 4)
    told(filled, "three", 2)
    told(filled, -1, 2)
    told("w" * 200, 1, 2)
    assert "there is no writer" in cli("transaction", "list", "--writer", "zzz", code=4).err
    assert len(client.admin.transactions(filled).undecided) == 2


def test_a_list_of_nothing_says_so(cli: CommandLine) -> None:
    """It printed the heads of two tables without rows."""
    with ternmq.testing.broker() as empty:
        listed = cli("--url", empty.url, "transaction", "list")
    assert (listed.out, listed.err) == ("", "no transaction is undecided\n")
