"""The disk fails: real EIO, EIO and then "success", short writes, a frozen disk (DUR-5).

After the first failed sync or write of the journal nothing is answered any more, the worker ends
with a code of its own, and the next start shows everything that was answered before.
"""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.fault import history
from tests.fault.processes import Verdicts, Worker, run, wait_until
from tests.fault.tools import need_root, need_strace, spread, strace
from tests.fault.volumes import Memory, Volume

pytestmark = [pytest.mark.fault, pytest.mark.slow]

FAILED = 70
NOT_OPENED = 71
BUSY, DISK_FULL = 140, 141
ANSWER = re.compile(r'write\(\d+, "\{\\"op\\": \\"(sent|settled)\\"')


def answered_after_the_error(trace: Path) -> list[str]:
    """Return the answers that were written after the first failed call, as strace saw them.

    Those of topic "quick" do not count: its sends rest on the write, not on the sync.
    """
    lines = trace.read_text().splitlines()
    first = next(number for number, line in enumerate(lines) if "(INJECTED)" in line)
    return [line for line in lines[first:] if ANSWER.search(line) and "quick" not in line]


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
        text=80,
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
@pytest.mark.parametrize("kind", ["ext4-whole", "ext4-sparse"])
def test_real_errors_of_a_real_disk(kind, memory_folder, verdicts: Verdicts):
    """The image lies on a full file system, and the blocks of the spare segment are gone.

    Its first sync fails; the data stays in the page cache, looks well, and is gone after the next
    mount. On the sparse image the file system's own log fails too, and it turns read-only.
    """
    need_root("mkfs.ext4", "filefrag", "fallocate")
    record = memory_folder / "history"
    with (
        Memory(memory_folder / "small", 80 << 20) as small,
        Volume(small.point / "volume", kind) as volume,
    ):
        data = volume.point / "data"
        with Worker(data, record, segment=1 << 20, reserve=1 << 20, messages=10**9) as worker:
            worker.answered(100)
            worker.stop()
            volume.punch(max((data / "journal").iterdir()))
            ballast = small.fill()
            worker.go_on()
            assert worker.wait() == FAILED, worker.log
        lines = history.read(record)
        assert lines[-1]["op"] == "failed"
        assert re.search(r"Errno (5|28|30)", lines[-1]["error"])
        if kind == "ext4-whole":
            assert "syncing" in lines[-1]["error"]
        ballast.unlink()
        volume.again()
        verdict = verdicts.sound(data, record, power=True)
        assert verdict["sent"] >= 50


@pytest.mark.timeout(300)
@pytest.mark.parametrize("call", ["fsync", "fallocate"])
def test_a_segment_that_cannot_be_made(call, tmp_path, verdicts: Verdicts):
    """No new segment can be allocated or synced: the old ones serve on, sends are refused."""
    need_strace()
    data, record = tmp_path / "data", tmp_path / "history"
    worker = run(data, record, messages=100, segment=64 << 10, reserve=64 << 10)
    assert worker.code == 0, worker.log
    # The first sync of a start is that of the folder: it failing is fatal, and another case.
    first = 2 if call == "fsync" else 1
    before = strace(trace=[call], inject=f"error=EIO:when={first}+")
    given: dict[str, Any] = {"segment": 64 << 10, "reserve": 64 << 10, "messages": 10**9}
    with Worker(data, record, before=before, **given) as worker:

        def refused() -> list[int]:
            return [line["code"] for line in history.read(record) if line["op"] == "refused"]

        wait_until(lambda: refused().count(DISK_FULL) >= 20 or worker.ended, "twenty refusals")
        assert not worker.ended, worker.log
        worker.kill()
    # Sends are told to come again while a segment is still being made.
    assert set(refused()) <= {BUSY, DISK_FULL}
    verdicts.sound(data, record)


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
