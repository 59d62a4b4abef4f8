"""How much went through in the last seconds, for those who look."""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from ternmq.server.counters import Counters

OVER_S: Final = 10.0
"""What rates are an average of."""


class Sample(NamedTuple):
    """What had been counted at a time."""

    at: float
    sent: int
    delivered: int


class Rates:
    """Messages a second over the last ten; 0 in the first second. Loop only.

    Args:
        counters: What is counted.
    """

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self._samples: deque[Sample] = deque()
        self.sent = 0.0
        self.delivered = 0.0

    def look(self, now: float) -> None:
        """Take a sample; once a second."""
        counters, samples = self._counters, self._samples
        last = Sample(now, counters.sent_rows, counters.delivered_rows)
        samples.append(last)
        while len(samples) > 2 and now - samples[1].at >= OVER_S:
            samples.popleft()
        first = samples[0]
        if now > first.at:
            self.sent = (last.sent - first.sent) / (now - first.at)
            self.delivered = (last.delivered - first.delivered) / (now - first.at)
