"""SEGMENT_READ: one request, one answer, and the connection is closed."""

from __future__ import annotations

import pytest

from ternmq.model.errors import Busy, FrameTooLarge, InvalidRequest, ProtocolError
from ternmq.wire import bodies, control, frames
from ternmq.wire.bodies import Bytes
from ternmq.wire.commands import Command
from ternmq.wire.segments import SegmentAsk
from ternmq.wire.session import Refusal, ServerSession, State
from tests.unit.wire.examples import SEGMENT_READ

SEGMENT = 1 << 16
RECORDS = b"records " * 5


def asked() -> tuple[SegmentAsk, ServerSession]:
    asking, giving = SegmentAsk(SEGMENT), ServerSession(100)
    assert giving.receive(asking.ask(SEGMENT_READ)) == []
    assert giving.segment_read == SEGMENT_READ
    assert giving.state is State.GREETED
    return asking, giving


def test_records_come_however_the_bytes_arrive():
    for size in (1, 7, 1 << 20):
        asking, giving = asked()
        answer = giving.lend(SEGMENT_READ.position, 7, RECORDS)
        found = None
        for at in range(0, len(answer), size):
            assert found is None
            found = asking.receive(answer[at : at + size])
        assert found == Bytes(SEGMENT_READ.position, 7, RECORDS)
        assert asking.state is giving.state is State.CLOSED
        assert asking.receive(answer) is None


def test_it_is_refused():
    asking, giving = asked()
    found = asking.receive(giving.refuse(Busy("not now")))
    assert isinstance(found, Refusal)
    assert (found.command, type(found.error)) == (Command.SEGMENT_READ, Busy)


def test_an_older_broker_says_farewell():
    asking = SegmentAsk(SEGMENT)
    asking.ask(SEGMENT_READ)
    last = ServerSession(100).farewell(ProtocolError("the first frame must be HELLO"))
    found = asking.receive(last)
    assert isinstance(found, Refusal)
    assert (found.id, type(found.error)) == (0, ProtocolError)


@pytest.mark.parametrize(
    "answer",
    [
        frames.pack(Command.FOLLOW, frames.ANSWER, 1, bodies.bytes_head(0, 1) + RECORDS),
        frames.pack(Command.SEGMENT_READ, frames.ANSWER, 2, bodies.bytes_head(0, 1) + RECORDS),
        frames.pack(Command.SEGMENT_READ, frames.PUSH, 0, bodies.bytes_head(0, 1) + RECORDS),
        frames.pack(Command.SEGMENT_READ, frames.ANSWER, 1, bodies.bytes_head(8, 1) + RECORDS),
        frames.pack(Command.SEGMENT_READ, frames.ANSWER, 1, bodies.bytes_head(0, 1)),
        frames.pack(Command.SEGMENT_READ, frames.ANSWER, 1, b""),
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
    ],
    ids=["other command", "other id", "push", "other place", "no records", "nothing", "http"],
)
def test_what_answers_nothing(answer):
    asking, _ = asked()
    with pytest.raises(ProtocolError):
        asking.receive(answer)


def test_an_answer_that_is_too_large():
    asking, giving = asked()
    with pytest.raises(FrameTooLarge):
        asking.receive(giving.lend(SEGMENT_READ.position, 7, bytes(2 * SEGMENT)))


def test_bad_requests_are_refused_before_anything_is_looked_up():
    good = control.encode(SEGMENT_READ)
    for body in (b"", b"\xc1", good[:-1], good.replace(b"TernMQ", b"TernMX")):
        giving = ServerSession(100)
        with pytest.raises(ProtocolError):
            giving.receive(frames.pack(Command.SEGMENT_READ, 0, 1, body))
    giving = ServerSession(100)
    frame = frames.pack(Command.SEGMENT_READ, 0, 1, good)
    with pytest.raises(ProtocolError, match="SEGMENT_READ"):
        giving.receive(frame + frame)


def test_a_request_fits_a_first_frame():
    long = control.SegmentRead(
        token="t" * 300, group="g" * 127, journal=2**64 - 1, broker="b" * 127, position=2**62
    )
    assert len(SegmentAsk(SEGMENT).ask(long)) < frames.OPENING_BYTES


def test_secrets_are_not_shown():
    assert SEGMENT_READ.token not in repr(SEGMENT_READ)


@pytest.mark.parametrize("wrong", [{"journal": 0}, {"most_bytes": 0}, {"most_bytes": 1 << 21}])
def test_numbers_out_of_bounds(wrong):
    fields = {"token": "t", "group": "g", "journal": 1, "broker": "b", "position": 0} | wrong
    body = control.encode(control.SegmentRead(**fields))
    with pytest.raises(InvalidRequest):
        control.decode(body, control.SegmentRead)
