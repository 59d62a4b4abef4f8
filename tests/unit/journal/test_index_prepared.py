"""The index of prepared rows: where they stand, when they are visible, what became of them."""

from __future__ import annotations

from ternmq.journal.reader.reader import JournalReader
from ternmq.journal.store import lookup
from ternmq.model.types import NO_POSITION, Position
from ternmq.record.batch.batch import Batch, Row
from ternmq.record.fact import messages
from tests.unit.journal.index.test_index import filled
from tests.unit.journal.index_kit import SEGMENT, SlowDisk, Stand, after_jobs


def spread() -> tuple[Stand, list[Position], Position]:
    """Return rows prepared in the first segment and in the second, resolved in the fourth."""
    stand = Stand(SlowDisk())
    prepared = [stand.prepare(Row(b"p0", key="k"), Row(b"p1", tag="paid"))]
    stand.send(Row(b"s0", key="k"))
    while stand.journal.end < SEGMENT:
        stand.other()
    prepared.append(stand.prepare(Row(b"p2", key="k")))
    while stand.journal.end < 3 * SEGMENT:
        stand.other()
    resolved = stand.resolve()
    stand.send(Row(b"s1", key="k"))
    return stand, prepared, resolved


def bodies(stand: Stand) -> list[bytes]:
    found: list[bytes] = []
    at = 0
    while at < stand.next[1, 0]:
        places, _ = after_jobs(stand.index.locate, 1, 0, at, at + 10, 1 << 20)
        records, _ = after_jobs(stand.store.gather, places)
        for record in records:
            found += Batch(messages.of_record(record).batch).bodies()
        at = places.stop
    return found


def test_batches_are_found_where_they_were_prepared_and_visible_where_they_were_resolved() -> None:
    stand, prepared, resolved = spread()
    for write in (lambda: None, stand.cut, stand.seal):
        write()
        places, _ = after_jobs(stand.index.locate, 1, 0, 1, 4, 1 << 20)
        assert list(places.positions) == prepared
        assert list(places.first_offsets) == [1, 3]
        assert list(places.resolved or ()) == [resolved, resolved]
        assert [places.visible_from(at) for at in (0, 1)] == [resolved, resolved]
        assert places.masks is not None
        assert [bool(mask) for mask in places.masks] == [True, False]
        assert after_jobs(stand.index.visible, 1, 0, resolved)[0] == 1
        assert after_jobs(stand.index.visible, 1, 0, resolved + 1)[0] == 4
        assert bodies(stand) == [b"s0", b"p0", b"p1", b"p2", b"s1"]
        places, _ = after_jobs(stand.index.locate, 1, 0, 0, 5, 1)
        assert list(places.positions) != prepared
        assert stand.reopened().coverage.equal(stand.index.coverage) is None


def test_one_batch_at_least_and_no_more_than_asked_for() -> None:
    stand = Stand()
    for _ in range(4):
        stand.prepare(Row(b"x" * 100))
    stand.resolve()
    places, _ = after_jobs(stand.index.locate, 1, 0, 0, 4, 1)
    assert (len(places.positions), places.stop) == (1, 1)
    places, _ = after_jobs(stand.index.locate, 1, 0, 1, 4, 2 * places.lengths[0])
    assert (len(places.positions), places.stop) == (2, 3)


def test_what_became_of_a_prepared_record() -> None:
    stand = Stand(SlowDisk())
    dropped, kept = stand.prepare(), stand.prepare()
    while stand.journal.end < 2 * SEGMENT:
        stand.other()
    resolved = stand.resolve(dropped=1)
    pending = stand.prepare()
    for write in (lambda: None, stand.cut, stand.seal):
        write()
        found, _ = after_jobs(stand.index.settlement, kept)
        assert found is not None
        assert (found.first_offset, found.position) == (0, resolved)
        found, _ = after_jobs(stand.index.settlement, dropped)
        assert found is not None
        assert (found.first_offset, found.position) == (None, resolved)
        assert after_jobs(stand.index.settlement, pending)[0] is None


def test_look_ups_find_what_is_resolved_below_a_mark() -> None:
    stand, prepared, resolved = spread()
    for write in (lambda: None, stand.cut, stand.seal):
        write()
        page, _ = after_jobs(lookup.by_key, stand.index, stand.store, 1, "k")
        assert [one.offset for one in page.found] == [4, 3, 0, 1]
        assert [one.place.position for one in page.found][1::2] == prepared[::-1]
        one = page.found[3]
        assert one.time_us < one.stored_us
        page, _ = after_jobs(lookup.by_key, stand.index, stand.store, 1, "k", below=resolved)
        assert [one.offset for one in page.found] == [0]
        found, _ = after_jobs(lookup.by_message_id, stand.index, stand.store, 7, 1)
        assert found is not None
        assert (found.offset, found.row) == (2, 1)
        assert (
            after_jobs(lookup.by_message_id, stand.index, stand.store, 7, 1, below=resolved)[0]
            is None
        )
        found, _ = after_jobs(lookup.by_offset, stand.index, stand.store, 1, 0, 3)
        assert found is not None
        assert Batch(found.batch).bodies()[found.row] == b"p2"
        assert (
            after_jobs(lookup.by_offset, stand.index, stand.store, 1, 0, 3, below=resolved)[0]
            is None
        )


def test_a_floor_hides_what_lies_below() -> None:
    stand, _, _ = spread()
    for write in (lambda: None, stand.cut, stand.seal):
        write()
        stand.index.floor_of = lambda key: 4 if key == 1 << 32 else 0
        assert stand.index.first_offset(1, 0) == 4
        places = stand.index.locate(1, 0, 1, 10, 1 << 20)
        assert (list(places.positions), places.stop) == ([], 4)
        places, _ = after_jobs(stand.index.locate, 1, 0, 4, 10, 1 << 20)
        assert (list(places.first_offsets), places.stop) == ([4], 5)
        stand.index.floor_of = None


def test_the_reader_passes_over_rows_whose_segment_is_gone() -> None:
    stand, prepared, _ = spread()
    stand.seal()
    reader = JournalReader(stand.disk)
    told = [(one.messages.first_offset, one.time_us) for one in reader.batches(1, 0)]
    assert [offset for offset, _ in told] == [0, 1, 3, 4]
    assert told == sorted(told, key=lambda one: one[1])
    stand.disk.remove("journal/00000000000000000000.seg")
    reader = JournalReader(stand.disk)
    assert [one.messages.first_offset for one in reader.batches(1, 0)] == [3, 4]
    for name in stand.disk.names("index"):
        stand.disk.remove(f"index/{name}")
    assert [one.messages.first_offset for one in reader.batches(1, 0)] == [3, 4]
    assert prepared


def test_a_random_journal_is_read_whole_by_everybody() -> None:
    for seed in range(4):
        stand = filled(300, seed)
        stand.resolve()
        for queue in range(3):
            wanted = stand.rows[1, queue]
            assert after_jobs(stand.index.visible, 1, queue, NO_POSITION)[0] == len(wanted)
            reader = JournalReader(stand.disk)
            rows: list[bytes] = []
            for one in reader.batches(1, queue):
                assert one.messages.first_offset == len(rows)
                rows += Batch(one.messages.batch).bodies()
            assert rows == [
                Batch(stand.batches[position]).bodies()[row] for position, row in wanted
            ]
            for offset, (position, row) in enumerate(wanted):
                places, _ = after_jobs(stand.index.locate, 1, queue, offset, offset + 1, 1)
                assert (places.positions[0], offset - places.first_offsets[0]) == (position, row)
