"""The disk fails: real EIO, EIO and then "success", short writes, a frozen disk (DUR-5).

After the first failed sync or write of the journal nothing is answered any more, the worker ends
with a code of its own, and the next start shows everything that was answered before.
"""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.fault import history
from tests.fault.processes import Verdicts, Worker, run
from tests.fault.tools import need_root, need_strace, spread, strace
from tests.fault.volumes import Memory, Volume

pytestmark = [pytest.mark.fault, pytest.mark.slow]

FAILED = 70
NOT_OPENED = 71
ANSWER = re.compile(r'write\(\d+, "\{\\"op\\": \\"(sent|settled)\\"')


def answered_after_the_error(trace: Path) -> list[str]:
    """Return the answers that were written after the first failed call, as strace saw them."""
    lines = trace.read_text().splitlines()
    first = next(number for number, line in enumerate(lines) if "(INJECTED)" in line)
    return [line for line in lines[first:] if ANSWER.search(line)]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("number", [1, 2, 6, 20, 60])
def test_a_sync_that_fails_once(number, tmp_path, verdicts: Verdicts):
    """fdatasync says EIO once and would succeed from then on: it is never asked again."""
    need_strace()
    data, record, trace = tmp_path / "data", tmp_path / "history", tmp_path / "trace"
    before = strace(
        trace=["fdatasync", "write"],
        inject=f"error=EIO:when={number}",
        only="fdatasync",
        output=trace,
        text=40,
    )
    worker = run(data, record, before=before, messages=10**9)
    lines = history.read(record)
    if worker.code == NOT_OPENED:
        assert number <= 2
        assert not lines
    else:
        assert worker.code == FAILED, worker.log
        assert lines[-1]["op"] == "failed"
        assert "DiskSyncError" in lines[-1]["error"] or "syncing" in lines[-1]["error"]
        assert not answered_after_the_error(trace)
    assert not [line for line in lines[-1:] if line["op"] == "closed"]
    verdicts.sound(data, record)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("error", ["error=EIO", "error=ENOSPC", "error=EROFS", "retval=4"])
def test_a_write_that_fails(error, memory_folder, verdicts: Verdicts):
    """pwrite fails, or four bytes of it are written: of the journal that is the end; of the index
    files, which are only a cache, it is nothing."""
    need_strace()

    def end(number: int) -> int:
        data, record = memory_folder / f"{number}", memory_folder / f"{number}.history"
        before = strace(trace=["pwrite"], inject=f"{error}:when={number}")
        worker = run(data, record, before=before, messages=500, segment=64 << 10, state=24 << 10)
        assert worker.code in (0, FAILED, NOT_OPENED), worker.log
        if worker.code == FAILED:
            assert history.read(record)[-1]["op"] == "failed"
        verdicts.sound(data, record)
        return worker.code

    with ThreadPoolExecutor(2) as pool:
        ends = set(pool.map(end, spread(60, 5)))
    assert FAILED in ends


@pytest.mark.timeout(300)
def test_real_errors_of_a_real_disk(memory_folder, verdicts: Verdicts):
    """The image lies on a full file system, the spare's blocks are gone: its first sync fails.

    The data is in the page cache then and looks well until it is dropped; only EIO told.
    """
    need_root("mkfs.ext4", "filefrag", "fallocate")
    record = memory_folder / "history"
    with (
        Memory(memory_folder / "small", 80 << 20) as small,
        Volume(small.point / "volume", "ext4-whole") as volume,
    ):
        data = volume.point / "data"
        given = {"segment": 1 << 20, "reserve": 1 << 20, "messages": 10**9}
        with Worker(data, record, **given) as worker:
            worker.answered(100)
            worker.stop()
            spare = sorted((data / "journal").iterdir())[-1]
            volume.punch(spare)
            ballast = small.fill()
            worker.go_on()
            assert worker.wait() == FAILED, worker.log
        lines = history.read(record)
        assert lines[-1]["op"] == "failed"
        assert "syncing" in lines[-1]["error"]
        assert "Input/output error" in lines[-1]["error"]
        ballast.unlink()
        volume.again()
        verdict = verdicts.sound(data, record, power=True)
        assert verdict["sent"] >= 50


@pytest.mark.timeout(300)
def test_a_full_disk_under_the_disk(memory_folder, verdicts: Verdicts):
    """The same without blocks taken away: what is preallocated still holds, new segments fail."""
    need_root("mkfs.ext4", "fallocate")
    record = memory_folder / "history"
    with (
        Memory(memory_folder / "small", 80 << 20) as small,
        Volume(small.point / "volume", "ext4-whole") as volume,
    ):
        data = volume.point / "data"
        given = {"segment": 256 << 10, "reserve": 256 << 10, "messages": 4000}
        with Worker(data, record, **given) as worker:
            worker.answered(50)
            worker.stop()
            ballast = small.fill()
            worker.go_on()
            assert worker.wait() in (0, FAILED), worker.log
        ballast.unlink()
        volume.again()
        verdicts.sound(data, record, power=True)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_a_frozen_disk(kind, memory_folder, verdicts: Verdicts):
    """Two seconds of a disk that does not answer: no error, no answer; then it goes on."""
    need_root(f"mkfs.{kind}", "fsfreeze")
    record = memory_folder / "history"
    with Volume(memory_folder / "volume", kind) as volume:
        data = volume.point / "data"
        with Worker(data, record, messages=3000) as worker:
            worker.answered(100)
            volume.freeze()
            worker.silent(0.2)  # answers that were on their way
            assert worker.silent(2.0)
            before = worker.answers
            volume.thaw()
            worker.answered(before + 100)
            assert worker.wait() == 0, worker.log
        lines = history.read(record)
        assert lines[-1]["op"] == "closed"
        assert not [line for line in lines if line["op"] == "failed"]
        verdicts.sound(data, record)
