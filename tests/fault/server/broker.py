"""A broker process as the tests handle it: start, find, measure, stop, cut, kill."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self

import pytest

from tests.fault.processes import DEADLINE, ROOT, environment, wait_until, watermark

TOKEN: Final = "a-token-for-tests"
APP: Final = "admin"
_LISTENING: Final = re.compile(rb"^listening on (\S+):(\d+)$", re.MULTILINE)


class Address(NamedTuple):
    """Where a broker, or a proxy before it, listens."""

    host: str
    port: int


class Broker:
    """A running ``ternmq serve``; leaving the context kills it, with everything under it.

    Args:
        data: Its folder.
        logs: Folder, on another file system where the disk is to fail, for what it prints.
        before: What starts it (strace and its arguments).
        listen: Where it listens; port 0: anywhere.
        settings: By key, as the environment has them: ``stall_timeout="2s"``.
    """

    def __init__(
        self,
        data: Path,
        logs: Path,
        *,
        before: Sequence[str] = (),
        listen: str = "127.0.0.1:0",
        **settings: str,
    ) -> None:
        logs.mkdir(parents=True, exist_ok=True)
        number = sum(1 for _ in logs.glob("*.out"))
        self._out, self._err = logs / f"{number}.out", logs / f"{number}.err"
        settings = {"retention_watermark": str(watermark(data)), **settings}
        variables = {f"TERNMQ_{key.upper()}": value for key, value in settings.items()}
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(
                [*before, sys.executable, "-m", "ternmq", "serve", "--data", str(data),
                 "--listen", listen, "--http", "off"],
                cwd=ROOT,
                env={**environment(), "TERNMQ_ADMIN_TOKEN": TOKEN, **variables},
                stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True,
            )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()

    @property
    def log(self) -> str:
        """What it has said on standard error."""
        return self._err.read_text(errors="replace")

    @property
    def pid(self) -> int:
        """The process itself, not the strace around it."""
        children = self._children()
        return children[0] if children else self.process.pid

    def _children(self) -> list[int]:
        process = self.process.pid
        with contextlib.suppress(FileNotFoundError):
            text = Path(f"/proc/{process}/task/{process}/children").read_text()
            return [int(child) for child in text.split()]
        return []

    def ready(self, seconds: float = DEADLINE) -> Address:
        """Wait until it listens; return where."""
        found = None

        def said() -> bool:
            nonlocal found
            found = _LISTENING.search(self._out.read_bytes())
            return found is not None or self.ended

        wait_until(said, "listening", seconds)
        if found is None:
            pytest.fail(f"the broker ended with {self.process.returncode}: {self.log}")
        return Address(found[1].decode(), int(found[2]))

    @property
    def listens(self) -> bool:
        """Whether it has said that it listens."""
        return _LISTENING.search(self._out.read_bytes()) is not None

    @property
    def ended(self) -> bool:
        """Whether it is over."""
        return self.process.poll() is not None

    def wait(self, seconds: float = DEADLINE) -> int:
        """Follow it to its end; return its exit status, the negative of a signal."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            log = self.log
            self.kill()
            pytest.fail(f"the broker did not end in {seconds} s: {log}")

    def terminate(self) -> None:
        """Ask it to stop cleanly."""
        os.kill(self.pid, signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL it and whatever runs under it; reap it."""
        children = self._children()
        if self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(DEADLINE)
        # What ran under strace dies on its own, a moment later, and is no child of this process.
        wait_until(lambda: not any(_lives(child) for child in children), "all gone")

    def stop(self) -> None:
        """SIGSTOP it; return when every thread of it has come to rest, none in a system call."""
        process = self.pid
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
        os.kill(self.pid, signal.SIGCONT)

    def resident_bytes(self) -> int:
        """Return the memory that it holds now."""
        return self._status("VmRSS")

    def peak_bytes(self) -> int:
        """Return the most memory that it has held."""
        return self._status("VmHWM")

    def _status(self, name: str) -> int:
        status = Path(f"/proc/{self.pid}/status").read_text()
        found = re.search(rf"^{name}:\s+(\d+) kB$", status, re.MULTILINE)
        assert found is not None, status
        return int(found[1]) << 10

    def cpu_s(self) -> float:
        """Return the processor time that it has used."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _lives(process: int) -> bool:
    """Tell whether a thread of it lives: its first may be a zombie while others hold the lock."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return any(_state(task) not in "ZX" for task in Path(f"/proc/{process}/task").iterdir())
    return False


def _state(task: Path) -> str:
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return (task / "stat").read_text().rsplit(")", 1)[1].split()[0]
    return "X"
