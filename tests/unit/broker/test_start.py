"""Opening a core: what it does to the process around it."""

from __future__ import annotations

import gc
import random
from collections.abc import Iterator

import pytest

from ternmq.broker.start import Options, open_broker
from ternmq.journal.disk.memory import MemoryDisk
from ternmq.journal.log.segment import segment_name
from ternmq.model.errors import CorruptJournal
from ternmq.model.types import Position

OPTIONS = Options(segment_bytes=1 << 20, reserve_bytes=1 << 20)


@pytest.fixture(params=[True, False], ids=["collector on", "collector off"])
def collector(request: pytest.FixtureRequest) -> Iterator[bool]:
    was = gc.isenabled()
    (gc.enable if request.param else gc.disable)()
    yield request.param
    (gc.enable if was else gc.disable)()


class Watched(MemoryDisk):
    """Notes whether the collector could run while the disk was asked for its files."""

    def __init__(self, image: dict[str, bytes] | None = None) -> None:
        super().__init__(image)
        self.on: set[bool] = set()

    def names(self, folder: str) -> list[str]:
        self.on.add(gc.isenabled())
        return super().names(folder)


def test_the_collector_rests_during_a_start_and_is_as_it_was_afterwards(collector):
    disk = Watched()
    open_broker(disk, wall_us=1, chance=random.Random(1), options=OPTIONS)
    assert disk.on == {False}
    assert gc.isenabled() is collector


def test_a_start_that_fails_gives_the_collector_back(collector):
    whole = Watched()
    broker = open_broker(whole, wall_us=1, chance=random.Random(1), options=OPTIONS).broker
    broker.journal.close(2)
    disk = Watched(whole.image())
    disk.open(segment_name(Position(0))).pwrite(b"\xff" * 64, 0)
    with pytest.raises(CorruptJournal):
        open_broker(disk, wall_us=3, chance=random.Random(1), options=OPTIONS)
    assert disk.on == {False}
    assert gc.isenabled() is collector
