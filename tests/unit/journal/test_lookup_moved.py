"""Looking up messages that were copied into MOVED records: originals, copies, copies of copies."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple

import pytest

from ternmq.journal.index.tail import Place
from ternmq.journal.log.scan import scan
from ternmq.journal.store import lookup
from ternmq.journal.store.lookup import Cursor, Found
from ternmq.model.types import NO_POSITION, Position
from ternmq.record.batch.batch import Batch, Compression, Row
from ternmq.record.fact import messages, moved
from ternmq.record.fact.header import Kind
from tests.unit.journal.index_kit import SEGMENT, SlowDisk, Stand, after_jobs


def keep_in_tail(stand: Stand) -> None:
    """Leave the newest records in memory."""


def seal_all(stand: Stand) -> None:
    start = stand.journal.end
    while stand.journal.end // SEGMENT == start // SEGMENT:
        stand.other(500)
    stand.seal()


WHERE = [keep_in_tail, Stand.cut, seal_all]


def go(stand: Stand) -> None:
    """Fill the first segment and let it go."""
    seal_all(stand)
    stand.journal.remove_first_segment()
    stand.store.drop_segment(0)
    stand.index.coverage.drop_segment(Position(0)).run()


def found_by_id(stand: Stand, sequence: int, below: int = NO_POSITION) -> Found | None:
    return after_jobs(
        lookup.by_message_id, stand.index, stand.store, 7, sequence, below=Position(below)
    )[0]


def found_by_application_id(stand: Stand, text: str, below: int = NO_POSITION) -> Found | None:
    return after_jobs(
        lookup.by_application_id, stand.index, stand.store, 1, text, below=Position(below)
    )[0]


def found_by_offset(
    stand: Stand, offset: int, queue: int = 0, below: int = NO_POSITION
) -> Found | None:
    return after_jobs(
        lookup.by_offset, stand.index, stand.store, 1, queue, offset, below=Position(below)
    )[0]


def found_by_key(
    stand: Stand,
    key: str,
    *,
    limit: int = 1000,
    below: int | None = NO_POSITION,
    until_us: int = 2**62,
    between: Callable[[], object] = lambda: None,
) -> list[Found]:
    """Return all pages; ``between`` happens behind each. ``below``: None is what is durable."""
    found: list[Found] = []
    after: Cursor | None = None
    while True:
        page, _ = after_jobs(
            lookup.by_key,
            stand.index,
            stand.store,
            1,
            key,
            limit=limit,
            after=after,
            below=stand.journal.durable if below is None else Position(below),
            until_us=until_us,
        )
        found += page.found
        after = page.next
        if after is None:
            return found
        between()


def body(found: Found | None) -> bytes:
    assert found is not None
    return Batch(found.batch).body(found.row)


ROWS = [
    Row(b"body %d " % number * 20, key=f"k{number % 2}", application_id=f"a{number}", tag="paid")
    for number in range(4)
]


@pytest.mark.parametrize("settle", WHERE)
@pytest.mark.parametrize("compression", [Compression.NONE, Compression.LZ4])
def test_a_row_of_which_only_the_copy_is_left_is_found_by_all_it_is_known_by(settle, compression):
    stand = Stand(SlowDisk())
    stand.send(queue=1)
    stand.send(*ROWS, queue=1, compression=compression)
    seal_all(stand)
    position = stand.move([2, 4], queue=1)  # rows 1 and 3 of the batch, sequences 2 and 4
    settle(stand)
    go(stand)
    for row, offset, number in ((0, 2, 1), (1, 4, 3)):
        by_id = found_by_id(stand, 1 + number)
        assert by_id is not None
        assert by_id.place == Place(position, row)
        assert (by_id.topic, by_id.queue, by_id.offset) == (1, 1, offset)
        assert by_id.copied
        assert body(by_id) == ROWS[number].body
        assert Batch(by_id.batch).first_sequence + by_id.row == 1 + number
        assert found_by_application_id(stand, f"a{number}") == by_id
        assert found_by_offset(stand, offset, queue=1) == by_id
        assert by_id in found_by_key(stand, "k1")
    assert len(found_by_key(stand, "k1")) == 2
    assert found_by_key(stand, "k0") == []
    for number in (0, 2):
        assert found_by_id(stand, 1 + number) is None
        assert found_by_application_id(stand, f"a{number}") is None
        assert found_by_offset(stand, 1 + number, queue=1) is None


@pytest.mark.parametrize("settle", WHERE)
def test_of_original_and_copies_the_newest_is_found_once(settle):
    stand = Stand(SlowDisk())
    stand.send(*ROWS)
    seal_all(stand)
    older = stand.move([1, 3])
    settle(stand)
    newer = stand.move([3])
    settle(stand)
    for number, offset, place in ((1, 1, Place(older, 0)), (3, 3, Place(newer, 0))):
        for found in (
            found_by_id(stand, number),
            found_by_application_id(stand, f"a{number}"),
            found_by_offset(stand, offset),
        ):
            assert found is not None
            assert found.place == place
    for limit in (1, 2, 1000):
        assert [one.place for one in found_by_key(stand, "k1", limit=limit)] == [
            Place(newer, 0),
            Place(older, 0),
        ]


@pytest.mark.parametrize("settle", WHERE)
def test_a_copy_that_may_still_be_lost_does_not_hide_what_is_safe(settle):
    stand = Stand(SlowDisk())
    first = stand.send(*ROWS)
    seal_all(stand)
    older = stand.move([1])
    newer = stand.move([1])
    settle(stand)
    for below, place in (
        (NO_POSITION, Place(newer, 0)),
        (newer, Place(older, 0)),
        (older, Place(first, 1)),
    ):
        for found in (
            found_by_id(stand, 1, below),
            found_by_application_id(stand, "a1", below),
            found_by_offset(stand, 1, below=below),
            *[one for one in found_by_key(stand, "k1", below=below) if one.offset == 1],
        ):
            assert found is not None
            assert found.place == place
    for limit in (1, 1000):
        assert len(found_by_key(stand, "k1", below=newer, limit=limit)) == 2
        assert len(found_by_key(stand, "k1", below=older, limit=limit)) == 2
    assert found_by_id(stand, 1, first) is None
    assert found_by_application_id(stand, "a1", first) is None
    assert found_by_offset(stand, 1, below=first) is None
    assert found_by_key(stand, "k1", below=first) == []


@pytest.mark.parametrize("limit", [1, 1000])
def test_a_copy_made_after_the_time_asked_for_does_not_hide_the_original(limit):
    stand = Stand(SlowDisk())
    for row in ROWS:
        stand.send(row)
    until_us = stand.time_us + 1
    stand.move([3])
    stand.move([1])
    found = found_by_key(stand, "k1", until_us=until_us, limit=limit)
    assert [(one.offset, one.copied) for one in found] == [(3, False), (1, False)]


def test_pages_turned_while_rows_are_copied_miss_nothing_and_repeat_nothing():
    stand = Stand(SlowDisk())
    for row in ROWS:
        stand.send(row)
        stand.send(row)
    stand.move([6])
    copies = iter([3, 2, 7])
    found = found_by_key(
        stand, "k1", limit=1, below=None, between=lambda: stand.move([next(copies)])
    )
    assert [one.offset for one in found] == [6, 7, 3, 2]


def test_the_newest_message_with_an_application_id_is_not_the_one_copied_last():
    stand = Stand(SlowDisk())
    stand.send(Row(b"older", application_id="a"))
    seal_all(stand)
    stand.send(Row(b"newer", application_id="a"))
    stand.move([0])
    assert body(found_by_application_id(stand, "a")) == b"newer"
    stand.move([1])
    stand.move([0])
    newest = found_by_application_id(stand, "a")
    assert body(newest) == b"newer"
    assert newest is not None
    assert newest.copied  # the newest copy of the newest message


def test_only_copies_are_left_of_two_messages_with_one_application_id():
    stand = Stand(SlowDisk())
    stand.send(Row(b"older", application_id="a"), queue=1)
    stand.send(Row(b"newer", application_id="a"))
    seal_all(stand)
    stand.move([0])
    newest = stand.move([0])
    stand.move([0], queue=1)
    go(stand)
    found = found_by_application_id(stand, "a")
    assert body(found) == b"newer"
    assert found is not None
    assert found.place.position == newest


class Copy(NamedTuple):
    """A place of a message, from the records themselves."""

    producer: int
    sequence: int
    place: Place
    time_us: int
    queue: int
    offset: int
    row: Row


def places_of(stand: Stand) -> list[Copy]:
    """Return every place of every message of topic 1 that is kept, oldest first."""
    found: list[Copy] = []
    for record in scan(stand.disk, stand.journal.first, segment_size=SEGMENT):
        rows: list[tuple[bytes, int, int, int, int]] = []
        if record.kind == Kind.MESSAGES:
            content = messages.unpack(record.body)
            for row in range(Batch(content.batch).count):
                offset = content.offset_of(row)
                if offset is not None:
                    rows.append((content.batch, row, row, content.queue, offset))
        elif record.kind == Kind.MOVED:
            copies = moved.unpack(record.body)
            for row, offset in enumerate(copies.offsets()):
                piece, in_batch = copies.row(row)
                rows.append((piece.batch, in_batch, row, copies.queue, offset))
        for data, in_batch, row, queue, offset in rows:
            batch = Batch(data)
            found.append(
                Copy(
                    batch.producer_id,
                    batch.first_sequence + in_batch,
                    Place(record.position, row),
                    record.time_us,
                    queue,
                    offset,
                    batch.row(in_batch),
                )
            )
    return found


@pytest.mark.parametrize("seed", range(8))
def test_against_the_records_themselves(seed):
    """Rows in two queues, some copied, some of them again, segments gone, run files, parts."""
    draw = random.Random(seed)
    stand = Stand(SlowDisk())
    for number in range(150):
        queue = draw.randrange(2)
        count = draw.choice([1, 1, 3])
        rows = [
            Row(
                b"%d.%d " % (number, row) * 8,
                key=draw.choice(["", "k1", "k2"]),
                application_id=f"a{number}.{row}" if draw.random() < 0.5 else "",
            )
            for row in range(count)
        ]
        stand.send(*rows, queue=queue, compression=draw.choice(list(Compression)))
        if draw.random() < 0.3:
            end = stand.next[1, queue]
            stand.move(sorted(draw.sample(range(end), min(end, 3))), queue=queue)
        draw.choice([keep_in_tail, keep_in_tail, Stand.cut, Stand.seal])(stand)
        if draw.random() < 0.03 and stand.journal.first + SEGMENT < stand.journal.end - SEGMENT:
            stand.seal()
            base = stand.journal.first
            stand.journal.remove_first_segment()
            stand.store.drop_segment(base)
            stand.index.coverage.drop_segment(base).run()
    assert stand.journal.first > 0
    everything = places_of(stand)
    newest: dict[tuple[int, int], Copy] = {}
    for one in everything:
        newest[one.queue, one.offset] = one
    assert any(one.time_us != newest[one.queue, one.offset].time_us for one in everything)
    for copy in newest.values():
        by_id = found_by_id(stand, copy.sequence)
        assert by_id is not None
        assert by_id.place == copy.place
        assert (by_id.topic, by_id.queue, by_id.offset) == (1, copy.queue, copy.offset)
        assert Batch(by_id.batch).row(by_id.row) == copy.row
        assert by_id.time_us == copy.time_us
        assert found_by_offset(stand, copy.offset, queue=copy.queue) == by_id
        if copy.row.application_id:
            assert found_by_application_id(stand, copy.row.application_id) == by_id
    for key in ("k1", "k2"):
        wanted = sorted(
            (one.place.position, one.place.row) for one in newest.values() if one.row.key == key
        )
        for limit in (1, 7, 1000):
            got = found_by_key(stand, key, limit=limit)
            assert [(one.place.position, one.place.row) for one in reversed(got)] == wanted
    without_index = {
        name: data for name, data in stand.disk.image().items() if name.startswith("journal/")
    }
    assert stand.index.coverage.equal(stand.reopened(SlowDisk(without_index)).coverage) is None
    assert stand.index.coverage.equal(stand.reopened().coverage) is None
