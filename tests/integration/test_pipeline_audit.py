"""The audit of a real broker: what was planted is named, and nothing else."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

pytest.importorskip("deltalake", reason="needs the extra spark")

import pyarrow as pa

import ternmq
import ternmq.sync
from ternmq.client.connection.address import Address
from ternmq.pipeline.archive.commit import Archive
from ternmq.pipeline.archive.schema import ERASED, GAPS
from ternmq.pipeline.audit.schema import AUDIT, BUCKET_US, FINDINGS, RUNS
from ternmq.pipeline.tables.table import Table
from ternmq.record.batch.batch import Row, encode, topic_seed
from ternmq.spark.broker.bulk_port import BulkPort
from ternmq.spark.broker.connecting import Broker
from ternmq.spark.broker.port import Outgoing
from ternmq.wire import bodies, control
from ternmq.wire.commands import Command
from tests.black_box.process import BrokerProcess
from tests.integration.auditing import LATER_US, Audit, now_us
from tests.integration.dropping import DroppingProxy
from tests.integration.raw import RawClient

PRODUCER = """
import asyncio, os, signal, sys
import ternmq

async def main(url, count, reported, dropped):
    client = await ternmq.connect(url)
    for number in range(count):
        await client.send("orders", b"%d" % number)
    if not reported:
        await client._reporter.report(10.0)
    for number in range(dropped):
        client.send_oneway("orders", b"gone %d" % number)
        await asyncio.sleep(0)  # each leaves as a batch of its own
        await client.flush()
    if reported:
        await client._reporter.report(10.0)
    print(f"{client._producer.id:016x}", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main(sys.argv[1], *map(int, sys.argv[2:])))
