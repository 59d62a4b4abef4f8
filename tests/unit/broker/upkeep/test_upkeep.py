"""Upkeep, retention and MOVED: the journal shrinks, and nobody who is owed a message notices."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest

from ternmq.broker.group.history import failure_entries
from ternmq.broker.metrics import metrics
from ternmq.broker.query.messages import Queries
from ternmq.broker.start import Options, Started, open_broker
from ternmq.broker.upkeep.expiring import Expiring
from ternmq.broker.upkeep.owedcopies import BYTES_A_STEP, OwedCopies
from ternmq.broker.upkeep.pinned import pinned, sentence
from ternmq.journal.log.retention import Pin, RetentionSpec
from ternmq.model.errors import (
    DiskFull,
    DiskReadError,
    JournalFull,
    MessageNotFound,
    OffsetExpired,
)
from ternmq.model.specs import Limits, Start
from ternmq.model.types import Position
from ternmq.record.batch.batch import Row
from ternmq.record.fact.facts import Cause, Outcome
from tests.unit.broker.kit import SECOND, START_US, World, attempts, difference, offsets, portrait

SEGMENT = 16 << 10
LIMITS = Limits(dedup_window_us=2 * SECOND, send_timeout_us=SECOND // 2)


class Kept(World):
    """A world whose broker looks after itself: tiny segments, a STATE set every half segment."""

    started: Started

    def __init__(self, retention: RetentionSpec, **more: Any) -> None:
        self.retention = retention
        self.more = more
        super().__init__(LIMITS, segment_bytes=SEGMENT)

    def _open(self, wall_us: int) -> None:
        self.options = Options(
            limits=LIMITS,
            segment_bytes=SEGMENT,
            reserve_bytes=SEGMENT,
            state_bytes=SEGMENT // 2,
            chunk_bytes=1024,
            retention=self.retention,
            look_every_us=1000,
            **self.more,
        )
        self.started = open_broker(
            self.disk, wall_us=wall_us, chance=random.Random(7), options=self.options
        )
        self.broker, self.report = self.started.broker, self.started.report

    def turn(self, us: int = 10_000) -> None:
        """End a turn: time passes, upkeep works, everything is written and synced, jobs run."""
        self.pass_time(us)
        upkeep = self.started.upkeep
        upkeep.step(self.now, lambda: True)
        self.commit()
        for _ in range(1000):
            job = upkeep.next_job()
            if job is None:
                return
            job.run()
            upkeep.finished(job, None)
        raise AssertionError("upkeep never runs out of jobs")

    def grow(self, topic: str, until: int, *, session: int | None = None, group: str = "") -> None:
        """Send (and, with a session, consume) until so many segments were removed."""
        moving = self.started.upkeep.moving
        goal = moving.removed_segments + until
        for _ in range(3000):
            self.send(topic, 5)
            self.turn()
            if session is not None:
                self.drain(session, topic, group)
            if moving.removed_segments >= goal:
                return
        raise AssertionError("no segment goes")


def pressed() -> Kept:
    return Kept(RetentionSpec(max_bytes=4 * SEGMENT))


def test_without_pressure_and_within_its_time_nothing_goes() -> None:
    world = Kept(RetentionSpec())
    world.topic("t")
    for _ in range(600):
        world.send("t", 5)
        world.turn()
    assert world.broker.journal.first == 0
    assert world.broker.journal.end > 6 * SEGMENT
    assert world.started.upkeep.moving.removed_segments == 0


def test_what_is_older_than_its_topic_keeps_it_goes() -> None:
    world = Kept(RetentionSpec())
    world.topic("t", retention_us=20 * SECOND)
    world.grow("t", 2)
    queue = world.broker.views.catalog.topic("t").queues[0]
    assert 0 < queue.first < queue.next
    oldest = Queries(world.broker.ledger).by_offset("t", 0, queue.first)
    # A segment goes as a whole: what is kept may be older than asked for, by less than a segment.
    assert world.now - oldest.time_us < 40 * SECOND
    with pytest.raises(OffsetExpired, match=str(queue.first)):
        Queries(world.broker.ledger).read("t", 0, queue.first - 1, 10, 1 << 20)
    with pytest.raises(MessageNotFound):
        Queries(world.broker.ledger).by_offset("t", 0, queue.first - 1)


def test_what_is_still_to_be_sent_to_a_follower_stays() -> None:
    world = Kept(RetentionSpec())
    world.topic("t", retention_us=20 * SECOND)
    world.broker.ledger.copies.unsent = Position(SEGMENT + 1), "b"
    for _ in range(600):
        world.send("t", 5)
        world.turn(SECOND // 10)
    kept = pinned(world.broker.ledger, world.started.upkeep.moving)
    assert (kept.by, kept.name) == (Pin.FOLLOWER, "b")
    assert sentence(kept) == "it is still to be sent to follower b"
    assert world.broker.journal.first == SEGMENT
    world.broker.ledger.copies.unsent = None  # it is gone, or has all
    assert pinned(world.broker.ledger, world.started.upkeep.moving).by is not Pin.FOLLOWER
    world.grow("t", 1)


def test_under_pressure_no_segment_stays_for_a_follower() -> None:
    world = pressed()
    world.topic("t")
    world.broker.ledger.copies.unsent = Position(0), "b"
    world.grow("t", 1)


def test_a_group_that_lags_keeps_its_messages_and_sends_are_refused_under_pressure() -> None:
    world = pressed()
    world.topic("t")
    world.group("t", "slow")
    session = world.join()
    refused = False
    for _ in range(2000):
        try:
            world.send("t", 5)
        except DiskFull:
            refused = True
            break
        world.turn()
    assert refused
    assert world.broker.journal.first == 0
    sent = world.broker.views.catalog.topic("t").queues[0].next
    assert world.drain(session, "t", "slow") == list(range(sent))
    for _ in range(3000):
        world.turn(100_000)
        if world.started.upkeep.moving.removed_segments:
            break
    # STATE alone does not grow the journal, so it may stay above its limit; a lagging group is what
    # blocked the sends, and it no longer does.
    assert not world.broker.ledger.room.blocked
    world.send("t", 1)


def test_unread_messages_go_where_the_topic_says_so_and_are_counted_and_skipped() -> None:
    world = pressed()
    world.topic("t", keep_until_consumed=False)
    world.group("t", "slow")
    session = world.join()
    world.grow("t", 2)
    first = world.broker.views.catalog.topic("t").queues[0].first
    assert first > 0
    assert world.broker.views.expired_rows == first
    pulled = world.pull(session, "t", "slow", 4)
    assert offsets(pulled) == [first, first + 1, first + 2, first + 3]


def test_rows_that_are_owed_survive_their_segment_with_all_that_is_known_of_them() -> None:
    world = pressed()
    world.topic("t")
    world.group("t", "g")
    session = world.join()
    world.send("t", 6)
    pulled = world.pull(session, "t", "g", 6)
    assert pulled is not None
    world.settle(session, "t", "g", pulled, Outcome.DEAD, [(0, 1)], reason="poison")
    for _ in range(2):
        world.settle(session, "t", "g", pulled, Outcome.RETRY, [(1, 2)], reason="not now")
        world.commit()
        world.pass_time(400 * SECOND)
        pulled = world.pull(session, "t", "g", 1)
        assert pulled is not None
        assert offsets(pulled) == [1]
        if attempts(pulled)[1] == (3, 3):
            break
    world.settle(
        session,
        "t",
        "g",
        pulled,
        Outcome.RETRY,
        [(1, 2)],
        reason="later",
        delay_us=31_536_000 * SECOND,
    )
    world.commit()
    world.drain(session, "t", "g")
    world.grow("t", 8, session=session, group="g")
    for _ in range(2):  # the second time after a restart
        progress = world.progress("t", "g")
        assert world.broker.views.catalog.topic("t").queues[0].first > 6
        queries = Queries(world.broker.ledger)
        dead = queries.dead_letters("t", "g", 0).rows
        assert [(one.offset, one.attempts) for one in dead] == [(0, 1)]
        assert [(e.reason, e.cause) for e in dead[0].failures] == [(b"poison", Cause.REJECTED)]
        waiting = queries.waiting("t", "g", 0).rows
        assert [(one.offset, one.attempts, one.deliveries) for one in waiting] == [(1, 3, 3)]
        assert [e.reason for e in waiting[0].failures] == [b"not now", b"not now", b"later"]
        times = [e.time_us for e in waiting[0].failures]
        assert times == sorted(times)
        assert times[0] < times[-1]
        row = progress.failures.dead_letter(0)
        assert failure_entries(
            world.broker.store, progress, 0, row.position, world.broker.journal.first
        ) == list(dead[0].failures)
        world.restart()
        session = world.join()
    world.run(lambda: world.broker.operating.retry_now(world.now, "t", "g", 0, [1]))
    world.commit()
    pulled = world.pull(session, "t", "g")  # the kit compares the body with what was sent
    assert pulled is not None
    assert attempts(pulled)[1] == (4, 4)


def test_a_row_in_hand_survives_its_segment_where_unread_messages_may_go() -> None:
    world = pressed()
    world.topic("t", keep_until_consumed=False)
    world.group("t", "g", lease_us=24 * 3600 * SECOND)
    session = world.join()
    world.send("t", 3)
    pulled = world.pull(session, "t", "g", 3)
    assert pulled is not None
    world.grow("t", 3)
    world.settle(session, "t", "g", pulled, Outcome.RELEASED)
    world.commit()
    again = world.pull(session, "t", "g", 6)  # half of it at most, while there is new
    assert offsets(again)[:3] == [0, 1, 2]


def test_the_state_after_retention_is_the_state_after_a_restart() -> None:
    world = pressed()
    world.topic("t")
    world.topic("k", ordered=True)
    world.group("t", "g")
    world.group("k", "o")
    session = world.join()
    chance = random.Random(5)
    for step in range(400):
        world.send("t", 3)
        world.send("k", "".join(chance.choices("abcde", k=3)))
        for topic, group in (("t", "g"), ("k", "o")):
            pulled = world.pull(session, topic, group, 8)
            if pulled is None:
                continue
            outcome = chance.choice(
                [Outcome.DONE, Outcome.DONE, Outcome.RETRY, Outcome.DEAD, Outcome.RELEASED]
            )
            world.settle(session, topic, group, pulled, outcome, reason=f"step {step}")
        world.turn(chance.choice([1000, 50_000, 2 * SECOND]))
        if step % 50 == 49:
            before = portrait(world.broker.views)
            world.restart()
            assert difference(before, portrait(world.broker.views)) == []
            session = world.join()
    assert world.broker.journal.first > 0


def test_run_files_are_cut_with_each_set_and_one_stands_for_each_sealed_segment() -> None:
    world = Kept(RetentionSpec())
    world.topic("t")
    for _ in range(500):
        world.send("t", 5)
        world.turn()
    sealed = int(world.broker.journal.end - 1) // SEGMENT
    names = world.disk.names("index")
    assert [f"{number * SEGMENT:020d}.idx" for number in range(sealed)] == [
        name for name in names if name.endswith(".idx")
    ]
    parts = [name for name in names if name.endswith(".part")]
    assert all(int(name[:20]) >= sealed * SEGMENT for name in parts)
    assert world.broker.writer.sets_written >= 2 * sealed - 2


def test_the_next_start_begins_at_the_newest_set() -> None:
    world = Kept(RetentionSpec())
    world.topic("t")
    for _ in range(300):
        world.send("t", 5)
        world.turn()
    world.restart()
    newest = world.report.loaded_set
    assert newest is not None
    assert world.report.start == newest.begin
    assert world.report.record_count < 200


def test_objects_that_do_not_change_are_written_again_when_in_the_older_half(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = Kept(RetentionSpec())
    for name in ("t", "idle"):
        world.topic(name)
    world.group("idle", "g")
    journal, writer = world.broker.journal, world.broker.writer
    named: list[tuple[int, int]] = []  # at which end of the journal, and the oldest position named
    for _ in range(1500):
        sets = writer.sets_written
        world.send("t", 5)
        world.turn()
        if writer.sets_written > sets:
            named.append((writer.complete[-1].begin, writer.complete[-1].oldest))
    assert journal.first == 0
    assert journal.end > 20 * SEGMENT
    slack = 2 * SEGMENT
    assert all(oldest > end // 2 - slack or oldest > end - 3 * SEGMENT for end, oldest in named)
    assert any(end - oldest > 8 * SEGMENT for end, oldest in named)
    assert len({oldest for _, oldest in named}) < 12  # of more than 40 sets
    monkeypatch.setattr("ternmq.broker.upkeep.upkeep.REFRESH_SEGMENTS", 3)
    for _ in range(200):
        world.send("t", 5)
        world.turn()
    # Runs of deduplication are written once; those of its two seconds take four segments here.
    assert writer.complete[-1].oldest > writer.complete[-1].begin - 5 * SEGMENT


def test_a_quiet_journal_says_that_all_is_durable() -> None:
    world = Kept(RetentionSpec())
    world.topic("t")
    world.send("t", 1)
    world.turn()
    end = world.broker.journal.end
    world.turn(SECOND)
    world.turn(SECOND)
    marked = world.broker.journal.end
    assert marked > end
    for _ in range(5):
        world.turn(SECOND)
    assert world.broker.journal.end == marked  # once is enough
    world.restart()
    assert world.report.durable >= end


def test_a_job_that_fails_is_not_the_end() -> None:
    world = Kept(RetentionSpec())
    world.topic("t")
    upkeep = world.started.upkeep
    failed = 0
    for _ in range(400):
        world.send("t", 5)
        world.pass_time(10_000)
        upkeep.step(world.now, lambda: True)
        world.commit()
        while (job := upkeep.next_job()) is not None:
            if type(job).__name__ == "RunJob" and failed < 3:
                failed += 1
                upkeep.finished(job, DiskReadError("planted"))
                continue
            job.run()
            upkeep.finished(job, None)
    assert failed == 3
    world.restart()
    assert Queries(world.broker.ledger).by_id(1, 0).offset == 0


def test_every_metric_has_a_name_of_its_own_and_counts() -> None:
    world = pressed()
    world.topic("t")
    world.group("t", "g")
    session = world.join()
    world.send("t", 9)
    pulled = world.pull(session, "t", "g", 4)
    assert pulled is not None
    world.settle(session, "t", "g", pulled, Outcome.RETRY, [(0, 1)])
    world.settle(session, "t", "g", pulled, Outcome.DEAD, [(1, 2)])
    world.park(session, "t", "g")
    listed = metrics(world.broker, world.started.upkeep)
    values = {one.name: one.value for one in listed}
    assert len(values) == len(listed)
    assert all(one.text and one.kind in {"gauge", "counter"} for one in listed)
    wanted = {
        "topics": 1,
        "group_queues": 1,
        "sessions": 1,
        "producers": 1,
        "dedup_batches": 1,
        "leased_rows": 2,
        "waiting_rows": 1,
        "dead_rows": 1,
        "most_failures": 2,
        "waiters": 1,
        "records": world.broker.journal.appended,
    }
    assert {name: values[name] for name in wanted} == wanted


def test_status_and_preview() -> None:
    world = pressed()
    world.topic("t")
    world.group("t", "g")
    session = world.join()
    world.send("t", 10)
    world.send("t", 2, commit=False)
    pulled = world.pull(session, "t", "g", 6)
    assert pulled is not None
    world.settle(session, "t", "g", pulled, Outcome.DONE, [(0, 2), (4, 5)])
    queries = Queries(world.broker.ledger)
    status = queries.status("t", "g", 0)
    assert (status.cursor, status.floor, status.end, status.lag) == (6, 2, 10, 4)
    assert (status.leased, status.ready, status.waiting, status.dead) == (3, 0, 0, 0)
    preview = queries.preview_reset("t", "g", 0, 3)
    assert (preview.unread, preview.forgotten) == (9, 3)
    world.run(lambda: world.broker.operating.reset(world.now, "t", "g", 0, 3))
    world.commit()
    assert queries.status("t", "g", 0).cursor == 3
    assert world.drain(session, "t", "g") == list(range(3, 12))
    assert queries.status("t", "g", 0).intervals == 1


def test_readers_see_what_is_durable_and_no_more() -> None:
    world = pressed()
    world.topic("t")
    world.send("t", 5)
    world.send("t", 5, commit=False)
    queries = Queries(world.broker.ledger)
    read = queries.read("t", 0, 0, 100, 1 << 20)
    assert (read.start, read.stop) == (0, 5)
    assert queries.read("t", 0, 5, 100, 1 << 20).stop == 5
    with pytest.raises(MessageNotFound):
        queries.by_offset("t", 0, 5)
    with pytest.raises(MessageNotFound):
        queries.by_id(1, 5)
    world.commit()
    assert queries.by_id(1, 5).offset == 5
    assert queries.offset_at("t", 0, START_US) == 0
    assert queries.offset_at("t", 0, world.now + 1) == 10


def owed(rows: int) -> tuple[Kept, int, list[tuple[int, ...]]]:
    """A world in which a group is owed every tenth of so many rows for a year.

    Returns:
        The world, the group's session, and the offsets whose copies are sought from now on.
    """
    world = Kept(RetentionSpec(max_bytes=12 * SEGMENT))
    world.topic("t")
    world.group("t", "g", window=4096)
    session = world.join()
    for _ in range(rows // 50):
        world.send("t", 50)
        pulled = world.pull(session, "t", "g", 50)
        assert pulled is not None
        start, stop = offsets(pulled)[0], offsets(pulled)[-1] + 1
        world.settle(
            session,
            "t",
            "g",
            pulled,
            Outcome.RETRY,
            [(start, start + 5)],
            reason="later",
            delay_us=31_536_000 * SECOND,
        )
        world.settle(session, "t", "g", pulled, Outcome.DONE, [(start + 5, stop)])
        world.turn()
    sought: list[tuple[int, ...]] = []
    index = world.broker.index
    newest_copies = index.newest_copies

    def counted(topic: int, queue: int, offsets: Sequence[int]) -> dict[int, Position]:
        if offsets:
            sought.append(tuple(offsets))
        return newest_copies(topic, queue, offsets)

    index.newest_copies = counted  # type: ignore[method-assign]
    return world, session, sought


def test_what_was_found_of_copies_is_not_looked_up_for_every_segment_again() -> None:
    world, session, sought = owed(3000)
    moving = world.started.upkeep.moving
    world.grow("t", 16, session=session, group="g")
    assert world.broker.views.catalog.topic("t").queues[0].first > 3000  # only copies are left
    sought.clear()
    moved = moving.owed_copies.copied_rows
    segments = 36
    for _ in range(segments):
        world.grow("t", 1, session=session, group="g")
    old = [offset for offsets in sought for offset in offsets if offset < 2048]
    rows = 205  # that are owed below 2,048
    assert moving.owed_copies.copied_rows - moved >= 2 * rows
    # Each is looked up when its copy is made, and when a neighbour's is, not for every segment.
    assert len(old) < segments * rows / 4
    for offset in (0, 4, 1000, 1052, 2954):
        assert world.progress("t", "g").failures.failure(offset) is not None
    world.run(lambda: world.broker.operating.retry_now(world.now, "t", "g", 0, [0, 1052, 2954]))
    world.commit()
    pulled = world.pull(session, "t", "g", 8)  # the kit compares the bodies with what was sent
    assert {0, 1052, 2954} <= set(offsets(pulled))


def test_rows_that_are_wanted_again_are_looked_up_again() -> None:
    world, session, sought = owed(2100)
    world.grow("t", 16, session=session, group="g")
    world.grow("t", 1, session=session, group="g")
    sought.clear()
    first = world.broker.views.catalog.topic("t").queues[0].first
    assert first > 2048
    world.group("t", "other")  # a rewind, as far as retention is concerned
    other = world.join()
    world.drain(other, "t", "other")
    world.grow("t", 1, session=session, group="g")
    assert {offset >> 10 for offsets in sought for offset in offsets} >= {0, 1}


def test_a_step_looks_at_one_shard_when_its_time_is_over() -> None:
    world, session, sought = owed(6000)
    world.grow("t", 16, session=session, group="g")
    world.group("t", "other", start=Start.LATEST)  # so all of it is looked up again
    upkeep = world.started.upkeep
    looks: list[int] = []
    goal = upkeep.moving.removed_segments + 2
    for _ in range(1000):
        world.send("t", 5)
        world.pass_time(10_000)
        sought.clear()
        upkeep.step(world.now, lambda: not sought)
        looks.append(len(sought))
        world.commit()
        while (job := upkeep.next_job()) is not None:
            job.run()
            upkeep.finished(job, None)
        for group in ("g", "other"):
            world.drain(session, "t", group)
        if upkeep.moving.removed_segments >= goal:
            break
    assert upkeep.moving.removed_segments >= goal
    assert sum(looks) >= 5
    assert max(looks) == 1


class _Vanished(Exception):
    """The process has ended here."""


class Failing(Kept):
    """One message fails in several groups; the others are done. It may vanish in a turn."""

    def __init__(self, groups: int, body: bytes = b"x") -> None:
        super().__init__(RetentionSpec(max_bytes=4 * SEGMENT))
        self.topic("t")
        self.names = [f"g{number}" for number in range(groups)]
        for name in self.names:
            self.group("t", name)
        self.session = self.join()
        self.removing = False
        self.send("t", [Row(body)])

    def turn(self, us: int = 10_000) -> None:
        try:
            super().turn(us)
        except _Vanished:
            self.restart()
            self.session = self.join()

    def fail(self, reason: str) -> None:
        for name in self.names:
            if self.progress("t", name).failures.failure(0) is not None:
                retry = self.broker.operating.retry_now
                self.run(partial(retry, self.now, "t", name, 0, [0]))
            pulled = self.pull(self.session, "t", name, 1)
            assert pulled is not None
            assert offsets(pulled) == [0]
            later = 1_000_000 * SECOND
            self.settle(
                self.session, "t", name, pulled, Outcome.RETRY, reason=reason, delay_us=later
            )
            self.turn()

    def go_on(self, done: Callable[[], bool]) -> None:
        for _ in range(3000):
            if done():
                return
            self.send("t", [Row(bytes(SEGMENT // 25))] * 2)
            self.turn()
            for name in self.names:
                self.drain(self.session, "t", name)
        raise AssertionError("no segment goes")

    def remove(self) -> None:
        """Let everything go that is there now, the copies made on the way for once as well."""
        goal = self.broker.journal.end + 2 * SEGMENT
        self.removing = True
        self.go_on(lambda: self.broker.journal.first >= goal)
        self.removing = False

    def check(self, reasons: Sequence[str]) -> None:
        for name in self.names:
            (row,) = Queries(self.broker.ledger).waiting("t", name, 0).rows
            assert [one.reason.decode() for one in row.failures if one.reason] == reasons


@pytest.mark.parametrize(
    ("groups", "size", "crash_at"),
    [(2, 10, at) for at in range(3)] + [(4, 3500, at) for at in range(6)],
)
def test_every_group_keeps_all_reasons_when_the_content_goes_on(
    groups: int, size: int, crash_at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With as much as fits one record, and with more; and it vanishes behind one of the records.

    Not between two failures: a row that fails anew after its copy was lost in part is not told of
    again (see ``OwedCopies._write``).
    """
    append = OwedCopies._append
    count = 0

    def append_and_vanish(copies: OwedCopies, *more: Any) -> None:
        nonlocal count
        append(copies, *more)
        if not world.removing:
            return
        count += 1
        if count == crash_at:
            raise _Vanished

    monkeypatch.setattr(OwedCopies, "_append", append_and_vanish)
    world = Failing(groups)
    reasons = [f"{number} {'x' * size}" for number in range(3)]
    world.fail(reasons[0])
    world.go_on(lambda: world.broker.journal.end >= SEGMENT)
    world.fail(reasons[1])  # told of behind the first segment
    world.remove()
    world.check(reasons[:2])
    world.fail(reasons[2])
    world.remove()
    world.check(reasons)
    world.restart()
    world.check(reasons)
    assert count >= crash_at


