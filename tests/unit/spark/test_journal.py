"""The journal as rows: against what ``JournalReader.dump`` tells of the same files."""

from __future__ import annotations

import itertools
import json
import pickle
import random
import shutil
import time
from typing import Any

import pytest

import ternmq.sync
from ternmq.journal.disk.real import RealDisk
from ternmq.journal.log.scan import parse
from ternmq.journal.reader.reader import JournalReader
from ternmq.model.errors import DataLoss, FileMissing, OptionError
from ternmq.record.fact.header import MAGIC, VERSION, Header, Kind, framed
from ternmq.spark.journal import events
from ternmq.spark.journal.events import COLUMNS, LEFT_OUT
from ternmq.spark.journal.options import journal_options
from ternmq.spark.journal.reading import (
    JournalReading,
    JournalStream,
    Plan,
    Stretch,
    of_json,
    to_json,
)
from ternmq.spark.topics.table import Use
from ternmq.testing import broker
from ternmq.wire.control import GrantInfo

pa = pytest.importorskip("pyarrow")


@pytest.fixture(scope="module")
def lived(tmp_path_factory):
    """Return the folder of a broker that has seen everything that there is."""
    folder = tmp_path_factory.mktemp("lived")
    with broker(manual=False, disk=RealDisk(str(folder))) as one:
        with ternmq.sync.connect(one.url, app="shop") as client:
            client.admin.create_topic("orders", queues=2)
            client.admin.create_topic("short-lived")
            client.send("short-lived", b"x")
            client.admin.put_app("shop", [GrantInfo(right="produce")], owner="me")
            client.send_many("orders", [b"%d" % n for n in range(100)], queue=1)
            client.send("orders", b"a", id="once", queue=0)
            client.send_many(  # the first of these is left out
                "orders", [ternmq.sync.Message(b"a", id="once"), b"c"], queue=0
            )
            client.send("orders", b"b", tag="t", queue=0)
            pulled = client.pull("orders", group="billing", max_messages=50)
            while len(pulled) < 50:  # of the other queue
                pulled.ack()
                pulled = client.pull("orders", group="billing", max_messages=50)
            pulled.ack(rows=range(10))
            pulled.retry(rows=range(10, 20), reason="später", delay=0)
            pulled.reject(rows=range(20, 30), reason="broken")
            pulled.release()
            client.admin.reset_group("orders", "billing", to="earliest")
            client.admin.delete_topic("short-lived")
        one.restart()
        with ternmq.sync.connect(one.url, app="shop") as client:
            client.send("orders", b"after", queue=0)
            _wait_for_left(folder)
    return str(folder)


def _wait_for_left(folder):
    until = time.monotonic() + 30
    while time.monotonic() < until:
        if any(one["kind"] == "LEFT" for one in dump(folder)):
            return
    raise AssertionError("nobody left")


def reading(path, **options):
    found = journal_options({"path": path, **options}, Use.BATCH_READ)
    return JournalReading(found, found.offered)


def dump(path) -> list[Any]:
    reader = JournalReader(str(path))
    found = list(reader.dump())
    reader.close()
    return found


def rows(one, plan=None):
    plan = plan or one.plan()
    return [
        row
        for stretch in plan.stretches
        for batch in one.read(stretch, plan.names)
        for row in batch.to_pylist()
    ]


def of(kind, found, **wanted):
    return [
        row
        for row in found
        if row["kind"] == kind and all(row[name] == value for name, value in wanted.items())
    ]


@pytest.mark.row("R5")
def test_every_record_that_the_dump_has_is_there(lived):
    found = rows(reading(lived))
    dumped = [one for one in dump(lived) if one["kind"] not in {k.name for k in LEFT_OUT}]
    assert {row["position"] for row in found} == {one["position"] for one in dumped}
    names = [(row["position"], row["part"]) for row in found]
    assert names == sorted(set(names))
    by_position = {one["position"]: one for one in dumped}
    for row in found:
        one = by_position[row["position"]]
        assert (row["epoch"], row["time"].timestamp()) == (
            one["epoch"], pytest.approx(one["time_us"] / 1e6),
        )  # fmt: skip


