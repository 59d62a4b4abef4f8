"""A request as handlers see it, and their answers."""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import Any, Final, TypeVar

import msgspec

from ternmq.client.client import Client
from ternmq.client.forms import values
from ternmq.http.api.detached import Detached
from ternmq.http.api.problems import UnsupportedType
from ternmq.model.errors import InvalidRequest, TernMQError
from ternmq.model.units import TRUTHS, read_duration
from ternmq.wire.commands import Command

S = TypeVar("S", bound=msgspec.Struct)
JSON: Final = "application/json"
NDJSON: Final = "application/x-ndjson"
FORM: Final = "application/x-www-form-urlencoded"
"""What curl says of ``-d`` without a type of its own."""


@dataclass(slots=True, frozen=True)
class Kind:
    """The kind of a parameter: how it is read, and what OpenAPI calls it."""

    read: Callable[[str], Any]
    schema: Mapping[str, Any]


def _whole(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 19:
        raise ValueError("is not a whole number")
    return int(text)


def _duration(text: str) -> timedelta:
    try:
        return timedelta(microseconds=read_duration(text))
    except OverflowError as error:
        raise ValueError("is longer than any supported time") from error


def _moment(text: str) -> datetime:
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise ValueError("is not a time such as 2026-11-30T12:00:00Z") from error
    if found.tzinfo is None:
        raise ValueError("is a time without its zone: add Z, or an offset such as +01:00")
    return found


def _flag(text: str) -> bool:
    try:
        return TRUTHS[text.lower()]
    except KeyError:
        raise ValueError("is neither true nor false") from None


def _text(text: str) -> str:
    return text


TEXT: Final = Kind(_text, {"type": "string"})
WHOLE: Final = Kind(_whole, {"type": "integer", "minimum": 0})
DURATION: Final = Kind(_duration, {"type": "string", "examples": ["250ms", "10s", "1h30m"]})
MOMENT: Final = Kind(_moment, {"type": "string", "format": "date-time"})
FLAG: Final = Kind(_flag, {"type": "boolean"})


@dataclass(slots=True, frozen=True)
class Parameter:
    """A parameter of a route, in the query.

    Attributes:
        name: Its name there.
        kind: How its text is read.
        about: What it is.
        header: Header in which it may stand instead; empty: none.
    """

    name: str
    kind: Kind
    about: str
    header: str = ""


@dataclass(slots=True)
class Call:
    """A request that was accepted, for its handler.

    Attributes:
        client: A client with the caller's credential.
        detached: Pulls with it.
        path: Values of the path's names.
        given: Values of the parameters that were given, by name.
        headers: Headers of the request.
        body: Its body.
        content_type: The type of its body, without parameters, in lower case; empty: not stated.
        stopping: Set when the server is about to end: what waits ends.
    """

    client: Client
    detached: Detached
    path: Mapping[str, str]
    given: Mapping[str, Any]
    headers: Mapping[str, str]
    body: bytes
    content_type: str
    stopping: asyncio.Event

    def take(self, kind: type[S], *, optional: bool = False) -> S:
        """Return the body, which is JSON of a kind.

        Raises:
            UnsupportedType: The request says that it is something else.
            InvalidRequest: It is not.
        """
        if self.content_type not in {"", JSON, FORM}:
            raise UnsupportedType(f"the body must be {JSON}, not {self.content_type}")
        if not self.body and optional:
            return msgspec.convert({}, kind)
        try:
            return msgspec.json.decode(self.body, type=kind)
        except (msgspec.DecodeError, RecursionError) as error:
            raise InvalidRequest(f"the body is not what is expected: {error}") from error


@dataclass(slots=True, frozen=True)
class Answer:
    """The answer of a handler.

    Attributes:
        value: A value for JSON; ignored if there is a ``body``.
        status: Its status.
        headers: More headers.
        body: Bytes to answer instead of JSON.
        content_type: Their type.
    """

    value: Any = None
    status: int = HTTPStatus.OK
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    content_type: str = JSON

    def data(self) -> bytes:
        """Return the bytes of the body; JSON ends with a line break, for terminals."""
        if self.body is not None:
            return self.body
        return msgspec.json.encode(values.plain(self.value)) + b"\n"


Handler = Callable[[Call], Awaitable[Answer]]


@dataclass(slots=True, frozen=True)
class Route:
    """A route: a method and a path, and all that the server and the reference say of it.

    Attributes:
        method: The method.
        path: The path; names in braces are one segment each.
        commands: What the broker is asked; its rights are those of these commands.
        about: What it does, in a line.
        handler: Answers it.
        parameters: What its query may have.
        takes: The type of a JSON body; ``bytes``: the body is taken as it is; None: it has none.
        gives: A name for what it answers, in the reference.
        status: The status of success.
        optional: The body may be left out.
    """

    method: str
    path: str
    commands: tuple[Command, ...]
    about: str
    handler: Handler
    parameters: tuple[Parameter, ...] = ()
    takes: type[msgspec.Struct | bytes] | None = None
    gives: str = ""
    status: int = HTTPStatus.OK
    optional: bool = False

    def __post_init__(self) -> None:
        if not self.commands:
            raise ValueError(f"{self.method} {self.path} names no command")


def parsed(
    route: Route, query: Sequence[tuple[str, str]], headers: Mapping[str, str]
) -> dict[str, Any]:
    """Return the values of a route's parameters that a request has.

    Raises:
        InvalidRequest: One is unknown, given twice, or cannot be read.
    """
    known = {one.name: one for one in route.parameters}
    texts: dict[str, str] = {}
    for name, text in query:
        if name not in known:
            raise InvalidRequest(f"there is no parameter {name[:60]!r} here{_near(name, known)}")
        if name in texts:
            raise InvalidRequest(f"the parameter {name!r} is given twice")
        texts[name] = text
    for one in route.parameters:
        if one.header and one.header in headers:
            if one.name in texts:
                raise InvalidRequest(
                    f"{one.name!r} is given twice: in the query and in the header {one.header}"
                )
            texts[one.name] = headers[one.header]
    found: dict[str, Any] = {}
    for name, text in texts.items():
        try:
            found[name] = known[name].kind.read(text)
        except ValueError as error:
            raise InvalidRequest(f"{name}={text[:60]!r} {error}") from error
    return found


def _near(name: str, known: Mapping[str, Parameter]) -> str:
    found = difflib.get_close_matches(name[:60], list(known), n=1, cutoff=0.6)
    return f"; did you mean {found[0]!r}?" if found else ""


def outcome_of(error: Exception) -> dict[str, Any]:
    """Return the error of one item of many, without the parts of a whole answer."""
    found: dict[str, Any] = {"title": type(error).__name__, "detail": str(error)}
    if isinstance(error, TernMQError):
        found["detail"] = str(error.args[0]) if error.args else type(error).__name__
        found["code"] = error.code
        found["retriable"] = error.retriable
    return found
