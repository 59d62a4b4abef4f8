"""Checks of arguments before anything is sent, each with its own error."""

from __future__ import annotations

import enum
from collections.abc import ItemsView, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from operator import index
from typing import Final, Protocol, SupportsIndex, TypeVar, cast

from ternmq.model.errors import InvalidRequest, MessageTooLarge, hinted
from ternmq.model.specs import (
    LONGEST_US,
    MAX_LEASE_US,
    MAX_LEVELS,
    check_name,
    check_query_id,
    check_tag,
)
from ternmq.model.words import article

LARGEST_BODY: Final = 16 * 1024 * 1024
"""Bytes; the highest value of the broker's setting `body`."""
MAX_ID_BYTES: Final = 128
MAX_TEXT_BYTES: Final = 4096
MAX_HEADER_BYTES: Final = 16 * MAX_TEXT_BYTES
MAX_PROPERTIES_BYTES: Final = 768 * 1024
"""Per message, in total: a frame has room for the largest body and 1 MiB more."""
LEAST_LEASE_US: Final = 100_000
"""With less, a client cannot extend in time: messages are delivered again while being handled."""
_MOST_IN_FLIGHT: Final = 60_000
_MICROSECOND: Final = timedelta(microseconds=1)
_DAY: Final = 86_400.0
_PAST_WHOLE: Final = 1 << 64
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def check_topic(name: object) -> str:
    """Return the name of a topic.

    Raises:
        InvalidName: It is not a valid name.
    """
    return check_name(name, "a topic's name")


E = TypeVar("E", bound=enum.Enum)


def choose(what: str, kind: type[E], value: E | str, known: Iterable[E] | None = None) -> E:
    """Return the member of an enum that a value names.

    ``known``: those that the text of the error lists; None: all.

    Raises:
        InvalidRequest: There is none; the text lists them.
    """
    try:
        return kind(value)
    except ValueError as error:
        listed = ", ".join([str(one.value) for one in (kind if known is None else known)])
        given: object = value
        told = f"{given!r:.80}" if isinstance(given, str) else f"of type {type(given).__name__}"
        raise InvalidRequest(f"{what} {told}: it is one of {listed}") from error


def whole(what: str, number: object) -> int:
    """Return a whole number.

    Raises:
        InvalidRequest: It is not one, or is 2**64 or more, up or down; the text names the argument.
    """
    value = _index_of(what, number)
    if not -_PAST_WHOLE < value < _PAST_WHOLE:  # not shown: it may have more digits than print
        raise InvalidRequest(f"{what} is a whole number of at most 64 bits; this one has more")
    return value


def priority_of(priority: object) -> int:
    """Return the priority of a message.

    Raises:
        InvalidRequest: It is not a whole number from 0 to 7: no topic has more levels.
    """
    value = whole("priority", priority)
    if not 0 <= value < MAX_LEVELS:
        raise InvalidRequest(f"priority is a whole number from 0 to {MAX_LEVELS - 1}, not {value}")
    return value


def unsigned(what: str, number: object) -> int:
    """Return a whole number of 64 bits without a sign.

    Raises:
        InvalidRequest: It is not one; the text names the argument.
    """
    value = _index_of(what, number)
    if not 0 <= value < _PAST_WHOLE:
        shown = value if -_PAST_WHOLE < value <= _PAST_WHOLE else "one of more than 64 bits"
        raise InvalidRequest(f"{what} is a whole number from 0 to 2**64 - 1, not {shown}")
    return value


def _index_of(what: str, number: object) -> int:
    if isinstance(number, bool) or not hasattr(type(number), "__index__"):
        raise InvalidRequest(f"{what} is a whole number, not {type(number).__name__}")
    return index(cast("SupportsIndex", number))


def real(what: str, number: object) -> float:
    """Return a number.

    Raises:
        InvalidRequest: It is not one; the text names the argument.
    """
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise InvalidRequest(f"{what} is a number, not {type(number).__name__}")
    _check_float(what, number)
    return number


def _check_float(what: str, number: float) -> None:
    """Refuse whole numbers that no float can represent, which arithmetic would fail on.

    Raises:
        InvalidRequest: It is such a number; the text names the argument.
    """
    try:
        float(number)
    except OverflowError:
        raise InvalidRequest(f"{what} is out of range: it has more than 308 digits") from None


def flag(what: str, value: object) -> bool:
    """Return True or False.

    Raises:
        InvalidRequest: It is neither; the text names the argument.
    """
    if not isinstance(value, bool):
        raise InvalidRequest(f"{what} is True or False, not {type(value).__name__}")
    return value


