"""A file is there whole, or as it was: whatever fails, whoever is killed, between any two steps."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from ternmq import files
from ternmq.files import PRIVATE, SHARED, leftovers, make_folder, write, writing


def test_what_is_written_is_read_and_only_its_owner_may(tmp_path: Path) -> None:
    path = tmp_path / "token"
    before = os.umask(0)
    try:
        write(path, b"one\n", PRIVATE)
        assert stat.S_IMODE(path.stat().st_mode) == PRIVATE
        path.chmod(0o644)
        write(path, b"two\n", PRIVATE)
    finally:
        os.umask(before)
    assert path.read_bytes() == b"two\n"
    assert stat.S_IMODE(path.stat().st_mode) == PRIVATE
    assert os.listdir(tmp_path) == ["token"]


def test_the_umask_counts_for_what_others_may_read(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write(tmp_path / "report", b"", SHARED)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "report").stat().st_mode) == 0o640


def test_the_order_of_the_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bytes are synced before the name, the folder behind it."""
    done: list[str] = []
    fsync, replace = os.fsync, Path.replace

    def synced(descriptor: int) -> None:
        kind = "folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file"
        size = os.fstat(descriptor).st_size if kind == "file" else 0
        done.append(f"sync {kind} {size}".removesuffix(" 0"))
        fsync(descriptor)

    def replaced(self: Path, target: Path) -> Path:
        done.append(f"rename to {target.name}")
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "replace", replaced)
    write(tmp_path / "a", b"12345", PRIVATE)
    assert done == ["sync file 5", "rename to a", "sync folder"]


@pytest.mark.parametrize("failing", ["open", "fsync", "replace"])
def test_an_error_of_the_disk_leaves_what_was_there(
    failing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a"
    write(path, b"old", PRIVATE)

    def fails(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(Path if failing == "replace" else os, failing, fails)
        with pytest.raises(OSError, match="No space left") as found:
            write(path, b"new", PRIVATE)
    assert found.value.filename == str(path)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a"]


def test_an_error_in_the_block_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "a"
    write(path, b"old", PRIVATE)

    def fails() -> None:
        with writing(path, PRIVATE) as file:
            file.write(b"half of it")
            file.flush()
            raise KeyError

    with pytest.raises(KeyError):
        fails()
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a"]


def test_what_a_link_leads_to_is_replaced_and_not_the_link(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    write(tmp_path / "kept" / "a", b"old", PRIVATE)
    (tmp_path / "link").symlink_to(Path("kept") / "a")
    write(tmp_path / "link", b"new", PRIVATE)
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "kept" / "a").read_bytes() == b"new"
    assert os.listdir(tmp_path / "kept") == ["a"]


def test_a_pipe_is_written_to_and_stays_one(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write(path, b"data", SHARED)
        assert os.read(reader, 100) == b"data"
    finally:
        os.close(reader)
    assert path.is_fifo()
    assert os.listdir(tmp_path) == ["pipe"]


def test_a_folder_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with pytest.raises(OSError, match="directory"):
        write(tmp_path / "a", b"data", SHARED)
    assert os.listdir(tmp_path) == ["a"]


_KILLED = """
import os, pathlib, signal, sys
from ternmq import files

path, step = pathlib.Path(sys.argv[1]), int(sys.argv[2])
left = [step]

def dying(real):
    def call(*given, **more):
        left[0] -= 1
        if left[0] < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*given, **more)
    return call

os.fsync, pathlib.Path.replace = dying(os.fsync), dying(pathlib.Path.replace)
files.write(path, b"new" * 1000, files.PRIVATE)
print("written")
"""


@pytest.mark.parametrize("step", range(4))
def test_kill_9_between_the_steps(step: int, tmp_path: Path) -> None:
    """Before the rename it is the old one, after it the new one; a leftover is private, too."""
    path = tmp_path / "a"
    write(path, b"old", PRIVATE)
    done = subprocess.run(
        [sys.executable, "-c", _KILLED, str(path), str(step)],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == (0 if step == 3 else -signal.SIGKILL), done.stderr
    assert path.read_bytes() == (b"old" if step < 2 else b"new" * 1000)
    left = leftovers(path)
    assert len(left) == (1 if step < 2 else 0)
    assert all(stat.S_IMODE(one.stat().st_mode) == PRIVATE for one in left)
    write(path, b"again", PRIVATE)
    assert path.read_bytes() == b"again"


def test_every_folder_that_is_made_is_synced_into_the_one_above(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    monkeypatch.setattr(files, "sync", lambda path: synced.append(path.name))
    make_folder(tmp_path / "a" / "b" / "c")
    assert (tmp_path / "a" / "b" / "c").is_dir()
    assert synced == [tmp_path.name, "a", "b"]
    make_folder(tmp_path / "a" / "b" / "c")
    assert len(synced) == 3


def test_a_file_where_a_folder_is_to_be(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    for path in (tmp_path / "a", tmp_path / "a" / "b"):
        with pytest.raises(FileExistsError, match=r"'.*/a'"):
            make_folder(path)
