"""How much of the available data the next batch reads, and in how many tasks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ternmq.spark.broker.offsets import OffsetRange, TopicQueue


def shares(backlog: Mapping[TopicQueue, int], most: int) -> dict[TopicQueue, int]:
    """Divide ``most`` over queues in proportion to their rows, at least 1 to each.

    The rest from rounding goes to the queues that lost most by it. No queue gets more than it has;
    queues without rows get nothing. If there are more queues than ``most``, each gets 1.
    """
    waiting = {place: rows for place, rows in sorted(backlog.items()) if rows > 0}
    total = sum(waiting.values())
    if total <= most:
        return waiting
    found = {place: max(1, most * rows // total) for place, rows in waiting.items()}
    left = most - sum(found.values())
    by_loss = sorted(waiting, key=lambda place: (-(most * waiting[place] % total), place))
    for place in by_loss:
        if left <= 0:
            break
        if found[place] < waiting[place]:
            found[place] += 1
            left -= 1
    if left < 0:  # the minimum of 1 gave out too much: the largest shares shrink
        for place in sorted(found, key=lambda one: (-found[one], one)):
            paid = min(found[place] - 1, -left)
            found[place] -= paid
            left += paid
            if not left:
                break
    return found


def split(spans: Iterable[OffsetRange], max_rows: int, min_tasks: int = 0) -> list[OffsetRange]:
    """Split spans into tasks of at most ``max_rows``, and into at least about ``min_tasks``."""
    whole = [span for span in spans if span.rows > 0]
    total = sum(span.rows for span in whole)
    found: list[OffsetRange] = []
    for span in whole:
        pieces = -(-span.rows // max_rows)
        if min_tasks > len(whole):
            pieces = max(pieces, -(-span.rows * min_tasks // total))
        pieces = min(pieces, span.rows)
        for piece in range(pieces):
            found.append(
                span._replace(
                    start=span.start + span.rows * piece // pieces,
                    stop=span.start + span.rows * (piece + 1) // pieces,
                )
            )
    return found
