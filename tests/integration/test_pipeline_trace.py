"""The trace of a real broker's journal, in process."""

from __future__ import annotations

import pytest

pytest.importorskip("deltalake", reason="needs the extra spark")

import ternmq.sync
from ternmq.journal.disk.real import RealDisk
from ternmq.pipeline.stats.schema import STATS_MINUTE
from ternmq.pipeline.tables.folder import Folder
from ternmq.pipeline.tables.table import Table
from ternmq.pipeline.trace.job import TraceJob
from ternmq.pipeline.trace.schema import KNOWN, TRACE
from ternmq.testing import broker
from tests.integration import living
from tests.unit.pipeline.trace_reference import of_table


@pytest.fixture
def tables(tmp_path):
    return Folder(str(tmp_path / "tables"))


def rows(tables):
    return of_table(Table.open(tables, TRACE, create=False).read())


@pytest.mark.row("R7")
@pytest.mark.parametrize("events", [1_000_000, 40])
def test_a_row_for_each_message_and_group_across_a_restart(tmp_path, tables, events):
    folder = tmp_path / "data"
    folder.mkdir()
    with broker(manual=False, disk=RealDisk(str(folder))) as real:
        living.first_day(real)
        living.run(real, tables, TraceJob(), events=events)
        assert rows(tables) == living.reference(real).told()
    with broker(manual=False, disk=RealDisk(str(folder))) as real:
        living.second_day(real)
        done = living.run(real, tables, TraceJob(), events=events)
        wanted = living.reference(real).told()
        assert rows(tables) == wanted
        assert done.to_position > done.from_position
    states = {row["state"] for row in wanted.values()}
    assert states == {"stored", "waiting", "done", "dead", "skipped"}


@pytest.mark.row("R7", "R15")
def test_run_again_changes_nothing_and_the_hold_says_how_far_it_is(real, tables):
    living.first_day(real)
    done = living.run(real, tables, TraceJob())
    before = Table.open(tables, TRACE).uris()
    again = living.run(real, tables, TraceJob())
    assert again.rows == 0
    assert Table.open(tables, TRACE).uris() == before
    with ternmq.sync.connect(real.url) as client:
        (hold,) = client.admin.holds()
    assert (hold.name, hold.position) == ("spark.trace", again.to_position)
    assert again.from_position == done.to_position


@pytest.mark.row("R7")
def test_rounds_of_an_idle_broker_commit_nothing(real, tables):
    """Each run joins, leaves, and moves a hold: facts, but none about messages."""
    living.first_day(real)
    done = living.run(real, tables, TraceJob())
    specs = (TRACE, KNOWN, STATS_MINUTE)
    versions = [Table.open(tables, spec).version for spec in specs]
    for _ in range(3):
        idle = living.run(real, tables, TraceJob())
        assert (idle.rows, idle.to_position) == (0, done.to_position)
    assert [Table.open(tables, spec).version for spec in specs] == versions
    with ternmq.sync.connect(real.url) as client:
        client.send("orders", {"n": 1}, key="later")
    assert living.run(real, tables, TraceJob()).rows > 0
    assert rows(tables) == living.reference(real).told()


@pytest.mark.row("R7")
@pytest.mark.parametrize("table", ["stats_minute", "trace_known", "trace"])
def test_a_run_that_broke_off_between_its_commits(real, tables, monkeypatch, table):
    living.first_day(real)
    living.run(real, tables, TraceJob())
    living.second_day(real)
    commit = Table.commit

    def broken(self, *given, **more):
        if self.spec.name == table:
            raise OSError("no space left on device")
        commit(self, *given, **more)

    with monkeypatch.context() as patch:
        patch.setattr(Table, "commit", broken)
        with pytest.raises(OSError, match="no space"):
            living.run(real, tables, TraceJob())
    with ternmq.sync.connect(real.url) as client:
        living.taken(client, "late")
    living.run(real, tables, TraceJob())
    assert rows(tables) == living.reference(real).told()


@pytest.mark.row("R7")
def test_two_runs_at_once(real, tables, monkeypatch):
    living.first_day(real)
    commit = Table.commit
    others: list[bool] = []

    def slow(self, *given, **more):
        if self.spec.name == "trace" and not others:
            others.append(True)
            living.run(real, tables, TraceJob())
        commit(self, *given, **more)

    monkeypatch.setattr(Table, "commit", slow)
    living.run(real, tables, TraceJob())
    assert others
    assert rows(tables) == living.reference(real).told()


@pytest.mark.row("R7")
def test_many_small_topics_become_few_files(real, tables):
    topics = [f"small-{n:03}" for n in range(200)]
    with ternmq.sync.connect(real.url) as client:
        for n, topic in enumerate(topics):
            client.admin.create_topic(topic, queues=1 + n % 2)
            if n % 4:
                client.admin.create_group(topic, "g")
            client.send_many(topic, [ternmq.sync.Message(b"m", key=f"k{m}") for m in range(3)])
        living.run(real, tables, TraceJob())
        trace = Table.open(tables, TRACE, create=False)
        first = {file.path for file in trace.files()}
        assert len(first) <= 2 * 2  # an hour may have ended meanwhile
        assert rows(tables) == living.reference(real).told()
        for topic in topics[1:60:4]:
            client.pull(topic, group="g", max_messages=2, wait=1).ack()
        client.admin.create_group(topics[8], "late", start="earliest")
        client.admin.delete_group(topics[9], "g")
        assert living.run(real, tables, TraceJob()).rows > 0
        trace.refresh()
        assert len({file.path for file in trace.files()} - first) <= 3 * 2
        assert rows(tables) == living.reference(real).told()
        numbers = {one.spec.name: one.number for one in client.admin.topics()}
        client.admin.delete_topic(topics[10])
        living.run(real, tables, TraceJob())
        found = rows(tables)
    assert len({key[0] for key in found}) == 200
    assert {row["state"] for key, row in found.items() if key[0] == numbers[topics[10]]} == {
        "skipped"
    }
    assert {row["state"] for key, row in found.items() if key[0] == numbers[topics[11]]} == {
        "stored"
    }
