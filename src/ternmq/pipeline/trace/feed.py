"""Events of the journal in pieces, for jobs that fold them in process."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import cast

import pyarrow as pa

from ternmq.client.bulk import Bulk
from ternmq.pipeline.trace.known import Subscription
from ternmq.pipeline.trace.schema import EVENTS
from ternmq.spark.journal.events import Events
from ternmq.spark.journal.names import Names
from ternmq.spark.journal.port import JournalPort


class Feed:
    """Reads a journal piece by piece, in order.

    Args:
        port: The journal.
        most: Approximate events of a piece; at most one page of records more. Bounds the memory.
    """

    def __init__(self, port: JournalPort, most: int) -> None:
        self._port = port
        self._most = most
        self._names: Names | None = None

    def piece(self, start: int, stop: int) -> tuple[int, pa.Table]:
        """Return where the next piece begins, and the events (``EVENTS``) before it.

        Raises:
            JournalExpired: The journal begins after ``start``.
        """
        if self._names is None:
            self._names = self._port.names(start)
        events = Events(self._names)
        end = stop
        with closing(self._port.pages(start, stop)) as pages:  # type: ignore[type-var]
            for page in pages:
                if len(events) >= self._most and len(page):
                    end = int(page.positions()[0])
                    break
                events.add(page)
        return end, pa.Table.from_batches([cast("pa.RecordBatch", events.table(EVENTS))])


def groups_before(bulk: Bulk, position: int) -> Sequence[Subscription]:
    """Return the groups that existed before a position, from the broker's catalog."""
    told = bulk.catalog(position)
    return [
        Subscription(one.topic, number, one.name)
        for number, one in told.groups.items()
        if not one.gone or one.gone >= position
    ]
