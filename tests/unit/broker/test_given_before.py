"""Rows that a group was given before are delivered as such: after replays, resets and skips."""

from __future__ import annotations

import tarfile
from pathlib import Path

from ternmq.broker.gate.replies import PullReply
from ternmq.broker.operation.groups import NextOffset
from ternmq.journal.disk.memory import MemoryDisk
from ternmq.journal.log.retention import RetentionSpec
from ternmq.model.specs import Mode, Start, TopicSpec
from ternmq.record.batch.batch import Row
from ternmq.record.fact.facts import Outcome, Span
from tests.unit.broker.kit import SECOND, World, attempts, explore, offsets, same_after_restart
from tests.unit.broker.test_moved import Large, outlive

OLD_JOURNAL = Path(__file__).parents[2] / "golden" / "journal_v1_reset.tar.xz"
"""Written by version 0.1 before GIVEN was there: twelve rows, and groups that a test describes."""


def begun(world: World, rows: int) -> int:
    """Make the topic and the group, send that many rows; return a session of the group."""
    world.topic("t")
    world.group("t", "g")
    session = world.join()
    world.send("t", rows)
    return session


def pull(world: World, session: int, group: str = "g", rows: int = 64) -> PullReply:
    pulled = world.pull(session, "t", group, rows)
    assert pulled is not None
    return pulled


def reset(world: World, offset: int, group: str = "g") -> None:
    world.run(lambda: world.broker.operating.reset(world.now, "t", group, 0, offset))
    world.commit()


def skip(world: World, offset: int) -> None:
    world.run(lambda: world.broker.operating.skip(world.now, "t", "g", 0, offset))
    world.commit()


def replay(world: World, *spans: Span, group: str = "g") -> None:
    world.run(lambda: world.broker.operating.replay(world.now, 0, "t", group, {0: spans}))
    world.commit()


def pass_moments(world: World, moments: int) -> None:
    """Let a set that is being written go on."""
    for _ in range(moments):
        world.run(lambda: None)


def read(world: World, session: int, rows: int, group: str = "g") -> list[int]:
    """Pull that many rows and acknowledge them."""
    pulled = pull(world, session, group, rows)
    world.settle(session, "t", group, pulled)
    world.commit()
    return offsets(pulled)


def counts(world: World, session: int, group: str = "g") -> dict[int, int]:
    """Pull and acknowledge everything; return each row's count of deliveries."""
    found: dict[int, int] = {}
    while (pulled := world.pull(session, "t", group, 64)) is not None:
        found |= {at: deliveries for at, (_, deliveries) in attempts(pulled).items()}
        world.settle(session, "t", group, pulled)
        world.commit()
    return found


def expected(stop: int, *spans: Span, start: int = 0) -> dict[int, int]:
    """Return the counts of rows of which those in the spans were given before."""
    return {at: 2 if any(a <= at < b for a, b in spans) else 1 for at in range(start, stop)}


def test_after_a_reset_back_what_was_read_comes_as_such_and_the_rest_as_new() -> None:
    def scenario(world: World) -> None:
        session = begun(world, 12)
        assert read(world, session, 5) == [0, 1, 2, 3, 4]
        reset(world, 2)
        assert counts(world, session) == expected(12, (2, 5), start=2)
        reset(world, 0)
        assert counts(world, session) == expected(12, (0, 12))

    explore(scenario)


def test_after_resets_forward_and_back_what_lies_between_comes_as_new() -> None:
    def scenario(world: World) -> None:
        session = begun(world, 12)
        read(world, session, 2)
        reset(world, 8)
        assert read(world, session, 2) == [8, 9]
        reset(world, 5)
        assert read(world, session, 1) == [5]
        reset(world, 1)
        assert counts(world, session) == expected(12, (0, 2), (5, 6), (8, 10), start=1)

    explore(scenario)


