"""The fold of the trace against the plain reference, however the journal is cut into pieces."""

from __future__ import annotations

import itertools
import random

import pytest

pytest.importorskip("deltalake", reason="needs the extra spark")

from ternmq.pipeline.tables.table import Table
from ternmq.pipeline.trace import blocks, sharing
from ternmq.pipeline.trace.commits import TracePass
from tests.unit.pipeline.trace_reference import of_table
from tests.unit.pipeline.trace_streams import NOON, Stream, table


def passing(tables):
    return TracePass(lambda spec: Table.open(tables, spec))


def fold(tables, events, cuts=(), last=None):
    """Fold events, cut at some places between records; return the pass."""
    one = passing(tables)
    bounds = [0, *sorted(cuts), last or events[-1]["position"] + 1]
    for begin, stop in itertools.pairwise(bounds):
        some = [event for event in events if begin <= event["position"] < stop]
        one.fold(begin, stop, table(some))
    return one


def same(found, wanted):
    found, wanted = of_table(found), wanted.told()
    assert found.keys() == wanted.keys()
    for key, row in wanted.items():
        assert found[key] == row, key


@pytest.mark.row("R7")
@pytest.mark.parametrize("seed", range(18))
def test_any_life_folded_in_any_pieces_is_as_the_reference_says(tables, seed, monkeypatch):
    shared = (0, 30, 1024)[seed % 3]
    monkeypatch.setattr(blocks, "BLOCK_BITS", (16, 3)[seed % 2])
    monkeypatch.setattr(blocks, "OPEN_BITS", (14, 2)[seed % 2])
    monkeypatch.setattr(blocks, "MOST_SMALL", 3)
    monkeypatch.setattr(sharing, "SMALL_QUEUE", shared)
    monkeypatch.setattr(sharing, "OPEN_ROWS", (4096, 7)[seed // 2 % 2])
    monkeypatch.setattr(sharing, "QUIET_ROWS", (65_536, 9)[seed // 4 % 2])
    chance = random.Random(seed)
    stream = Stream(chance)
    for _ in range(150):
        stream.step()
    positions = sorted({one["position"] for one in stream.events})
    cuts = chance.sample(positions, chance.randrange(4 if not shared else 12))
    one = fold(tables, stream.events, cuts)
    same(one.trace.read(), stream.reference)
    for file in one.trace.files():
        if not sharing.is_shared(file):
            low, high = file.low["offset"], file.high["offset"]
            assert low >> blocks.BLOCK_BITS == high >> blocks.BLOCK_BITS
    assert any(map(sharing.is_shared, one.trace.files())) or shared < 1024
    assert not any(map(sharing.is_shared, one.trace.files())) or shared


@pytest.mark.row("R7")
def test_only_files_are_written_anew_whose_messages_moved_on(tables, monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK_BITS", 3)
    monkeypatch.setattr(blocks, "OPEN_BITS", 3)
    told = {"part": 0, "topic": "orders", "topic_number": 1, "queue": 0}
    group = told | {"group": "g", "group_number": 5, "attempt": 1, "deliveries": 1}
    events = [
        told | {"position": 8, "time": NOON, "kind": "config", "name": "subscribed",
                "detail": '{"group": 5, "group_name": "g", "topic": 1, "cursors": [0]}'},
        told | {"position": 16, "time": NOON, "kind": "stored", "start": 0, "stop": 40, "rows": 40,
                "bytes": 5, "producer_id": 1, "sequence": 1, "born_time": NOON},
        group | {"position": 24, "time": NOON, "kind": "pulled", "start": 9, "stop": 12, "rows": 3},
    ]  # fmt: skip
    one = fold(tables, events[:2])
    before = {file.path for file in one.trace.files()}
    assert len(before) == 5
    assert one.fold(17, 32, table(events[2:])) == 8
    after = {file.path for file in one.trace.files()}
    assert len(after) == 5
    assert len(before & after) == 4


@pytest.mark.row("R7")
def test_of_messages_stored_before_the_journal_begins_the_facts_are_kept(tables):
    told = {"part": 0, "topic": "orders", "topic_number": 1, "queue": 0, "group": "g"}
    run = told | {"group_number": 5, "start": 70, "stop": 72, "rows": 2, "attempt": 2,
                  "deliveries": 2}  # fmt: skip
    events = [
        run | {"position": 8, "time": NOON, "kind": "pulled", "client": "c", "app": "a"},
        run | {"position": 16, "time": NOON + 7, "kind": "settled", "outcome": "done",
               "cause": "consumer", "round": 0},
        told | {"position": 24, "time": NOON + 9, "kind": "moved", "start": 60, "stop": 80,
                "rows": 20, "producer_id": 9, "sequence": 100, "born_time": NOON - 50,
                "group": None},
    ]  # fmt: skip
    one = fold(tables, events, cuts=[16, 24])
    first, second = one.trace.read().to_pylist()
    assert (first["offset"], second["offset"]) == (70, 71)
    assert first["message_id"] == f"{9:016x}:{110:x}"
    assert (first["state"], first["stored_time"], first["hour"]) == ("done", None, "2026-11-21T12")
    assert (first["end_to_end_us"], first["handling_us"], first["attempts"]) == (57, 7, 2)


def test_a_row_that_fails_for_years_keeps_its_newest_failures(tables):
    told = {"part": 0, "topic": "orders", "topic_number": 1, "queue": 0, "group": "g",
            "group_number": 5, "start": 0, "stop": 1, "rows": 1, "deliveries": 1}  # fmt: skip
    events = [
        told | {"position": 8 * n, "time": NOON + n, "kind": "settled", "outcome": "retry",
                "cause": "consumer", "attempt": n, "reason": f"no {n}", "round": 0}
        for n in range(1, 121)
    ]  # fmt: skip
    one = fold(tables, events, cuts=[8 * 70])
    (row,) = one.trace.read().to_pylist()
    assert [failure["attempt"] for failure in row["failures"]] == list(range(71, 121))
    assert (row["last_reason"], row["attempts"]) == ("no 120", 120)


@pytest.mark.row("R7")
def test_groups_of_the_pipeline_have_no_rows_and_those_of_a_deleted_topic_are_over(tables):
    told = {"part": 0, "topic": "orders", "topic_number": 1}
    events = [
        told | {"position": 8 * n, "time": NOON, "kind": "config", "name": "subscribed",
                "group": name, "group_number": n,
                "detail": f'{{"group": {n}, "group_name": "{name}", "topic": 1, "cursors": [0]}}'}
        for n, name in ((1, "spark.archive"), (2, "mail"))
    ] + [
        told | {"position": 24, "time": NOON, "kind": "stored", "queue": 0, "start": 0, "stop": 2,
                "rows": 2, "bytes": 5, "producer_id": 1, "sequence": 1, "born_time": NOON},
        told | {"position": 32, "time": NOON, "kind": "cursor", "queue": 0, "cause": "commit",
                "group": "spark.archive", "group_number": 1, "cursor": 2, "round": 0},
        told | {"position": 40, "time": NOON + 9, "kind": "config", "name": "topic-deleted",
                "detail": '{"number": 1}'},
    ]  # fmt: skip
    one = fold(tables, events, cuts=[30])
    rows = one.trace.read().to_pylist()
    assert [(row["group"], row["state"], row["open"]) for row in rows] == [
        ("mail", "skipped", 0)
    ] * 2
