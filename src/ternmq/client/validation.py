"""What is checked before anything is sent, each with an error of its own."""

from __future__ import annotations

import enum
from collections.abc import ItemsView, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from operator import index
from typing import TYPE_CHECKING, Final, SupportsIndex, TypeVar, cast

from ternmq.model.errors import InvalidRequest, MessageTooLarge
from ternmq.model.specs import LONGEST_US, MAX_LEASE_US, check_name, check_tag
from ternmq.model.words import article

if TYPE_CHECKING:
    from ternmq.client.outgoing import Outgoing

LARGEST_BODY: Final = 16 * 1024 * 1024
"""Bytes; the broker's setting `body` has no higher value."""
MAX_ID_BYTES: Final = 128
MAX_TEXT_BYTES: Final = 4096
MAX_HEADER_BYTES: Final = 16 * MAX_TEXT_BYTES
MAX_PROPERTIES_BYTES: Final = 768 * 1024
"""Of one message, all in all: a frame has room for the largest body and 1 MiB more."""
LEAST_LEASE_US: Final = 100_000
"""Below it a client does not keep up extending: its messages come again while they are handled."""
_MICROSECOND: Final = timedelta(microseconds=1)
_DAY: Final = 86_400.0
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


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


def whole(what: str, number: object) -> int:
    """Return a whole number.

    Raises:
        InvalidRequest: It is none, naming what it is.
    """
    if isinstance(number, bool) or not hasattr(number, "__index__"):
        raise InvalidRequest(f"{what} is a whole number, not {type(number).__name__}")
    return index(cast("SupportsIndex", number))


def real(what: str, number: object) -> float:
    """Return a number.

    Raises:
        InvalidRequest: It is none, naming what it is.
    """
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise InvalidRequest(f"{what} is a number, not {type(number).__name__}")
    return number


def flag(what: str, value: object) -> bool:
    """Return True or False.

    Raises:
        InvalidRequest: It is neither, naming what it is.
    """
    if not isinstance(value, bool):
        raise InvalidRequest(f"{what} is True or False, not {type(value).__name__}")
    return value


def text(what: str, value: object) -> str:
    """Return a text.

    Raises:
        InvalidRequest: It is none, naming what it is.
    """
    if not isinstance(value, str):
        raise InvalidRequest(f"{what} is a str, not {type(value).__name__}")
    return value


def wholes(what: str, numbers: object) -> list[int]:
    """Return several whole numbers.

    Raises:
        InvalidRequest: They are none, naming what they are.
    """
    if not isinstance(numbers, Iterable) or isinstance(numbers, str | bytes):
        raise InvalidRequest(
            f"{what} are whole numbers, such as [3, 5], not {type(numbers).__name__}"
        )
    return [whole(what, number) for number in numbers]


def check_positive(what: str, number: int) -> None:
    """Refuse numbers below 1.

    Raises:
        InvalidRequest: Naming what it is.
    """
    if whole(what, number) < 1:
        raise InvalidRequest(f"{what} must be 1 or more, not {number}")


def seconds_of(what: str, seconds: object) -> float:
    """Return a number of seconds, or those of a timedelta; infinity is one.

    Raises:
        InvalidRequest: It is neither, below 0, or NaN.
    """
    if isinstance(seconds, timedelta):
        seconds = seconds.total_seconds()
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        kind = type(seconds).__name__
        raise InvalidRequest(f"{what} is a number of seconds or a timedelta, not {kind}")
    if not seconds >= 0:  # NaN is not
        raise InvalidRequest(f"{what} must be 0 seconds or more, not {seconds}")
    return seconds


def length_of(what: str, seconds: object) -> float:
    """Return how many seconds something may take: more than none, and an end.

    Raises:
        InvalidRequest: It is no such time.
    """
    length = seconds_of(what, seconds)
    if not 0 < length < float("inf"):
        raise InvalidRequest(f"{what} must be more than 0 seconds, and finite, not {length:g}")
    return length


def timeout_of(what: str, seconds: object) -> float:
    """Return for how many seconds an answer is waited for: more than none, or without end.

    Raises:
        InvalidRequest: It is no such time.
    """
    if isinstance(seconds, int | float | timedelta) and not isinstance(seconds, bool):
        length = seconds.total_seconds() if isinstance(seconds, timedelta) else float(seconds)
        if length > 0:
            return length
        raise InvalidRequest(f"{what} must be more than 0 seconds, not {length:g}")
    return seconds_of(what, seconds)


