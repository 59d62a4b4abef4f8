"""``ternmq pipeline``: the jobs, and what is done to tables."""

from __future__ import annotations

import json
import signal
import sys
import tarfile
import urllib.request
from pathlib import Path

import pytest

pytest.importorskip("deltalake", reason="needs the extra spark")

import ternmq.sync
from ternmq.cli.pipeline.priority import Priority
from ternmq.cli.reach import archived
from tests.black_box.process import BrokerProcess, free_port
from tests.cli.conftest import CommandLine, Processes

RUN = ("pipeline", "run", "--engine", "local")


@pytest.fixture
def tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]) -> Path:
    folder = tmp_path / "tables"
    monkeypatch.setenv(archived.TABLES, str(folder))
    environment[archived.TABLES] = str(folder)
    monkeypatch.delenv("TERNMQ_TOKEN", raising=False)
    return folder


@pytest.fixture
def sent(client: ternmq.sync.Client, topic: str) -> str:
    client.admin.create_topic(topic)
    for n in range(10):
        client.send(topic, b"body %d" % n, key=f"k{n % 2}", id=f"own-{n}")
    return topic


def only(topic: str) -> tuple[str, ...]:
    return (*RUN, "--once", "--set", f"archive.topics={topic}")


@pytest.mark.row("R6")
def test_once_and_once_more(cli: CommandLine, tables: Path, sent: str) -> None:
    first = cli(*only(sent), "--json")
    (done,) = first.lines
    assert done["jobs"][0]["job"] == "archive"
    assert done["jobs"][0]["rows"] == 10
    assert done["stopped"] is False
    (again,) = cli(*only(sent), "--json").lines
    assert again["jobs"][0]["rows"] == 0
    assert "archive 0 rows" in cli(*only(sent)).out


@pytest.mark.row("R15")
def test_how_far_a_job_is_behind_is_seen_as_that_of_a_group(
    cli: CommandLine, client: ternmq.sync.Client, tables: Path, sent: str
) -> None:
    cli(*only(sent))
    client.send(sent, b"one more")
    lags = cli("group", "lag", sent, "--json").lines
    assert [(one["group"], one["lag"]) for one in lags] == [("spark.archive", 1)]


@pytest.mark.row("R15")
def test_a_job_that_reads_the_journal_holds_it_and_lags_in_bytes(
    cli: CommandLine, client: ternmq.sync.Client, tables: Path, sent: str
) -> None:
    def lag() -> tuple[int, int]:
        lines = cli("group", "lag", "--json").lines
        (found,) = [one for one in lines if one.get("hold") == "spark.trace"]
        return found["position"], found["lag_bytes"]

    cli(*RUN, "--once", "--jobs", "trace")
    position, behind = lag()
    for _ in range(3):
        client.send(sent, b"x" * 10_000)
    assert lag()[0] == position
    assert lag()[1] >= behind + 30_000
    cli(*RUN, "--once", "--jobs", "trace")
    assert lag()[0] > position
    assert lag()[1] < 30_000
    told = cli("pipeline", "status", "--json").json
    assert "spark.trace" in {one["job"] for one in told["lag"]}
    (trace,) = [one for one in told["tables"] if one["table"] == "trace"]
    assert trace["rows"] >= 13
    assert trace["position"] is not None


def test_only_the_jobs_that_are_named(cli: CommandLine, tables: Path, sent: str) -> None:
    (done,) = cli(*RUN, "--once", "--jobs", "compaction", "--json").lines
    assert [one["job"] for one in done["jobs"]] == ["compaction"]
    assert not (tables / "archive").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--once", "--jobs", "archiv"), "there is no job 'archiv'"),
        (("--once", "--jobs", ""), "there is no job ''"),
        (("--once", "--set", "archive.pass_mb=x"), "archive.pass_mb='x': a whole number"),
        (("--once", "--set", "archive=1"), "'archive' is not JOB.NAME=VALUE"),
        (("--once", "--set", "nope.x=1"), "'nope', but this job is not run"),
        (("--once", "--every", "10s"), "give only one of --once and --every"),
        ((), "give one of --once and --every"),
        (("--once", "--health-port", "x"), "--health-port 'x'"),
        (("--once", "--master", "local[2]"), "--master and --conf are for --engine spark"),
        (("--once", "--token-file", "/no/such"), "ternmq.tokenFile='/no/such'"),
    ],
)
def test_what_cannot_be_is_named(
    cli: CommandLine, tables: Path, arguments: tuple[str, ...], said: str
) -> None:
    assert said in cli(*RUN, *arguments, code=2).err
    assert not (tables / "archive").exists()


