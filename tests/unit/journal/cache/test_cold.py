"""The cold cache: what blocks, what is kept, what is closed."""

from __future__ import annotations

import pytest
from google_crc32c import value as crc32c

from ternmq.journal.cache.cold import Block, ColdCache, ColdRead, DamagedBlock, WouldBlock, waiting
from ternmq.journal.disk.memory import MemoryDisk, MemoryFile
from ternmq.model.errors import DiskReadError, FileMissing
from tests.unit.journal.index_kit import SlowDisk

DATA = bytes(range(256)) * 16


def blocks(cache: ColdCache, count: int, name: str = "a") -> None:
    for number in range(count):
        cache.read(Block(name, 100 * number, 100))


def test_what_does_not_block_is_answered_at_once():
    cache = ColdCache(MemoryDisk({"a": DATA}))
    assert cache.read(Block("a", 5, 10)) == DATA[5:15]
    assert cache.bytes == 10


def test_what_would_block_is_there_after_the_job():
    cache = ColdCache(SlowDisk({"a": DATA}))
    with pytest.raises(WouldBlock) as blocked:
        cache.read(Block("a", 5, 10))
    blocked.value.job.run()
    assert cache.read(Block("a", 5, 10)) == DATA[5:15]


def test_waiting_does_the_job_itself():
    cache = ColdCache(SlowDisk({"a": DATA}))
    assert waiting(lambda: cache.read(Block("a", 0, 3))) == DATA[:3]


def test_the_oldest_used_go_first():
    cache = ColdCache(MemoryDisk({"a": DATA}), capacity_bytes=300)
    blocks(cache, 3)
    cache.read(Block("a", 0, 100))
    cache.read(Block("a", 300, 100))
    assert [key[1] for key in cache._blocks] == [200, 0, 300]
    assert cache.bytes == 300


def test_one_block_larger_than_the_cache_is_kept_alone():
    cache = ColdCache(MemoryDisk({"a": DATA}), capacity_bytes=50)
    blocks(cache, 2)
    assert cache.bytes == 100


def test_a_block_kept_shorter_is_read_again_only_if_more_is_needed():
    disk = MemoryDisk({"a": DATA})
    cache = ColdCache(disk)
    cache.read(Block("a", 0, 50))
    assert len(cache.read(Block("a", 0, 90), 40)) == 50
    assert len(cache.read(Block("a", 0, 90), 60)) == 90
    assert cache.bytes == 90


@pytest.mark.parametrize("disk", [MemoryDisk, SlowDisk])
def test_a_damaged_block_is_never_given_out(disk):
    cache = ColdCache(disk({"a": DATA}))
    good = Block("a", 0, 10, crc32c(DATA[:10]))
    bad = Block("a", 10, 10, crc32c(DATA[:10]))
    assert waiting(lambda: cache.read(good)) == DATA[:10]
    for _ in range(2):
        with pytest.raises(DamagedBlock):
            waiting(lambda: cache.read(bad))


def test_a_job_on_a_file_that_ends_too_early_says_so():
    cache = ColdCache(SlowDisk({"a": DATA[:5]}))
    with pytest.raises(DiskReadError, match="ends at byte 5"):
        ColdRead(cache, [Block("a", 0, 10)]).run()


def test_a_file_that_went_is_missing_when_asked_again():
    disk = SlowDisk({"a": DATA})
    cache = ColdCache(disk)
    with pytest.raises(WouldBlock) as blocked:
        cache.read(Block("a", 0, 10))
    disk.remove("a")
    blocked.value.job.run()
    with pytest.raises(FileMissing):
        cache.read(Block("a", 0, 10))


class CountingFile(MemoryFile):
    open_now = 0

    def close(self) -> None:
        CountingFile.open_now -= 1


class CountingDisk(MemoryDisk):
    def open(self, name: str, *, create: bool = False) -> MemoryFile:
        CountingFile.open_now += 1
        return CountingFile(self, name, super().open(name, create=create)._data)


def test_few_descriptors_stay_open():
    CountingFile.open_now = 0
    cache = ColdCache(CountingDisk({str(n): DATA for n in range(100)}), max_files=8)
    for number in range(100):
        cache.read(Block(str(number), 0, 10))
    assert CountingFile.open_now == 8
    ColdRead(cache, [Block("5", 0, 10)]).run()
    assert CountingFile.open_now == 8
    cache.forget("99")
    assert CountingFile.open_now == 7
    cache.close()
    assert CountingFile.open_now == 0
    assert cache.bytes == 0


def test_forgetting_a_file_drops_its_blocks_only():
    cache = ColdCache(MemoryDisk({"a": DATA, "b": DATA}))
    blocks(cache, 3)
    blocks(cache, 2, "b")
    cache.forget("a")
    assert cache.bytes == 200
    assert {key[0] for key in cache._blocks} == {"b"}
