"""Pages of the journal: whole records in order, no secrets, and what is wrong is said."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from ternmq.journal.disk.memory import MemoryDisk
from ternmq.journal.log.journal import Journal
from ternmq.journal.log.scan import parse, scan
from ternmq.journal.log.segment import segment_name
from ternmq.journal.reader.page import PageRead, reframed, without_bodies
from ternmq.model.errors import CorruptJournal, DiskReadError, FileMissing, InvalidRequest
from ternmq.record.batch.batch import Column, Row, encode, topic_seed
from ternmq.record.fact import control, messages, transactions
from ternmq.record.fact.header import FLAG_MADE, HEADER, HEADER_BYTES, Kind
from ternmq.record.fact.messages import Fulfilment, Origin

SEGMENT = 64 << 10
SEED = topic_seed("orders")
APP = control.App("shop", "me", b"S" * 16, b"H" * 32, (control.Grant("produce"),), 5)
JOINED = control.Joined(4, "shop", "a-long-secret-name", "10.0.0.1:5", 77, "0.1", 9)


def batch(rows: int, size: int = 100) -> bytes:
    return encode(
        [Row(b"B" * size, f"key-{row}") for row in range(rows)],
        topic_seed=SEED,
        producer_id=3,
        first_sequence=0,
        born_us=1,
    )


def prepared(rows: int) -> transactions.Prepared:
    return transactions.Prepared(1, 0, 5, 7, 2, 0, rows, "writer", "0/0", "shop", batch(rows))


@pytest.fixture
def journal() -> Journal:
    made = Journal.create(MemoryDisk(), segment_size=SEGMENT, reserve_bytes=0)
    kinds = [
        (Kind.CONFIG, control.pack(APP)),
        (Kind.CONFIG, control.pack(control.AppDeleted("shop"))),
        (Kind.JOINED, control.pack(JOINED)),
        (Kind.STATE, b"S" * 1000),
        (Kind.LEFT, control.pack(control.Left(4, "closed"))),
        (Kind.MESSAGES, messages.pack(1, 0, 0, 3, batch(3), ())),
        (Kind.MESSAGES, messages.pack(1, 0, 3, 80, batch(100), ((0, 50), (60, 90)))),
        (Kind.PREPARED, transactions.pack_prepared(prepared(3))),
        (Kind.PREPARED, transactions.pack_prepared(prepared(100))),
    ]
    while made.end < 3 * SEGMENT:
        for kind, body in kinds:
            made.append(kind, body, 10)
            made.flush()
            made.sync_now()
            while (job := made.wants_spare()) is not None:
                job.run()
                made.spare_ready(job)
    return made


def read(journal: Journal, position: int, most: int = 8192, **more: Any) -> PageRead:
    page = PageRead(journal._disk, SEGMENT, position, journal.durable, most, **more)
    page.run()
    return page


def taken(page: PageRead) -> list[bytes]:
    assert page.error is None
    found, at = [], 0
    while at < len(page.records):
        head = HEADER.unpack_from(page.records, at)
        assert parse(page.records, at, head[6]) is not None
        found.append(page.records[at : at + head[2]])
        at += head[2]
    return found


@pytest.mark.parametrize("most", [1, 200, 4096, 10_000, 1 << 20])
@pytest.mark.parametrize("with_bodies", [True, False])
def test_every_record_comes_once_and_in_order(
    journal: Journal, most: int, with_bodies: bool
) -> None:
    stored = {one.position: one for one in scan(journal._disk, 0, segment_size=SEGMENT)}
    position, seen = 0, []
    while position < journal.durable:
        page = read(journal, position, most, with_bodies=with_bodies)
        records = taken(page)
        assert records, "one record at least"
        for record in records:
            crc, _, length, version, kind, flags, own, durable, time_us, epoch, _ = (
                HEADER.unpack_from(record)
            )
            was = stored[own]
            seen.append(own)
            assert (version, kind, time_us, epoch) == (1, was.kind, was.time_us, was.epoch)
            assert durable == was.durable
            body = record[HEADER_BYTES:]
            if flags & FLAG_MADE:
                assert flags & ~FLAG_MADE == was.flags
                assert length <= was.length
            else:
                assert (crc, body) == (was.crc, was.body)
        assert page.next == stored[seen[-1]].end
        position = page.next
    assert position == journal.durable
    assert seen == sorted(one for one in stored if one < journal.durable)


def made_of(journal: Journal, kind: Kind, **more: bool) -> list[tuple[bool, bytes]]:
    found, position = [], 0
    while position < journal.durable:
        page = read(journal, position, 1 << 20, **more)
        for record in taken(page):
            head = HEADER.unpack_from(record)
            if head[4] == kind:
                found.append((bool(head[5] & FLAG_MADE), record[HEADER_BYTES:]))
        position = page.next
    return found


def test_no_secret_goes_out(journal: Journal) -> None:
    whole = b""
    position = 0
    while position < journal.durable:
        page = read(journal, position)
        whole += page.records
        position = page.next
    for secret in (b"S" * 16, b"H" * 32, b"a-long-secret-name"):
        assert secret not in whole
    for made, body in made_of(journal, Kind.CONFIG):
        change = control.unpack_config(body)
        assert made == isinstance(change, control.App)
        if isinstance(change, control.App):
            assert (change.salt, change.hash) == (b"", b"")
            assert (change.name, change.grants) == (APP.name, APP.grants)
    for made, body in made_of(journal, Kind.JOINED):
        assert made
        assert control.unpack_joined(body).client == "a-long-s"
    assert set(made_of(journal, Kind.STATE)) == {(True, b"")}
    assert set(made_of(journal, Kind.PAD)) == {(True, b"")}


def test_bodies_stay_away_when_they_are_not_wanted(journal: Journal) -> None:
    for made, body in made_of(journal, Kind.MESSAGES, with_bodies=False):
        stored = messages.unpack(body)
        whole = batch(100 if stored.runs else 3)
        assert made == bool(stored.runs), "small records stay as they are"
        if made:
            assert b"B" * 100 not in body
            assert stored.runs == ((0, 50), (60, 90))
            assert whole.startswith(stored.batch)
            assert whole[len(stored.batch) :].startswith(b"B" * 100)
        else:
            assert stored.batch == whole


def test_bodies_of_prepared_rows_stay_away_too(journal: Journal) -> None:
    seen = set()
    for made, body in made_of(journal, Kind.PREPARED, with_bodies=False):
        stored = transactions.unpack_prepared(body)
        rows = stored.count
        seen.add(rows)
        whole = prepared(rows)
        assert made == (rows == 100), "small records stay as they are"
        assert replace(stored, batch=b"") == replace(whole, batch=b"")
        if made:
            assert whole.batch.startswith(stored.batch)
            assert whole.batch[len(stored.batch) :].startswith(b"B" * 100)
            assert b"B" * 100 not in stored.batch
        else:
            assert stored.batch == whole.batch
    assert seen == {3, 100}
    for made, body in made_of(journal, Kind.PREPARED):
        assert not made
        assert transactions.unpack_prepared(body).batch == batch(
            transactions.unpack_prepared(body).count
        )


def test_a_batch_with_other_columns_is_cut_at_the_same_place() -> None:
    data = batch(40)
    body = without_bodies(messages.pack(1, 0, 0, 40, data, ()))
    from ternmq.record.batch.batch import Batch

    start = Batch(data).start(Column.BODIES)
    assert messages.unpack(body).batch == data[: start + 4 * 41]


def due(count: int) -> bytes:
    return encode(
        [Row(b"B" * 100, f"key-{row}", due_us=500 + row) for row in range(count)],
        topic_seed=SEED, producer_id=3, first_sequence=0, born_us=1,
    )  # fmt: skip


@pytest.mark.parametrize("count", [1, 3, 40, 41])
@pytest.mark.parametrize(
    "what", [Fulfilment(1 << 40, 1 << 41, 500), Origin(1 << 40, 1 << 42), None]
)
def test_what_is_behind_a_batch_is_kept_when_its_bodies_are_cut(
    count: int, what: Fulfilment | Origin | None
) -> None:
    data = due(count)
    if isinstance(what, Fulfilment):
        body = messages.pack_fulfilled(1, 2, 7, count, data, what)
    elif what is not None:
        body = messages.pack_copy(1, 2, 7, count, data, what)
    else:
        body = messages.pack(1, 2, 7, count, data, ())
    found, whole = messages.unpack(without_bodies(body)), messages.unpack(body)
    assert replace(found, batch=b"") == replace(whole, batch=b"")
    assert whole.batch.startswith(found.batch)
    assert b"B" * 100 not in found.batch
    assert what in {found.fulfils, found.origin}


@pytest.mark.parametrize("kind", [Kind.SCHEDULED, Kind.MESSAGES])
def test_large_records_of_scheduled_rows_lose_their_bodies(kind: Kind) -> None:
    journal = Journal.create(MemoryDisk(), segment_size=SEGMENT, reserve_bytes=0)
    for count in (3, 100):
        if kind is Kind.SCHEDULED:
            body = messages.pack_copy(1, 2, 7, count, due(count), Origin(8, 9))
        else:
            body = messages.pack_fulfilled(1, 2, 7, count, due(count), Fulfilment(8, 9, 500))
        journal.append(kind, body, 10)
    journal.flush()
    journal.sync_now()
    journal.mark(10)
    journal.flush()
    journal.sync_now()
    found = made_of(journal, kind, with_bodies=False)
    assert [made for made, _ in found] == [False, True]
    for _, body in found:
        stored = messages.unpack(body)
        assert (stored.origin, stored.fulfils) != (None, None)


def test_what_is_asked_wrongly_and_what_is_damaged(journal: Journal) -> None:
    first = next(iter(scan(journal._disk, 0, segment_size=SEGMENT)))
    assert isinstance(read(journal, first.end + 8).error, InvalidRequest)
    disk = journal._disk
    file = disk.open(segment_name(0))
    file.pwrite(b"?", first.end + 60)
    page = read(journal, 0)
    assert (page.error, page.next) == (None, first.end), "what stands before it is read"
    page = read(journal, first.end)
    assert isinstance(page.error, CorruptJournal)
    assert page.error.byte == first.end
    assert page.records == b""
    disk.remove(segment_name(0))
    assert isinstance(read(journal, 0).error, FileMissing)


def test_a_disk_that_cannot_read(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str, *, create: bool = False) -> None:
        raise DiskReadError(f"cannot read {name}")

    monkeypatch.setattr(journal._disk, "open", fail)
    assert isinstance(read(journal, 0).error, DiskReadError)


def test_a_record_made_anew_is_valid() -> None:
    made = Journal.create(MemoryDisk(), segment_size=SEGMENT)
    position = made.append(Kind.LEFT, b"12345", 7)
    record = made.record(position)
    assert record is not None
    again = reframed(record, b"another body")
    found = parse(again, 0, position)
    assert found is not None
    assert (found.kind, found.time_us, found.body) == (Kind.LEFT, 7, b"another body\0\0\0\0")
    assert found.flags == FLAG_MADE