@pytest.mark.parametrize("names", [("LOCK", "journal/000.seg"), ("foreign/file",), ("a.csv",)])
def test_a_folder_of_somebody_else_is_left_as_it_is(
    cli: CommandLine, tables: Path, names: tuple[str, ...]
) -> None:
    for one in names:
        (tables / one).parent.mkdir(parents=True, exist_ok=True)
        (tables / one).write_text("mine")
    before = sorted(tables.rglob("*"))
    assert "a folder of their own" in cli(*RUN, "--once", code=1).err
    assert sorted(tables.rglob("*")) == before


def test_the_data_folder_of_the_broker_is_no_folder_of_tables(
    cli: CommandLine, broker: BrokerProcess, tables: Path
) -> None:
    ended = cli(*RUN, "--once", "--tables", str(broker.data), code=1)
    assert "data folder of a broker" in ended.err
    assert not list(broker.data.rglob("*_delta_log*"))


def test_what_is_nobodys_may_stand_in_the_folder(cli: CommandLine, tables: Path, sent: str) -> None:
    (tables / "lost+found").mkdir(parents=True)
    (tables / ".DS_Store").write_text("")
    cli(*only(sent))
    (tables / "README").write_text("what this is")
    cli(*only(sent))


def test_it_gives_way_unless_told_otherwise(
    cli: CommandLine, tables: Path, sent: str, priorities: list[Priority]
) -> None:
    cli(*only(sent))
    cli(*only(sent), "--priority", "normal")
    assert priorities == [Priority.IDLE, Priority.NORMAL]
    assert "idle" in cli(*RUN, "--once", "--priority", "high", code=2).err


