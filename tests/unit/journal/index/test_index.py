"""The index: live tail, parts, sealed runs, opening, damage, retention."""

from __future__ import annotations

import itertools
import random
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ternmq.journal.cache.cold import WouldBlock
from ternmq.journal.disk.memory import MemoryDisk, MemoryFile
from ternmq.journal.index.idx_file import NO_HINT, StateHint
from ternmq.journal.index.index import Index
from ternmq.journal.index.open import Gap, fill, hints, open_index
from ternmq.journal.index.run_jobs import MendJob
from ternmq.model.errors import CorruptJournal, DiskError, DiskWriteError
from ternmq.model.types import NO_POSITION, Position
from ternmq.record.batch.batch import Row
from tests.unit.journal.index_kit import SEGMENT, SlowDisk, Stand, after_jobs


def filled(count: int = 200, seed: int = 1, **options: bool) -> Stand:
    """Return a stand with several segments, queues, parts and runs."""
    stand = Stand(SlowDisk())
    draw = random.Random(seed)
    for number in range(count):
        queue = draw.randrange(3)
        rows = [
            Row(
                b"b" * draw.randrange(80),
                key=draw.choice(["", f"k{draw.randrange(20)}"]),
                tag=draw.choice(["", "paid", "refunded"]),
                application_id=draw.choice(["", f"a{number}"]),
            )
            for _ in range(draw.choice([1, 1, 1, 4]))
        ]
        if draw.random() < 0.2:
            stand.prepare(*[Row(one.body, one.key, tag=one.tag) for one in rows], queue=queue)
        stand.send(*rows, queue=queue)
        if draw.random() < 0.06 and stand.undecided:
            stand.resolve(draw.randrange(2))
        if draw.random() < 0.05:
            stand.move([draw.randrange(stand.next[1, queue])], queue=queue)
        if draw.random() < 0.05:
            stand.other()
        if options.get("cuts", True) and draw.random() < 0.08:
            stand.cut()
        if options.get("seals", True) and draw.random() < 0.2:
            stand.seal()
    return stand


def names(disk: MemoryDisk) -> list[str]:
    return disk.names("index")


