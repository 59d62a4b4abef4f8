"""Replay and redrive: rows that were behind a group come to it again, as a new round."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pytest

from ternmq.broker.delivery import replays
from ternmq.broker.delivery.replays import ReplayPlan
from ternmq.broker.gate.replies import PullReply
from ternmq.broker.group.history import failure_entries
from ternmq.broker.group.owed import owed_row
from ternmq.broker.operation import groups
from ternmq.journal.disk.memory import MemoryDisk
from ternmq.journal.log.retention import RetentionSpec
from ternmq.model.errors import (
    InvalidRequest,
    LeaseExpired,
    ReplayTooLarge,
    UnknownGroup,
    UnknownQueue,
)
from ternmq.model.specs import Limits, RetryPolicy
from ternmq.record.batch.batch import Row
from ternmq.record.fact.facts import Outcome, Span
from tests.unit.broker.kit import (
    SECOND,
    World,
    attempts,
    check,
    explore,
    lines_of,
    offsets,
    same_after_restart,
    waiting,
)
from tests.unit.broker.test_moved import Large


def start(world: World, *, ordered: bool = False, **settings: object) -> int:
    world.topic("t", ordered=ordered)
    world.group("t", "g", **settings)
    return world.join()


def pull(world: World, session: int, rows: int = 32) -> PullReply:
    pulled = world.pull(session, "t", "g", rows)
    assert pulled is not None
    return pulled


def replay(world: World, *spans: Span, dry_run: bool = False, queue: int = 0) -> ReplayPlan:
    """Ask for a replay of one queue and return what was answered."""
    reply = world.run(
        lambda: world.broker.operating.replay(
            world.now, 0, "t", "g", {queue: spans}, dry_run=dry_run
        )
    )
    assert isinstance(reply.value, list)
    (plan,) = reply.value
    assert isinstance(plan, ReplayPlan)
    world.commit()
    return plan


def redrive(world: World, named: Sequence[int], *, dry_run: bool = False) -> ReplayPlan:
    reply = world.run(
        lambda: world.broker.operating.redrive(world.now, 0, "t", "g", 0, named, dry_run=dry_run)
    )
    assert isinstance(reply.value, ReplayPlan)
    world.commit()
    return reply.value


def history(world: World, offset: int) -> list[bytes]:
    """Return the reasons that are known of an owed row."""
    progress = world.progress("t", "g")
    row = owed_row(progress, offset)
    assert row is not None
    store = world.broker.store
    entries = waiting(lambda: failure_entries(store, progress, offset, row.position, 0))
    return [entry.reason for entry in entries]


def test_rows_that_were_done_come_again_once_and_the_others_do_not() -> None:
    def scenario(world: World) -> None:
        session = start(world)
        world.send("t", 12)
        assert world.drain(session, "t", "g") == list(range(12))
        plan = replay(world, (3, 5), (8, 9))
        assert (plan.rows, plan.unread, plan.expired) == (3, 0, 0)
        again = pull(world, session)
        assert attempts(again) == {3: (1, 2), 4: (1, 2), 8: (1, 2)}
        world.settle(session, "t", "g", again)
        world.pass_time(60 * SECOND)
        assert world.pull(session, "t", "g") is None
        assert world.progress("t", "g").round == 1

    explore(scenario)


def test_what_was_leased_ready_waiting_or_dead_begins_a_new_round() -> None:
    def scenario(world: World) -> None:
        session = start(world)
        world.send("t", 10)
        pulled = pull(world, session, 8)
        world.settle(session, "t", "g", pulled, Outcome.DEAD, [(0, 1)], reason="never")
        world.settle(session, "t", "g", pulled, Outcome.RETRY, [(1, 2)], reason="not yet")
        world.settle(session, "t", "g", pulled, Outcome.RELEASED, [(2, 3)])
        world.settle(session, "t", "g", pulled, spans=[(3, 4)])
        plan = replay(world, (0, 6))
        assert (plan.rows, plan.unread) == (6, 0)
        progress = world.progress("t", "g")
        assert (
            progress.leased_rows,
            progress.failures.waiting_rows,
            progress.failures.dead_rows,
        ) == (2, 0, 0)
        with pytest.raises(LeaseExpired):
            world.settle(session, "t", "g", pulled, spans=[(4, 6)])
        taken = world.settle(session, "t", "g", pulled, spans=[(5, 8)])
        assert (taken.settled, taken.refused) == ([(6, 8, 1, 1)], [(5, 6)])
        again = pull(world, session)
        assert attempts(again) == {
            0: (1, 2), 1: (1, 2), 2: (1, 2), 3: (1, 2), 4: (1, 2), 5: (1, 2), 8: (1, 1), 9: (1, 1),
        }  # fmt: skip
        world.settle(session, "t", "g", again)
        world.pass_time(60 * SECOND)
        assert world.pull(session, "t", "g") is None

    explore(scenario)


def test_attempts_count_from_one_and_failures_of_the_round_before_stay_known() -> None:
    def scenario(world: World) -> None:
        session = start(world, retry=RetryPolicy(first_us=SECOND, jitter=0.0, attempts=2))
        world.send("t", 1)
        for reason in ("first", "second"):
            world.settle(session, "t", "g", pull(world, session), Outcome.RETRY, reason=reason)
            world.pass_time(10 * SECOND)
        assert world.progress("t", "g").failures.dead_rows == 1
        plan = redrive(world, [0, 5])
        assert (plan.rows, plan.refused) == (1, [5])
        assert history(world, 0) == [b"first", b"second"]
        again = pull(world, session)
        assert attempts(again) == {0: (1, 3)}
        world.settle(session, "t", "g", again, Outcome.RETRY, reason="third")
        assert world.progress("t", "g").failures.waiting_rows == 1
        world.pass_time(10 * SECOND)
        world.settle(session, "t", "g", pull(world, session), Outcome.RETRY, reason="fourth")
        assert world.progress("t", "g").failures.dead_rows == 1
        assert history(world, 0) == [b"first", b"second", b"third", b"fourth"]
        redrive(world, [0])
        assert world.drain(session, "t", "g") == [0]
        assert world.progress("t", "g").failures.history == {}

    explore(scenario)


def test_unread_rows_are_not_touched_and_said_so() -> None:
    def scenario(world: World) -> None:
        session = start(world)
        world.send("t", 10)
        world.settle(session, "t", "g", pull(world, session, 4))
        plan = replay(world, (2, 30))
        assert (plan.rows, plan.unread) == (2, 6)
        assert sorted(world.drain(session, "t", "g")) == list(range(2, 10))
        assert replay(world, (10, 12)).unread == 0

    explore(scenario)


def test_a_dry_run_tells_the_same_and_changes_nothing() -> None:
    world = World()
    session = start(world)
    world.send("t", 10)
    pulled = pull(world, session, 6)
    world.settle(session, "t", "g", pulled, Outcome.DEAD, [(1, 2)], reason="no")
    end = world.broker.journal.end
    dry = replay(world, (0, 8), dry_run=True)
    assert redrive(world, [0, 1], dry_run=True).refused == [0]
    assert world.broker.journal.end == end
    wet = replay(world, (0, 8))
    assert (dry.rows, dry.unread, dry.runs) == (wet.rows, wet.unread, wet.runs) == (
        6, 2, [(0, 6, 1, 1)],
    )  # fmt: skip
    assert world.broker.journal.end > end


def test_nothing_to_do_writes_nothing() -> None:
    world = World()
    start(world)
    world.send("t", 3)
    end = world.broker.journal.end
    assert replay(world, (0, 3)).rows == 0
    assert redrive(world, [1]).refused == [1]
    assert world.broker.journal.end == end


def test_a_filter_judges_what_it_passed_over_not_what_failed() -> None:
    def scenario(world: World) -> None:
        session = start(world, tags="a")
        world.send("t", [Row(body=b"%d" % at, tag="ab"[at % 2]) for at in range(8)])
        pulled = pull(world, session)
        assert offsets(pulled) == [0, 2, 4, 6]
        world.settle(session, "t", "g", pulled, Outcome.DEAD, [(4, 5)], reason="no")
        world.settle(session, "t", "g", pulled, spans=[(0, 1), (2, 3), (6, 7)])
        world.change("t", "g", tags="b")
        plan = replay(world, (0, 8))
        assert (plan.rows, plan.filtered) == (5, 3)
        assert sorted(world.drain(session, "t", "g")) == [1, 3, 4, 5, 7]

    explore(scenario)


def test_in_an_ordered_group_a_key_s_rows_come_in_order_before_its_new_ones() -> None:
    def scenario(world: World) -> None:
        session = start(world, ordered=True)
        world.send("t", "abab")
        assert world.drain(session, "t", "g") == [0, 1, 2, 3]
        world.send("t", "abc")
        assert replay(world, (0, 4)).rows == 4
        first = pull(world, session, 3)
        assert offsets(first) == [0, 1, 2]
        assert world.pull(session, "t", "g", 3) is not None  # c, parked behind none
        world.settle(session, "t", "g", first)
        rest = world.drain(session, "t", "g")
        assert [one for one in rest if one in (3, 5)] == [3, 5]
        assert 4 in rest

    explore(scenario)


def test_whoever_holds_later_rows_of_a_replayed_key_gives_them_back() -> None:
    def scenario(world: World) -> None:
        session = start(world, ordered=True)
        world.send("t", "abaca")
        first = pull(world, session, 2)
        world.settle(session, "t", "g", first)
        held_now = pull(world, session)
        assert offsets(held_now) == [2, 3, 4]
        replay(world, (0, 1))
        lines = lines_of(world.progress("t", "g"))
        assert lines is not None
        taken = world.settle(session, "t", "g", held_now, spans=[(2, 3), (3, 4), (4, 5)])
        assert taken.settled == [(3, 4, 1, 1)]
        again = pull(world, session, 1)
        assert offsets(again) == [0]
        world.settle(session, "t", "g", again)
        later = pull(world, session)
        assert attempts(later) == {2: (1, 2), 4: (1, 2)}
        world.settle(session, "t", "g", later)
        assert world.pull(session, "t", "g") is None

    explore(scenario)


def test_a_dead_letter_of_an_ordered_group_goes_back_into_its_line() -> None:
    def scenario(world: World) -> None:
        session = start(world, ordered=True)
        world.send("t", "aaa")
        world.settle(
            session, "t", "g", pull(world, session, 1), Outcome.DEAD, [(0, 1)], reason="no"
        )
        behind = pull(world, session, 1)
        assert offsets(behind) == [1]
        assert redrive(world, [0]).rows == 1
        with pytest.raises(LeaseExpired):
            world.settle(session, "t", "g", behind)
        assert world.drain(session, "t", "g", 1) == [0, 1, 2]

    explore(scenario)


def test_rows_that_retention_took_are_told_as_expired() -> None:
    world = World(segment_bytes=1 << 16)
    session = start(world)
    world.send("t", [Row(body=bytes(30_000))])
    pulled = pull(world, session)
    world.settle(session, "t", "g", pulled, Outcome.DEAD, reason="no")
    for _ in range(6):
        world.send("t", [Row(body=bytes(30_000))])
        world.settle(session, "t", "g", pull(world, session))
    world.commit()
    queue = world.broker.views.catalog.topic("t").queues[0]
    queue.known_first = 3  # as if its segments had gone
    plan = replay(world, (1, 5))
    assert (plan.rows, plan.expired, plan.runs) == (2, 2, [(3, 5, 1, 0)])
    assert replay(world, (0, 3), dry_run=True).runs == [(0, 1, 1, 1)]  # owed: kept
    assert replay(world, (0, 3), dry_run=True).expired == 2


@pytest.mark.parametrize("ordered", [False, True])
def test_dead_letters_outlive_their_segment_and_come_back(ordered: bool) -> None:
    world = Large(RetentionSpec())
    session = start(world, ordered=ordered)
    world.send("t", "abcabc" if ordered else 6)
    world.settle(session, "t", "g", pull(world, session, 2), Outcome.DEAD, reason="no")
    while (pulled := world.pull(session, "t", "g")) is not None:
        dead = [(at, at + 1) for at in offsets(pulled) if at == 4]
        if dead:
            world.settle(session, "t", "g", pulled, Outcome.DEAD, dead, reason="no")
        if len(offsets(pulled)) > len(dead):
            world.settle(session, "t", "g", pulled)
    world.commit()
    filler = Row(body=b"y" * 50_000, ordering_key="z" if ordered else "")
    for _ in range(300):
        world.send("t", [filler])
        world.drain(session, "t", "g")
        world.turn(100_000)
        if world.broker.views.catalog.topic("t").queues[0].first > 6:
            break
    world.restart()
    session = world.join()
    dry = replay(world, (0, 6), dry_run=True)
    assert (dry.rows, dry.expired) == (3, 3)
    assert redrive(world, [0, 4]).rows == 2
    assert world.drain(session, "t", "g") == [0, 4]  # the kit compares the bodies
    assert redrive(world, [0, 1]).refused == [0]
    assert world.drain(session, "t", "g") == [1]


def test_a_million_rows_that_are_gone_are_not_looked_at_one_by_one() -> None:
    world = World()
    start(world)
    world.send("t", 1)
    queue, progress = world.broker.views.catalog.topic("t").queues[0], world.progress("t", "g")
    queue.known_first = queue.next = progress.cursor = 1 << 40
    assert replay(world, (0, 1 << 41)).expired == 1 << 40


def test_a_command_reads_a_bounded_piece_and_names_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(replays, "READ_ROWS", 5)
    world = World()
    session = start(world, ordered=True)
    world.send("t", "abcabcabcabc")
    world.drain(session, "t", "g")
    rest: Sequence[Span] = [(1, 4), (6, 12)]
    rounds = 0
    while rest:
        rest = replay(world, *rest).rest
        rounds += 1
        check(world.broker, world.now)
    assert rounds == 2
    assert world.drain(session, "t", "g") == [1, 2, 3, 6, 7, 8, 9, 10, 11]
    same_after_restart(world)


def test_of_many_queues_some_are_for_another_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "READ_ROWS", 5)
    world = World()
    world.topic("t", queues=8)
    world.group("t", "g")
    session = world.join()
    for queue in range(8):
        world.send("t", 3, queue=queue)
    assert len(world.drain(session, "t", "g")) == 24
    spans: dict[int, list[Span]] = {queue: [(1, 3)] for queue in range(8)}
    rounds = 0
    while spans:
        reply = world.run(partial(world.broker.operating.replay, world.now, 0, "t", "g", spans))
        assert isinstance(reply.value, list)
        spans = {plan.progress.queue: plan.rest for plan in reply.value if plan.rest}
        world.commit()
        rounds += 1
    assert rounds == 3
    assert sorted(world.drain(session, "t", "g")) == [1] * 8 + [2] * 8
    with pytest.raises(UnknownQueue):
        world.broker.operating.replay(
            world.now, 0, "t", "g", {queue: [(0, 1)] for queue in range(9)}
        )


def test_many_runs_are_cut_and_the_rest_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replays, "MOST_RUNS", 3)
    world = World()
    session = start(world)
    world.send("t", 20)
    pulled = pull(world, session)
    world.settle(session, "t", "g", pulled, Outcome.DEAD, [(at, at + 1) for at in (1, 3, 5, 7)])
    world.settle(session, "t", "g", pulled, spans=[(0, 1), (2, 3), (4, 5), (6, 7), (8, 20)])
    plan = redrive(world, [1, 3, 5, 7], dry_run=True)
    assert (plan.rows, plan.rest) == (3, [(7, 8)])
    plan = replay(world, (0, 20))
    assert (plan.rows, plan.rest) == (3, [(3, 20)])
    assert world.drain(session, "t", "g") == [0, 1, 2]


def test_many_rows_are_done_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replays, "MOST_ROWS", 2048)
    world = World()
    session = start(world)
    for _ in range(5):
        world.send("t", 1000)
    world.drain(session, "t", "g", 5000)
    rest: Sequence[Span] = [(100, 4900), (4950, 9000)]
    sizes = []
    while rest:
        plan = replay(world, *rest)
        sizes.append((plan.rows, plan.unread))
        rest = plan.rest
    assert sizes == [(1948, 0), (2048, 0), (854, 0)]
    assert sorted(world.drain(session, "t", "g", 5000)) == [*range(100, 4900), *range(4950, 5000)]


def test_too_many_rows_are_refused_and_nothing_is_done() -> None:
    world = World(Limits(replay_rows=10, intervals=40))
    session = start(world)
    world.send("t", 40)
    world.drain(session, "t", "g")
    end = world.broker.journal.end
    with pytest.raises(ReplayTooLarge, match="would add 12; at most 10 may wait"):
        replay(world, (0, 12))
    assert world.broker.journal.end == end
    replay(world, (0, 8))
    with pytest.raises(ReplayTooLarge, match="8 messages wait"):
        replay(world, (10, 13))
    assert replay(world, (2, 10)).rows == 8  # of which six wait already
    world.drain(session, "t", "g")
    assert replay(world, (10, 13)).rows == 3

    world = World(Limits(replay_keyed_rows=3))
    session = start(world, ordered=True)
    world.send("t", "abcd")
    world.drain(session, "t", "g")
    with pytest.raises(ReplayTooLarge):
        replay(world, (0, 4))
    assert replay(world, (0, 3)).rows == 3


def test_so_many_runs_that_a_pull_would_find_no_end_are_refused() -> None:
    world = World(Limits(intervals=4))
    session = start(world)
    world.send("t", 20)
    world.drain(session, "t", "g")
    with pytest.raises(ReplayTooLarge, match="at most 4 are allowed"):
        replay(world, *[(at, at + 1) for at in range(0, 20, 2)])
    assert replay(world, (0, 1), (4, 5), (8, 9)).rows == 3


def test_rows_settled_above_the_cursor_are_unread_again() -> None:
    world = World()
    session = start(world)
    world.send("t", 8)
    before = MemoryDisk(world.disk.image())
    lost = pull(world, session, 6)
    world.now += SECOND
    world = World(disk=before)
    world.sent = {(1, 0, at): b"row %d" % at for at in range(8)}
    session = world.join("again")
    world.settle(session, "t", "g", lost, spans=[(2, 5)])
    progress = world.progress("t", "g")
    assert list(progress.ahead) == [(2, 5)]
    plan = replay(world, (1, 4))
    assert (plan.rows, plan.ahead, plan.unread) == (2, [(2, 4)], 1)
    assert list(progress.ahead) == [(4, 5)]
    with pytest.raises(LeaseExpired):  # of the round before
        world.settle(session, "t", "g", lost, spans=[(2, 3)])
    same_after_restart(world)
    assert world.drain(session, "t", "g") == [0, 1, 2, 3, 5, 6, 7]


def test_rows_that_failed_above_the_cursor_are_ready_once() -> None:
    world = World()
    session = start(world)
    world.send("t", 8)
    before = MemoryDisk(world.disk.image())
    lost = pull(world, session, 6)
    world = World(disk=before)
    world.sent = {(1, 0, at): b"row %d" % at for at in range(8)}
    session = world.join("again")
    world.settle(session, "t", "g", lost, Outcome.RETRY, spans=[(2, 4)], reason="no")
    world.settle(session, "t", "g", lost, Outcome.DEAD, spans=[(4, 5)], reason="no")
    plan = replay(world, (1, 4))
    assert (plan.runs, plan.ahead, plan.unread) == ([(2, 4, 1, 1)], [], 1)
    assert redrive(world, [4]).rows == 1
    check(world.broker, world.now)
    same_after_restart(world)
    assert sorted(world.drain(session, "t", "g")) == list(range(8))


def test_parked_pulls_wake_for_what_comes_again() -> None:
    world = World()
    session = start(world)
    world.send("t", 3)
    world.drain(session, "t", "g")
    token = world.park(session, "t", "g")
    assert world.woken() == []
    replay(world, (1, 2))
    (woken,) = world.woken()
    assert (woken.token, offsets(woken.reply)) == (token, [1])


def test_what_is_not_there_is_refused() -> None:
    world = World(Limits(pull_messages=4))
    start(world)
    world.send("t", 3)
    with pytest.raises(UnknownQueue):
        replay(world, (0, 1), queue=1)
    with pytest.raises(UnknownGroup):
        world.broker.operating.replay(world.now, 0, "t", "x", {0: [(0, 1)]})
    with pytest.raises(InvalidRequest):
        redrive(world, [0, 1, 2, 3, 4])


def test_many_shards_and_leases() -> None:
    def scenario(world: World) -> None:
        session = start(world)
        for _ in range(3):
            world.send("t", 1100)
        first = pull(world, session, 1500)
        second = pull(world, session, 1500)
        world.settle(session, "t", "g", first, Outcome.RETRY, [(1000, 1010)], reason="no")
        world.settle(session, "t", "g", second, Outcome.DEAD, [(2040, 2050)], reason="no")
        plan = replay(world, (900, 1600), (2000, 2100))
        assert plan.rows == 800
        taken = world.settle(session, "t", "g", first)
        assert taken.settled == [(0, 900, 1, 1)]
        assert len(world.drain(session, "t", "g", 1000)) == 800 + 300

    explore(scenario, step=3)
