"""Where a sync runs: never an answer before it, in the loop only when it is alone and quick."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable

import pytest

from ternmq.broker.start import Options
from ternmq.broker.upkeep import upkeep
from ternmq.journal.disk.faulty import Fault, FaultyDisk, Kind
from ternmq.journal.disk.memory import MemoryDisk
from ternmq.journal.log.journal import SyncJob
from ternmq.model.errors import JournalError, JournalFailed
from ternmq.model.marks import Rests
from ternmq.model.specs import TopicSpec
from ternmq.record.batch.batch import encode_one, topic_seed
from ternmq.server.engine import sync_pace
from ternmq.server.engine.clocks import SystemClocks
from ternmq.server.engine.engine import Core
from ternmq.server.engine.sync_pace import (
    FAIR_S,
    FEW,
    QUICK_S,
    SMALL_BYTES,
    TURN_S,
    WINDOW,
    SyncPace,
)

# A disk in memory holds what it allocates, until the collector looks at all generations.
SEGMENT_BYTES = 4 << 20

# -- the pace -----------------------------------------------------------------------------------


def paced(*seconds: float) -> SyncPace:
    pace = SyncPace()
    for one in seconds:
        pace.took(one)
    return pace


def test_nobody_knows_at_first() -> None:
    assert not paced().quick
    assert not paced(*[0.0] * (WINDOW - 1)).quick
    assert paced(*[0.0] * WINDOW).quick


def test_one_in_ten_may_be_slow() -> None:
    few = WINDOW // 10
    assert paced(*[QUICK_S] * WINDOW).quick
    assert paced(*[2 * QUICK_S] * few, *[0.0] * (WINDOW - few)).quick
    assert not paced(*[2 * QUICK_S] * (few + 1), *[0.0] * (WINDOW - few - 1)).quick


def test_slow_ones_are_forgotten_in_time() -> None:
    pace = paced(*[2 * QUICK_S] * WINDOW)
    for number in range(WINDOW):
        assert pace.quick == (WINDOW - number <= WINDOW // 10)
        pace.took(0.0)
    assert pace.quick


def test_one_that_held_the_loop_up_sends_the_next_to_the_thread() -> None:
    pace = paced(*[0.0] * WINDOW, 2 * TURN_S)
    for _ in range(WINDOW):
        assert not pace.quick
        pace.took(0.0)
    assert pace.quick


def fair(pace: SyncPace) -> bool:
    """Whether a pressed loop runs the next small sync."""
    return pace.fair


def test_a_pressed_loop_leaves_more_syncs_to_the_thread_after_each_slow_one() -> None:
    pace, slow = SyncPace(), 2 * FAIR_S
    assert fair(pace), "the thread would be slower on any disk but a very slow one"
    rested: list[int] = []
    for _ in range(6):
        pace.took_pressed(slow, here=True)
        rested.append(0)
        while not fair(pace):
            pace.took_pressed(slow, here=False)
            rested[-1] += 1
    assert rested == [FEW, 2 * FEW, 4 * FEW, WINDOW, WINDOW, WINDOW]
    pace.took_pressed(FAIR_S, here=True)
    assert fair(pace)
    pace.took_pressed(slow, here=True)
    for _ in range(FEW):
        assert not fair(pace)
        pace.took_pressed(slow, here=False)
    assert fair(pace), "one quick sync is enough to begin anew"


def test_a_pressed_loop_does_not_try_a_disk_that_the_thread_finds_slow() -> None:
    pace = SyncPace()
    pace.took_pressed(2 * FAIR_S, here=True)
    for _ in range(10 * WINDOW):
        pace.took_pressed(2 * TURN_S, here=False)
        assert not fair(pace)
    pace.took_pressed(TURN_S, here=False)
    assert fair(pace)


def test_what_a_thread_of_a_pressed_loop_measures_says_nothing_of_the_disk() -> None:
    pace = paced(*[0.0] * WINDOW)
    for _ in range(WINDOW):
        pace.took_pressed(2 * TURN_S, here=False)
    assert pace.quick
    pace.took_pressed(2 * TURN_S, here=True)
    assert not pace.quick


# -- in a broker's core -------------------------------------------------------------------------


async def until(true: Callable[[], bool]) -> None:
    """Let the loop turn until something is so; ``with_desk`` has the deadline."""
    for _ in iter(true, True):
        await asyncio.sleep(0)


class Desk:
    """Sends as connections do; keeps where syncs ran, and that no answer came before its sync."""

    def __init__(self, disk: MemoryDisk | FaultyDisk) -> None:
        loop = asyncio.get_running_loop()
        options = Options(segment_bytes=SEGMENT_BYTES)
        self.core = Core(disk, options, SystemClocks(loop), loop, seed=1)
        self.failures: list[JournalError] = []
        self.core.on_failure = self.failures.append
        self.answered = 0
        self.answered_in = -1
        self.sequence = 0
        self.loop_thread = threading.get_ident()

    def put(self, frame: bytes, settled_bytes: int) -> None:
        """Take an answer: what it rests on must be durable."""
        del settled_bytes
        assert int(frame) <= self.core.broker.journal.durable
        self.answered += 1
        self.answered_in = self.core.turns

    def send(self, *, count: int = 1, size: int = 100, asked: int | None = None) -> None:
        core = self.core
        topic = core.broker.views.catalog.topic("orders")
        for _ in range(count):
            batch = encode_one(
                b"x" * size,
                topic_seed=topic_seed("orders"),
                producer_id=7,
                first_sequence=self.sequence,
                born_us=core.now_us(),
            )
            self.sequence += 1
            reply = core.broker.send(core.now_us(), topic.spec.name, batch)
            core.hold(self, b"%d" % reply.position, reply.position, Rests.DURABLE, 0)
        core.asked += count if asked is None else asked
        core.touch()

    async def sent(self, count: int = 1, **how: int) -> None:
        """Send, and wait until all is answered."""
        want = self.answered + count
        self.send(count=count, **how)
        await until(lambda: self.answered >= want)

    async def settle(self) -> None:
        """Wait for whatever is under way, in the threads too."""
        await self.core.settle_down()
        await until(lambda: not self.core.upkeep.at_work)


def with_desk(
    work: Callable[[Desk], Awaitable[None]], disk: MemoryDisk | FaultyDisk | None = None
) -> None:
    async def run() -> None:
        desk = Desk(disk or MemoryDisk())
        try:
            async with asyncio.timeout(60):
                desk.core.broker.administration.create_topic(
                    desk.core.now_us(), TopicSpec(name="orders")
                )
                desk.core.touch()
                await desk.settle()
                await work(desk)
        finally:
            desk.core.close(clean=not desk.failures)

    asyncio.run(run())


@pytest.fixture
def where(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the threads in which syncs ran, as they come."""
    ran: list[int] = []
    run = SyncJob.run

    def noted(self: SyncJob) -> None:
        ran.append(threading.get_ident())
        run(self)

    monkeypatch.setattr(SyncJob, "run", noted)
    monkeypatch.setattr(sync_pace, "TURN_S", 60.0)  # a busy machine makes no disk slow
    monkeypatch.setattr(sync_pace, "QUICK_S", 60.0)
    monkeypatch.setattr(upkeep, "QUIET_US", 1 << 60)  # and no MARK is synced in between
    return ran