class TestLiveTail:
    def test_singles_are_found_by_offset(self):
        stand = Stand()
        positions = [stand.send() for _ in range(10)]
        places = stand.index.locate(1, 0, 3, 6, 10_000)
        assert list(places.first_offsets) == [3, 4, 5]
        assert list(places.positions) == positions[3:6]
        assert places.stop == 6
        assert places.masks is None

    def test_an_offset_within_a_batch_finds_its_batch(self):
        stand = Stand()
        stand.send(Row(b"a"), Row(b"b"), Row(b"c"))
        second = stand.send(Row(b"d"), Row(b"e"))
        places = stand.index.locate(1, 0, 4, 100, 10_000)
        assert list(places.positions) == [second]
        assert list(places.first_offsets) == [3]
        assert places.stop == 5

    def test_bytes_limit_the_answer_but_one_batch_always_comes(self):
        stand = Stand()
        for _ in range(5):
            stand.send()
        length = stand.index.locate(1, 0, 0, 1, 0).lengths[0]
        assert list(stand.index.locate(1, 0, 0, 5, 0).first_offsets) == [0]
        places = stand.index.locate(1, 0, 1, 5, 2 * length)
        assert (list(places.first_offsets), places.stop) == ([1, 2], 3)
        assert list(stand.index.locate(1, 0, 1, 5, 3 * length - 1).first_offsets) == [1, 2]

    def test_bytes_count_only_records_of_the_queue(self):
        stand = Stand()
        for _ in range(10):
            stand.send()
            stand.send(queue=1)
        length = stand.index.locate(1, 0, 0, 1, 0).lengths[0]
        assert len(stand.index.locate(1, 0, 0, 5, 5 * length).positions) == 5

    def test_nothing_beyond_the_end_or_in_an_unknown_queue(self):
        stand = Stand()
        stand.send()
        for places in (stand.index.locate(1, 0, 1, 9, 10), stand.index.locate(1, 5, 0, 9, 10)):
            assert list(places.positions) == []
        assert stand.index.locate(1, 0, 1, 9, 10).stop == 1
        assert stand.index.first_offset(1, 5) is None
        assert stand.index.visible(1, 5, NO_POSITION) == 0

    def test_visible_ends_at_the_mark(self):
        stand = Stand()
        positions = [stand.send(Row(b"a"), Row(b"b")) for _ in range(4)]
        ends = [stand.index.visible(1, 0, mark) for mark in positions]
        assert ends == [0, 2, 4, 6]
        assert stand.index.visible(1, 0, NO_POSITION) == 8
        assert stand.index.visible(1, 0, positions[2] + 1) == 6

    def test_masks_are_kept_once_a_batch_has_a_tag(self):
        stand = Stand()
        stand.send()
        stand.send(Row(b"a", tag="paid"))
        stand.send()
        masks = stand.index.locate(1, 0, 0, 3, 10_000).masks
        assert masks is not None
        assert masks[0] == masks[2] == 0
        assert masks[1].bit_count() == 1

    def test_forty_thousand_queues_with_a_message_each_stay_small(self):
        index = Index(MemoryDisk(), segment_size=1 << 30)
        index.add(1, 0, 0, 1, 80, 200, 0, 7, 0, b"", b"", 5)
        queue, segments = index.tail.queues[1 << 32], index.coverage.queues[1 << 32]
        held = [queue, queue.first_offsets, queue.positions, queue.lengths]
        held += [segments, segments.numbers, segments.first_offsets]
        # Beside these only an integer and two entries of dictionaries.
        assert sum(map(sys.getsizeof, held)) < 800