def test_skipped_rows_come_as_new_after_a_reset_and_after_a_replay() -> None:
    def scenario(world: World) -> None:
        session = begun(world, 12)
        read(world, session, 2)
        skip(world, 7)
        replay(world, (1, 4))
        assert counts(world, session) == {1: 2, 2: 1, 3: 1} | expected(12, start=7)
        replay(world, (1, 6))  # of these, the replay before has delivered some
        assert counts(world, session) == {1: 2, 2: 2, 3: 2, 4: 1, 5: 1}
        reset(world, 0)
        assert counts(world, session) == expected(12, (0, 6), (7, 12))

    explore(scenario)


def test_a_group_that_began_at_the_end_gets_older_rows_as_new() -> None:
    def scenario(world: World) -> None:
        world.topic("t")
        session = world.join()
        world.send("t", 6)
        world.group("t", "g", start=Start.LATEST)
        world.send("t", 4)
        assert read(world, session, 2) == [6, 7]
        replay(world, (3, 7))
        assert counts(world, session) == {3: 1, 4: 1, 5: 1, 6: 2, 8: 1, 9: 1}
        reset(world, 0)
        assert counts(world, session) == expected(10, (3, 10))

    explore(scenario)


def test_what_a_group_committed_itself_counts_as_given() -> None:
    def scenario(world: World) -> None:
        session = begun(world, 8)
        world.run(lambda: world.broker.operating.commit(world.now, "t", "g", [NextOffset(0, 5)]))
        reset(world, 0)
        assert counts(world, session) == expected(8, (0, 5))

    explore(scenario)


def test_a_filter_does_not_matter() -> None:
    def scenario(world: World) -> None:
        world.topic("t")
        world.group("t", "g", tags="a")
        session = world.join()
        world.send("t", [Row(body=b"%d" % at, tag="ab"[at % 2]) for at in range(12)])
        assert read(world, session, 3) == [0, 2, 4]
        replay(world, (0, 3))
        assert attempts(pull(world, session, rows=2)) == {0: (1, 2), 6: (1, 1)}
        reset(world, 0)
        assert counts(world, session) == {0: 2, 2: 2, 4: 2, 6: 2, 8: 1, 10: 1}

    explore(scenario)


def test_in_an_ordered_group_parked_rows_are_marked_as_the_others_are() -> None:
    def scenario(world: World) -> None:
        world.topic("t", ordered=True)
        world.group("t", "g")
        session = world.join()
        world.send("t", "aabb")
        assert offsets(pull(world, session, rows=1)) == [0]
        reset(world, 0)
        world.send("t", "aa")
        first = pull(world, session, rows=1)
        assert attempts(first) == {0: (1, 2)}
        second = pull(world, session)  # what is behind the first of its key is parked
        assert attempts(second) == {2: (1, 1), 3: (1, 1)}
        world.settle(session, "t", "g", first)
        world.settle(session, "t", "g", second)
        world.commit()
        assert counts(world, session) == {1: 1, 4: 1, 5: 1}
        reset(world, 0)
        first = pull(world, session, rows=1)
        pull(world, session)
        world.settle(session, "t", "g", first)
        again = pull(world, session)
        assert attempts(again) == {1: (1, 2), 4: (1, 2), 5: (1, 2)}
        world.settle(session, "t", "g", again)
        world.commit()
        replay(world, (0, 1), (4, 5))
        again = pull(world, session)
        assert attempts(again) == {0: (1, 2), 4: (1, 2)}

    explore(scenario)


