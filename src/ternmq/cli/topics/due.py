"""The options that say when messages are due."""

from __future__ import annotations

import time
from datetime import datetime, timedelta
from typing import Any, Final

import click

from ternmq.cli.reach.parameters import DUE, DURATION, Whole
from ternmq.client.content.delays import LONGEST_US, delay_level
from ternmq.client.forms import values

_LONGEST: Final = timedelta(microseconds=LONGEST_US)
_LEVELS: Final = 18


def due_options(function: Any) -> Any:
    """Add ``--delay``, ``--at``, ``--delay-level``; the command passes them to ``delay_of``."""
    for option in reversed(
        (
            click.option(
                "--delay",
                type=DURATION,
                metavar="DURATION",
                help="Deliver the messages after this time, such as 10m or 30d; 731d at most.",
            ),
            click.option(
                "--at",
                "due_at",
                type=DUE,
                metavar="TIME",
                help="Deliver the messages at this time: 14:30, 2026-01-31T14:30, ...T14:30Z. A "
                "past time is allowed only with a date: the messages are then delivered at once.",
            ),
            click.option(
                "--delay-level",
                type=Whole(min=1, max=_LEVELS),
                metavar="LEVEL",
                help="Deliver the messages after the time of one of RocketMQ's levels, 1 (1s) to "
                "18 (2h).",
            ),
        )
    ):
        function = option(function)
    return function


def delay_of(
    delay: timedelta | None, due_at: datetime | None, level: int | None
) -> timedelta | None:
    """Return the delay that options state; None: none, or ``due_at`` is the time.

    Raises:
        click.UsageError: Two of them were given, or the time is too far ahead.
    """
    context = click.get_current_context()
    if sum(one is not None for one in (delay, due_at, level)) > 1:
        raise click.UsageError("give only one of --delay, --at and --delay-level", context)
    if level is not None:
        return delay_level(level)
    ahead = due_at - values.of_us(time.time_ns() // 1000) if due_at is not None else delay
    if ahead is not None and ahead > _LONGEST:
        option = "--delay" if due_at is None else "--at"
        raise click.UsageError(
            f"{option} is more than {_LONGEST.days} days ahead, the longest delay", context
        )
    return delay
