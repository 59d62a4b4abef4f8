"""Gives up loads whose time is over, with an error that fits their state."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ternmq.client.connection.session import Session
from ternmq.client.producer.load import Load
from ternmq.model.errors import BufferFull, CannotConnect, SendTimeout, TernMQError

if TYPE_CHECKING:
    from ternmq.client.producer.producer import Producer


class Deadlines:
    """One timer for all loads of a producer. Not thread-safe: call it from the client's loop."""

    __slots__ = ("_producer", "_session", "_timer")

    def __init__(self, producer: Producer, session: Session) -> None:
        self._producer = producer
        self._session = session
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, deadline: float) -> None:
        """Check the loads at this loop time, or earlier."""
        timer = self._timer
        if timer is None:
            self._timer = self._session.loop.call_at(deadline, self._look)
        elif deadline < timer.when():
            timer.cancel()
            self._timer = self._session.loop.call_at(deadline, self._look)

    def stop(self) -> None:
        """Stop checking."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        """Give up the loads that are too late."""
        self._timer = None
        producer = self._producer
        now = self._session.loop.time()
        for load in producer.loads():
            if _until(load) <= now:
                self.give_up(load)
        left = [_until(load) for load in producer.loads()]
        if left and not self._session.closed:
            self.watch(min(left))

    def give_up(self, load: Load) -> None:
        """Give up a load whose time is over."""
        self._producer.finish(load, self._too_late(load))

    def _too_late(self, load: Load) -> TernMQError:
        if load.last_error is not None and not load.uncertain and not load.asked:
            return load.last_error
        seconds = f"{load.timeout:g} s"
        if load.frame:
            return SendTimeout(f"no answer within {seconds}: whether it was stored is not known")
        if self._session.link is not None:
            return BufferFull(
                f"earlier requests are not answered, and the timeout of {seconds} has ended or is "
                f"too short now: this one was not sent"
            )
        why = self._session.failure
        return CannotConnect(
            f"not sent within {seconds}: {why.args[0] if why and why.args else 'no answer yet'}"
        )


def _until(load: Load) -> float:
    """Return the loop time at which a load is given up."""
    if load.patient and not load.frame:
        return max(load.deadline, load.lane.moved + load.timeout)
    return load.deadline
