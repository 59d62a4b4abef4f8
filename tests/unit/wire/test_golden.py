"""Frames of released versions stay readable, and this version still writes the same bytes.

``tests/golden/frames_v1.bin`` holds, back to back, a request and an answer of every command, both
forms of an answer that says no, and every push; ``frames_v1.json`` says what stands in each.
``python -m tests.unit.wire.test_golden`` writes the files if they are missing, and adds frames of
new commands to their ends. What is there is never written again: released versions wrote it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import astuple

from ternmq.model.specs import Mode
from ternmq.wire import bodies, control, frames, session
from ternmq.wire.commands import PUSHES, STREAM, TABLE, Command
from ternmq.wire.frames import ANSWER, ERROR, PUSH, Frame, FrameReader
from ternmq.wire.session import FAREWELL, ServerSession
from tests.unit.wire import examples

FOLDER = Path(__file__).parents[2] / "golden"
BYTES = FOLDER / "frames_v1.bin"
FIELDS = FOLDER / "frames_v1.json"

Unpack = Callable[[bytes], Any]
REQUESTS: dict[Command, Unpack] = {
    Command.PING: bodies.unpack_nothing,
    Command.BYE: bodies.unpack_nothing,
    Command.CANCEL: bodies.unpack_cancel,
    Command.SEND: bodies.unpack_send,
    Command.PREPARE: bodies.unpack_prepare,
    Command.PULL: bodies.unpack_pull,
    Command.SETTLE: bodies.unpack_settle,
    Command.EXTEND: bodies.unpack_extend,
    Command.READ: bodies.unpack_read,
    Command.JOURNAL_READ: bodies.unpack_journal_read,
    Command.TRANSACTION_PREPARE: bodies.unpack_transaction_prepare,
    Command.TRANSACTION_READ: bodies.unpack_transaction_read,
    Command.TRANSACTION_SETTLE: bodies.unpack_transaction_settle,
}
ANSWERS: dict[Command, Unpack] = {
    Command.PING: bodies.unpack_pong,
    Command.BYE: bodies.unpack_nothing,
    Command.CANCEL: bodies.unpack_nothing,
    Command.SEND: bodies.unpack_receipt,
    Command.PREPARE: bodies.unpack_prepared,
    Command.PULL: bodies.unpack_delivery,
    Command.SETTLE: bodies.unpack_settled,
    Command.EXTEND: bodies.unpack_extended,
    Command.READ: bodies.unpack_rows,
    Command.JOURNAL_READ: bodies.unpack_records,
    Command.TRANSACTION_PREPARE: bodies.unpack_transaction_prepared,
    Command.TRANSACTION_READ: bodies.unpack_transaction_rows,
    Command.TRANSACTION_SETTLE: bodies.unpack_nothing,
}
STREAMED: dict[Command, Unpack] = {
    Command.BYTES: bodies.unpack_bytes,
    Command.MARKS: bodies.unpack_marks,
    Command.ACK: bodies.unpack_ack,
    Command.SEGMENT_READ: bodies.unpack_bytes,
}


_WIDER = frozenset({"STATUS answer"})
"""Their struct has had more than 15 fields since: the map's header takes two bytes more, whatever
fields are left out, and every reader of msgpack takes both forms."""


_SINCE_2 = frozenset({"lease_ms", "promise_ms", "inflated"})
"""Fields of a stream that are 0 in its version 1."""


def made() -> Iterator[tuple[str, bytes]]:
    """Yield (name, frame) of everything that this version can say."""
    for command, example in sorted(examples.EXAMPLES.items()):
        yield f"{command.name} request", frames.pack(command, 0, command, example.request)
        yield f"{command.name} answer", frames.pack(command, ANSWER, command, example.answer)
    send = bodies.pack_send(*examples.SEND_ANY)
    yield "SEND one way, any queue", frames.pack(Command.SEND, frames.ONE_WAY, 2**64 - 1, send)
    others = bodies.pack_receipt(examples.RECEIPT_OTHERS)
    yield "SEND answer with other rows", frames.pack(Command.SEND, ANSWER, 100, others)
    queues = bodies.pack_receipt(examples.RECEIPT_QUEUES)
    yield "SEND answer with rows of other queues", frames.pack(Command.SEND, ANSWER, 105, queues)
    scheduled = bodies.pack_receipt(examples.RECEIPT_SCHEDULED)
    yield "SEND answer of scheduled rows", frames.pack(Command.SEND, ANSWER, 106, scheduled)
    cancelled = bodies.pack_receipt(examples.RECEIPT_CANCELLED)
    yield "SEND answer with a cancelled row", frames.pack(Command.SEND, ANSWER, 107, cancelled)
    at_once = bodies.pack_pull(examples.PULL._replace(at_once=16))
    yield "PULL that says at_once", frames.pack(Command.PULL, 0, 104, at_once)
    anywhere = bodies.pack_journal_read(examples.JOURNAL_READ._replace(anywhere=True))
    yield "JOURNAL_READ from any byte", frames.pack(Command.JOURNAL_READ, 0, 105, anywhere)
    hello = control.encode(msgspec.structs.replace(examples.HELLO, routes=True))
    yield "HELLO of a client that understands routes", frames.pack(Command.HELLO, 0, 1, hello)
    welcome = msgspec.structs.replace(examples.WELCOME, routes=True, journal=2**63 + 7)
    name = "HELLO answer of a broker of a broker group"
    yield name, frames.pack(Command.HELLO, ANSWER, 1, control.encode(welcome))
    hello = control.encode(msgspec.structs.replace(examples.HELLO, routes=True, reads=True))
    yield "HELLO of a client that only reads", frames.pack(Command.HELLO, 0, 1, hello)
    follows = control.encode(msgspec.structs.replace(welcome, follows=True))
    yield "HELLO answer of a broker that follows", frames.pack(Command.HELLO, ANSWER, 1, follows)
    yield (
        "ROUTES_CHANGED push without routes",
        frames.pack(Command.ROUTES_CHANGED, PUSH, 0, control.encode(control.RoutesChanged())),
    )
    opens = bodies.pack_transaction_prepare(examples.TRANSACTION_OPEN)
    yield (
        "TRANSACTION_PREPARE without a batch",
        frames.pack(Command.TRANSACTION_PREPARE, 0, 108, opens),
    )
    away = control.encode(control.Clients(clients=[examples.CLIENT_AWAY]))
    name = "CLIENT_LIST answer with a client that is away"
    yield name, frames.pack(Command.CLIENT_LIST, ANSWER, 108, away)
    filtered = control.encode(examples.JOIN_FILTERED)
    yield "GROUP_JOIN with a header filter", frames.pack(Command.GROUP_JOIN, 0, 109, filtered)
    spec = msgspec.structs.replace(examples.JOINED.spec, mode=Mode.SHARED, filter="a = 1")
    joined = control.encode(msgspec.structs.replace(examples.JOINED, spec=spec))
    name = "GROUP_JOIN answer with a header filter"
    yield name, frames.pack(Command.GROUP_JOIN, ANSWER, 109, joined)
    nothing = examples.pack_delivery(examples.NOTHING_CAME)
    yield "PULL answer without rows", frames.pack(Command.PULL, ANSWER, 101, nothing)
    anew = examples.pack_delivery(examples.DELIVERED_ANEW)
    yield "PULL answer after a reset", frames.pack(Command.PULL, ANSWER, 108, anew)
    whole = bodies.pack_settle(examples.SETTLE_ALL)
    yield "SETTLE of a whole lease", frames.pack(Command.SETTLE, 0, 102, whole)
    yield "SEND refused", session.refusal(Command.SEND, 103, examples.REFUSED)
    yield "farewell", ServerSession(100).farewell(examples.FAREWELL)
    for command, push in examples.PUSHES.items():
        yield f"{command.name} push", frames.pack(command, PUSH, 0, control.encode(push))
    for version, streamed in (("", examples.STREAM_1), (", version 2", examples.STREAM)):
        for command, (flags, body) in streamed.items():
            if version and command is Command.SEGMENT_READ:
                continue  # it begins no stream, so it has no version of one
            name = f"{command.name} of a stream{version}"
            yield name, frames.pack(command, flags, not flags & PUSH, body)
    for name, followed in (("", examples.FOLLOWED_1), (", version 2", examples.FOLLOWED)):
        answer = control.encode(followed)
        yield f"FOLLOW answer{name}", frames.pack(Command.FOLLOW, ANSWER, 1, answer)
    records = examples.pack_bytes(examples.BYTES)
    yield "SEGMENT_READ answer", frames.pack(Command.SEGMENT_READ, ANSWER, 1, records)


def plain(value: Any) -> Any:
    """Return what JSON can hold of a body's fields."""
    if isinstance(value, msgspec.Struct):
        return plain(msgspec.msgpack.decode(control.encode(value)))
    if isinstance(value, bytes):
        return value.hex()
    if hasattr(value, "_asdict"):
        return {name: plain(field) for name, field in value._asdict().items()}
    if isinstance(value, dict):
        return {name: plain(field) for name, field in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return value


def fields(frame: Frame) -> Any:
    """Return what stands in a frame's body."""
    if frame.command in set(STREAM):
        return streamed(Command(frame.command), frame)
    if frame.flags in {ANSWER | ERROR, PUSH} and frame.command not in set(PUSHES):
        return plain(bodies.unpack_error(frame.body))
    command = Command(frame.command)
    if frame.flags == PUSH:
        return plain(control.decode_answer(frame.body, PUSHES[command]))
    entry = TABLE[command]
    kind, unpack = (entry.answer, ANSWERS) if frame.flags == ANSWER else (entry.request, REQUESTS)
    if kind is not None:
        return plain(control.decode(frame.body, kind))
    return plain(unpack[command](frame.body))


def streamed(command: Command, frame: Frame) -> Any:
    """Return what stands in the body of a frame between brokers."""
    entry = STREAM[command]
    kind = entry.answer if frame.flags == ANSWER else entry.body
    if kind is not None:
        return plain(control.decode_answer(frame.body, kind))
    found = plain(STREAMED[command](frame.body))
    return {name: value for name, value in found.items() if value or name not in _SINCE_2}


def described(name: str, frame: Frame) -> dict[str, Any]:
    """Return what ``frames_v1.json`` says of a frame."""
    return {
        "name": name,
        "command": frame.command,
        "flags": frame.flags,
        "id": frame.id,
        "body": fields(frame),
    }


def kept() -> tuple[list[Frame], list[dict[str, Any]]]:
    """Return the golden frames, and what they hold."""
    if not BYTES.exists():
        return [], []
    return (
        FrameReader(1 << 20).feed(BYTES.read_bytes()),
        json.loads(FIELDS.read_text(encoding="utf-8")),
    )


def test_every_command_answer_and_push_is_there():
    names = {one["name"] for one in kept()[1]}
    assert {f"{command.name} request" for command in TABLE} < names
    assert {f"{command.name} answer" for command in TABLE} < names
    assert {f"{command.name} push" for command in PUSHES} < names
    assert {f"{command.name} of a stream" for command in STREAM} < names
    assert FAREWELL in {one["command"] for one in kept()[1]}


def test_what_was_written_is_read():
    found, texts = kept()
    assert [described(text["name"], one) for one, text in zip(found, texts, strict=True)] == texts


@pytest.mark.parametrize(("name", "data"), list(made()), ids=[name for name, _ in made()])
def test_the_same_fields_make_the_same_bytes(name, data):
    found, texts = kept()
    (frame,) = [one for one, text in zip(found, texts, strict=True) if text["name"] == name]
    if name in _WIDER:
        (read,) = FrameReader(1 << 20).feed(data)
        assert msgspec.msgpack.decode(read.body) == msgspec.msgpack.decode(frame.body)
        assert len(read.body) == len(frame.body) + 2
        return
    assert data == frames.pack(*astuple(frame))


def write() -> None:
    """Add the frames that are missing."""
    found, texts = kept()
    known = {text["name"] for text in texts}
    parts = [frames.pack(*astuple(frame)) for frame in found]
    for name, data in made():
        if name not in known:
            parts.append(data)
            texts.append(described(name, FrameReader(1 << 20).feed(data)[0]))
            print(f"added {name}")
    BYTES.write_bytes(b"".join(parts))
    FIELDS.write_text(json.dumps(texts, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write()
