"""Streams between brokers: both sides joined, every broken rule, FOLLOW beside HELLO."""

from __future__ import annotations

import contextlib
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ternmq.model.errors import (
    FrameTooLarge,
    InvalidRequest,
    NotABroker,
    NotPrimary,
    ProtocolError,
    UnsupportedVersion,
)
from ternmq.model.types import NO_POSITION
from ternmq.record.batch.compress import compress_frame
from ternmq.wire import bodies, control, frames
from ternmq.wire.commands import STREAM, Command
from ternmq.wire.frames import ANSWER, ONE_WAY, PUSH
from ternmq.wire.session import Refusal, Request, ServerSession, State, Unknown
from ternmq.wire.stream import FollowerStream, PrimaryStream, common_version
from tests.unit.wire import examples

FOLLOW, FOLLOWED, RESIGN = examples.FOLLOW, examples.FOLLOWED, examples.RESIGN
BYTES, MARKS, ACK = examples.BYTES, examples.MARKS, examples.ACK


def sent_bytes(primary: PrimaryStream) -> bytes:
    return primary.bytes_head(BYTES.position, BYTES.epoch, len(BYTES.records)) + BYTES.records


def pair() -> tuple[FollowerStream, PrimaryStream]:
    follower, opening = FollowerStream(), ServerSession(100)
    assert opening.receive(follower.follow(FOLLOW)) == []
    primary = PrimaryStream(opening.hello_id)
    assert follower.receive(primary.answer(FOLLOWED)) == [FOLLOWED]
    return follower, primary


def follow(**fields: Any) -> bytes:
    """Return a FOLLOW frame with a map that a struct would not make."""
    known = msgspec.msgpack.decode(control.encode(FOLLOW))
    return frames.pack(Command.FOLLOW, 0, 1, msgspec.msgpack.encode(known | fields))


# ------------------------------------------------------------------------------ joined in memory


def test_a_follow_is_found_in_the_place_of_hello():
    opening = ServerSession(100)
    assert opening.receive(FollowerStream().follow(FOLLOW)) == []
    assert opening.state is State.GREETED
    assert opening.follow == FOLLOW
    assert opening.hello is None
    with pytest.raises(ProtocolError):
        opening.receive(b"x")


def test_what_a_primary_sends_comes():
    follower, primary = pair()
    assert (follower.state, primary.state) == (State.OPEN, State.OPEN)
    assert follower.followed == FOLLOWED
    data = sent_bytes(primary) + primary.marks(MARKS) + primary.resign(RESIGN)
    assert follower.receive(data) == [BYTES, MARKS, RESIGN]


def test_what_a_follower_sends_comes():
    follower, primary = pair()
    assert primary.receive(follower.acknowledge(ACK) * 2) == [ACK, ACK]


@given(st.lists(st.integers(1, 40), max_size=60))
def test_however_the_bytes_are_cut(sizes):
    follower, primary = pair()
    data = (sent_bytes(primary) + primary.marks(MARKS) + primary.resign(RESIGN)) * 2
    told = follower.acknowledge(ACK) * 3
    got: list[object] = []
    acks: list[object] = []
    at = 0
    for size in [*sizes, len(data)]:
        got += follower.receive(data[at : at + size])
        acks += primary.receive(told[at : at + size])
        at += size
    assert got == [BYTES, MARKS, RESIGN] * 2
    assert acks == [ACK] * 3
    assert follower.held_bytes == primary.held_bytes == 0


def test_a_record_as_large_as_a_segment_comes():
    follower, primary = pair()
    records = bytes(FOLLOWED.segment_bytes)
    data = primary.bytes_head(8, 7, len(records)) + records
    assert follower.receive(data) == [bodies.Bytes(8, 7, records)]
    with pytest.raises(FrameTooLarge):
        follower.receive(primary.bytes_head(8, 7, FOLLOWED.segment_bytes + 65_536))


@pytest.mark.parametrize("size", [1, 15, 17, 1 << 20])
def test_bytes_may_come_with_the_answer(size):
    """They are larger than an answer may be, and nothing is lost."""
    follower, primary = FollowerStream(), PrimaryStream(1)
    records = bytes(200_000)
    data = primary.answer(FOLLOWED) + primary.bytes_head(8, 7, len(records)) + records
    data += primary.marks(MARKS)
    got: list[object] = []
    for at in range(0, 1000, size):
        got += follower.receive(data[at : min(at + size, 1000)])
    got += follower.receive(data[1000:])
    assert got == [FOLLOWED, bodies.Bytes(8, 7, records), MARKS]


