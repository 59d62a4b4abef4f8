"""Looking messages up: by id, application id, key and time, offset, time."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator

import pytest

from ternmq.journal.index.tail import Place
from ternmq.journal.store import lookup
from ternmq.journal.store.lookup import Cursor, Found, Page
from ternmq.journal.store.store import RecordStore
from ternmq.model.types import NO_POSITION
from ternmq.record.batch.batch import Batch, Row
from ternmq.record.batch.hashes import key_hash
from ternmq.record.fact import messages
from tests.unit.journal.index_kit import SlowDisk, Stand, after_jobs


def stand_of(count: int = 120, seed: int = 3) -> Stand:
    """Return messages with keys and ids, some in runs, some in parts, some in the tail."""
    stand = Stand(SlowDisk())
    draw = random.Random(seed)
    for number in range(count):
        rows = [
            Row(
                f"{number}.{row}".encode(),
                key=draw.choice(["", "k1", "k2", "k3"]),
                application_id=f"a{number}.{row}" if draw.random() < 0.5 else "",
            )
            for row in range(draw.choice([1, 1, 3]))
        ]
        stand.send(*rows, topic=draw.choice([1, 2]), queue=draw.randrange(2))
        if draw.random() < 0.1:
            stand.cut()
        if draw.random() < 0.2:
            stand.seal()
    return stand


def everything(stand: Stand) -> list[tuple[Found, Row]]:
    """Return every message, oldest first, from the records themselves."""
    rows = []
    for record in stand.records():
        if record.kind != 6:
            continue
        content = messages.unpack(record.body)
        for number, row in enumerate(Batch(content.batch).rows()):
            offset = content.offset_of(number)
            if offset is not None:
                place = Place(record.position, number)
                found = Found(
                    place,
                    record.time_us,
                    record.time_us,
                    content.topic,
                    content.queue,
                    offset,
                    content.batch,
                    number,
                )
                rows.append((found, row))
    return rows


def body_of(found: Found | None) -> bytes:
    assert found is not None
    return Batch(found.batch).body(found.row)


def test_every_message_is_found_by_its_id():
    stand = stand_of()
    for found, row in everything(stand):
        sequence = Batch(found.batch).first_sequence + found.row
        got, _ = after_jobs(lookup.by_message_id, stand.index, stand.store, 7, sequence)
        assert got == found
        assert body_of(got) == row.body


@pytest.mark.parametrize(
    ("producer", "sequence"), [(7, 10_000), (8, 0), (6, 2**64 - 1), (7, 2**64 - 1)]
)
def test_ids_that_never_were(producer, sequence):
    stand = stand_of()
    got, _ = after_jobs(lookup.by_message_id, stand.index, stand.store, producer, sequence)
    assert got is None


def test_every_message_is_found_by_its_offset():
    stand = stand_of()
    for found, _ in everything(stand):
        topic, queue = found.topic, found.queue
        got, _ = after_jobs(lookup.by_offset, stand.index, stand.store, topic, queue, found.offset)
        assert got == found
    assert lookup.by_offset(stand.index, stand.store, 1, 0, 10_000) is None


def test_every_message_is_found_by_its_application_id():
    stand = stand_of()
    for found, row in everything(stand):
        topic = found.topic
        for where, wanted in ((topic, found), (3 - topic, None)):
            if row.application_id:
                got, _ = after_jobs(
                    lookup.by_application_id, stand.index, stand.store, where, row.application_id
                )
                assert got == wanted


@pytest.mark.parametrize("limit", [1, 3, 1000])
def test_pages_by_key_are_complete_and_newest_first(limit):
    stand = stand_of()
    for topic in (1, 2):
        wanted = [
            one
            for one, row in reversed(everything(stand))
            if row.key == "k1" and one.topic == topic
        ]
        got: list[Found] = []
        after: Cursor | None = None
        while True:
            page, _ = after_jobs(
                lookup.by_key, stand.index, stand.store, topic, "k1", limit=limit, after=after
            )
            assert len(page.found) <= limit
            got += page.found
            after = page.next
            if after is None:
                break
            assert len(page.found) == limit
        assert got == wanted


def test_keys_within_a_time():
    stand = stand_of()
    all_found = [one for one, row in reversed(everything(stand)) if row.key == "k2"]
    times = sorted({one.time_us for one in all_found})
    for since in times[::5]:
        for until in times[::7]:
            wanted = [one for one in all_found if since <= one.time_us < until and one.topic == 1]
            page, _ = after_jobs(
                lookup.by_key,
                stand.index,
                stand.store,
                1,
                "k2",
                since_us=since,
                until_us=until,
                limit=1000,
            )
            assert page == Page(wanted, None)


def pages(stand: Stand, key: str, limit: int = 5000) -> Iterator[Page]:
    """Turn all pages of a key."""
    after: Cursor | None = None
    while True:
        page = lookup.by_key(stand.index, stand.store, 1, key, limit=limit, after=after)
        yield page
        after = page.next
        if after is None:
            return


@pytest.mark.parametrize("cut", [False, True])
def test_a_page_is_a_bounded_piece_of_work(cut: bool, monkeypatch: pytest.MonkeyPatch):
    stand = Stand()
    for _ in range(3):
        stand.send(*[Row(b"", key="k")] * 500)
    if cut:
        stand.cut()
    read: list[int] = []
    get = RecordStore.get

    def counted(self: RecordStore, position: int, length: int | None = None) -> bytes:
        read.append(position)
        return get(self, position, length)

    monkeypatch.setattr(RecordStore, "get", counted)
    offsets: list[int] = []
    for page in pages(stand, "k"):
        assert len(page.found) <= lookup.PAGE_WORK
        assert len(read) <= 2, "a record is read once for all its rows of a page"
        read.clear()
        offsets += [one.offset for one in page.found]
    assert offsets == list(range(1499, -1, -1))


def test_a_page_reads_few_large_records():
    stand = Stand(segment_size=8 << 20)
    for number in range(12):
        stand.send(Row(bytes(lookup.PAGE_WORK << 12), key="k", tag=str(number)))
    sizes = [len(page.found) for page in pages(stand, "k")]
    assert sum(sizes) == 12
    assert max(sizes) <= 4


def test_a_page_may_be_empty_and_others_follow():
    stand = Stand()
    stand.send(Row(b"right", key="k"))
    forged = struct.pack("<Q", key_hash(b"k"))
    for _ in range(2 * lookup.PAGE_WORK):
        stand.send(Row(b"wrong", key="other"))
        (position, _) = stand.rows[1, 0][-1]
        stand.index.tail.keys.add(1, position, forged)
    first, *others = pages(stand, "k")
    assert first.found == []
    assert [body_of(one) for page in others for one in page.found] == [b"right"]


@pytest.mark.parametrize("cut", [False, True])
def test_a_later_page_does_not_go_over_the_earlier_ones(cut: bool):
    stand = Stand()
    for _ in range(20):
        stand.send(*[Row(b"", key="k")] * 3, Row(b"", key="other"))
    if cut:
        stand.cut()
    (source,) = [
        one
        for one in stand.index.coverage.newest_first()
        if list(one.key(1, key_hash(b"k"), NO_POSITION))
    ]
    places = list(source.key(1, key_hash(b"k"), NO_POSITION))
    assert len(places) == 60
    for at in range(0, 60, 7):
        before = places[at].position
        assert list(source.key(1, key_hash(b"k"), before)) == [
            one for one in places if one.position < before
        ]


def test_another_key_with_the_same_hash_is_left_out():
    stand = Stand()
    stand.send(Row(b"right", key="k"))
    stand.send(Row(b"wrong", key="other"))
    forged = struct.pack("<Q", key_hash(b"k"))
    (position, _) = stand.rows[1, 0][1]
    for cut in (False, True):
        stand.index.tail.keys.add(1, position, forged)
        if cut:
            stand.cut()
        found = lookup.by_key(stand.index, stand.store, 1, "k").found
        assert [body_of(one) for one in found] == [b"right"]


def test_rows_that_were_left_out_are_not_found():
    stand = Stand()
    rows = [Row(f"{n}".encode(), key="k", application_id=f"a{n}") for n in range(5)]
    stand.send(*rows, runs=((1, 2), (3, 5)))
    for _ in range(2):
        page = lookup.by_key(stand.index, stand.store, 1, "k")
        assert [one.offset for one in page.found] == [2, 1, 0]
        assert [body_of(one) for one in page.found] == [b"4", b"3", b"1"]
        for row, offset in enumerate([None, 0, None, 1, 2]):
            found = lookup.by_message_id(stand.index, stand.store, 7, row)
            assert (None if found is None else found.offset) == offset
            found = lookup.by_application_id(stand.index, stand.store, 1, f"a{row}")
            assert (None if found is None else found.offset) == offset
        stand.cut()


def test_the_first_offset_at_a_time():
    stand = stand_of()
    rows = everything(stand)
    first, last = rows[0][0].time_us, rows[-1][0].time_us
    for topic, queue in stand.next:
        mine = [one for one, _ in rows if (one.topic, one.queue) == (topic, queue)]
        for time_us in range(first - 7, last + 25, 17):
            wanted = next(
                (one.offset for one in mine if one.time_us >= time_us), stand.next[topic, queue]
            )
            got, _ = after_jobs(
                lookup.offset_at_time, stand.index, stand.store, topic, queue, time_us
            )
            assert got == wanted


def test_the_first_offset_at_a_time_of_nothing():
    stand = Stand()
    assert lookup.offset_at_time(stand.index, stand.store, 1, 0, 5) is None
