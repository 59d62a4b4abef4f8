"""Interpreter settings of a broker's own process; a broker inside an application changes none.

* **Threads.** A thread that has finished a sync or a read waits for the interpreter before it can
  report. By default the loop lets it in after 5 ms, and each system call of the loop restarts this
  time: in a busy broker a sync of 0.4 ms came to take 5 ms and more. See ``SWITCH_S``.
* **The garbage collector.** A collection of all generations visits every object and blocks the loop
  meanwhile: 59 ms were measured among the requests of a flood. It is not urgent: neither the
  broker's work nor a closed connection leaves cycles behind. So all generations are collected while
  few requests come, and else rarely; the youngest generation as always, the middle one in small
  pieces, within about 1 ms. Objects that were recovered at the start are never visited again.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from typing import Final

SWITCH_S: Final = 0.0001
"""Seconds that the loop may go on while a thread waits for the interpreter."""
NEVER: Final = 1 << 30
MIDDLE: Final = 2
"""Collections of the youngest generation after which the middle one is collected. It holds what
survived them, some 1,400 objects. The default is 10: 7,000 objects of parked pulls took 4 to 5 ms.
"""
QUIET: Final = 10
"""Most requests between two calls of ``look`` for which the broker counts as quiet."""
DUE: Final = 50
"""Collections of the middle generation after which all are collected in a quiet moment."""
OVERDUE: Final = 5000
"""Collections of the middle generation after which all are collected in any case: a few minutes of
a flood."""


class FullCollections:
    """Decides when all generations are collected.

    Args:
        asked: Returns the number of requests so far.
        collect: Collects all generations.
        waiting: Returns the number of collections of the middle generation since the last of all.
    """

    def __init__(
        self,
        asked: Callable[[], int],
        collect: Callable[[], object] = gc.collect,
        waiting: Callable[[], int] = lambda: gc.get_count()[2],
    ) -> None:
        self._asked = asked
        self._collect = collect
        self._waiting = waiting
        self._before = asked()

    def look(self) -> None:
        """Collect all generations if that is due. Called once a second."""
        asked = self._asked()
        quiet = asked - self._before <= QUIET
        self._before = asked
        if self._waiting() >= (DUE if quiet else OVERDUE):
            self._collect()


def own_process(asked: Callable[[], int]) -> FullCollections:
    """Set this process up for the broker that has started in it, until the process ends.

    Args:
        asked: Returns the number of requests so far.

    Returns:
        An object whose ``look`` is to be called once a second.
    """
    sys.setswitchinterval(SWITCH_S)
    gc.collect()
    gc.freeze()
    gc.set_threshold(gc.get_threshold()[0], MIDDLE, NEVER)
    return FullCollections(asked)
