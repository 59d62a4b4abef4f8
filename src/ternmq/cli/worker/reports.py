"""What a process of a worker reports about itself, twice a second while it has a health port.

The report is made in the event loop of the client. So a loop that is stuck makes none, and a
handler that is stuck in a thread changes nothing. A process with a supervisor writes its reports
into a pipe, one line of JSON each.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from typing import Final

import msgspec

from ternmq.client.handler.counts import HandlerCounts
from ternmq.client.serving import Serving

REPORTS: Final = "TERNMQ_WORKER_REPORTS"
"""Variable of a supervised process: the descriptor into which it writes its reports."""
EVERY_S: Final = 0.5
_PIECE: Final = 65_536


class Report(msgspec.Struct, frozen=True):
    """The state of a process.

    Attributes:
        not_ready: Why its handlers get no messages now; empty if they do.
        handlers: What each handler did.
    """

    not_ready: str
    handlers: list[HandlerCounts]


class Beat:
    """Makes a report every ``EVERY_S`` seconds, from ``begin`` until the loop ends.

    Args:
        serving: What is reported about.
        sink: Gets the reports, in the loop.
    """

    def __init__(self, serving: Serving, sink: Callable[[Report], None]) -> None:
        self._serving = serving
        self._sink = sink
        serving.counted = True

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin in the client's loop. Callable from any thread."""
        loop.call_soon_threadsafe(self._next, loop)

    def _next(self, loop: asyncio.AbstractEventLoop) -> None:
        self.report()
        loop.call_later(EVERY_S, self._next, loop)

    def report(self) -> None:
        """Make a report now. Call it from the client's loop, or after its end."""
        self._sink(Report(self._serving.not_ready(), self._serving.counts()))


class Writer:
    """Writes reports to the supervisor, without waiting. One thread at a time."""

    def __init__(self, descriptor: int) -> None:
        os.set_inheritable(descriptor, False)
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self._rest = b""

    def __call__(self, report: Report) -> None:
        """Write a report; leave it out if an earlier one is not written yet."""
        if not self._rest:
            self._rest = msgspec.json.encode(report) + b"\n"
        # OSError: the pipe is full, or the supervisor is gone; then this process ends soon.
        with contextlib.suppress(OSError):
            self._rest = self._rest[os.write(self._descriptor, self._rest) :]


def writer() -> Writer | None:
    """Return what writes to the supervisor; None if nobody reads reports."""
    number = os.environ.pop(REPORTS, "")
    return Writer(int(number)) if number else None


class Reader:
    """Reads the reports of one process. Not thread-safe: use it in the supervisor's loop.

    Args:
        descriptor: The reading end; closed by ``close``.
        sink: Gets the reports.
    """

    def __init__(self, descriptor: int, sink: Callable[[Report], None]) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self._sink = sink
        self._rest = b""
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(descriptor, self._read)

    def _read(self) -> bool:
        """Read what there is; return whether there may be more."""
        try:
            piece = os.read(self._descriptor, _PIECE)
        except BlockingIOError:
            return False
        *lines, self._rest = (self._rest + piece).split(b"\n")
        for line in lines:
            self._sink(msgspec.json.decode(line, type=Report))
        if not piece:
            self._loop.remove_reader(self._descriptor)
        return bool(piece)

    def close(self) -> None:
        """Read what the process wrote last, and end."""
        while self._read():
            pass
        self._loop.remove_reader(self._descriptor)
        os.close(self._descriptor)
