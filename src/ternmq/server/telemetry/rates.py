"""Messages per second, averaged over the last seconds, for STATUS."""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from ternmq.server.telemetry.counters import Counters

OVER_S: Final = 10.0
"""Seconds that the rates are averaged over."""


class Sample(NamedTuple):
    """The counters at a time."""

    at: float
    sent: int
    delivered: int


class Rates:
    """Messages per second over the last ``OVER_S``; 0 in the first second. Not thread-safe.

    Args:
        counters: The server's counters.
    """

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self._samples: deque[Sample] = deque()
        self.sent = 0.0
        self.delivered = 0.0

    def look(self, now: float) -> None:
        """Take a sample. Called once a second."""
        counters, samples = self._counters, self._samples
        stored = counters.sent_rows + counters.committed_rows
        last = Sample(now, stored, counters.delivered_rows)
        samples.append(last)
        while len(samples) > 2 and now - samples[1].at >= OVER_S:
            samples.popleft()
        first = samples[0]
        if now > first.at:
            self.sent = (last.sent - first.sent) / (now - first.at)
            self.delivered = (last.delivered - first.delivered) / (now - first.at)