def test_a_message_larger_than_a_step_keeps_its_reasons(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between its content and what is told of it no segment ends: they are one record."""
    append, written = OwedCopies._append, list[tuple[int, int]]()

    def append_and_note(
        copies: OwedCopies, now: int, progress: Any, pieces: Any, failures: Any
    ) -> None:
        append(copies, now, progress, pieces, failures)
        written.append((len(pieces), len(failures)))

    monkeypatch.setattr(OwedCopies, "_append", append_and_note)
    monkeypatch.setattr("tests.unit.broker.upkeep.test_upkeep.SEGMENT", 1 << 20)
    world = Failing(2, random.Random(3).randbytes(BYTES_A_STEP + 1000))
    for number in range(3):
        world.fail(f"reason {number}")
        world.remove()
        world.check([f"reason {one}" for one in range(number + 1)])
    assert len(written) >= 3
    assert set(written) == {(1, 2)}


def test_a_sweep_that_finds_no_room_does_not_stop_retention(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else nothing would be removed, and there would never be room."""
    world = Kept(RetentionSpec())
    world.topic("t")
    calls = {"sweep": 0, "retain": 0}
    upkeep = world.started.upkeep

    def full(*_: object) -> None:
        calls["sweep"] += 1
        raise JournalFull("planted")

    def retain(*_: object) -> None:
        calls["retain"] += 1

    monkeypatch.setattr(Expiring, "step", full)
    monkeypatch.setattr(upkeep, "_retain", retain)
    for _ in range(3):
        upkeep.step(world.now, lambda: True)
    assert calls == {"sweep": 1, "retain": 3}, "and it is not tried again at once"
    assert upkeep.stalls == 1
    assert not upkeep.goes_on
    world.pass_time(SECOND)
    upkeep.step(world.now, lambda: True)
    assert calls["sweep"] == 2
