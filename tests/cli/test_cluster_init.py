"""``ternmq cluster init``, with a coordinator in SQLite."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from ternmq.cli.broker import cluster_restore
from tests.cli.conftest import CommandLine
from tests.cli.test_cluster import Others, others  # noqa: F401 - a fixture


def test_a_new_coordinator(
    cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "cluster.db"
    monkeypatch.setenv("TERNMQ_CLUSTER", f"sqlite:///{file}")
    out = cli("cluster", "init").out.splitlines()
    assert out[0].startswith("coordinator   it works: changed, read and announced in ")
    assert out[1] == "broker group  main: none yet"
    assert f"    export TERNMQ_CLUSTER=sqlite:///{file}" in out
    (token,) = [line.rpartition("=")[2] for line in out if "TERNMQ_CLUSTER_TOKEN=" in line]
    assert len(token) == 32
    found = cli("cluster", "init", "--json").json
    assert found["cluster_token"] != token
    assert (found["broker_group"], found["primary"]) == ("main", None)
    with sqlite3.connect(file) as database:
        rows = database.execute("SELECT name FROM ternmq_announced").fetchall()
    assert rows == []  # what was announced is withdrawn
    assert cli("broker", "list").err == "no broker runs with this coordinator\n"


def test_the_url_is_good_in_every_folder(
    cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    out = cli("cluster", "init", "--cluster", "sqlite:///cluster.db").out.splitlines()
    assert f"    export TERNMQ_CLUSTER=sqlite:///{tmp_path / 'cluster.db'}" in out


def test_one_that_is_in_use(cli: CommandLine, others: Others) -> None:  # noqa: F811
    others.begin("a")
    others.lead("a", "a")
    assert cli("cluster", "init").out.splitlines()[1:] == ["broker group  main: it exists already"]
    found = cli("cluster", "init", "--json").json
    assert (found["primary"], found["cluster_token"]) == ("a", None)
    assert [one["broker"] for one in cli("broker", "list", "--json").json] == ["a"]


def test_what_it_cannot_use(cli: CommandLine, tmp_path: Path) -> None:
    said = cli("cluster", "init", "--cluster", "mongo://x", code=2).err
    assert "a coordinator's URL cannot begin with 'mongo'" in said
    url = f"sqlite:///{tmp_path / 'missing' / 'cluster.db'}"
    assert (
        "the coordinator cannot be used: " in cli("cluster", "init", "--cluster", url, code=3).err
    )
    (tmp_path / "text.db").write_text("this is no database, and it is long enough to be read" * 9)
    url = f"sqlite:///{tmp_path / 'text.db'}"
    assert (
        "the coordinator cannot be used: " in cli("cluster", "init", "--cluster", url, code=3).err
    )


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://u:p%40w@h:1/d?x=1", "postgresql://u:PASSWORD@h:1/d?x=1"),
        ("zk://u:p@a:1,b:2/ternmq", "zk://u:PASSWORD@a:1,b:2/ternmq"),
        ("zk://a:1,b:2/ternmq", "zk://a:1,b:2/ternmq"),
        ("postgresql://u@h/d", "postgresql://u@h/d"),
        ("postgresql://u@h/d?password=a%26b&x=1", "postgresql://u@h/d?password=PASSWORD&x=1"),
        ("sqlite:////var/lib/x.db", "sqlite:////var/lib/x.db"),
    ],
)
def test_a_password_is_not_printed(url: str, shown: str) -> None:
    assert cluster_restore._shown(url) == shown
