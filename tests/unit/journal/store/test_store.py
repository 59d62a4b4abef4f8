"""Records by position: from the tail, from the disk, damaged, gone."""

from __future__ import annotations

import pytest

from ternmq.journal.cache.cold import Block, Job, WouldBlock
from ternmq.journal.disk.memory import MemoryDisk
from ternmq.journal.index.tail import Places
from ternmq.journal.log.journal import Journal
from ternmq.journal.log.segment import segment_name
from ternmq.journal.store.store import CHUNK_BYTES, RecordStore
from ternmq.model.errors import CorruptJournal, DiskReadError, MessageNotFound
from ternmq.record.fact.header import HEADER, Kind
from tests.unit.journal.index_kit import SEGMENT, SlowDisk, Stand, after_jobs


def cold(disk: MemoryDisk, bodies: list[bytes], segment_size: int = 1 << 20):
    """Return a store without a tail over a journal of these bodies, and their positions."""
    journal = Journal.create(disk, segment_size=segment_size, reserve_bytes=0, tail_bytes=0)
    positions = []
    for body in bodies:
        positions.append(journal.append(Kind.COUNTS, body, 5))
        journal.flush()
        journal.sync_now()
        while (job := journal.wants_spare()) is not None:
            job.run()
            journal.spare_ready(job)
    return RecordStore(journal, disk), journal, positions


SIZES = [1, 100, CHUNK_BYTES - 200, 50, CHUNK_BYTES, 3 * CHUNK_BYTES + 5, 40, 200_000, 8]
BODIES = [bytes([number + 1]) * size for number, size in enumerate(SIZES)]


@pytest.mark.parametrize("disk", [MemoryDisk, SlowDisk])
@pytest.mark.parametrize("known", [True, False])
def test_records_of_all_sizes_across_chunks_and_segments(disk, known):
    store, _, positions = cold(disk(), BODIES, 512 * 1024)
    for position, body in [*zip(positions, BODIES, strict=True)] * 2:
        length = (48 + len(body) + 7) & -8
        record, _ = after_jobs(store.get, position, length if known else None)
        assert len(record) == length
        assert HEADER.unpack_from(record)[6] == position
        assert record[48 : 48 + len(body)] == body


def test_records_in_memory_are_not_read():
    stand = Stand(SlowDisk())
    position = stand.send()
    assert stand.store.get(position, 0) == stand.journal.record(position)
    assert stand.store.at(position) == stand.journal.record(position)


def test_a_pull_gathers_from_memory_and_from_the_disk():
    disk = SlowDisk()
    store, _, positions = cold(disk, [bytes([n]) * 100 for n in range(40)])
    lengths = [152] * 39 + [0]  # of a copied row the length is not known
    records, _ = after_jobs(store.gather, Places(range(40), positions, lengths, 40))
    assert records == [store.at(position) for position in positions]
    stand = Stand(SlowDisk())
    sent = [stand.send() for _ in range(3)]
    places = Places(range(3), sent, [0, 0, 0], 3)
    assert stand.store.gather(places) == [stand.journal.record(one) for one in sent]


def test_one_job_brings_a_megabyte():
    disk = SlowDisk()
    store, _, positions = cold(disk, [bytes([7]) * 1000] * 900)
    jobs = sum(after_jobs(store.at, position)[1] for position in positions)
    assert jobs == 1


def test_a_chunk_that_was_read_while_the_journal_grew_is_read_again():
    store, journal, positions = cold(MemoryDisk(), [b"a" * 100])
    store.at(positions[0])
    second = journal.append(Kind.COUNTS, b"b" * 100, 5)
    journal.flush()
    assert journal.record(second) is None
    assert store.at(second)[48:148] == b"b" * 100


def test_bytes_behind_what_was_written_are_never_believed():
    store, journal, _ = cold(MemoryDisk(), [b"a" * 100])
    with pytest.raises(CorruptJournal):
        store.get(journal.written, 48)
    with pytest.raises(CorruptJournal):
        store.at(journal.written)


@pytest.mark.parametrize("at", [0, 4, 8, 20, 47, 48, 100, 147])
def test_a_flipped_byte_names_file_and_byte(at):
    disk = MemoryDisk()
    store, _, positions = cold(disk, [b"a" * 100, b"b" * 100])
    name = f"journal/{0:020d}.seg"
    file = disk.open(name)
    place = positions[1] + at
    file.pwrite(bytes([file.pread(1, place)[0] ^ 1]), place)
    for ask in (lambda: store.get(positions[1], 152), lambda: store.at(positions[1])):
        with pytest.raises(CorruptJournal) as error:
            ask()
        assert (error.value.file, error.value.byte) == (name, positions[1])
    assert store.at(positions[0])[48:148] == b"a" * 100


def test_a_wrong_length_or_place_is_not_a_record():
    store, _, positions = cold(MemoryDisk(), [b"a" * 100, b"b" * 100])
    with pytest.raises(CorruptJournal):
        store.get(positions[0], 160)
    with pytest.raises(CorruptJournal):
        store.get(positions[0] + 8, 152)


def test_a_removed_segment_is_not_damage():
    disk = MemoryDisk()
    store, journal, positions = cold(disk, [b"a" * 3000] * 6, SEGMENT)
    journal.remove_first_segment()
    store.drop_segment(0)
    with pytest.raises(MessageNotFound):
        store.at(positions[0])
    disk.remove(f"journal/{SEGMENT:020d}.seg")
    with pytest.raises(CorruptJournal, match="missing"):
        store.at(next(one for one in positions if one >= SEGMENT))


class _Waits:
    """A job that nobody runs: the command waits for somebody else."""

    def run(self) -> None:
        raise AssertionError("it is waited for")


@pytest.mark.parametrize("what", ["body", "header", "disk"])
def test_a_damaged_record_is_waited_for_while_somebody_mends_it(what):
    disk = MemoryDisk()
    store, journal, positions = cold(disk, [b"a" * 100, b"b" * 100])
    file, waits, asked = disk.open(segment_name(0)), _Waits(), []
    right = file.pread(200, positions[0])
    if what == "disk":
        block = Block(segment_name(0), 0, CHUNK_BYTES)
        store.cache.fail(block, "the disk cannot read it")
    else:
        file.pwrite(b"\xff", positions[0] + (60 if what == "body" else 20))
    error = DiskReadError if what == "disk" else CorruptJournal
    with pytest.raises(error):
        store.get(positions[0])

    def mends(position: int) -> Job | None:
        asked.append(position)
        return waits

    store.mends = mends
    for ask in (store.get, store.at, store.time_us):
        if what == "body" and ask == store.time_us:
            continue  # its header is whole
        with pytest.raises(WouldBlock) as blocked:
            ask(positions[0])
        assert blocked.value.job is waits
    assert set(asked) == {positions[0]}
    file.pwrite(right, positions[0])
    store.drop_segment(0)
    assert store.get(positions[0])[48:148] == b"a" * 100
    store.mends = lambda position: None
    file.pwrite(b"\xff", positions[1] + 60)
    store.drop_segment(0)
    with pytest.raises(CorruptJournal):
        store.get(positions[1])
    del journal
