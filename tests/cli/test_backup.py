"""docs/operate/backup.md: a copy made while the broker works, and what a broker makes of it."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from subprocess import CompletedProcess
from typing import Self

import pytest

import ternmq
import ternmq.sync
from ternmq import files
from ternmq.cli import main
from ternmq.cli.broker import backup as backup_command
from ternmq.journal.disk.real import RealDisk
from ternmq.journal.recovery.repair import inspect
from ternmq.model.errors import CorruptJournal
from ternmq.testing import InProcessBroker, broker
from tests.black_box.process import DEADLINE, wait_until

ROOT = Path(__file__).parents[2]
SEGMENT = 4 << 20


class Load:
    """Sends, pulls and acks in a thread, and remembers what was answered."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.sent: list[bytes] = []
        self.acked: set[bytes] = set()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._work)

    def _work(self) -> None:
        with ternmq.sync.connect(self.url, timeout=DEADLINE) as client:
            while not self._end.is_set():
                bodies = [b"%08d" % (len(self.sent) + number) * 512 for number in range(50)]
                told = client.send_many("orders", bodies, return_errors=True)
                if all(isinstance(one, ternmq.DiskFull) for one in told):
                    bodies = []  # until more is acked: `retention_max` is exceeded
                self.sent += bodies
                if len(self.sent) - len(self.acked) > 100:  # so many are always left
                    batch = client.pull("orders", group="billing", max_messages=50, wait=0)
                    batch.ack()
                    self.acked |= set(batch.bodies)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()


def run(url: str, data: Path, target: Path, **environment: str) -> CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ternmq", "backup", str(data), str(target)],
        env=os.environ | {"TERNMQ_URL": url} | environment,
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def backup(url: str, data: Path, target: Path) -> None:
    done = run(url, data, target)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0].split() == ["backup", str(target)]
    assert done.stdout.splitlines()[-1].split() == ["state", "sound"]


def passed(one: InProcessBroker, segment: Path) -> bool:
    """Let time pass; return whether a segment is gone."""
    one.clock.advance(seconds=2)
    return not segment.exists()


def test_what_was_answered_before_a_copy_is_in_it(tmp_path: Path) -> None:
    """Retention removes segments meanwhile: the copy is whole all the same."""
    data = tmp_path / "data"
    settings = {"segment": f"{SEGMENT}B", "state": "1MiB", "retention_max": f"{3 * SEGMENT}B"}
    first = data / "journal" / f"{0:020d}.seg"
    with broker(disk=RealDisk(data), settings=settings) as one, Load(one.url) as load:
        for number in range(3):
            wait_until(lambda number=number: len(load.acked) > 1500 * number + 200, "acked")  # type: ignore[misc]
            if number == 1:
                # Deduplication keeps its records for ten minutes; then the oldest segment goes.
                one.clock.advance(minutes=11)
                wait_until(lambda: passed(one, first), "removed")
            sent, acked = len(load.sent), set(load.acked)
            target = tmp_path / f"copy-{number}"
            backup(one.url, data, target)
            done = set(load.acked)
            assert not inspect(RealDisk(target, read_only=True)).damage
            assert (target / "journal" / first.name).exists() is (number == 0)
            with (
                broker(disk=RealDisk(target), manual=False) as restored,
                ternmq.sync.connect(restored.url, timeout=DEADLINE) as client,
            ):
                stored = {delivery.body for delivery in client.read("orders")}
                # What was acked meanwhile may be gone with its segment.
                assert set(load.sent[:sent]) - done <= stored, "nothing is lost"
                came: list[bytes] = []
                while batch := client.pull("orders", group="billing", max_messages=1000, wait=0.2):
                    came += batch.bodies
                    batch.ack()
                assert came, "what was not acked comes"
                assert not acked & set(came), "what was acked before the copy does not come again"


