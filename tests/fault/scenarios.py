"""What a worker can be asked to do."""

from __future__ import annotations

import argparse
import os
import signal
from collections.abc import Callable, Sequence
from typing import Final

from tests.fault.history import History, Line
from tests.fault.messages import GROUPS, ORDERS
from tests.fault.shell import Shell, Work
from tests.fault.traffic import Plan, Traffic


def _traffic(
    shell: Shell, history: History, past: Sequence[Line], given: argparse.Namespace
) -> Traffic:
    """Workload W."""
    plan = Plan(
        messages=given.messages, window=given.window, resend_ids=given.remember >= 60
    )
    work = Traffic(shell, history, past, given.seed, plan)
    work.set_up()
    return work


class Flood:
    """As many producers as the window is wide; each sends its next message when it has an answer."""

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


def flood(
    shell: Shell, history: History, past: Sequence[Line], given: argparse.Namespace
) -> Work:
    """Sends only; until killed."""
    return Flood(_traffic(shell, history, past, given), shell, given.window)


class Tail:
    """Traffic up to a place in the journal; what is written behind it is not synced; then death."""

    def __init__(self, traffic: Traffic, shell: Shell, place: int, tail: int) -> None:
        self.done = False
        self._traffic = traffic
        self._shell = shell
        self._place = place
        self._tail = tail

    def act(self) -> bool:
        """Go on, or die."""
        journal = self._shell.broker.journal
        self._shell.hold_syncs = journal.end >= self._place
        if self._shell.hold_syncs and journal.written - journal.durable >= self._tail:
            os.kill(os.getpid(), signal.SIGKILL)
        return self._traffic.act()


def tail(
    shell: Shell, history: History, past: Sequence[Line], given: argparse.Namespace
) -> Work:
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
            self._begin("again")
        if self._turn % 4 == 0 and traffic.waiting < 64:
            traffic.send_new(ORDERS, 1)
            self._accepted += not traffic.refused
            self.done = self._accepted >= self.AFTERWARDS
            return not traffic.refused
        return any([traffic.consume(ORDERS, group) for group in GROUPS[ORDERS]])


def fill(
    shell: Shell, history: History, past: Sequence[Line], given: argparse.Namespace
) -> Work:
    """Fills the disk."""
    return Fill(_traffic(shell, history, past, given), history)


SCENARIOS: Final[dict[str, Callable[[Shell, History, Sequence[Line], argparse.Namespace], Work]]] = {
    "traffic": _traffic,
    "fill": fill,
    "flood": flood,
    "tail": tail,
}