def test_what_fails_or_is_released_after_a_reset_counts_on() -> None:
    def scenario(world: World) -> None:
        session = begun(world, 4)
        pulled = pull(world, session, rows=3)
        world.settle(session, "t", "g", pulled, Outcome.DEAD, [(0, 1)], reason="no")
        reset(world, 0)  # the dead letter is forgotten: it is unread again
        pulled = pull(world, session)
        assert attempts(pulled) == {0: (1, 2), 1: (1, 2), 2: (1, 2), 3: (1, 1)}
        world.settle(session, "t", "g", pulled, Outcome.RETRY, [(1, 2)], reason="not yet")
        world.settle(session, "t", "g", pulled, Outcome.RELEASED, [(2, 4)])
        world.settle(session, "t", "g", pulled, Outcome.DEAD, [(0, 1)], reason="no")
        world.run(lambda: world.broker.operating.redrive(world.now, 0, "t", "g", 0, [0]))
        world.pass_time(10 * SECOND)
        assert attempts(pull(world, session)) == {0: (1, 3), 1: (2, 3), 2: (1, 3), 3: (1, 2)}

    explore(scenario)


def test_a_group_made_anew_was_given_nothing() -> None:
    def scenario(world: World) -> None:
        session = begun(world, 4)
        read(world, session, 4)
        reset(world, 1)
        world.run(lambda: world.broker.administration.unsubscribe(world.now, "t", "g"))
        world.group("t", "g")
        assert counts(world, session) == expected(4)

    explore(scenario)


def test_each_queue_and_each_group_has_its_own() -> None:
    world = World()
    world.topic("t", queues=2)
    for group in "gh":
        world.group("t", group)
    session = world.join()
    for queue in (0, 1):
        world.send("t", 3, queue=queue)
    for group in "gh":
        assert len(world.drain(session, "t", group)) == 6
    reset(world, 1)
    same_after_restart(world)
    world.restart(clean=True)
    session = world.join("again")
    assert counts(world, session) == expected(3, (1, 3), start=1)
    assert counts(world, session, "h") == {}


def test_what_retention_took_does_not_come_and_what_it_moved_is_marked() -> None:
    world = Large(RetentionSpec())
    world.topic("t")
    world.group("t", "g")
    session = world.join()
    world.send("t", 3)
    pulled = pull(world, session)
    world.settle(session, "t", "g", pulled, spans=[(0, 2)])
    world.settle(session, "t", "g", pulled, Outcome.DEAD, [(2, 3)], reason="no")
    replay(world, (1, 2))
    again = pull(world, session)
    assert attempts(again) == {1: (1, 2)}
    world.settle(session, "t", "g", again, Outcome.RETRY, delay_us=600 * SECOND, reason="no")
    outlive(world, session, 3)
    queue = world.broker.views.catalog.topic("t").queues[0]
    world.restart()
    session = world.join("again")
    world.run(lambda: world.broker.operating.redrive(world.now, 0, "t", "g", 0, [2]))
    world.pass_time(600 * SECOND)
    found = counts(world, session)
    assert (found[1], found[2]) == (3, 2)
    reset(world, queue.first)
    found = counts(world, session)
    assert min(found) == queue.first
    assert set(found.values()) == {2}


def test_pulls_go_the_short_way_again_behind_what_was_given() -> None:
    world = World()
    world.topic("t")
    world.group("t", "g")
    session = world.join()
    world.send("t", 12)
    read(world, session, 5)
    reset(world, 2)
    progress = world.progress("t", "g")
    first = pull(world, session, rows=10)
    assert first.runs == [(2, 5, 1, 2), (5, 12, 1, 1)]
    assert progress.cursor >= progress.given.stop
    world.send("t", 4)
    assert pull(world, session, rows=10).runs == [(12, 16, 1, 1)]


def test_a_pull_tells_which_runs_are_first_since_a_reset_or_replay() -> None:
    world = World()
    world.topic("t")
    world.group("t", "g")
    session = world.join()
    world.send("t", 8)
    read(world, session, 4)
    reset(world, 1)
    pulled = pull(world, session, rows=6)
    assert (pulled.runs, pulled.anew) == ([(1, 4, 1, 2), (4, 7, 1, 1)], 1)
    world.settle(session, "t", "g", pulled, Outcome.RELEASED, [(2, 3), (5, 6)])
    world.settle(session, "t", "g", pulled, spans=[(1, 2), (3, 5), (6, 7)])
    replay(world, (3, 4))
    pulled = pull(world, session)
    assert pulled.runs == [(2, 3, 1, 3), (3, 4, 1, 2), (5, 6, 1, 2), (7, 8, 1, 1)]
    assert pulled.anew == 0b0010
    world.settle(session, "t", "g", pulled, Outcome.RELEASED)
    assert pull(world, session).anew == 0


