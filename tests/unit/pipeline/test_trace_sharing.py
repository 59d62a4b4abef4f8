"""Files of the trace that many small queues share."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

pytest.importorskip("deltalake", reason="needs the extra spark")

from deltalake import DeltaTable

from ternmq.model.errors import TableConflict
from ternmq.pipeline.tables.migration import migrate
from ternmq.pipeline.tables.retention import expire
from ternmq.pipeline.tables.table import Table
from ternmq.pipeline.trace import blocks, commits, queue, sharing
from ternmq.pipeline.trace.commits import TracePass
from ternmq.pipeline.trace.lookup import TraceLookup
from ternmq.pipeline.trace.schema import TRACE
from tests.unit.pipeline.test_trace_cells import by_cells
from tests.unit.pipeline.trace_reference import Reference, of_table
from tests.unit.pipeline.trace_streams import NOON, table

HOUR = 3_600_000_000


class Journal:
    """Facts about many queues, and what the reference makes of them."""

    def __init__(self):
        self.position = 8
        self.time = NOON
        self.events = []
        self.reference = Reference()
        self.ends = {}
        self.cut = 0

    def put(self, topic, **told):
        self.position += 8
        event = {
            "position": self.position, "part": 0, "time": self.time, "topic": f"topic-{topic}",
            "topic_number": topic, "app": None, "client": None, **told,
        }  # fmt: skip
        if "start" in told:
            event["rows"] = told["stop"] - told["start"]
        self.events.append(event)
        self.reference.apply(event)

    def group(self, topic, cursor=0, ended=False):
        told = f'{{"group": {topic}, "group_name": "g", "topic": {topic}, "cursors": [{cursor}]}}'
        name = "unsubscribed" if ended else "subscribed"
        self.put(topic, kind="config", name=name, detail=told)

    def delete(self, topic):
        self.put(topic, kind="config", name="topic-deleted", detail=f'{{"number": {topic}}}')
        for key, row in self.reference.rows.items():
            if key[0] == topic and row["state"] in {"stored", "leased", "waiting"}:
                row |= {"state": "skipped", "state_time": self.time}

    def stored(self, topic, count):
        start = self.ends.get(topic, 0)
        self.ends[topic] = start + count
        self.put(
            topic, kind="stored", queue=0, start=start, stop=start + count, bytes=5, producer_id=1,
            sequence=1 + start, born_time=self.time,
        )  # fmt: skip

    def of_group(self, kind, topic, start, stop, **told):
        self.put(
            topic, kind=kind, queue=0, group="g", group_number=topic, start=start, stop=stop,
            deliveries=1, **{"attempt": 1, "round": 0, **told},
        )  # fmt: skip

    def done(self, topic, start, stop):
        self.of_group("pulled", topic, start, stop)
        self.of_group("settled", topic, start, stop, outcome="done")

    def piece(self):
        """Return begin, end and events of the next piece."""
        begin, stop = self.cut, self.position + 1
        self.cut = stop
        return begin, stop, [one for one in self.events if begin <= one["position"] < stop]


@pytest.fixture
def journal():
    return Journal()


@pytest.fixture
def one(tables):
    return TracePass(lambda spec: Table.open(tables, spec))


def fold(one, journal):
    begin, stop, events = journal.piece()
    return one.fold(begin, stop, table(events))


def same(one, journal):
    found, wanted = of_table(one.trace.read()), journal.reference.told()
    assert found.keys() == wanted.keys()
    for key, row in wanted.items():
        assert found[key] == row, key


def topics_with_open_rows(one, journal, count=20, rows=5):
    """Store some messages of many topics; return the pass's only file."""
    for topic in range(1, count + 1):
        journal.group(topic)
        journal.stored(topic, rows)
    fold(one, journal)
    (file,) = one.trace.files()
    assert sharing.is_shared(file)
    return file


