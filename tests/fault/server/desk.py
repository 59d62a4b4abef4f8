"""What producers and consumers of a load share: the plan, the counts, the history."""

from __future__ import annotations

import random
import time
from collections import Counter, deque
from dataclasses import dataclass, field
from pathlib import Path

from tests.fault.history import History
from tests.fault.messages import LEDGER, ORDERS, QUICK


@dataclass(slots=True, frozen=True, kw_only=True)
class Plan:
    """Who does what.

    Attributes:
        producers: How many clients send.
        window: Sends without an answer per producer.
        topics: What is sent to, in turn by chance.
        consumers: Groups that are consumed, one client each; a group may stand twice.
        faults: Whether consumers also retry, reject and release rows.
        handle_s: How long a consumer takes for a pull's rows.
        pause_s: How long a producer waits after an answer.
        pull: Most rows of a pull.
        batch: Most rows of a send.
    """

    producers: int = 4
    window: int = 16
    topics: tuple[str, ...] = (ORDERS, ORDERS, LEDGER, QUICK)
    consumers: tuple[tuple[str, str], ...] = (
        (ORDERS, "billing"),
        (ORDERS, "audit"),
        (LEDGER, "books"),
        (QUICK, "watch"),
    )
    faults: bool = True
    handle_s: float = 0.0
    pause_s: float = 0.0
    pull: int = 64
    batch: int = 12


@dataclass(slots=True)
class Counts:
    """What has happened; read by the test's thread, written by the loop."""

    sent: int = 0
    """Messages answered."""
    refused: Counter[str] = field(default_factory=Counter)
    """Sends refused, by error."""
    delivered: int = 0
    settled: int = 0
    """Rows whose settle was answered."""
    latencies: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=100_000))
    """Of sends: when they were answered, and the seconds it took."""
    last_answer: float = 0.0


class Desk:
    """One load's plan, counts and history.

    Args:
        record: The history file.
        plan: See ``Plan``.
        number: Of this load among those of a test: producers and settles are numbered from it.
        seed: Of what is done when.
    """

    def __init__(self, record: Path, plan: Plan, number: int, seed: int) -> None:
        self.plan = plan
        self.counts = Counts()
        self.chance = random.Random(seed)
        self._history = History(str(record))
        self._settles = number * 10**9

    def write(self, op: str, **fields: object) -> None:
        """Write a line, with the time that puts histories of several processes in order."""
        self._history.write(op, m=time.monotonic_ns(), **fields)

    def next_settle(self) -> int:
        """Return a number for a settle."""
        self._settles += 1
        return self._settles
