"""The end of a process while handlers run: their messages are settled last.

A thread cannot be ended before its process, so until then no other consumer may get its message.
The last thing a process does is to have that message tried again, which counts as an attempt:
otherwise a message whose handler hangs would return forever, from one worker to the next. A process
that dies cannot do this; then the broker waits for the end of its session, and counts the attempt.
"""

from __future__ import annotations

import atexit
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final, NoReturn, Protocol

TIMEOUT: Final = 1.0
"""Seconds that the end of a process waits for all keepers to settle."""


class Keeping(Protocol):
    """Holds the messages of handlers that still run: ``Keeper``."""

    def end_with_process(self) -> None:
        """Have the messages tried again, and leave. Callable from any thread; does not wait."""

    def wait(self, timeout: float) -> None:
        """Wait until it has left. Callable from any thread."""


_keeping: Final[dict[Keeping, int]] = {}
"""Keepers with the process of their handlers: a forked child must not touch its parent's."""


def before_exit(keeper: Keeping) -> None:
    """Register a keeper for the end of this process. Callable from any thread."""
    _keeping[keeper] = os.getpid()


def forget(keeper: Keeping) -> None:
    """Forget a keeper that has left: its handlers have ended. Callable from any thread."""
    _keeping.pop(keeper, None)


def _own() -> list[Keeping]:
    return [one for one, process in list(_keeping.items()) if process == os.getpid()]


def tell() -> None:
    """Have the keepers settle; the process must end right after this. Main thread only."""
    keepers = _own()
    for keeper in keepers:
        keeper.end_with_process()
    until = time.monotonic() + TIMEOUT
    for keeper in keepers:
        keeper.wait(max(0.0, until - time.monotonic()))


def end_at_once(status: int) -> NoReturn:
    """End the process with a status; as its last action, have the keepers settle.

    Nothing else of the usual end of Python happens. Main thread only.
    """
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    tell()
    with suppress(OSError, ValueError):
        sys.stderr.flush()  # the log of the keepers
    os._exit(status)


def end_after_others(status: int) -> None:
    """If a keeper has messages, have the coming end of the process settle them after all else.

    Python's usual end comes first: it waits for threads and calls the functions of ``atexit``,
    also those that were registered before ``tell``, such as those of a program that started this
    one and exports what it measured. Then nothing follows that takes time while handlers still run.

    Args:
        status: The exit status that the process ends with.
    """
    if _own():
        atexit.unregister(tell)
        atexit.unregister(_end)
        atexit.register(_end, status)  # the newest function is called first


def _end(status: int) -> None:
    atexit.unregister(_end)
    atexit._run_exitfuncs()  # noqa: SLF001 - the others; no other way has all of them called before
    end_at_once(status)


_at_ends: Final[set[tuple[int, Callable[[], object]]]] = set()
"""Functions that were registered in this process, or in its parents."""


def at_end_of_child(call: Callable[[], object], *, priority: int) -> None:
    """Call a function at the end of this process if it is a child of ``multiprocessing``.

    Such a child, if it was forked, ends without the functions of ``atexit``. It loses what its
    parent registered, so call this where a client is first used. Callable from any thread.

    Args:
        call: The function.
        priority: The functions with the highest are called first.
    """
    process = sys.modules.get("multiprocessing.process")
    util = sys.modules.get("multiprocessing.util")
    if process is None or util is None or process.parent_process() is None:
        return
    if (os.getpid(), call) not in _at_ends:  # once, even for many clients
        _at_ends.add((os.getpid(), call))
        util.Finalize(None, call, exitpriority=priority)


atexit.register(tell)
