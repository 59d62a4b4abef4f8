"""The priority of a background command against other processes, above all a broker."""

from __future__ import annotations

import enum
import logging
import os
from typing import Final

log = logging.getLogger("ternmq.cli")

_LOW: Final = 10
_LOWEST: Final = 19


class Priority(enum.Enum):
    """The priority of a process, and of the processes that it starts."""

    IDLE = "idle"
    """Only unused time: any other process that needs a processor gets it at once."""
    LOW = "low"
    """A small share if others need the processors too."""
    NORMAL = "normal"
    """The usual priority."""


def take(priority: Priority) -> None:
    """Set the priority of this thread; processes and threads that it starts inherit it.

    ``IDLE`` is Linux's policy SCHED_IDLE: unlike a nice value, which only sets a share of time in
    the long run, it lets another process that wakes up run at once. Where it is not available, the
    lowest nice value is used. A priority can only be lowered.
    """
    if priority is Priority.LOW:
        os.nice(_LOW)
    elif priority is Priority.IDLE:
        try:
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        except (AttributeError, OSError) as error:
            log.debug("no policy for idle processes here (%s): nice %d", error, _LOWEST)
            os.nice(_LOWEST)
