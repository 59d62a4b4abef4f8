"""Values of options: numbers, sizes, durations, times, names, offsets as JSON.

Each function takes the name of the option, as the documents write it, and its text. For a text that
is not valid it raises an ``OptionError`` that names the option and a valid form.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Final

from ternmq.model.errors import InvalidName, OptionError
from ternmq.model.specs import check_name
from ternmq.spark.broker.offsets import EARLIEST, Progress, TopicQueue, VersionError, parted

_SIZE: Final = re.compile(r"(\d+)\s*([kmgt]?)i?b?\Z", re.IGNORECASE)
_SIZES: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|min|h|d)\Z")
_DURATIONS: Final = {
    "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000,
}  # fmt: skip
_TRUE: Final = frozenset({"true", "1", "yes", "on"})
_FALSE: Final = frozenset({"false", "0", "no", "off"})
_MS_US: Final = 1000
_LATEST_MS: Final = 253_402_300_799_999  # the year 9999


def wrong(name: str, text: str, wanted: str) -> OptionError:
    """Return the error for an option whose value is not valid."""
    shown = text if len(text) <= 200 else text[:200] + "..."
    return OptionError(f"option {name}={shown!r}: {wanted}")


def flag(name: str, text: str) -> bool:
    """Parse true or false."""
    low = text.strip().lower()
    if low in _TRUE:
        return True
    if low in _FALSE:
        return False
    raise wrong(name, text, "true or false is required")


def count(name: str, text: str, least: int = 1) -> int:
    """Parse an integer, ``least`` or more."""
    try:
        number = int(text.strip().replace("_", ""))
    except ValueError:
        number = least - 1
    if not least <= number < 2**63:
        raise wrong(name, text, f"a whole number from {least} on is required")
    return number


def size(name: str, text: str) -> int:
    """Parse a number of bytes: ``1000``, ``64k``, ``256m``, ``1g``."""
    found = _SIZE.match(text.strip())
    number = int(found[1]) * _SIZES[found[2].lower()] if found else 0
    if not 0 < number < 2**63:
        raise wrong(name, text, "a size such as 1000, 64k, 256m or 1g is required")
    return number


def duration_ms(name: str, text: str) -> int:
    """Parse a duration to milliseconds: ``500ms``, ``30s``, ``15m``, ``2h``."""
    found = _DURATION.match(text.strip().lower())
    if found is None:
        raise wrong(name, text, "a time such as 500ms, 30s, 15m or 2h is required")
    return int(float(found[1]) * _DURATIONS[found[2]])


def choice(name: str, text: str, among: Collection[str]) -> str:
    """Parse one of some words."""
    low = text.strip().lower()
    for word in among:
        if word.lower() == low:
            return word
    raise wrong(name, text, "one of " + ", ".join(among) + " is required")


def time_us(name: str, value: object) -> int:
    """Parse milliseconds since 1970, or an ISO 8601 time with zone, to microseconds since 1970."""
    text = str(value).strip()
    if text.isdecimal() and not isinstance(value, bool):
        number = int(text)
        if number > _LATEST_MS:
            raise wrong(name, text, "milliseconds since 1970 are required, this is after 9999")
        return number * _MS_US
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise wrong(
            name,
            text,
            "milliseconds since 1970, or a time such as 2026-11-21T10:00:00Z is required",
        ) from None
    if moment.tzinfo is None:
        raise wrong(name, text, "a time needs its zone, such as 2026-11-21T10:00:00Z")
    since = moment - datetime.fromisoformat("1970-01-01T00:00:00Z")
    us = (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
    if us < 0:
        raise wrong(name, text, "a time before 1970 makes no sense here")
    return us


def topics(name: str, text: str) -> tuple[str, ...]:
    """Parse names of topics, separated by commas."""
    found = [one.strip() for one in text.split(",")]
    for one in found:
        topic(name, one)
    if len(set(found)) != len(found):
        raise wrong(name, text, "a topic is named twice")
    return tuple(found)


def topic(name: str, text: str) -> str:
    """Check and return the name of a topic."""
    try:
        return check_name(text.strip())
    except InvalidName:
        raise wrong(
            name, text, f"{text.strip()!r} is no valid topic name: 1 to 127 of A-Z a-z 0-9 . _ -"
        ) from None


def group(name: str, text: str) -> str:
    """Check and return the name of a consumer group."""
    try:
        return check_name(text.strip())
    except InvalidName:
        raise wrong(
            name, text, f"{text.strip()!r} is no valid group name: 1 to 127 of A-Z a-z 0-9 . _ -"
        ) from None


def pattern(name: str, text: str) -> str:
    """Check and return a regular expression."""
    try:
        re.compile(text)
    except re.error as error:
        raise wrong(name, text, f"no regular expression: {error}") from None
    return text


def words(name: str, text: str, among: Collection[str]) -> tuple[str, ...]:
    """Parse words separated by commas; an empty text and ``none`` give no words."""
    found = [one.strip() for one in text.split(",") if one.strip()]
    if [one.lower() for one in found] == ["none"]:
        return ()
    for one in found:
        if one not in among:
            raise wrong(name, text, f"{one!r} is none of " + ", ".join(among))
    if len(set(found)) != len(found):
        raise wrong(name, text, "a word is given twice")
    return tuple(found)


def assigned(name: str, text: str) -> tuple[TopicQueue, ...]:
    """Parse queues: ``{"orders": [0, 1]}``."""
    found: list[TopicQueue] = []
    for one, numbers in _object(name, text).items():
        if not isinstance(numbers, list) or not numbers:
            raise wrong(name, text, f'numbers of queues are required: {{"{one}": [0, 1]}}')
        for number in numbers:
            found.append(TopicQueue(topic(name, one), _queue(name, text, number)))
    if not found:
        raise wrong(name, text, "at least one queue is required")
    if len(set(found)) != len(found):
        raise wrong(name, text, "a queue is named twice")
    return tuple(sorted(found))


def offsets(name: str, text: str) -> Progress:
    """Parse offsets: ``{"orders": {"0": 123, "1": -2}}``; -2 is earliest, -1 latest.

    The form in which Spark shows the offsets of a query is accepted as well.
    """
    try:
        told, numbers = parted(_object(name, text))
    except (VersionError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise wrong(name, text, f"no offsets of a query: {error}") from None
    found: dict[TopicQueue, int] = {}
    for place, value in _places(name, text, told):
        if isinstance(value, bool) or not isinstance(value, int):
            raise wrong(name, text, f"the offset of {place} is a number, not {value!r}")
        if value < EARLIEST or value >= 2**63:
            raise wrong(name, text, f"the offset of {place} is -2, -1, or 0 and more, not {value}")
        found[place] = value
    return Progress(found, numbers)


def times(name: str, text: str) -> Mapping[TopicQueue, int]:
    """Parse a time for each queue: ``{"orders": {"0": 1700000000000}}``, or as ISO 8601."""
    told = _object(name, text)
    return {place: time_us(name, value) for place, value in _places(name, text, told)}


def _places(name: str, text: str, told: Mapping[str, object]) -> list[tuple[TopicQueue, object]]:
    found: list[tuple[TopicQueue, object]] = []
    for one, queues in told.items():
        if not isinstance(queues, dict) or not queues:
            raise wrong(name, text, f'queues are required: {{"{one}": {{"0": ...}}}}')
        for number, value in queues.items():
            found.append((TopicQueue(topic(name, one), _queue(name, text, number)), value))
    if not found:
        raise wrong(name, text, "at least one queue is required")
    return sorted(found, key=lambda pair: pair[0])


def _object(name: str, text: str) -> dict[str, object]:
    try:
        found = json.loads(text, object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        raise wrong(name, text, f"no JSON: {error}") from None
    if not isinstance(found, dict):
        raise wrong(name, text, 'a JSON object is required: {"orders": ...}')
    return found


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name is given twice")
    return found


def _queue(name: str, text: str, number: object) -> int:
    if isinstance(number, bool) or not str(number).isdecimal() or int(str(number)) >= 2**32:
        raise wrong(name, text, f"the number of a queue is 0 or more, not {number!r}")
    return int(str(number))
