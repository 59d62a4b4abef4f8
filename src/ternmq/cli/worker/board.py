"""The state of all processes of a worker: what its health port answers from.

One thread changes it: that of the supervisor's loop, or of the client's. Another one may read it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from ternmq.cli.worker.reports import Report

STUCK_S: Final = 10.0
"""A process counts as stuck if its event loop has not reported for this long."""


class _Heard(NamedTuple):
    """A report, and the monotonic time at which it came."""

    report: Report
    at: float


class Sums(NamedTuple):
    """Messages of a handler, summed over processes."""

    done: int = 0
    failed: int = 0
    running: int = 0


class Processes(NamedTuple):
    """Numbers of processes.

    Attributes:
        running: Those that run.
        ready: Those that take messages now.
        restarts: Those that were started in the place of another one.
    """

    running: int
    ready: int
    restarts: int


@dataclass(slots=True)
class _Place:
    """One of the N processes; a process that dies is replaced by another one.

    Attributes:
        pid: The process that runs, or ran last.
        heard: Its last report; None: it is starting.
        absent: Why there is no process; empty: one runs.
        over: Whether it has finished, and no other one starts.
    """

    pid: int = 0
    heard: _Heard | None = None
    absent: str = "starting"
    over: bool = False

    def stuck(self, now: float) -> str:
        heard = self.heard
        if heard is None or now - heard.at <= STUCK_S:
            return ""
        return f"its event loop has not run for {now - heard.at:.0f} s"

    def not_ready(self, now: float) -> str:
        if self.absent:
            return self.absent
        if self.heard is None:
            return "starting"
        return self.stuck(now) or self.heard.report.not_ready


class Board:
    """The state of all processes of a worker.

    Args:
        count: Number of processes.

    Attributes:
        stopping: Whether no process is started any more.
    """

    def __init__(self, count: int) -> None:
        self.stopping = False
        self._places = [_Place() for _ in range(count)]
        self._ended: dict[tuple[str, str, str], Sums] = {}
        """What processes did that have ended."""
        self._restarts = 0

    # -- what happens to processes; ``number`` is from 1 on

    def started(self, number: int, pid: int) -> None:
        """Note that a process was started."""
        place = self._places[number - 1]
        self._restarts += place.pid != 0
        place.pid, place.heard, place.absent = pid, None, ""

    def reported(self, number: int, report: Report, now: float) -> None:
        """Note a report; ``now`` is monotonic time."""
        self._places[number - 1].heard = _Heard(report, now)

    def ended(self, number: int, why: str, *, for_good: bool = False) -> None:
        """Note that a process has ended; ``for_good``: no other one starts in its place."""
        place = self._places[number - 1]
        if place.heard is not None:
            _add(self._ended, place.heard.report, ended=True)
        place.heard, place.absent, place.over = None, why, for_good

    # -- what is asked

    def not_live(self, now: float) -> str:
        """Return which processes are stuck; empty if none is. ``now`` is monotonic time."""
        return "; ".join(
            f"process {place.pid}: {stuck}" for place in self._places if (stuck := place.stuck(now))
        )

    def not_ready(self, now: float) -> str:
        """Return why not all processes take messages; empty if they do."""
        left = [place for place in self._places if not place.over]
        if self.stopping or not left:
            return "stopping"
        reasons = [(place, why) for place in left if (why := place.not_ready(now))]
        if len(self._places) == 1:
            return "".join(why for _, why in reasons)
        return "; ".join(f"process {place.pid or 'to start'}: {why}" for place, why in reasons)

    def handlers(self) -> dict[tuple[str, str, str], Sums]:
        """Return what each handler did, by name, topic and group."""
        sums = dict(self._ended)
        for place in self._places:
            if (heard := place.heard) is not None:
                _add(sums, heard.report)
        return sums

    def processes(self, now: float) -> Processes:
        """Return how many processes there are. ``now`` is monotonic time."""
        running = [place for place in self._places if not place.absent]
        ready = 0 if self.stopping else sum(not one.not_ready(now) for one in running)
        return Processes(len(running), ready, self._restarts)


def _add(sums: dict[tuple[str, str, str], Sums], report: Report, *, ended: bool = False) -> None:
    for one in report.handlers:
        key = one.name, one.topic, one.group
        done, failed, running = sums.get(key, Sums())
        runs = 0 if ended else one.running
        sums[key] = Sums(done + one.done, failed + one.failed, running + runs)