class TestRunFiles:
    @pytest.mark.parametrize("seed", range(4))
    def test_answers_do_not_depend_on_where_the_index_lies(self, seed):
        stand = filled(seed=seed)
        assert any(name.endswith(".idx") for name in names(stand.disk))
        rebuilt = stand.rebuilt()
        assert stand.index.coverage.equal(rebuilt.coverage) is None
        for queue in range(3):
            assert stand.walk(stand.index, queue=queue) == stand.walk(rebuilt, queue=queue)

    @pytest.mark.parametrize("seed", range(4))
    def test_every_offset_leads_to_its_record(self, seed):
        stand = filled(seed=seed)
        for (topic, queue), rows in stand.rows.items():
            for offset, (position, _) in enumerate(rows):
                places, _ = after_jobs(stand.index.locate, topic, queue, offset, offset + 1, 0)
                assert list(places.positions) == [position]
                assert places.stop == offset + 1

    @pytest.mark.parametrize("seed", range(3))
    def test_visible_for_every_mark(self, seed):
        stand = filled(seed=seed)
        for queue in range(3):
            visible = stand.visible[1, queue]
            for mark in range(0, stand.journal.end + 8, 1000):
                wanted = sum(position < mark for position in visible)
                found, _ = after_jobs(stand.index.visible, 1, queue, mark)
                assert found == wanted

    def test_a_frozen_tail_answers_until_its_file_is_installed(self):
        stand = Stand()
        positions = [stand.send() for _ in range(6)]
        job = stand.index.coverage.cut(stand.journal.end, stand.journal.last_crc)
        assert job is not None
        positions.append(stand.send())
        assert stand.walk(stand.index) == positions
        job.run()
        assert stand.walk(stand.index) == positions
        stand.finish(job)
        assert stand.walk(stand.index) == positions
        assert len(names(stand.disk)) == 1

    def test_a_cut_without_news_is_none(self):
        stand = Stand()
        stand.send()
        stand.cut()
        assert stand.index.coverage.cut(stand.journal.end, stand.journal.last_crc) is None

    def test_a_part_that_comes_after_the_sealed_run_is_thrown_away(self):
        stand = Stand()
        stand.send()
        part = stand.index.coverage.cut(stand.journal.end, stand.journal.last_crc)
        while stand.journal.end < SEGMENT:
            stand.send()
        (seal,) = stand.index.coverage.unsealed(stand.journal.written)
        assert part is not None
        part.run()
        seal.run()
        stand.finish(seal)
        stand.finish(part)
        assert names(stand.disk) == [f"{0:020d}.idx"]
        assert stand.index.coverage.equal(stand.rebuilt().coverage) is None

    def test_a_part_installed_while_the_segment_is_sealed_is_replaced(self):
        stand = Stand()
        stand.send()
        part = stand.index.coverage.cut(stand.journal.end, stand.journal.last_crc)
        assert part is not None
        part.run()
        while stand.journal.end < SEGMENT:
            stand.send()
        (seal,) = stand.index.coverage.unsealed(stand.journal.written)
        stand.finish(part)
        seal.run()
        stand.finish(seal)
        assert names(stand.disk) == [f"{0:020d}.idx"]
        assert stand.index.coverage.equal(stand.rebuilt().coverage) is None

    def test_sealing_is_asked_for_once_and_again_after_a_failure(self):
        stand = Stand()
        while stand.journal.end < SEGMENT:
            stand.send()
        (job,) = stand.index.coverage.unsealed(stand.journal.written)
        assert stand.index.coverage.unsealed(stand.journal.written) == []
        stand.index.coverage.failed(job)
        (again,) = stand.index.coverage.unsealed(stand.journal.written)
        again.run()
        stand.finish(again)
        assert stand.index.coverage.unsealed(stand.journal.written) == []

    def test_a_segment_is_not_sealed_before_the_next_one_was_written(self):
        stand = Stand()
        while stand.journal.end < SEGMENT:
            stand.send()
        (job,) = stand.index.coverage.unsealed(stand.journal.written)
        blank = bytes(SEGMENT)
        stand.disk.open(f"journal/{SEGMENT:020d}.seg").pwrite(blank, 0)
        with pytest.raises(DiskError, match="no record begins"):
            job.run()

    def test_segments_without_messages_get_a_run_too(self):
        stand = Stand()
        stand.send()
        while stand.journal.end < 3 * SEGMENT:
            stand.other(1000)
        stand.send()
        stand.seal()
        assert len(names(stand.disk)) == 3
        assert stand.walk(stand.index) == [position for position, _ in stand.rows[1, 0]]

    def test_reading_blocks_leave_no_descriptor_behind_the_limit(self):
        stand = filled(400)
        for queue in range(3):
            stand.walk(stand.index, queue=queue)
        assert 0 < len(stand.index.coverage.cache._files) <= 64