def test_the_largest_follow_fits_the_first_frame():
    largest = msgspec.structs.replace(
        FOLLOW,
        token="t" * 300,
        group="g" * 127,
        broker="b" * 127,
        journal=2**64 - 1,
        incarnation=2**64 - 1,
        told=2**32 - 1,
        end=2**63 - 1,
        checkpoints=[control.Checkpoint(2**63 - 1, 2**32 - 1, 2**32 - 1)] * control.MAX_CHECKPOINTS,
        software="s" * 200,
    )
    opening = ServerSession(100)
    opening.receive(FollowerStream().follow(largest))
    assert opening.follow == largest
    with pytest.raises(InvalidRequest, match="at most 4096"):
        FollowerStream().follow(msgspec.structs.replace(largest, token="t" * 4000))


# ------------------------------------------------------------------------------ compressed


def packed_pair() -> tuple[FollowerStream, PrimaryStream]:
    follower, primary = FollowerStream(), PrimaryStream(1)
    followed = msgspec.structs.replace(FOLLOWED, compress="zstd")
    assert follower.receive(primary.answer(followed)) == [followed]
    return follower, primary


def sent_packed(primary: PrimaryStream, data: bytes, inflated: int) -> bytes:
    return primary.bytes_head(8, 7, len(data), inflated) + data


def test_compressed_records_come_as_they_were():
    follower, primary = packed_pair()
    records = b"message " * 1000
    frame = compress_frame(records)
    data = sent_packed(primary, frame, len(records)) + sent_packed(primary, records, 0)
    assert follower.receive(data) == [bodies.Bytes(8, 7, records)] * 2
    assert follower.saved_bytes == len(records) - len(frame)


def test_compression_must_have_been_agreed():
    follower, primary = pair()
    records = b"message " * 1000
    with pytest.raises(ProtocolError, match="not agreed"):
        follower.receive(sent_packed(primary, compress_frame(records), len(records)))


@pytest.mark.parametrize("change", range(12))
def test_a_damaged_frame_is_refused(change):
    """Damage that zstd does not notice is noticed by the records' own checksums."""
    follower, primary = packed_pair()
    records = b"message " * 1000
    frame = bytearray(compress_frame(records))
    frame[change] ^= 0x55
    with contextlib.suppress(ProtocolError):
        (event,) = follower.receive(sent_packed(primary, bytes(frame), len(records)))
        assert isinstance(event, bodies.Bytes)
        assert len(event.records) == len(records)
    for data in (b"x", bytes(frame[:-3]), compress_frame(records) + b"x", bytes(100)):
        follower, primary = packed_pair()
        with pytest.raises(ProtocolError, match="cannot be inflated"):
            follower.receive(sent_packed(primary, data, len(records)))


@pytest.mark.parametrize("size", [1, 7999, 8001, 1 << 20])
def test_a_frame_that_has_another_size_than_it_says_is_refused(size):
    follower, primary = packed_pair()
    with pytest.raises(ProtocolError, match="cannot be inflated"):
        follower.receive(sent_packed(primary, compress_frame(b"message " * 1000), size))


def test_nothing_larger_than_a_frame_may_be_is_inflated():
    follower, primary = packed_pair()
    size = FOLLOWED.segment_bytes + 65_537
    frame = compress_frame(bytes(size))
    assert len(frame) < 1000
    with pytest.raises(ProtocolError, match="at most"):
        follower.receive(sent_packed(primary, frame, size))


# ------------------------------------------------------------------------------ refusals, ends


def test_a_follow_that_is_refused():
    for refuse in (
        lambda opening: opening.refuse(NotPrimary("b is")),
        lambda opening: PrimaryStream(opening.hello_id).refuse(NotPrimary("b is")),
    ):
        follower, opening = FollowerStream(), ServerSession(100)
        opening.receive(follower.follow(FOLLOW))
        (event,) = follower.receive(refuse(opening))
        assert isinstance(event, Refusal)
        assert type(event.error) is NotPrimary
        assert follower.state is State.CLOSED
        assert follower.receive(b"anything") == []


def test_an_older_broker_says_farewell():
    follower, opening = FollowerStream(), ServerSession(100)
    follower.follow(FOLLOW)
    (event,) = follower.receive(opening.farewell(ProtocolError("the first frame must be HELLO")))
    assert isinstance(event, Refusal)
    assert event.id == 0
    assert follower.state is State.CLOSED


def test_a_farewell_ends_an_open_stream():
    follower, primary = pair()
    data = ServerSession(100).farewell(ProtocolError("x")) + primary.marks(MARKS)
    (event,) = follower.receive(data)
    assert isinstance(event, Refusal)
    assert follower.state is State.CLOSED


def test_a_primary_that_has_refused_hears_nothing():
    primary = PrimaryStream(1)
    primary.refuse(NotPrimary("x"))
    assert primary.receive(b"anything") == []


