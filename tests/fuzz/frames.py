"""What comes over the wire: frames, sessions, bodies."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any, Final

from msgspec.structs import astuple

from ternmq.model.errors import InvalidRequest, ProtocolError
from ternmq.wire import bodies, control, frames
from ternmq.wire.commands import PUSHES, TABLE, Command
from ternmq.wire.frames import FrameReader
from ternmq.wire.session import ClientSession, ServerSession, State
from ternmq.wire.stream import FollowerStream, PrimaryStream
from tests.fuzz.engine import Input, Target
from tests.unit.wire import examples

INVARIANT: Final = (
    "Whatever bytes come, in whatever pieces: nothing but ProtocolError comes out of sessions and"
    " of what reads answers, nothing but InvalidRequest out of what reads requests; what is"
    " accepted says the same when it is written again; memory follows what came, not what it"
    " promises."
)
FRAME_BYTES: Final = 1 << 20
_HELLO: Final = frames.pack(Command.HELLO, 0, 1, control.encode(examples.HELLO))


# ---------------------------------------------------------------------------------------- streams


def _pieces(data: bytes) -> Iterator[bytes]:
    """Yield the bytes in pieces; their sizes follow from the bytes."""
    at, size = 0, 1 + len(data) % 7
    while at < len(data):
        yield data[at : at + size]
        at += size
        size = 1 + (size * 31 + data[min(at, len(data) - 1)]) % 257


def _read(data: Iterator[bytes]) -> tuple[list[frames.Frame], type[Exception] | None]:
    reader = FrameReader(FRAME_BYTES)
    found: list[frames.Frame] = []
    for piece in data:
        try:
            found += reader.feed(piece)
        except ProtocolError as error:
            return found, type(error)
        assert reader.held_bytes < FRAME_BYTES
    return found, None


def stream(data: bytes) -> None:
    """Read frames at once and in pieces: the same comes of it."""
    whole, why = _read(iter([data]))
    found, why_then = _read(_pieces(data))
    assert why == why_then
    # Frames that are followed by what is none in the same piece go with it.
    assert found[: len(whole)] == whole
    if why is None:
        assert found == whole
        told = b"".join(frames.pack(*astuple(frame)) for frame in found)
        assert data.startswith(told)


def opening(data: bytes) -> None:
    """Let a broker hear these bytes first."""
    session = ServerSession(FRAME_BYTES)
    for piece in _pieces(data):
        assert not session.receive(piece)
        if session.state is State.GREETED:
            if session.hello is None:
                assert session.follow is not None
                session.refuse(examples.REFUSED)
            else:
                session.welcome(examples.WELCOME)
            return
        assert session.held_bytes < frames.OPENING_BYTES


def opened(data: bytes) -> None:
    """Let a broker hear these bytes on an open connection."""
    session = ServerSession(FRAME_BYTES)
    session.receive(_HELLO)
    session.welcome(examples.WELCOME)
    try:
        for piece in _pieces(data):
            for request in session.receive(piece):
                assert request.id
    except ProtocolError as error:
        farewell = session.farewell(error)
        assert len(farewell) <= 16 + 8 + bodies.MAX_TEXT_BYTES
        assert session.receive(data) == []
        raise


def client(data: bytes) -> None:
    """Let a client hear these bytes, which has one request of every command out."""
    session = ClientSession()
    session.hello(examples.HELLO)
    session.receive(frames.pack(Command.HELLO, frames.ANSWER, 1, control.encode(examples.WELCOME)))
    for command in TABLE:
        session.ask(command)
    asked = session.asked
    told = 0
    for piece in _pieces(data):
        told += len(session.receive(piece))
    assert session.asked <= asked


def client_opening(data: bytes) -> None:
    """Let a client hear these bytes as the answer to HELLO."""
    session = ClientSession()
    session.hello(examples.HELLO)
    for piece in _pieces(data):
        session.receive(piece)


def follower(data: bytes) -> None:
    """Let a follower hear these bytes behind the answer to FOLLOW."""
    session = FollowerStream()
    session.receive(PrimaryStream(1).answer(examples.FOLLOWED))
    for piece in _pieces(data):
        session.receive(piece)


def follower_opening(data: bytes) -> None:
    """Let a follower hear these bytes as the answer to FOLLOW."""
    session = FollowerStream()
    for piece in _pieces(data):
        session.receive(piece)
        if session.followed is None:
            assert session.held_bytes < 65_536


def primary(data: bytes) -> None:
    """Let a primary hear these bytes of a follower."""
    session = PrimaryStream(1)
    session.answer(examples.FOLLOWED)
    for piece in _pieces(data):
        session.receive(piece)
        assert session.held_bytes < 64


# ----------------------------------------------------------------------------------------- bodies


def _again(
    unpack: Callable[[bytes], Any], pack: Callable[[Any], bytes], *, exact: bool
) -> Callable[[bytes], object]:
    def run(data: bytes) -> None:
        value = unpack(data)
        packed = pack(value)
        assert unpack(packed) == value
        if exact:
            assert packed == data

    return run


def _spread(pack: Callable[..., bytes]) -> Callable[[Any], bytes]:
    return lambda value: pack(*value)


_REQUESTS: Final[dict[str, Callable[[bytes], object]]] = {
    "send": _again(bodies.unpack_send, _spread(bodies.pack_send), exact=True),
    "prepare": _again(bodies.unpack_prepare, bodies.pack_prepare, exact=True),
    "pull": _again(bodies.unpack_pull, bodies.pack_pull, exact=True),
    "settle": _again(bodies.unpack_settle, bodies.pack_settle, exact=True),
    "extend": _again(bodies.unpack_extend, bodies.pack_extend, exact=True),
    "read": _again(bodies.unpack_read, bodies.pack_read, exact=True),
    "journal-read": _again(bodies.unpack_journal_read, bodies.pack_journal_read, exact=True),
    "cancel": _again(bodies.unpack_cancel, bodies.pack_cancel, exact=True),
    "transaction-prepare": _again(
        bodies.unpack_transaction_prepare, bodies.pack_transaction_prepare, exact=True
    ),
    "transaction-settle": _again(
        bodies.unpack_transaction_settle, bodies.pack_transaction_settle, exact=True
    ),
    "transaction-read": _again(
        bodies.unpack_transaction_read, bodies.pack_transaction_read, exact=True
    ),
    "nothing": bodies.unpack_nothing,
}
_ANSWERS: Final[dict[str, Callable[[bytes], object]]] = {
    "receipt": _again(bodies.unpack_receipt, bodies.pack_receipt, exact=False),
    "prepared": _again(bodies.unpack_prepared, examples.pack_prepared, exact=False),
    "transaction-prepared": _again(
        bodies.unpack_transaction_prepared, examples.pack_transaction_prepared, exact=False
    ),
    "transaction-rows": bodies.unpack_transaction_rows,
    "delivery": bodies.unpack_delivery,
    "settled": _again(bodies.unpack_settled, _spread(bodies.pack_settled), exact=True),
    "extended": _again(bodies.unpack_extended, _spread(bodies.pack_extended), exact=True),
    "rows": _again(bodies.unpack_rows, examples.pack_rows, exact=True),
    "records": bodies.unpack_records,
    "pong": _again(bodies.unpack_pong, bodies.pack_pong, exact=True),
    "bytes": _again(bodies.unpack_bytes, examples.pack_bytes, exact=True),
    "marks": _again(bodies.unpack_marks, bodies.pack_marks, exact=True),
    "ack": _again(bodies.unpack_ack, bodies.pack_ack, exact=True),
    "refusal": bodies.unpack_refusal,
}


def _control(kind: Any) -> Callable[[bytes], object]:
    def run(data: bytes) -> None:
        value = control.decode(data, kind)
        assert control.decode(control.encode(value), kind) == value or _has_nan(value)

    return run


def _has_nan(value: Any) -> bool:
    return "nan" in repr(value)


def _control_answer(kind: Any) -> Callable[[bytes], object]:
    return lambda data: control.decode_answer(data, kind)


_CONTROL: Final[dict[str, Callable[[bytes], object]]] = {
    f"{command.name.lower()}-request": _control(entry.request)
    for command, entry in TABLE.items()
    if entry.request is not None
}
_CONTROL_ANSWERS: Final[dict[str, Callable[[bytes], object]]] = {
    f"{command.name.lower()}-answer": _control_answer(entry.answer)
    for command, entry in TABLE.items()
    if entry.answer is not None
} | {f"{command.name.lower()}-push": _control_answer(kind) for command, kind in PUSHES.items()}
_CONTROL["follow-request"] = _control(control.Follow)
_CONTROL_ANSWERS["follow-answer"] = _control_answer(control.Followed)
_CONTROL_ANSWERS["resign-push"] = _control_answer(control.Resign)
_STREAMS: Final[dict[str, Callable[[bytes], object]]] = {
    "stream": stream,
    "opening": opening,
    "opened": opened,
    "client": client,
    "client-opening": client_opening,
    "follower": follower,
    "follower-opening": follower_opening,
    "primary": primary,
}


# ----------------------------------------------------------------------------------------- target


def sown() -> Iterator[Input]:
    """Yield sound inputs."""
    every = examples.EXAMPLES
    asked = [
        frames.pack(command, 0, id_, every[command].request)
        for id_, command in enumerate(TABLE, 2)
        if command is not Command.HELLO
    ]
    told = [
        frames.pack(command, frames.ANSWER, id_, every[command].answer)
        for id_, command in enumerate(TABLE, 2)
    ]
    pushes = [
        frames.pack(command, frames.PUSH, 0, control.encode(push))
        for command, push in examples.PUSHES.items()
    ]
    farewell = ServerSession(1).farewell(examples.FAREWELL)
    refusal = frames.pack(
        Command.PING,
        frames.ANSWER | frames.ERROR,
        3,
        bodies.pack_error(140, "later", retriable=True, refresh_routes=False),
    )
    yield Input("opening", _HELLO)
    yield Input("client-opening", told[0][:8] + struct.pack("<Q", 1) + told[0][16:])
    yield Input("client-opening", farewell)
    for part, some in (
        ("opened", asked),
        ("opened", asked[:2]),
        ("client", told),
        ("client", told[3:6]),
        ("client", [*pushes, refusal, farewell]),
    ):
        yield Input("stream", b"".join(some))
        yield Input(part, b"".join(some))
    streamed = {
        command: frames.pack(command, flags, not flags & frames.PUSH, body)
        for command, (flags, body) in examples.STREAM.items()
    }
    yield Input("opening", streamed[Command.FOLLOW])
    yield Input("primary", streamed[Command.ACK] * 2)
    sent = b"".join(streamed[one] for one in (Command.BYTES, Command.MARKS, Command.RESIGN))
    yield Input("follower", sent)
    yield Input("follower", farewell)
    yield Input("follower-opening", PrimaryStream(1).answer(examples.FOLLOWED) + sent)
    yield Input("follower-opening", PrimaryStream(1).refuse(examples.REFUSED))
    for name, command in (("bytes", Command.BYTES), ("marks", Command.MARKS), ("ack", Command.ACK)):
        yield Input(name, examples.STREAM[command][1])
    yield Input("follow-request", control.encode(examples.FOLLOW))
    yield Input("follow-answer", control.encode(examples.FOLLOWED))
    yield Input("resign-push", control.encode(examples.RESIGN))
    yield Input("send", every[Command.SEND].request)
    yield Input("send", bodies.pack_send(*examples.SEND_ANY))
    yield Input("prepare", every[Command.PREPARE].request)
    yield Input("prepare", bodies.pack_prepare(examples.PREPARE_ANY))
    yield Input("prepared", every[Command.PREPARE].answer)
    yield Input("transaction-prepare", every[Command.TRANSACTION_PREPARE].request)
    yield Input("transaction-prepare", bodies.pack_transaction_prepare(examples.TRANSACTION_OPEN))
    yield Input("transaction-prepared", every[Command.TRANSACTION_PREPARE].answer)
    yield Input("transaction-settle", every[Command.TRANSACTION_SETTLE].request)
    yield Input("transaction-read", every[Command.TRANSACTION_READ].request)
    yield Input("transaction-rows", every[Command.TRANSACTION_READ].answer)
    yield Input("pull", every[Command.PULL].request)
    yield Input("settle", every[Command.SETTLE].request)
    yield Input("settle", bodies.pack_settle(examples.SETTLE_ALL))
    yield Input("extend", every[Command.EXTEND].request)
    yield Input("read", every[Command.READ].request)
    yield Input("journal-read", every[Command.JOURNAL_READ].request)
    yield Input("cancel", every[Command.CANCEL].request)
    yield Input("nothing", b"")
    yield Input("receipt", every[Command.SEND].answer)
    yield Input("receipt", bodies.pack_receipt(examples.RECEIPT_OTHERS))
    yield Input("receipt", bodies.pack_receipt(examples.RECEIPT_QUEUES))
    yield Input("delivery", every[Command.PULL].answer)
    yield Input("settled", every[Command.SETTLE].answer)
    yield Input("extended", every[Command.EXTEND].answer)
    yield Input("rows", every[Command.READ].answer)
    yield Input("records", every[Command.JOURNAL_READ].answer)
    yield Input("pong", every[Command.PING].answer)
    yield Input("refusal", refusal[16:])
    for command, (request, answer) in examples.STRUCTS.items():
        yield Input(f"{command.name.lower()}-request", control.encode(request))
        yield Input(f"{command.name.lower()}-answer", control.encode(answer))
    for command, push in examples.PUSHES.items():
        yield Input(f"{command.name.lower()}-push", control.encode(push))


def mend(part: str, data: bytes) -> bytes:
    """Give the first frame of a stream the length of all bytes, a magic, and flags that may be."""
    if part not in _STREAMS or len(data) < 16:
        return data
    flags = data[6] if data[6] in {0, 1, 3, 4, 8} else 0
    return struct.pack("<IBBBB", len(data), frames.MAGIC, data[5], flags, 0) + data[8:]


TARGET: Final = Target(
    name="frames",
    invariant=INVARIANT,
    parts=_STREAMS | _REQUESTS | _ANSWERS | _CONTROL | _CONTROL_ANSWERS,
    allowed={
        **dict.fromkeys((*_STREAMS, *_ANSWERS, *_CONTROL_ANSWERS), (ProtocolError,)),
        **dict.fromkeys((*_REQUESTS, *_CONTROL), (InvalidRequest,)),
    },
    modules=("ternmq.wire",),
    sown=sown,
    mend=mend,
)
