"""The reader from outside: follows a live writer, uses run files, explains records."""

from __future__ import annotations

from typing import Any

import pytest

from ternmq.journal.disk.memory import MemoryDisk
from ternmq.journal.disk.real import RealDisk
from ternmq.journal.log.journal import Journal
from ternmq.journal.reader.reader import JournalReader
from ternmq.model.errors import FileMissing
from ternmq.model.types import Position
from ternmq.record.batch.batch import Row, encode
from ternmq.record.fact import control, facts, messages, numbers, replay, schedule
from ternmq.record.fact.header import Kind
from tests.unit.journal.index_kit import SEED, SEGMENT, Stand


def stand_of(count: int = 150) -> Stand:
    stand = Stand()
    for number in range(count):
        rows = [Row(f"{number}.{row}".encode()) for row in range(1 + number % 3)]
        stand.send(*rows, queue=number % 2)
        if number % 40 == 39:
            stand.cut()
            stand.seal()
    return stand


def seen(reader: JournalReader, *span: int, queue: int = 0) -> list[int]:
    return [one.position for one in reader.batches(1, queue, *span)]


def positions(stand: Stand, queue: int, start: int = 0, stop: int = 10_000) -> list[int]:
    return list(dict.fromkeys(position for position, _ in stand.rows[1, queue][start:stop]))


def test_records_are_followed_while_they_are_written():
    stand = Stand()
    reader = JournalReader(stand.disk)
    kinds = [record.kind for record in reader.records()]
    assert kinds == [Kind.SEGMENT, Kind.EPOCH]
    assert reader.fault == ""
    sent = []
    for _ in range(100):
        sent.append(stand.send())
        found = [record for record in reader.records() if record.kind == Kind.MESSAGES]
        assert [record.position for record in found] == sent[-1:]
    assert [r.position for r in reader.records(Position(0)) if r.kind == Kind.MESSAGES] == sent


def test_a_record_that_is_half_written_ends_it_until_it_is_whole():
    stand = Stand()
    stand.send()
    end = stand.journal.end
    image = stand.disk.image()
    name = f"journal/{0:020d}.seg"
    stand.send()
    whole = stand.disk.image()[name]
    disk = MemoryDisk({**image, name: whole[: end + 60] + bytes(SEGMENT - end - 60)})
    reader = JournalReader(disk)
    assert [record.end for record in reader.records()][-1] == end
    assert reader.fault != ""
    disk.open(name).pwrite(whole, 0)
    assert [record.position for record in reader.records()] == [end]


@pytest.mark.parametrize("use", ["runs", "no runs", "damaged runs"])
def test_batches_of_a_queue(use):
    stand = stand_of()
    image = stand.disk.image()
    runs = [name for name in image if name.endswith(".idx")]
    assert len(runs) >= 2
    for name in runs:
        if use == "no runs":
            del image[name]
        elif use == "damaged runs":
            at = 2000 if len(image[name]) > 2000 else 700
            image[name] = image[name][:at] + b"\xff" * 9 + image[name][at + 9 :]
    reader = JournalReader(MemoryDisk(image))
    for queue in (0, 1):
        assert seen(reader, queue=queue) == positions(stand, queue)
        for start, stop in ((0, 1), (5, 6), (17, 90), (60, 61), (100, 5000), (0, 0)):
            assert seen(reader, start, stop, queue=queue) == positions(stand, queue, start, stop)
    assert seen(reader, queue=7) == []


def test_batches_tell_what_was_stored():
    stand = stand_of(10)
    (first, *_) = JournalReader(stand.disk).batches(1, 0)
    assert (first.epoch, first.time_us) == (1, 1010)
    assert (first.messages.first_offset, first.messages.count) == (0, 1)


def test_the_run_file_of_another_history_is_not_used():
    ours, theirs = stand_of(), Stand()
    while theirs.journal.end < 2 * SEGMENT:
        theirs.send(Row(b"other"))
    theirs.seal()
    image = ours.disk.image()
    for name, data in theirs.disk.image().items():
        if name.endswith(".idx"):
            image[name] = data
    assert seen(JournalReader(MemoryDisk(image))) == positions(ours, 0)


def test_a_segment_that_retention_removed_is_passed_over():
    stand = stand_of()
    image = stand.disk.image()
    del image[f"journal/{0:020d}.seg"]
    reader = JournalReader(MemoryDisk(image))
    assert reader.first() == SEGMENT
    assert seen(reader) == [one for one in positions(stand, 0) if one >= SEGMENT]


def test_there_must_be_a_journal():
    with pytest.raises(FileMissing):
        JournalReader(MemoryDisk())


def test_a_wrong_path_is_named_and_nothing_is_left_behind(tmp_path):
    (tmp_path / "data").mkdir()
    for name in ("typo", "data"):
        with pytest.raises(FileMissing, match=name):
            JournalReader(str(tmp_path / name))
    assert [path.name for path in tmp_path.rglob("*")] == ["data"]


def test_a_journal_is_followed_while_its_owner_writes(tmp_path):
    disk = RealDisk(tmp_path)
    disk.lock()
    journal = Journal.create(disk, segment_size=SEGMENT, reserve_bytes=0)
    reader = JournalReader(str(tmp_path))
    assert isinstance(reader.disk, RealDisk)
    assert [record.kind for record in reader.records()] == [Kind.SEGMENT, Kind.EPOCH]
    for number in range(200):
        position = journal.append(Kind.COUNTS, b"%08d" % number, number)
        journal.flush()
        journal.prepare_spare()
        kinds = {record.position: record.kind for record in reader.records()}
        assert kinds.pop(position) == Kind.COUNTS
        assert set(kinds.values()) <= {Kind.PAD, Kind.SEGMENT}
        assert reader.fault == ""
    assert journal.end > SEGMENT
    reader.close()
    journal.close()
    disk.close()


