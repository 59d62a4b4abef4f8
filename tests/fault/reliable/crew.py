"""Members as the tests handle them: start, follow, stop, kill, end."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import msgspec
import pytest

from tests.fault.processes import DEADLINE, ROOT, environment
from tests.fault.reliable.member import Orders
from tests.fault.reliable.tools import wait_until
from tests.fault.reliable.transfers.clerk import Duty


class MemberProcess:
    """A member, from outside.

    Attributes:
        name: Its orders begin with it.
        pid: Of its process.
    """

    def __init__(self, orders: Orders | Duty, pid: int) -> None:
        self.name = orders.name
        self.pid = pid
        self._file = Path(orders.file)
        self._process = os.pidfd_open(pid)
        self._offset = 0
        self._lines: list[dict[str, Any]] = []

    def lines(self, what: str = "") -> list[dict[str, Any]]:
        """Return the lines of its file, or those that say something."""
        if self._file.exists():
            with self._file.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
            whole = data[: data.rfind(b"\n") + 1]
            self._offset += len(whole)
            self._lines += [json.loads(line) for line in whole.splitlines()]
        return [line for line in self._lines if not what or line["what"] == what]

    @property
    def errors(self) -> str:
        """What it printed."""
        path = Path(f"{self._file}.err")
        return path.read_text(errors="replace")[-4000:] if path.exists() else ""

    @property
    def ended(self) -> bool:
        """Whether its process is over."""
        return bool(select.select([self._process], [], [], 0)[0])

    def said(self, what: str, count: int = 1, seconds: float = DEADLINE) -> list[dict[str, Any]]:
        """Wait until it has said something so often; return the lines."""

        def ready() -> bool:
            return len(self.lines(what)) >= count or self.ended

        wait_until(ready, f"{self.name} says {what!r}: {self.errors}", seconds)
        found = self.lines(what)
        if len(found) < count:
            pytest.fail(f"{self.name} ended before it said {what!r}: {self.errors}")
        return found

    def stands(self, step: str) -> None:
        """Wait until it has stopped itself at a step."""
        lines = self.said("stopped")
        assert lines[0]["step"] == step, lines
        self._stopped()

    def _stopped(self) -> None:
        tasks = Path(f"/proc/{self.pid}/task")

        def stopped() -> bool:
            states = [(one / "stat").read_text().rsplit(")", 1)[1].split()[0] for one in _of(tasks)]
            return set(states) <= set("Tt")

        wait_until(stopped, f"{self.name} stands still")

    def stop(self) -> None:
        """SIGSTOP it; return when every thread of it stands still."""
        self._signal(signal.SIGSTOP)
        self._stopped()

    def go_on(self) -> None:
        """SIGCONT it."""
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL it, which must live."""
        if self.ended:
            pytest.fail(f"inconclusive: {self.name} had ended before it was killed: {self.errors}")
        self._signal(signal.SIGKILL)
        wait_until(lambda: self.ended, f"{self.name} is gone")

    def dies(self, number: signal.Signals) -> None:
        """Tell it by a signal to kill itself somewhere; wait until it has."""
        self.said("started")  # before, the signal ends it
        self._signal(number)
        wait_until(lambda: self.ended, f"inconclusive: {self.name} dies: {self.errors}")
        if not self.lines("dies"):
            pytest.fail(f"{self.name} ended otherwise: {self.errors}")

    def end(self) -> dict[str, Any]:
        """Have it end properly; return what it counted."""
        self.said("started")  # before, SIGTERM kills it
        self._signal(signal.SIGTERM)
        wait_until(lambda: self.ended, f"{self.name} ends")
        return self.said("ended")[0]

    def _signal(self, number: int) -> None:
        signal.pidfd_send_signal(self._process, number)

    def close(self) -> None:
        """Kill it, if it lives."""
        if not self.ended:
            self._signal(signal.SIGKILL)
            wait_until(lambda: self.ended, f"{self.name} is gone")
        os.close(self._process)


def _of(folder: Path) -> list[Path]:
    return list(folder.iterdir())


class Crew:
    """The members of a test; leaving the context kills those that are left.

    Args:
        nursery: Forks them.
        folder: For their files.
        kind: Of what they are ordered to do.
        common: Orders that all have: ``database``, ``broker``, ``topic`` and others.
    """

    def __init__(
        self, nursery: Nursery, folder: Path, kind: type[Orders | Duty] = Orders, **common: Any
    ) -> None:
        self._kind = kind
        self._nursery = nursery
        self._folder = folder
        self._common = common
        self.members: list[MemberProcess] = []

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for member in self.members:
            member.close()

    def start(self, name: str, **given: Any) -> MemberProcess:
        """Start a member."""
        orders = self._kind(name=name, file=str(self._folder / name), **{**self._common, **given})
        made = MemberProcess(orders, self._nursery.fork(orders))
        self.members.append(made)
        return made

    def lines(self, what: str) -> list[dict[str, Any]]:
        """Return what all members said, killed ones too."""
        return [line for member in self.members for line in member.lines(what)]

    def end(self) -> list[dict[str, Any]]:
        """End those that live; return what they counted."""
        living = [member for member in self.members if not member.ended]
        return [member.end() for member in living]


class Nursery:
    """The process that forks members.

    Args:
        before: Words that go before its command.
    """

    def __init__(self, before: Sequence[str] = ()) -> None:
        self._process = subprocess.Popen(
            [*before, sys.executable, "-m", "tests.fault.reliable.nursery"],
            cwd=ROOT, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            start_new_session=True,
        )  # fmt: skip

    def fork(self, orders: Orders | Duty) -> int:
        """Fork a member; return its process."""
        asked, answers = _open(self._process.stdin), _open(self._process.stdout)
        asked.write(msgspec.json.encode(orders).decode() + "\n")
        asked.flush()
        return int(answers.readline())

    def close(self) -> None:
        """End it, with its members."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate(timeout=DEADLINE)


def _open(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream


@contextmanager
def nursery(before: Sequence[str] = ()) -> Iterator[Nursery]:
    """Run a nursery; ``before``: words that go before its command."""
    made = Nursery(before)
    try:
        yield made
    finally:
        made.close()