def test_a_run_that_joins_rows_of_both_kinds_is_not_said_to_be_the_first() -> None:
    world = World()
    world.topic("t")
    world.group("t", "g")
    session = world.join()
    world.send("t", 4)
    pulled = pull(world, session)
    world.settle(session, "t", "g", pulled, spans=[(0, 2)])
    replay(world, (0, 2))
    world.settle(session, "t", "g", pulled, Outcome.RELEASED, [(2, 4)])
    pulled = pull(world, session)
    assert (pulled.runs, pulled.anew) == ([(0, 4, 1, 2)], 0)


def test_of_what_an_older_broker_reset_or_replayed_everything_is_marked() -> None:
    with tarfile.open(OLD_JOURNAL) as packed:
        files = {
            member.name: file.read()
            for member in packed.getmembers()
            if (file := packed.extractfile(member)) is not None
        }
    world = World(disk=MemoryDisk(files), segment_bytes=1 << 16)
    assert world.report.loaded_set is not None
    world.sent = {(1, 0, at): b"row %d" % at for at in range(20)}
    world.sequences = {1: 12}
    world.send("t", 2)
    session = world.join("new")
    # It read all, was reset to 4, and read two: what it read before the reset is not known.
    assert counts(world, session, "reset") == expected(14, (0, 12), start=6)
    # Rows of it were replayed before the set was written, and are ready.
    assert counts(world, session, "replayed") == {1: 2, 2: 2, 12: 1, 13: 1}
    # ... and after it.
    assert counts(world, session, "late") == {7: 2, 8: 2, 12: 1, 13: 1}
    # It read five rows and was never reset.
    assert counts(world, session, "plain") == expected(14, start=5)
    reset(world, 0, "plain")
    assert counts(world, session, "plain") == expected(14, (0, 14))
    writer = world.broker.writer
    writer.begin(world.now)
    assert writer.step(world.now, lambda: True)
    world.commit()
    world.send("t", 1)
    same_after_restart(world)


def test_a_group_that_has_no_spans_any_more_has_none_after_a_start_either() -> None:
    """The reset that takes the last ones comes between two objects of a set: HELD and GIVEN."""

    def scenario(world: World) -> None:
        begun(world, 2)
        reset(world, 2)  # forward: nothing was given
        pass_moments(world, 12)
        reset(world, 0)
        pass_moments(world, 4)  # the set ends, and no other one does
        world.restart()
        assert counts(world, world.join("again")) == expected(2)

    explore(scenario, paces=((1, 1),))


def test_a_queue_that_is_added_while_a_set_is_written_has_the_mode_of_its_group() -> None:
    """The queue is added, and the group reset in it, between HELD and GIVEN."""

    def scenario(world: World) -> None:
        world.topic("t")
        world.group("t", "g", mode=Mode.QUEUE_LOCK)
        world.send("t", 2)
        reset(world, 2)
        pass_moments(world, 12)
        spec, data = TopicSpec(name="t", queues=2), world.batch("t", world.rows(2))
        world.broker.administration.change_topic(world.now, spec)
        world.broker.send(world.now, "t", data, 1)
        world.run(lambda: world.broker.operating.reset(world.now, "t", "g", 1, 2))
        pass_moments(world, 4)  # the set ends, and no other one does
        world.restart()
        found = [(one.mode.name, one.cursor) for one in world.broker.views.progress.values()]
        assert found == [(Mode.QUEUE_LOCK, 2), (Mode.QUEUE_LOCK, 2)]

    explore(scenario, paces=((1, 1),))
