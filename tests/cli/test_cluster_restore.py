"""``ternmq cluster restore``, beside a coordinator in SQLite and no broker."""

from __future__ import annotations

from pathlib import Path

import pytest

import ternmq.sync
from ternmq.cli.broker import cluster_restore
from ternmq.cluster.coordination.group import Group
from ternmq.cluster.coordination.port import Refused
from ternmq.cluster.coordination.record import Leadership, Progress
from ternmq.journal.disk.real import RealDisk
from ternmq.model.types import Epoch, Position
from ternmq.server.node import identity
from ternmq.server.node.restoring import EPOCHS_ABOVE
from ternmq.testing import broker
from tests.cli.conftest import CommandLine
from tests.cli.test_cluster import Others, others  # noqa: F401 - a fixture


@pytest.fixture
def backup(tmp_path: Path) -> Path:
    """A journal with some messages, at rest."""
    data = tmp_path / "backup"
    with broker(disk=RealDisk(data)) as one, ternmq.sync.connect(one.url) as client:
        client.send_many("orders", [b"x"] * 20)
    return data


@pytest.fixture
def lost(others: Others) -> Others:  # noqa: F811
    """Broker a has led, and is gone; it had come further than any backup here."""
    others.begin("a")
    others.lead("a", "a", 4)
    others.end("a")

    async def progress(group: Group) -> None:
        await group.put_progress(Progress(Epoch(4), Position(1 << 30)))

    others.ask(progress)
    return others


def records(one: Others) -> tuple[Leadership, Progress]:
    found: list[object] = []

    async def read(group: Group) -> None:
        found.extend([await group.read(), await group.progress()])

    one.ask(read)
    record, progress = found
    assert isinstance(record, Leadership)
    assert isinstance(progress, Progress)
    return record, progress


def test_it_says_how_far_the_backup_reaches(
    cli: CommandLine, lost: Others, backup: Path, tmp_path: Path
) -> None:
    data, before = tmp_path / "data", records(lost)
    words = ("cluster", "restore", data, "--from", backup, "--name", "b")
    said = cli(*words, "--dry-run")
    lines = dict(line.split("  ", 1) for line in said.out.splitlines())
    assert lines["journal"].strip().startswith("sound, ")
    assert " ago), position " in lines["reaches"]
    assert lines["missing"].strip() == "at least 1GiB of the journal, with what was answered"
    assert "main: epoch 4, committed at least up to position 1,073,741,824" in said.out
    assert said.err == "nothing was changed: --dry-run\n"
    found = cli(*words, "--dry-run", "--json").json
    assert found["missing_bytes"] == 1 << 30  # the EPOCH record of the group is another one
    assert (found["done"], found["before"]) == (False, {"epoch": 4, "primary": "a"})
    asked = cli(*words, code=1)
    assert "What is missing in it is lost" in asked.err
    assert "add --yes" in asked.err
    assert records(lost) == before
    assert not (data / "journal").exists()


