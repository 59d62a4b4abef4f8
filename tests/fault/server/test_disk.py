"""The broker's disk fails, fills, freezes (DUR-5, DUR-6)."""

from __future__ import annotations

import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.fault import history
from tests.fault.messages import LEDGER, ORDERS
from tests.fault.processes import patience, wait_until
from tests.fault.server.broker import Broker
from tests.fault.server.desk import Plan
from tests.fault.server.load import Load
from tests.fault.server.tools import SMALL
from tests.fault.tools import need_root, need_strace
from tests.fault.volumes import Memory, Volume

pytestmark = [pytest.mark.fault, pytest.mark.slow]

EXIT_FAILED = 1
RESUME_SECONDS = 5.0
_ANSWER = re.compile(r"(write|writev|sendmsg|sendto)\(\d+<TCP")
_STAMP = re.compile(r"^\d+ +(\d+\.\d+) ")


def _stamp(line: str) -> float:
    found = _STAMP.match(line)
    assert found is not None, line
    return float(found[1])


def _attach(pid: int, trace: Path, inject: str) -> subprocess.Popen[bytes]:
    """Let strace tamper with a running broker's syncs and note what it writes to its clients."""
    return subprocess.Popen(
        ["strace", "-f", "-yy", "-ttt", "-s", "16", "-o", str(trace), "-p", str(pid),
         "-e", "trace=fdatasync,write,writev,sendmsg,sendto", "-e", f"inject=fdatasync:{inject}"],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip


@pytest.mark.timeout(120)
@pytest.mark.row("B1")
@pytest.mark.parametrize(("producers", "window"), [(1, 1), (4, 16)])
def test_a_sync_that_fails_once(producers, window, memory_folder, verdicts):
    """EIO once, success from then on: the process is gone within a second and answers nothing.

    Of many sends, some may wait for their answer since the sync before, which did not fail: what
    is written behind the failure is judged where one send alone is under way.
    """
    need_strace()
    data, record, trace = memory_folder / "data", memory_folder / "history", memory_folder / "trace"
    plan = Plan(topics=(ORDERS, LEDGER), consumers=(), producers=producers, window=window)
    with (
        Broker(data, memory_folder / "logs", **SMALL) as broker,
        Load(broker.ready(), record, plan) as load,
    ):
        load.sent(200)
        strace = _attach(broker.pid, trace, "error=EIO:when=40")
        try:
            assert broker.wait() == EXIT_FAILED, broker.log
        finally:
            strace.send_signal(signal.SIGTERM)
            strace.wait(10)
        assert "journal has failed" in broker.log
        assert "Traceback" not in broker.log
    lines = trace.read_text().splitlines()
    at = next(number for number, line in enumerate(lines) if "(INJECTED)" in line)
    exited = next(line for line in lines[at:] if "+++ exited with 1 +++" in line)
    if window == 1:
        assert not [line for line in lines[at:] if _ANSWER.search(line)]
    assert [line for line in lines[:at] if _ANSWER.search(line)]
    took = _stamp(exited) - _stamp(lines[at])
    assert took < 1.0 * patience(), f"gone after {took:.2f} s"
    verdict = verdicts.sound(data, record)
    assert verdict["sent"] > 100


@pytest.mark.timeout(120)
@pytest.mark.row("B1")
@pytest.mark.parametrize("kind", ["ext4-whole", "ext4-sparse"])
def test_real_errors_of_a_real_disk(kind, memory_folder, verdicts):
    """The image's own disk is full and the next segment's blocks are gone: the sync fails."""
    need_root("mkfs.ext4", "filefrag", "fallocate")
    record = memory_folder / "history"
    with (
        Memory(memory_folder / "small", 80 << 20) as small,
        Volume(small.point / "volume", kind) as volume,
    ):
        data = volume.point / "data"
        with (
            Broker(data, memory_folder / "logs", **SMALL) as broker,
            Load(broker.ready(), record) as load,
        ):
            load.sent(100)
            broker.stop()
            volume.punch(max((data / "journal").iterdir()))
            ballast = small.fill()
            broker.go_on()
            assert broker.wait() == EXIT_FAILED, broker.log
            assert "journal has failed" in broker.log
        ballast.unlink()
        volume.again()
        verdict = verdicts.sound(data, record, power=True)
        assert verdict["sent"] >= 50


@pytest.mark.timeout(120)
@pytest.mark.row("C14")
@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_a_full_disk(kind, memory_folder, verdicts):
    """Sends are refused for certain, consumers go on; with space, sends come back by themselves."""
    need_root(f"mkfs.{kind}", "fallocate")
    record = memory_folder / "history"
    with Volume(memory_folder / "volume", kind) as volume:
        data = volume.point / "data"
        with (
            Broker(data, memory_folder / "logs", **SMALL) as broker,
            Load(broker.ready(), record) as load,
        ):
            load.sent(500)
            ballast = volume.fill()
            load.wait(lambda: load.counts.refused["DiskFull"] >= 20, "sends refused")
            load.settled(50)
            assert set(load.counts.refused) <= {"DiskFull", "Busy"}, load.counts.refused
            ballast.unlink()
            freed = time.monotonic()
            load.sent(1)
            took = time.monotonic() - freed
            load.sent(200)
            load.settled(50)
            load.stop_sending()
            assert not broker.ended
            broker.terminate()
            assert broker.wait() == 0, broker.log
        verdict = verdicts.sound(data, record)
    assert took < RESUME_SECONDS * patience(), f"sends came back after {took:.1f} s"
    assert verdict["refused"] >= 20
    assert load.losses <= len(load.clients)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_a_frozen_disk(kind, memory_folder, verdicts):
    """Two seconds of a disk that does not answer: nothing is answered, nobody is cut off."""
    need_root(f"mkfs.{kind}", "fsfreeze")
    record = memory_folder / "history"
    plan = Plan(topics=(ORDERS, LEDGER), consumers=((ORDERS, "billing"), (LEDGER, "books")))
    with Volume(memory_folder / "volume", kind) as volume:
        data = volume.point / "data"
        with (
            Broker(data, memory_folder / "logs", **SMALL) as broker,
            Load(broker.ready(), record, plan) as load,
        ):
            load.sent(200)
            volume.freeze()
            frozen = time.monotonic()
            wait_until(
                lambda: time.monotonic() - max(frozen, load.counts.last_answer) > 2.0,
                "two seconds without an answer",
            )
            quiet_from = load.counts.last_answer
            volume.thaw()
            load.sent(300)
            assert quiet_from < frozen + 0.5, "answers while the disk was frozen"
            load.stop_sending()
            assert load.losses == 0
            assert not load.counts.refused, load.counts.refused
            broker.terminate()
            assert broker.wait() == 0, broker.log
        lines = history.read(record)
        assert not [line for line in lines if line["op"] == "refused"]
        verdicts.sound(data, record)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_a_small_disk_begins_small(kind, memory_folder):
    """Nothing is set: the journal takes files that fit the disk, and says so before it does."""
    need_root(f"mkfs.{kind}")
    with Volume(memory_folder / "volume", kind, 320 << 20) as volume:
        data = volume.point / "data"
        with (
            Broker(data, memory_folder / "logs") as broker,
            Load(
                broker.ready(), memory_folder / "history", Plan(topics=(ORDERS,), consumers=())
            ) as load,
        ):
            load.sent(100)
            sizes = {path.stat().st_size for path in (data / "journal").iterdir()}
            assert sizes == {16 << 20}
            assert "two files of 16 MiB before it listens, and 2 files in all" in broker.log
            broker.terminate()
            assert broker.wait() == 0, broker.log
