"""The processes of the demo: starts them, reads their output, and ends them in any case.

They are started from lists of arguments, without a shell, each in its own session: so Ctrl-C
reaches the conductor only, which then ends them.
"""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import msgspec

from ternmq.demo import watch

_STOP_TIMEOUT: Final = 30.0
_START_TIMEOUT: Final = 60.0
_LOG_TAIL: Final = 600
_LISTENING: Final = re.compile(r"listening on \S+:(\d+)$")


class ProcessFailed(Exception):
    """A process of the demo ended unexpectedly, or did not do its task."""


class Child:
    """A process.

    Attributes:
        name: Its name.
        facts: The facts that it has printed so far; the last value of each name.
        last: The last line that it printed and that is not facts.
        text: All its output, if it prints no facts.
    """

    def __init__(
        self, name: str, process: asyncio.subprocess.Process, log: Path, *, facts: bool = True
    ) -> None:
        self.name = name
        self.facts: dict[str, Any] = {}
        self.last = ""
        self.text = b""
        self._says_facts = facts
        self.expected = False
        self._process = process
        self._log = log
        self._listening = asyncio.create_task(self._listen())

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether it still runs."""
        return self._process.returncode is None

    @property
    def end(self) -> str:
        """How it ended, in words; it has ended."""
        status = self._process.returncode
        assert status is not None
        if status < 0:
            return f"killed by {signal.Signals(-status).name}"
        return f"status {status}" + (f"; {self._last_words()}" if status else "")

    def number(self, fact: str) -> int:
        """Return the last number that it printed for a fact; 0 before."""
        return int(self.facts.get(fact, 0))

    def say(self, word: str) -> None:
        """Write a line to its standard input."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{word}\n".encode())

    def check(self) -> None:
        """Raise ProcessFailed if it ended unexpectedly."""
        if not self.running and not self.expected:
            raise ProcessFailed(
                f"{self.name} ended with status {self._process.returncode}; {self._last_words()}"
            )

    async def wait(self) -> None:
        """Wait until it has ended with status 0.

        Raises:
            ProcessFailed: It ended otherwise, or not in time.
        """
        self.expected = True
        try:
            async with asyncio.timeout(_STOP_TIMEOUT):
                status = await self._process.wait()
                await self._listening
        except TimeoutError:
            raise ProcessFailed(f"{self.name} did not end within {_STOP_TIMEOUT:g} s") from None
        if status != 0:
            raise ProcessFailed(f"{self.name} ended with status {status}; {self._last_words()}")

    async def ended(self) -> None:
        """Wait until it has ended, with any status and without a limit."""
        self.expected = True
        await self._process.wait()
        await self._listening

    async def stop(self, *, listens: bool = True) -> None:
        """Send SIGTERM, as an operator would, and ``wait``.

        Args:
            listens: The process handles the signal by now. False: it may have been started a moment
                ago, and the signal may kill it.
        """
        self.expected = True
        self._signal(signal.SIGTERM)
        try:
            await self.wait()
        except ProcessFailed:
            if listens or self._process.returncode != -signal.SIGTERM:
                raise

    async def kill(self) -> None:
        """Send SIGKILL; returns when the process is gone."""
        self.expected = True
        self._signal(signal.SIGKILL)
        await self._process.wait()
        await self._listening

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            self._process.send_signal(number)

    def said(self) -> str:
        """Return what it wrote to standard error."""
        return self._log.read_text(encoding="utf-8", errors="replace").strip()

    def _last_words(self) -> str:
        said = self.said()
        return f"it said: {said[-_LOG_TAIL:]}" if said else "it said nothing"

    async def _listen(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            if not self._says_facts:
                self.text += line
            elif line.startswith(b"{"):
                self.facts.update(msgspec.json.decode(line, type=dict[str, Any]))
            else:
                self.last = line.decode(errors="replace").strip()


class Processes:
    """All processes of a run; a context manager that kills the remaining ones at its exit.

    Args:
        folder: Where they write; the current folder of each.
        remove: Remove the folder when the run ends, however it ends.
    """

    def __init__(self, folder: Path, *, remove: bool) -> None:
        self.folder = folder
        self.children: list[Child] = []
        self._remove = remove
        self._watch: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Self:
        self._watch = await asyncio.create_subprocess_exec(
            sys.executable, "-I", watch.__file__, *([str(self.folder)] if self._remove else []),
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await asyncio.gather(*[child.kill() for child in self.children if child.running])
        assert self._watch is not None
        await self._tell("done")
        await self._watch.wait()

    async def start(
        self, name: str, *arguments: str, env: Mapping[str, str], facts: bool = True
    ) -> Child:
        """Start ``python -m`` with some arguments; standard error goes to a log file."""
        log = self.folder / f"{name}.log"
        with log.open("ab") as said:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", *arguments,
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=said,
                cwd=self.folder, env=env, start_new_session=True,
            )  # fmt: skip
        child = Child(name, process, log, facts=facts)
        self.children.append(child)
        await self._tell(f"+{child.pid}")
        return child

    async def gone(self, child: Child) -> None:
        """Forget a child that has ended: its process id may be reused."""
        self.children.remove(child)
        await self._tell(f"-{child.pid}")

    def check(self) -> None:
        """Raise ProcessFailed if a process ended unexpectedly."""
        for child in self.children:
            child.check()

    async def _tell(self, word: str) -> None:
        assert self._watch is not None
        assert self._watch.stdin is not None
        with suppress(ConnectionError):
            self._watch.stdin.write(f"{word}\n".encode())
            await self._watch.stdin.drain()


class Broker:
    """The broker: ``ternmq serve`` in a process, at the same port each time it is started."""

    def __init__(self, processes: Processes) -> None:
        self._processes = processes
        self._token = secrets.token_urlsafe(32)
        self._port = 0
        self._child: Child | None = None

    @property
    def environment(self) -> dict[str, str]:
        """Variables for its clients: its address, and the app."""
        return _environment() | {
            "TERNMQ_URL": f"ternmq://127.0.0.1:{self._port}",
            "TERNMQ_APP": "admin",
            "TERNMQ_TOKEN": self._token,
        }

    async def start(self) -> None:
        """Start it; returns when it listens.

        Raises:
            ProcessFailed: It does not listen in time.
        """
        settings = {
            "TERNMQ_ADMIN_TOKEN": self._token,
            "TERNMQ_SEGMENT": "16MiB",
            # The disk of someone who tries the demo may be nearly full.
            "TERNMQ_RETENTION_WATERMARK": "0.98",
            # The demo needs ids of messages only for a while; the default costs 300 MB for a year.
            "TERNMQ_LIMITS_DEDUP_WINDOW": "1m",
            # Time until the messages of a killed consumer are delivered again.
            "TERNMQ_LIMITS_SESSION_GRACE": "5s",
        }
        child = self._child = await self._processes.start(
            "broker", "ternmq", "serve", "--data", str(self._processes.folder / "journal"),
            "--listen", f"127.0.0.1:{self._port}", "--http", "off",
            env=_environment() | settings,
        )  # fmt: skip
        try:
            async with asyncio.timeout(_START_TIMEOUT):
                while (found := _LISTENING.search(child.last)) is None:
                    child.check()
                    await asyncio.sleep(0.01)
        except TimeoutError:
            raise ProcessFailed(f"the broker does not listen after {_START_TIMEOUT:g} s") from None
        self._port = int(found[1])

    async def kill(self) -> None:
        """Send SIGKILL; returns when the process is gone."""
        child = self._running()
        await child.kill()
        await self._processes.gone(child)

    async def stop(self) -> None:
        """Stop it as an operator would. Raises ProcessFailed if its status is not 0."""
        await self._running().stop()

    def _running(self) -> Child:
        assert self._child is not None
        return self._child


def _environment() -> dict[str, str]:
    """Return the environment without settings of another broker."""
    return {name: value for name, value in os.environ.items() if not name.startswith("TERNMQ_")}