def test_the_group_begins_again(
    cli: CommandLine, lost: Others, backup: Path, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    words = ("cluster", "restore", data, "--name", "b")
    said = cli(*words, "--from", backup, "--yes")
    assert f"begins again with epoch {4 + EPOCHS_ABOVE}: start b with {data}" in said.err
    record, progress = records(lost)
    assert (record.epoch, record.primary) == (4 + EPOCHS_ABOVE, "b")
    assert progress.epoch == record.epoch
    mine = identity.read(data)
    assert mine is not None
    assert (mine.journal_number, mine.broker, mine.group) == (record.journal, "b", "main")
    assert "no other copy has everything that was answered: start b" in cli("cluster", "status").out
    # Once more, as after a kill: in the folder itself, with an epoch and a journal of its own.
    assert "is not empty" in cli(*words, "--from", backup, "--yes", code=1).err
    found = cli(*words, "--yes", "--json").json
    assert (found["done"], found["missing_bytes"]) == (True, 0)
    again, _ = records(lost)
    assert again.epoch == record.epoch + EPOCHS_ABOVE
    assert again.journal != record.journal


def test_a_coordinator_that_knows_nothing(cli: CommandLine, backup: Path, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'new.db'}"
    words = ("cluster", "restore", backup, "--name", "b", "--broker-group", "other")
    assert "add --yes" in cli(*words, "--cluster", url, code=1).err
    assert identity.read(backup) is None
    said = cli(*words, "--cluster", url, "--yes")
    assert "other: the coordinator does not know it" in said.out
    assert "not known" in said.out
    found = cli("cluster", "status", "--cluster", url, "--broker-group", "other", "--json").json
    assert (found["primary"], found["version"]) == ("b", 1)


def test_the_folder_of_another_group(cli: CommandLine, lost: Others, backup: Path) -> None:
    """A name that was typed wrong must not take the only copy away from its group."""
    identity.write(backup, identity.Identity.of("main", 5, "a"))
    words = ("cluster", "restore", backup, "--name", "b", "--broker-group", "mian", "--yes")
    assert "is a folder of broker group 'main', and this is about 'mian'" in cli(*words, code=2).err
    assert identity.read(backup) == identity.Identity.of("main", 5, "a")


def test_somebody_else_changes_the_group_meanwhile(
    cli: CommandLine, lost: Others, backup: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder belongs to the group that there is, as before."""

    async def refused(self: Group, record: Leadership) -> Refused:
        return Refused()

    monkeypatch.setattr(Group, "change", refused)
    words = ("cluster", "restore", backup, "--name", "b", "--yes")
    for before in (None, identity.Identity.of("main", 5, "a")):
        if before is not None:
            identity.write(backup, before)
        assert "somebody else changed the same" in cli(*words, code=7).err
        assert identity.read(backup) == before


def test_a_broker_that_begins_while_the_question_waits(
    cli: CommandLine, lost: Others, backup: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_restore, "confirm", lambda *_, **__: lost.begin("a"))
    before = records(lost)
    said = cli("cluster", "restore", backup, "--name", "b", code=7).err
    assert "a of broker group main runs" in said
    assert records(lost) == before


def test_what_it_refuses(
    cli: CommandLine, lost: Others, backup: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, before = tmp_path / "data", records(lost)
    words = ("cluster", "restore", data, "--name", "b", "--yes")
    assert "there is no folder" in cli(*words, code=4).err
    data.mkdir()
    assert "there is no journal in" in cli(*words, code=4).err
    assert "does not exist" in cli(*words, "--from", tmp_path / "missing", code=2).err
    used = RealDisk(backup)
    used.lock()
    for place in ((*words, "--from", backup), ("cluster", "restore", backup, "--name", "b")):
        assert "stop it first" in cli(*place, code=1).err
    used.close()
    lost.begin("c")
    said = cli(*words, "--from", backup, code=7).err
    assert "c of broker group main runs, or was killed a moment ago" in said
    lost.end("c")
    (segment,) = (backup / "journal").glob("*0.seg")
    with segment.open("r+b") as file:
        file.seek(100)
        file.write(b"\xff" * 8)
    assert "ternmq journal repair" in cli(*words, "--from", backup, code=8).err
    monkeypatch.delenv("TERNMQ_NAME", raising=False)
    assert "Missing option '--name'" in cli("cluster", "restore", data, code=2).err
    assert records(lost) == before
    assert not (data / "journal").exists()


def test_a_progress_that_cannot_be_written_is_said(
    cli: CommandLine, lost: Others, backup: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the broker would find its folder too old at its start, and nobody would know why."""

    async def lost_write(self: Group, progress: Progress) -> None:
        return None

    data = tmp_path / "data"
    words = ("cluster", "restore", data, "--name", "b", "--yes")
    with monkeypatch.context() as patch:
        patch.setattr(Group, "put_progress", lost_write)
        said = cli(*words, "--from", backup, code=6).err
    assert f"run `ternmq cluster restore {data} --name b` again" in said
    assert cli(*words, "--json").json["done"]
    record, progress = records(lost)
    assert progress.epoch == record.epoch