@pytest.mark.row("R7")
def test_many_small_queues_make_few_files_and_write_what_changed(one, journal):
    queues, written, changed = 100, 0, 0
    at = dict.fromkeys(range(1, queues + 1), 0)
    for piece in range(12):
        before = {file.path for file in one.trace.files()}
        for topic in at:
            if not piece:
                journal.group(topic)
            journal.stored(topic, 5 + topic % 3)
            done = journal.ends[topic] - 2
            journal.done(topic, at[topic], done)
            changed += journal.ends[topic] - at[topic]
            at[topic] = done
        written += fold(one, journal)
        assert len({file.path for file in one.trace.files()} - before) <= 3
    assert written <= 1.1 * changed
    assert len(one.trace.files()) <= 12 + 2
    same(one, journal)


@pytest.mark.row("R7")
def test_a_queue_that_wakes_up_parts_from_those_that_are_idle(one, journal):
    topics_with_open_rows(one, journal, count=200)
    journal.done(7, 0, 2)
    assert fold(one, journal) == 200 * 5
    for at in range(2, 5):
        journal.done(7, at, at + 1)
        assert fold(one, journal) == 5 - at  # its own open rows, nobody else's
    same(one, journal)


@pytest.mark.row("R7")
def test_a_shared_file_of_open_rows_is_never_larger_than_a_block(one, journal, monkeypatch):
    assert sharing.OPEN_ROWS < 1 << blocks.OPEN_BITS
    monkeypatch.setattr(sharing, "OPEN_ROWS", 60)
    for topic in range(1, 31):
        journal.group(topic)
        journal.stored(topic, 10)
    assert fold(one, journal) == 300
    assert [file.rows for file in one.trace.files()] == [60] * 5
    journal.done(3, 0, 10)
    assert fold(one, journal) == 60
    same(one, journal)


@pytest.mark.row("R7")
def test_a_large_queue_has_files_of_its_own(one, journal):
    for topic in range(1, 11):
        journal.stored(topic, 2000 if topic == 4 else 3)
    fold(one, journal)
    found = {sharing.is_shared(file): file.rows for file in one.trace.files()}
    assert found == {True: 27, False: 2000}


@pytest.mark.row("R7")
def test_small_shared_files_are_joined_and_no_row_often(one, journal):
    written, rounds = 0, 70
    for _ in range(rounds):
        for topic in (1, 2, 3):
            journal.stored(topic, 2)
        written += fold(one, journal)
    assert len(one.trace.files()) <= 4 + 15
    assert written <= 2 * 6 * rounds
    same(one, journal)


@pytest.mark.row("R7")
@pytest.mark.parametrize("buckets", [0, 1, 3])
def test_rows_that_were_over_are_found_when_they_change(tables, journal, buckets):
    """A replay, by one worker or by several that all find their rows in the same file."""

    def folded():
        if not buckets:
            return fold(TracePass(lambda spec: Table.open(tables, spec)), journal)
        begin, stop, events = journal.piece()
        return by_cells(tables, begin, stop, [[events]], buckets)

    for topic in range(1, 7):
        journal.group(topic)
        journal.stored(topic, 4)
        journal.done(topic, 0, 4)
    folded()
    journal.time += 1000
    for topic in (2, 3, 5):
        journal.of_group("replayed", topic, 1, 3, round=1)
    folded()
    one = TracePass(lambda spec: Table.open(tables, spec))
    same(one, journal)
    assert sorted(one.trace.read()["open"].to_pylist()) == [False] * 18 + [True] * 6
    for topic in (2, 3, 5):
        journal.put(
            topic, kind="cursor", queue=0, group="g", group_number=topic, cause="reset", cursor=0,
            round=2,
        )  # fmt: skip
    folded()
    same(TracePass(lambda spec: Table.open(tables, spec)), journal)