def wait_of(what: str, seconds: object) -> float:
    """Return for how many seconds the broker is to wait.

    Raises:
        InvalidRequest: It is no time, or more than a day.
    """
    wait = seconds_of(what, seconds)
    if wait > _DAY:
        raise InvalidRequest(f"{what} must be at most a day, not {wait} s")
    return wait


def time_us(what: str, time: object) -> int:
    """Return a datetime in µs since the epoch.

    Raises:
        InvalidRequest: It is none, or does not say which time zone it is of.
    """
    if not isinstance(time, datetime):
        raise InvalidRequest(
            f"{what} is a datetime with a time zone, such as datetime.now(UTC), "
            f"not {type(time).__name__}"
        )
    if time.utcoffset() is None:
        raise InvalidRequest(
            f"{what} names no time zone ({time}): use datetime.now(UTC) or .astimezone()"
        )
    return (time - _EPOCH) // _MICROSECOND


def seconds_us(what: str, seconds: object) -> int:
    """Return how many µs a number of seconds, or a timedelta, has.

    Raises:
        InvalidRequest: It is neither, below 0, or more than a hundred years.
    """
    number = seconds_of(what, seconds)
    if not number * 1e6 <= LONGEST_US:
        raise InvalidRequest(f"{what} must be at most a hundred years, not {number} s")
    return round(number * 1e6)


def lease_us_of(lease: object) -> int:
    """Return for how many µs a group is to lease messages.

    Groups that were given less by an earlier version, or by another client, keep it.

    Raises:
        InvalidRequest: It is no such time.
    """
    lease_us = seconds_us("lease", lease)
    if not LEAST_LEASE_US <= lease_us <= MAX_LEASE_US:
        raise InvalidRequest(
            f"lease must be {LEAST_LEASE_US / 1e6:g} s to a day, not {lease_us / 1e6:g} s: it is "
            "how long a consumer that says nothing keeps a message, not how long a handler may take"
        )
    return lease_us


def check_message(message: Outgoing) -> int:
    """Check what a message has besides its body; return how many bytes that is.

    Raises:
        InvalidRequest: Naming the field.
    """
    size = _check_text("id", message.application_id, MAX_ID_BYTES)
    for name in ("key", "ordering_key", "tag", "content_type"):
        size += _check_text(name, getattr(message, name), MAX_TEXT_BYTES)
    if message.tag:
        check_tag(message.tag)
    headers: object = message.headers
    if not isinstance(headers, Mapping):
        raise InvalidRequest(f"headers map str to str; {article(type(headers).__name__)} does not")
    pairs: ItemsView[object, object] = message.headers.items()
    for key, value in pairs:
        if not isinstance(key, str):
            raise InvalidRequest(
                f"headers map str to str; the name {key!r} is of type {type(key).__name__}: "
                f"write str({key!r})"
            )
        if not isinstance(value, str):
            raise InvalidRequest(
                f"headers map str to str; the value of {key!r} is of type "
                f"{type(value).__name__}: write str(...)"
            )
        size += _check_text("a header's name", key, MAX_TEXT_BYTES)
        size += _check_text(f"header {key!r}", value, MAX_HEADER_BYTES)
    check_properties(size)
    return size


def check_properties(size: int) -> None:
    """Refuse a message that has so many bytes besides its body.

    Raises:
        InvalidRequest: They are more than it may have.
    """
    if size > MAX_PROPERTIES_BYTES:
        raise InvalidRequest(
            f"headers, key and the like have {size} bytes, at most {MAX_PROPERTIES_BYTES} are "
            "allowed for a message"
        )


def check_body(size: int, most: int) -> None:
    """Refuse a body of so many bytes.

    Raises:
        MessageTooLarge: They are more than the broker takes.
    """
    if size <= most:
        return
    if most < LARGEST_BODY:
        raise MessageTooLarge(f"a body of {size} bytes; the broker takes {most}")
    error = MessageTooLarge(f"a body of {size} bytes; no broker takes more than {most}")
    error.hint = "send less, or store it elsewhere and send where it is"
    raise error


def check_size(name: str, size: int, most: int) -> None:
    """Refuse a text of so many bytes as UTF-8.

    Raises:
        InvalidRequest: Naming it.
    """
    if size > most:
        raise InvalidRequest(f"{name} has {size} bytes, at most {most} are allowed")


def _check_text(name: str, text: object, most: int) -> int:
    """Check a text; return its length as UTF-8."""
    if type(text) is not str:
        raise InvalidRequest(f"{name} is a str, not {type(text).__name__}")
    if len(text) * 4 <= most and text.isascii():
        return len(text)
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise InvalidRequest(f"{name} cannot be written as UTF-8: {error}") from error
    check_size(name, size, most)
    return size