@pytest.mark.row("R5")
def test_runs_are_those_of_the_facts(lived):
    found = rows(reading(lived))
    wanted: list[Any]
    got: list[Any]
    for one in dump(lived):
        mine = [row for row in found if row["position"] == one["position"]]
        if one["kind"] == "PULLED":
            wanted = [
                (f["topic"], f["queue"], a, b, n, d)
                for f in one["facts"]
                for a, b, n, d in f["leased"]
            ]
            got = [
                (r["topic_number"], r["queue"], r["start"], r["stop"], r["attempt"],
                 r["deliveries"]) for r in mine if r["kind"] == "pulled"
            ]  # fmt: skip
            assert got == wanted
        elif one["kind"] in {"SETTLED", "ENDED"}:
            wanted = [
                (a, b, n, d, f["outcome"].name.lower(), f["cause"].name.lower(),
                 f["reason"].decode() or None)
                for f in one["facts"] for a, b, n, d in f["runs"]
            ]  # fmt: skip
            got = [
                (r["start"], r["stop"], r["attempt"], r["deliveries"], r["outcome"], r["cause"],
                 r["reason"]) for r in mine
            ]  # fmt: skip
            assert got == wanted
        elif one["kind"] == "MESSAGES":
            stored = [r for r in mine if r["kind"] == "stored"]
            assert sum(r["rows"] for r in stored) == one["count"]
            if stored:
                assert stored[0]["start"] == one["first_offset"]
                assert stored[-1]["stop"] == one["first_offset"] + one["count"]
                assert stored[0]["producer_id"] % 2**64 == one["producer"]


def test_numbers_have_names_those_of_what_is_gone_included(lived):
    found = rows(reading(lived))
    assert {row["topic"] for row in of("stored", found)} == {"orders", "short-lived"}
    assert {row["group"] for row in of("pulled", found)} == {"billing"}
    assert {row["app"] for row in of("joined", found)} == {"shop"}
    assert {len(row["client"]) for row in of("joined", found)} == {8}
    assert of("settled", found, outcome="dead")[0]["reason"] == "broken"
    assert of("settled", found, outcome="retry")[0]["reason"] == "später"
    assert of("cursor", found, cause="reset", group="billing")
    deleted = of("config", found, name="topic-deleted")
    assert [row["topic"] for row in deleted] == ["short-lived"]


def test_what_was_left_out_is_told(lived):
    (row,) = of("duplicate", rows(reading(lived)))
    assert (row["rows"], row["start"], row["topic"]) == (1, None, "orders")


def test_no_secret_is_shown(lived):
    found = rows(reading(lived))
    (row,) = of("config", found, name="app-put", app="shop")
    assert json.loads(row["detail"]).keys() == {"name", "owner", "grants", "created_us"}
    clients = [one["joined"]["client"] for one in dump(lived) if one["kind"] == "JOINED"]
    assert clients
    everything = json.dumps(found, default=str)
    assert not any(client in everything for client in clients)


