"""STATE sets: what is written, named, loaded; what an interruption leaves."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ternmq.journal.cache.cold import WouldBlock
from ternmq.journal.disk.faulty import FaultyDisk
from ternmq.journal.disk.memory import MemoryDisk
from ternmq.journal.index.run_jobs import RemoveJob
from ternmq.journal.log.journal import Journal
from ternmq.journal.log.scan import record_at, scan
from ternmq.journal.log.segment import segment_name
from ternmq.journal.state import sets
from ternmq.journal.state.sets import (
    IMMUTABLE,
    StateKey,
    StateWriter,
    begin_of_end,
    directory_of,
    load,
)
from ternmq.model.errors import CorruptJournal, DiskReadError, JournalFull
from ternmq.model.types import Position
from ternmq.record.fact import stateset
from ternmq.record.fact.header import HEADER_BYTES, Kind
from tests.unit.journal.kit import Views, body, commit, fill, make_spares, open_views

SEGMENT = 1 << 16


class Source:
    """Objects by key: payload, and the position of the record that changed it last."""

    def __init__(self) -> None:
        self.objects: dict[StateKey, tuple[bytes, int]] = {}
        self.encoded: list[StateKey] = []
        self.written: list[StateKey] = []

    def put(self, number: int, payload: bytes, changed: int) -> StateKey:
        key = StateKey(1, number)
        self.objects[key] = (payload, changed)
        return key

    def state_keys(self, begin: int) -> Iterator[StateKey]:
        del begin
        yield from sorted(self.objects)

    def state_changed(self, key: StateKey) -> int:
        return self.objects[key][1] if key in self.objects else 1 << 63

    def state_encode(self, key: StateKey) -> bytes:
        self.encoded.append(key)
        return self.objects[key][0] if key in self.objects else b""

    def state_written(self, key: StateKey) -> None:
        self.written.append(key)


def setup(chunk_bytes: int = 200) -> tuple[MemoryDisk, Journal, Source, StateWriter]:
    disk = MemoryDisk()
    journal = Journal.create(disk, segment_size=SEGMENT)
    commit(journal)
    source = Source()
    return disk, journal, source, StateWriter(journal, source, chunk_bytes=chunk_bytes)


def write(journal: Journal, writer: StateWriter, budget: int | None = None) -> None:
    """Write a whole set, so many objects at a time, other records in between."""
    writer.begin(1)
    while True:
        left = [budget or 1 << 30]

        def may_go_on(left: list[int] = left) -> bool:
            left[0] -= 1
            return left[0] > 0

        if writer.step(1, may_go_on):
            break
        journal.append(Kind.COUNTS, body(7), 1)
    commit(journal)


def loaded(disk: MemoryDisk) -> Views:
    _, _, views = open_views(MemoryDisk(disk.image()), segment_size=SEGMENT)
    return views


def parts(disk: MemoryDisk) -> list[int]:
    return [record.body[8] for record in scan(disk, Position(0)) if record.kind == Kind.STATE]


@settings(max_examples=40)
@given(
    st.dictionaries(st.integers(0, 50), st.binary(max_size=90), max_size=12),
    st.integers(1, 4),
    st.integers(1, 400),
)
def test_what_is_written_is_loaded(
    payloads: dict[int, bytes], budget: int, chunk_bytes: int
) -> None:
    disk, journal, source, writer = setup(chunk_bytes)
    for number, payload in payloads.items():
        source.put(number, payload, journal.end)
    begin = journal.end
    write(journal, writer, budget)
    views = loaded(disk)
    assert {key.a: payload for key, (payload, _) in views.objects.items()} == payloads
    assert views.begin == begin
    assert all(stamp > begin for _, stamp in views.objects.values())
    assert list(views.objects) == sorted(views.objects)


def test_objects_that_did_not_change_are_named_not_written() -> None:
    disk, journal, source, writer = setup()
    for number in range(10):
        source.put(number, b"first %d" % number, 0)
    write(journal, writer)
    source.encoded.clear()
    source.put(3, b"second 3", journal.append(Kind.COUNTS, body(1), 1))
    source.put(77, b"new", journal.append(Kind.COUNTS, body(1), 1))
    del source.objects[StateKey(1, 5)]
    write(journal, writer)
    assert sorted(key.a for key in source.encoded) == [3, 77]
    views = loaded(disk)
    assert {key.a: payload for key, (payload, _) in views.objects.items()} == {
        **{number: b"first %d" % number for number in range(10) if number not in (3, 5)},
        3: b"second 3",
        77: b"new",
    }
    stamps = {key.a: stamp for key, (_, stamp) in views.objects.items()}
    assert stamps[0] < writer.complete[1].begin < stamps[3]
    assert writer.complete[1].oldest == stamps[0]


def test_objects_that_never_change_are_written_once_whatever_is_refreshed() -> None:
    _, journal, source, writer = setup()
    source.put(1, b"for ever", IMMUTABLE)
    source.put(2, b"unchanged", 0)
    write(journal, writer)
    source.encoded.clear()
    writer.begin(1, refresh_below=journal.end)
    assert writer.step(1, lambda: True)
    assert source.encoded == [StateKey(1, 2)]


class Reads:
    """Reads records of a disk; each of them makes who asks wait once, and some cannot be read."""

    def __init__(self, disk: MemoryDisk) -> None:
        self.disk = disk
        self.asked: set[int] = set()
        self.broken: set[int] = set()

    def __call__(self, position: Position) -> bytes:
        if position in self.broken:
            raise DiskReadError(f"no bytes at {position}")
        if position not in self.asked:
            self.asked.add(position)
            raise WouldBlock(RemoveJob(self.disk, []))
        found = record_at(self.disk, position, SEGMENT)
        assert found is not None
        return bytes(HEADER_BYTES) + found.body


def copying() -> tuple[MemoryDisk, Journal, Source, StateWriter, Reads]:
    """Return a journal with a set of two objects that never change, and one that was changed."""
    disk, journal, source, _ = setup()
    reads = Reads(disk)
    writer = StateWriter(journal, source, reads, chunk_bytes=200)
    source.put(1, b"for ever", IMMUTABLE)
    source.put(2, b"x" * 300, IMMUTABLE)
    source.put(3, b"unchanged", 0)
    write(journal, writer)
    source.encoded.clear()
    return disk, journal, source, writer, reads


def step_to_the_end(writer: StateWriter) -> int:
    """Write the set that is begun; return how often something had to be read first."""
    blocked = 0
    while True:
        try:
            assert writer.step(1, lambda: True)
        except WouldBlock:
            blocked += 1
        else:
            return blocked


def test_objects_that_never_change_are_copied_out_of_their_chunk_when_that_is_to_go() -> None:
    disk, journal, source, writer, _ = copying()
    edge = journal.end
    for _ in range(2):
        writer.begin(1, refresh_below=edge, copy_below=edge)
        step_to_the_end(writer)
        commit(journal)
    assert source.encoded == [StateKey(1, 3)]
    assert writer.removable_below() >= edge
    found = {key.a: payload for key, (payload, _) in loaded(disk).objects.items()}
    assert found == {1: b"for ever", 2: b"x" * 300, 3: b"unchanged"}


def test_a_copy_that_must_be_read_first_holds_up_nothing_else() -> None:
    disk, journal, _, writer, reads = copying()
    writer.begin(1, refresh_below=journal.end, copy_below=journal.end)
    assert step_to_the_end(writer) == len(reads.asked) >= 1
    commit(journal)
    assert writer.complete[-1].oldest > writer.complete[-1].begin
    assert len(loaded(disk).objects) == 3


@pytest.mark.parametrize("told", [False, True])
def test_a_chunk_that_cannot_be_read_is_named_where_it_is(told: bool) -> None:
    """Whether the read itself says so, or the job that it waited for."""
    disk, journal, _, writer, reads = copying()
    (first, *_) = sorted(
        record.position
        for record in scan(disk, Position(0))
        if record.kind == Kind.STATE and record.body[8] == stateset.CHUNK
    )
    writer.begin(1, refresh_below=journal.end, copy_below=journal.end)
    if told:
        with pytest.raises(WouldBlock):
            writer.step(1, lambda: True)
        writer.unreadable()
        reads.broken.add(first)
    else:
        reads.broken.add(first)
    step_to_the_end(writer)
    commit(journal)
    assert writer.complete[-1].oldest == first
    assert len(loaded(disk).objects) == 3


def test_what_a_set_takes_is_told_beforehand() -> None:
    _, journal, _, writer, _ = copying()
    expected = writer.estimate(whole=True)
    begin = journal.end
    writer.begin(1, refresh_below=begin, copy_below=begin)
    step_to_the_end(writer)
    assert journal.end - begin <= expected <= 3 * (journal.end - begin)
    assert writer.estimate(whole=False) < expected


def test_what_is_refreshed_no_longer_needs_its_old_chunk() -> None:
    disk, journal, source, writer = setup()
    source.put(1, b"one", 0)
    write(journal, writer)
    write(journal, writer)
    chunk = loaded(disk).objects[StateKey(1, 1)][1]
    assert writer.complete[0].begin < chunk < writer.complete[1].begin
    assert writer.removable_below() == writer.complete[0].begin
    assert writer.complete[1].oldest == chunk
    edge = journal.end
    for _ in range(2):
        writer.begin(1, refresh_below=edge)
        assert writer.step(1, lambda: True)
        commit(journal)
    assert writer.removable_below() >= edge
    assert loaded(disk).objects[StateKey(1, 1)][0] == b"one"


def test_two_durable_sets_are_needed_before_anything_may_go() -> None:
    _, journal, source, writer = setup()
    source.put(1, b"one", 0)
    assert writer.removable_below() == 0
    write(journal, writer)
    assert writer.removable_below() == 0
    writer.begin(1)
    assert writer.step(1, lambda: True)
    assert writer.removable_below() == 0  # its END is not durable
    commit(journal)
    assert writer.removable_below() == min(writer.complete[0].oldest, writer.complete[0].begin)


def test_a_set_without_its_end_is_not_there() -> None:
    disk, journal, source, writer = setup(chunk_bytes=1)
    for number in range(4):
        source.put(number, b"old", 0)
    write(journal, writer)
    for number in range(4):
        source.put(number, b"new", journal.append(Kind.COUNTS, body(number), 1))
    writer.begin(1)
    for _ in range(4):
        assert not writer.step(1, lambda: False)
        commit(journal)
        views = loaded(disk)
        assert {payload for payload, _ in views.objects.values()} == {b"old"}
        assert views.begin == writer.complete[0].begin
    assert writer.step(1, lambda: False)
    commit(journal)
    assert {payload for payload, _ in loaded(disk).objects.values()} == {b"new"}


def test_a_set_ends_behind_removals_that_are_durable() -> None:
    """What a segment that went made needless may be missing in it: both survive, or the removal."""
    faulty = FaultyDisk(MemoryDisk())
    journal = Journal.create(faulty, segment_size=SEGMENT)
    source = Source()
    writer = StateWriter(journal, source, chunk_bytes=200)
    make_spares(journal)
    fill(journal, range(SEGMENT // 500), 1000)
    commit(journal)
    source.put(1, b"one", journal.end)
    journal.remove_first_segment()
    writer.begin(1)
    writer.step(1, lambda: False)
    synced = faulty.counts["sync_folder"]
    while not writer.step(1, lambda: True):
        pass
    assert faulty.counts["sync_folder"] == synced + 1
    write(journal, writer)
    assert faulty.counts["sync_folder"] == synced + 1, "nothing was removed since"


def test_a_set_whose_end_was_cut_with_the_tail_is_not_there() -> None:
    disk, journal, source, writer = setup()
    source.put(1, b"old", 0)
    write(journal, writer)
    before = journal.end
    image = disk.image()
    source.put(1, b"new", journal.append(Kind.COUNTS, body(1), 1))
    writer.begin(1)
    writer.step(1, lambda: True)
    commit(journal)
    whole = disk.image()[segment_name(0)]
    for end in range(before, journal.end, 8):
        image[segment_name(0)] = whole[:end] + bytes(SEGMENT - end)
        payload, _ = loaded(MemoryDisk(image)).objects[StateKey(1, 1)]
        assert payload == b"old"


def test_damage_in_the_newest_set_leads_to_the_one_before() -> None:
    disk, journal, source, writer = setup(chunk_bytes=1)
    source.put(1, b"old", 0)
    source.put(2, b"same", 0)
    write(journal, writer)
    source.put(1, b"new", journal.append(Kind.COUNTS, body(1), 1))
    write(journal, writer)
    newest = writer.complete[-1]
    directory, found = directory_of(disk, SEGMENT, newest.end)
    assert found == newest
    assert set(directory) == {StateKey(1, 1), StateKey(1, 2)}
    views = Views()
    load(disk, SEGMENT, directory, views)
    assert views.objects[StateKey(1, 1)][0] == b"new"
    chunk = directory[StateKey(1, 1)]
    disk.open(segment_name(0)).pwrite(b"!", chunk + 60)
    with pytest.raises(CorruptJournal):
        load(disk, SEGMENT, directory, Views())


@pytest.mark.parametrize("failing", range(8))
def test_a_journal_that_is_full_for_a_while_leaves_no_object_out(failing: int) -> None:
    disk, journal, source, writer = setup(chunk_bytes=60)
    for number in range(6):
        source.put(number, b"payload %d" % number, 0)
    append = journal.append
    count = [0]

    def sometimes(kind: int, data: bytes, time_us: int, flags: int = 0) -> Position:
        if kind == Kind.STATE:
            count[0] += 1
            if count[0] == failing + 1:
                raise JournalFull("no room")
        return append(kind, data, time_us, flags)

    journal.append = sometimes  # type: ignore[method-assign, assignment]
    done = refused = False
    for _ in range(20):
        try:
            if not writer.active:
                writer.begin(1)
            left = [3]

            def may_go_on(left: list[int] = left) -> bool:
                left[0] -= 1
                return left[0] > 0

            if writer.step(1, may_go_on):
                done = True
                break
        except JournalFull:
            # Meanwhile an object changes: what is written must be what it is by then.
            refused = True
            source.put(2, b"changed", append(Kind.COUNTS, body(1), 1))
    assert done
    commit(journal)
    found = {key.a: payload for key, (payload, _) in loaded(disk).objects.items()}
    assert set(found) == set(range(6))
    if refused:
        stamp = loaded(disk).objects[StateKey(1, 2)][1]
        assert found[2] == b"changed" or stamp < source.objects[StateKey(1, 2)][1]


def test_a_set_is_due_by_bytes_and_by_records() -> None:
    disk = MemoryDisk()
    journal = Journal.create(disk, segment_size=SEGMENT)
    commit(journal)
    writer = StateWriter(journal, Source(), interval_bytes=2000, interval_records=5)
    assert not writer.due()
    for _ in range(5):
        assert not writer.due()
        journal.append(Kind.COUNTS, body(1), 1)
    assert writer.due()
    writer.begin(1)
    assert not writer.due()  # one at a time
    writer.step(1, lambda: True)
    assert not writer.due()
    journal.append(Kind.COUNTS, body(1, 2000), 1)
    assert writer.due()


def test_with_very_many_objects_sets_are_due_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sets, "MANY_OBJECTS", 3)
    disk = MemoryDisk()
    journal = Journal.create(disk, segment_size=SEGMENT)
    commit(journal)
    source = Source()
    writer = StateWriter(journal, source, interval_bytes=4000, interval_records=8)
    for count, records in ((3, 8), (5, 40)):
        while len(source.objects) < count:
            source.put(len(source.objects), b"x", journal.end)
        writer.begin(1)
        begun = journal.appended
        writer.step(1, lambda: True)
        while not writer.due():
            journal.append(Kind.COUNTS, body(1), 1)
        assert journal.appended - begun == records
    writer.begin(1)
    writer.step(1, lambda: True)
    end = journal.end
    while not writer.due():
        journal.append(Kind.COUNTS, body(1, 2000), 1)
        commit(journal)
    assert journal.end - end >= 5 * 8192


def test_an_end_names_its_begin() -> None:
    disk, journal, source, writer = setup()
    source.put(1, b"x", 0)
    begin = journal.end
    write(journal, writer)
    ends = [begin_of_end(record) for record in scan(disk, Position(0))]
    assert [one for one in ends if one is not None] == [begin]
    assert parts(disk) == [1, 2, 3, 4]
    records = [record for record in scan(disk, Position(0)) if record.kind == Kind.STATE]
    assert [stateset.HEAD.unpack_from(record.body)[0] for record in records] == [
        0,
        begin,
        begin,
        begin,
    ]


def test_after_a_restart_chunks_are_named_on() -> None:
    disk, journal, source, writer = setup()
    for number in range(3):
        source.put(number, b"first %d" % number, 0)
    write(journal, writer)
    other = MemoryDisk(disk.image())
    journal, report, _ = open_views(other, segment_size=SEGMENT)
    writer = StateWriter(journal, source)
    writer.remember(report.directory, report.loaded_set)
    source.encoded.clear()
    source.put(1, b"second", journal.append(Kind.COUNTS, body(1), 1))
    write(journal, writer)
    assert source.encoded == [StateKey(1, 1)]
    views = loaded(other)
    assert {key.a: payload for key, (payload, _) in views.objects.items()} == {
        0: b"first 0", 1: b"second", 2: b"first 2",
    }  # fmt: skip
