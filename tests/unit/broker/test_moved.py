"""Owed rows that outlive their segment: all of them do, and people find them by what they know."""

from __future__ import annotations

import random
from typing import Any

import pytest

from ternmq.broker.queries import Queries
from ternmq.broker.start import Options, open_broker
from ternmq.journal.index import Index
from ternmq.journal.index_open import fill, open_index
from ternmq.journal.memory_disk import MemoryDisk
from ternmq.journal.retention import RetentionSpec
from ternmq.model.errors import MessageNotFound
from ternmq.record.batch import Batch, Row
from ternmq.record.facts import Outcome
from tests.unit.broker.kit import SECOND, World, offsets, waiting
from tests.unit.broker.test_upkeep import LIMITS, Kept

YEAR_US = 31_536_000 * SECOND


class Large(Kept):
    """Segments that a few large rows fill."""

    SEGMENT = 1 << 20

    def _open(self, wall_us: int) -> None:
        self.options = Options(
            limits=LIMITS,
            segment_bytes=self.SEGMENT,
            reserve_bytes=self.SEGMENT,
            state_bytes=self.SEGMENT // 2,
            retention=RetentionSpec(max_bytes=4 * self.SEGMENT),
            look_every_us=1000,
        )
        self.started = open_broker(
            self.disk, wall_us=wall_us, chance=random.Random(7), options=self.options
        )
        self.broker, self.report = self.started.broker, self.started.report


def retry_in_a_year(world: World, session: int, rows: int) -> list[int]:
    """Pull rows and ask for a retry in a year; return their offsets."""
    got: list[int] = []
    while len(got) < rows:
        pulled = world.pull(session, "t", "g", rows, max_bytes=1 << 30)
        assert pulled is not None
        got += offsets(pulled)
        world.settle(
            session, "t", "g", pulled, Outcome.RETRY, reason="not now", delay_us=YEAR_US
        )
        world.commit()
    return got


def index_again(world: Any) -> Index:
    """Return the index made from the journal alone."""
    journal = world.broker.journal
    image = world.disk.image()
    disk = MemoryDisk({name: data for name, data in image.items() if name.startswith("journal/")})
    index, gaps = open_index(
        disk,
        segment_size=journal.segment_size,
        first=journal.first,
        end=journal.end,
        last_crc=journal.last_crc,
    )
    for gap in gaps:
        fill(index, gap)
    return index


@pytest.mark.parametrize("size", [100, 20_000, 300_000])
def test_every_owed_row_survives_whatever_its_size(size: int) -> None:
    world = Large(RetentionSpec())
    world.topic("t")
    world.group("t", "g")
    session = world.join()
    owed: list[int] = []
    for number in range(max(3, min(80, 800_000 // size))):
        world.send("t", [Row(body=b"%d " % number + b"x" * size)])
        owed += retry_in_a_year(world, session, 1)
    filler = [Row(body=b"y" * 50_000)]
    for _ in range(300):
        world.send("t", filler)
        world.drain(session, "t", "g")
        world.turn(100_000)
        if world.broker.views.catalog.topic("t").queues[0].first > owed[-1]:
            break
    assert world.broker.views.catalog.topic("t").queues[0].first > owed[-1]
    number = world.broker.views.catalog.topic("t").number
    for offset in owed:
        found = waiting(lambda offset=offset: Queries(world.broker).by_offset("t", 0, offset))
        assert found.copied
        assert Batch(found.batch).body(found.row) == world.sent[number, 0, offset]
    world.restart()
    session = world.join()
    world.run(lambda: world.broker.retry_now(world.now, "t", "g", 0, owed))
    world.commit()
    assert world.drain(session, "t", "g") == owed  # the kit compares the bodies
