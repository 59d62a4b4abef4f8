"""Messages as people read them: a line, or all properties; JSON: ``ternmq.client.forms``."""

from __future__ import annotations

import json

import click

from ternmq.cli.terminal import output
from ternmq.client.content.items import ITEMS, unpack
from ternmq.client.forms import values
from ternmq.client.forms.messages import Shown, expiry_of, state_of
from ternmq.model.errors import DecodeError
from ternmq.model.printing import printable
from ternmq.model.words import counted


def text_of(body: bytes) -> str:
    """Return a body as a line for people."""
    try:
        return printable(body.decode())
    except UnicodeDecodeError:
        return repr(body)[2:-1]


def _items_of(body: bytes, content_type: str) -> list[str]:
    """Return a batch session as lines for people: its name, then each item; none for another."""
    if content_type != ITEMS:
        return []
    try:
        session = unpack(body)
    except DecodeError:
        return []  # shown as any bytes are
    told = [f"session {printable(session.session)}, {counted(session.size, 'item')}:"]
    for row in session.rows:
        parts = [
            f"{name}={_quoted(value)}" for name in ("key", "tag") if (value := getattr(row, name))
        ]
        parts += [f"{_quoted(name)}:{_quoted(value)}" for name, value in row.headers.items()]
        told.append("  ".join([*parts, text_of(row.body)]))
    return told


def line(message: Shown) -> str:
    """Return a message as one line: when, where, properties, body."""
    parts = [
        values.iso(message.stored_at) or "",
        _place(message),
    ]
    for name in ("key", "ordering_key", "tag"):
        value = getattr(message, name)
        if value:
            parts.append(f"{name}={_quoted(value)}")
    parts += [f"{_quoted(name)}:{_quoted(value)}" for name, value in message.headers.items()]
    items = _items_of(message.body, message.content_type)
    parts += [items[0], " | ".join(items[1:])] if items else [text_of(message.body)]
    return "  ".join(parts)


def _place(message: Shown) -> str:
    state = state_of(message)
    if state:
        return f"{message.topic} ({state})"
    return f"{message.topic}/{message.queue}/{message.offset}"


def _quoted(text: str) -> str:
    shown = printable(text)
    return json.dumps(shown, ensure_ascii=False) if " " in shown else shown


def details(message: Shown) -> None:
    """Print all properties of a message, and its body."""
    expiry = expiry_of(message)
    output.details(
        [
            ("id", message.id),
            ("place", _place(message)),
            ("stored at", values.iso(message.stored_at)),
            ("born at", values.iso(message.born_at)),
            *([("due at", values.iso(message.due_at))] if message.due_at is not None else []),
            *([("priority", message.priority)] if message.priority else []),
            *([("expires at", values.iso(expiry))] if expiry is not None else []),
            ("key", message.key),
            ("ordering key", message.ordering_key),
            ("tag", message.tag),
            *[(f"header {name}", value) for name, value in message.headers.items()],
            ("application id", message.application_id),
            ("content type", message.content_type),
            ("size", counted(len(message.body), "byte")),
        ]
    )
    click.echo()
    click.echo(whole(message.body, message.content_type))


def whole(body: bytes, content_type: str) -> str:
    """Return a body over several lines, if it is text or a batch session."""
    if items := _items_of(body, content_type):
        return "\n".join(items)
    try:
        lines = body.decode().splitlines()
    except UnicodeDecodeError:
        return text_of(body)
    return "\n".join(printable(one) for one in lines)
