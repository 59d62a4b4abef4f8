"""Transactions with check-back in the tables: scheduled, settled, traced, and none missing."""

from __future__ import annotations

import pytest

pytest.importorskip("deltalake", reason="needs the extra spark")

from contextlib import suppress

import ternmq
import ternmq.sync
from ternmq.model.transaction_ids import transaction_number
from ternmq.pipeline.tables.table import Table
from ternmq.pipeline.trace.job import TraceJob
from ternmq.pipeline.trace.schema import SCHEDULED, TRACE
from tests.integration import living
from tests.integration.auditing import Audit
from tests.integration.scheduling import LATER_S, at_the_time_of_clients
from tests.unit.pipeline.trace_reference import of_table

GROUP = "order-service"


@pytest.fixture
def audit(timed, tmp_path):
    return Audit(timed.port, tmp_path / "tables")


def paying(client):
    client.checker(GROUP)(lambda tx: ternmq.Decision.UNKNOWN)


def rows(tables, spec, *by):
    found = Table.open(tables, spec, create=False).read()
    return found.sort_by([(name, "ascending") for name in by]).to_pylist()


def live(timed, client):
    """Move a message in a transaction that also schedules; roll another back. Return the ids."""
    client.send("in", b"x", key="k")
    (delivery,) = client.pull("in", group="g", max_messages=1)
    with client.transaction(GROUP, query_id="order-7") as tx:
        tx.send("out", b"now")
        tx.send_many("out", [ternmq.Message(b"%d" % n, deliver_after=5 + n // 2) for n in range(3)])
        tx.send("out", b"later", deliver_after=40 * 86_400)
        tx.ack(delivery)
    undone = client.transaction(GROUP)
    with suppress(ZeroDivisionError), undone:
        undone.send("out", b"never", deliver_after=5)
        raise ZeroDivisionError
    return tx.id


@pytest.mark.row("R8")
def test_what_a_transaction_schedules_counts_as_scheduled(timed, audit):
    at_the_time_of_clients(timed)
    with ternmq.sync.connect(timed.url) as client:
        paying(client)
        live(timed, client)
    timed.clock.advance(seconds=10)
    timed.clock.advance(seconds=LATER_S)
    now = timed.clock.wall_us()
    outcome = audit.run(now, clock=now)
    assert audit.verdicts() == {"ok"}
    first, last = sorted(audit.rows(tier="due"), key=lambda row: row["bucket"])
    names = ("scheduled", "delivered", "pending", "lost", "verdict")
    assert [first[name] for name in names] == [3, 3, 0, 0, "ok"]
    assert [last[name] for name in names] == [1, 0, 1, 0, "open"]
    assert outcome.findings == audit.findings() == []


def live_by_writer(client):
    """Commit a batch of a writer, twice: rows at once, soon and after weeks; undo another one."""
    client.admin.create_topic("out")
    rows = [ternmq.Message(b"%d" % n, deliver_after=5 + n // 2) for n in range(3)]
    rows += [ternmq.Message(b"now"), ternmq.Message(b"later", deliver_after=40 * 86_400)]
    ids = client.prepare("out", rows, writer="reminders", batch_id=3, part="0/0")
    client.prepare("out", rows, writer="reminders", batch_id=3, part="0/1")
    client.prepare("out", rows, writer="reminders", batch_id=4)
    client.abort_prepared("reminders", 4)
    for _ in range(2):
        client.commit_prepared("reminders", 3, ids, digest=1)


@pytest.mark.row("R8")
def test_what_a_writer_schedules_counts_as_scheduled(timed, audit):
    at_the_time_of_clients(timed)
    with ternmq.sync.connect(timed.url) as client:
        live_by_writer(client)
    timed.clock.advance(seconds=10)
    timed.clock.advance(seconds=LATER_S)
    now = timed.clock.wall_us()
    outcome = audit.run(now, clock=now)
    first, last = sorted(audit.rows(tier="due"), key=lambda row: row["bucket"])
    names = ("scheduled", "delivered", "pending", "lost", "verdict")
    assert [first[name] for name in names] == [3, 3, 0, 0, "ok"]
    assert [last[name] for name in names] == [1, 0, 1, 0, "open"]
    assert outcome.findings == audit.findings() == []
    assert audit.total("stored") == 5


@pytest.mark.row("R7")
def test_the_trace_says_which_transaction_of_a_writer_sent(timed, audit):
    with ternmq.sync.connect(timed.url) as client:
        live_by_writer(client)
        timed.clock.advance(seconds=10)
    tables = audit.tables
    living.run(timed, tables, TraceJob())
    sent = rows(tables, TRACE, "topic", "offset")
    found = rows(tables, SCHEDULED, "entry")
    assert [row["state"] for row in found] == ["delivered"] * 3 + ["pending"]
    assert len({row["message_id"] for row in found} - {None}) == 4
    assert {row["transaction"] for row in [*found, sent[0]]} == {found[0]["transaction"]}
    assert len(sent) == 4
    trace = Table.open(tables, TRACE, create=False).read()
    assert of_table(trace) == living.reference(timed).told()


@pytest.mark.row("R7")
def test_the_trace_says_which_transaction_sent_and_settled(timed, audit):
    with ternmq.sync.connect(timed.url) as client:
        paying(client)
        id_ = transaction_number(live(timed, client))
        timed.clock.advance(seconds=10)
    tables = audit.tables
    living.run(timed, tables, TraceJob())
    told = {(row["topic"], row["offset"]): row for row in rows(tables, TRACE, "topic", "offset")}
    moved = told["in", 0]
    assert (moved["state"], moved["settled_by"], moved["transaction"]) == ("done", id_, None)
    sent = told["out", 0]
    assert (sent["transaction"], sent["settled_by"], sent["message_id"] is None) == (
        id_, None, False,
    )  # fmt: skip
    found = rows(tables, SCHEDULED, "entry")
    assert [row["state"] for row in found] == ["delivered"] * 3 + ["pending"]
    assert {row["transaction"] for row in found} == {id_}
    assert len({row["message_id"] for row in found} - {None}) == 4
    trace = Table.open(tables, TRACE, create=False).read()
    assert of_table(trace) == living.reference(timed).told()
