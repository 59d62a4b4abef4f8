"""A worker with several processes, or one that restarts when its source changes.

The first process supervises: it starts the same command line again in processes that run the
handlers, and connects to no broker itself. Nothing is forked with connections or threads.

* A process that dies is started again, after 1 s, 2 s, 4 s, at most 30 s; after a minute of work
  the pause is 1 s again. With ``reload`` it is started again when a file changes.
* A process that ends by itself (``client.stop()``) is not started again; one that ends with a
  status of ``FOR_GOOD`` ends all.
* SIGTERM, SIGINT and SIGHUP are passed on as SIGTERM; the second signal as it came. The third one
  kills, and so do 3 s after the second. A process that ends by the first one was still starting:
  it had begun nothing.
* Each process holds the reading end of a pipe, which ends when the supervisor is gone: then the
  process ends too.
* With a health port, the supervisor answers for all: each process reports through another pipe.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
import threading
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ternmq.cli.terminal.exits import ExitCode
from ternmq.cli.worker import sources
from ternmq.cli.worker.board import Board
from ternmq.cli.worker.reports import REPORTS, Reader, Report
from ternmq.client.connection.backoff import Backoff
from ternmq.client.connection.connecting import INSTANCE

if TYPE_CHECKING:
    from ternmq.model.units import Address

log: Final = logging.getLogger("ternmq")

LIFELINE: Final = "TERNMQ_WORKER_LIFELINE"
"""Variable of a supervised process: the descriptor of its pipe."""
FOR_GOOD: Final = frozenset({ExitCode.USAGE, ExitCode.NOT_ALLOWED, ExitCode.UNSOUND})
"""A new process would end with the same status until something is changed."""
_BACKOFF: Final = Backoff(1.0, 30.0)
_HEALTHY: Final = 60.0
"""A process that lived this long counts as healthy: the next pause is the first one again."""
_AT_ONCE: Final = 3.0
"""Seconds after the second signal at which a process that has not ended is killed."""
_LOOK_EVERY: Final = 0.5
_SIGNAL_BASE: Final = 128


def is_supervised() -> bool:
    """Return whether this process has a supervisor; if so, end when that is gone."""
    number = os.environ.pop(LIFELINE, "")
    if not number:
        return False

    os.set_inheritable(int(number), False)

    def watch() -> None:
        os.read(int(number), 1)  # nothing is ever written
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="ternmq-lifeline", daemon=True).start()
    return True


def supervise(count: int, *, reload: bool, http: Address | None) -> int:
    """Run ``count`` processes of this command line until all are done; return the exit status.

    Raises:
        Failed: It cannot listen at ``http``; no process was started.
    """
    return asyncio.run(_Supervisor(count, Path.cwd() if reload else None, http).run())


class _Supervisor:
    def __init__(self, count: int, watched: Path | None, http: Address | None = None) -> None:
        self._count = count
        self._http = http
        self._board = Board(count)
        self._readers: dict[int, Reader] = {}  # of reports, by number of the process
        self._watched = watched
        self._lifeline, self._held = os.pipe()
        self._children: set[asyncio.subprocess.Process] = set()
        self._told: list[int] = []  # signals
        self._over = asyncio.Event()  # stopping: no process is started any more
        self._change = asyncio.Event()
        self._status = int(ExitCode.DONE)

    async def run(self) -> int:
        """Run until no process is left."""
        if self._http is None:
            return await self._run()
        from ternmq.cli.worker.health import listening

        async with listening(self._http, self._board):
            return await self._run()

    async def _run(self) -> int:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:  # nohup
                loop.add_signal_handler(number, self._signal, number)
        log.info("supervisor %d: %d process%s of the worker%s", os.getpid(), self._count,
                 "es" if self._count > 1 else "",
                 f"; restarted when a .py file below {self._watched} changes"
                 if self._watched else "")  # fmt: skip
        watching = asyncio.create_task(self._watch(self._watched)) if self._watched else None
        try:
            async with asyncio.TaskGroup() as group:
                for at in range(self._count):
                    group.create_task(self._keep(at + 1))
        finally:
            if watching is not None:
                watching.cancel()
            os.close(self._held)
            os.close(self._lifeline)
        return self._status

    def _signal(self, number: int) -> None:
        if number == signal.SIGHUP and self._told:
            return  # both the shell and the kernel send it when the terminal is closed
        if not self._told:
            number = signal.SIGTERM  # of all, it ends a process that still imports without a word
        self._told.append(number)
        self._end()
        self._pass_on(number if len(self._told) <= 2 else signal.SIGKILL)
        if len(self._told) == 2:
            # One that is frozen, or in C code that keeps the GIL, does not handle a signal.
            asyncio.get_running_loop().call_later(_AT_ONCE, self._pass_on, signal.SIGKILL)

    def _end(self) -> None:
        """Start no process any more."""
        self._over.set()
        self._board.stopping = True

    def _pass_on(self, number: int) -> None:
        for child in list(self._children):
            send(child, number)

    # -- one process

    async def _keep(self, number: int) -> None:
        """Run one process, again and again, until it is done; ``number``: which one, from 1 on."""
        loop = asyncio.get_running_loop()
        pauses = _BACKOFF.pauses()
        while not self._over.is_set():
            change = self._change
            began = loop.time()
            child = await self._start(number)
            self._children.add(child)
            self._board.started(number, child.pid)
            if self._over.is_set():  # this one has received no signal yet
                send(child, self._told[-1] if self._told else signal.SIGTERM)
            status = await self._wait(child, change)
            self._children.discard(child)
            if (reader := self._readers.pop(number, None)) is not None:
                reader.close()
            how = f"signal {status - _SIGNAL_BASE}" if status > _SIGNAL_BASE else f"status {status}"
            self._board.ended(number, f"ended with {how}", for_good=status == ExitCode.DONE
                              and self._watched is None and not change.is_set())  # fmt: skip
            if self._over.is_set():
                if status == ExitCode.KILLED:
                    self._status = status
                elif status and not self._was_starting(status):
                    self._status = self._status or status
                return
            if change.is_set():
                continue
            if self._watched is not None:
                log.warning("process %d ended with %s: waiting for a change", child.pid, how)
                await _either(self._over, change)
            elif status == ExitCode.DONE:
                log.info("process %d ended with status 0 (client.stop() or SIGTERM), and no other "
                         "one starts: %d of %d left",
                         child.pid, len(self._children), self._count)  # fmt: skip
                return
            elif status in FOR_GOOD:
                self._status = status
                self._end()
                self._pass_on(signal.SIGTERM)
                return
            else:
                if loop.time() - began >= _HEALTHY:
                    pauses = _BACKOFF.pauses()
                pause = next(pauses)
                log.error(
                    "process %d ended with %s: another process starts in %g s",
                    child.pid,
                    how,
                    pause,
                )
                await _within(self._over, pause)

    def _was_starting(self, status: int) -> bool:
        """Return whether a process ended by the first signal: it did not handle signals yet."""
        return len(self._told) == 1 and status == _SIGNAL_BASE + self._told[0]

    async def _start(self, number: int) -> asyncio.subprocess.Process:
        variables = {**os.environ, LIFELINE: str(self._lifeline)}
        if variables.get(INSTANCE) and self._count > 1:  # each is a broadcast instance of its own
            variables[INSTANCE] += f"-{number}"
        passed = [self._lifeline]
        if self._http is not None:
            reading, writing = os.pipe()
            self._readers[number] = Reader(reading, partial(self._reported, number))
            variables[REPORTS] = str(writing)
            passed.append(writing)
        try:
            return await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "ternmq",
                *sys.argv[1:],
                env=variables,
                pass_fds=passed,
                stdin=asyncio.subprocess.DEVNULL,
                process_group=0,  # Ctrl-C is passed on once, not sent by the terminal too
            )
        finally:
            for one in passed[1:]:
                os.close(one)

    def _reported(self, number: int, report: Report) -> None:
        self._board.reported(number, report, time.monotonic())

    async def _wait(self, child: asyncio.subprocess.Process, change: asyncio.Event) -> int:
        """Return the status of a process; if the source changes, end it first."""
        ended = asyncio.ensure_future(child.wait())
        changed = asyncio.ensure_future(change.wait())
        await asyncio.wait({ended, changed}, return_when=asyncio.FIRST_COMPLETED)
        changed.cancel()
        if not ended.done() and not self._over.is_set():
            send(child, signal.SIGTERM)
        status = await ended
        return status if status >= 0 else _SIGNAL_BASE - status

    # -- its source

    async def _watch(self, folder: Path) -> None:
        """Restart processes after the source has changed and then stayed the same for one look."""
        known = await asyncio.to_thread(sources.look, folder)
        seen = known
        while True:
            await asyncio.sleep(_LOOK_EVERY)
            found = await asyncio.to_thread(sources.look, folder)
            changes = sources.changed(known, found)
            if changes and found == seen:
                known = found
                more = f" and {len(changes) - 1} more" if len(changes) > 1 else ""
                log.info("%s%s changed: restarting", changes[0], more)
                change, self._change = self._change, asyncio.Event()
                change.set()
            seen = found


def send(child: asyncio.subprocess.Process, number: int) -> None:
    """Send a signal to a process that has not been waited for.

    ``child.send_signal`` would wait for a process that has just ended, in the place of asyncio,
    which then reports status 255 and warns of an unknown process.
    """
    if child.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child.pid, number)


async def _within(event: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return


async def _either(one: asyncio.Event, other: asyncio.Event) -> None:
    waits = [asyncio.ensure_future(one.wait()), asyncio.ensure_future(other.wait())]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for wait in waits:
        wait.cancel()