def test_lone_sends_are_synced_in_the_loop_once_the_disk_is_known(where: list[int]) -> None:
    async def work(desk: Desk) -> None:
        for _ in range(WINDOW):
            await desk.sent()
        await desk.settle()
        where.clear()
        for number in range(50):
            turns = desk.core.turns
            await desk.sent()
            assert where == [desk.loop_thread] * (number + 1)
            assert desk.answered_in == turns  # the first that ends after it came
        assert desk.core.syncs_in_loop >= 50

    with_desk(work)


def test_what_is_not_alone_goes_to_the_thread(where: list[int]) -> None:
    async def work(desk: Desk) -> None:
        for _ in range(WINDOW + 1):
            await desk.sent()
        await desk.settle()
        await desk.sent()
        assert where[-1] == desk.loop_thread
        for how in ({"count": 2}, {"asked": 2}, {"asked": 0}, {"size": SMALL_BYTES + 1}):
            await desk.sent(**how)
            assert where[-1] != desk.loop_thread, how
            await desk.sent()
            assert where[-1] == desk.loop_thread, how

    with_desk(work)


def test_beside_more_work_than_a_turn_does_a_small_sync_runs_in_the_loop(where: list[int]) -> None:
    """The thread would have to wait until the loop lets it in, twice."""

    async def work(desk: Desk) -> None:
        core = desk.core
        for _ in range(WINDOW + 1):
            await desk.sent()
        for how in ({"count": 2}, {"asked": 2}, {"asked": 0}):
            await desk.settle()
            core.pressed = True
            turns = core.turns
            await desk.sent(**how)
            assert where[-1] == desk.loop_thread, how
            assert desk.answered_in == turns, how
            core.pressed = False
            await desk.settle()
            await desk.sent(**how)
            assert where[-1] != desk.loop_thread, how
        core.pressed = True
        await desk.sent(size=SMALL_BYTES + 1)
        assert where[-1] != desk.loop_thread

    with_desk(work)


def test_nobody_waits_then_neither_does_the_loop(where: list[int]) -> None:
    async def work(desk: Desk) -> None:
        for _ in range(WINDOW + 1):
            await desk.sent()
        await desk.settle()
        where.clear()
        core = desk.core
        core.broker.administration.create_topic(core.now_us(), TopicSpec(name="other"))
        core.asked += 1
        core.touch()
        await desk.settle()
        assert where
        assert desk.loop_thread not in where

    with_desk(work)


