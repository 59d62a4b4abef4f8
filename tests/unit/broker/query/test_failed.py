"""The failed rows that a selection finds are those that a simple judgement of each finds."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Protocol
from unittest.mock import patch

import pytest

from ternmq.broker.gate.replies import PullReply
from ternmq.broker.group.failedrows import HELD_US, SHARD_ROWS
from ternmq.broker.group.rowstate import RowState
from ternmq.broker.query import failed, failuretimes
from ternmq.broker.query.failed import FailedSearch, Matches
from ternmq.broker.query.failedpiece import EVER_US, FAILED_STATES, Selection
from ternmq.broker.query.messages import Queries
from ternmq.journal.cache.cold import WouldBlock
from ternmq.journal.disk.memory import MemoryFile
from ternmq.journal.log.retention import RetentionSpec
from ternmq.journal.log.segment import segment_bases, segment_name
from ternmq.journal.store.lookup import Cursor
from ternmq.model.errors import DiskReadError, UnknownGroup, UnknownQueue, UnknownTopic
from ternmq.model.specs import Exhausted, Limits, RetryPolicy
from ternmq.record.batch.batch import Row
from ternmq.record.fact.facts import Outcome
from tests.unit.broker.kit import SECOND, World, waiting
from tests.unit.broker.test_moved import Large, outlive, retry_in_a_year

SOME = 3 * SHARD_ROWS + 100
LATER = RetryPolicy(first_us=3600 * SECOND, cap_us=3600 * SECOND, jitter=0.0, attempts=100)


@dataclass(frozen=True)
class Judged:
    """A failed row as the lists of failed messages tell of it."""

    offset: int
    state: RowState
    attempts: int
    failed_us: int


def judged(world: World, group: str = "g") -> list[Judged]:
    """Return all failed rows, each with what its own failures say."""
    queries = Queries(world.broker.ledger)
    found: list[Judged] = []
    for dead, ask in ((False, queries.waiting), (True, queries.dead_letters)):
        after, more = -1, True
        while more:
            page = waiting(partial(ask, "t", group, 0, after=after, limit=1000))
            for row in page.rows:
                state = RowState.HELD if row.held else RowState.WAITING
                state = RowState.DEAD if dead else state
                failed_us = row.failures[-1].time_us if row.failures else 0
                found.append(Judged(row.offset, state, row.attempts, failed_us))
                after = row.offset
            more = page.more
    return sorted(found, key=lambda row: row.offset)


def wanted(rows: list[Judged], selection: Selection) -> list[Judged]:
    return [
        row
        for row in rows
        if row.state in selection.states
        and row.attempts >= selection.attempts
        and selection.since_us <= row.failed_us < selection.until_us
    ]


def pieces(ask: Callable[[int], Matches]) -> Iterator[Matches]:
    after: int | Cursor | None = -1
    while after is not None:
        assert isinstance(after, int)
        piece = waiting(partial(ask, after))
        yield piece
        assert piece.after is None or (isinstance(piece.after, int) and piece.after > after)
        after = piece.after


def check(world: World, rows: list[Judged], selection: Selection, limit: int = 700) -> None:
    """Ask in each way, piece by piece, and compare with a judgement of each row."""
    search = FailedSearch(world.broker.ledger)
    at = "t", "g", 0, selection
    expected = wanted(rows, selection)
    found = list(pieces(lambda after: search.by_offset(*at, after=after, limit=limit)))
    assert [offset for piece in found for offset in piece.offsets] == [
        row.offset for row in expected
    ]
    assert all(len(piece.offsets) <= limit for piece in found)
    by_state = {state: sum(row.state is state for row in expected) for state in selection.states}
    for counted in (found, list(pieces(lambda after: search.count(*at, after=after)))):
        sums = dict.fromkeys(selection.states, 0)
        for piece in counted:
            for state, count in piece.counts.items():
                sums[state] += count
        assert sums == by_state
    latest: list[tuple[int, int]] = []
    for piece in pieces(lambda after: search.newest(*at, after=after, limit=20)):
        times = list(zip(piece.failed_us, piece.offsets, strict=True))
        assert times == sorted(times, reverse=True)
        latest = sorted([*latest, *times], reverse=True)[:20]
    by_offset = {row.offset: row for row in expected}
    assert all(by_offset[offset].failed_us == time_us for time_us, offset in latest)
    assert [time_us for time_us, _ in latest] == sorted(
        (row.failed_us for row in expected), reverse=True
    )[:20]
    every = [row.offset for row in rows] + [SOME + 5, 7]
    assert waiting(lambda: search.matching(*at, every)) == [row.offset for row in expected]


def failing(world: World, session: int) -> None:
    """Let rows fail at many times, in different numbers, some of them for good."""
    chance = random.Random(3)
    world.send("t", [Row(body=b"x", key=f"k{n % 5}") for n in range(SOME)])
    world.commit()
    got: list[PullReply] = []
    while len(got) < SOME:
        pulled = world.pull(session, "t", "g", 512)
        assert pulled is not None
        got.append(pulled)
        if sum(stop - start for one in got for start, stop, *_ in one.runs) >= SOME:
            break
    for pulled in got:
        for start, stop, *_ in pulled.runs:
            for low in range(start, stop, 16):
                spans = [(low, min(low + 16, stop))]
                if chance.random() < 0.1:
                    continue
                outcome = chance.choice([Outcome.RETRY, Outcome.RETRY, Outcome.DEAD])
                world.settle(session, "t", "g", pulled, outcome, spans=spans)
                world.pass_time(chance.choice([1, 7, SECOND]))
    for _ in range(2):
        rows = [row.offset for row in judged(world) if row.state is RowState.WAITING]
        world.broker.operating.retry_now(world.now, "t", "g", 0, chance.sample(rows, 100))
        world.commit()
        pulled = world.pull(session, "t", "g", 512)
        assert pulled is not None
        world.settle(session, "t", "g", pulled, Outcome.RETRY)
        world.pass_time(SECOND)


@pytest.fixture(scope="module")
def many() -> tuple[World, list[Judged]]:
    world = World(Limits(pull_messages=SOME), segment_bytes=8 << 20)
    world.topic("t")
    world.group("t", "g", retry=LATER, window=SOME, lease_us=3600 * SECOND)
    failing(world, world.join())
    return world, judged(world)


STATES = [
    frozenset(FAILED_STATES),
    frozenset({RowState.DEAD}),
    frozenset({RowState.WAITING}),
    frozenset({RowState.WAITING, RowState.DEAD}),
]


@pytest.mark.parametrize("states", STATES)
def test_found_as_by_judging_each(
    many: tuple[World, list[Judged]], states: frozenset[RowState]
) -> None:
    world, rows = many
    assert {row.state for row in rows} == {RowState.WAITING, RowState.DEAD}
    times = sorted({row.failed_us for row in rows})
    middle, late = times[len(times) // 2], times[-3]
    for since_us, until_us, attempts in product(
        (0, middle, late + 1), (EVER_US, middle, late), (0, 2, 3)
    ):
        check(world, rows, Selection(states, since_us, until_us, attempts))


def test_pieces_are_bounded(many: tuple[World, list[Judged]]) -> None:
    world, rows = many
    with patch.object(failed, "EXAMINED", 10), patch.object(failed, "MOST_SHARDS", 1):
        search = FailedSearch(world.broker.ledger)
        selection = Selection(since_us=1)
        count = len(list(pieces(lambda after: search.count("t", "g", 0, selection, after=after))))
        assert count == SOME // SHARD_ROWS + 1
        check(world, rows, Selection(attempts=2))
        check(world, rows, Selection(attempts=2), limit=3)


def test_how_many_there_are_is_known_without_a_look(many: tuple[World, list[Judged]]) -> None:
    world, rows = many
    with patch.object(failed, "FailedPiece", side_effect=AssertionError):
        found = FailedSearch(world.broker.ledger).count("t", "g", 0, Selection(), after=-1)
    assert sum(found.counts.values()) == len(rows)


def test_by_key_and_by_message(many: tuple[World, list[Judged]]) -> None:
    world, rows = many
    search = FailedSearch(world.broker.ledger)
    selection = Selection(frozenset({RowState.DEAD}))
    offsets: list[int] = []
    after: Cursor | None = None
    while True:
        piece = waiting(partial(search.by_key, "t", "g", 0, selection, "k3", after=after))
        offsets += piece.offsets
        if piece.after is None:
            break
        assert isinstance(piece.after, Cursor)
        after = piece.after
    dead = [row for row in rows if row.state is RowState.DEAD]
    assert sorted(offsets) == [row.offset for row in dead if row.offset % 5 == 3]
    assert offsets == sorted(offsets, reverse=True)
    message = waiting(lambda: Queries(world.broker.ledger).by_offset("t", 0, dead[0].offset))
    for states, expected in ((selection.states, [dead[0].offset]), ({RowState.HELD}, [])):
        found = search.by_message("t", "g", 0, Selection(frozenset(states)), message)
        assert found.offsets == expected
        assert found.failed_us == [dead[0].failed_us for _ in expected]


def test_held_rows() -> None:
    world = World()
    world.topic("t", ordered=True)
    once = RetryPolicy(attempts=1, exhausted=Exhausted.HOLD)
    world.group("t", "g", retry=once)
    session = world.join()
    world.send("t", [Row(body=b"x", ordering_key=key) for key in "abc"])
    pulled = world.pull(session, "t", "g", 10)
    assert pulled is not None
    world.settle(session, "t", "g", pulled, Outcome.RETRY)
    rows = judged(world)
    assert [row.state for row in rows] == [RowState.HELD] * 3
    progress = next(iter(world.broker.views.progress.values()))
    assert {row.when_us for row in progress.failures.failed(dead=False, after=-1)} == {HELD_US}
    for states in (*STATES, frozenset({RowState.HELD})):
        for since_us in (0, rows[0].failed_us, rows[0].failed_us + 1):
            check(world, rows, Selection(states, since_us))


def test_rows_whose_failures_were_copied() -> None:
    """A copy is newer than the failure: the time of the failure is what counts."""
    world = Large(RetentionSpec())
    world.topic("t")
    world.group("t", "g", retry=LATER)
    session = world.join()
    world.send("t", [Row(body=b"x" * 100) for _ in range(50)])
    retry_in_a_year(world, session, 50)
    first = judged(world)
    outlive(world, session, 49)
    world.send("t", [Row(body=b"y" * 100) for _ in range(10)])
    retry_in_a_year(world, session, 10, "later")
    rows = judged(world)
    assert [row for row in rows if row.offset < 50] == first
    number = world.broker.views.catalog.topic("t").number
    copies = world.broker.ledger.index.newest_copies(number, 0, range(50))
    assert len(copies) == 50
    assert len(rows) == 60
    copied_us = first[0].failed_us
    for since_us, until_us in (
        (0, EVER_US),
        (copied_us, copied_us + 1),
        (copied_us + 1, EVER_US),
        (0, copied_us),
        (0, rows[-1].failed_us),
    ):
        check(world, rows, Selection(since_us=since_us, until_us=until_us))
    world.restart()
    check(world, rows, Selection(since_us=copied_us + 1))


COPIES = 160
"""Rows of 20 kB that are copied: some dozens of records, 3 MiB."""
CAPACITY = 3 << 19
"""Of the cache in which the copies do not fit: 1.5 MiB."""


@pytest.fixture(scope="module")
def copied() -> tuple[Large, list[Judged]]:
    """Many copied rows, some plain ones that failed later, and one copied row that failed again."""
    world = Large(RetentionSpec())
    world.topic("t")
    world.group("t", "g", retry=LATER)
    session = world.join()
    for _ in range(COPIES // 10):
        world.send("t", [Row(body=b"x" * 20_000) for _ in range(10)])
        retry_in_a_year(world, session, 10)
        world.pass_time(SECOND)
    outlive(world, session, COPIES - 1)
    world.send("t", [Row(body=b"y" * 100) for _ in range(30)])
    retry_in_a_year(world, session, 30, "later")
    world.broker.operating.retry_now(world.now, "t", "g", 0, [40])
    world.commit()
    retry_in_a_year(world, session, 1, "again")
    world.restart()
    number = world.broker.views.catalog.topic("t").number
    places = world.broker.ledger.index.newest_copies(number, 0, range(COPIES))
    assert len(places) == COPIES
    rows = judged(world)
    assert len(rows) == COPIES + 30
    return world, rows


class Asked(Protocol):
    """Asks for the piece above an offset."""

    def __call__(self, *, after: int) -> Matches: ...


def in_small_cache(world: World, ask: Asked, reads: int = 40) -> list[Matches]:
    """Return the pieces of an answer whose reads block, with a cache that is too small for all."""
    cache = world.broker.store.cache
    found: list[Matches] = []
    after: int | Cursor | None = -1
    with (
        patch.object(cache, "_capacity", CAPACITY),
        patch.object(MemoryFile, "try_pread", return_value=None),
        patch.object(failuretimes, "COPY_BYTES", CAPACITY // 4),
    ):
        while after is not None:
            assert isinstance(after, int)
            for base in segment_bases(world.disk):
                cache.forget(segment_name(base))
            for _ in range(reads):
                try:
                    piece = ask(after=after)
                    break
                except WouldBlock as blocked:
                    blocked.job.run()
            else:
                raise AssertionError("the command reads for ever")
            found.append(piece)
            assert piece.after is None or (isinstance(piece.after, int) and piece.after > after)
            after = piece.after
    return found


def test_copies_that_do_not_fit_into_the_cache(copied: tuple[Large, list[Judged]]) -> None:
    """A piece ends before its reads are too much, and the next one goes on."""
    world, rows = copied
    search = FailedSearch(world.broker.ledger)
    times = sorted({row.failed_us for row in rows})
    for since_us, until_us in ((1, EVER_US), (times[3], times[9]), (times[-2], EVER_US)):
        selection = Selection(since_us=since_us, until_us=until_us)
        expected = wanted(rows, selection)
        ask = partial(search.by_offset, "t", "g", 0, selection, limit=700)
        found = in_small_cache(world, ask)
        assert 3 < len(found) < COPIES // 2
        assert [offset for piece in found for offset in piece.offsets] == [
            row.offset for row in expected
        ]
        check(world, rows, selection)


@pytest.mark.parametrize("limit", [20, 25, 60, 1000])
def test_newest_first_of_copies_that_do_not_fit(
    copied: tuple[Large, list[Judged]], limit: int
) -> None:
    world, rows = copied
    search = FailedSearch(world.broker.ledger)
    newest = sorted(((row.failed_us, row.offset) for row in rows), reverse=True)[:limit]
    found = in_small_cache(world, partial(search.newest, "t", "g", 0, Selection(), limit=limit))
    latest = sorted(
        (row for piece in found for row in zip(piece.failed_us, piece.offsets, strict=True)),
        reverse=True,
    )
    assert [time_us for time_us, _ in latest[:limit]] == [time_us for time_us, _ in newest]
    assert set(latest) <= {(row.failed_us, row.offset) for row in rows}
    assert len(latest) == len(set(latest))
    assert sum(sum(piece.counts.values()) for piece in found) == len(rows)
    # 31 rows failed after all copies were made: for up to 30, no copy needs to be read.
    assert (len(found) == 1) == (limit <= 30)


def test_named_rows_are_judged_whatever_the_cache_has_room_for(
    copied: tuple[Large, list[Judged]],
) -> None:
    """A retry, delete or redrive of many rows by time began anew after each read, for ever."""
    world, rows = copied
    search = FailedSearch(world.broker.ledger)
    times = sorted({row.failed_us for row in rows})
    for since_us, until_us in ((1, EVER_US), (times[3], times[9]), (times[-2], EVER_US)):
        selection = Selection(since_us=since_us, until_us=until_us)

        def ask(*, after: int, selection: Selection = selection) -> Matches:
            return Matches(
                search.matching("t", "g", 0, selection, [one.offset for one in reversed(rows)])
            )

        (found,) = in_small_cache(world, ask, reads=4 * COPIES)
        assert found.offsets == [row.offset for row in wanted(rows, selection)]


def test_times_that_could_not_be_read_are_asked_for_again(
    copied: tuple[Large, list[Judged]],
) -> None:
    world, rows = copied
    search = FailedSearch(world.broker.ledger)
    selection = Selection(since_us=1)
    ask = partial(search.matching, "t", "g", 0, selection, [one.offset for one in rows])

    def broken(position: int) -> bytes:
        raise DiskReadError("planned")

    with patch.object(world.broker.store, "get", broken):
        assert waiting(ask) == []
    assert waiting(ask) == [row.offset for row in wanted(rows, selection)]


def test_few_requests_are_remembered(copied: tuple[Large, list[Judged]]) -> None:
    world, rows = copied
    search = FailedSearch(world.broker.ledger)
    with patch.object(failed, "ASKED", 3):
        for row in rows[:10]:
            waiting(partial(search.matching, "t", "g", 0, Selection(since_us=1), [row.offset]))
    assert len(search._asked) == 3


def test_pieces_end_after_some_records(copied: tuple[Large, list[Judged]]) -> None:
    world, rows = copied
    with (
        patch.object(failuretimes, "MOST_COPIES", 1),
        patch.object(failuretimes, "MOST_CHUNKS", 1),
        patch.object(failuretimes, "CHUNK_BYTES", 64),
    ):
        for selection in (Selection(), Selection(since_us=1), Selection(attempts=1)):
            check(world, rows, selection)


def test_what_is_not_there() -> None:
    world = World()
    world.topic("t")
    world.group("t", "g")
    search = FailedSearch(world.broker.ledger)
    for place, error in (
        (("u", "g", 0), UnknownTopic),
        (("t", "h", 0), UnknownGroup),
        (("t", "g", 1), UnknownQueue),
    ):
        with pytest.raises(error):
            search.count(*place, Selection(), after=-1)
    check(world, [], Selection(since_us=5))
    check(world, [], Selection())
