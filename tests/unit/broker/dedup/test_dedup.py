"""Deduplication against dictionaries: windows by time and by count, through sets and restarts."""

from __future__ import annotations

import random
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ternmq.broker.dedup.dedup import Dedup
from ternmq.model.errors import IdConflict, ResendTooOld
from ternmq.model.specs import Limits
from ternmq.record.batch.batch import Row
from tests.unit.broker.kit import SECOND, START_US, World, portrait, reopened, same_after_restart

WINDOW = 20
TIMEOUT = 2
CAP = 6
IDLE = 40
LIMITS = Limits(
    dedup_window_us=WINDOW * SECOND,
    send_timeout_us=TIMEOUT * SECOND,
    dedup_batches=CAP,
    producer_idle_us=IDLE * SECOND,
)


class Stored(NamedTuple):
    """A batch, as the reference keeps it."""

    number: int
    second: int
    producer: int
    first: int
    rows: int
    text: str


class Reference:
    """What is remembered, and of each producer the highest sequence that is not."""

    def __init__(self) -> None:
        self.kept: list[Stored] = []
        self.forgotten: dict[int, int] = {}
        self.last: dict[int, int] = {}
        self.count = 0

    def full(self, second: int) -> bool:
        return len(self.kept) >= CAP and second - self.kept[0].second < 2 * TIMEOUT

    def judge(self, second: int, producer: int, first: int, rows: int, text: str) -> str | Stored:
        if producer not in self.last or second - self.last[producer] > IDLE:
            return "new"
        wanted = set(range(first, first + rows))
        for one in self.kept:
            if one.producer == producer:
                if (one.first, one.rows, one.text) == (first, rows, text):
                    return one
                if wanted.intersection(range(one.first, one.first + one.rows)):
                    return "conflict"
        return "too old" if first < self.forgotten.get(producer, 0) else "new"

    def store(self, second: int, producer: int, first: int, rows: int, text: str) -> None:
        if second > max([one.second for one in self.kept], default=-1):
            # A second begins: whole seconds go, by age, then by number while they are old enough.
            while self.kept:
                oldest = self.kept[0].second
                by_age = oldest < second - WINDOW
                by_number = oldest < second - 2 * TIMEOUT and len(self.kept) >= CAP
                if not by_age and not by_number:
                    break
                self._forget(oldest)
        if producer in self.last and second - self.last[producer] > IDLE:
            self.kept = [one for one in self.kept if one.producer != producer]
            self.forgotten.pop(producer, None)
        self.kept.append(Stored(self.count, second, producer, first, rows, text))
        self.count += 1
        self.last[producer] = second

    def _forget(self, second: int) -> None:
        for one in self.kept:
            if one.second == second:
                end = one.first + one.rows
                self.forgotten[one.producer] = max(self.forgotten.get(one.producer, 0), end)
        self.kept = [one for one in self.kept if one.second != second]


Step = tuple[int, int, int, int, str]
"""Seconds that pass, producer, first sequence, rows, text."""

sends = st.tuples(
    st.integers(0, 8),  # seconds that pass
    st.integers(1, 2),  # producer
    st.integers(0, 12),  # first sequence
    st.integers(1, 3),  # rows
    st.sampled_from("xxxy"),
)
again = st.tuples(st.integers(0, 8), st.just(0), st.integers(0, 5), st.just(0), st.just(""))


def play(world: World, steps: list[Step], restarts: random.Random) -> None:
    """Send, and resend what was sent some time ago (producer 0); now and then start again."""
    reference = Reference()
    world.topic("t")
    sent: list[tuple[bytes, int, int, int, str]] = []
    for step in steps:
        passed, producer, first, rows, text = step
        world.pass_time(passed * SECOND)
        if restarts.random() < 0.1:
            world.restart(clean=restarts.random() < 0.5, gap_us=0)
        if producer:
            batch = world.batch("t", [Row(body=text.encode())] * rows, producer, first)
            sent.append((batch, producer, first, rows, text))
        elif len(sent) > first:
            batch, producer, first, rows, text = sent[-1 - first]
        else:
            continue
        second = world.now // SECOND
        expected = reference.judge(second, producer, first, rows, text)
        if expected == "new" and reference.full(second):
            continue
        if expected == "conflict":
            with pytest.raises(IdConflict):
                world.send_batch("t", batch)
        elif expected == "too old":
            with pytest.raises(ResendTooOld):
                world.send_batch("t", batch)
        else:
            before = world.broker.views.catalog.topic("t").queues[0].next
            reply = world.send_batch("t", batch)
            assert reply.duplicate == (expected != "new")
            if expected == "new":
                assert reply.first_offset == before
                reference.store(second, producer, first, rows, text)
        same_after_restart(world)