def test_reading_changes_nothing_and_needs_no_lock(tmp_path):
    disk = RealDisk(tmp_path)
    disk.lock()
    journal = Journal.create(disk, segment_size=SEGMENT, reserve_bytes=0)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    reader = JournalReader(str(tmp_path))
    assert [one["kind"] for one in reader.dump()] == ["SEGMENT", "EPOCH"]
    assert list(reader.batches(1, 0)) == []
    reader.close()
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before
    journal.close()
    disk.close()


def test_dump_tells_a_row_that_has_come_due():
    stand = Stand()
    batch = encode(
        [Row(b"c", due_us=70)], topic_seed=SEED, producer_id=8, first_sequence=0, born_us=1
    )
    body = messages.pack_fulfilled(1, 0, 0, 1, batch, messages.Fulfilment(80, 9, 70))
    stand.journal.append(Kind.MESSAGES, body, stand.time_us)
    stand.flush()
    *_, found = JournalReader(stand.disk).dump()
    assert (found["first_offset"], found["count"]) == (0, 1)
    assert found["scheduled"] == {"source": 80, "first_entry": 9, "due_us": 70}


def test_dump_explains_every_kind():
    stand = Stand()
    stand.send(Row(b"a"), Row(b"b"))
    pulled = facts.Pulled(1, 1, 0, 2, 3, 50, 2, [(0, 2, 1, 1)])
    settled = facts.Settled(
        1, 1, 0, 2, 3, 1, 0, facts.Outcome.DONE, facts.Cause.CONSUMER, 0, [(0, 2, 1, 1)]
    )
    bodies = {
        Kind.PULLED: facts.pack_pulled([pulled]),
        Kind.SETTLED: facts.pack_settled([settled]),
        Kind.ENDED: facts.pack_settled([settled]),
        Kind.EXTENDED: facts.pack_extended([facts.Extended(1, 1, 0, 2, 3, 1, 60)]),
        Kind.CURSOR: facts.pack_cursor(facts.CursorMoved(1, 1, 0, facts.Move.RESET, 5, 1)),
        Kind.REPLAY: replay.pack(
            replay.Replayed(1, 1, 0, 2, 1, replay.Cause.REDRIVE, [(0, 2, 1, 3)])
        ),
        Kind.CONFIG: control.pack(control.TopicDeleted(4)),
        Kind.JOINED: control.pack(control.Joined(2, "shop", "c1")),
        Kind.LEFT: control.pack(control.Left(2, "bye")),
        Kind.ALARM: control.pack(control.Alarm("disk", "full")),
        Kind.NUMBERS: numbers.pack(numbers.Numbers(1, 100, 7, 3)),
        Kind.STATE: bytes(16),
    }
    due_us = stand.time_us + 50
    due = encode(
        [Row(b"c", due_us=1), Row(b"d", due_us=due_us)],
        topic_seed=SEED, producer_id=8, first_sequence=0, born_us=1,
    )  # fmt: skip
    bodies |= {
        Kind.SCHEDULED: messages.pack_copy(1, 2**32 - 1, 9, 2, due, messages.Origin(80, 30)),
        Kind.CANCELLED: schedule.pack_cancelled(
            schedule.Cancelled(
                schedule.CancelCause.OPERATOR, [schedule.CancelledRow(1, due_us, 10)]
            )
        ),
    }
    for kind, body in bodies.items():
        stand.journal.append(kind, body, stand.time_us)
    stand.flush()
    stand.move([1])
    lines: dict[str, Any] = {str(one["kind"]): one for one in JournalReader(stand.disk).dump()}
    assert list(lines) == ["SEGMENT", "EPOCH", "MESSAGES", *[k.name for k in bodies], "MOVED"]
    assert lines["MESSAGES"]["count"] == 2
    assert lines["MESSAGES"]["producer"] == 7
    assert lines["PULLED"]["facts"][0]["leased"] == [(0, 2, 1, 1)]
    assert lines["SETTLED"]["facts"][0]["outcome"] == facts.Outcome.DONE
    assert lines["EXTENDED"]["facts"][0]["until_us"] == 60
    assert lines["CURSOR"]["cursor"] == 5
    assert lines["REPLAY"]["runs"] == [(0, 2, 1, 3)]
    assert lines["CONFIG"]["config"]["number"] == 4
    assert lines["JOINED"]["joined"]["app"] == "shop"
    assert lines["LEFT"]["left"]["reason"] == "bye"
    assert lines["ALARM"]["alarm"]["name"] == "disk"
    assert lines["NUMBERS"]["count"] == 7
    assert (lines["NUMBERS"]["first"], lines["NUMBERS"]["reserve"]) == (100, 3)
    assert lines["MOVED"]["offsets"] == [1]
    scheduled = lines["SCHEDULED"]
    assert (scheduled["first_entry"], scheduled["queue"], scheduled["count"]) == (9, None, 2)
    assert (scheduled["first_due_us"], scheduled["last_due_us"]) == (30, due_us)
    assert scheduled["copy_of"] == {"position": 80, "time_us": 30}
    assert "first_offset" not in scheduled
    assert (lines["CANCELLED"]["cause"], lines["CANCELLED"]["rows"]) == (
        "OPERATOR", [{"topic": 1, "due_us": due_us, "entry": 10}],
    )  # fmt: skip
    assert "scheduled" not in lines["MESSAGES"]
    assert lines["SEGMENT"]["segment_size"] == SEGMENT
    assert lines["EPOCH"]["new_epoch"] == 1
