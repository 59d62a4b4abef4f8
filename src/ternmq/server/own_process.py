"""What a process is set to that is the broker's own; in one of an application nothing is changed.

* **Threads.** A thread that ended a sync, or a read, waits for the interpreter before it can say
  so. By default the loop lets it in after 5 ms, and each system call of the loop starts these anew:
  in a broker that is busy a sync of 0.4 ms came to take 5 ms and more. See ``SWITCH_S``.
* **The garbage collector.** A collection of all generations looks at every object there is and
  holds the loop up for as long: 59 ms were measured among the requests of a flood. Nothing waits
  for it: what a broker does, and a connection that ended, leave no cycles behind. So all is
  collected while little is asked, and else rarely; the youngest generation as always, the middle
  one in small pieces, within about 1 ms. What was recovered at the start is never looked at again.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from typing import Final

SWITCH_S: Final = 0.0001
"""How long the loop may go on while a thread waits for the interpreter."""
NEVER: Final = 1 << 30
MIDDLE: Final = 2
"""Collections of the youngest generation after which the middle one is collected, which is what
outlived these: 1,400 objects. By default it is 10, and 7,000 of parked pulls took 4 to 5 ms."""
QUIET: Final = 10
"""While no more requests come in between two looks, nobody is held up."""
DUE: Final = 50
"""Collections of the middle generation after which all is collected in a quiet moment."""
OVERDUE: Final = 5000
"""The same, however much is asked: a few minutes of a flood."""


class FullCollections:
    """Decides when all generations are collected.

    Args:
        asked: Returns how many requests have come so far.
        collect: Collects.
        waiting: Returns how often the middle generation was collected since all were.
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
        """Collect if it is time to."""
        asked = self._asked()
        quiet = asked - self._before <= QUIET
        self._before = asked
        if self._waiting() >= (DUE if quiet else OVERDUE):
            self._collect()


def own_process(asked: Callable[[], int]) -> FullCollections:
    """Have this process for the broker that has started in it, until it ends.

    Args:
        asked: Returns how many requests have come so far.

    Returns:
        What is to look once a second whether all is to be collected.
    """
    sys.setswitchinterval(SWITCH_S)
    gc.collect()
    gc.freeze()
    gc.set_threshold(gc.get_threshold()[0], MIDDLE, NEVER)
    return FullCollections(asked)