@pytest.mark.row("R5")
def test_from_any_position_on_the_names_are_known(lived):
    """The names come from the STATE set before, and what was said since."""
    whole = rows(reading(lived))
    positions = sorted({row["position"] for row in whole})
    for at in positions[:: max(1, len(positions) // 12)]:
        found = rows(reading(lived, startingPosition=str(at)))
        wanted = [row for row in whole if row["position"] >= at]
        assert found == wanted


def test_tasks_are_cut_anywhere(tmp_path):
    with (
        broker(manual=False, disk=RealDisk(str(tmp_path))) as one,
        ternmq.sync.connect(one.url) as client,
    ):
        for n in range(8):
            client.send_many("orders", [b"%d" % n * 40_000] * 40)
    path = str(tmp_path)
    tasks = reading(path, maxBytesPerPartition="4m").plan().stretches
    assert len(tasks) >= 3
    assert all(a.stop == b.start and a.stop % (4 << 20) == 0 for a, b in itertools.pairwise(tasks))
    apart = rows(reading(path, maxBytesPerPartition="4m"))
    assert apart == rows(reading(path))
    assert {row["topic"] for row in of("stored", apart)} == {"orders"}
    assert sum(row["rows"] for row in of("stored", apart)) == 320
    # A stream goes on by as many bytes.
    given = journal_options(
        {"path": path, "startingPosition": "earliest", "maxBytesPerTrigger": "4m"},
        Use.STREAM_READ,
    )
    stream = JournalStream(JournalReading(given, given.offered))
    at = stream.initial()
    stream.freeze()
    assert stream.latest(at) == at  # the first batch says where it begins
    steps = [at]
    while (after := stream.latest(at)) > at:
        steps.append(after)
        at = after
    assert len(steps) == len(tasks) + 1
    found = [
        row
        for start, stop in itertools.pairwise(steps)
        for row in rows(stream.reading, stream.plan(start, stop))
    ]
    assert found == apart
    stream.stop()


@pytest.mark.row("R5")
def test_records_in_bodies_are_none(tmp_path):
    """Bodies hold records for the very place where they are stored, with checksums that fit."""
    count, marker = 400, b"<here it begins>"
    with (
        broker(manual=False, disk=RealDisk(str(tmp_path))) as one,
        ternmq.sync.connect(one.url) as client,
    ):
        client.send("orders", marker + bytes(56 * count))
        last = of_kind("MESSAGES", dump(tmp_path))[-1]
        (file,) = (tmp_path / "journal").glob("*00.seg")
        before = file.read_bytes().index(marker) - last["position"]
        pad = bytes(-(before + len(marker)) % 8)
        tricked = 0
        for _ in range(20):
            newest = dump(tmp_path)[-1]
            first = newest["position"] + newest["length"] + before + len(marker) + len(pad)
            body = b"".join(forged(first + 56 * number) for number in range(count))
            client.send("orders", marker + pad + body)
            stored = file.read_bytes()
            tricked += parse(stored, first, first) is not None
    assert tricked > 5, "the others were stored behind a record of the broker's own"
    path = str(tmp_path)
    whole = rows(reading(path))
    assert sum(row["rows"] for row in of("stored", whole)) == 21
    for size in ("5000", "65537", "100k"):
        assert rows(reading(path, maxBytesPerPartition=size)) == whole


def of_kind(kind, dumped):
    return [one for one in dumped if one["kind"] == kind]


def forged(position):
    header = Header(0, MAGIC, 0, VERSION, Kind.MARK, 0, position, 0, 5, 1, 7)
    return framed(header, bytes(8))


def test_a_stream_goes_on_with_a_broker_that_writes(tmp_path):
    with broker(manual=False, disk=RealDisk(str(tmp_path))) as one:  # noqa: SIM117
        with ternmq.sync.connect(one.url) as client:
            client.send("orders", b"x")
            given = journal_options(
                {"path": str(tmp_path), "startingPosition": "earliest", "watermarkCacheMs": "0"},
                Use.STREAM_READ,
            )
            stream = JournalStream(JournalReading(given, given.offered))
            at = stream.initial()
            assert stream.latest(at) == at
            seen = 0
            for _ in range(3):
                client.send_many("orders", [b"y"] * 5)
                client.send("orders", b"the next says that those are durable")
                after = stream.latest(at)
                assert after > at
                found = rows(stream.reading, stream.plan(at, after))
                seen += sum(row["rows"] for row in of("stored", found))
                at = after
            assert seen >= 16
            stream.stop()


def test_columns(lived):
    one = reading(lived, columns="kind,time")
    assert one.columns == {"kind": "string", "time": "timestamp"}
    assert set(rows(one)[0]) == {"kind", "time"}
    bare = JournalReading(one.options, {})
    assert sum(b.num_rows for s in bare.plan().stretches for b in bare.read(s)) == len(rows(one))
    assert list(reading(lived).columns) == list(COLUMNS)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "option bootstrap.servers: a broker must be named, or a folder"),
        ({"path": "/x", "bootstrap.servers": "h:1"}, "option path: a broker is named as well"),
        ({"path": "/x", "startingOffsets": "1"}, "option startingOffsets: there is no such option"),
        ({"path": "/x", "startingPosition": "soon"}, "option startingPosition='soon'"),
        ({"path": "/x", "startingPosition": "latest"}, "would read nothing"),
        ({"path": "/x", "endingPosition": "earliest"}, "option endingPosition"),
        ({"path": "/x", "columns": "body"}, "option columns='body'"),
    ],
)
def test_a_wrong_option_is_named(options, said):
    with pytest.raises(OptionError) as raised:
        journal_options(options, Use.BATCH_READ)
    assert said in str(raised.value)


