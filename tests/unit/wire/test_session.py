"""Sessions: the tables of both sides, every broken rule, and both joined in memory."""

from __future__ import annotations

import struct
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ternmq.model.errors import (
    Busy,
    FrameTooLarge,
    LeaseExpired,
    NotPrimary,
    ProtocolError,
    Unauthenticated,
    UnknownCommand,
    UnsupportedVersion,
)
from ternmq.wire import bodies, control, frames, session
from ternmq.wire.commands import ONE_WAY_COMMANDS, PUSHES, TABLE, Command
from ternmq.wire.frames import ANSWER, ERROR, ONE_WAY, PUSH
from ternmq.wire.session import (
    FAREWELL,
    Answer,
    ClientSession,
    Push,
    Refusal,
    Request,
    ServerSession,
    State,
    Unknown,
)
from tests.unit.wire import examples

HELLO, WELCOME = examples.HELLO, examples.WELCOME
FRAME_BYTES = 100_000


def opening() -> ServerSession:
    return ServerSession(FRAME_BYTES)


def greeted() -> ServerSession:
    broker = opening()
    assert broker.receive(frames.pack(Command.HELLO, 0, 1, control.encode(HELLO))) == []
    return broker


def opened() -> ServerSession:
    broker = greeted()
    broker.welcome(WELCOME)
    return broker


def pair() -> tuple[ClientSession, ServerSession]:
    client, broker = ClientSession(), opening()
    broker.receive(client.hello(HELLO))
    client.receive(broker.welcome(WELCOME))
    return client, broker


def hello(**fields: Any) -> bytes:
    """Return a HELLO frame with a map that a struct would not make."""
    known = msgspec.to_builtins(HELLO)
    body = msgspec.msgpack.encode(known | fields)
    return frames.pack(Command.HELLO, 0, 1, body)


# ------------------------------------------------------------------------------ joined in memory


def test_both_begin_opening_and_open_together():
    client, broker = ClientSession(), opening()
    assert (client.state, broker.state) == (State.OPENING, State.OPENING)
    data = client.hello(HELLO)
    assert broker.receive(data) == []
    assert broker.state is State.GREETED
    assert broker.hello == HELLO
    assert broker.version == 1
    (event,) = client.receive(broker.welcome(WELCOME))
    assert isinstance(event, Answer)
    assert (client.state, broker.state) == (State.OPEN, State.OPEN)
    assert client.welcome == WELCOME
    assert client.asked == 0


@pytest.mark.parametrize("command", [one for one in TABLE if one is not Command.HELLO])
def test_every_command_goes_there_and_back(command):
    client, broker = pair()
    body, answer = examples.EXAMPLES[command]
    id_, frame = client.ask(command, body)
    assert client.asked == 1
    (request,) = broker.receive(frame)
    assert request == Request(command, id_, body, one_way=False)
    assert client.receive(session.answer(request, answer)) == [Answer(command, id_, answer)]
    assert client.asked == 0


@pytest.mark.parametrize("command", [one for one in TABLE if one is not Command.HELLO])
def test_every_command_may_be_refused(command):
    client, broker = pair()
    id_, frame = client.ask(command, examples.EXAMPLES[command].request)
    (request,) = broker.receive(frame)
    (event,) = client.receive(session.refusal(request.command, request.id, LeaseExpired("late")))
    assert isinstance(event, Refusal)
    assert (event.command, event.id) == (command, id_)
    assert type(event.error) is LeaseExpired
    assert event.error.args == ("late",), "the hint is added by whoever shows it"
    assert client.state is State.OPEN


@pytest.mark.parametrize("command", TABLE)
def test_one_way(command):
    client, broker = pair()
    if command is Command.HELLO:
        return
    frame = client.tell(command, b"body")
    assert client.asked == 0
    if command in ONE_WAY_COMMANDS:
        (request,) = broker.receive(frame)
        assert request.one_way
    else:
        with pytest.raises(ProtocolError):
            broker.receive(frame)


@pytest.mark.parametrize("command", PUSHES)
def test_pushes(command):
    client, _ = pair()
    body = control.encode(examples.PUSHES[command])
    assert client.receive(frames.pack(command, PUSH, 0, body)) == [Push(command, body)]


def test_pushes_of_a_newer_broker_are_passed_over():
    client, _ = pair()
    known = frames.pack(Command.DRAIN, PUSH, 0, b"\x80")
    data = frames.pack(201, PUSH, 0, b"?") + known + frames.pack(Command.PING, PUSH, 0, b"")
    assert client.receive(data) == [Push(Command.DRAIN, b"\x80")]


def test_answers_in_any_order():
    client, broker = pair()
    asked = [client.ask(Command.PING) for _ in range(5)]
    assert [id_ for id_, _ in asked] == [2, 3, 4, 5, 6]
    came = broker.receive(b"".join(frame for _, frame in asked))
    requests = [one for one in came if isinstance(one, Request)]
    data = [session.answer(one, bodies.pack_pong(one.id)) for one in reversed(requests)]
    events = client.receive(b"".join(data))
    assert [event.id for event in events if isinstance(event, Answer)] == [6, 5, 4, 3, 2]


@given(st.lists(st.integers(1, 40), max_size=30))
def test_however_the_bytes_are_cut(sizes):
    client, broker = ClientSession(), opening()
    sent = [client.hello(HELLO)]
    assert broker.receive(sent[0]) == []
    client.receive(broker.welcome(WELCOME))
    asked = [
        client.ask(command, examples.EXAMPLES[command].request)
        for command in TABLE
        if command is not Command.HELLO
    ]
    data = b"".join(frame for _, frame in asked)
    got: list[Request | Unknown] = []
    at = 0
    for size in [*sizes, len(data)]:
        got += broker.receive(data[at : at + size])
        at += size
    assert [one.id for one in got] == [id_ for id_, _ in asked]
    assert broker.held_bytes == 0


def test_a_command_of_a_newer_client_is_told_and_others_are_not_lost():
    client, broker = pair()
    data = (
        client.ask(Command.PING)[1]
        + frames.pack(200, 0, 77, b"?")
        + frames.pack(Command.DRAIN, ONE_WAY, 78, b"")
        + client.ask(Command.PING)[1]
    )
    first, unknown, push, last = broker.receive(data)
    assert isinstance(first, Request)
    assert unknown == Unknown(200, 77, b"?", one_way=False)
    assert push == Unknown(Command.DRAIN, 78, b"", one_way=True)
    assert isinstance(last, Request)
    assert broker.state is State.OPEN
    body = session.refusal(200, 77, UnknownCommand("command 200"))
    assert body[5] == 200
    assert struct.unpack_from("<H", body, 16) == (153,)


# ------------------------------------------------------------------------------ ends


def test_a_hello_that_is_refused():
    client, broker = ClientSession(), opening()
    broker.receive(client.hello(HELLO))
    data = broker.refuse(Unauthenticated("no app 'shop'"))
    assert broker.state is State.CLOSED
    (event,) = client.receive(data)
    assert isinstance(event, Refusal)
    assert type(event.error) is Unauthenticated
    assert event.command is Command.HELLO
    assert event.id == 1
    assert client.state is State.CLOSED
    assert client.receive(b"anything") == []
    assert broker.receive(b"anything") == []


def test_routes_come_before_a_refusal_only_to_who_understands_them():
    routes = control.Routes(group="main", groups=[control.BrokerGroupRoute(name="main")])
    client, broker = ClientSession(), opening()
    broker.receive(client.hello(HELLO))
    (event,) = client.receive(broker.refuse(NotPrimary("a leads"), routes))
    assert isinstance(event, Refusal)
    client, broker = ClientSession(), opening()
    broker.receive(client.hello(msgspec.structs.replace(HELLO, routes=True)))
    pushed, event = client.receive(broker.refuse(NotPrimary("a leads"), routes))
    assert isinstance(pushed, Push)
    assert pushed.command is Command.ROUTES_CHANGED
    assert control.decode_answer(pushed.body, control.RoutesChanged).routes == routes
    assert isinstance(event, Refusal)
    assert client.state is State.CLOSED


@pytest.mark.parametrize("number", [Command.DRAIN, Command.ROUTES_CHANGED, 250])
@pytest.mark.parametrize("routes", [True, False])
def test_no_other_push_comes_before_the_answer_to_hello(number, routes):
    client = ClientSession()
    client.hello(msgspec.structs.replace(HELLO, routes=routes))
    data = frames.pack(number, frames.PUSH, 0, b"")
    if routes and number == Command.ROUTES_CHANGED:
        assert client.receive(data) == [Push(Command.ROUTES_CHANGED, b"")]
        return
    with pytest.raises(ProtocolError, match="while opening"):
        client.receive(data)


@pytest.mark.parametrize("make", [lambda: (ClientSession(), opening()), pair])
def test_farewell(make):
    client, broker = make()
    (event,) = client.receive(broker.farewell(FrameTooLarge("a frame of 99 bytes")))
    assert broker.state is State.CLOSED
    assert client.state is State.CLOSED
    assert isinstance(event, Refusal)
    assert event.id == 0
    assert type(event.error) is FrameTooLarge


def test_nothing_is_asked_unless_open():
    client, broker = ClientSession(), opening()
    client.hello(HELLO)
    for say in (client.ask, client.tell):
        with pytest.raises(ProtocolError):
            say(Command.PING)
    client.receive(broker.farewell(Busy("x")))
    with pytest.raises(ProtocolError):
        client.ask(Command.PING)


# ------------------------------------------------------------------------------ broken rules

GOOD = frames.pack(Command.PING, 0, 7, b"")
BAD_HELLOS = {
    "another command": GOOD,
    "another command, as large": frames.pack(Command.SEND, 0, 1, bytes(1000)),
    "an unknown command": frames.pack(250, 0, 1, b""),
    "one way": frames.pack(Command.HELLO, ONE_WAY, 1, control.encode(HELLO)),
    "an answer": frames.pack(Command.HELLO, ANSWER, 1, control.encode(HELLO)),
    "a push": frames.pack(Command.HELLO, PUSH, 0, control.encode(HELLO)),
    "no body": frames.pack(Command.HELLO, 0, 1, b""),
    "no map": frames.pack(Command.HELLO, 0, 1, b"\x93\1\2\3"),
    "no msgpack": frames.pack(Command.HELLO, 0, 1, b"\xc1" * 10),
    "deep": frames.pack(Command.HELLO, 0, 1, b"\x81\xa1x" + b"\x91" * 4000 + b"\xc0"),
    "trailing bytes": frames.pack(Command.HELLO, 0, 1, control.encode(HELLO) + b"\0"),
    "a list that is promised": frames.pack(
        Command.HELLO, 0, 1, b"\x81\xa8versions\xdd\xff\xff\xff\xff"
    ),
    "another protocol": hello(name="RocketMQ"),
    "no client": frames.pack(Command.HELLO, 0, 1, b"\x80"),
    "an empty client": hello(client=""),
    "a long client": hello(client="a" * 65),
    "a client with a newline": hello(client="abc\n"),
    "a client with a slash": hello(client="../abc"),
    "a library with a newline": hello(library="x\ny"),
    "a long library": hello(library="x" * 201),
    "a session below 0": hello(session=-1),
    "a session above u32": hello(session=2**32),
    "a pid below 0": hello(pid=-1),
    "an app that is a number": hello(app=5),
    "auxiliary to nothing": hello(auxiliary=True),
    "many versions": hello(versions=list(range(65))),
    "followed by a request": frames.pack(Command.HELLO, 0, 1, control.encode(HELLO)) + GOOD,
    "followed by a byte": frames.pack(Command.HELLO, 0, 1, control.encode(HELLO)) + b"\0",
    "twice": 2 * frames.pack(Command.HELLO, 0, 1, control.encode(HELLO)),
    "garbage": b"\xff" * 100,
    "HTTP": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
}


@pytest.mark.parametrize("data", BAD_HELLOS.values(), ids=BAD_HELLOS)
def test_the_first_frame_is_a_sound_hello(data):
    broker = opening()
    with pytest.raises(ProtocolError) as caught:
        broker.receive(data)
    assert broker.hello is None
    (event,) = ClientSession().receive(broker.farewell(caught.value))
    assert isinstance(event, Refusal)
    assert event.error.args == caught.value.args


@pytest.mark.parametrize("data", BAD_HELLOS.values(), ids=BAD_HELLOS)
def test_and_byte_by_byte(data):
    broker = opening()
    with pytest.raises(ProtocolError):  # noqa: PT012
        for at in range(len(data)):
            broker.receive(data[at : at + 1])
    assert broker.state in {State.OPENING, State.GREETED}


@pytest.mark.parametrize("versions", [[], [2], [0, 2, 255]])
def test_no_version_in_common(versions):
    with pytest.raises(UnsupportedVersion):
        opening().receive(hello(versions=versions))


def test_versions_of_a_newer_client():
    broker = opening()
    broker.receive(hello(versions=[3, 2, 1], colour="red"))
    assert broker.version == 1


def test_a_hello_of_five_kib():
    broker = opening()
    data = frames.pack(Command.HELLO, 0, 1, bytes(5 * 1024))
    with pytest.raises(FrameTooLarge):
        broker.receive(data[:16])
    opening().receive(hello(token="x" * 3500))


def test_nothing_follows_hello_before_its_answer():
    broker = greeted()
    with pytest.raises(ProtocolError):
        broker.receive(GOOD)


@pytest.mark.parametrize(
    "data",
    [
        frames.pack(Command.HELLO, 0, 9, control.encode(HELLO)),
        frames.pack(Command.PING, ANSWER, 9, b""),
        frames.pack(Command.PING, ANSWER | ERROR, 9, b""),
        frames.pack(Command.DRAIN, PUSH, 0, b""),
        frames.pack(Command.PULL, ONE_WAY, 9, examples.EXAMPLES[Command.PULL].request),
        frames.pack(Command.READ, ONE_WAY, 9, b""),
        frames.head(Command.SEND, 0, 9, FRAME_BYTES),
        b"\0" * 16,
    ],
)
def test_what_a_client_must_not_say(data):
    broker = opened()
    with pytest.raises(ProtocolError):
        broker.receive(data)
    assert broker.receive(broker.farewell(ProtocolError("x"))) == []


def test_the_largest_frame_comes_with_the_welcome():
    broker = opened()
    body = bytes(FRAME_BYTES - 16)
    (request,) = broker.receive(frames.pack(Command.SEND, 0, 9, body))
    assert request.body == body


BAD_WELCOMES = {
    "empty": lambda: frames.pack(Command.HELLO, ANSWER, 1, b""),
    "to another id": lambda: frames.pack(Command.HELLO, ANSWER, 2, control.encode(WELCOME)),
    "to another command": lambda: frames.pack(Command.PING, ANSWER, 1, control.encode(WELCOME)),
    "a request": lambda: frames.pack(Command.HELLO, 0, 1, control.encode(HELLO)),
    "a push first": lambda: frames.pack(Command.DRAIN, PUSH, 0, b"\x80"),
    "an error cut short": lambda: frames.pack(Command.HELLO, ANSWER | ERROR, 1, b"\x90"),
    "a farewell cut short": lambda: frames.pack(FAREWELL, PUSH, 0, b"\x90"),
    "no map": lambda: frames.pack(Command.HELLO, ANSWER, 1, b"\x90"),
    "larger than any": lambda: frames.head(Command.HELLO, ANSWER, 1, 65_536),
    "another version": lambda: frames.pack(
        Command.HELLO, ANSWER, 1, control.encode(msgspec.structs.replace(WELCOME, version=2))
    ),
    "not ours": lambda: b"HTTP/1.1 400 Bad Request\r\n\r\n",
}


@pytest.mark.parametrize("make", BAD_WELCOMES.values(), ids=BAD_WELCOMES)
def test_what_a_broker_must_not_say_first(make):
    client = ClientSession()
    client.hello(HELLO)
    with pytest.raises(ProtocolError):
        client.receive(make())


@pytest.mark.parametrize(
    "make",
    [
        lambda id_: frames.pack(Command.PING, ANSWER, id_ + 1, b""),
        lambda id_: frames.pack(Command.PULL, ANSWER, id_, b""),
        lambda id_: frames.pack(Command.PULL, ANSWER | ERROR, id_, b"\0" * 8),
        lambda id_: 2 * frames.pack(Command.PING, ANSWER, id_, b""),
        lambda id_: frames.pack(Command.PING, 0, id_, b""),
        lambda id_: frames.pack(Command.PING, ONE_WAY, id_, b""),
        lambda id_: frames.pack(Command.PING, ANSWER | ERROR, id_, b"\1\2"),
        lambda id_: frames.head(Command.PULL, ANSWER, id_, 2**31),
    ],
)
def test_what_a_broker_must_not_say(make):
    client, _ = pair()
    id_, _ = client.ask(Command.PING)
    with pytest.raises(ProtocolError):
        client.receive(make(id_))


def test_secrets_are_not_shown():
    assert HELLO.token not in repr(HELLO)
    assert "n3w" not in repr(control.AppToken(token="n3w"))


def test_a_long_text_does_not_come_back_whole():
    error = Busy("x" * 100_000)
    assert len(session.refusal(Command.PING, 1, error)) == 16 + 8 + bodies.MAX_TEXT_BYTES
    assert len(opening().farewell(error)) == 16 + 8 + bodies.MAX_TEXT_BYTES
