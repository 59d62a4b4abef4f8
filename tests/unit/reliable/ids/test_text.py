"""Text ids: their bits, their order, and that none comes twice."""

from __future__ import annotations

import os
import threading
import uuid

from hypothesis import given
from hypothesis import strategies as st

from ternmq.reliable.ids import text_id
from ternmq.reliable.ids.text import TextIds, Ticks, text_of

SEEDS = st.integers(0, (1 << 11) - 1)
NOISES = st.integers(0, (1 << 62) - 1)


@given(ms=st.integers(0, (1 << 48) - 1), counter=st.integers(0, (1 << 12) - 1), noise=NOISES)
def test_the_text_is_a_uuid_of_version_7(ms: int, counter: int, noise: int) -> None:
    text = text_of(ms << 12 | counter, noise)
    read = uuid.UUID(text)
    assert (str(read), read.version, read.variant) == (text, 7, uuid.RFC_4122)
    assert read.int >> 80 == ms
    assert read.int >> 64 & 0xFFF == counter
    assert read.int & ((1 << 62) - 1) == noise


@given(ticks=st.tuples(st.integers(0, (1 << 60) - 1), st.integers(0, (1 << 60) - 1)), noise=NOISES)
def test_a_larger_tick_is_a_larger_text(ticks: tuple[int, int], noise: int) -> None:
    one, other = ticks
    texts = text_of(one, noise), text_of(other, (1 << 62) - 1 - noise)
    if one != other:
        assert (texts[0] < texts[1]) == (one < other)


@given(calls=st.lists(st.tuples(st.integers(0, 20), SEEDS)))
def test_ticks_increase_whatever_the_clock_does(calls: list[tuple[int, int]]) -> None:
    ticks = Ticks()
    made = [ticks.next(now_ms, seed) for now_ms, seed in calls]
    assert made == sorted(set(made))
    # Unless the clock steps back, a tick runs ahead of the clock only by what was made in between.
    highest = 0
    for tick, (now_ms, _) in zip(made, calls, strict=True):
        highest = max(highest, now_ms)
        assert now_ms <= tick >> 12 <= highest + 1


def test_a_full_millisecond_runs_into_the_next() -> None:
    ticks = Ticks()
    made = [ticks.next(5, 2_047) for _ in range(2_049 + 4_096 + 1)]
    assert made[0] == 5 << 12 | 2_047
    assert made[2_048] == 5 << 12 | 4_095
    assert made[2_049] == 6 << 12
    assert made[-1] == 7 << 12
    assert ticks.next(7, 9) == 7 << 12 | 1
    assert ticks.next(8, 9) == 8 << 12 | 9


def test_ids_of_threads_are_unique_and_increase_in_each() -> None:
    ids = TextIds()
    made: list[list[str]] = [[] for _ in range(4)]
    go = threading.Barrier(4)

    def make(into: list[str]) -> None:
        go.wait()
        into += [ids.next() for _ in range(20_000)]

    threads = [threading.Thread(target=make, args=(into,)) for into in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(into == sorted(into) for into in made)
    ticks = {text[:18] for into in made for text in into}
    assert len(ticks) == 80_000  # not only by their random bits


def test_two_makers_differ_by_their_random_bits() -> None:
    ids = [TextIds(now_ns=lambda: 7_000_000) for _ in range(2)]
    assert len({one.next() for one in ids for _ in range(10_000)}) == 20_000


def test_the_child_of_a_fork_makes_ids_of_its_own_although_a_thread_held_the_lock() -> None:
    ids = TextIds()
    before = ids.next()
    (lock,) = ids._locks.values()
    read, write = os.pipe()
    with lock:  # as another thread may at the fork
        child = os.fork()
        if child == 0:
            os.write(write, "".join(ids.next() for _ in range(20)).encode())
            os._exit(0)
    os.close(write)
    mine = [ids.next() for _ in range(20)]
    told = os.read(read, 4_096).decode()
    os.close(read)
    assert os.waitpid(child, 0)[1] == 0
    theirs = [told[at : at + 36] for at in range(0, len(told), 36)]
    assert len(theirs) == 20
    assert theirs == sorted(theirs)
    assert before < theirs[0]
    assert len({*mine, *theirs}) == 40


def test_text_id_returns_ids_of_one_series() -> None:
    made = [text_id() for _ in range(10_000)]
    assert made == sorted(set(made))
    assert uuid.UUID(made[0]).version == 7
