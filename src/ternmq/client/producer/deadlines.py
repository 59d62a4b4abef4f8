"""When a load is given up, and with which error: functions of time over data."""

from __future__ import annotations

from typing import Final

from ternmq.client.producer.load import Load
from ternmq.model.errors import BufferFull, CannotConnect, SendTimeout, TernMQError

_SHORT_S: Final = 0.001
"""Shorter times are written in microseconds."""


def until(load: Load) -> float:
    """Return the loop time at which a load is given up."""
    if load.patient and not load.frame:
        return max(load.deadline, load.lane.moved + load.timeout)
    return load.deadline


def _spoken(seconds: float) -> str:
    return f"{seconds:g} s" if seconds >= _SHORT_S else f"{seconds * 1e6:g} us"


def too_late(
    load: Load, *, connected: bool, behind: bool, known: bool, failure: TernMQError | None
) -> TernMQError:
    """Return the error for a load whose time is over.

    Args:
        load: The load.
        connected: Whether there is a connection.
        behind: Whether earlier sends are not answered.
        known: Whether the settings of the topic are known.
        failure: Why there is no connection, if that is known.
    """
    if load.last_error is not None and not load.uncertain and not load.asked:
        return load.last_error
    seconds = _spoken(load.timeout)
    if load.frame:
        return SendTimeout(f"no answer within {seconds}: whether it was stored is not known")
    if connected and behind:
        return BufferFull(
            f"earlier requests are not answered, and the timeout of {seconds} has ended or is "
            f"too short now: this one was not sent"
        )
    if connected and not known:
        return CannotConnect(
            f"nothing was sent to {load.lane.topic!r}: no answer to TOPIC_LIST within {seconds}"
        )
    if connected:
        error = BufferFull(f"the timeout of {seconds} is too short: this one was not sent")
        error.hint = "give it a longer timeout"
        return error
    why = failure.args[0] if failure and failure.args else "no answer yet"
    lost = CannotConnect(f"not sent within {seconds}: {why}")
    if failure is not None and failure.hint:
        lost.hint = failure.hint
    return lost
