"""Bloom filters: never a false no, few false yes, and the same bits for ever."""

from __future__ import annotations

import random

import numpy as np
import pytest

from ternmq.journal.index import bloom, bloom_build


def built(topics: list[int], values: list[int]) -> bytes:
    return bloom_build.build(
        bloom_build.entries(np.array(topics, dtype=np.uint32), np.array(values, dtype=np.uint64))
    )


def may_hold(lines: bytes, topic: int, value: int) -> bool:
    entry = bloom.entry(topic, value)
    number = bloom.line_of(entry, len(lines) // bloom.LINE_BYTES)
    at = number * bloom.LINE_BYTES
    return bloom.may_hold(lines[at : at + bloom.LINE_BYTES], entry)


@pytest.mark.parametrize("count", [1, 2, 50, 51, 52, 5000])
def test_what_is_in_it_is_always_found(count):
    draw = random.Random(count)
    topics = [draw.randrange(2**32) for _ in range(count)]
    values = [draw.randrange(2**64) for _ in range(count)]
    lines = built(topics, values)
    assert len(lines) % bloom.LINE_BYTES == 0
    assert all(may_hold(lines, *pair) for pair in zip(topics, values, strict=True))


def test_few_others_are_taken_for_members():
    draw = random.Random(5)
    lines = built([1] * 10_000, [draw.randrange(2**64) for _ in range(10_000)])
    wrong = sum(may_hold(lines, 1, draw.randrange(2**64)) for _ in range(10_000))
    assert wrong < 250
    wrong = sum(may_hold(lines, 2, draw.randrange(2**64)) for _ in range(10_000))
    assert wrong < 250


def test_small_and_regular_numbers_spread_too():
    lines = built([0] * 2000, list(range(2000)))
    assert sum(may_hold(lines, 0, value) for value in range(2000, 12_000)) < 250


def test_no_entries_no_lines():
    assert built([], []) == b""


def test_one_row_and_many_rows_are_hashed_alike():
    topics = [0, 1, 2**32 - 1]
    values = [0, 2**64 - 1, 0x0123456789ABCDEF]
    together = bloom_build.entries(
        np.array(topics, dtype=np.uint32), np.array(values, dtype=np.uint64)
    )
    assert together.tolist() == [
        bloom.entry(topic, value) for topic, value in zip(topics, values, strict=True)
    ]


def test_the_bits_are_part_of_the_format():
    assert bloom.mix(1) == 0x5692161D100B05E5
    assert bloom.entry(3, 5) == 0xE1EB9BB664460C41
    line = int.from_bytes(built([3], [5]), "little")
    assert [bit for bit in range(512) if line >> bit & 1] == [
        6, 44, 224, 313, 481, 495, 497,
    ]  # fmt: skip
