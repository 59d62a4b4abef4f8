"""The ten steps from a transaction to a stored message, told to whoever observes them."""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable, Sequence
from typing import Final

log: Final = logging.getLogger("ternmq.reliable")


class Step(enum.Enum):
    """What happens with messages. It is told before it is done, ``RESPONSE`` after it came."""

    BEGIN = "begin"
    """The application's transaction has begun."""
    WORK = "work"
    """The application's own statements ran."""
    INSERT = "insert"
    """Rows are inserted."""
    COMMIT = "commit"
    """The transaction ended: if it committed, its rows are sent."""
    SEND = "send"
    """The process that wrote rows sends them."""
    RESPONSE = "response"
    """The broker answered."""
    DELETE = "delete"
    """Rows that are stored at the broker are deleted."""
    SCAN = "scan"
    """The compensator looks for rows."""
    RESEND = "resend"
    """The compensator sends rows."""
    DELETE_RESENT = "delete resent"
    """The compensator deletes rows that are stored at the broker."""


Observer = Callable[[Step, Sequence[str]], None]
"""Is called with a step and the ids of its messages, in the thread that takes the step."""


class Steps:
    """Tells observers, and the log at DEBUG. Callable from any thread."""

    __slots__ = ("_observers",)

    def __init__(self) -> None:
        self._observers: list[Observer] = []

    def observe(self, observer: Observer) -> None:
        """Tell an observer of each step from now on."""
        self._observers.append(observer)

    def tell(self, step: Step, ids: Sequence[str] = ()) -> None:
        """Tell of a step."""
        if log.isEnabledFor(logging.DEBUG):
            log.debug("%s: %s", step.value, " ".join(ids))
        for observer in self._observers:
            observer(step, ids)
