"""Consumer processes of an ordered group that tests kill and pause, and what they were handed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from ternmq.wire import control
from ternmq.wire.commands import Command
from tests.fault import history
from tests.fault.messages import GROUPS, LEDGER
from tests.fault.processes import DEADLINE, ROOT, environment, wait_until
from tests.fault.server.raw import Peer

GROUP: Final = "books"
LEASE_S: Final = GROUPS[LEDGER][GROUP].lease_us / 1e6


class Consumer:
    """A consumer process.

    Args:
        module: What runs; it gets the words.
        words: The place of the broker, or the places of all.
        folder: Gets its history.
        number: Of this one among those of a test.
    """

    def __init__(self, module: str, words: Sequence[str], folder: Path, number: int) -> None:
        self.record = folder / f"{number}.history"
        given = [*words, str(self.record), str(number), LEDGER, GROUP]
        self.process = subprocess.Popen(
            [sys.executable, "-m", module, *given],
            cwd=ROOT, env=environment(), stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        self.killed_ns = 1 << 63

    def lines(self) -> list[history.Line]:
        """Return what it has written."""
        return history.read(self.record)

    @property
    def outs(self) -> int:
        """How often it was handed something."""
        return sum(line["op"] == "out" for line in self.lines())

    def stop(self) -> None:
        """SIGSTOP it; return when it has stopped."""
        os.kill(self.process.pid, signal.SIGSTOP)
        tasks = Path(f"/proc/{self.process.pid}/task")
        wait_until(lambda: all(_stopped(one) for one in tasks.iterdir()), "stopped")

    def stop_with_rows(self) -> None:
        """Stop it when it has rows in hand that it has not begun to settle."""

        def caught() -> bool:
            self.stop()
            if self.lines()[-1:] and self.lines()[-1]["op"] == "out":
                return True
            self.go_on()
            return False

        wait_until(caught, "stopped with rows in hand")

    def go_on(self) -> None:
        """SIGCONT it."""
        os.kill(self.process.pid, signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL it."""
        if self.process.returncode is None:
            self.killed_ns = time.monotonic_ns()
            self.process.kill()
            self.process.wait(DEADLINE)


def _stopped(task: Path) -> bool:
    return (task / "stat").read_text().rsplit(")", 1)[1].split()[0] in "Tt"


def killed(consumers: Sequence[Consumer]) -> dict[int, int]:
    """Return when the consumer of each session was killed."""
    return {
        line["s"]: one.killed_ns for one in consumers for line in one.lines() if line["op"] == "out"
    }


def consumed(onlooker: Peer) -> bool:
    """Whether the group is done with every row, as the broker has it.

    Not as the consumers have it: one that is killed may have settled rows without hearing of it.
    """
    asked = control.encode(control.GroupList(topic=LEDGER, group=GROUP))
    (group,) = control.decode(onlooker.ask(Command.GROUP_LIST, asked), control.Groups).groups
    return all(queue.floor == queue.end for queue in group.queues)


def handed(running: Sequence[Consumer], more: int) -> None:
    """Wait until each of these was handed something more so many times."""
    goals = {one: one.outs + more for one in running}
    wait_until(lambda: all(one.outs >= goal for one, goal in goals.items()), "handed out")


def lease_over(others: Sequence[Consumer], lease_s: float) -> Callable[[], bool]:
    """Return what tells whether a lease of now is over, and others were handed something."""
    over = time.monotonic() + lease_s + 1.0
    return lambda: time.monotonic() > over and all(one.outs for one in others)


def taken_over(stopped: Consumer, others: Sequence[Consumer]) -> Callable[[], bool]:
    """Return what tells whether a row that a stopped consumer has in hand is another's now."""
    last = stopped.lines()[-1]
    rows = {(last["q"], row[0]) for row in last["rows"]}

    def taken() -> bool:
        return any(
            (line["q"], row[0]) in rows
            for one in others
            for line in one.lines()
            if line["op"] == "out" and line["m"] > last["m"]
            for row in line["rows"]
        )

    return taken