@pytest.mark.parametrize("kind", ["eio", "late", "drop"])
def test_a_sync_that_fails_in_the_loop_ends_the_broker(where: list[int], kind: Kind) -> None:
    disk = FaultyDisk(MemoryDisk(), [])

    async def work(desk: Desk) -> None:
        for _ in range(WINDOW + 1):
            await desk.sent()
        await desk.settle()
        core, answered, ran = desk.core, desk.answered, len(where)
        disk.plan([Fault("sync", disk.counts["sync"] + 1, kind)])
        desk.send()
        await until(lambda: bool(desk.failures))
        assert where[ran:] == [desk.loop_thread]
        assert isinstance(desk.failures[0], JournalFailed)
        core.touch()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert desk.answered == answered  # not then, not later
        assert len(where) == ran + 1  # and no descriptor is synced again
        with pytest.raises(JournalFailed):
            desk.send()

    with_desk(work, disk)


def test_a_follower_hears_of_rows_that_were_synced_in_the_loop(where: list[int]) -> None:
    async def work(desk: Desk) -> None:
        for _ in range(WINDOW + 1):
            await desk.sent()
        await desk.settle()
        broker = desk.core.broker
        woken: list[bool] = []
        desk.core.on_durable = lambda: woken.append(bool(broker.parking.grown))
        broker.parking.follow(broker.views.catalog.topic("orders").queues[0])
        await desk.sent()
        assert where[-1] == desk.loop_thread
        assert woken[-1]  # in the same turn

    with_desk(work)


# -- with a slow disk ---------------------------------------------------------------------------


class SlowDisk:
    """What syncs take, by a clock that stands still but for them; and one that hangs until let go.

    Attributes:
        takes_s: What each of the next syncs takes.
        hangs: Is waited for in the middle of a sync in a thread; None: none hangs.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.takes_s = 0.0
        self.hangs: threading.Event | None = None
        self.ran: list[int] = []
        self.at_once = 0
        self._now_s = 0.0
        run = SyncJob.run

        def slowly(job: SyncJob) -> None:
            self.at_once += 1
            assert self.at_once == 1  # never a second sync beside one
            self.ran.append(threading.get_ident())
            if self.hangs is not None:
                assert self.hangs.wait(60)
            self._now_s += self.takes_s
            run(job)
            self.at_once -= 1

        monkeypatch.setattr(SyncJob, "run", slowly)
        monkeypatch.setattr(sync_pace, "now_s", lambda: self._now_s)
        monkeypatch.setattr(upkeep, "QUIET_US", 1 << 60)  # no MARK is synced in between


async def alone(desk: Desk) -> None:
    """Send when no background job is at the disk."""
    await desk.settle()
    await desk.sent()


def test_a_disk_that_becomes_slow_holds_the_loop_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = SlowDisk(monkeypatch)

    async def work(desk: Desk) -> None:
        loop = desk.loop_thread
        for _ in range(WINDOW):
            await alone(desk)
        await desk.settle()
        disk.ran.clear()
        await alone(desk)
        disk.takes_s = 2 * TURN_S
        for _ in range(10):
            await alone(desk)
        disk.takes_s = 0.0
        for _ in range(WINDOW):
            await alone(desk)
        await alone(desk)
        of_loop = [thread == loop for thread in disk.ran]
        # A quick one, the first slow one, and again when as many as the window were quick; each
        # send has one sync, none has a second one behind it.
        assert of_loop == [True, True, *[False] * (9 + WINDOW), True]

    with_desk(work)


def test_a_disk_that_is_often_a_little_slow_is_synced_in_the_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = SlowDisk(monkeypatch)

    async def work(desk: Desk) -> None:
        for _ in range(WINDOW):
            await alone(desk)
        await desk.settle()
        disk.ran.clear()
        disk.takes_s = 2 * QUICK_S
        for _ in range(20):
            await alone(desk)
        # What holds the loop up, all in all: as many as may be slow among the last ones, and one.
        assert disk.ran.count(desk.loop_thread) == WINDOW // 10 + 1
        assert disk.ran[WINDOW // 10 + 1 :].count(desk.loop_thread) == 0

    with_desk(work)


def test_the_loop_goes_on_while_a_sync_hangs_in_the_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = SlowDisk(monkeypatch)

    async def work(desk: Desk) -> None:
        await desk.sent()
        await desk.settle()
        disk.ran.clear()
        disk.hangs = threading.Event()
        answered, turns = desk.answered, desk.core.turns
        desk.send()
        await until(lambda: bool(disk.ran))
        desk.send()
        for _ in range(3):
            desk.core.touch()
            await until(lambda: desk.core._turn is None)
        assert desk.core.turns >= turns + 3
        assert desk.answered == answered
        desk.core.hold(desk, b"0", 0, Rests.WRITTEN, 0)
        desk.core.touch()
        await until(lambda: desk.answered == answered + 1)  # what waits for no sync
        assert len(disk.ran) == 1
        disk.hangs.set()
        await until(lambda: desk.answered == answered + 3)
        assert desk.loop_thread not in disk.ran

    with_desk(work)