def text(what: str, value: object) -> str:
    """Return a text that can be sent.

    Raises:
        InvalidRequest: It is not one; the text names the argument.
    """
    if not isinstance(value, str):
        raise InvalidRequest(f"{what} is a str, not {type(value).__name__}")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequest(f"{what} cannot be written as UTF-8: {error}") from error
    return value


def query_text(value: object) -> str:
    """Return a query id of a transaction.

    Raises:
        InvalidRequest: It is no text, is longer than 255 bytes, or has control characters.
    """
    return check_query_id(text("query_id", value))


def check_id(what: str, id_: object) -> str:
    """Return an id of a message: the broker's, or an application's own.

    Raises:
        InvalidRequest: It is no text, or is empty or longer than any id.
    """
    given = text(what, id_)
    if not given:
        raise InvalidRequest(f"{what} is empty: give the id of a message")
    check_size(what, len(given.encode()), MAX_ID_BYTES)
    return given


def wholes(what: str, numbers: object) -> list[int]:
    """Return several whole numbers.

    Raises:
        InvalidRequest: They are not; the text names the argument.
    """
    if not isinstance(numbers, Iterable) or isinstance(numbers, str | bytes):
        raise InvalidRequest(
            f"{what} are whole numbers, such as [3, 5], not {type(numbers).__name__}"
        )
    return [whole(what, number) for number in numbers]


def check_positive(what: str, number: int) -> None:
    """Refuse numbers below 1.

    Raises:
        InvalidRequest: It is below 1; the text names the argument.
    """
    if whole(what, number) < 1:
        raise InvalidRequest(f"{what} must be 1 or more, not {number}")


def check_in_flight(number: object) -> None:
    """Check the most messages that a consumer holds unsettled.

    Raises:
        InvalidRequest: It is not a number that a consumer can have.
    """
    if not 1 <= whole("max_in_flight", number) <= _MOST_IN_FLIGHT:
        raise InvalidRequest(f"max_in_flight must be 1 to {_MOST_IN_FLIGHT}, not {number}")


def seconds_of(what: str, seconds: object) -> float:
    """Return a number of seconds, or the seconds of a timedelta; infinity is allowed.

    Raises:
        InvalidRequest: It is neither, below 0, or NaN.
    """
    number = _number_of_seconds(what, seconds)
    if not number >= 0:  # NaN is not
        raise InvalidRequest(f"{what} must be 0 seconds or more, not {number}")
    return number


def _number_of_seconds(what: str, seconds: object) -> float:
    """Return a number of seconds, or the seconds of a timedelta, of any size.

    Raises:
        InvalidRequest: It is neither.
    """
    if isinstance(seconds, timedelta):
        seconds = seconds.total_seconds()
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        kind = type(seconds).__name__
        raise InvalidRequest(f"{what} is a number of seconds or a timedelta, not {kind}")
    _check_float(what, seconds)
    return seconds


def drain_of(seconds: object) -> float:
    """Return how long a stopping client waits for running handlers: seconds, and finite.

    Raises:
        InvalidRequest: It is not such a time.
    """
    drain = _number_of_seconds("drain_timeout", seconds)
    if not 0 <= drain < float("inf"):
        raise InvalidRequest(f"drain_timeout must be 0 seconds or more, and finite, not {drain:g}")
    return drain


def length_of(what: str, seconds: object) -> float:
    """Return the seconds of a duration: more than 0, and finite.

    Raises:
        InvalidRequest: It is not such a time.
    """
    length = timeout_of(what, seconds)
    if length == float("inf"):
        raise InvalidRequest(f"{what} must be more than 0 seconds, and finite, not {length:g}")
    return length


def timeout_of(what: str, seconds: object) -> float:
    """Return the seconds of a timeout: more than 0; infinity is allowed.

    Raises:
        InvalidRequest: It is not such a time.
    """
    if isinstance(seconds, int | float | timedelta) and not isinstance(seconds, bool):
        try:
            length = seconds.total_seconds() if isinstance(seconds, timedelta) else float(seconds)
        except OverflowError:
            return seconds_of(what, seconds)  # which refuses it
        if length > 0:
            return length
        raise InvalidRequest(f"{what} must be more than 0 seconds, not {length:g}")
    return seconds_of(what, seconds)


def wait_of(what: str, seconds: object) -> float:
    """Return the seconds for which the broker is to wait: 0 to a day.

    Raises:
        InvalidRequest: It is not a time, or more than a day.
    """
    wait = _number_of_seconds(what, seconds)
    if not 0 <= wait <= _DAY:
        raise InvalidRequest(f"{what} must be 0 seconds to a day, not {wait:.12g} s")
    return wait


