from __future__ import annotations

import pytest

pytest.importorskip("deltalake", reason="needs the extra spark")

import os
import pickle
from pathlib import Path

from ternmq import files
from ternmq.model.errors import TableError
from ternmq.pipeline.archive.commit import Archive
from ternmq.pipeline.tables import folder as folders
from ternmq.pipeline.tables.folder import Folder
from tests.unit.pipeline.kept import fill


@pytest.fixture
def folder(tmp_path):
    return Folder(str(tmp_path / "t"))


def write(folder, path, data=b"x"):
    with folder.begin(path) as sink:
        sink.write(data)
    return folder.finish(path)


def test_a_file_is_there_when_it_is_finished(folder):
    with folder.begin("a/b.parquet") as sink:
        sink.write(b"12345")
    assert folder.size("a/b.parquet") is None
    assert [one.path for one in folder.list()] == ["a/.tmp-b.parquet"]
    done = folder.finish("a/b.parquet", "a/c.parquet")
    assert (done.path, done.size) == ("a/c.parquet", 5)
    assert [one.path for one in folder.list()] == ["a/c.parquet"]
    with folder.open("a/c.parquet") as source:
        assert source.read() == b"12345"


def test_what_is_abandoned_is_gone(folder):
    folder.begin("a/b").close()
    folder.abandon("a/b")
    folder.abandon("a/b")
    assert list(folder.list()) == []


def test_a_file_that_is_not_there(folder):
    with pytest.raises(TableError, match="t/a belongs to a table"):
        folder.open("a")
    assert folder.size("a") is None
    assert folder.remove(["a"]) == 0


def test_what_is_below(folder):
    for path in ("a/1", "a/b/2", "3"):
        write(folder, path)
    assert sorted(one.path for one in folder.list()) == ["3", "a/1", "a/b/2"]
    assert sorted(one.path for one in folder.list("a")) == ["a/1", "a/b/2"]
    assert list(folder.list("nothing")) == []


def test_it_travels(folder):
    write(folder, "a")
    there = pickle.loads(pickle.dumps(folder))
    assert (there.uri, there.local, there.size("a")) == (folder.uri, True, 1)


@pytest.mark.parametrize("prefix", ["", "file://"])
def test_names_of_places_here(tmp_path, prefix):
    one = Folder(f"{prefix}{tmp_path}/a")
    assert (one.local, one.uri) == (True, f"{tmp_path}/a")
    assert one.inside("b").uri == f"{tmp_path}/a/b"


def test_names_of_places_elsewhere():
    one = Folder("s3://bucket/tables/")
    assert (one.local, one.uri) == (False, "s3://bucket/tables")
    assert one.uri_of("x/y") == "s3://bucket/tables/x/y"


def test_every_file_and_folder_is_on_the_disk_before_a_commit_is_answered(tables, monkeypatch):
    """What a power cut may not undo: the file, the log's entry, and each folder on the way."""
    synced: list[str] = []
    real = files.sync

    def noted(path):
        synced.append(os.path.relpath(path, Path(tables.uri).parent))
        real(path)

    monkeypatch.setattr(folders, "sync", noted)
    archive = Archive(tables)
    fill(archive, 0, 10, durable=True)
    (file,) = archive.table.files()
    at = "tables/archive"
    written = [one for one in synced if ".tmp-orders-7-0-" in one]
    assert len(written) == 1
    for wanted in (
        f"{at}/day=2026-11-21", at, "tables",
        f"{at}/_delta_log/00000000000000000001.json", f"{at}/_delta_log",
    ):  # fmt: skip
        assert wanted in synced[synced.index(written[0]) :], wanted
    assert file.path.startswith("day=2026-11-21/")


def test_commits_of_others_below_ones_own_are_on_the_disk(tables, monkeypatch):
    """A log with a hole cannot be read: what another process committed, and died, counts too."""
    ours, others = Archive(tables), Archive(tables)
    fill(ours, 0, 10)
    with monkeypatch.context() as killed:
        killed.setattr(Folder, "sync_log", lambda _: None)
        others.table.refresh()
        fill(others, 10, 20)
    synced: list[str] = []
    real = files.sync

    def noted(path):
        synced.append(path.name)
        real(path)

    monkeypatch.setattr(folders, "sync", noted)
    ours.table.refresh()
    fill(ours, 20, 30)
    assert {"00000000000000000002.json", "00000000000000000003.json"} <= set(synced)
    assert "00000000000000000001.json" not in synced


@pytest.mark.parametrize("durable", [True, False])
def test_a_file_that_another_process_removed_while_it_was_written(folder, durable):
    with folder.begin("a/b") as sink:
        sink.write(b"x")
        (begun,) = folder.list()
        folder.remove([begun.path])
    with pytest.raises(TableError, match="t/a/b was removed while it was written") as raised:
        folder.finish("a/b", durable=durable)
    assert raised.value.__cause__ is None
    assert list(folder.list()) == []
