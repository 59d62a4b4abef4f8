from __future__ import annotations

import re
from typing import Any

import ternmq.sync
from tests.black_box.process import wait_until
from tests.cli.conftest import CommandLine, Processes


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
    assert all((row[5] == "connected") == (row[6] == "-") for row in rows)
    # Another test may have left a client that says other things of itself, and is away.
    connected = [row for row in rows if row[5] == "connected"]
    assert all(any("ternmq-python" in cell for cell in row) for row in connected)
    told = cli("client", "list", "--json").json
    assert all(one["since"].endswith("Z") for one in told)
    assert all(one["pid"] > 0 for one in told if one["connected"])
    assert all(one["connected"] == (one["away_since"] is None) for one in told)
    assert any(one["language"].startswith("python") for one in told)


def test_a_client_without_a_connection_is_away_since_it_lost_it(
    cli: CommandLine, processes: Processes, topic: str
) -> None:
    def found(*options: str) -> list[dict[str, Any]]:
        listed: list[dict[str, Any]] = cli("client", "list", "lost-shop", *options, "--json").json
        return listed

    consumer = processes.start("consume", topic, "--group", "g", "--app", "lost-shop")
    try:
        cli("send", topic, "x")
        assert consumer.stdout is not None
        consumer.stdout.readline()
        (here,) = found("--topic", topic)
        assert (here["connected"], here["away_since"], here["topics"]) == (True, None, [topic])
        assert found("--away") == found("--topic", f"not-{topic}") == []
        cli("client", "list", "--topic", topic, "--away", code=2)
    finally:
        consumer.kill()
        consumer.communicate()
    wait_until(lambda: bool(found("--away")), "the broker notices")
    (gone,) = found("--away")
    assert gone["session"] == here["session"]
    assert gone["away_since"] > gone["since"] == here["since"]
    (row,) = cli("client", "list", "lost-shop").rows
    assert row[5] == "away"
    assert row[6].endswith("s")


def test_a_list_of_no_clients_is_not_an_error(cli: CommandLine) -> None:
    assert cli("client", "list", "nobody").err == "no such client\n"
    assert cli("client", "list", "nobody", "--json").json == []


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