class TestOpening:
    @pytest.mark.parametrize("seed", range(6))
    def test_the_index_opened_from_files_equals_one_rebuilt(self, seed):
        stand = filled(seed=seed)
        index = stand.reopened()
        assert index.coverage.equal(stand.rebuilt().coverage) is None
        for queue in range(3):
            assert stand.walk(index, queue=queue) == stand.walk(stand.rebuilt(), queue=queue)

    def test_files_are_believed_not_rebuilt(self):
        stand = filled()
        stand.seal()
        stand.cut()
        _, gaps = opened(stand)
        assert gaps == []

    def test_without_files_everything_is_a_gap_and_is_written_again(self):
        stand = filled(cuts=False, seals=False)
        index, gaps = opened(stand)
        assert gaps[0].start == 0
        assert gaps[-1].stop == stand.journal.end
        assert all(one.stop == two.start for one, two in itertools.pairwise(gaps))
        for gap in gaps:
            fill(index, gap)
        for job in index.coverage.unsealed(stand.journal.written):
            job.run()
            assert index.coverage.installed(job) is None
        assert len(names(stand.disk)) == stand.journal.end // SEGMENT
        assert index.coverage.equal(stand.rebuilt().coverage) is None

    def test_going_on_after_opening(self):
        stand = filled()
        stand.index = stand.reopened()
        stand.send()
        stand.cut()
        stand.seal()
        assert stand.index.coverage.equal(stand.rebuilt().coverage) is None

    def test_a_file_of_a_history_that_was_cut_off_is_not_believed(self):
        """Same positions, other records: only the chain tells."""
        ours, theirs = Stand(), Stand()
        for stand, body in ((ours, b"1" * 40), (theirs, b"2" * 40)):
            for _ in range(5):
                stand.send(Row(body))
        theirs.cut()
        (name,) = names(theirs.disk)
        data = theirs.disk.image()[f"index/{name}"]
        ours.disk.open(f"index/{name}", create=True).pwrite(data, 0)
        _, gaps = opened(ours)
        assert gaps == [Gap(Position(0), ours.journal.end)]
        assert names(ours.disk) == []

    def test_a_file_that_reaches_beyond_the_journal_is_not_believed(self):
        stand = Stand()
        stand.send()
        end, crc = stand.journal.end, stand.journal.last_crc
        stand.send()
        stand.cut()
        index, gaps = open_index(
            stand.disk, segment_size=SEGMENT, first=Position(0), end=end, last_crc=crc
        )
        assert gaps == [Gap(Position(0), end)]
        fill(index, gaps[0])
        assert index.visible(1, 0, NO_POSITION) == 1

    def test_files_under_a_wrong_name_and_leftovers_go(self):
        stand = Stand()
        stand.send()
        stand.cut()
        (name,) = names(stand.disk)
        data = stand.disk.image()[f"index/{name}"]
        for other in (f"{0:020d}.idx", f"{8:020d}-{SEGMENT:020d}.part", f"{name}.tmp", "x"):
            stand.disk.open(f"index/{other}", create=True).pwrite(data, 0)
        _, gaps = opened(stand)
        assert gaps == []
        assert names(stand.disk) == [name]

    @pytest.mark.parametrize("seed", range(3))
    def test_any_flipped_byte_is_found_at_opening_or_when_it_is_read(self, seed):
        stand = filled(60, seed=seed)
        stand.cut()
        stand.seal()
        draw = random.Random(seed)
        rebuilt = stand.rebuilt()
        walks = [stand.walk(rebuilt, queue=queue) for queue in range(3)]
        image = stand.disk.image()
        for name in names(stand.disk):
            for _ in range(40):
                data = bytearray(image[f"index/{name}"])
                data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
                disk = SlowDisk({**image, f"index/{name}": bytes(data)})
                index = stand.reopened(disk)
                assert [stand.walk(index, queue=queue) for queue in range(3)] == walks
                assert index.coverage.equal(rebuilt.coverage) is None

    @pytest.mark.parametrize("left", [0, 1, 15, 16, 87, 88, 300, -1])
    def test_a_shortened_file_is_rebuilt(self, left):
        stand = filled(60)
        stand.cut()
        image = stand.disk.image()
        for name in names(stand.disk):
            cut = image[f"index/{name}"][:left]
            index = stand.reopened(SlowDisk({**image, f"index/{name}": cut}))
            assert index.coverage.equal(stand.rebuilt().coverage) is None

    def test_a_file_that_vanishes_while_in_use_is_rebuilt(self):
        stand = filled(100)
        stand.seal()
        index = stand.reopened()
        stand.index = index
        for name in names(stand.disk):
            stand.disk.remove(f"index/{name}")
        for queue in range(3):
            assert stand.walk(index, queue=queue) == stand.walk(stand.rebuilt(), queue=queue)
        assert index.coverage.equal(stand.rebuilt().coverage) is None

    def test_a_gap_that_the_journal_does_not_fill_is_damage(self):
        stand = filled(60, cuts=False, seals=False)
        index, gaps = opened(stand)
        stand.disk.open(f"journal/{0:020d}.seg").pwrite(b"\xff", 500)
        with pytest.raises(CorruptJournal):
            fill(index, gaps[0])

    def test_hints_come_newest_first_and_only_from_whole_files(self):
        stand = Stand()
        wanted: list[StateHint] = []
        for number in range(3):
            stand.send()
            hint = StateHint(Position(100 + number), Position(200 + number))
            job = stand.index.coverage.cut(stand.journal.end, stand.journal.last_crc, hint)
            assert job is not None
            job.run()
            stand.finish(job)
            wanted.insert(0, hint)
        assert hints(stand.disk) == wanted
        assert stand.index.coverage.hint() == wanted[0]
        stand.disk.open(f"index/{names(stand.disk)[-1]}").pwrite(b"\xff", 20)
        stand.disk.open("index/garbage", create=True)
        assert hints(stand.disk) == wanted[1:]
        assert Stand().index.coverage.hint() == NO_HINT


def opened(stand: Stand) -> tuple[Index, list[Gap]]:
    return open_index(
        stand.disk,
        segment_size=SEGMENT,
        first=stand.journal.first,
        end=stand.journal.end,
        last_crc=stand.journal.last_crc,
    )


class TestRetention:
    def test_a_dropped_segment_is_gone_for_every_queue(self):
        stand = filled(cuts=False)
        stand.seal()
        before = len(names(stand.disk))
        stand.index.coverage.drop_segment(Position(0)).run()
        assert len(names(stand.disk)) == before - 1
        for queue in range(3):
            seen = stand.visible[1, queue]
            first = sum(position < SEGMENT for position in seen)
            kept = [position for position, _ in stand.rows[1, queue][first:]]
            assert stand.index.first_offset(1, queue) == first
            places = stand.index.locate(1, queue, 0, 2, 1000)
            assert (list(places.positions), places.stop) == ([], min(2, first))
            assert stand.walk(stand.index, queue=queue) == list(dict.fromkeys(kept))

    def test_a_queue_without_messages_any_more_is_forgotten(self):
        stand = Stand()
        stand.send(queue=5)
        while stand.journal.end < SEGMENT:
            stand.send()
        stand.seal()
        stand.index.coverage.drop_segment(Position(0)).run()
        assert stand.index.first_offset(1, 5) is None
        assert stand.index.locate(1, 5, 0, 1, 10).stop == 0

    def test_a_run_that_comes_after_its_segment_was_dropped_is_removed(self):
        stand = Stand()
        while stand.journal.end < SEGMENT:
            stand.send()
        (job,) = stand.index.coverage.unsealed(stand.journal.written)
        stand.index.coverage.drop_segment(Position(0)).run()
        job.run()
        stand.finish(job)
        assert names(stand.disk) == []

    def test_moved_rows_are_found_newest_first_from_tail_and_run(self):
        stand = Stand()
        stand.send(Row(b"a"), Row(b"b"), Row(b"c"))
        older = stand.move([0, 2])
        for store in (lambda: None, stand.cut):
            store()
            place = stand.index.moved(1, 0, 2)
            assert place is not None
            assert (place.position, place.row) == (older, 1)
            assert stand.index.moved(1, 0, 1) is None
            assert stand.index.moved(2, 0, 2) is None
        newer = stand.move([2])
        place = stand.index.moved(1, 0, 2)
        assert place is not None
        assert (place.position, place.row) == (newer, 0)

    def test_a_record_of_two_stretches_does_not_hide_a_newer_copy(self):
        stand = Stand()
        stand.send(*[Row(b"b")] * 1100)
        older = stand.move([5, 1030])
        newer = stand.move([5])
        for store in (lambda: None, stand.cut):
            store()
            found = stand.index.newest_copies(1, 0, [5, 1030])
            assert found == {5: newer, 1030: older}

    @pytest.mark.parametrize("seed", range(4))
    def test_the_newest_copies_of_many_rows_are_those_of_each(self, seed):
        draw = random.Random(seed)
        stand = Stand(SlowDisk())
        for _ in range(60):
            stand.send(
                *[Row(b"b" * draw.randrange(30)) for _ in range(50)], queue=draw.randrange(2)
            )
            queue = draw.randrange(2)
            rows = stand.next.get((1, queue), 0)
            if rows:
                picked = draw.sample(range(rows), min(rows, draw.randrange(1, 9)))
                stand.move(sorted(picked) if draw.random() < 0.5 else picked, queue=queue)
            if draw.random() < 0.2:
                stand.cut()
            if draw.random() < 0.2:
                stand.seal()
        assert stand.next[1, 0] > 1024  # the tail keeps them by stretches of so many offsets
        index = stand.index
        for queue in range(3):
            rows = stand.next.get((1, queue), 100)
            each = {
                offset: place.position
                for offset in range(rows)
                if (place := after_jobs(index.moved, 1, queue, offset)[0]) is not None
            }
            assert bool(each) == (queue < 2)
            wanted = [[], [0], list(range(rows)), draw.sample(range(rows), 40)]
            wanted += [[1023, 1024], [1025, 1], list(range(900, 1100))]
            for offsets in wanted:
                found, _ = after_jobs(index.newest_copies, 1, queue, offsets)
                assert found == {one: each[one] for one in offsets if one in each}


