"""What an hour with the docs alone found (the 21st): each failed before."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import ternmq
import ternmq.sync
from ternmq.testing import InProcessBroker
from ternmq.wire.commands import Command
from tests.black_box.process import free_port
from tests.fault.processes import wait_until

TERNMQ = [sys.executable, "-m", "ternmq"]


@pytest.mark.parametrize("at_once", [False, True])
def test_stop_before_run_ends_it_without_a_connection(real: InProcessBroker, at_once: bool) -> None:
    client = ternmq.sync.connect(real.url)
    client.handler("o", group="g")(lambda body: None)
    client.stop(at_once=at_once)
    thread = threading.Thread(target=client.run, kwargs={"signals": False}, daemon=True)
    thread.start()
    thread.join(30)
    assert not thread.is_alive()


def test_so_many_messages_are_refused_at_once(real: InProcessBroker) -> None:
    with ternmq.sync.connect(real.url) as client:
        client.send("o", "x")
        client.admin.create_group("o", "g")
        for call in (client.deadletters.retry, client.deadletters.delete):
            with pytest.raises(ternmq.InvalidRequest, match="more than 1,000,000 messages"):
                call("o", "g", range(10**12))
        with pytest.raises(ternmq.InvalidRequest, match="offset is a whole number from 0 "):
            client.deadletters.get("o", "g", -1)


async def test_the_last_report_waits_no_longer_than_the_timeout(
    real: InProcessBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a full disk, the broker refuses the report, and the client tries again."""
    client = await ternmq.connect(real.url, timeout=0.2)
    await client.send("o", "x")
    control, tried = client._session.control, list[float]()

    async def full(command: Command, *arguments: Any) -> object:
        if command is Command.REPORT:
            tried.append(time.monotonic())
            raise ternmq.DiskFull("the disk is full")
        return await control(command, *arguments)

    monkeypatch.setattr(client._session, "control", full)
    await client.close()
    assert tried
    assert tried[-1] - tried[0] < 3, "for less than the usual 5 s"


@pytest.mark.parametrize("arguments", [["--help"], ["completion", "bash"]])
def test_a_reader_that_is_gone_has_its_own_status(arguments: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [*TERNMQ, *arguments], stdout=writer, stderr=subprocess.PIPE, check=False
        )
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.parametrize("command", ["apply", "worker"])
def test_a_module_that_ends_the_process_is_named(
    real: InProcessBroker, tmp_path: Path, command: str
) -> None:
    (tmp_path / "shop.py").write_text(
        f"import sys, ternmq.sync\nclient = ternmq.sync.connect({real.url!r})\nsys.exit(0)\n"
    )
    done = subprocess.run(
        [*TERNMQ, "--url", real.url, command, "shop:client"], cwd=tmp_path,
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 2
    assert "module 'shop' ends the process when it is imported" in done.stderr
    assert "shop.py, line 3" in done.stderr


def test_dev_whose_terminal_is_closed_leaves_nothing(tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # these tests may run behind nohup
    try:
        process = subprocess.Popen(
            [*TERNMQ, "dev", "--listen", f"127.0.0.1:{free_port()}"], env=environment,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
    finally:
        signal.signal(signal.SIGHUP, before)
    try:
        wait_until(lambda: any(tmp_path.glob("ternmq-dev-*/*")), "its data is there")
        process.send_signal(signal.SIGHUP)
        process.wait(60)
    finally:
        process.kill()
        process.wait()
    assert list(tmp_path.glob("ternmq-dev-*")) == []


def children(process: int) -> set[int]:
    """Return the processes that a process started and that have not ended."""
    listed = Path(f"/proc/{process}/task/{process}/children").read_text(encoding="ascii")
    return set(map(int, listed.split()))


@pytest.mark.slow
def test_the_second_signal_ends_a_worker_process_that_is_frozen(
    real: InProcessBroker, tmp_path: Path
) -> None:
    (tmp_path / "shop.py").write_text(
        f"""import os, ternmq.sync
client = ternmq.sync.connect({real.url!r})
@client.handler("o", group="g")
def handle(body: str) -> None:
    print("child", os.getpid(), flush=True)
"""
    )
    told = tmp_path / "told"
    with told.open("wb") as out:
        worker = subprocess.Popen(
            [*TERNMQ, "worker", "shop:client", "--processes", "2"], cwd=tmp_path, stdout=out,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
    child = 0
    try:
        with ternmq.sync.connect(real.url) as client:
            client.admin.create_topic("o")
            client.send("o", "x")
            wait_until(lambda: told.read_bytes().endswith(b"\n"), "a handler was called")
            client.send("o", "x")
        child = int(told.read_text(encoding="utf-8").split()[1])
        os.kill(child, signal.SIGSTOP)
        worker.send_signal(signal.SIGTERM)
        wait_until(lambda: children(worker.pid) == {child}, "only the frozen one is left")
        assert worker.poll() is None, "it waits for the frozen one"
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(30) == 137
        with pytest.raises(ProcessLookupError):
            os.kill(child, 0)
    finally:
        worker.kill()
        worker.wait()
