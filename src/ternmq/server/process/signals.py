"""The signals that stop a broker, and errors of its loop that nobody waits for."""

from __future__ import annotations

import asyncio
import errno
import logging
import signal
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

log = logging.getLogger("ternmq.server")

_ENDS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""Signals that stop the broker; SIGHUP (the terminal was closed), unless it is ignored (nohup)."""


def note() -> list[int]:
    """Note signals that end the broker, in the returned list: they do not interrupt its start.

    The second signal ends the process at once.
    """
    early: list[int] = []

    def take(number: int, _: FrameType | None) -> None:
        early.append(number)
        for one in ends():
            signal.signal(one, signal.SIG_DFL)

    for one in ends():
        signal.signal(one, take)
    return early


def ends() -> list[signal.Signals]:
    """Return the signals that stop the broker."""
    return [one for one in _ENDS if signal.getsignal(one) != signal.SIG_IGN]


def heed(loop: asyncio.AbstractEventLoop, told: Callable[[], None], early: list[int]) -> None:
    """Call a function when a signal that ends the broker comes, or if one has come already."""
    loop.set_exception_handler(_complain)
    for number in ends():
        loop.add_signal_handler(number, told)
    if early:
        told()


def _complain(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log an error of the loop; in a single line if the process has run out of descriptors.

    A traceback cannot be made then: reading the source lines takes a descriptor.
    """
    error = context.get("exception")
    if isinstance(error, OSError) and error.errno in {errno.EMFILE, errno.ENFILE}:
        log.error("a connection cannot be accepted now: %s", error.strerror)
    else:
        loop.default_exception_handler(context)
