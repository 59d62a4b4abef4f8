"""The end of a run: handlers take no more, running calls finish, unfinished ones are logged."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from ternmq.client.consumer.running import Running
from ternmq.client.handler.handlers import Handler

log: Final = logging.getLogger("ternmq")

_CANCEL_TIMEOUT: Final = 5.0
"""Seconds that a cancelled handler has for its `finally`."""


async def drain(handlers: Sequence[Handler], timeout: float, hurry: asyncio.Event) -> list[Running]:
    """Stop handlers; return the calls that do not end, which still have their messages.

    Args:
        handlers: They may have stopped taking messages before, or not have begun.
        timeout: Seconds to wait for running calls; then they are cancelled. A thread cannot be.
        hurry: Once it is set, there is no waiting.
    """
    for handler in handlers:
        handler.take_no_more()
    workers = [task for handler in handlers for task in handler.tasks]
    if workers:
        running = _running(handlers)
        if running and not hurry.is_set():
            log.info("stopping: waiting up to %g s for %s", timeout, _calls(len(running)))
        await _first(workers, timeout, hurry)
        late = _running(handlers)
        for run in late:
            log.warning("still running %s: %s",
                        "when told to end at once" if hurry.is_set() else f"after {timeout:g} s",
                        run)  # fmt: skip
        for task in workers:
            task.cancel()
        await _first(workers, _CANCEL_TIMEOUT, hurry)
        for task in workers:
            if task.done() and not task.cancelled():
                task.exception()  # already reported, or raised by the run
    left = _running(handlers)
    for run in left:
        run.left = True
    # In parallel: each may wait for an answer of the broker until its timeout.
    hurried = hurry.is_set()
    await asyncio.gather(*[handler.close(hurried=hurried) for handler in handlers])
    if left:
        one = len(left) == 1
        log.warning(
            "stopped, but %s still run%s: no other consumer gets %s before %s; if this process "
            "ends first, this counts as a failed attempt", _calls(len(left)), "s" if one else "",
            "the message" if one else "the messages",
            "the handler ends" if one else "the handlers end",
        )  # fmt: skip
    elif workers:
        log.info("stopped: no handler runs")
    return left


async def _first(workers: list[asyncio.Task[None]], timeout: float, hurry: asyncio.Event) -> None:
    """Wait until all have ended, the time is over, or ``hurry`` is set."""
    told = asyncio.ensure_future(hurry.wait())
    ended = asyncio.ensure_future(asyncio.wait(workers))
    try:
        await asyncio.wait({told, ended}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        if not ended.done():
            await asyncio.sleep(0)  # lets cancelled tasks take their turn
    finally:
        told.cancel()
        ended.cancel()


def _running(handlers: Sequence[Handler]) -> list[Running]:
    return [run for handler in handlers for run in handler.running]


def _calls(number: int) -> str:
    return f"{number} handler call{'s' if number != 1 else ''}"
