"""Owed rows that outlive their segment: all of them do, and people find them by what they know."""

from __future__ import annotations

import random
from functools import partial

import pytest

from ternmq.broker.query.messages import FailedRow, Queries
from ternmq.broker.start import Options, open_broker
from ternmq.journal.disk.memory import MemoryDisk
from ternmq.journal.index.index import Index
from ternmq.journal.index.open import fill, open_index
from ternmq.journal.log.retention import RetentionSpec
from ternmq.model.errors import MessageNotFound
from ternmq.model.specs import RetryPolicy
from ternmq.record.batch.batch import Batch, Row
from ternmq.record.fact.facts import Outcome
from tests.unit.broker.kit import SECOND, World, offsets, waiting
from tests.unit.broker.upkeep.test_upkeep import LIMITS, Kept

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


def retry_in_a_year(world: World, session: int, rows: int, reason: str = "not now") -> list[int]:
    """Pull rows and ask for a retry in a year; return their offsets."""
    got: list[int] = []
    while len(got) < rows:
        pulled = world.pull(session, "t", "g", rows, max_bytes=1 << 30)
        assert pulled is not None
        got += offsets(pulled)
        world.settle(session, "t", "g", pulled, Outcome.RETRY, reason=reason, delay_us=YEAR_US)
        world.commit()
    return got


def outlive(world: Kept, session: int, last: int) -> None:
    """Send and consume until the segments with offsets up to ``last`` are gone."""
    filler = [Row(body=b"y" * 50_000)]
    for _ in range(300):
        world.send("t", filler)
        world.drain(session, "t", "g")
        world.turn(100_000)
        if world.broker.views.catalog.topic("t").queues[0].first > last:
            return
    raise AssertionError("the segments stay")


def index_again(world: World) -> Index:
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


@pytest.mark.parametrize(
    ("size", "reason"), [(100, "no"), (20_000, "no"), (300_000, "no"), (100, "n" * 4000)]
)
def test_every_owed_row_survives_whatever_its_size(size: int, reason: str) -> None:
    world = Large(RetentionSpec())
    world.topic("t")
    world.group("t", "g")
    session = world.join()
    owed: list[int] = []
    for number in range(max(3, min(80, 800_000 // size))):
        world.send("t", [Row(body=b"%d " % number + b"x" * size)])
        owed += retry_in_a_year(world, session, 1, reason)
    outlive(world, session, owed[-1])
    number = world.broker.views.catalog.topic("t").number
    for offset in owed:
        found = waiting(partial(Queries(world.broker.ledger).by_offset, "t", 0, offset))
        assert found.copied
        assert Batch(found.batch).body(found.row) == world.sent[number, 0, offset]
    listed: list[FailedRow] = []
    more = True
    while more:
        after = listed[-1].offset if listed else -1
        page = waiting(partial(Queries(world.broker.ledger).waiting, "t", "g", 0, after=after))
        listed += page.rows
        more = page.more
    assert [one.offset for one in listed] == owed
    assert all([one.reason for one in row.failures] == [reason.encode()] for row in listed)
    world.restart()
    session = world.join()
    world.run(lambda: world.broker.operating.retry_now(world.now, "t", "g", 0, owed))
    world.commit()
    assert world.drain(session, "t", "g") == owed  # the kit compares the bodies


@pytest.mark.parametrize("restarted", [False, True])
def test_a_moved_row_is_found_by_all_that_people_know_of_it(restarted: bool) -> None:
    world = Large(RetentionSpec())
    world.topic("t")
    world.group("t", "g")
    session = world.join()
    rows = [
        Row(body=b"body %d" % number, key=f"k{number % 2}", application_id=f"order-{number}")
        for number in range(6)
    ]
    world.send("t", rows, producer=77)
    pulled = world.pull(session, "t", "g", 6)
    assert pulled is not None
    world.settle(session, "t", "g", pulled, Outcome.DONE, [(0, 1), (2, 4)])
    world.settle(session, "t", "g", pulled, Outcome.RETRY, delay_us=YEAR_US)
    world.commit()
    outlive(world, session, 5)
    if restarted:
        world.restart()
    queries = Queries(world.broker.ledger)
    number = world.broker.views.catalog.topic("t").number
    for sequence in (1, 4, 5):
        found = waiting(partial(queries.by_id, 77, sequence))
        assert (found.topic, found.queue, found.offset) == (number, 0, sequence)
        assert Batch(found.batch).row(found.row) == rows[sequence]
        assert waiting(partial(queries.by_offset, "t", 0, sequence)) == found
        assert waiting(partial(queries.by_application_id, "t", f"order-{sequence}")) == found
        assert found in waiting(partial(queries.by_key, "t", f"k{sequence % 2}")).found
    assert [one.offset for one in waiting(partial(queries.by_key, "t", "k1")).found] == [5, 1]
    for sequence in (0, 2, 3):
        with pytest.raises(MessageNotFound):
            waiting(partial(queries.by_id, 77, sequence))
        with pytest.raises(MessageNotFound):
            waiting(partial(queries.by_offset, "t", 0, sequence))
        with pytest.raises(MessageNotFound):
            waiting(partial(queries.by_application_id, "t", f"order-{sequence}"))
    world.commit()
    assert world.broker.index.coverage.equal(index_again(world).coverage) is None


def test_copies_of_one_record_are_judged_with_one_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some of them have expired, each by its own time, and all are as old as they were."""
    world = Large(RetentionSpec())
    world.topic("t")
    world.group("t", "g", retry=RetryPolicy(jitter=0.0, expires_us=YEAR_US + 3600 * SECOND))
    session = world.join()
    early, late = (world.now + hours * 3600 * SECOND for hours in (1, 24 * 30))
    world.send("t", [Row(body=b"%d" % n, expiry_us=(early, late, 0)[n % 3]) for n in range(120)])
    pulled = world.pull(session, "t", "g", 120)
    assert pulled is not None
    world.settle(session, "t", "g", pulled, spans=[(0, 7), (50, 55)])
    owed = [*range(7, 50), *range(55, 120)]
    world.settle(session, "t", "g", pulled, Outcome.RETRY, delay_us=YEAR_US)
    world.commit()
    outlive(world, session, 119)
    world.pass_time(2 * 3600 * SECOND)
    session = world.join()
    world.run(lambda: world.broker.operating.retry_now(world.now, "t", "g", 0, owed))
    world.commit()
    store, read = world.broker.store, list[int]()
    get = store.get

    def counted(position: int, length: int | None = None) -> bytes:
        read.append(position)
        return get(position, length)

    monkeypatch.setattr(store, "get", counted)
    again = waiting(
        lambda: world.broker.pull(world.now, session, "t", "g", 200, None, None, 1 << 30)
    )
    assert again is not None
    assert offsets(again) == [offset for offset in owed if offset % 3]
    failures = world.progress("t", "g").failures
    dead = [one.offset for one in failures.failed(dead=True, after=-1)]
    assert dead == [offset for offset in owed if offset % 3 == 0]
    assert len(read) < 30
    read.clear()
    # Many runs, since every third row is dead: the copies are read once for all of them.
    world.settle(session, "t", "g", again, Outcome.RETRY, delay_us=YEAR_US)
    assert len(read) < 5
    assert len(list(failures.failed(dead=True, after=-1))) == len(owed)
