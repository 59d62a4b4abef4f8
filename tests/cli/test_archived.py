"""Looking up what the broker no longer keeps."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("deltalake", reason="needs the extra spark")

import ternmq.sync
from ternmq.cli.reach import archived
from ternmq.client.bulk import Bulk, BulkOptions
from ternmq.pipeline.archive.archive import ArchiveJob
from ternmq.pipeline.archive.commit import Archive
from ternmq.pipeline.tables.folder import Folder
from tests.black_box.process import BrokerProcess
from tests.cli.conftest import CommandLine

NOW = 1_795_262_400_000_000


@pytest.fixture
def tables(broker: BrokerProcess, client: ternmq.sync.Client, topic: str, tmp_path: Path) -> str:
    """Archive some messages of a topic, which is then deleted."""
    client.admin.create_topic(topic)
    for n in range(20):
        client.send(topic, b"body %d" % n, key=f"k{n % 2}", id=f"own-{n}", headers={"n": str(n)})
    folder = Folder(str(tmp_path / "tables"))
    with Bulk(BulkOptions(url=broker.url)) as bulk:
        ArchiveJob(bulk, Archive(folder), topics=[topic]).once(NOW)
    return folder.uri


@pytest.fixture
def ids(client: ternmq.sync.Client, tables: str, topic: str) -> dict[int, str]:
    found: dict[int, str] = {one.offset: one.id for one in client.read(topic)}
    client.admin.delete_topic(topic)
    return found


@pytest.mark.row("R12")
def test_get_goes_on_in_the_archive(
    cli: CommandLine, tables: str, topic: str, ids: dict[int, str]
) -> None:
    cli("message", "get", topic, ids[7], code=4)
    by_id = cli("message", "get", topic, ids[7], "--tables", tables, "--json")
    assert (by_id.json["offset"], by_id.json["body"]) == (7, "body 7")
    assert by_id.json["headers"] == {"n": "7"}
    assert "from the archive" in by_id.err
    assert cli("message", "get", topic, "own-9", "--tables", tables, "--raw").out == "body 9"
    assert cli("message", "get", f"{topic}/0/3", "--tables", tables, "--json").json["id"] == ids[3]


@pytest.mark.row("R12")
def test_find_goes_on_in_the_archive(
    cli: CommandLine, tables: str, topic: str, ids: dict[int, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cli("message", "find", topic, "-k", "k1", code=4)
    monkeypatch.setenv(archived.TABLES, tables)
    found = cli("message", "find", topic, "-k", "k1", "--json").lines
    assert [one["offset"] for one in found] == list(range(19, 0, -2))
    assert len(cli("message", "find", topic, "-k", "k1", "-n", "3", "--json").lines) == 3


def test_the_archive_of_a_context(
    cli: CommandLine, broker: BrokerProcess, tables: str, topic: str, ids: dict[int, str]
) -> None:
    cli("context", "add", "here", "--url", broker.url, "--tables", tables)
    found = cli("--context", "here", "message", "get", topic, ids[7], "--json").json
    assert found["body"] == "body 7"


def test_what_both_have_is_found_once(
    cli: CommandLine, client: ternmq.sync.Client, tables: str, topic: str
) -> None:
    client.send(topic, b"new", key="k1")
    found = cli("message", "find", topic, "-k", "k1", "--tables", tables, "--json").lines
    assert [one["offset"] for one in found] == [20, *range(19, 0, -2)]


def test_what_neither_has(cli: CommandLine, tables: str, topic: str, ids: dict[int, str]) -> None:
    cli("message", "get", topic, "00f3a1c2d4e5b697:1f", "--tables", tables, code=4)
    cli("message", "get", topic, "no such id", "--tables", tables, code=4)


def test_a_folder_without_an_archive(
    cli: CommandLine, client: ternmq.sync.Client, topic: str, tmp_path: Path
) -> None:
    client.admin.create_topic(topic)
    ended = cli("message", "get", topic, "x", "--tables", tmp_path, code=1)
    assert "no table archive" in ended.err


def test_without_what_reads_tables(
    cli: CommandLine,
    client: ternmq.sync.Client,
    topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client.admin.create_topic(topic)
    monkeypatch.setitem(sys.modules, "ternmq.pipeline.archive.lookup", None)
    ended = cli("message", "find", topic, "-k", "x", "--tables", tmp_path, code=2)
    assert "pip install 'ternmq[tables]'" in ended.err


def test_a_message_of_another_topic_is_none(
    cli: CommandLine, client: ternmq.sync.Client, tables: str, topic: str, ids: dict[int, str]
) -> None:
    client.admin.create_topic(f"{topic}-b")
    cli("message", "get", f"{topic}-b", ids[7], "--tables", tables, code=4)