class TestEqual:
    @pytest.mark.parametrize(
        "change",
        [
            {"topic": 2},
            {"queue": 1},
            {"first_offset": 4},
            {"count": 2},
            {"position": 320},
            {"length": 88},
            {"tag_mask": 1},
            {"producer_id": 8},
            {"first_sequence": 9},
            {"key_hashes": b"12345678"},
            {"ids": b"1234567812345678"},
            {"time_us": 99},
            {"rows": 3},
        ],
    )
    def test_any_difference_is_told(self, change):
        ours, theirs = (Index(MemoryDisk(), segment_size=1 << 20) for _ in range(2))
        add: dict[str, Any] = {
            "topic": 1,
            "queue": 0,
            "first_offset": 0,
            "count": 1,
            "position": 80,
            "length": 200,
            "tag_mask": 0,
            "producer_id": 7,
            "first_sequence": 0,
            "key_hashes": b"",
            "ids": b"",
            "time_us": 5,
        }
        ours.add(**add)
        theirs.add(**add)
        assert ours.coverage.equal(theirs.coverage) is None
        ours.add(**{**add, "first_offset": 1, "position": 288})
        theirs.add(**{**add, "first_offset": 1, "position": 288, **change})
        assert ours.coverage.equal(theirs.coverage) is not None
        assert theirs.coverage.equal(ours.coverage) is not None


@given(
    counts=st.lists(st.integers(1, 4), min_size=1, max_size=30),
    start=st.integers(0, 60),
    rows=st.integers(1, 40),
    max_bytes=st.integers(0, 4000),
    cut=st.integers(0, 30),
)
def test_locate_against_a_list(counts, start, rows, max_bytes, cut):
    """Tail and run file answer as a plain list of batches would."""
    index = Index(MemoryDisk(), segment_size=1 << 20)
    batches, offset, position = [], 0, 80
    for number, count in enumerate(counts):
        if number == cut:
            job = index.coverage.cut(Position(position), 0)
            if job is not None:
                job.run()
                index.coverage.installed(job)
        length = 96 + 8 * count
        index.add(1, 0, offset, count, position, length, 0, 7, offset, b"", b"", 5)
        batches.append((offset, offset + count, position, length))
        offset += count
        position += length + 8 * (number % 3)
    places = index.locate(1, 0, start, start + rows, max_bytes)
    wanted = [one for one in batches if one[0] < start + rows and one[1] > start]
    taken = len(places.positions)
    assert list(places.positions) == [one[2] for one in wanted[:taken]]
    assert list(places.first_offsets) == [one[0] for one in wanted[:taken]]
    assert list(places.lengths) == [one[3] for one in wanted[:taken]]
    if not wanted:
        assert places.stop == start
        return
    assert taken >= 1
    assert taken == 1 or sum(places.lengths) <= max_bytes
    assert places.stop == min(start + rows, wanted[taken - 1][1])
    if taken < len(wanted):  # it ended by the bytes or at the source's end
        full = sum(places.lengths) + wanted[taken][3] > max_bytes
        assert full or len(batches) > cut > 0