def test_positions_that_are_not_there(lived, tmp_path):
    end = reading(lived).plan().stretches[-1].stop
    with pytest.raises(OptionError, match="the journal ends at"):
        reading(lived, startingPosition=str(end + 8)).plan()
    with pytest.raises(OptionError, match="option endingPosition"):
        reading(lived, endingPosition=str(end + 8)).plan()
    with pytest.raises(OptionError, match="it is before the start"):
        reading(lived, startingPosition=str(end), endingPosition="48").plan()
    with pytest.raises(FileMissing):
        reading(str(tmp_path / "nothing")).plan()


@pytest.fixture(scope="module")
def long(tmp_path_factory):
    """Return the folder of a journal of several segments, with STATE sets between."""
    folder = tmp_path_factory.mktemp("long")
    with broker(manual=False, disk=RealDisk(str(folder))) as one:
        for _ in range(4):
            with ternmq.sync.connect(one.url, app="shop") as client:
                for _ in range(3):
                    client.send_many("orders", [b"x" * 60_000] * 30)
            one.restart()
    return folder


def test_what_is_gone_fails_or_is_passed_over(tmp_path, long, lived):
    shutil.copytree(long, tmp_path / "copy")
    path = str(tmp_path / "copy")
    plan = reading(path, maxBytesPerPartition="4m").plan()
    assert len(plan.stretches) > 4
    whole = rows(reading(path))
    next((tmp_path / "copy").rglob("*0000000000.seg")).unlink()
    with pytest.raises(DataLoss, match="bytes of the journal from position 0 on are gone"):
        rows(reading(path), plan)
    # The names come from STATE sets now.
    found = rows(reading(path, failOnDataLoss="false"), plan)
    assert {row["topic"] for row in of("stored", found)} == {"orders"}
    # Who was gone before the oldest segment's end has no name.
    plain = [{**row, "app": None, "client": None} for row in found]
    assert plain == [
        {**row, "app": None, "client": None}
        for row in whole
        if row["position"] >= plan.stretches[0].stop
    ]
    with pytest.raises(DataLoss, match="the journal begins at"):
        reading(path, startingPosition="0").plan()
    end = reading(lived).plan().stretches[-1].stop
    with pytest.raises(DataLoss, match="ends at"):
        rows(reading(lived), Plan([Stretch(0, end + (1 << 30))], b""))


def test_another_journal_under_a_checkpoint_is_noticed(lived):
    given = journal_options({"path": lived}, Use.STREAM_READ)
    stream = JournalStream(JournalReading(given, given.offered))
    with pytest.raises(DataLoss, match="it is another journal"):
        stream.latest(1 << 40)
    stream.stop()


def test_positions_as_spark_keeps_them():
    assert of_json(to_json(5)) == 5
    with pytest.raises(OptionError, match="to another source"):
        of_json({"orders": {"0": 1}})


def test_readers_travel(lived):
    one = reading(lived)
    assert pickle.loads(pickle.dumps(one)) == one


