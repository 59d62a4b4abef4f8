"""The oldest segment goes by itself, though nothing that is sent makes the journal grow."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from ternmq.broker.start import Options, open_broker
from ternmq.broker.upkeep.pinned import pinned, sentence
from ternmq.broker.upkeep.refreshing import PATIENCE_US, Refreshing
from ternmq.journal.disk.memory import MemoryDisk
from ternmq.journal.log.retention import Pin, RetentionSpec
from ternmq.journal.state.sets import CompleteSet
from ternmq.model.errors import DiskError, DiskFull
from ternmq.model.specs import Limits
from ternmq.model.types import Position
from ternmq.record.batch.batch import Row
from ternmq.record.fact.facts import Outcome
from tests.unit.broker.kit import SECOND, World

SEGMENT = 16 << 10
VOLUME = 12 * SEGMENT
LIMITS = Limits(dedup_window_us=600 * SECOND, send_timeout_us=SECOND)
TURNS = 300
"""Some seconds of broker time: looks are a second apart, and the sets take a turn for an object."""


class Small(World):
    """A broker on a small disk. No set comes by itself before the disk is full."""

    def __init__(
        self, *, volume: int = VOLUME, reserve: int = 3 * SEGMENT, watermark: float = 0.8
    ) -> None:
        self.volume, self.reserve, self.watermark = volume, reserve, watermark
        super().__init__(LIMITS, segment_bytes=SEGMENT, disk=MemoryDisk(capacity=volume))

    def _open(self, wall_us: int) -> None:
        self.disk.capacity = self.volume
        self.options = Options(
            limits=LIMITS,
            segment_bytes=SEGMENT,
            reserve_bytes=self.reserve,
            state_bytes=1 << 40,
            state_records=1 << 40,
            chunk_bytes=1024,
            retention=RetentionSpec(watermark=self.watermark),
        )
        self.started = open_broker(
            self.disk, wall_us=wall_us, chance=random.Random(7), options=self.options
        )
        self.broker, self.report = self.started.broker, self.started.report

    def spare(self) -> None:
        """Leave the spares to the upkeep: the disk may be full."""

    def turn(self, us: int = 50_000) -> None:
        """End a turn in which two objects of STATE can be written."""
        self.pass_time(us)
        upkeep = self.started.upkeep
        answers = iter((True,))
        upkeep.step(self.now, lambda: next(answers, False))
        self.commit()
        while (job := upkeep.next_job()) is not None:
            error: DiskError | None = None
            try:
                job.run()
            except DiskError as caught:
                error = caught
            upkeep.finished(job, error)

    def turns(self, count: int, us: int = 50_000) -> None:
        for _ in range(count):
            self.turn(us)

    def takes(self, size: int = 1000) -> bool:
        """Tell whether a send is taken."""
        try:
            self.send("t", [Row(bytes(size))])
        except DiskFull:
            return False
        return True

    def fill(self) -> int:
        """Send until there is no room, also in the turns after; return how many were taken."""
        taken = 0
        for _ in range(10_000):
            if self.takes():
                taken += 1
                if taken % 5 == 0:
                    self.turn(1000)
            elif self._stays_full():
                return taken
        raise AssertionError("the disk is never full")

    def _stays_full(self) -> bool:
        self.turns(3, 1000)
        return not self.takes()

    def takes_again(self, turns: int = TURNS) -> bool:
        """Tell whether a send is taken within so many turns."""
        for _ in range(turns):
            self.turn()
            if self.takes():
                return True
        return False

    @property
    def written(self) -> int:
        """How many sets of STATE were written in this reign."""
        return self.broker.writer.sets_written

    def kept_by(self) -> Pin:
        return pinned(self.broker.ledger, self.started.upkeep.moving).by

    def restart(self, *, clean: bool = False, gap_us: int = SECOND) -> None:
        if clean:
            self.started.upkeep.close(self.now)
        else:
            self.broker.journal.flush()
        self.disk = MemoryDisk(self.disk.image(), capacity=self.volume)
        self.now += gap_us
        self._open(self.now)


def small(retention_us: int = SECOND, **more: Any) -> Small:
    world = Small(**more)
    world.topic("t", retention_us=retention_us)
    world.group("t", "g")
    return world


@pytest.mark.parametrize("watermark", [0.8, 1.0])
@pytest.mark.parametrize("retention_us", [SECOND, 3600 * SECOND])
def test_a_full_disk_whose_content_is_consumed_takes_sends_again(
    watermark: float, retention_us: int
) -> None:
    world = small(retention_us, watermark=watermark)
    session = world.join()
    for _ in range(4):  # what helped once may not help again
        assert world.fill() > 5
        world.drain(session, "t", "g")
        assert world.takes_again()


def test_a_full_disk_that_is_unread_has_no_set_written_for_it() -> None:
    world = small()
    world.fill()
    world.turns(2000)
    assert not world.takes()
    assert world.written == 0
    assert world.kept_by() is Pin.GROUP
    assert sentence(pinned(world.broker.ledger, world.started.upkeep.moving)) == (
        "group g has not finished its messages of topic t"
    )


def test_a_full_disk_of_rows_that_wait_for_a_retry_has_few_sets_written_for_it() -> None:
    world = small()
    session = world.join()
    world.fill()
    while (pulled := world.pull(session, "t", "g", 32)) is not None:
        world.settle(session, "t", "g", pulled, Outcome.RETRY, delay_us=10**6 * SECOND)
        world.commit()
    world.turns(2000)  # 100 seconds
    journal = world.broker.journal
    assert journal.room(reserve=True) > 0
    first, written = journal.first, world.written
    world.turns(1000, SECOND)
    # Half a minute and more is between two segments that are only written again at the end.
    assert journal.first - first <= 40 * SEGMENT
    assert world.written - written <= 2 * (journal.first - first) // SEGMENT + 2


def test_on_an_idle_broker_what_waits_for_a_retry_is_not_written_again_and_again() -> None:
    world = small(volume=1 << 30)
    session = world.join()
    while world.broker.journal.end < 6 * SEGMENT:
        if not world.takes(3000):
            world.turn(1000)
    while (pulled := world.pull(session, "t", "g", 32)) is not None:
        world.settle(session, "t", "g", pulled, Outcome.RETRY, delay_us=10**6 * SECOND)
        world.commit()
    world.turns(600, SECOND)
    first, written = world.broker.journal.first, world.written
    assert written <= 4
    world.turns(600, 60 * SECOND)
    assert world.written == written
    assert world.broker.journal.first == first


@pytest.mark.parametrize("clean", [True, False])
def test_no_number_of_restarts_uses_the_reserve_up(clean: bool) -> None:
    """Each finds the disk full, and ends before it has done anything about it."""
    world = small()
    session = world.join()
    world.fill()
    world.drain(session, "t", "g")
    for _ in range(40):
        world.restart(clean=clean)
        world.turn(1000)
    assert world.broker.journal.room(reserve=True) > world.reserve // 2
    assert world.takes_again()


@pytest.mark.parametrize("turns", range(20, 160, 7))
def test_a_kill_at_any_time_of_it_makes_no_difference(turns: int) -> None:
    world = small()
    session = world.join()
    world.fill()
    world.drain(session, "t", "g")
    for _ in range(3):
        world.turns(turns)
        world.restart()
    assert world.takes_again()


def test_what_was_sent_lately_is_known_again_when_its_segment_is_gone() -> None:
    """The runs that tell of it were written once, at a stop, into a segment that has to go."""
    world = small()
    session = world.join()
    batch = world.batch("t", [Row(b"first")], 1)
    assert not world.send_batch("t", batch).duplicate
    world.restart(clean=True)
    world.resume(session)
    world.fill()
    world.drain(session, "t", "g")
    assert world.takes_again()
    assert world.broker.journal.first > 0
    assert world.send_batch("t", batch).duplicate
    world.restart()
    assert world.send_batch("t", batch).duplicate


def test_a_repeat_is_told_whether_it_was_scheduled_when_its_record_is_gone() -> None:
    world = small()
    session = world.join()

    def due(*seconds: float) -> bytes:
        rows = [Row(b"row", due_us=world.now + round(one * SECOND)) for one in seconds]
        return world.batch("t", rows, 1)

    over, later = due(-100, 0), due(-100, 5)
    world.now += SECOND
    assert [world.send_batch("t", one).scheduled for one in (over, later)] == [False, True]
    world.turns(10, SECOND)
    assert world.broker.views.schedule.rows == 0
    end = world.broker.journal.end
    while world.broker.journal.first < end:
        world.fill()
        world.drain(session, "t", "g")
        assert world.takes_again()
    for _ in range(2):
        world.restart()  # the newest records are still in memory
        told = [world.send_batch("t", one) for one in (over, later)]
        assert [(one.duplicate, one.scheduled) for one in told] == [(True, False), (True, True)]
        assert [one.first_offset for one in told] == [None, None]


def test_on_an_idle_broker_a_segment_goes_some_time_after_its_retention() -> None:
    world = small(30 * SECOND, volume=1 << 30)
    session = world.join()
    while world.broker.journal.end < 4 * SEGMENT:
        if not world.takes():
            world.turn(1000)  # the next segment is being made
    world.drain(session, "t", "g")
    world.turns(10, 100_000)
    assert world.kept_by() is Pin.RETENTION
    world.turns(40, SECOND)
    assert world.kept_by() is Pin.STATE
    assert world.written == 0  # sends may go on, and make sets due
    for _ in range(PATIENCE_US // SECOND + TURNS):
        world.turn(SECOND)
    journal = world.broker.journal
    assert journal.first == journal.base
    assert world.kept_by() is Pin.ACTIVE
    assert world.written == 2
    world.turns(500, 60 * SECOND)
    assert world.written == 2


def test_a_reserve_that_is_too_small_for_the_sets_is_left_alone() -> None:
    world = small(reserve=SEGMENT // 3)
    session = world.join()
    for number in range(60):
        world.topic(f"idle{number}")
    world.fill()
    world.drain(session, "t", "g", 200)
    world.turns(TURNS)
    found = pinned(world.broker.ledger, world.started.upkeep.moving)
    assert (found.by, found.lacks_room) == (Pin.STATE, True)
    assert "no room" in sentence(found)
    assert not world.broker.writer.active
    assert not world.started.upkeep.goes_on
    world.volume = world.disk.capacity = 2 * VOLUME  # somebody makes room
    assert world.takes_again()


def test_the_turns_go_on_by_themselves_until_the_segment_has_gone() -> None:
    """Whoever runs the turns needs no request for it: a turn that says so, or one a second."""
    world = small()
    session = world.join()
    world.fill()
    world.drain(session, "t", "g")
    upkeep = world.started.upkeep
    for _ in range(60):
        assert upkeep.watches
        world.turn(SECOND)
        left = 1000
        while upkeep.goes_on and left:
            world.turn(100)
            left -= 1
        assert left
        if upkeep.moving.removed_segments >= 5:
            break
    assert upkeep.moving.removed_segments >= 5


def hold(world: Small) -> None:
    world.run(lambda: world.broker.holding.put(world.now, "archive", 0))


def prepare(world: Small) -> None:
    world.prepare("t", 1, "loader", producer=9)


@pytest.mark.parametrize(
    ("keep", "by", "said"),
    [
        (hold, Pin.HOLD, "hold archive keeps it"),
        (
            prepare,
            Pin.TRANSACTION,
            "an undecided transaction of writer loader has messages in it",
        ),
    ],
)
def test_what_keeps_the_oldest_segment_has_a_name(
    keep: Callable[[Small], None], by: Pin, said: str
) -> None:
    world = small()
    session = world.join()
    keep(world)
    world.fill()
    world.drain(session, "t", "g")
    world.turns(60)
    assert world.kept_by() is by
    assert sentence(pinned(world.broker.ledger, world.started.upkeep.moving)) == said
    assert not world.takes()
    assert world.written == 0
    if by is Pin.HOLD:
        world.run(partial(world.broker.holding.delete, world.now, "archive"))
        assert world.takes_again()


def said_of(world: Small) -> str:
    return sentence(pinned(world.broker.ledger, world.started.upkeep.moving))


def test_a_group_that_finished_since_the_last_look_is_not_named() -> None:
    world = small()
    world.group("t", "other")
    session = world.join()
    world.fill()
    world.turns(60)
    world.drain(session, "t", "g")
    assert said_of(world) == "group other has not finished its messages of topic t"
    world.drain(session, "t", "other")
    found = pinned(world.broker.ledger, world.started.upkeep.moving)
    assert (found.by, found.since_us) == (Pin.STATE, 0)
    assert world.takes_again()


def test_another_topic_whose_group_is_behind_is_named() -> None:
    world = small()
    world.topic("u", retention_us=SECOND)
    world.group("u", "slow")
    world.send("t", [Row(b"in the oldest file")])
    world.send("u", [Row(b"in the oldest file, too")])
    session = world.join()
    world.fill()
    world.turns(60)
    assert "topic t" in said_of(world)
    world.drain(session, "t", "g")
    assert said_of(world) == "group slow has not finished its messages of topic u"


@pytest.mark.parametrize("keep", [hold, prepare])
def test_what_kept_it_at_the_last_look_is_not_named_when_it_is_gone(
    keep: Callable[[Small], None],
) -> None:
    world = small()
    keep(world)
    world.fill()
    world.turns(60)
    if keep is hold:
        world.run(partial(world.broker.holding.delete, world.now, "archive"))
    else:
        world.abort("loader", 1, operator=True)
    assert said_of(world) == "group g has not finished its messages of topic t"


def test_a_deleted_topic_is_not_named() -> None:
    world = small()
    world.fill()
    world.turns(60)
    world.run(partial(world.broker.administration.delete_topic, world.now, "t"))
    assert "topic" not in said_of(world)


@dataclass
class Pages:
    """A journal of segments of 8,192 bytes, of which so many bytes of the reserve are left."""

    left: int
    segment_size: int = 8192
    base: int = 188_416
    reserve_bytes: int = 24_576

    def room(self, *, reserve: bool) -> int:
        assert reserve
        return self.left


@dataclass
class Sizes:
    """Sets that take 11,000 bytes if whole, 1,000 if not; the newest needs the oldest segment."""

    oldest: int
    whole: int = 11_000

    @property
    def complete(self) -> list[CompleteSet]:
        return [CompleteSet(Position(158_456), Position(159_392), Position(self.oldest))]

    def estimate(self, *, whole: bool) -> int:
        return self.whole if whole else 1000


@pytest.mark.parametrize(
    ("left", "oldest", "goal"),
    [
        (20_000, 146_536, 188_416),  # everything fits
        (10_000, 146_536, 147_456),  # what lies in the oldest segment fits
        (10_000, 141_000, 0),  # it would take more than the segment that becomes free
        (7000, 146_536, 0),  # too little is left for surprises
    ],
)
def test_if_a_whole_set_does_not_fit_the_oldest_segment_is_freed(
    left: int, oldest: int, goal: int
) -> None:
    refreshing = Refreshing(Pages(left), Sizes(oldest))  # type: ignore[arg-type]
    refreshing.want(SECOND, 147_456, at_once=True)
    assert refreshing.goal() == goal
    assert refreshing.lacks_room == (goal == 0)


def test_a_goal_that_did_not_fit_is_chosen_again_at_the_next_look() -> None:
    journal = Pages(1000)
    refreshing = Refreshing(journal, Sizes(146_536))  # type: ignore[arg-type]
    for left, goal in ((1000, 0), (10_000, 147_456), (20_000, 147_456)):
        journal.left = left
        refreshing.want(SECOND, 147_456, at_once=True)
        assert refreshing.goal() == goal
