"""Places of messages, as lists print them and commands accept them."""

from __future__ import annotations

import re
from collections.abc import Sequence

import click

from ternmq.cli.reach.parameters import range_of, ranges_of
from ternmq.cli.terminal.problems import not_found


def placed(
    topic: str, count: int, places: Sequence[str], queue: int | None
) -> dict[int, list[int]]:
    """Return the offsets of places, by queue.

    A place is an offset or a range (``16``, ``10-12``), alone, as lists print it (``1/16``), or
    with the topic as receipts print it (``orders/1/16``).

    Raises:
        click.UsageError: It is no place, is on another topic or queue, or the queue is not clear.
        Failed: The topic has no such queue.
    """
    context = click.get_current_context()
    by_queue: dict[int, list[str]] = {}
    for place in places:
        *where, offsets = place.split("/")
        if len(where) == 2 and re.fullmatch("[0-9]+-[0-9]+", where[1]):  # 1/7-1/9
            low, _, _ = where[1].partition("-")
            raise click.UsageError(
                f"{place!r} is not a place: a range names its queue once, such as "
                f"{where[0]}/{low}-{offsets}", context,
            )  # fmt: skip
        if len(where) == 2 and where[0] != topic:
            raise click.UsageError(f"{place!r} is on topic {where[0]!r}, not {topic!r}", context)
        if len(where) > 2 or (where and not (where[-1].isascii() and where[-1].isdigit())):
            raise click.UsageError(
                f"{place!r} is not a place: an offset (16), a range (10-12), QUEUE/OFFSET (1/16) "
                "or TOPIC/QUEUE/OFFSET", context,
            )  # fmt: skip
        range_of(offsets)
        number = int(where[-1]) if where else queue
        if where and queue not in {None, number}:
            raise click.UsageError(f"{place!r} is on queue {number}, not {queue}", context)
        if number is None:
            if count > 1:
                raise click.UsageError(
                    f"{topic} has {count} queues: name one with --queue, or in the place, such as "
                    f"1/{offsets}", context,
                )  # fmt: skip
            number = 0
        if number >= count:
            raise not_found(f"topic {topic!r} has no queue {number}: it has {count}")
        by_queue.setdefault(number, []).append(offsets)
    return {number: ranges_of(some) for number, some in by_queue.items()}


def some(places: Sequence[tuple[int, int]]) -> str:
    """Return queues and offsets as text; at most the first ten."""
    text = ", ".join(f"{queue}/{offset}" for queue, offset in places[:10])
    return f"{text} and {len(places) - 10:,} more" if len(places) > 10 else text
