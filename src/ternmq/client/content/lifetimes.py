"""When a message expires: the argument ``expires_after``."""

from __future__ import annotations

from datetime import timedelta

from ternmq.client.content.broker_time import BrokerTime
from ternmq.client.content.delays import Due
from ternmq.client.content.validation import length_us
from ternmq.model.errors import InvalidRequest
from ternmq.model.specs import LONGEST_US

_MICROSECOND = timedelta(microseconds=1)


class Lifetime:
    """Time after which a message expires; messages of one call share one.

    It begins when the application sends the message, or when the message is due if that is later.
    Broker time at that moment is known only when there is a connection.
    """

    __slots__ = ("_after_us", "_asked_us", "_broker_time", "_from_us")

    def __init__(self, after_us: int, asked_us: int, broker_time: BrokerTime) -> None:
        self._after_us = after_us
        self._broker_time = broker_time
        self._asked_us = asked_us
        """Moment at which the message was sent."""
        self._from_us = 0
        """The same in broker time; 0: not known yet."""

    def end_us(self, due_us: int, broker_time: BrokerTime | None = None) -> int:
        """Return the time at which the message expires, in µs of broker time; it never changes.

        Args:
            due_us: When the message is due; 0: at once.
            broker_time: What to take for broker time; None: the broker's clock, which is known.
        """
        if not self._from_us:
            self._from_us = (broker_time or self._broker_time).at(self._asked_us)
        from_us = max(due_us, self._from_us)  # the message may have been due before it was sent
        # A clock of this machine that is wrong may have let too long a lifetime pass: the broker
        # would refuse the messages beside this one, too.
        return min(from_us + self._after_us, self._from_us + LONGEST_US)

    def check(self, due: Due) -> None:
        """Refuse a message that would expire too late because of when it is due.

        Raises:
            InvalidRequest: It would expire in more than a hundred years.
        """
        if due.ahead_us(self._broker_time) + self._after_us > LONGEST_US:
            raise InvalidRequest(
                "the message would expire in more than a hundred years: expires_after counts from "
                "when it is due"
            )

    def argument(self) -> timedelta:
        """Return ``expires_after`` with which the message can be sent again."""
        return timedelta(microseconds=self._after_us)


def lifetime_of(
    expires_after: object, broker_time: BrokerTime, asked_us: int | None = None
) -> Lifetime | None:
    """Return how long a message lives; None: for ever.

    Args:
        expires_after: Seconds or a timedelta, more than 0; None: not given.
        broker_time: The broker's clock.
        asked_us: Moment (``BrokerTime.moment_us``) at which it begins; None: now.

    Raises:
        InvalidRequest: It is not a duration, not more than 0, or more than a hundred years.
    """
    if expires_after is None:
        return None
    after_us = max(1, length_us("expires_after", expires_after))
    return Lifetime(
        after_us, broker_time.moment_us() if asked_us is None else asked_us, broker_time
    )
