from __future__ import annotations

import re

import ternmq.sync
from tests.cli.conftest import CommandLine


def test_status(cli: CommandLine, topic: str) -> None:
    cli("send", topic, "x")
    shown = cli("broker", "status").out
    assert cli.url in shown
    assert re.search(r"stored +[\d,]+ messages? since the start", shown)
    told = cli("broker", "status", "--json").json
    assert told["epoch"] >= 1
    assert told["metrics"]["ternmq_messages_sent_total"] >= 1
    lines = cli("broker", "status", "--metrics").out.splitlines()
    assert any(line.startswith("ternmq_connections ") for line in lines)


def test_messages_of_transactions_are_stored_messages(
    cli: CommandLine, topic: str, client: ternmq.sync.Client
) -> None:
    def stored() -> int:
        found = re.search(r"stored +([\d,]+) message", cli("broker", "status").out)
        assert found is not None
        return int(found[1].replace(",", ""))

    client.admin.create_topic(topic)
    before = stored()
    tokens = client.prepare(topic, ["1", "2", "3", "4"], writer="w", batch_id=1)
    assert stored() == before
    client.commit_prepared("w", 1, tokens, digest=1)
    assert stored() == before + 4


def test_clients(cli: CommandLine, client: ternmq.sync.Client) -> None:
    client.admin.status()
    rows = cli("client", "list").rows
    assert {row[5] for row in rows} <= {"connected", "away"}
    assert all("ternmq-python" in row[7] for row in rows)
    told = cli("client", "list", "--json").json
    assert all(one["since"].endswith("Z") and one["pid"] > 0 for one in told)


def test_top_prints_tables_where_there_is_no_terminal(cli: CommandLine, topic: str) -> None:
    cli("send", topic, "x", "y")
    cli("group", "create", topic, "billing")
    out = cli("top", "--interval", "50ms").out
    assert out.count("broker ") == 1
    assert "stored" in out
    (row,) = [line.split() for line in out.splitlines() if line.startswith(f"{topic} ")
              and "billing" not in line]  # fmt: skip
    assert row[:3] == [topic, "1", "2"]
    (row,) = [line.split() for line in out.splitlines() if f"{topic} " in line
              and "billing" in line]  # fmt: skip
    assert row[:3] == [topic, "billing", "2"]


def test_top_as_a_stream(cli: CommandLine, topic: str) -> None:
    cli("send", topic, "x")
    first, second = cli("top", "--interval", "50ms", "--count", 2, "--json").lines
    assert first["rates"] == {}
    assert second["rates"]["stored_per_s"] == 0
    assert topic in {one["topic"] for one in second["topics"]}
