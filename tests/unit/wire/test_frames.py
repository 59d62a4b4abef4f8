"""Frames: whole, byte by byte, with trailing bytes; what is none is found; memory is bounded."""

from __future__ import annotations

import itertools
import struct
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import astuple

from ternmq.model.errors import FrameTooLarge, ProtocolError
from ternmq.wire import frames
from ternmq.wire.frames import ANSWER, ERROR, HEADER_BYTES, ONE_WAY, PUSH, Frame, FrameReader

CASES = {
    "request": Frame(10, 0, 1, b"body"),
    "empty body": Frame(2, 0, 2**64 - 1, b""),
    "one way": Frame(10, ONE_WAY, 3, b"x" * 100),
    "answer": Frame(10, ANSWER, 3, b"x"),
    "refusal": Frame(10, ANSWER | ERROR, 3, b"no"),
    "push": Frame(100, PUSH, 0, b"\x80"),
    "command that nobody knows": Frame(255, 0, 9, b""),
}


def bytes_of(frame: Frame) -> bytes:
    return frames.pack(*astuple(frame))


def test_the_header_is_as_the_ruler_says():
    assert frames.pack(10, ONE_WAY, 0x0807060504030201, b"ab") == (
        b"\x12\0\0\0T\x0a\x04\0\x01\x02\x03\x04\x05\x06\x07\x08ab"
    )
    assert frames.head(10, 0, 1, 2) + b"ab" == frames.pack(10, 0, 1, b"ab")


@pytest.mark.parametrize("frame", CASES.values(), ids=CASES)
def test_whole(frame):
    reader = FrameReader()
    assert reader.feed(bytes_of(frame)) == [frame]
    assert reader.held_bytes == 0


@pytest.mark.parametrize("frame", CASES.values(), ids=CASES)
def test_byte_by_byte(frame):
    reader = FrameReader()
    data = bytes_of(frame)
    for at, byte in enumerate(data[:-1], 1):
        assert reader.feed(bytes([byte])) == []
        assert reader.held_bytes == at
    assert reader.feed(data[-1:]) == [frame]
    assert reader.held_bytes == 0


@pytest.mark.parametrize("frame", CASES.values(), ids=CASES)
def test_with_trailing_bytes(frame):
    data = bytes_of(frame)
    for extra in range(len(data)):
        reader = FrameReader()
        assert reader.feed(data + data[:extra]) == [frame]
        assert reader.held_bytes == extra
        assert reader.feed(data[extra:]) == [frame]


def test_many_at_once():
    whole = list(CASES.values()) * 3
    assert FrameReader().feed(b"".join(map(bytes_of, whole))) == whole


@given(
    st.lists(
        st.tuples(
            st.integers(0, 255),
            st.sampled_from([0, ONE_WAY, ANSWER, ANSWER | ERROR]),
            st.integers(1, 2**64 - 1),
            st.binary(max_size=300),
        )
    ),
    st.lists(st.integers(0, 5000)),
)
def test_however_it_is_cut(some, cuts):
    expected = [Frame(*one) for one in some]
    data = b"".join(map(bytes_of, expected))
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    reader = FrameReader()
    found = [
        frame
        for start, stop in itertools.pairwise(places)
        for frame in reader.feed(data[start:stop])
    ]
    assert found == expected
    assert reader.held_bytes == 0


def test_bodies_outlive_the_bytes_they_came_in():
    reader = FrameReader()
    (frame,) = reader.feed(bytes_of(Frame(10, 0, 1, b"body")))
    assert type(frame.body) is bytes


GOOD = bytes_of(Frame(10, 0, 1, b"body"))


def changed(at: int, value: int) -> bytes:
    return GOOD[:at] + bytes([value]) + GOOD[at + 1 :]


@pytest.mark.parametrize(
    "data",
    [
        changed(4, 0x55),
        changed(7, 1),
        changed(0, 15),
        changed(0, 0),
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03" + bytes(20),
        bytes(16),
        b"\xff" * 16,
        *[changed(6, flags) for flags in range(256) if flags not in {0, 1, 3, 4}],
        frames.pack(10, 0, 0, b""),
        frames.pack(10, ANSWER, 0, b""),
        frames.pack(100, PUSH, 1, b""),
    ],
)
@pytest.mark.parametrize("piece", [1, 7, 1000])
def test_what_is_no_frame(data, piece):
    reader = FrameReader()
    pieces = [data[at : at + piece] for at in range(0, len(data), piece)]
    with pytest.raises(ProtocolError):
        [reader.feed(one) for one in pieces]


@pytest.mark.parametrize("length", [4097, 2**31, 2**32 - 1])
def test_too_long_is_found_out_by_the_header_alone(length):
    reader = FrameReader()
    reader.feed(struct.pack("<I", length) + GOOD[4:15])
    with pytest.raises(FrameTooLarge):
        reader.feed(b"\0")
    assert FrameReader(length).feed(struct.pack("<I", length) + GOOD[4:16]) == []


def test_the_largest_frame():
    frame = Frame(10, 0, 1, bytes(4096 - HEADER_BYTES))
    assert FrameReader().feed(bytes_of(frame)) == [frame]


@pytest.mark.parametrize("piece", [1, 2, 100, 4095, 4096, 100_000])
def test_memory_follows_what_came_not_what_was_promised(piece):
    size = 1 << 20
    body = bytes(size)
    pieces = [body[at : at + piece] for at in range(0, size, piece)]
    reader = FrameReader(1 << 31)
    tracemalloc.start()
    try:
        reader.feed(frames.head(10, 0, 1, 1 << 30))
        assert tracemalloc.get_traced_memory()[0] < 10_000
        for some in pieces:
            reader.feed(some)
        # The pieces from 4096 on are the caller's objects: they are kept, not copied.
        assert tracemalloc.get_traced_memory()[1] < size * 5 // 4 + 100_000
    finally:
        tracemalloc.stop()
    assert reader.held_bytes == size + HEADER_BYTES
