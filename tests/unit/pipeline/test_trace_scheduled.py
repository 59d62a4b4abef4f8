"""The table of scheduled messages against a plain reference, however the journal is cut."""

from __future__ import annotations

import json
import random
import shutil
from dataclasses import replace

import pytest

pytest.importorskip("deltalake", reason="needs the extra spark")

import pyarrow as pa

from ternmq.pipeline.tables.migration import migrate
from ternmq.pipeline.tables.table import Table
from ternmq.pipeline.trace import entryfiles
from ternmq.pipeline.trace.commits import tells
from ternmq.pipeline.trace.schema import SCHEDULED, TRACE
from tests.unit.pipeline.due_streams import DAY, DueStream, of_scheduled
from tests.unit.pipeline.test_trace import fold, passing
from tests.unit.pipeline.trace_reference import of_table
from tests.unit.pipeline.trace_streams import NOON, table

TOPIC = {"part": 0, "topic": "orders", "topic_number": 1}
SENT = {"producer_id": 7, "born_time": NOON}


def rows(tables):
    return of_scheduled(Table.open(tables, SCHEDULED, create=False).read())


@pytest.mark.row("R7")
@pytest.mark.parametrize("seed", range(10))
def test_any_life_folded_in_any_pieces_is_as_the_reference_says(tables, seed, monkeypatch):
    monkeypatch.setattr(entryfiles, "OPEN_ROWS", (1 << 14, 4)[seed % 2])
    monkeypatch.setattr(entryfiles, "OVER_ROWS", (1 << 18, 9)[seed // 2 % 2])
    chance = random.Random(seed)
    stream = DueStream(chance)
    for _ in range(200):
        stream.step()
    positions = sorted({one["position"] for one in stream.events})
    cuts = chance.sample(positions, chance.choice((0, 3, 12)))
    one = fold(tables, stream.events, cuts)
    assert rows(tables) == stream.told()
    assert of_table(one.trace.read()) == stream.reference.told()
    states = {row["state"] for row in stream.told().values()}
    assert {"delivered", "pending", "cancelled"} <= states
    for file in one.scheduled.files():
        assert file.low["open"] == file.high["open"]


def scheduled(position, entry, count, due, **columns):
    return TOPIC | SENT | {
        "position": position, "time": NOON, "kind": "scheduled", "entry": entry, "rows": count,
        "due": due, "sequence": entry, "bytes": 5, **columns,
    }  # fmt: skip


def stored(position, entry, count, due, offset, **columns):
    return TOPIC | SENT | {
        "position": position, "time": due + 10, "kind": "stored", "entry": entry, "rows": count,
        "due": due, "sequence": entry, "bytes": 5, "queue": 0, "start": offset,
        "stop": offset + count, **columns,
    }  # fmt: skip


def test_a_message_keeps_its_id_in_the_trace(tables):
    fold(tables, [scheduled(8, 1, 2, NOON + 5), stored(16, 1, 2, NOON + 5, 0, refers_to=8)])
    found = Table.open(tables, TRACE, create=False).read()
    assert found["message_id"].to_pylist() == [f"{7:016x}:{n}" for n in (1, 2)]
    assert {row["delivered"] for row in rows(tables).values()} == {
        (NOON + 15, 0, 0), (NOON + 15, 0, 1),
    }  # fmt: skip


def test_what_was_scheduled_before_the_journal_begins_is_known_from_its_copy(tables):
    detail = json.dumps({"scheduled_us": NOON - 7, "application_ids": ["a", None]})
    copied = scheduled(64, 5, 2, NOON + DAY, kind="copied", refers_to=8, detail=detail)
    again = scheduled(96, 5, 1, NOON + DAY, kind="copied", refers_to=8, detail=detail)
    gone = stored(128, 9, 1, NOON + DAY, 0) | {"producer_id": 9}
    events = [copied, again, gone, TOPIC | {
        "position": 160, "time": NOON, "kind": "cancelled", "entry": 11, "rows": 1,
        "due": NOON + DAY, "cause": "client",
    }]  # fmt: skip
    one = passing(tables)
    one.fold(64, 96, table(events[:1]))
    one.fold(96, 161, table(events[1:]))
    found = rows(tables)
    assert found[5]["scheduled_time"] == NOON - 7
    assert (found[5]["position"], found[5]["application_id"]) == (8, "a")
    assert found[6]["application_id"] is None
    assert (found[9]["state"], found[9]["sent"], found[9]["scheduled_time"]) == (
        "delivered", (9, 9, NOON), None,
    )  # fmt: skip
    assert (found[11]["state"], found[11]["sent"]) == ("cancelled", None)


def test_a_copy_of_what_is_known_is_not_looked_up(tables, monkeypatch):
    detail = '{"scheduled_us": 5}'
    copied = scheduled(64, 1, 1, NOON + DAY, kind="copied", refers_to=8, detail=detail)
    one = fold(tables, [scheduled(8, 1, 1, NOON + DAY)])
    before = {file.path for file in one.scheduled.files()}
    with monkeypatch.context() as patch:
        patch.setattr(entryfiles, "_fold_day", None)
        one.fold(9, 65, table([copied]))
    assert {file.path for file in one.scheduled.files()} == before
    assert rows(tables)[1]["scheduled_time"] == NOON


def test_only_files_are_written_again_of_the_time_that_is_due(tables, monkeypatch):
    monkeypatch.setattr(entryfiles, "OPEN_ROWS", 8)
    events = [scheduled(8 * n, n, 1, NOON + 1000 * (n * 7 % 64)) for n in range(1, 65)]
    one = fold(tables, events)
    files = {file.path: file for file in one.scheduled.files()}
    assert {file.rows for file in files.values()} == {8}
    n = next(n for n in range(1, 65) if n * 7 % 64 == 0)
    one.fold(513, 1001, table([stored(1000, n, 1, NOON, 0)]))
    after = {file.path for file in one.scheduled.files()}
    assert len(files.keys() - after) == 1
    assert rows(tables)[n]["state"] == "delivered"


def test_a_day_has_few_files_however_many_passes_there_are(tables):
    one = passing(tables)
    position = 0
    for n in range(1, 33):
        begin, position = position, 8 * n + 1
        one.fold(begin, position, table([scheduled(8 * n, n, 1, NOON + DAY)]))
    assert len(one.scheduled.files()) < 7
    assert len(rows(tables)) == 32


def test_a_pass_that_broke_off_before_its_last_commit_is_repeated(tables):
    events = [scheduled(8, 1, 2, NOON + 5), stored(16, 1, 1, NOON + 5, 0)]
    one = passing(tables)
    known = one.known(0)
    files = one._entries(0, table(events))
    one.scheduled.commit(files.add, files.remove, {"trace": 17, "trace/since": 0})
    assert known.position == -1
    events.append(stored(24, 2, 1, NOON + 5, 1))
    one.fold(0, 25, table(events))
    assert [row["state"] for row in rows(tables).values()] == ["delivered"] * 2


def test_only_what_is_scheduled_is_enough_to_fold(tables):
    assert tells(table([scheduled(8, 1, 1, NOON)]))
    assert not tells(table([TOPIC | {"position": 8, "time": NOON, "kind": "counts"}]))


def test_tables_of_before_get_the_new_one(tables):
    """The trace went on for long before there was a table of scheduled messages."""
    one = fold(tables, [scheduled(8, 1, 1, NOON + DAY)])
    shutil.rmtree(one.scheduled.folder.uri)
    one = passing(tables)
    assert (one.position, one.scheduled.remembered("trace")) == (9, None)
    detail = '{"scheduled_us": 5}'
    one.fold(9, 65, table([scheduled(64, 1, 1, NOON + DAY, kind="copied", refers_to=8,
                                     detail=detail)]))  # fmt: skip
    assert one.scheduled.remembered("trace/since") == 9
    assert rows(tables)[1]["scheduled_time"] == 5


def prepared(position, count, **columns):
    return TOPIC | SENT | {
        "position": position, "time": NOON, "kind": "prepared", "rows": count, "sequence": 1,
        "bytes": 5, "transaction": 3, **columns,
    }  # fmt: skip


def by_commit(position, refers_to, entry=1):
    """Return the events of a commit that schedules two rows for different times."""
    told = TOPIC | {"position": position, "time": NOON + 9, "refers_to": refers_to,
                    "transaction": 3}  # fmt: skip
    return [
        told | {"kind": "resolved", "decision": "scheduled", "entry": entry, "rows": 2},
        *(
            told | {"part": 1 + row, "kind": "scheduled", "entry": entry + row, "rows": 1,
                    "due": NOON + DAY * (1 + row), "detail": json.dumps({"first_row": row})}
            for row in range(2)
        ),
    ]  # fmt: skip


@pytest.mark.parametrize("cuts", [(), (9,), (17,), (9, 17)])
def test_what_a_transaction_schedules_has_the_sender_of_what_was_prepared(tables, cuts):
    events = [prepared(8, 2), prepared(16, 2, refers_to=8), *by_commit(24, 16)]
    one = fold(tables, events, list(cuts))
    assert [(row["sent"], row["transaction"], row["position"], row["scheduled_time"])
            for row in rows(tables).values()] == [
        ((7, 1, NOON), 3, 24, NOON + 9), ((7, 2, NOON), 3, 24, NOON + 9),
    ]  # fmt: skip
    one.fold(25, 26, table([]))
    one.fold(26, 27, table([]))
    assert one.known(27).prepared == {}, "what is decided is forgotten"


def test_what_was_prepared_before_the_journal_begins_is_known_when_it_is_delivered(tables):
    one = fold(tables, by_commit(24, 16))
    assert {row["sent"] for row in rows(tables).values()} == {None}
    one.fold(25, 33, table([stored(32, 1, 1, NOON + DAY, 0, refers_to=16)]))
    assert [(row["sent"], row["transaction"]) for row in rows(tables).values()] == [
        ((7, 1, NOON), 3), (None, 3),
    ]  # fmt: skip


def test_a_table_of_version_1_is_read_and_goes_on(tables):
    columns = tuple(one for one in SCHEDULED.columns if one.name != "transaction")
    old = replace(SCHEDULED, version=1, columns=columns)
    made = Table.open(tables, old)
    told = rows_of_version_1(tables)
    made.commit(made.stage(told.select(old.schema.names)), remember={"trace": 9, "trace/since": 0})
    table_ = Table.open(tables, SCHEDULED, create=False)
    assert table_.outdated
    assert [row["transaction"] for row in rows(tables).values()] == [None, None]
    assert migrate(table_, {})
    fold(tables, [scheduled(8, 1, 2, NOON + DAY), *by_commit(16, 4, entry=3)])
    assert [row["transaction"] for row in rows(tables).values()] == [None, None, 3, 3]


def rows_of_version_1(tables):
    """Return rows of a table that was made elsewhere, as version 1 had them."""
    elsewhere = tables.inside("elsewhere")
    found = fold(elsewhere, [scheduled(8, 1, 2, NOON + DAY)]).scheduled.read()
    at = found.schema.get_field_index("schema_version")
    return found.set_column(at, "schema_version", pa.array([1] * len(found), pa.int32()))