def test_a_backup_is_on_the_disk_before_it_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each file, the folders with their names, and the final name: in this order.

    Of the copy only: the broker runs in this process, and syncs what it makes at any time.
    """
    copies = tmp_path / "copies"
    copies.mkdir()
    synced: list[Path] = []
    fsync = os.fsync

    def noted(descriptor: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        if path.is_relative_to(copies):
            synced.append(path)
        fsync(descriptor)

    data = tmp_path / "data"
    with broker(disk=RealDisk(data)) as one, ternmq.sync.connect(one.url) as client:
        client.send("orders", b"x")
        monkeypatch.setenv("TERNMQ_URL", one.url)
        monkeypatch.setattr(os, "fsync", noted)
        assert main.run(["backup", str(data), str(copies / "one")]) == 0
        monkeypatch.undo()
    unfinished = copies / "one.unfinished"
    journal = unfinished / "journal"
    assert synced == [journal / f"{0:020d}.seg", journal, unfinished, copies]


def test_a_backup_inside_the_data_folder_is_refused(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with broker(disk=RealDisk(data)) as one:
        done = run(one.url, data, data / "copy")
    assert not list(data.glob("copy*"))
    assert done.returncode == 2
    assert f"{data / 'copy'} is inside {data}" in done.stderr


def test_a_folder_that_is_there_is_refused_before_anything_is_copied(tmp_path: Path) -> None:
    data, target = tmp_path / "data", tmp_path / "copies" / "one"
    target.parent.mkdir()
    with broker(disk=RealDisk(data)) as one:
        backup(one.url, data, target)
        before = sorted(tmp_path.rglob("*"))
        done = run(one.url, data, target)
        assert sorted(tmp_path.rglob("*")) == before
    assert done.returncode == 2
    assert f"{target} exists already: each backup needs a folder of its own" in done.stderr


def test_what_cannot_be_is_said_in_one_line(tmp_path: Path) -> None:
    data, target = tmp_path / "data", tmp_path / "copies" / "one"
    target.parent.mkdir()
    with broker(disk=RealDisk(data), settings={"auth": True, "admin_token": "chosen"}) as one:
        told = {
            "there is no journal in": (4, run(one.url, tmp_path, target)),
            "to create the backup in": (2, run(one.url, data, tmp_path / "none" / "one")),
            "does not exist": (2, run(one.url, tmp_path / "none", target)),
            "token": (5, run(one.url, data, target, TERNMQ_APP="", TERNMQ_TOKEN="")),
            "no broker": (3, run("ternmq://127.0.0.1:1", data, target)),
        }
    for words, (code, done) in told.items():
        assert done.returncode == code
        (line,) = done.stderr.splitlines()
        assert line.startswith("ternmq: ")
        assert words in line
    assert not list(target.parent.iterdir())


def test_the_journal_of_another_broker_is_refused_wherever_it_ends(tmp_path: Path) -> None:
    short, long, target = tmp_path / "short", tmp_path / "long", tmp_path / "copy"
    with broker(disk=RealDisk(short)) as one, broker(disk=RealDisk(long)) as other:
        for asked, count in ((one, 3), (other, 400)):
            with ternmq.sync.connect(asked.url) as client:
                client.send_many("orders", [b"x" * 100] * count)
        for url, data in ((one.url, long), (other.url, short)):
            done = run(url, data, target)
            assert done.returncode == 2
            assert f"the broker at {url} is not the broker of {data}; --url or" in done.stderr
            assert not list(tmp_path.glob("copy*"))
        for url, data in ((one.url, short), (other.url, long)):
            backup(url, data, tmp_path / f"copy-of-{data.name}")
    with broker(disk=RealDisk(short)) as one:  # in its second epoch
        backup(one.url, short, tmp_path / "again")


@pytest.mark.parametrize("page", ["from-dev-to-serve.md", "backup.md"])
def test_the_line_for_cron_works_each_day_as_printed(page: str, tmp_path: Path) -> None:
    text = (ROOT / "docs" / "operate" / page).read_text(encoding="utf-8")
    (line,) = [
        line.strip() for line in text.splitlines() if "ternmq backup" in line and "* * *" in line
    ]
    *when, command = line.split(maxsplit=5)
    assert all(one == "*" or one.isdigit() for one in when)
    assert "%" not in command.replace("\\%", ""), "cron ends a command at a bare %"
    data, folder, programs = tmp_path / "data", tmp_path / "backup", tmp_path / "bin"
    folder.mkdir()
    programs.mkdir()
    (programs / "date").write_text('#!/bin/sh\necho "$DAY$1"\n')
    (programs / "date").chmod(0o755)
    for shown, here in {
        "/opt/ternmq/bin/ternmq": f"{sys.executable} -m ternmq",
        "/var/lib/ternmq": str(data),
        '"/backup/': f'"{folder}/',
    }.items():
        assert shown in command
        command = command.replace(shown, here)
    with broker(disk=RealDisk(data)) as one:
        for day in ("1", "2"):
            done = subprocess.run(
                ["sh", "-c", command.replace("\\%", "%")],
                env=os.environ
                | {"TERNMQ_URL": one.url, "DAY": day, "PATH": f"{programs}:{os.environ['PATH']}"},
                capture_output=True, text=True, timeout=60, check=False,
            )  # fmt: skip
            assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in folder.iterdir()) == ["1+%F", "2+%F"]


def test_a_copy_that_is_older_in_front_than_behind_is_refused(tmp_path: Path) -> None:
    """Why it is not done with ``cp``: bytes from before a write, and behind them from after it."""
    data = tmp_path / "data"
    with broker(disk=RealDisk(data), manual=False) as one, ternmq.sync.connect(one.url) as client:
        (segment,) = [path for path in (data / "journal").iterdir() if int(path.stem) == 0]
        client.send("orders", b"a" * 1000)
        before = segment.read_bytes()
        for _ in range(10):
            client.send("orders", b"b" * 1000)
        after = segment.read_bytes()
    half = len(before.rstrip(b"\0")) + 2000
    target = tmp_path / "copy"
    (target / "journal").mkdir(parents=True)
    (target / "journal" / segment.name).write_bytes(before[:half] + after[half:])
    with pytest.raises(CorruptJournal), broker(disk=RealDisk(target)):
        pass


def test_the_position_of_another_broker_is_no_reason_to_copy(tmp_path: Path) -> None:
    settings = {"segment": f"{SEGMENT}B", "state": "1MiB"}
    mine, other = tmp_path / "mine", tmp_path / "other"
    with (
        broker(disk=RealDisk(mine), settings=settings) as one,
        broker(disk=RealDisk(other), settings=settings) as two,
    ):
        for url, count in ((one.url, 500), (two.url, 5)):
            with ternmq.sync.connect(url) as client:
                client.send_many("orders", [b"x" * 1000] * count)
        done = run(two.url, mine, tmp_path / "copy")
        assert done.returncode == 2
        assert f"is not the broker of {mine}" in done.stderr
        assert not (tmp_path / "copy").exists()
        backup(one.url, mine, tmp_path / "copy")
    for file in (tmp_path / "copy").rglob("*"):
        assert not file.stat().st_mode & 0o007, "others may not read messages"


def test_it_is_told_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = tmp_path / "data"
    with broker(disk=RealDisk(data)) as one, ternmq.sync.connect(one.url) as client:
        client.send("orders", b"x")
        for target, how in (("one", []), ("two", ["--no-verify"])):
            arguments = ["--url", one.url, "backup", str(data), str(tmp_path / target), "--json"]
            assert main.run([*arguments, *how]) == 0
            status = client.admin.status()
            told = json.loads(capsys.readouterr().out)
            size = sum(one.stat().st_size for one in (tmp_path / target / "journal").iterdir())
            assert 0 < size <= status.journal_durable
            assert told == {
                "backup": str(tmp_path / target), "bytes": size, "epoch": status.epoch,
                "first": 0, "valid_end": size, "verified": not how,
            }  # fmt: skip
            assert main.run(["journal", "verify", str(tmp_path / target), "--json"]) == 0
            found = json.loads(capsys.readouterr().out)
            assert (found["first"], found["valid_end"]) == (0, size), "one number in both"
            assert found["durable"] <= size


def test_what_a_killed_one_left_is_replaced_but_not_that_of_a_living_one(tmp_path: Path) -> None:
    data, target = tmp_path / "data", tmp_path / "copy"
    unfinished = tmp_path / "copy.unfinished"
    (unfinished / "journal").mkdir(parents=True)
    (unfinished / "journal" / "half").write_bytes(b"x")
    with broker(disk=RealDisk(data)) as one:
        descriptor = os.open(unfinished, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            done = run(one.url, data, target)
            assert done.returncode == 1
            assert f"another process writes to {unfinished}" in done.stderr
            assert (unfinished / "journal" / "half").exists()
        finally:
            os.close(descriptor)
        backup(one.url, data, target)
    assert [one.name for one in target.rglob("*")] == ["journal", f"{0:020d}.seg"]
    assert not unfinished.exists()


def test_a_damaged_journal_makes_no_backup_unless_it_is_wanted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, target = tmp_path / "my data", tmp_path / "a copy"
    with broker(disk=RealDisk(data)) as one, ternmq.sync.connect(one.url) as client:
        receipt = client.send("orders", b"precious" * 100)
        client.send("orders", b"x")
        assert receipt.offset == 0
        segment = data / "journal" / f"{0:020d}.seg"
        at = segment.read_bytes().index(b"precious")
        with segment.open("r+b") as file:
            file.seek(at)
            file.write(b"P")
        done = run(one.url, data, target)
        assert done.returncode == 8
        verify = f"`ternmq journal verify '{data}'`"
        assert f"no backup was made: the copy is damaged; {verify} shows" in done.stderr
        assert not list(tmp_path.glob("a copy*"))
        arguments = ["--url", one.url, "backup", str(data), str(target), "--no-verify"]
        capsys.readouterr()
        assert main.run(arguments) == 0
        assert target.exists()
        assert f"`ternmq journal verify '{target}'` checks it" in capsys.readouterr().out


def test_a_file_that_is_removed_before_it_is_copied_begins_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "data"
    with broker(disk=RealDisk(data)) as one, ternmq.sync.connect(one.url) as client:
        client.send("orders", b"x")
        gone: list[Path] = []
        copied = files.copy

        def copy(segment: Path, target: Path, most: int) -> int:
            if len(gone) < 3:
                gone.append(segment)
                raise FileNotFoundError(segment)
            return copied(segment, target, most)

        monkeypatch.setattr(files, "copy", copy)
        arguments = ["--url", one.url, "backup", str(data)]
        assert main.run([*arguments, str(tmp_path / "one")]) == 0
        assert len(gone) == 3
        gone.clear()
        monkeypatch.setattr(backup_command, "_TRIES", 2)
        assert main.run([*arguments, str(tmp_path / "two")]) == 1
        assert not list(tmp_path.glob("two*"))
