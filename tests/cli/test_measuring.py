from __future__ import annotations

import re
import shlex
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.black_box.process import BrokerProcess, free_port
from tests.cli.conftest import CommandLine


def test_doctor(cli: CommandLine, tmp_path: Path) -> None:
    told = cli("doctor", "--data", tmp_path, "--json").json
    names = [one["name"] for one in told]
    assert names == [
        "python", "uvloop", "files", "space", "disk sync", "clock", "broker", "broker time", "sends"
    ]  # fmt: skip
    assert {one["state"] for one in told} <= {"ok", "warn"}
    assert "fdatasync" in told[4]["said"]
    assert cli.url in told[6]["said"]
    assert told[7]["said"].endswith("; broker time follows the clock")
    assert told[8]["said"].startswith("accepted; ")
    assert [one.name for one in tmp_path.iterdir() if one.is_file()] == []
    assert len(cli("doctor", "--data", tmp_path).out.splitlines()) == 9


def test_doctor_finds_what_is_wrong(cli: CommandLine, tmp_path: Path) -> None:
    url = f"ternmq://127.0.0.1:{free_port()}"
    ended = cli("doctor", "--data", tmp_path, "--url", url, "--json", code=8)
    assert ended.json[-1]["state"] == "fail"
    assert ended.err == "ternmq: checks that failed: broker\n"


def test_doctor_where_nobody_says_that_there_is_a_broker(
    cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TERNMQ_URL")
    monkeypatch.setattr("ternmq.client.connection.connecting.DEFAULT_URL", "ternmq://127.0.0.1:1")
    assert cli("doctor", "--data", tmp_path, "--json").json[-1]["state"] == "warn"


def test_doctor_in_a_folder_that_cannot_be_written(cli: CommandLine) -> None:
    ended = cli("doctor", "--data", "/proc", "--json", code=8)
    (disk,) = [one for one in ended.json if one["name"] == "disk sync"]
    assert "--data" in disk["said"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["send", "--duration", "200ms", "--in-flight", "8"],
        ["consume", "--count", "300", "--batch", "100"],
        ["latency", "--duration", "200ms", "--rate", "100"],
    ],
)
def test_benches(cli: CommandLine, arguments: list[str]) -> None:
    told = cli("bench", *arguments, "--size", "100B", "--json").json
    assert told["messages"] > 0
    assert told["messages_per_s"] > 0
    assert told["body_bytes"] == 100
    times = told["times"]
    assert 0 < times["p50_ms"] <= times["p90_ms"] <= times["p99_ms"] <= times["longest_ms"]
    assert "neither the limit of the broker" in told["note"]
    said = cli("bench", *arguments)
    assert "p99" in said.out
    assert "neither the limit of the broker" in said.err
    # What was made for it is gone.
    assert "bench-" not in cli("topic", "list").out


def test_a_bench_on_a_topic_that_is_there(cli: CommandLine, topic: str) -> None:
    cli("bench", "consume", "--topic", topic, code=4)
    cli("topic", "create", topic)
    cli("bench", "consume", "--topic", topic, "--count", 10, "--size", "10B")
    (row,) = [row for row in cli("topic", "list").rows if row[0] == topic]
    assert row[5] == "10"
    assert cli("group", "list", topic).rows == []


def test_bench_says_that_it_has_no_ordering_keys(cli: CommandLine, topic: str) -> None:
    cli("topic", "create", topic, "--ordered")
    for what in ("send", "consume", "latency"):
        said = cli("bench", what, "--topic", topic, code=2).err
        assert f"topic '{topic}' is ordered, and bench sends no ordering keys" in said
        assert "--ordering-key" not in said


def test_a_bench_without_the_rights_names_grants_for_every_run(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with BrokerProcess("serve", tmp_path, segment="4MiB") as guarded:
        token = (guarded.data / "admin.token").read_text(encoding="ascii").strip()
        monkeypatch.setenv("TERNMQ_URL", guarded.url)
        admin = ("--app", "admin", "--token", token)
        cli("topic", "create", "orders", *admin)
        shop = (
            "--app",
            "shop",
            "--token",
            cli("app", "create", "shop", "--grant", "produce:orders", *admin).out.strip(),
        )
        for bench, lacking in (
            (("send", "--duration", "50ms"), ["manage:bench-*", "produce:bench-*"]),
            (("consume", "--count", 10), ["consume:bench-*"]),
            (
                ("consume", "--count", 10, "--topic", "orders"),
                ["consume:orders:bench-*", "manage:orders:bench-*"],
            ),
        ):
            said = cli("bench", *bench, *shop, code=5).err
            told = re.search(r"`ternmq (app set shop .*)`", said)
            assert told is not None, said
            assert re.findall("--grant '([^']*)'", told[1]) == lacking
            cli(*shlex.split(told[1]), *admin)
            cli("bench", *bench, *shop)
        cli("app", "set", "shop", "--deny", "manage:bench-*", *admin)
        said = cli("bench", "send", *shop, code=5).err
        assert "app 'shop' is denied to manage topic 'bench-*'" in said


GIB = 1 << 30


@pytest.mark.parametrize(
    ("free", "total", "state", "wanted"),
    [
        (GIB, 100 * GIB, "ok", ""),
        (GIB - 1, 100 * GIB, "warn", "1GiB"),
        (GIB // 4, 100 * GIB, "warn", "1GiB"),
        (GIB // 4 - 1, 100 * GIB, "fail", "1GiB"),
        (GIB // 4, GIB, "ok", ""),  # a small disk: a quarter of it is enough
        (GIB // 4 - 1, GIB, "warn", "256MiB"),
        (GIB // 16 - 1, GIB, "fail", "256MiB"),
    ],
)
def test_how_much_space_doctor_wants(
    cli: CommandLine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    free: int,
    total: int,
    state: str,
    wanted: str,
) -> None:
    usage = SimpleNamespace(total=total, used=total - free, free=free)
    monkeypatch.setattr("ternmq.cli.broker.doctor.shutil.disk_usage", lambda _folder: usage)
    code = 8 if state == "fail" else 0
    told = cli("doctor", "--data", tmp_path, "--json", code=code).json
    (space,) = [one for one in told if one["name"] == "space"]
    assert space["state"] == state
    assert str(tmp_path) in space["said"]
    tail = f"; a broker needs {wanted} to work without shortage" if wanted else str(tmp_path)
    assert space["said"].endswith(tail)
