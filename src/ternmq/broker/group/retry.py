"""When a failed row is delivered again."""

from __future__ import annotations

from math import log2
from typing import Protocol

from ternmq.model.specs import RetryPolicy


class Chance(Protocol):
    """A source of randomness, passed in; ``random.Random`` is one."""

    def random(self) -> float:
        """Return a number from 0 to below 1."""
        ...


def delay_us(policy: RetryPolicy, attempts: int, random: Chance) -> int:
    """Return the delay after the given number of attempts (1 or more), jitter included.

    ``first * factor ** (attempts - 1)``, at most the cap, then a share up to ``jitter`` more or
    less. The result is decided once and recorded; it is never computed again from the policy.
    """
    delay = float(policy.cap_us)
    exponent = attempts - 1
    if not policy.first_us:
        return 0
    if exponent * log2(policy.factor) < 64:  # else beyond any cap, and perhaps beyond any float
        delay = min(policy.first_us * policy.factor**exponent, delay)
    if policy.jitter:
        delay *= 1.0 + policy.jitter * (2.0 * random.random() - 1.0)
    return int(delay)