@pytest.mark.row("R7")
@pytest.mark.parametrize("buckets", [0, 2])
def test_a_group_that_begins_late_or_ends_and_a_topic_that_is_deleted(tables, journal, buckets):
    def folded():
        if buckets:
            begin, stop, events = journal.piece()
            by_cells(tables, begin, stop, [[events]], buckets)
        else:
            fold(TracePass(lambda spec: Table.open(tables, spec)), journal)

    for topic in range(1, 7):
        if topic > 2:
            journal.group(topic)
        journal.stored(topic, 4)
    folded()
    journal.time += 1000
    journal.group(1, cursor=2)
    journal.group(4, ended=True)
    journal.delete(5)
    folded()
    one = TracePass(lambda spec: Table.open(tables, spec))
    same(one, journal)
    states = {(row["topic_number"], row["state"]) for row in one.trace.read().to_pylist()}
    assert {(4, "skipped"), (5, "skipped"), (6, "stored"), (2, "stored")} <= states


@pytest.mark.row("R7")
def test_a_crash_between_files_and_commit_changes_nothing(one, tables, journal, monkeypatch):
    topics_with_open_rows(one, journal)
    before = one.trace.read().to_pylist()
    journal.done(3, 0, 2)
    begin, stop, events = journal.piece()
    commit = Table.commit

    def broken(self, *given, **more):
        if self.spec.name == "trace":
            raise OSError("no space left on device")
        commit(self, *given, **more)

    with monkeypatch.context() as patch:
        patch.setattr(Table, "commit", broken)
        with pytest.raises(OSError, match="no space"):
            one.fold(begin, stop, table(events))
    again = TracePass(lambda spec: Table.open(tables, spec))
    assert again.trace.read().to_pylist() == before
    again.fold(begin, stop, table(events))
    same(again, journal)


@pytest.mark.row("R7")
def test_another_run_that_replaced_the_file_first(one, tables, journal):
    topics_with_open_rows(one, journal)
    other = TracePass(lambda spec: Table.open(tables, spec))
    journal.done(3, 0, 2)
    begin, stop, events = journal.piece()
    other.fold(begin, stop, table(events))
    with pytest.raises(TableConflict):
        one.fold(begin, stop, table(events))
    same(other, journal)


@pytest.mark.row("R7")
def test_a_file_that_left_the_table_cannot_be_replaced(one, journal):
    file = topics_with_open_rows(one, journal)
    rows = one.trace.read_files([file]).slice(0, 1)
    gone = rows.append_column(sharing.SHARED.field("file"), [[file.path]])
    one.trace.commit(remove=[file])
    with pytest.raises(TableConflict, match="do not belong to it any more"):
        sharing.settle(one.trace, gone.select(sharing.DROPPED.names), set())


@pytest.mark.row("R7", "R6")
def test_old_hours_leave_and_the_others_go_on(one, journal):
    topics_with_open_rows(one, journal)
    journal.time += 48 * HOUR
    for topic in range(1, 21):
        journal.stored(topic, 1)
        journal.of_group("pulled", topic, 5, 6)
    fold(one, journal)
    left = expire(one.trace, journal.time, 0)
    assert [file.rows for file in left] == [100]
    one.refresh()
    journal.done(2, 0, 6)  # rows that left are made again, from what the facts tell
    journal.done(3, 5, 6)
    fold(one, journal)
    found = {key[:3]: row["state"] for key, row in of_table(one.trace.read()).items()}
    assert len(found) == 20 + 5
    assert {key for key, state in found.items() if state == "done"} == {
        *itertools.product([2], [0], range(6)), (3, 0, 5),
    }  # fmt: skip


@pytest.mark.row("R7")
def test_rows_that_no_fact_is_about_are_not_read(one, journal, monkeypatch):
    """Rows of messages that nobody receives may be open for years."""
    for _ in range(3):
        for topic in range(1, 7):
            if topic > 3 and not journal.ends.get(topic):
                journal.group(topic)
            journal.stored(topic, 3)
            if topic > 3:
                journal.done(topic, journal.ends[topic] - 3, journal.ends[topic])
        fold(one, journal)
    assert all(map(sharing.is_quiet, one.trace.files()))
    read = []
    real = Table.read_files

    def watched(self, files, columns=None):
        files = list(files)
        if self.spec is TRACE:
            read.extend(files)
        return real(self, files, columns)

    monkeypatch.setattr(Table, "read_files", watched)
    for topic in range(1, 7):
        journal.stored(topic, 3)
        if topic > 3:
            journal.done(topic, journal.ends[topic] - 3, journal.ends[topic])
    fold(one, journal)
    assert not read
    monkeypatch.undo()
    same(one, journal)


