"""Names read from a journal's files are those that the broker tells."""

from __future__ import annotations

import pytest

from ternmq.broker.catalog.gone import Sort
from ternmq.broker.query.names import names
from ternmq.journal.disk.memory import MemoryDisk
from ternmq.journal.log.segment import segment_name
from ternmq.journal.reader import names as module
from ternmq.journal.reader.reader import JournalReader
from ternmq.journal.state.sets import begin_of_end
from ternmq.model.errors import CorruptJournal
from ternmq.record.fact import control
from tests.unit.broker.kit import START_US, World
from tests.unit.broker.upkeep.test_upkeep import pressed


def compare(world: World) -> module.Names:
    """Compare what the files tell with what the broker tells; a copy of them is read."""
    world.commit()
    found = JournalReader(MemoryDisk(world.disk.image())).names()
    for sort, known in (
        (Sort.TOPIC, found.topics),
        (Sort.GROUP, found.groups),
        (Sort.SESSION, found.sessions),
    ):
        told = {
            one.number: tuple(one) for one in names(world.broker.ledger, sort, 0, 0, 1 << 30).found
        }
        first = world.broker.journal.first
        mine = {
            number: (one.number, one.name, one.gone, one.topic, one.client, one.address)
            for number, one in known.items()
            if not one.gone or one.gone >= first
        }
        assert mine == told
    assert found.apps == set(world.broker.views.catalog.apps)
    assert found.as_of == world.broker.journal.end
    return found


def busy(world: World, turn: int) -> None:
    """Make and remove things."""
    topic = f"t{turn}"
    world.topic(topic)
    world.group(topic, "a")
    world.group(topic, "b")
    session = world.join(f"client-{turn}-with-a-long-name")
    app = control.App(f"app{turn}", "", bytes(16), bytes(32), (), START_US)
    world.run(lambda: world.broker.administration.put_app(world.now, app))
    if turn % 2:
        world.run(lambda: world.broker.administration.unsubscribe(world.now, topic, "a"))
        world.leave(session)
    if turn % 3 == 0:
        world.run(lambda: world.broker.administration.delete_topic(world.now, topic))
        world.run(lambda: world.broker.administration.delete_app(world.now, app.name))


def test_without_a_set() -> None:
    world = World()
    for turn in range(7):
        busy(world, turn)
        compare(world)


def test_with_sets_and_files_that_go() -> None:
    kept = pressed()
    kept.topic("t", keep_until_consumed=False)
    for turn in range(30):
        busy(kept, turn)
        for _ in range(25):
            kept.send("t", 5)
            kept.turn()
        compare(kept)
    assert kept.broker.journal.first > 0
    assert kept.broker.writer.sets_written > 3
    kept.restart(clean=True)
    compare(kept)


def test_as_of_a_position() -> None:
    world = World()
    busy(world, 1)
    world.commit()
    before = world.broker.journal.end
    busy(world, 3)
    world.commit()
    found = JournalReader(MemoryDisk(world.disk.image())).names(before)
    assert {one.name for one in found.topics.values()} == {"t1"}
    assert found.as_of == before


def test_when_no_set_is_whole_it_is_said() -> None:
    kept = pressed()
    kept.topic("t", keep_until_consumed=False)
    kept.grow("t", 3)
    kept.commit()
    image = dict(kept.disk.image())
    reader = JournalReader(MemoryDisk(image))
    size = kept.broker.journal.segment_size
    whole = reader.names()
    assert {one.name for one in whole.topics.values()} == {"t"}
    ends = [one.position for one in reader.records(reader.first()) if begin_of_end(one) is not None]
    assert len(ends) >= 2
    for end in ends:
        data = bytearray(image[segment_name(end - end % size)])
        data[end % size + 50] ^= 1
        image[segment_name(end - end % size)] = bytes(data)
    with pytest.raises(CorruptJournal, match="beginning is gone"):
        JournalReader(MemoryDisk(image)).names()
