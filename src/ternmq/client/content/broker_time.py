"""The broker's clock, as a client knows it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

_OLDEST_US: Final = 10_000_000

moved_clocks: Final[dict[int, Callable[[], int]]] = {}
"""Port of a broker of this process whose time a test moves -> its monotonic clock, in µs. For the
testing kit: delays of its clients must not count real time."""


class BrokerTime:
    """How far broker time is ahead of this machine's monotonic clock.

    It is learned from answers that contain broker time: that of HELLO and those of PING. The time
    of the *request* is compared with it, so that the result is never behind the broker's clock, and
    ahead of it by a round trip at most: what is to happen a second later does not happen too early.

    Callable from any thread.

    Args:
        port: The broker's.
    """

    __slots__ = ("_ahead_us", "_asked_us", "_port")

    def __init__(self, port: int = 0) -> None:
        self._port = port
        self._ahead_us: int | None = None
        self._asked_us = 0
        """Moment of the request whose answer was taken last."""

    @property
    def known(self) -> bool:
        """Whether there was a connection."""
        return self._ahead_us is not None

    def moment_us(self) -> int:
        """Return the present moment of the monotonic clock, in µs."""
        moved = moved_clocks.get(self._port)
        return time.monotonic_ns() // 1000 if moved is None else moved()

    def told(self, now_us: int, asked_us: int) -> None:
        """Take broker time from an answer.

        Args:
            now_us: Broker time in the answer.
            asked_us: Moment at which the request was sent.
        """
        self._ahead_us = now_us - asked_us
        self._asked_us = asked_us

    def moved(self, now_us: int) -> None:
        """Take broker time from a message that the broker sent on its own.

        It was sent after the request whose answer was taken last, a heartbeat ago as a rule: so if
        it is taken as the time of that request, the result is not behind the broker's clock. The
        caller asks for the time then. A message is not older than ``_OLDEST_US``: in a test, the
        clock may have been moved by months since.

        Args:
            now_us: Broker time in the message.
        """
        asked_us = max(self._asked_us, self.moment_us() - _OLDEST_US)
        self._ahead_us = now_us - asked_us

    def at(self, moment_us: int) -> int:
        """Return broker time at a moment; it is ``known``."""
        assert self._ahead_us is not None
        return self._ahead_us + moment_us