"""


@pytest.fixture
def audit(real, tmp_path):
    return Audit(real.port, tmp_path / "tables")


def state(audit):
    """Return what the tables hold, but for the files that hold it."""
    return [
        Table.open(audit.tables, spec, create=False).read().to_pylist()
        for spec in (AUDIT, FINDINGS, RUNS)
    ]


@pytest.mark.row("R8")
def test_a_healthy_day_with_a_restart_retries_and_a_killed_consumer(real, audit):
    with ternmq.sync.connect(real.url) as client:
        client.admin.create_topic("orders", queues=3)
        client.send_many("orders", [b"%d" % n for n in range(300)])
        for n in range(20):
            client.send("orders", b"single %d" % (n % 10), id=f"app-{n % 10}")
        with ternmq.sync.connect(real.url) as doomed:
            pulled = doomed.pull("orders", group="billing", max_messages=50)
            assert len(pulled)
        real.restart(clean=False)
        client.send_many("orders", [b"more"] * 100)
        done = 0
        while done < 410:
            pulled = client.pull("orders", group="billing", max_messages=100, wait=20.0)
            pulled.ack()
            done += len(pulled)
        audit.archive()
        early = audit.run(now_us())
        assert audit.verdicts() == {"open"}
        assert early.findings == []
    outcome = audit.run()
    assert audit.verdicts() == audit.verdicts("group") == audit.verdicts("archive") == {"ok"}
    assert outcome.findings == []
    assert (audit.total("sent"), audit.total("stored"), audit.total("left_out")) == (420, 410, 10)
    assert audit.total("settled", "group") == audit.total("archived", "archive") == 410
    assert audit.findings() == []
    assert all(row["final"] for row in audit.rows())


@pytest.mark.row("R8")
def test_one_way_sends_that_never_arrived_are_named(real, audit):
    with (
        DroppingProxy(real.port, lambda number: number in {3, 4, 9}) as proxy,
        ternmq.sync.connect(proxy.url) as client,
    ):
        producer = client.send("orders", b"first").id.partition(":")[0]
        for n in range(10):
            client.send_oneway("orders", b"%d" % n)
            client.flush()
    assert (proxy.seen, proxy.dropped) == (10, 3)
    outcome = audit.run()
    assert "lost" in audit.verdicts()
    assert audit.total("lost") == 3
    assert audit.named("lost") == [f"{producer}:{n:x}" for n in (5, 6, 11)]
    assert len(audit.findings()) == 3
    assert "3 lost" in outcome.findings[0]


@pytest.mark.row("R8")
@pytest.mark.parametrize("reported", [True, False])
def test_the_last_messages_of_a_killed_producer(real, audit, reported):
    with DroppingProxy(real.port, lambda _number: True) as proxy:
        done = subprocess.run(
            [sys.executable, "-c", PRODUCER, proxy.url, "5", str(int(reported)), "3"],
            stdout=subprocess.PIPE, check=False, timeout=60,
        )  # fmt: skip
        assert done.returncode == -signal.SIGKILL
        assert proxy.dropped == 3
    producer = done.stdout.decode().strip()
    audit.run()
    (unverified, *_) = audit.findings(kind="unverified")
    assert f"{unverified['producer_id'] % 2**64:016x}" == producer
    if reported:
        assert "lost" in audit.verdicts()
        assert audit.named("lost") == [f"{producer}:{n}" for n in (6, 7, 8)]
    else:
        assert audit.verdicts() == {"unverified"}
        assert audit.named("lost") == []
        assert audit.total("stored") == 5


@pytest.mark.row("R8")
def test_rows_cut_from_a_file_of_the_archive_are_named(real, audit):
    with ternmq.sync.connect(real.url) as client:
        receipts = client.send_many("orders", [b"%d" % n for n in range(50)])
    audit.archive()
    audit.run()
    assert audit.verdicts("archive") == {"ok"}
    table = Archive(audit.tables).table
    whole = table.read()
    gone = [receipts[n].id for n in (0, 17, 49)]
    kept = [row not in gone for row in whole["message_id"].to_pylist()]
    table.commit(table.stage(whole.filter(kept)), table.files())
    audit.run()
    assert audit.verdicts("archive") == {"ok"}, "what is final is not looked at again"
    audit.run(again_hours="2")
    assert "lost" in audit.verdicts("archive")
    assert audit.named("lost", tier="archive") == gone
    assert audit.verdicts() == {"ok"}
    assert len(audit.findings()) == 3


@pytest.mark.row("R8")
def test_rows_that_were_erased_or_are_noted_as_gaps_are_no_loss(real, audit):
    with ternmq.sync.connect(real.url) as client:
        receipts = client.send_many("orders", [b"%d" % n for n in range(9)])
    audit.archive()
    archive = Archive(audit.tables)
    (number,) = set(archive.table.read(["topic_number"])["topic_number"].to_pylist())
    whole = archive.table.read()
    kept = [row not in (3, 7) for row in whole["offset"].to_pylist()]
    archive.table.commit(archive.table.stage(whole.filter(kept)), archive.table.files())
    audit.run()
    assert audit.named("lost") == [receipts[3].id, receipts[7].id]
    about = {"topic": "orders", "topic_number": number, "queue": 0, "schema_version": 2}
    erased = {
        **about, "offset": 3, "message_id": receipts[3].id, "stored_time": 0, "request": "r",
        "reason": "", "erased_time": 0,
    }  # fmt: skip
    Table.open(audit.tables, ERASED).append(pa.Table.from_pylist([erased], schema=ERASED.schema))
    audit.run(again_hours="2")
    assert audit.named("lost") == [receipts[7].id]
    archive.gaps.append(
        pa.Table.from_pylist(
            [{**about, "start": 6, "stop": 8, "cause": "expired", "noted_time": 0}],
            schema=GAPS.schema,
        )
    )
    audit.run(again_hours="2")
    assert audit.verdicts("archive") == {"ok"}
    assert audit.findings() == []


def test_a_body_of_the_archive_that_was_changed_is_named(real, audit):
    with ternmq.sync.connect(real.url) as client:
        receipts = client.send_many("orders", [b"%d" % n for n in range(9)])
    audit.archive()
    table = Archive(audit.tables).table
    whole = table.read()
    bodies_now = [b"x" if one == b"4" else one for one in whole["body"].to_pylist()]
    at = whole.schema.get_field_index("body")
    changed = whole.set_column(at, whole.schema.field("body"), pa.array(bodies_now))
    table.commit(table.stage(changed), table.files())
    audit.run()
    assert audit.verdicts("archive") == {"ok"}
    audit.run(again_hours="2", bodies="true")
    assert audit.named("damaged") == [receipts[4].id]


@pytest.mark.row("R8")
@pytest.mark.parametrize("reported", [True, False])
def test_what_is_stored_after_its_ten_minutes_were_judged_is_named(real, audit, reported):
    """By a client of few words that reports by the protocol, or does not."""
    raw = RawClient(real.port)
    raw.create("orders")
    born = now_us() - 40 * 60_000_000
    batch = encode(
        [Row(b"%d" % n) for n in range(3)], topic_seed=topic_seed("orders"), producer_id=7,
        first_sequence=10, born_us=born,
    )  # fmt: skip
    raw.call(Command.SEND, bodies.pack_send("orders", 0, batch))
    if reported:
        count = control.ReportEntry(
            bucket_us=born - born % BUCKET_US, sent=3, given_up=0, first=10, stop=13, closed=True
        )
        report = control.Report(topic="orders", producer=7, entries=[count])
        raw.manage(Command.REPORT, report, control.Nothing)
    audit.run(now_us())
    assert audit.verdicts() == {"late" if reported else "unverified"}
    assert audit.named("late") == [f"{7:016x}:{n:x}" for n in (10, 11, 12)]
    unverified = [one["producer_id"] for one in audit.findings(kind="unverified")]
    assert unverified == ([] if reported else [7])


@pytest.mark.row("R8")
def test_a_message_that_is_stored_twice_is_named(timed, tmp_path):
    """Sent again when the broker has forgotten that it was there."""
    audit = Audit(timed.port, tmp_path / "tables")
    start = timed.clock.wall_us()
    raw = RawClient(timed.port)
    raw.create("orders")

    def send(first):
        batch = encode(
            [Row(b"%d" % n) for n in range(4)], topic_seed=topic_seed("orders"),
            producer_id=7, first_sequence=first, born_us=start,
        )  # fmt: skip
        return bodies.unpack_receipt(raw.call(Command.SEND, bodies.pack_send("orders", 0, batch)))

    send(1)
    first = send(5)
    assert send(5).first_offset == first.first_offset, "a resend is known"
    timed.clock.advance(hours=48)
    raw.socket.close()
    raw = RawClient(timed.port)
    assert send(5).first_offset == 8
    audit.run(timed.clock.wall_us() + LATER_US, grace_minutes=str(72 * 60))
    assert audit.verdicts() == {"open"}
    audit.run(timed.clock.wall_us() + LATER_US, grace_minutes=str(49 * 60 - 600))
    assert audit.total("doubled") == 4


@pytest.mark.row("R8")
def test_a_broker_that_is_killed_again_and_again_loses_and_doubles_nothing(tmp_path):
    with BrokerProcess("dev", tmp_path / "broker") as process:
        audit = Audit(process.port, tmp_path / "tables")
        with ternmq.sync.connect(process.url) as client:
            for n in range(4):
                futures = [client.send_soon("orders", b"%d %d" % (n, m)) for m in range(500)]
                process.restart(kill=True)
                client.flush()
                assert all(one.result().id for one in futures)
                audit.run(now_us())
        audit.run()
        assert audit.findings() == []
        assert audit.verdicts() == {"ok"}
        assert audit.total("sent") == audit.total("stored") == 2000


@pytest.mark.row("R8")
def test_rows_of_transactions_are_sent_by_their_commit(real, audit):
    with ternmq.sync.connect(real.url) as client:
        client.admin.create_topic("orders")
        client.send("orders", b"before")
        one = client.prepare("orders", [b"a", b"b"], writer="w", batch_id=1)
        audit.run()
        assert audit.verdicts() == {"open"}
        client.commit_prepared("w", 1, one, digest=1)
        client.prepare("orders", [b"c"], writer="w", batch_id=2)
        client.abort_prepared("w", 2)
        client.send("orders", b"behind")
    audit.run()
    assert audit.verdicts() == {"ok"}
    assert (audit.total("sent"), audit.total("stored")) == (4, 4)


@pytest.mark.row("R8")
@pytest.mark.parametrize("bad", [False, True])
def test_a_sink_of_spark_that_sends_without_transactions_reports(real, audit, bad):
    start = now_us()
    batches = [
        Outgoing("orders", None, encode(
            [Row(b"%d" % n, application_id=f"app-{n % 5}")], topic_seed=topic_seed("orders"),
            producer_id=2**64 - 3, first_sequence=n, born_us=start,
        ), 1)
        for n in range(9 if bad else 8)
    ]  # fmt: skip
    if bad:
        batches[8] = batches[8]._replace(batch=batches[8].batch[:-1])
    with ternmq.sync.connect(real.url) as client:
        client.admin.create_topic("orders")
    port = BulkPort(Broker((Address("127.0.0.1", real.port),)))
    if bad:
        with pytest.raises(ternmq.TernMQError):
            list(port.send(batches, 4))
    else:
        # The last three have application ids that are there, and other bodies.
        assert list(port.send(batches, 4)) == [1] * 8
    port.close()
    audit.run()
    assert audit.verdicts() == {"ok"}
    assert (audit.total("sent"), audit.total("stored")) == (9 if bad else 8, 5)
    assert audit.findings() == []


@pytest.mark.row("R8")
def test_a_replayed_row_and_a_redriven_one_are_no_doubles(real, audit):
    with ternmq.sync.connect(real.url) as client:
        receipts = client.send_many("orders", [b"%d" % n for n in range(10)])
        pulled = client.pull("orders", group="billing", max_messages=10)
        pulled.reject(rows=[0], reason="broken")
        pulled.ack()
        audit.run()
        assert audit.verdicts("group") == {"ok"}
        client.replay("orders", "billing", ids=[receipts[3].id])
        client.deadletters.redrive("orders", "billing")
        done = 0
        while done < 2:
            pulled = client.pull("orders", group="billing", max_messages=10, wait=20.0)
            pulled.ack()
            done += len(pulled)
    audit.run(again_hours="2")
    assert audit.verdicts() == audit.verdicts("group") == {"ok"}
    assert audit.total("settled", "group") == audit.total("delivered", "group") == 10
    assert audit.findings() == []


@pytest.mark.row("R8")
def test_runs_again_and_in_pieces_come_to_the_same(real, audit, tmp_path):
    with ternmq.sync.connect(real.url) as client:
        client.admin.create_topic("orders", queues=2)
        pieces = Audit(real.port, tmp_path / "pieces")
        for n in range(4):
            client.send_many("orders", [b"%d" % n] * 50)
            client.pull("orders", group="billing", max_messages=70).ack()
            pieces.run(now_us())
    now = now_us() + LATER_US
    pieces.run(now)
    audit.run(now)
    first = state(audit)
    assert first[:2] == state(pieces)[:2]
    audit.run(now)
    assert state(audit) == first
    assert audit.total("sent") == 200
    assert audit.verdicts() == {"ok"}


def test_a_run_for_a_later_time_removes_nothing_that_the_next_needs(real, audit):
    with ternmq.sync.connect(real.url) as client:
        client.send_many("orders", [b"x"] * 10)
        client.pull("orders", group="first", max_messages=10).ack()
        audit.run(now_us() + 9 * 86_400_000_000, clock=now_us())
        first = audit.rows()
        assert {row["group"] for row in audit.rows(tier="group")} == {"first"}
        client.pull("orders", group="second", max_messages=10).ack()
    audit.run()
    assert {row["group"] for row in audit.rows(tier="group")} == {"first", "second"}
    assert audit.verdicts() == {"ok"}
    assert len(audit.rows()) > len(first)