def time_us(what: str, time: object) -> int:
    """Return a datetime in µs since the epoch; 0 for an earlier one, when nothing was stored.

    Raises:
        InvalidRequest: It is not a datetime, or has no time zone.
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
    return max(0, (time - _EPOCH) // _MICROSECOND)


def span_us(since: datetime | None, until: datetime | None) -> tuple[int, int]:
    """Return the times between ``since``, included, and ``until`` in µs; None: without a bound.

    Raises:
        InvalidRequest: One is not a datetime or has no time zone, or nothing is between them.
    """
    since_us = 0 if since is None else time_us("since", since)
    until_us = 2**63 - 1 if until is None else time_us("until", until)
    if since is not None and until is not None and since >= until:
        raise InvalidRequest(f"since ({since}) must be before until ({until})")
    return since_us, until_us


def length_us(what: str, seconds: object) -> int:
    """Return the µs of a duration: more than 0, and at most a hundred years.

    Raises:
        InvalidRequest: It is not such a time.
    """
    if isinstance(seconds, timedelta):
        seconds = seconds.total_seconds()
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        return seconds_us(what, seconds)  # which refuses it
    _check_float(what, seconds)
    if not 0 < seconds * 1e6 <= LONGEST_US:
        raise InvalidRequest(
            f"{what} must be more than 0 seconds and at most a hundred years, not {seconds:g} s"
        )
    return round(seconds * 1e6)


def seconds_us(what: str, seconds: object) -> int:
    """Return the µs of a number of seconds, or of a timedelta.

    Raises:
        InvalidRequest: It is neither, below 0, or more than a hundred years.
    """
    number = _number_of_seconds(what, seconds)
    if not 0 <= number * 1e6 <= LONGEST_US:
        raise InvalidRequest(f"{what} must be 0 seconds to a hundred years, not {number:.12g} s")
    return round(number * 1e6)


def limit_us(what: str, seconds: object) -> int:
    """Return the µs of a limit of which 0 means none; raises as ``seconds_us``.

    Raises:
        InvalidRequest: It is not 0, and so short that it would become 0.
    """
    limit = seconds_us(what, seconds)
    if not limit and seconds:
        raise InvalidRequest(f"{what} must be 1 µs or more; or 0, which means no limit")
    return limit


def lease_us_of(lease: object) -> int:
    """Return the µs of a group's lease.

    Groups that got a shorter one from an earlier version, or from another client, keep it.

    Raises:
        InvalidRequest: It is not in the allowed range.
    """
    seconds = _number_of_seconds("lease", lease)
    if not LEAST_LEASE_US <= seconds * 1e6 <= MAX_LEASE_US:
        raise InvalidRequest(
            f"lease must be {LEAST_LEASE_US / 1e6:g} s to a day, not {seconds:.12g} s: it "
            f"ends if a consumer stops responding, and does not limit how long a handler may take"
        )
    return round(seconds * 1e6)


class Properties(Protocol):
    """The fields of a message besides its body. Applications may have given wrong types."""

    application_id: str
    key: str
    ordering_key: str
    tag: str
    content_type: str
    headers: Mapping[str, str]


def check_message(message: Properties) -> int:
    """Check all fields of a message but its body; return their size in bytes.

    Raises:
        InvalidRequest: A field is not valid; the text names it.
    """
    size = _check_text("id", message.application_id, MAX_ID_BYTES)
    for name in ("key", "ordering_key", "tag", "content_type"):
        size += _check_text(name, getattr(message, name), MAX_TEXT_BYTES)
    if message.tag:
        check_tag(message.tag)
    headers: object = message.headers
    if not isinstance(headers, Mapping):
        raise InvalidRequest(
            f"headers must map str to str, and are {article(type(headers).__name__)}"
        )
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
    """Check the size of a message without its body.

    Raises:
        InvalidRequest: It is more than a message may have.
    """
    if size > MAX_PROPERTIES_BYTES:
        raise InvalidRequest(
            f"headers, key and other properties have {size} bytes, at most {MAX_PROPERTIES_BYTES} "
            f"are "
            "allowed for a message"
        )


def check_body(size: int, most: int) -> None:
    """Check the size of a body.

    Raises:
        MessageTooLarge: It is more than the broker accepts.
    """
    if size <= most:
        return
    if most < LARGEST_BODY:
        raise MessageTooLarge(f"the body has {size} bytes; the broker accepts {most}")
    raise hinted(
        MessageTooLarge(f"the body has {size} bytes; no broker accepts more than {most}"),
        "make it smaller, or store it elsewhere and send its location",
    )


def check_size(name: str, size: int, most: int) -> None:
    """Check the size of a text as UTF-8.

    Raises:
        InvalidRequest: It is more than ``most``; the error names the text.
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