def test_versions():
    assert common_version((3, 1)) == 1
    assert common_version((1, 2, 3)) == 2
    with pytest.raises(UnsupportedVersion):
        common_version((3, 0))


def test_in_version_1_no_promise_is_stated():
    follower, primary = FollowerStream(), PrimaryStream(1)
    assert follower.receive(primary.answer(examples.FOLLOWED_1)) == [examples.FOLLOWED_1]
    assert not follower.states_promises
    assert not primary.states_promises
    assert follower.receive(primary.marks(MARKS)) == [examples.MARKS_1]
    assert primary.receive(follower.acknowledge(ACK)) == [examples.ACK_1]


@pytest.mark.parametrize("version", [1, 2])
def test_a_promise_that_a_version_does_not_have_or_lacks_is_refused(version):
    follower, primary = FollowerStream(), PrimaryStream(1)
    follower.receive(primary.answer(msgspec.structs.replace(FOLLOWED, version=version)))
    marks, ack = (examples.MARKS_1, examples.ACK_1) if version == 2 else (MARKS, ACK)
    with pytest.raises(ProtocolError, match="bytes 4-7"):
        follower.receive(frames.pack(Command.MARKS, PUSH, 0, bodies.pack_marks(marks)))
    with pytest.raises(ProtocolError, match="bytes 4-7"):
        primary.receive(frames.pack(Command.ACK, ONE_WAY, 1, bodies.pack_ack(ack)))


# ------------------------------------------------------------------------------ broken rules

BAD_FOLLOWS = {
    "another protocol": follow(name="RocketMQ"),
    "no body": frames.pack(Command.FOLLOW, 0, 1, b""),
    "no map": frames.pack(Command.FOLLOW, 0, 1, b"\x80"),
    "one way": frames.pack(Command.FOLLOW, ONE_WAY, 1, control.encode(FOLLOW)),
    "a push": frames.pack(Command.FOLLOW, PUSH, 0, control.encode(FOLLOW)),
    "an answer": frames.pack(Command.FOLLOW, ANSWER, 1, control.encode(FOLLOW)),
    "an acknowledgement": FollowerStream().acknowledge(ACK),
    "followed by one": follow() + FollowerStream().acknowledge(ACK),
    "followed by a byte": follow() + b"\0",
    "twice": follow() * 2,
    "no name of a broker": follow(broker="a b"),
    "dots": follow(group=".."),
    "a long name": follow(broker="b" * 128),
    "a journal below 0": follow(journal=-1),
    "no incarnation": follow(incarnation=0),
    "another kind": follow(kind="primary"),
    "an epoch above u32": follow(told=2**32),
    "an end above 2^63": follow(end=2**63),
    "many checkpoints": follow(checkpoints=[(1, 1, 1)] * 101),
    "a checkpoint of two": follow(checkpoints=[(1, 1)]),
    "a checkpoint below 0": follow(checkpoints=[(-1, 1, 1)]),
    "a long token": follow(token="x" * 301),
    "software with a newline": follow(software="a\nb"),
    "many versions": follow(versions=[1] * 65),
}


@pytest.mark.parametrize("data", BAD_FOLLOWS.values(), ids=BAD_FOLLOWS)
def test_a_follow_is_checked(data):
    opening = ServerSession(100)
    with pytest.raises(ProtocolError):
        opening.receive(data)
    assert opening.follow is None


@pytest.mark.parametrize(
    "change",
    [
        {"matched": 5, "start": 5}, {"matched": NO_POSITION, "start": (1 << 20) + 8},
        {"start": (1 << 31) + 104}, {"first": 1 << 31}, {"first": (1 << 20) + 8}, {"journal": 0},
        {"epoch": 0}, {"segment_bytes": 0}, {"segment_bytes": 2**33}, {"broker": "?"},
        {"lease_us": 0}, {"now_us": -1}, {"end": 2**63}, {"version": 3},
    ],
    ids=str,
)  # fmt: skip
def test_an_answer_is_checked(change):
    known = msgspec.msgpack.decode(control.encode(FOLLOWED))
    body = msgspec.msgpack.encode(known | change)
    follower = FollowerStream()
    with pytest.raises(ProtocolError):
        follower.receive(frames.pack(Command.FOLLOW, ANSWER, 1, body))
    assert follower.followed is None


def test_nothing_of_the_primarys_matched():
    start = msgspec.structs.replace(FOLLOWED, matched=NO_POSITION, start=FOLLOWED.first)
    follower = FollowerStream()
    assert follower.receive(PrimaryStream(1).answer(start)) == [start]


