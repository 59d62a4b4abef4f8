"""Messages in the form of JSON, as ``tail --json`` prints them, and back."""

from __future__ import annotations

import base64
import codecs
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw, UnsetType

from ternmq.client.admin.lookup import FoundMessage
from ternmq.client.consumer.delivery import Delivery
from ternmq.client.content.codecs import JSON, TEXT
from ternmq.client.content.message import Message
from ternmq.client.forms.values import iso


@dataclass(slots=True, frozen=True)
class Found:
    """A found message, with the attributes of a delivery that commands show."""

    id: str
    topic: str
    queue: int | None
    offset: int | None
    stored_at: datetime
    born_at: datetime
    key: str
    ordering_key: str
    tag: str
    headers: Mapping[str, str]
    application_id: str
    content_type: str
    body: bytes
    state: str = "stored"
    due_at: datetime | None = None
    priority: int = 0
    expires_at: datetime | None = None


def shown(found: FoundMessage) -> Found:
    """Return a found message in the form that commands show."""
    row = found.row
    return Found(
        found.id,
        found.topic,
        found.queue,
        found.offset,
        found.stored_at,
        found.born_at,
        row.key,
        row.ordering_key,
        row.tag,
        row.headers,
        row.application_id,
        row.content_type,
        row.body,
        found.state,
        found.due_at,
        row.priority,
        found.expires_at,
    )


Shown = Delivery | Found


def state_of(message: Shown) -> str:
    """Return the state of a message that is in no queue, as text; empty for any other."""
    state = message.state if isinstance(message, Found) else "stored"
    return "" if state == "stored" else f"{state}, due at {iso(message.due_at)}"


def expiry_of(message: Shown) -> datetime | None:
    """Return when a found message expires; None: its sender stated none, or it is a delivery."""
    return message.expires_at if isinstance(message, Found) else None


def plain(message: Shown) -> dict[str, Any]:
    """Return a message in the form of the JSON output.

    ``body`` is the text of a JSON body, or a string; any other body is in ``body_base64``. A JSON
    body whose bytes cannot be part of a line unchanged (it has several lines, or blanks around it)
    is in both: without blanks in ``body``, exact in ``body_base64``.
    """
    told: dict[str, Any] = {
        "id": message.id,
        "topic": message.topic,
        "queue": message.queue,
        "offset": message.offset,
        "stored_at": iso(message.stored_at),
        "born_at": iso(message.born_at),
        "key": message.key,
        "ordering_key": message.ordering_key,
        "tag": message.tag,
        "headers": dict(message.headers),
        "application_id": message.application_id,
        "content_type": message.content_type,
    }
    if message.due_at is not None:
        told["due_at"] = iso(message.due_at)
    if message.priority:
        told["priority"] = message.priority
    if expiry_of(message) is not None:
        told["expires_at"] = iso(expiry_of(message))
    if state_of(message):
        assert isinstance(message, Found)
        told["state"] = message.state
    return told | plain_body(message.body, message.content_type)


def plain_body(body: bytes, content_type: str) -> dict[str, Any]:
    """Return a body in the form of the JSON output: ``body``, ``body_base64``, or both."""
    told: dict[str, Any] = {}
    if content_type == JSON:
        if is_json(body):
            kept = _kept(body)
            told["body"] = Raw(body if kept else msgspec.json.format(body, indent=-1))
            if kept:
                return told
    elif content_type in {"", TEXT}:
        try:
            return {"body": body.decode()}
        except UnicodeDecodeError:
            pass
    return told | {"body_base64": base64.b64encode(body).decode()}


def is_json(text: bytes) -> bool:
    """Return whether bytes are JSON that every reader accepts: no NaN, no number beyond doubles."""
    try:
        msgspec.json.decode(text)
    except (ValueError, RecursionError):
        return False
    return True


def _kept(text: bytes) -> bool:
    """Return whether a JSON body can be read back from a line as the same bytes."""
    if b"\n" in text or b"\r" in text:
        return False
    # Blanks around a value are lost when it is read again.
    return text[:1].strip() == text[:1] and text[-1:].strip() == text[-1:]


_IGNORED: Final = frozenset(
    {"topic", "queue", "offset", "stored_at", "born_at", "due_at", "expires_at", "state",
     "group", "attempt", "deliveries", "maybe_redelivered", "failures", "attempts", "when", "held",
     "reason"}
)  # fmt: skip


_TEXTS: Final = ("key", "ordering_key", "tag")