def test_where_the_tables_are_must_be_said(
    cli: CommandLine, tables: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(archived.TABLES)
    assert "--tables" in cli(*RUN, "--once", code=2).err


def test_no_broker(cli: CommandLine, tables: Path) -> None:
    url = f"ternmq://127.0.0.1:{free_port()}"
    cli("--url", url, *RUN, "--once", code=3)
    assert not (tables / "archive").exists()


def test_a_table_that_somebody_else_made(cli: CommandLine, tables: Path, sent: str) -> None:
    (tables / "archive").mkdir(parents=True)
    (tables / "archive" / "mine.txt").write_text("mine")
    ended = cli(*only(sent), code=1)
    assert str(tables / "archive") in ended.err
    assert not (tables / "archive_gaps").exists()


def test_a_job_that_fails_is_named(cli: CommandLine, tables: Path, sent: str) -> None:
    ended = cli(
        *RUN, "--once", "--jobs", "archive,compaction", "--set", "archive.topics=no-such-topic",
        "--json", code=1,
    )  # fmt: skip
    failed, done = ended.lines[0]["jobs"]
    assert "no-such-topic" in failed["error"]
    assert (done["job"], "error" in done) == ("compaction", False)
    assert "archive failed: there is no topic 'no-such-topic'" in ended.err
    assert "1 of 2 jobs failed: archive" in ended.err


def test_without_what_reads_tables(
    cli: CommandLine, tables: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "ternmq.pipeline.running.runner", None)
        assert "pip install 'ternmq[tables]'" in cli(*RUN, "--once", code=2).err
    patch_spark = dict.fromkeys([one for one in sys.modules if one.startswith("pyspark")])
    for name in {"pyspark", *patch_spark}:
        monkeypatch.setitem(sys.modules, name, None)
    ended = cli(*RUN, "--once", "--engine", "spark", code=2)
    assert "pip install 'ternmq[spark]'" in ended.err


def test_without_spark_it_runs_here_unless_spark_was_asked_for(
    cli: CommandLine, tables: Path, sent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    run = ("pipeline", "run", "--once", "--set", f"archive.topics={sent}")
    assert "this process does the work itself" in cli(*run).err
    assert "Spark cannot be used" in cli(*run, "--engine", "spark", code=2).err


def test_rounds_until_sigterm(
    processes: Processes, client: ternmq.sync.Client, tables: Path, sent: str
) -> None:
    port = free_port()
    process = processes.start(
        *RUN, "--every", "100ms", "--json", "--health-port", port,
        "--set", f"archive.topics={sent}",
    )  # fmt: skip
    assert process.stdout is not None
    try:
        rows = 0
        for number in (1, 2, 3):
            done = json.loads(process.stdout.readline())
            assert done["round"] == number
            rows += done["jobs"][0]["rows"]
            if number == 1:
                client.send(sent, b"one more")
        # It may have come only after the third round.
        while rows < 11:
            rows += json.loads(process.stdout.readline())["jobs"][0]["rows"]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=30) as answer:
            assert answer.read() == b"ok\n"
        second = processes.run(*RUN, "--once", code=1)
        assert f"works on {tables} (process {process.pid})" in second.err
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()


def test_a_broker_that_comes_back(
    processes: Processes, tmp_path: Path, tables: Path, environment: dict[str, str]
) -> None:
    with BrokerProcess("dev", tmp_path / "other") as other:
        environment["TERNMQ_URL"] = other.url
        with ternmq.sync.connect(other.url) as client:
            client.send("orders", b"1")
        process = processes.start(*RUN, "--every", "200ms", "--json")
        assert process.stdout is not None
        try:
            first = json.loads(process.stdout.readline())
            assert first["jobs"][0]["rows"] == 1
            other.kill()
            while "error" not in json.loads(process.stdout.readline())["jobs"][0]:
                pass
            other.start()
            with ternmq.sync.connect(other.url) as client:
                client.send("orders", b"2")
            while json.loads(process.stdout.readline())["jobs"][0].get("rows") != 1:
                pass
        finally:
            process.kill()
            process.communicate()


def test_a_token_stands_nowhere(
    processes: Processes, tables: Path, sent: str, environment: dict[str, str]
) -> None:
    environment["TERNMQ_TOKEN"] = "never-to-be-seen"
    ended = processes.run(*only(sent), "--json")
    assert "never-to-be-seen" not in ended.out + ended.err
    for file in tables.rglob("*"):
        assert file.is_dir() or b"never-to-be-seen" not in file.read_bytes()


def test_status(cli: CommandLine, client: ternmq.sync.Client, tables: Path, sent: str) -> None:
    assert "no tables" in cli("pipeline", "status").err
    cli(*only(sent))
    client.send(sent, b"one more")
    told = cli("pipeline", "status", "--json").json
    (archive,) = [one for one in told["tables"] if one["table"] == "archive"]
    assert (archive["rows"], archive["files"]) == (10, 1)
    (lag,) = [one for one in told["lag"] if one.get("topic") == sent]
    assert lag == {"job": "spark.archive", "topic": sent, "rows": 1}
    assert "archive" in cli("pipeline", "status").out
    away = cli("--url", f"ternmq://127.0.0.1:{free_port()}", "pipeline", "status")
    assert "not known: no broker" in away.err
    assert "archive" in away.out


def bytes_in(tables: Path, text: bytes) -> list[Path]:
    """Return the files that hold a text; Parquet is compressed, so rows are read."""
    import pyarrow.parquet as pq

    return [
        one
        for one in (tables / "archive").rglob("*.parquet")
        if "_delta_log" not in one.parts
        and text in pq.ParquetFile(one).read(["body"]).column("body").to_pylist()
    ]


@pytest.mark.row("R11")
def test_erase_by_key_and_id(cli: CommandLine, tables: Path, sent: str) -> None:
    cli(*only(sent))
    dry = cli("pipeline", "erase", "-k", "k1", "--id", "own-4", "--dry-run", "--json").json
    assert sorted(one["offset"] for one in dry["found"]) == [1, 3, 4, 5, 7, 9]
    assert "would be erased; nothing was changed" in (
        cli("pipeline", "erase", "-k", "k1", "--dry-run").err
    )
    assert len(bytes_in(tables, b"body 3")) == 1
    assert "nothing was changed" in cli("pipeline", "erase", "-k", "k1", code=1).err
    assert len(bytes_in(tables, b"body 3")) == 1
    done = cli("pipeline", "erase", "-k", "k1", "--id", "own-4", "-y", "--name", "r", "--json").json
    assert (done["request"], done["messages"], done["noted"]) == ("r", 6, 6)
    assert done["stands"] == [{"topic": sent, "queue": 0, "stands": 10}]
    assert bytes_in(tables, b"body 3") == bytes_in(tables, b"body 4") == []
    assert len(bytes_in(tables, b"body 2")) == 1
    again = cli("pipeline", "erase", "-k", "k1", "-y", "--name", "r", "--json").json
    assert (again["messages"], again["noted"]) == (0, 0)


def test_erase_says_up_to_where_it_looked(
    cli: CommandLine, client: ternmq.sync.Client, tables: Path, sent: str
) -> None:
    cli(*only(sent))
    client.send(sent, b"later", key="new")
    asked = ("pipeline", "erase", "-k", "new", "-y")
    ended = cli(*asked)
    assert "erased 0 messages" in ended.err
    assert f"the archive has {sent}/0 up to 10: later messages are not erased" in ended.err
    assert cli(*asked, "--topic", sent, "--json").json["stands"] == [
        {"topic": sent, "queue": 0, "stands": 10}
    ]
    for more in ((), ("--dry-run",)):
        ended = cli(*asked, "--topic", "misspelt", *more)
        assert f"the archive has no message of a topic misspelt; it has: {sent}" in ended.err


def test_erase_by_the_id_of_the_receipt(
    cli: CommandLine, client: ternmq.sync.Client, tables: Path, sent: str
) -> None:
    cli(*only(sent))
    (chosen,) = [one for one in client.read(sent) if one.offset == 6]
    assert cli("pipeline", "erase", "--id", chosen.id, "-y", "--json").json["messages"] == 1
    assert bytes_in(tables, b"body 6") == []


def test_erase_needs_to_know_what(cli: CommandLine, tables: Path) -> None:
    assert "give --key or --id" in cli("pipeline", "erase", "-y", code=2).err
    assert "no table archive" in cli("pipeline", "erase", "-k", "x", "-y", code=1).err


def test_compact(cli: CommandLine, client: ternmq.sync.Client, tables: Path, sent: str) -> None:
    for _ in range(20):
        client.send(sent, b"x")
        cli(*only(sent), "--jobs", "archive")
    done = cli("pipeline", "compact", "--json").json
    assert (done["joined"], done["made"], done["rows"]) == (20, 1, 30)
    assert done["removed"] == 0
    assert "joined 0 files into 0" in cli("pipeline", "compact").err


def test_ctrl_c_ends_what_waits_for_its_next_round(
    processes: Processes, tables: Path, sent: str
) -> None:
    process = processes.start(*RUN, "--every", "1h", "--json")
    assert process.stdout is not None
    try:
        json.loads(process.stdout.readline())
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        assert process.returncode == 0
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()


def test_health_is_served_before_tables_are_converted(
    processes: Processes, tables: Path, sent: str
) -> None:
    golden = Path(__file__).parents[1] / "golden" / "tables_v1.tar.xz"
    with tarfile.open(golden) as packed:
        packed.extractall(tables.parent, filter="data")
    done = processes.run(
        *RUN, "--once", "--progress", "--jobs", "compaction", "--health-port", free_port()
    )
    served = done.err.index("health is served on port")
    assert served < done.err.index("schema version 1 becomes 2")
