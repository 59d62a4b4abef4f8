"""Rows out of the records of an answer."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import pytest
from google_crc32c import value as crc32c
from hypothesis import given
from hypothesis import strategies as st

from ternmq.client.consumer.chunk import chunks_of
from ternmq.client.consumer.delivery import Delivery, begun_before
from ternmq.client.content.codecs import Codecs
from ternmq.model.errors import ProtocolError
from ternmq.record.batch.batch import Row, encode, topic_seed
from ternmq.record.fact import messages
from ternmq.record.fact.header import HEADER, HEADER_BYTES, MAGIC, VERSION, Kind
from ternmq.wire.bodies import Run


def record(
    first: int, rows: Sequence[Row], runs: tuple[tuple[int, int], ...] = (), position: int = 0
) -> bytes:
    batch = encode(rows, topic_seed=topic_seed("t"), producer_id=7, first_sequence=100, born_us=5)
    count = sum(stop - start for start, stop in runs) if runs else len(rows)
    body = messages.pack(1, 2, first, count, batch, runs)
    body += bytes(-len(body) % 8)
    rest = HEADER.pack(
        0, MAGIC, HEADER_BYTES + len(body), VERSION, int(Kind.MESSAGES), 0, position, 0, 9, 1, 0
    )[4:]
    return struct.pack("<I", crc32c(rest + body)) + rest + body


def rows(count: int) -> list[Row]:
    return [Row(b"%d" % n, f"k{n}", "", "ab"[n % 2], {"n": str(n)}, "", 0, 0, 0, f"i{n}")
            for n in range(count)]  # fmt: skip


def test_a_whole_batch() -> None:
    (chunk,) = chunks_of(2, record(10, rows(4)), [Run(10, 4, 3, 5)])
    assert (chunk.offset, chunk.count, chunk.attempt, chunk.deliveries) == (10, 4, 3, 5)
    assert (chunk.queue, chunk.stored_us, chunk.suspect) == (2, 9, False)
    assert chunk.bodies() == [b"0", b"1", b"2", b"3"]
    assert [chunk.key(n) for n in range(4)] == ["k0", "k1", "k2", "k3"]
    assert [chunk.tag(n) for n in range(4)] == ["a", "b", "a", "b"]
    assert chunk.headers(2) == {"n": "2"}
    assert chunk.application_id(3) == "i3"
    assert chunk.ordering_key(0) == chunk.content_type(0) == ""


def test_only_rows_that_runs_name() -> None:
    data = record(10, rows(6)) + record(16, rows(3))
    chunks = chunks_of(0, data, [Run(11, 2, 1, 1), Run(14, 4, 2, 2)])
    assert [(one.offset, one.bodies(), one.attempt) for one in chunks] == [
        (11, [b"1", b"2"], 1),
        (14, [b"4", b"5"], 2),
        (16, [b"0", b"1"], 2),
    ]
    assert [one.key(0) for one in chunks] == ["k1", "k4", "k0"]


def test_rows_that_were_left_out_have_no_offset() -> None:
    data = record(20, rows(6), ((0, 2), (4, 6)))
    chunks = chunks_of(0, data, [Run(20, 4, 1, 1)])
    assert [(one.offset, one.bodies()) for one in chunks] == [
        (20, [b"0", b"1"]),
        (22, [b"4", b"5"]),
    ]
    (chunk,) = chunks_of(0, data, [Run(22, 1, 1, 1)])
    assert (chunk.offset, chunk.bodies(), chunk.key(0)) == (22, [b"4"], "k4")


def test_what_was_handed_out_before_a_power_cut() -> None:
    data = record(0, rows(1), position=50) + record(1, rows(1), position=150)
    chunks = chunks_of(0, data, [Run(0, 2, 1, 1)], suspect_below=100)
    assert [one.suspect for one in chunks] == [True, False]
    chunks = chunks_of(0, data, [Run(0, 2, 2, 2)], suspect_below=100)
    assert [one.suspect for one in chunks] == [False, False]


def test_what_comes_for_the_first_time_since_a_reset_or_replay() -> None:
    data = record(0, rows(3)) + record(3, rows(3))
    runs = [Run(0, 1, 1, 2), Run(1, 3, 1, 2), Run(4, 1, 1, 1), Run(5, 1, 1, 2)]
    chunks = chunks_of(0, data, runs, anew=0b1010)
    assert [(one.offset, one.anew) for one in chunks] == [
        (0, False), (1, True), (3, True), (4, False), (5, True),
    ]  # fmt: skip
    codecs = Codecs()
    found = [Delivery("t", chunk, 0, None, codecs) for chunk in chunks]
    assert [one.maybe_redelivered for one in found] == [True, True, True, False, True]
    assert [begun_before(one) for one in found] == [True, False, False, False, False]
    assert not any(one.anew for one in chunks_of(0, data, [*runs] * 20))


@given(st.data())
def test_damage_is_noticed(data: st.DataObject) -> None:
    whole = bytearray(record(10, rows(4)))
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(ProtocolError):
        chunks_of(0, bytes(whole), [Run(10, 4, 1, 1)])


@given(st.integers(0, 300))
def test_a_record_that_was_cut_short_is_noticed(length: int) -> None:
    whole = record(10, rows(4))
    if 0 < length < len(whole):
        with pytest.raises(ProtocolError):
            chunks_of(0, whole[:length], [Run(10, 4, 1, 1)])