def message_of(text: bytes, properties: Message) -> Message:
    """Return the message that a line of JSON describes; missing fields come from options.

    A queue and a priority in the options replace those of the line: they say where it goes.

    It accepts the output of ``tail --json`` and ``deadletter export``. An ``id`` in the broker's
    own form is ignored; any other one is the application's. The application id of a dead letter is
    ignored: with it the broker would take the new message for a duplicate, and store nothing. A
    JSON body is sent with the same bytes as in the line.

    Raises:
        ValueError: The line does not describe a message.
    """
    text = text.removeprefix(codecs.BOM_UTF8)
    with _said("is not JSON"):
        told = json.loads(text, parse_constant=no_constant)
    if not isinstance(told, dict):
        raise ValueError("is not a JSON object")
    line = _line(text)
    nested = told.get("message")
    if isinstance(nested, dict):  # a line of `deadletter export`
        told = {name: nested[name] for name in nested.keys() - {"id", "application_id"}}
        assert line.message is not UNSET
        line = _line(bytes(line.message))
    known = {*_IGNORED, *_TEXTS, "headers", "content_type", "id", "application_id", "body",
             "body_base64", "priority"}  # fmt: skip
    unknown = sorted(told.keys() - known)
    if unknown:
        raise ValueError(f"has a field {unknown[0]!r}, which messages do not have")
    if "body" not in told and "body_base64" not in told:
        raise ValueError("needs a body or a body_base64")
    for name in (*_TEXTS, "content_type", "id", "application_id"):
        if not isinstance(told.get(name, ""), str):
            raise ValueError(f"has a value of {name!r} that is not text")
    priority = told.get("priority")
    if priority is not None and type(priority) is not int:
        raise ValueError("has a priority that is not a whole number")
    if properties.priority is not None:  # it selects the queues, as --queue does
        priority = properties.priority
    headers = told.get("headers", {})
    if not isinstance(headers, dict):
        raise ValueError("has headers that are not an object")
    for name, value in headers.items():
        if not isinstance(value, str):
            raise ValueError(f"has a header {name!r} whose value is not text")
    content_type = told.get("content_type", properties.content_type or None)
    if not content_type and "body" in told and not isinstance(told["body"], str):
        content_type = JSON
    own = told.get("application_id") or _own_id(told.get("id", "")) or properties.id
    return Message(
        _body(told, line, content_type),
        headers={**properties.headers, **headers},
        content_type=content_type or "",
        id=own,
        queue=properties.queue,
        deliver_after=properties.deliver_after,
        deliver_at=properties.deliver_at,
        priority=priority,
        expires_after=properties.expires_after,
        **{name: told.get(name) or getattr(properties, name) for name in _TEXTS},
    )


def no_constant(name: str) -> object:
    """Refuse ``NaN``, ``Infinity`` and ``-Infinity``, which Python accepts but JSON does not have.

    Raises:
        ValueError: Always.
    """
    raise ValueError(f"{name} is not JSON")


def _own_id(text: str) -> str:
    """Return an id, or "" if it is one of the broker's, which ``tail --json`` prints."""
    producer, colon, sequence = text.partition(":")
    broker = colon and len(producer) == 16 and _hexadecimal(producer) and _hexadecimal(sequence)
    return "" if broker else text


def _hexadecimal(text: str) -> bool:
    return bool(text) and all(sign in "0123456789abcdef" for sign in text)


class _Line(msgspec.Struct):
    """The fields of a line whose exact bytes are needed."""

    body: Raw | UnsetType = UNSET
    message: Raw | UnsetType = UNSET


def _line(text: bytes) -> _Line:
    with _said("is not JSON"):
        return msgspec.json.decode(text, type=_Line)


@contextmanager
def _said(wrong: str) -> Iterator[None]:
    """Say what is wrong with JSON that cannot be decoded."""
    try:
        yield
    except RecursionError as error:
        raise ValueError("is JSON that is nested too deeply") from error
    except ValueError as error:
        raise ValueError(f"{wrong}: {error}") from error


def _body(told: dict[str, Any], line: _Line, content_type: str | None) -> object:
    if "body_base64" in told:
        try:
            exact = base64.b64decode(told["body_base64"], validate=True)
        except (ValueError, TypeError) as error:
            raise ValueError("has a body_base64 that is not base64") from error
        if "body" in told and not _says(exact, told["body"]):
            raise ValueError("has a body and a body_base64 that differ: leave one of them out")
        return exact
    body = told["body"]
    if content_type == JSON:
        assert line.body is not UNSET
        raw = bytes(line.body)
        with _said("has a body that is not JSON"):
            msgspec.json.decode(raw)
        return raw
    if content_type is not None and isinstance(body, str):
        return body.encode()
    return body


def _says(exact: bytes, body: object) -> bool:
    """Return whether bytes are the same JSON value as a line's body."""
    try:
        value = json.loads(exact, parse_constant=no_constant)
    except (ValueError, RecursionError):
        return False
    # Compared as text: in Python, 1, 1.0 and true are equal.
    return json.dumps(value, sort_keys=True) == json.dumps(body, sort_keys=True)
