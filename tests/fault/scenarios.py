"""What a worker can be asked to do."""

from __future__ import annotations

import argparse
import os
import signal
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from ternmq.model.specs import Start, SubscriptionSpec
from ternmq.record.fact.facts import Outcome
from tests.fault.history import History, Line
from tests.fault.messages import GROUPS, LEASE_US, ORDERS, QUICK
from tests.fault.shell import Shell, Work
from tests.fault.traffic import Plan, Traffic


def _traffic(
    shell: Shell, history: History, past: Sequence[Line], given: argparse.Namespace
) -> Traffic:
    """Workload W."""
    plan = Plan(messages=given.messages, window=given.window, resend_ids=given.remember >= 60)
    work = Traffic(shell, history, past, given.seed, plan)
    work.set_up()
    return work


class Flood:
    """As many producers as the window is wide; each sends its next message when it is answered."""

    def __init__(self, traffic: Traffic, shell: Shell, window: int) -> None:
        self.done = False
        self._traffic = traffic
        self._window = window
        shell.commands_a_turn = window

    def act(self) -> bool:
        """Send a message if a producer is idle."""
        if self._traffic.waiting >= self._window:
            return False
        self._traffic.send_new(ORDERS, 1)
        return True


def flood(shell: Shell, history: History, past: Sequence[Line], given: argparse.Namespace) -> Work:
    """Sends only; until killed."""
    return Flood(_traffic(shell, history, past, given), shell, given.window)


class Tail:
    """Traffic up to a place in the journal; what is written behind it is not synced; then death.

    The traffic waits for a sync that is out: where D and the end stand follows from what is sent,
    not from how long the disk of a busy machine takes.
    """

    def __init__(self, traffic: Traffic, shell: Shell, place: int, tail: int) -> None:
        self.done = False
        self._traffic = traffic
        self._shell = shell
        self._place = place
        self._tail = tail
        self._durable = 0
        self._stated = 0

    def act(self) -> bool:
        """Go on, or die."""
        journal = self._shell.broker.journal
        self._shell.hold_syncs = journal.end >= self._place
        if journal.durable != self._durable:  # records from here on say so
            self._durable, self._stated = journal.durable, journal.end
        if self._shell.hold_syncs and journal.written - self._stated >= self._tail:
            os.kill(os.getpid(), signal.SIGKILL)
        return not self._shell.syncing and self._traffic.act()


def tail(shell: Shell, history: History, past: Sequence[Line], given: argparse.Namespace) -> Work:
    """Ends with a journal whose durable position lies well before its end."""
    return Tail(_traffic(shell, history, past, given), shell, given.place, given.tail)


class Fill:
    """Sends until the disk is full, consumes while it is, sends again when there is room.

    The history gets a ``phase`` line at the beginning of each part.
    """

    REFUSALS = 30
    AFTERWARDS = 200

    def __init__(self, traffic: Traffic, history: History) -> None:
        self.done = False
        self._traffic = traffic
        self._history = history
        self._phase = ""
        self._turn = 0
        self._accepted = 0
        self._begin("fill")

    def _begin(self, phase: str) -> None:
        self._phase = phase
        self._history.write("phase", name=phase)

    def act(self) -> bool:
        """Do the next thing of this phase."""
        traffic = self._traffic
        self._turn += 1
        if self._phase == "fill":
            if traffic.waiting < 64:
                traffic.send_new(ORDERS, 4)
            if traffic.refused >= self.REFUSALS:
                self._begin("full")
            return traffic.waiting < 64
        if self._phase == "full":
            for group in GROUPS[ORDERS]:
                if traffic.consume(ORDERS, group):
                    if self._turn % 10 == 0:
                        traffic.send_new(ORDERS, 1)
                    return True
            if traffic.pending:  # more may come to hand
                return False
            self._begin("again")
        if self._turn % 4 == 0 and traffic.waiting < 64:
            traffic.send_new(ORDERS, 1)
            self._accepted += not traffic.refused
            self.done = self._accepted >= self.AFTERWARDS
            return not traffic.refused
        first, second = GROUPS[ORDERS]
        return traffic.consume(ORDERS, first) or traffic.consume(ORDERS, second)


def fill(shell: Shell, history: History, past: Sequence[Line], given: argparse.Namespace) -> Work:
    """Fills the disk."""
    return Fill(_traffic(shell, history, past, given), history)


SOLO: Final = "solo"
"""A group that begins where the journal ends."""


class Acks:
    """Takes eight messages, acknowledges some of them out of order, and waits to be killed.

    ``index`` lines in the history say what the index files were before and after. Nothing but acks
    is recorded between them: no job of the index is out, and the segment has room for more.
    """

    ACKED = (3, 5, 7)

    def __init__(self, traffic: Traffic, shell: Shell, history: History, folder: Path) -> None:
        self.done = False
        self._traffic = traffic
        self._shell = shell
        self._history = history
        self._folder = folder
        self._steps = iter(
            (self._clear, self._make_room, self._send, self._take, self._acknowledge, self._end)
        )
        self._step: Callable[[], bool] = next(self._steps)
        self._answered = 0
        self._expected = 0

    def act(self) -> bool:
        """Do the next step when the one before is over."""
        if self._step():
            self._step = next(self._steps, lambda: False)
        return False

    def _clear(self) -> bool:
        while self._traffic.held:  # of an earlier reign
            self._traffic.consume(ORDERS, SOLO)
        return True

    def _make_room(self) -> bool:
        """Go on to the next segment where less than half of this one is left."""
        journal = self._shell.broker.journal
        if journal.end % journal.segment_size < journal.segment_size // 2:
            return not self._traffic.waiting
        if not self._traffic.waiting:
            self._traffic.send_new(QUICK, 1)
        return False

    def _send(self) -> bool:
        self._answered = self._traffic.answered
        self._traffic.send_new(ORDERS, 8)
        return True

    def _take(self) -> bool:
        traffic = self._traffic
        return traffic.answered > self._answered and traffic.consume(ORDERS, SOLO)

    def _acknowledge(self) -> bool:
        if not (self._traffic.held and self._shell.quiet):
            return False
        self._expected = self._traffic.acknowledged + len(self.ACKED)
        self._note()
        held = self._traffic.held[0]
        for number in self.ACKED:
            self._traffic.settle(held, Outcome.DONE, [held.offsets[number]])
        return True

    def _end(self) -> bool:
        if self._traffic.acknowledged < self._expected:
            return False
        self._note()
        return True

    def _note(self) -> None:
        files = {
            path.name: zlib.crc32(path.read_bytes()) for path in (self._folder / "index").iterdir()
        }
        self._history.write("index", files=files)


def acks(shell: Shell, history: History, past: Sequence[Line], given: argparse.Namespace) -> Work:
    """Acknowledges out of order."""
    spec = SubscriptionSpec(start=Start.LATEST, lease_us=LEASE_US)
    shell.broker.administration.subscribe(shell.now_us, ORDERS, SOLO, spec)
    return Acks(_traffic(shell, history, past, given), shell, history, Path(given.folder))


SCENARIOS: Final[
    dict[str, Callable[[Shell, History, Sequence[Line], argparse.Namespace], Work]]
] = {
    "traffic": _traffic,
    "acks": acks,
    "fill": fill,
    "flood": flood,
    "tail": tail,
}