@pytest.mark.parametrize(
    "data",
    [
        frames.pack(Command.MARKS, PUSH, 0, bodies.pack_marks(MARKS)),
        frames.pack(Command.HELLO, ANSWER, 1, control.encode(examples.WELCOME)),
        frames.pack(Command.FOLLOW, ANSWER, 2, control.encode(FOLLOWED)),
        frames.pack(Command.FOLLOW, 0, 1, control.encode(FOLLOW)),
        frames.head(Command.FOLLOW, ANSWER, 1, 65_536),
    ],
)
def test_what_a_primary_must_not_say_first(data):
    with pytest.raises(ProtocolError):
        FollowerStream().receive(data)


def test_another_program_listens_there():
    with pytest.raises(NotABroker):
        FollowerStream().receive(b"HTTP/1.1 400 Bad Request\r\n\r\n")


@pytest.mark.parametrize(
    "data",
    [
        frames.pack(Command.FOLLOW, ANSWER, 1, control.encode(FOLLOWED)),
        frames.pack(Command.ACK, ONE_WAY, 1, bodies.pack_ack(ACK)),
        frames.pack(Command.DRAIN, PUSH, 0, b"\x80"),
        frames.pack(Command.BYTES, 0, 1, bodies.bytes_head(8, 7) + b"12345678"),
        frames.pack(Command.BYTES, PUSH, 0, bodies.bytes_head(8, 7)),
        frames.pack(Command.BYTES, PUSH, 0, bodies.bytes_head(1 << 63, 7) + b"12345678"),
        frames.pack(Command.BYTES, PUSH, 0, bodies.BYTES.pack(8, 7, 1) + b"12345678"),
        frames.pack(Command.MARKS, PUSH, 0, b""),
        frames.pack(Command.MARKS, PUSH, 0, bodies.pack_marks(MARKS._replace(durable=1 << 32))),
        frames.pack(Command.MARKS, PUSH, 0, bodies.pack_marks(MARKS._replace(durable=8))),
        frames.pack(Command.MARKS, PUSH, 0, bodies.MARKS.pack(7, 0, 0, 0, 0, 0, 0, 0)),
        frames.pack(Command.RESIGN, PUSH, 0, b"\x80"),
        frames.pack(Command.RESIGN, PUSH, 0, msgspec.msgpack.encode({"epoch": 7, "to": "?"})),
        b"\0" * 16,
    ],
)
def test_what_a_primary_must_not_say(data):
    follower, _ = pair()
    with pytest.raises(ProtocolError):
        follower.receive(data)


@pytest.mark.parametrize(
    "data",
    [
        frames.pack(Command.ACK, 0, 1, bodies.pack_ack(ACK)),
        frames.pack(Command.ACK, ONE_WAY, 1, bodies.pack_ack(ACK)[:-8]),
        frames.pack(Command.ACK, ONE_WAY, 1, bodies.pack_ack(ACK._replace(synced=1 << 32))),
        frames.pack(Command.ACK, ONE_WAY, 1, bodies.pack_ack(ACK._replace(applied=1 << 32))),
        frames.pack(Command.ACK, ONE_WAY, 1, bodies.pack_ack(ACK._replace(written=1 << 63))),
        frames.pack(Command.ACK, ONE_WAY, 1, bodies.ACK.pack(7, 0, 1, 0, 0, 0, 0)),
        frames.pack(Command.FOLLOW, 0, 1, b""),
        frames.pack(Command.SEND, 0, 1, b""),
        frames.pack(Command.MARKS, PUSH, 0, b""),
        frames.head(Command.ACK, ONE_WAY, 1, 49),
        b"\0" * 16,
    ],
)
def test_what_a_follower_must_not_say(data):
    _, primary = pair()
    with pytest.raises(ProtocolError):
        primary.receive(data)


@given(st.binary(max_size=300))
def test_any_bytes_are_judged(data):
    follower, primary = pair()
    with contextlib.suppress(ProtocolError):
        follower.receive(data)
    with contextlib.suppress(ProtocolError):
        primary.receive(data)


def test_secrets_are_not_shown():
    assert FOLLOW.token not in repr(FOLLOW)


# ------------------------------------------------------------------------------ beside clients


@pytest.mark.parametrize("command", STREAM)
def test_to_a_client_they_are_unknown_commands(command):
    opening = ServerSession(100_000)
    opening.receive(frames.pack(Command.HELLO, 0, 1, control.encode(examples.HELLO)))
    opening.welcome(examples.WELCOME)
    _, body = examples.STREAM[command]
    for flags in (0, ONE_WAY):
        (event,) = opening.receive(frames.pack(command, flags, 9, body))
        assert event == Unknown(command, 9, body, one_way=bool(flags))
    (event,) = opening.receive(frames.pack(Command.PING, 0, 10, b""))
    assert isinstance(event, Request)