def test_records_are_read_together_as_they_are_one_by_one(monkeypatch, lived):
    whole = rows(reading(lived))
    monkeypatch.setattr(events, "FAST", {})
    assert rows(reading(lived)) == whole


def test_transactions_are_told(tmp_path):
    with (
        broker(manual=False, disk=RealDisk(str(tmp_path))) as one,
        ternmq.sync.connect(one.url, app="shop") as client,
    ):
        client.admin.create_topic("orders")
        kept = client.prepare("orders", [b"a", b"b"], writer="w", batch_id=7, part="0/1")
        client.prepare("orders", [b"twin"], writer="w", batch_id=7, part="0/0")
        client.commit_prepared("w", 7, kept, digest=5)
        client.prepare("orders", [b"x"], writer="w", batch_id=8)
        client.abort_prepared("w", 8)
    found = rows(reading(str(tmp_path)))
    prepared = of("prepared", found)
    assert [(row["topic"], row["rows"], row["batch_id"]) for row in prepared] == [
        ("orders", 2, 7), ("orders", 1, 7), ("orders", 1, 8),
    ]  # fmt: skip
    assert {row["writer"] for row in prepared} == {"w"}
    resolved = [
        (row["decision"], row["start"], row["stop"], row["cause"], row["refers_to"])
        for row in of("resolved", found)
    ]
    at = [row["position"] for row in prepared]
    assert resolved == [
        ("committed", 0, 2, "writer", at[0]),
        ("dropped", None, None, "writer", at[1]),
        ("rolled_back", None, None, "writer", at[2]),
    ]
    sizes = [row["bytes"] for row in of("resolved", found)]
    assert sizes[1:] == [None, None]
    assert sizes[0] > prepared[0]["bytes"] > 0, "of the record, not of its batch alone"


@pytest.mark.row("R5")
@pytest.mark.parametrize("size", [3000, 4800])
def test_hundreds_of_transactions_do_not_change_what_failed(monkeypatch, tmp_path, size):
    """The causes of settles are bytes, and come after more than 250 other texts of the column."""
    chance = random.Random(1)
    with (
        broker(manual=False, disk=RealDisk(str(tmp_path))) as one,
        ternmq.sync.connect(one.url, app="shop") as client,
    ):
        client.admin.create_topic("orders")
        for number in range(400):  # more than one page
            kept = client.prepare("orders", [chance.randbytes(size)], writer="w", batch_id=number)
            client.commit_prepared("w", number, kept, digest=number)
        for _ in range(3):
            client.pull("orders", group="billing", max_messages=1).reject(reason="no")
    found = rows(reading(str(tmp_path)))
    failed = [row for row in found if row["outcome"] == "dead"]
    assert [row["cause"] for row in failed] == ["rejected"] * 3
    monkeypatch.setattr(events, "FAST", {})
    assert rows(reading(str(tmp_path))) == found


@pytest.mark.row("R5")
def test_rows_that_come_again_are_told(tmp_path):
    with (
        broker(manual=False, disk=RealDisk(str(tmp_path))) as one,
        ternmq.sync.connect(one.url, app="shop") as client,
    ):
        client.admin.create_topic("orders")
        client.send_many("orders", [b"%d" % n for n in range(10)])
        pulled = client.pull("orders", group="billing", max_messages=10)
        pulled.reject(rows=range(7, 9), reason="broken")
        pulled.ack()
        client.replay("orders", "billing", offsets=range(2, 5))
        client.deadletters.redrive("orders", "billing")
        wanted = [one["position"] for one in dump(str(tmp_path)) if one["kind"] == "REPLAY"]
    found = of("replayed", rows(reading(str(tmp_path))), topic="orders", group="billing")
    assert [
        (row["cause"], row["start"], row["stop"], row["rows"], row["attempt"]) for row in found
    ] == [("replay", 2, 5, 3, 1), ("redrive", 7, 9, 2, 1)]
    assert [row["position"] for row in found] == wanted
    assert found[0]["round"] < found[1]["round"]
    assert {row["app"] for row in found} == {"shop"}
