"""Deduplication entries as runs in STATE, and what a restart makes of them."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ternmq.broker.dedup import runs as dedup_runs
from ternmq.broker.dedup.dedup import Dedup
from ternmq.broker.dedup.runs import ENTRY, RUN_ENTRIES, rows_of
from ternmq.broker.dedup.table import table_of
from ternmq.model.errors import CorruptJournal
from ternmq.model.specs import Limits
from ternmq.model.types import SECOND_US
from ternmq.record.fact.state import DEDUP_ID

U32 = st.integers(0, 2**32 - 1)
U64 = st.integers(0, 2**64 - 1)


@given(
    entries=st.lists(st.tuples(U64, U64, U64, U32, U32, U64), max_size=40),
    ids=st.lists(st.tuples(U64, U64, U64, U64, U64, U32, U32), max_size=5),
)
def test_a_run_comes_back_whole(entries, ids):
    packed = b"".join([ENTRY.pack(*one) for one in entries])
    run = dedup_runs.encode(packed, [DEDUP_ID.pack(*one) for one in ids])
    assert len(run) % 8 == 0
    content = dedup_runs.decode(run + bytes(8))  # a chunk's padding may follow
    assert content.ids == ids
    rows = [(*one[:3], one[4] << 32 | one[3], one[5]) for one in entries]
    assert sorted(rows_of([content], 0)) == sorted(rows)
    if rows:
        assert content.last() == rows[-1][2]
        assert [tuple(row) for row in table_of([content], 0).tolist()] == rows_of([content], 0)


@given(
    runs=st.lists(
        st.lists(st.tuples(U64, U64, U64, U32, U32, U64), min_size=1, max_size=9), max_size=5
    ),
    horizon=U64,
)
def test_many_entries_are_loaded_as_few_are(runs, horizon):
    packed = [b"".join([ENTRY.pack(*one) for one in run]) for run in runs]
    contents = [dedup_runs.decode(dedup_runs.encode(one, ())) for one in packed]
    if contents:
        table = table_of(contents, horizon)
        assert [tuple(row) for row in table.tolist()] == rows_of(contents, horizon)
    assert [row for row in rows_of(contents, 0) if row.position >= horizon] == rows_of(
        contents, horizon
    )


def test_entries_that_follow_one_another_take_few_bytes():
    rng = random.Random(1)
    packed = b"".join(
        [
            ENTRY.pack(77, at, 248 * at, rng.randrange(2**32), 1, 10**15 + 25 * at)
            for at in range(RUN_ENTRIES)
        ]
    )
    assert len(dedup_runs.encode(packed, ())) < 5 * RUN_ENTRIES


def test_the_largest_run_is_below_64_kib():
    noise = random.Random(2).randbytes(dedup_runs.RUN_BYTES)
    assert len(dedup_runs.encode(noise, ())) < 64 << 10
    ids = [bytes(DEDUP_ID.size)] * dedup_runs.RUN_IDS
    assert len(dedup_runs.encode(b"", ids)) < 64 << 10


@pytest.mark.parametrize("at", [0, 416, 420])
def test_a_damaged_run_is_refused(at):
    packed = b"".join([ENTRY.pack(7, n, n * 8, n, 1, n) for n in range(100)])
    run = bytearray(dedup_runs.encode(packed, ()))
    run[at] ^= 0x7E
    with pytest.raises(CorruptJournal):
        dedup_runs.decode(bytes(run))


def stored(dedup: Dedup) -> object:
    producers = {
        number: (one.next, one.forgotten, one.last_us, list(one.firsts), list(one.positions))
        for number, one in dedup.producers.items()
    }
    return producers, dedup.ids, dedup.horizon, len(dedup)


@pytest.mark.parametrize("table_from", [0, 10**9])
@pytest.mark.parametrize("seed", range(6))
def test_runs_of_many_sets_load_to_what_was_there(seed, table_from, monkeypatch):
    """Several runs a set, producers in disorder, buckets that go: a restart sees the same."""
    monkeypatch.setattr("ternmq.broker.dedup.dedup.TABLE_FROM", table_from)
    rng = random.Random(seed)
    limits = Limits(dedup_window_us=20 * SECOND_US, send_timeout_us=SECOND_US, dedup_batches=9000)
    dedup = Dedup(limits)
    payloads: dict[tuple[int, int], bytes] = {}
    sequences = dict.fromkeys([3, 5, 2**63 + 9, 64 + 3], 0)
    gaps: list[tuple[int, int]] = []
    now = 10**15
    position = begin = 0
    for _ in range(3):
        for _ in range(4000):
            now += rng.randrange(2000)
            position += 8 * rng.randrange(10, 60)
            number = rng.choice(list(sequences))
            first = sequences[number]
            if rng.random() < 0.01:
                gaps.append((number, first))  # sent later: out of order
                first += 1
            sequences[number] = first + 1
            if gaps and rng.random() < 0.01:
                number, first = gaps.pop()
            dedup.add(position, now, number, first, 1, rng.randrange(2**32))
            if rng.random() < 0.01:
                dedup.add_id(1, rng.randrange(2**128), 9, position, 0, now)
        begin = position = position + 48
        dedup.cut(begin)
        for key in sorted(dedup.runs):
            if key not in payloads:
                payloads[key] = dedup.encode_run(*key)
                dedup.run_written(*key)
    assert max(part for _, part in dedup.runs) > 1
    kept = {key: payloads[key] for key in dedup.runs}
    forgotten = [dedup.forgotten(page) for page in dedup.pages()]
    again = Dedup(limits)
    for page in forgotten:
        again.load_forgotten(page)
    for (at, part), payload in sorted(kept.items(), key=lambda one: one[0][::-1]):  # by key
        again.load_run(at, part, payload)
    again.cut_horizon = dedup.cut_horizon
    again.loaded()
    again.finish_load()
    dedup.sweep(now, 1000)
    again.sweep(now, 1000)
    assert stored(again) == stored(dedup)
    assert again.runs.keys() == dedup.runs.keys()


@pytest.mark.parametrize("table_from", [0, 10**9])
def test_a_producer_that_was_idle_begins_again_after_a_restart_too(table_from, monkeypatch):
    """A running broker forgets it: the same sequences are those of new batches."""
    monkeypatch.setattr("ternmq.broker.dedup.dedup.TABLE_FROM", table_from)
    limits = Limits(dedup_window_us=100 * SECOND_US, producer_idle_us=10 * SECOND_US)
    dedup = Dedup(limits)
    # (second, producer, first sequence): 3 is idle twice, 4 never, 5 sends a little late.
    batches = [(1, 3, 0), (1, 4, 0), (2, 5, 0), (11, 4, 1), (12, 3, 0), (12, 5, 1), (21, 4, 2)]
    batches += [(23, 3, 0), (24, 3, 1), (24, 5, 0)]
    for at, (second, number, first) in enumerate(batches):
        dedup.add(64 * at, second * SECOND_US, number, first, 1, crc=at)
    dedup.cut(1000)
    again = Dedup(limits)
    again.cut_horizon = dedup.cut_horizon
    for key in dedup.runs:
        again.load_run(*key, dedup.encode_run(*key))
    again.loaded()
    again.finish_load()
    assert stored(again) == stored(dedup)
    assert [list(again.producers[number].firsts) for number in (3, 4, 5)] == [
        [0, 1],
        [0, 1, 2],
        [0],
    ]
    found = again.find(3, 0, 1, crc=7, now_us=25 * SECOND_US)
    assert found is not None
    assert found.position == 64 * 7
