"""Workers and verifiers as the tests handle them: start, follow, kill, ask. Nothing sleeps."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import IO, Any, Self

import pytest

from ternmq.journal.log.retention import DEFAULT_WATERMARK

ROOT = Path(__file__).parents[2]
DEADLINE = 60.0
"""Longest that anything here may take, on a machine that does much else."""


def environment() -> dict[str, str]:
    """Return the environment of a child: no byte code is written, only the broker renames."""
    return {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}


def patience() -> float:
    """Return how many times longer than promised something may take on this machine now.

    Promises of time are for a machine that has the time: thrice, and as much more as there are
    processes that want a core.
    """
    return 3 * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def watermark(folder: Path) -> float:
    """Return up to which share of its disk a folder's broker keeps what it has.

    A file system of the test's own has the broker's default. The machine's disk may be full of
    other things, and with the default a broker then removes what the test looks for.
    """
    there = next(path for path in (folder, *folder.parents) if path.exists())
    of_the_machine = there.stat().st_dev == Path(tempfile.gettempdir()).stat().st_dev
    return 0.98 if of_the_machine else DEFAULT_WATERMARK


def wait_until(condition: Callable[[], bool], what: str, seconds: float = DEADLINE) -> None:
    """Wait for something that cannot be waited for otherwise, or fail."""
    until = time.monotonic() + seconds
    pause = threading.Event()
    while not condition():
        if time.monotonic() > until:
            pytest.fail(f"after {seconds} s: not {what}")
        pause.wait(0.002)


def options(**given: Any) -> list[str]:
    """Return ``messages=5`` as ``--messages 5``."""
    return [text for name, value in given.items() for text in (f"--{name}", str(value))]


class Worker:
    """A running worker; leaving the context kills it, with everything under it.

    Args:
        folder: The broker's data.
        history: Of what it answers; on another file system where the disk is to fail.
        before: What starts it (strace and its arguments).
        given: Options of the worker.
    """

    def __init__(
        self, folder: Path, history: Path, *, before: Sequence[str] = (), **given: Any
    ) -> None:
        command = [*before, sys.executable, "-m", "tests.fault.worker", str(folder), str(history)]
        self.process = subprocess.Popen(
            [*command, *options(watermark=watermark(folder), **given)],
            cwd=ROOT,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self.answers = 0
        self.opened = False
        self.log = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()

    def kill(self) -> None:
        """SIGKILL it and whatever runs under it; reap it."""
        if self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
        self._end()

    def wait(self, seconds: float = DEADLINE) -> int:
        """Follow it to its end; return its exit code, the negative of a signal that ended it."""
        until = time.monotonic() + seconds
        while self._read(until):
            pass
        if time.monotonic() > until:
            self.kill()
            pytest.fail(
                f"the worker did not end in {seconds} s; {self.answers} answers: {self.log}"
            )
        self._end()
        return self.code

    @property
    def ended(self) -> bool:
        """Whether it is over; takes in what it says meanwhile, so that it need not wait."""
        self._read(time.monotonic())
        return self.process.poll() is not None

    @property
    def code(self) -> int:
        """How it ended: its exit code, the negative of a signal that ended it."""
        code = self.process.returncode
        return 128 - code if code > 128 else code

    def answered(self, count: int, seconds: float = DEADLINE) -> None:
        """Wait until it has given that many answers, or fail."""
        until = time.monotonic() + seconds
        while self.answers < count:
            if not self._read(until):
                code = self.process.poll()
                self.kill()
                pytest.fail(f"{self.answers} of {count} answers, code {code}: {self.log}")

    def silent(self, seconds: float) -> bool:
        """Return whether no answer comes for so long; false at once if one does."""
        before = self.answers
        until = time.monotonic() + seconds
        while self.answers == before and self._read(until):
            pass
        return self.answers == before and self.process.poll() is None

    def _read(self, until: float) -> bool:
        """Take in what it says; return false at its end or when the time is over."""
        out = self.process.stdout
        assert out is not None
        ready, _, _ = select.select([out], [], [], max(0.0, until - time.monotonic()))
        data = os.read(out.fileno(), 65536) if ready else b""
        self.answers += data.count(b".")
        self.opened = self.opened or b"\n" in data
        return bool(data)

    def _end(self) -> None:
        if self.process.stderr is not None and not self.process.stderr.closed:
            self.log += self.process.communicate(timeout=DEADLINE)[1].decode()

    def stop(self) -> None:
        """SIGSTOP it; return when every thread of it has come to rest, none in a system call.

        Started by strace, the worker is its only child; strace must see it stop, and goes on.
        """
        process = self._worker()
        os.kill(process, signal.SIGSTOP)
        tasks = Path(f"/proc/{process}/task")

        def stopped() -> bool:
            return all(
                (task / "stat").read_text().rsplit(")", 1)[1].split()[0] in "Tt"
                for task in tasks.iterdir()
            )

        wait_until(stopped, "stopped")

    def go_on(self) -> None:
        """SIGCONT it."""
        os.kill(self._worker(), signal.SIGCONT)

    def _worker(self) -> int:
        process = self.process.pid
        children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
        return int(children[0]) if children else process


def run(folder: Path, history: Path, *, before: Sequence[str] = (), **given: Any) -> Worker:
    """Run a worker to its end, whatever that is."""
    with Worker(folder, history, before=before, **given) as worker:
        worker.wait()
        return worker


class Verdicts:
    """Verifier processes that serve any thread; a verdict is a dictionary, see ``verify``."""

    def __init__(self, count: int = 2) -> None:
        self._free: SimpleQueue[subprocess.Popen[str]] = SimpleQueue()
        self._all: list[subprocess.Popen[str]] = []
        self._left = count
        self._lock = threading.Lock()

    def close(self) -> None:
        """Kill the processes: between two verdicts they hold nothing.

        Closing their input would not do: a process that some other test forked may hold it open.
        """
        for process in self._all:
            process.kill()
            process.communicate(timeout=DEADLINE)

    def of(self, folder: Path, history: Path, *, power: bool = False) -> dict[str, Any]:
        """Open the folder, drain it, compare it with the history."""
        with self._lock:
            if self._left and self._free.empty():
                self._left -= 1
                self._start()
        process = self._free.get(timeout=DEADLINE)
        try:
            line = json.dumps({"folder": str(folder), "history": str(history), "power": power})
            _stream(process.stdin).write(line + "\n")
            _stream(process.stdin).flush()
            answer = _stream(process.stdout).readline()
        finally:
            self._free.put(process)
        verdict = json.loads(answer)
        assert isinstance(verdict, dict)
        return verdict

    def sound(self, folder: Path, history: Path, *, power: bool = False) -> dict[str, Any]:
        """Return the verdict, which must be without a problem."""
        verdict = self.of(folder, history, power=power)
        assert not verdict["problems"], "\n".join([*verdict["problems"], str(folder), str(history)])
        return verdict

    def _start(self) -> None:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.fault.verify"],
            cwd=ROOT,
            env=environment(),
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._all.append(process)
        self._free.put(process)


def _stream(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream
