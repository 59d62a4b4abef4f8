"""The state machine of one connection: a client's side and a broker's side. No I/O.

Theory of operation. Received bytes are fed in, and events come out; methods return the bytes to be
sent. The state machine is small enough for a table::

    client    OPENING --welcome--> OPEN --close or error--> CLOSED
              OPENING --refused--> CLOSED
    broker    OPENING --hello----> GREETED --welcome()--> OPEN --close or error--> CLOSED
                                   GREETED --refuse()---> CLOSED
              OPENING --follow---> GREETED: goes on as a stream, or is refused
              OPENING --segment read--> GREETED --lend() or refuse()--> CLOSED

In OPENING the broker takes one frame of at most 4 KiB, which must be a HELLO, or, from another
broker of its group, a FOLLOW or a SEGMENT_READ: whoever has the connection then goes on with
``stream``, or answers once (``segments`` is the side that asks). In GREETED
it looks the app up and takes nothing. Bytes that break a rule raise ``ProtocolError``: the broker
answers with an error frame of id 0, flagged as a push (``farewell``), and closes; a client just
closes. An unknown command breaks no rule: the client is newer, and the command is refused. No push
comes before the answer to HELLO, but one: routes before a refusal, to a client that asked for them.
"""

from __future__ import annotations

import enum
import re
from typing import Final, NamedTuple, NoReturn, TypeVar

import msgspec

from ternmq.model.errors import (
    InvalidRequest,
    NotABroker,
    ProtocolError,
    TernMQError,
    UnsupportedVersion,
    hinted,
)
from ternmq.wire import bodies, control, frames
from ternmq.wire.commands import ONE_WAY_COMMANDS, PUSHES, TABLE, Command
from ternmq.wire.frames import ANSWER, ERROR, ONE_WAY, PUSH, Frame, FrameReader

FAREWELL: Final = 0
"""Command number of the last frame, a push whose body is laid out like an error answer."""

_COMMANDS: Final = {int(command): command for command in TABLE if command is not Command.HELLO}
"""Commands that are allowed on an open connection, by number."""
_PUSHES: Final = {int(command): command for command in PUSHES}
_ROUTES_CHANGED: Final = int(Command.ROUTES_CHANGED)
_WELCOME_BYTES: Final = 65_536
_ANSWER_BYTES: Final = 1 << 31


class State(enum.Enum):
    """State of a connection."""

    OPENING = "opening"
    GREETED = "greeted"
    OPEN = "open"
    CLOSED = "closed"


# Names of the module: looking a member up in its class takes 0.1 us (Python 3.11).
_OPENING: Final = State.OPENING
_GREETED: Final = State.GREETED
_OPEN: Final = State.OPEN
_CLOSED: Final = State.CLOSED


class Request(msgspec.Struct, frozen=True, gc=False):
    """The broker's event: a request."""

    command: Command
    id: int
    body: bytes
    one_way: bool
    until_us: int = 0
    """Broker time at which its wait ends; set by the broker when a parked request runs again."""

    def until(self, until_us: int) -> Request:
        """Return the request with another end of its wait."""
        return Request(self.command, self.id, self.body, self.one_way, until_us)


class Unknown(msgspec.Struct, frozen=True, gc=False):
    """The broker's event: a request with an unknown command; it is refused as UnknownCommand."""

    command: int
    id: int
    body: bytes
    one_way: bool


class Answer(msgspec.Struct, frozen=True, gc=False):
    """The client's event: a request succeeded."""

    command: Command
    id: int
    body: bytes


class Refusal(NamedTuple):
    """The client's event: a request was refused, or failed.

    With HELLO and id 0 it is the broker's farewell: the broker closes the connection.
    """

    command: Command
    id: int
    error: TernMQError


class Push(NamedTuple):
    """The client's event: a push of the broker."""

    command: Command
    body: bytes


_Opening = TypeVar("_Opening", control.Follow, control.SegmentRead)


class ServerSession:
    """A broker's side of a connection.

    Args:
        frame_bytes: Largest frame once the client is known.

    Attributes:
        state: State of the connection.
        hello: The client's HELLO; None before it came.
        follow: The follower's FOLLOW, if the first frame was one.
        segment_read: Another broker's SEGMENT_READ, if the first frame was one.
        hello_id: Id of the first frame.
        version: Version of the protocol; 0 before HELLO.
    """

    __slots__ = (
        "_frame_bytes", "_reader", "follow", "hello", "hello_id", "segment_read", "state",
        "version",
    )  # fmt: skip

    def __init__(self, frame_bytes: int) -> None:
        self.state = State.OPENING
        self.hello: control.Hello | None = None
        self.follow: control.Follow | None = None
        self.segment_read: control.SegmentRead | None = None
        self.hello_id = 0
        self.version = 0
        self._frame_bytes = frame_bytes
        self._reader = FrameReader()

    @property
    def held_bytes(self) -> int:
        """Received bytes of an incomplete frame."""
        return self._reader.held_bytes

    def receive(self, data: bytes) -> list[Request | Unknown]:
        """Take received bytes; return the requests that are complete now.

        After the first frame it returns none; ``hello``, ``follow`` or ``segment_read`` is set.

        Raises:
            ProtocolError: The connection must be closed, with ``farewell``. All requests in these
                bytes are dropped.
        """
        state = self.state
        if state is _CLOSED:
            return []
        if state is _GREETED:
            raise ProtocolError("nothing may follow HELLO before its answer")
        found = self._reader.feed(data)
        if state is _OPENING:
            if found:
                self._greet(found)
            return []
        if len(found) == 1:
            return [_request(found[0])]
        return [_request(frame) for frame in found]

    def _greet(self, found: list[Frame]) -> None:
        first = found[0]
        if first.command == Command.FOLLOW and not first.flags:
            self.follow = self._of_a_broker(found, control.Follow)
            return
        if first.command == Command.SEGMENT_READ and not first.flags:
            self.segment_read = self._of_a_broker(found, control.SegmentRead)
            return
        if first.command != Command.HELLO or first.flags:
            raise ProtocolError("the first frame must be HELLO")
        try:
            hello = control.decode(first.body, control.Hello)
        except InvalidRequest as error:
            raise ProtocolError(text_of(error)) from error
        if hello.name != control.NAME:
            raise ProtocolError("this is not the protocol of TernMQ")
        if frames.VERSION not in hello.versions:
            raise UnsupportedVersion(
                f"the client speaks {list(hello.versions[:8])}, this broker {[frames.VERSION]}"
            )
        if hello.auxiliary and not hello.session:
            raise ProtocolError("an auxiliary connection needs a session")
        if len(found) > 1 or self._reader.held_bytes:
            raise ProtocolError("nothing may follow HELLO before its answer")
        self.hello, self.hello_id, self.version = hello, first.id, frames.VERSION
        self.state = State.GREETED

    def _of_a_broker(self, found: list[Frame], kind: type[_Opening]) -> _Opening:
        """Return the first frame's body, which another broker has sent in the place of HELLO."""
        first = found[0]
        try:
            opening = control.decode(first.body, kind)
        except InvalidRequest as error:
            raise ProtocolError(text_of(error)) from error
        if opening.name != control.NAME:
            raise ProtocolError("this is not the protocol of TernMQ")
        if len(found) > 1 or self._reader.held_bytes:
            what = Command(first.command).name
            raise ProtocolError(f"nothing may follow {what} before its answer")
        self.hello_id = first.id
        self.state = State.GREETED
        return opening

    def welcome(self, welcome: control.Welcome) -> bytes:
        """Open the connection; return the frame that answers HELLO."""
        assert self.state is State.GREETED
        self.state = State.OPEN
        self._reader.max_bytes = self._frame_bytes
        return frames.pack(Command.HELLO, ANSWER, self.hello_id, control.encode(welcome))

    def refuse(self, error: TernMQError, routes: control.Routes | None = None) -> bytes:
        """Close the connection; return the frame that refuses HELLO, FOLLOW or SEGMENT_READ.

        Before it are the routes, if there are some and the client understands them there.
        """
        assert self.state is State.GREETED
        self.state = State.CLOSED
        command = Command.HELLO
        if self.follow is not None:
            command = Command.FOLLOW
        elif self.segment_read is not None:
            command = Command.SEGMENT_READ
        last = refusal(command, self.hello_id, error)
        if routes is None or self.hello is None or self.hello.routes is not True:
            return last
        body = control.encode(control.RoutesChanged(routes=routes))
        return frames.pack(Command.ROUTES_CHANGED, PUSH, 0, body) + last

    def lend(self, position: int, epoch: int, records: bytes) -> bytes:
        """Close the connection; return the frame that answers SEGMENT_READ.

        Args:
            position: Where the first record begins.
            epoch: Largest epoch of this broker's journal.
            records: Whole records, of a PAD only the header.
        """
        assert self.state is State.GREETED
        self.state = State.CLOSED
        body = bodies.bytes_head(position, epoch) + records
        return frames.pack(Command.SEGMENT_READ, ANSWER, self.hello_id, body)

    def farewell(self, error: TernMQError) -> bytes:
        """Close a connection that broke the protocol; return its last frame."""
        self.state = State.CLOSED
        body = bodies.pack_error(error.code, text_of(error), retriable=False, refresh_routes=False)
        return frames.pack(FAREWELL, PUSH, 0, body)


def _request(frame: Frame) -> Request | Unknown:
    number, flags, id_, body = frame.command, frame.flags, frame.id, frame.body
    if flags and flags != ONE_WAY:
        raise ProtocolError("a client sends requests, neither answers nor pushes")
    command = _COMMANDS.get(number)
    if command is None:
        if number == Command.HELLO:
            raise ProtocolError("HELLO was said already")
        return Unknown(number, id_, body, bool(flags))
    if flags and command not in ONE_WAY_COMMANDS:
        raise ProtocolError(f"{command.name} without an answer makes no sense")
    return Request(command, id_, body, bool(flags))


class ClientSession:
    """A client's side of a connection. It numbers the requests from 1 on."""

    __slots__ = ("_asked", "_next", "_reader", "_routes", "state", "welcome")

    def __init__(self) -> None:
        self.state = State.OPENING
        self.welcome: control.Welcome | None = None
        self._next = 1
        self._asked: dict[int, Command] = {}
        self._reader = FrameReader(_WELCOME_BYTES)
        self._routes = False
        """Whether routes may come before the answer to HELLO."""

    @property
    def asked(self) -> int:
        """Number of requests without an answer."""
        return len(self._asked)

    def hello(self, hello: control.Hello) -> bytes:
        """Return the frame of HELLO, the first one of a connection."""
        id_ = self._next
        self._next += 1
        self._asked[id_] = Command.HELLO
        self._routes = hello.routes is True
        return frames.pack(Command.HELLO, 0, id_, control.encode(hello))

    def ask(self, command: Command, body: bytes = b"") -> tuple[int, bytes]:
        """Return (id, frame) of a new request.

        Raises:
            ProtocolError: The connection is not open.
        """
        if self.state is not _OPEN:
            raise ProtocolError(f"a request while {self.state.value}")
        id_ = self._next
        self._next += 1
        self._asked[id_] = command
        return id_, frames.pack(command, 0, id_, body)

    def tell(self, command: Command, body: bytes = b"") -> bytes:
        """Return the frame of a ONE_WAY request, which is not answered.

        Raises:
            ProtocolError: The connection is not open.
        """
        if self.state is not State.OPEN:
            raise ProtocolError(f"a request while {self.state.value}")
        id_ = self._next
        self._next += 1
        return frames.pack(command, ONE_WAY, id_, body)

    def receive(self, data: bytes) -> list[Answer | Refusal | Push]:
        """Take received bytes; return events. The answer to HELLO is also kept in ``welcome``.

        Raises:
            ProtocolError: The connection must be closed.
            NotABroker: Likewise, and the bytes are of another protocol.
        """
        events: list[Answer | Refusal | Push] = []
        if self.state is _CLOSED:
            return events
        if self.state is _OPENING and not self._reader.held_bytes:
            _refuse_others(data)
        for frame in self._reader.feed(data):
            number, flags, id_, body = frame.command, frame.flags, frame.id, frame.body
            if flags == PUSH:
                pushed = self._pushed(number, body)
                if pushed is not None:
                    events.append(pushed)
            elif flags & ANSWER:
                command = self._asked.pop(id_, None)
                if command is None or command != number:
                    raise ProtocolError(f"an answer of {number} to {id_}, which did not ask that")
                if flags == ANSWER:
                    if self.state is _OPENING:
                        self._open(body)
                    events.append(Answer(command, id_, body))
                else:
                    if self.state is State.OPENING:
                        self.state = State.CLOSED
                    events.append(Refusal(command, id_, bodies.unpack_refusal(body)))
            else:
                raise ProtocolError("a broker sends answers and pushes, no requests")
            if self.state is _CLOSED:
                break
        return events

    def _open(self, body: bytes) -> None:
        welcome = control.decode_answer(body, control.Welcome)
        if welcome.version != frames.VERSION:
            raise UnsupportedVersion(f"the broker speaks version {welcome.version}")
        self.welcome = welcome
        self.state = State.OPEN
        # The broker is trusted with memory: requests bound the size of their answers.
        self._reader.max_bytes = _ANSWER_BYTES

    def _pushed(self, number: int, body: bytes) -> Push | Refusal | None:
        if number == FAREWELL:
            self.state = State.CLOSED
            return Refusal(Command.HELLO, 0, bodies.unpack_refusal(body))
        if self.state is not State.OPEN and not (self._routes and number == _ROUTES_CHANGED):
            raise ProtocolError(f"a push of {number} while {self.state.value}")
        command = _PUSHES.get(number)
        return None if command is None else Push(command, body)  # None: the broker is newer


def answer(request: Request, body: bytes) -> bytes:
    """Return the frame that answers a request."""
    return frames.pack(request.command, ANSWER, request.id, body)


def refusal(command: int, id_: int, error: TernMQError) -> bytes:
    """Return the frame that answers a request with an error."""
    body = bodies.pack_error(
        error.code,
        text_of(error),
        retriable=error.retriable,
        refresh_routes=error.refresh_routes,
    )
    return frames.pack(command, ANSWER | ERROR, id_, body)


def text_of(error: TernMQError) -> str:
    """Return an error's text without the hint: the other side has the hint in its own table."""
    return str(error.args[0]) if error.args else ""


def _refuse_others(data: bytes) -> None:
    """Check that the other side's first bytes are not of another protocol.

    Raises:
        NotABroker: They are; the text names the protocol, if it is known.
    """
    if len(data) <= frames.MAGIC_AT or data[frames.MAGIC_AT] == frames.MAGIC:
        return
    if data.startswith(b"HTTP/"):
        _refuse_http(data)
    if data.startswith(_TLS_ALERT):
        raise hinted(
            NotABroker("this port requires TLS"),
            "write ternmqs:// instead of ternmq:// in the address",
        )
    raise NotABroker(
        f"a program that is not a broker listens there: its first bytes are {data[:16]!r}"
    )


def _refuse_http(data: bytes) -> NoReturn:
    """Raise NotABroker for an HTTP answer; it contains the URL for clients if a broker sent one.

    The URL is limited in length and characters, since it is shown on terminals and any server may
    have sent it.
    """
    told = _CLIENTS.search(data[:_HEAD_BYTES])
    if told is None:
        raise NotABroker("this is an HTTP port, such as that of a broker's metrics")
    raise hinted(  # the hint of the class guesses the address, and here it is known
        NotABroker(f"this is a broker's HTTP port; clients connect to {told[1].decode()}"), ""
    )


_CLIENTS: Final = re.compile(rb"\r\nTernMQ-Clients: (ternmqs?://[A-Za-z0-9._:\[\]-]{1,255})\r\n")
"""The header with the URL for clients, in every answer of a broker's HTTP port."""
_HEAD_BYTES: Final = 1024
_TLS_ALERT: Final = b"\x15\x03"
