"""What is checked before anything is sent, each with an error of its own."""

from __future__ import annotations

import enum
from collections.abc import ItemsView, Mapping
from datetime import timedelta
from typing import Final, TypeVar

from ternmq.client.outgoing import Outgoing
from ternmq.model.errors import InvalidRequest
from ternmq.model.specs import check_name

MAX_ID_BYTES: Final = 128
MAX_TEXT_BYTES: Final = 4096
_MICROSECOND: Final = timedelta(microseconds=1)


def check_topic(name: object) -> str:
    """Return the name of a topic.

    Raises:
        InvalidName: It cannot be one.
    """
    if not isinstance(name, str):
        raise InvalidRequest(f"a topic's name is a str, not {type(name).__name__}")
    return check_name(name)


E = TypeVar("E", bound=enum.Enum)


def choose(what: str, kind: type[E], value: E | str) -> E:
    """Return the one of an enum that is meant.

    Raises:
        InvalidRequest: Naming those that there are.
    """
    try:
        return kind(value)
    except ValueError as error:
        known = ", ".join([str(one.value) for one in kind])
        raise InvalidRequest(f"{what} {value!r}: it is one of {known}") from error


def check_positive(what: str, number: int) -> None:
    """Refuse numbers below 1.

    Raises:
        InvalidRequest: Naming what it is.
    """
    if number < 1:
        raise InvalidRequest(f"{what} must be 1 or more, not {number}")


def duration_us(what: str, duration: object) -> int:
    """Return how many µs a timedelta has.

    Raises:
        InvalidRequest: It is none.
    """
    if not isinstance(duration, timedelta):
        raise InvalidRequest(f"{what} is a timedelta, not {type(duration).__name__}")
    return duration // _MICROSECOND


def seconds_us(what: str, seconds: object) -> int:
    """Return how many µs a number of seconds, or a timedelta, has.

    Raises:
        InvalidRequest: It is neither, or not finite.
    """
    if isinstance(seconds, timedelta):
        return seconds // _MICROSECOND
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        kind = type(seconds).__name__
        raise InvalidRequest(f"{what} is a number of seconds or a timedelta, not {kind}")
    try:
        return round(seconds * 1e6)
    except (OverflowError, ValueError):
        raise InvalidRequest(f"{what} of {seconds} s: that is no time") from None


def check_message(message: Outgoing) -> None:
    """Check what a message has besides its body.

    Raises:
        InvalidRequest: Naming the field.
    """
    for name in ("key", "ordering_key", "tag", "content_type"):
        _check_text(name, getattr(message, name), MAX_TEXT_BYTES)
    _check_text("id", message.application_id, MAX_ID_BYTES)
    headers: object = message.headers
    if not isinstance(headers, Mapping):
        raise InvalidRequest(f"headers map str to str; a {type(headers).__name__} does not")
    pairs: ItemsView[object, object] = message.headers.items()
    for key, value in pairs:
        if not isinstance(key, str) or not isinstance(value, str):
            raise InvalidRequest(f"headers map str to str; {key!r} does not")
        _check_text("a header's name", key, MAX_TEXT_BYTES)
        _check_text(f"header {key!r}", value, 16 * MAX_TEXT_BYTES)


def _check_text(name: str, text: object, most: int) -> None:
    if type(text) is not str:
        raise InvalidRequest(f"{name} is a str, not {type(text).__name__}")
    if len(text) * 4 <= most and text.isascii():
        return
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise InvalidRequest(f"{name} cannot be written as UTF-8: {error}") from error
    if size > most:
        raise InvalidRequest(f"{name} has {size} bytes, at most {most} are allowed")