@pytest.fixture
def read(monkeypatch):
    """Return a list that collects the files of the trace whose whole rows are read."""
    found = []
    real = Table.read_files

    def watched(self, files, columns=None):
        files = list(files)
        if self.spec is TRACE and columns is None:
            found.extend(files)
        return real(self, files, columns)

    monkeypatch.setattr(Table, "read_files", watched)
    return found


@pytest.mark.row("R7")
def test_a_backlog_is_not_read_again_in_each_pass(one, journal, read):
    """Groups are away for days: a pass must not take longer each time."""
    for piece in range(4):
        for topic in range(1, 7):
            if not piece:
                journal.group(topic)
            journal.stored(topic, 5)
        fold(one, journal)
    assert not read
    journal.done(3, 6, 8)
    fold(one, journal)
    assert len({file.path for file in read}) == 1
    same(one, journal)


@pytest.mark.row("R7")
@pytest.mark.parametrize("buckets", [0, 1])
def test_a_file_is_not_read_once_for_each_of_its_queues(
    tables, journal, read, monkeypatch, buckets
):
    monkeypatch.setattr(blocks, "MOST_SMALL", 1000)
    for _ in range(20):
        for topic in range(1, 31):
            journal.stored(topic, 2)
        fold(TracePass(lambda spec: Table.open(tables, spec)), journal)
    for topic in range(1, 31):
        journal.group(topic)
    one = TracePass(lambda spec: Table.open(tables, spec))
    assert len(one.trace.files()) == 20
    read.clear()
    begin, stop, events = journal.piece()
    if buckets:
        by_cells(tables, begin, stop, [[events]], buckets)
    else:
        one.fold(begin, stop, table(events))
    assert len(read) <= 20 + 20  # to fold the rows, and to see which of them stay
    same(TracePass(lambda spec: Table.open(tables, spec)), journal)


@pytest.mark.row("R7")
def test_rows_of_many_small_queues_are_written_before_they_fill_the_memory(
    one, journal, monkeypatch
):
    monkeypatch.setattr(sharing, "AT_ONCE_ROWS", 50)
    waiting, most = 0, 0
    real = queue.fold_queue

    def counted(*given):
        nonlocal waiting, most
        done = real(*given)
        assert done.small is not None
        waiting += len(done.small.rows)
        most = max(most, waiting)
        return done

    share = sharing.share

    def shared(table, small):
        nonlocal waiting
        waiting = 0
        return share(table, small)

    monkeypatch.setattr(commits, "fold_queue", counted)
    monkeypatch.setattr(sharing, "share", shared)
    for topic in range(1, 31):
        journal.group(topic)
        journal.stored(topic, 10)
    fold(one, journal)
    assert most == 50
    assert [file.rows for file in one.trace.files()] == [50] * 6
    for topic in range(1, 31):
        journal.done(topic, 2, 4)
    fold(one, journal)
    same(one, journal)


@pytest.mark.row("R7")
def test_a_shared_file_that_another_program_has_written_again_in_another_order(one, journal):
    file = topics_with_open_rows(one, journal)
    rows = one.trace.read_files([file])
    (mixed,) = one.trace.stage(rows.take([*range(1, len(rows), 2), *range(0, len(rows), 2)]))
    one.trace.commit([mixed], [file], changes=False)
    journal.done(7, 1, 3)
    journal.done(12, 0, 5)
    fold(one, journal)
    same(one, journal)


