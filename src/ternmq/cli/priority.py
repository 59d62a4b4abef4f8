"""How much a command in the background gives way to others on its machine, a broker above all."""

from __future__ import annotations

import enum
import logging
import os
from typing import Final

log = logging.getLogger("ternmq.cli")

_LOW: Final = 10
_LOWEST: Final = 19


class Priority(enum.Enum):
    """Of a process, and of those that it starts from then on."""

    IDLE = "idle"
    """What is left over: whoever else wants a processor has it at once."""
    LOW = "low"
    """A small share when others want the processors as well."""
    NORMAL = "normal"
    """As everybody."""


def take(priority: Priority) -> None:
    """Give this thread a priority; whatever it starts from now on inherits it.

    ``IDLE`` is Linux's policy SCHED_IDLE: unlike a nice value, which only says how much time one
    gets in the long run, it lets a process that wakes up run at once. Where that is not to be had,
    it is the lowest nice value. A priority only ever falls.
    """
    if priority is Priority.LOW:
        os.nice(_LOW)
    elif priority is Priority.IDLE:
        try:
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        except (AttributeError, OSError) as error:
            log.debug("no policy for idle processes here (%s): nice %d", error, _LOWEST)
            os.nice(_LOWEST)