@settings(max_examples=60, deadline=None)
@given(st.lists(sends | again, max_size=25), st.integers(0, 10**6), st.sampled_from([None, 2, 5]))
def test_answers_are_those_of_the_reference(
    steps: list[Step], seed: int, state_from: int | None
) -> None:
    play(World(LIMITS, state_from=state_from, budget=3), steps, random.Random(seed))


@pytest.mark.parametrize("seed", range(6))
def test_long_runs(seed: int) -> None:
    chance = random.Random(seed)
    steps: list[Step] = []
    first = 0
    for _ in range(120):
        passed = chance.choice([0, 0, 0, 1, 1, 3, 8, 25 if seed % 2 else 1])
        if chance.random() < 0.5:
            steps.append((passed, 0, chance.randint(0, 12), 0, ""))
        else:
            rows = chance.randint(1, 3)
            steps.append((passed, chance.randint(1, 2), first, rows, "x"))
            first += rows + chance.choice([0, 0, 1])
    play(World(LIMITS, state_from=3 if seed % 3 else None, budget=4), steps, chance)


def test_ids_through_sets_and_restarts_against_a_dictionary() -> None:
    limits = Limits(dedup_window_us=WINDOW * SECOND, send_timeout_us=TIMEOUT * SECOND)
    for seed in range(4):
        chance = random.Random(seed)
        world = World(limits, state_from=3, budget=2)
        topics = ["t", "u"]
        for topic in topics:
            world.topic(topic)
        known: dict[tuple[str, str], tuple[int, int, str, int]] = {}  # second, offset, body, time
        seconds: list[int] = []
        for _ in range(150):
            world.pass_time(chance.choice([0, 1, 2, 5]) * SECOND)
            if chance.random() < 0.08:
                world.restart(clean=chance.random() < 0.5, gap_us=0)
            topic = chance.choice(topics)
            ids = chance.sample("abcdefghij", chance.randint(1, 4))
            rows = [Row(body=chance.choice([b"1", b"1", b"2"]), application_id=one) for one in ids]
            second = world.now // SECOND
            # Whole seconds are remembered: the oldest that is inside the window, and what follows.
            horizon = min([at for at in seconds if at >= (seconds[-1] - WINDOW)], default=0)
            queue = world.broker.views.catalog.topic(topic).queues[0]
            expected: dict[int, tuple[int | None, bool]] = {}
            for at, one in enumerate(ids):
                entry = known.get((topic, one))
                # Where nothing came for longer than the window, nothing is known either.
                if (
                    entry is not None
                    and entry[0] >= horizon
                    and world.now - entry[3] <= (WINDOW + 1) * SECOND
                ):
                    same = entry[2] == rows[at].body.decode()
                    expected[at] = (entry[1] if same else None, not same)
            offset = queue.next
            reply = world.send(topic, rows)
            assert {one.row: (one.offset, one.conflict) for one in reply.rows} == expected
            assert reply.count == len(ids) - len(expected)
            if reply.count:
                seconds.append(second)
            for at, one in enumerate(ids):
                if at not in expected:
                    known[topic, one] = (second, offset, rows[at].body.decode(), world.now)
                    offset += 1
        same_after_restart(world)


def test_a_window_is_never_shorter_after_a_restart_with_many_runs() -> None:
    """Runs are loaded in the order of the journal, whatever their names sort like."""
    world = World(Limits(dedup_window_us=60 * SECOND))
    world.topic("t")
    batches = []
    for at in range(40):
        world.now = START_US + at * SECOND
        batches.append(world.batch("t", [Row(body=b"%d" % at)]))
        world.send_batch("t", batches[-1])
        if at % 7 == 3:
            world.broker.writer.begin(world.now)
            world.broker.writer.step(world.now, lambda: True)
            world.spare()
    same_after_restart(world)
    world.restart(gap_us=0)
    assert all(world.send_batch("t", batch).duplicate for batch in batches)


def test_facts_between_the_begin_of_a_set_and_its_first_object_are_not_counted_twice() -> None:
    world = World()
    world.topic("t")
    world.send("t", 1)
    world.broker.writer.begin(world.now)
    for _ in range(3):
        world.send("t", 1)
    world.broker.writer.step(world.now, lambda: True)
    same_after_restart(world)
    other = reopened(world)
    assert len(other.views.dedup) == len(world.broker.views.dedup) == 4
    assert len(portrait(other.views)["dedup"]) == 4  # type: ignore[arg-type]


def test_sweeping_takes_away_what_is_idle_in_any_rhythm() -> None:
    dedup = Dedup(LIMITS)
    for producer in range(100):
        dedup.add(1000 + producer, producer * SECOND, producer, 0, 1, 7)
    for _ in range(40):
        dedup.sweep(120 * SECOND, 7)
    assert set(dedup.producers) == set(range(80, 100))
    assert not any(number < 80 for number, _ in dedup.entries())