class FullDisk(SlowDisk):
    """No file of the index can be written."""

    def open(self, name: str, *, create: bool = False) -> MemoryFile:
        file = super().open(name, create=create)
        return FullFile(self, file.name, file._data) if name.endswith(".tmp") else file


class FullFile(MemoryFile):
    def pwrite(self, data: bytes, offset: int) -> None:
        super().pwrite(data[: len(data) // 2], offset)
        raise DiskWriteError("full")


class TestFullDisk:
    def test_the_frozen_tail_goes_on_and_nothing_is_left_behind(self):
        stand = Stand(FullDisk())
        while stand.journal.end < SEGMENT:
            stand.send()
            for job in stand.index.coverage.unsealed(stand.journal.written):
                with pytest.raises(DiskWriteError):
                    job.run()
                stand.index.coverage.failed(job)
        assert names(stand.disk) == []
        assert stand.walk(stand.index) == [position for position, _ in stand.rows[1, 0]]
        assert len(stand.index.coverage.unsealed(stand.journal.written)) == 1

    def test_a_part_that_could_not_be_written_is_sealed_with_the_rest(self):
        stand = Stand(FullDisk())
        stand.send()
        job = stand.index.coverage.cut(stand.journal.end, stand.journal.last_crc)
        assert job is not None
        with pytest.raises(DiskWriteError):
            job.run()
        stand.index.coverage.failed(job)
        while stand.journal.end < SEGMENT:
            stand.send()
        stand.index.coverage.disk = stand.index.coverage.cache.disk = MemoryDisk(stand.disk.image())
        for job in stand.index.coverage.unsealed(stand.journal.written):
            job.run()
            stand.index.coverage.installed(job)
        assert stand.walk(stand.index) == [position for position, _ in stand.rows[1, 0]]


class TestDamageWhileRunning:
    def test_two_commands_that_meet_the_same_damage_both_get_their_answer(self):
        stand = filled(100)
        stand.seal()
        stand.index = stand.reopened()
        image = stand.disk.image()
        name = f"index/{0:020d}.idx"
        head = len(image[name]) // 3
        stand.disk.open(name).pwrite(b"\xff" * 64, head)
        jobs = []
        for queue in range(3):
            for _ in range(10):  # reads, until one of them meets the damage
                try:
                    stand.index.locate(1, queue, 0, 10, 1000)
                    break
                except WouldBlock as blocked:
                    if isinstance(blocked.job, MendJob):
                        jobs.append(blocked.job)
                        break
                    blocked.job.run()
        for job in jobs:
            job.run()
        rebuilt = stand.rebuilt()
        for queue in range(3):
            assert stand.walk(stand.index, queue=queue) == stand.walk(rebuilt, queue=queue)
        assert stand.index.coverage.equal(rebuilt.coverage) is None

    def test_a_damaged_part_does_not_spoil_the_sealed_run(self):
        stand = Stand()
        stand.send()
        stand.cut()
        (name,) = names(stand.disk)
        stand.disk.open(f"index/{name}").pwrite(b"\xff" * 8, 600)
        while stand.journal.end < SEGMENT:
            stand.send()
        stand.seal()
        assert stand.index.coverage.equal(stand.rebuilt().coverage) is None
        assert stand.reopened().coverage.equal(stand.rebuilt().coverage) is None
