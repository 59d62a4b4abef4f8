"""Rows of transactions and the segments they stand in: pinned, judged, moved out of, gone."""

from __future__ import annotations

import random
from functools import partial

import pytest

from ternmq.broker.query.messages import Queries
from ternmq.journal.disk.memory import MemoryDisk
from ternmq.journal.index.index import Index
from ternmq.journal.index.open import fill, open_index
from ternmq.journal.reader.reader import JournalReader
from ternmq.model.errors import (
    DiskFull,
    IdConflict,
    MessageNotFound,
    OffsetExpired,
    ResendTooOld,
    TransactionDecided,
)
from ternmq.record.batch.batch import Batch, Row
from ternmq.record.fact.facts import Outcome
from tests.unit.broker.kit import SECOND, difference, offsets, portrait, reopened, waiting
from tests.unit.broker.upkeep.test_upkeep import SEGMENT, Kept, pressed


def ready() -> tuple[Kept, int]:
    world = pressed()
    world.topic("t")
    world.topic("other")
    world.group("t", "g")
    world.group("other", "g")
    session = world.join()
    world.commit()
    return world, session


def grow(world: Kept, session: int, segments: int, topic: str = "other") -> None:
    """Send and consume another topic until the journal is so many segments longer."""
    goal = world.broker.journal.end + segments * SEGMENT
    while world.broker.journal.end < goal:
        world.broker.ledger.room.blocked = False
        world.send(topic, [Row(b"y" * 1000)])
        world.turn(SECOND // 4)
        world.drain(session, topic, "g")


def same(world: Kept) -> None:
    """Whoever opens the disk finds the same, with the run files and without."""
    other = reopened(world)
    differs = difference(portrait(world.broker.views), portrait(other.views))
    assert not differs, "\n".join(differs)
    bare = MemoryDisk(
        {name: data for name, data in world.disk.image().items() if not name.startswith("index")}
    )
    journal = world.broker.journal
    built, gaps = open_index(
        bare,
        segment_size=journal.segment_size,
        first=journal.first,
        end=journal.end,
        last_crc=journal.last_crc,
    )
    for gap in gaps:
        fill(built, gap)
    assert isinstance(built, Index)
    assert world.broker.index.coverage.equal(built.coverage) is None
    assert other.index.coverage.equal(built.coverage) is None


def test_an_undecided_transaction_pins_its_segment() -> None:
    world, session = ready()
    ids = [world.prepare("t", [Row(b"x" * 500)]).prepared]
    grow(world, session, 6)
    assert world.broker.journal.first == 0
    assert world.broker.views.undecided.pins(0)
    assert world.broker.ledger.room.blocked
    world.broker.ledger.room.blocked = False
    world.decide(ids)
    grow(world, session, 2)
    assert world.broker.journal.first == 0  # a group has not consumed it
    same(world)
    pulled = world.pull(session, "t", "g")
    assert offsets(pulled) == [0]
    assert pulled is not None
    world.settle(session, "t", "g", pulled)
    grow(world, session, 1)
    assert world.broker.journal.first > 0
    assert not world.broker.ledger.room.blocked
    same(world)


def test_what_is_rolled_back_lets_its_segment_go() -> None:
    world, session = ready()
    world.prepare("t", [Row(b"x" * 500)])
    grow(world, session, 6)
    assert world.broker.journal.first == 0
    world.broker.ledger.room.blocked = False
    world.abort()
    grow(world, session, 1)
    assert world.broker.journal.first > 0
    same(world)


def test_the_time_limit_unpins() -> None:
    world, session = ready()
    world.prepare("t", [Row(b"x" * 500)])
    grow(world, session, 6)
    world.pass_time(world.options.limits.transaction_us)
    grow(world, session, 1)
    assert world.broker.journal.first > 0
    same(world)


def across(world: Kept, session: int) -> tuple[int, int]:
    """Prepare rows, send others some segments later, commit again later.

    The queue then is: 2 sent, (segments) 3 sent, (segments) 2 prepared at the very beginning, 1
    sent. Returns the segments of the sends in the middle and of the RESOLVED.
    """
    ids = [world.prepare("t", [Row(b"p0", key="k"), Row(b"p1")]).prepared]
    world.send("t", [Row(b"s0", key="k"), Row(b"s1")])
    grow(world, session, 1)
    world.send("t", [Row(b"s2", key="k"), Row(b"s3"), Row(b"s4")])
    middle = world.broker.journal.end // SEGMENT
    grow(world, session, 1)
    world.decide(ids)
    world.turn()
    resolved = world.broker.journal.end // SEGMENT
    world.send("t", [Row(b"s5", key="k")])
    grow(world, session, 1)
    return middle, resolved


def test_rows_in_old_segments_are_read_in_their_order() -> None:
    world, session = ready()
    across(world, session)
    same(world)
    queries = Queries(world.broker.ledger)
    found = waiting(lambda: queries.read("t", 0, 0, 100, 1 << 20))
    got = []
    at = 0
    while at < 8:
        found = waiting(partial(queries.read, "t", 0, at, 100, 1 << 20))
        records = waiting(partial(world.broker.store.gather, found.places))
        got += [body for one in records for body in Batch(_batch(one)).bodies()]
        at = found.stop
    assert got == [b"s0", b"s1", b"s2", b"s3", b"s4", b"p0", b"p1", b"s5"]
    page = waiting(lambda: queries.by_key("t", "k"))
    assert [one.offset for one in page.found] == [7, 2, 0, 5]  # by where the rows stand
    assert page.found[-1].stored_us > page.found[1].stored_us
    reader = JournalReader(world.disk)
    told = [
        (one.messages.first_offset, body)
        for one in reader.batches(1, 0)
        for body in Batch(one.messages.batch).bodies()
    ]
    assert [body for _, body in told] == got
    assert [offset for offset, _ in told] == [0, 0, 2, 2, 2, 5, 5, 7]
    world.restart(clean=True)
    session = world.join("d")
    assert world.drain(session, "t", "g") == list(range(8))


def _batch(record: bytes) -> bytes:
    from ternmq.record.fact import messages

    return messages.of_record(record).batch


def test_a_segment_takes_all_below_its_highest_prepared_row_with_it() -> None:
    world, session = ready()
    middle, _ = across(world, session)
    pulled = world.pull(session, "t", "g")
    assert pulled is not None
    got = offsets(pulled)
    while len(got) < 8:
        more = world.pull(session, "t", "g")
        got += offsets(more)
        assert more is not None
        world.settle(session, "t", "g", more, Outcome.RETRY, reason="later", delay_us=900 * SECOND)
    world.settle(session, "t", "g", pulled, Outcome.RETRY, reason="later", delay_us=900 * SECOND)
    grow(world, session, 1)
    for _ in range(200):
        if world.broker.journal.first:
            break
        world.send("other", [Row(b"y" * 1000)])
        world.turn()
        world.drain(session, "other", "g")
    assert 0 < world.broker.journal.first <= middle * SEGMENT
    queue = world.broker.views.catalog.topic("t").queues[0]
    assert queue.first == 7
    queries = Queries(world.broker.ledger)
    with pytest.raises(OffsetExpired, match="7"):
        queries.read("t", 0, 2, 100, 1 << 20)
    assert waiting(lambda: queries.by_offset("t", 0, 2)).copied
    same(world)
    reader = JournalReader(world.disk)
    assert [one.messages.first_offset for one in reader.batches(1, 0)][-1] == 7
    world.restart()
    session = world.join("d")
    assert world.broker.views.catalog.topic("t").queues[0].first == 7
    world.pass_time(901 * SECOND)
    again: list[int] = []
    for _ in range(20):
        more = world.pull(session, "t", "g")
        if more is None:
            break
        again += offsets(more)
        world.settle(session, "t", "g", more)
        world.commit()
    assert sorted(again) == list(range(8))
    for _ in range(600):
        if world.broker.journal.first > 6 * SEGMENT:
            break
        world.send("other", [Row(b"y" * 1000)])
        world.turn()
        world.drain(session, "other", "g")
    assert world.broker.index.floor_of is None
    assert not world.broker.views.prepared_rows.changed
    same(world)


def test_a_resend_of_a_batch_whose_segment_is_gone_is_refused() -> None:
    world, session = ready()
    batch = world.batch("t", [Row(b"x")])
    world.prepare("t", batch)
    world.abort()
    grow(world, session, 7)
    assert world.broker.journal.first > 0
    with pytest.raises((ResendTooOld, IdConflict)):
        world.prepare("t", batch)


@pytest.mark.parametrize("seed", range(6))
def test_random_lives_survive_any_moment(seed: int) -> None:
    """Sends, prepares and decisions over many segments that go, with restarts in between."""
    chance = random.Random(seed)
    world, session = ready()
    opened: dict[int, list[int]] = {}
    batch = 0
    for step in range(260):
        what = chance.random()
        if what < 0.35:
            batch += chance.random() < 0.3
            rows = [Row(b"%d" % step + b"z" * chance.randrange(900), key="k")]
            try:
                id_ = world.prepare("t", rows * chance.randrange(1, 4), batch=batch).prepared
            except (TransactionDecided, DiskFull):
                world.broker.ledger.room.blocked = False
            else:
                opened.setdefault(batch, []).append(id_)
        elif what < 0.45 and opened:
            number = chance.choice(list(opened))
            ids = opened.pop(number)
            world.decide(chance.sample(ids, chance.randrange(1, len(ids) + 1)), batch=number)
        elif what < 0.5 and opened:
            number = chance.choice(list(opened))
            del opened[number]
            world.abort(batch=number)
        elif what < 0.8:
            world.broker.ledger.room.blocked = False
            world.send("t", [Row(b"s" * chance.randrange(900), key="k")])
        elif what < 0.9:
            pulled = world.pull(session, "t", "g")
            if pulled is not None:
                outcome = chance.choice([Outcome.DONE, Outcome.DONE, Outcome.RETRY])
                world.settle(session, "t", "g", pulled, outcome, reason="r")
        elif what < 0.92:
            world.restart(clean=chance.random() < 0.5)
            session = world.join(f"c{step}")
        world.turn(chance.choice([1000, 10_000, SECOND]))
        if step % 20 == 0:
            same(world)
    world.broker.ledger.room.blocked = False
    for number, ids in opened.items():
        world.decide(ids, batch=number)
    owed = len(world.sent)
    got: set[int] = set()
    for _ in range(400):
        world.pass_time(400 * SECOND)
        got |= set(world.drain(session, "t", "g"))
        world.turn()
    queue = world.broker.views.catalog.topic("t").queues[0]
    assert world.progress("t", "g").cursor == queue.next == owed
    assert world.broker.views.undecided.by_number == {}
    same(world)


def test_a_message_that_is_gone_is_not_found() -> None:
    world, session = ready()
    ids = [world.prepare("t", [Row(b"x", key="k")], producer=5).prepared]
    world.decide(ids)
    world.drain(session, "t", "g")
    grow(world, session, 8)
    queries = Queries(world.broker.ledger)
    assert waiting(lambda: queries.by_key("t", "k")).found == []
    with pytest.raises(MessageNotFound):
        waiting(lambda: queries.by_id(5, 0))
