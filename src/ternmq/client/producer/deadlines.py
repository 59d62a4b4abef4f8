"""When a load is given up, and with which error: functions of time over data."""

from __future__ import annotations

from ternmq.client.producer.load import Load
from ternmq.model.errors import BufferFull, CannotConnect, SendTimeout, TernMQError


def until(load: Load) -> float:
    """Return the loop time at which a load is given up."""
    if load.patient and not load.frame:
        return max(load.deadline, load.lane.moved + load.timeout)
    return load.deadline


def too_late(load: Load, *, connected: bool, failure: TernMQError | None) -> TernMQError:
    """Return the error for a load whose time is over.

    Args:
        load: The load.
        connected: Whether there is a connection.
        failure: Why the last attempt to connect failed, if it did.
    """
    if load.last_error is not None and not load.uncertain and not load.asked:
        return load.last_error
    seconds = f"{load.timeout:g} s"
    if load.frame:
        return SendTimeout(f"no answer within {seconds}: whether it was stored is not known")
    if connected:
        return BufferFull(
            f"earlier requests are not answered, and the timeout of {seconds} has ended or is "
            f"too short now: this one was not sent"
        )
    why = failure.args[0] if failure and failure.args else "no answer yet"
    return CannotConnect(f"not sent within {seconds}: {why}")
