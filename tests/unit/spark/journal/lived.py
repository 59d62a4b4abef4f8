"""The events of the journal of a ``World``, a broker on a disk in memory."""

from __future__ import annotations

import pyarrow as pa

from ternmq.journal.reader.reader import JournalReader
from ternmq.model.types import Position
from ternmq.spark.journal.events import Events
from ternmq.spark.journal.names import Names
from tests.unit.broker.kit import World


def events_of(world: World, columns, start: int | None = None) -> pa.Table:
    """Return the durable events from a position on, or from the journal's beginning."""
    world.commit()
    reader = JournalReader(world.disk)
    told = reader.names()
    events = Events(
        Names(
            {number: one.name for number, one in told.topics.items()},
            {number: one.name for number, one in told.groups.items()},
        )
    )
    for page in reader.pages(reader.first() if start is None else Position(start)):
        events.add(page.below(world.broker.journal.durable))
    reader.close()
    return pa.Table.from_batches([events.table(list(columns))])
