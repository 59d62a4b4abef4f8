"""What is still said when the process ends, and ends handlers that run with it.

A thread cannot be ended before its process is, so until then its message is nobody else's. The last
thing that a process does is to have it come again, which is an attempt: a message whose handler
hangs would come back for ever else, from one worker to the next. A process that dies cannot say so;
there the broker waits for the end of its session, and counts the attempt itself.
"""

from __future__ import annotations

import atexit
import os
import sys
import time
from collections.abc import Callable
from typing import Final, Protocol

TIMEOUT: Final = 1.0
"""Seconds that the end of a process waits for all keepers to have told the broker."""


class Keeping(Protocol):
    """What holds the messages of handlers that still run: ``Keeper``."""

    def end_with_process(self) -> None:
        """Have them come again, and leave. Any thread; does not wait."""

    def wait(self, timeout: float) -> None:
        """Wait until it has left. Any thread."""


_keeping: Final[dict[Keeping, int]] = {}
"""With the process whose handlers they are: a forked child must leave its parent's alone."""


def before_exit(keeper: Keeping) -> None:
    """Have a keeper told when this process ends. Any thread."""
    _keeping[keeper] = os.getpid()


def forget(keeper: Keeping) -> None:
    """A keeper has left: nothing runs any more. Any thread."""
    _keeping.pop(keeper, None)


def tell() -> None:
    """Tell the broker; this process must end at once behind it. Main thread."""
    keepers = [one for one, process in list(_keeping.items()) if process == os.getpid()]
    for keeper in keepers:
        keeper.end_with_process()
    until = time.monotonic() + TIMEOUT
    for keeper in keepers:
        keeper.wait(max(0.0, until - time.monotonic()))


_at_ends: Final[set[tuple[int, Callable[[], object]]]] = set()
"""What was registered in this process, or in its parents."""


def at_end_of_child(call: Callable[[], object], *, priority: int) -> None:
    """Have a function called at the end of this process if it is a child of ``multiprocessing``.

    Such a child, if it was forked, ends without the functions of ``atexit``. It forgets what its
    parent registered: this is for where a client is first used. Any thread.

    Args:
        call: It.
        priority: The functions with the highest are called first.
    """
    process = sys.modules.get("multiprocessing.process")
    util = sys.modules.get("multiprocessing.util")
    if process is None or util is None or process.parent_process() is None:
        return
    if (os.getpid(), call) not in _at_ends:  # once, however many clients come and go
        _at_ends.add((os.getpid(), call))
        util.Finalize(None, call, exitpriority=priority)


atexit.register(tell)