@pytest.mark.row("R7")
@pytest.mark.parametrize("consumed", [True, False])
def test_shared_files_of_a_few_hundred_rows_are_joined_too(one, journal, monkeypatch, consumed):
    monkeypatch.setattr(sharing, "QUIET_ROWS", 4096)
    written, rounds, topics = 0, 70, 3
    for _ in range(rounds):
        for topic in range(1, topics + 1):
            if topic not in journal.ends:
                journal.group(topic)
            journal.stored(topic, 90)
            if consumed:
                journal.done(topic, journal.ends[topic] - 90, journal.ends[topic])
        written += fold(one, journal)
    rows = rounds * topics * 90
    assert len(one.trace.files()) <= 15 + rows / 2048
    assert all(file.rows <= 4096 for file in one.trace.files())
    assert written <= 2 * rows
    assert len(one.trace.read()) == rows


@pytest.mark.row("R7")
def test_other_readers_accept_a_file_of_rows_without_a_group(one, journal):
    for topic in (1, 2, 3):
        journal.stored(topic, 3)
    fold(one, journal)
    journal.group(4)
    journal.group(5)
    journal.stored(4, 2)
    journal.stored(5, 2)
    fold(one, journal)
    theirs = DeltaTable(one.trace.folder.uri)
    for group, count in ((4, 2), (9, 0)):
        chosen = [("group_number", "=", group)]
        assert theirs.to_pyarrow_table(filters=chosen).num_rows == count
    assert theirs.to_pyarrow_table().num_rows == 9 + 4


@pytest.mark.row("R7")
def test_a_message_is_looked_up_in_a_shared_file(one, tables, journal):
    topics_with_open_rows(one, journal)
    lookup = TraceLookup(tables)
    (row,) = lookup.at("topic-7", 0, 3)
    assert (row["topic_number"], row["offset"], row["state"]) == (7, 3, "stored")
    assert [found["topic"] for found in lookup.by_id(row["message_id"])] == [
        f"topic-{topic}" for topic in sorted(range(1, 21))
    ]
    lookup.close()


@pytest.mark.row("R7")
def test_tables_of_a_version_before_are_converted_and_go_on(tables, journal):
    old = replace(TRACE, version=2)
    before = TracePass(lambda spec: Table.open(tables, old if spec is TRACE else spec))
    topics_with_open_rows(before, journal)
    trace = Table.open(tables, TRACE, create=False)
    assert trace.outdated
    assert migrate(trace, {})
    assert (trace.outdated, trace.schema_version) == (False, TRACE.version)
    (file,) = trace.files()
    assert sharing.is_shared(file)
    one = TracePass(lambda spec: Table.open(tables, spec))
    journal.done(5, 0, 5)
    fold(one, journal)
    same(one, journal)


@pytest.mark.row("R7")
def test_a_run_that_stopped_before_its_last_commit_is_repeated_by_a_newer_version(
    tables, journal, monkeypatch
):
    """The statistics and the state of the fold are ahead; the trace is converted, then folded."""
    old = replace(TRACE, version=2)
    before = TracePass(lambda spec: Table.open(tables, old if spec is TRACE else spec))
    monkeypatch.setattr(sharing, "SMALL_QUEUE", 0)  # as version 2 wrote: no file is shared
    for topic in range(1, 6):
        journal.group(topic)
        journal.stored(topic, 5)
    fold(before, journal)
    for topic in range(1, 6):
        journal.stored(topic, 3)
        journal.done(topic, 2, 6)
    begin, stop, events = journal.piece()
    commit = Table.commit

    def broken(self, *given, **more):
        if self.spec is old:
            raise OSError("no space left on device")
        commit(self, *given, **more)

    with monkeypatch.context() as patch:
        patch.setattr(Table, "commit", broken)
        with pytest.raises(OSError, match="no space"):
            before.fold(begin, stop, table(events))
    monkeypatch.undo()
    assert migrate(Table.open(tables, TRACE, create=False), {})
    one = TracePass(lambda spec: Table.open(tables, spec))
    assert not any(map(sharing.is_shared, one.trace.files()))
    assert one.position == begin
    one.fold(begin, stop, table(events))
    same(one, journal)
    assert any(map(sharing.is_shared, one.trace.files()))
