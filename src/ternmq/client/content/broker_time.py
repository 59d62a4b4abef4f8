"""The broker's clock, as a client knows it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ternmq.client.process.steady import steady_ns

_OLDEST_US: Final = 10_000_000

moved_clocks: Final[dict[int, Callable[[], int]]] = {}
"""Port of a broker of this process whose time a test moves -> its monotonic clock, in µs. For the
testing kit: delays of its clients must not count real time."""


class BrokerTime:
    """How far broker time is ahead of this machine's steady clock.

    It is learned from answers that contain broker time: that of HELLO and those of PING. The time
    of the *request* is compared with it, so that the result is never behind the broker's clock, and
    ahead of it by a round trip at most: what is to happen a second later does not happen too early.
    If the machine of the broker is suspended, its clock stands still, and the result is too far
    ahead until the next answer: messages come later, not earlier. The steady clock counts the time
    in which this machine is suspended. Otherwise the broker's time would seem earlier than it is
    until the next PING is answered, and what is sent with a delay meanwhile would be due too early.

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
        """Return the present moment of the steady clock, in µs."""
        moved = moved_clocks.get(self._port)
        return steady_ns() // 1000 if moved is None else moved()

    def follow(self, port: int, asked_us: int) -> int:
        """Have another broker from now on; return the moment of a request that was sent to it.

        Args:
            port: Its port.
            asked_us: The moment of the request by the clock that was followed until now.
        """
        moved = self._port in moved_clocks or port in moved_clocks
        self._port = port
        return self.moment_us() if moved else asked_us

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
