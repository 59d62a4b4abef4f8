"""Values on the command line: durations, sizes, times, names, properties."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from math import isfinite
from typing import Any, Final

import click

from ternmq.model.errors import InvalidName
from ternmq.model.printing import quoted
from ternmq.model.specs import check_group, check_name
from ternmq.model.units import Address, read_address, read_duration, read_size

_CLOCK: Final = re.compile(r"([0-9]{1,2}):([0-9]{2})(?::([0-9]{2}))?\Z")
_TIMES: Final = "14:30, 2026-01-31, 2026-01-31T14:30 or ...T14:30Z"
_FORM: Final = f"a time such as 10m (ago), {_TIMES}"
_FORM_AHEAD: Final = f"a time such as 10m (from now), {_TIMES}"
_MOST_SHOWN: Final = 200
"""Most characters of a value that an error shows."""


class _Type(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.3 only
    """A type of values, parsed by a function that raises ValueError with the reason."""

    def __init__(self, name: str, read: Callable[[str], Any]) -> None:
        self.name = name
        self._read = read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the value of a text."""
        if not isinstance(value, str):
            return value
        try:
            return self._read(value)
        except ValueError as error:
            self.fail(f"{quoted(value, _MOST_SHOWN)} {error}", param, ctx)


class Whole(click.IntRange):
    """A whole number, called so in errors; click says "integer range"."""

    name = "whole number"

    def get_metavar(self, param: click.Parameter, *_context: object, **_named: object) -> Any:
        """Return its name in help texts of options; an argument is shown by its own name."""
        return None if isinstance(param, click.Argument) else "NUMBER"


class Real(click.FloatRange):
    """A finite number within bounds: ``FloatRange`` takes ``inf``, and ``nan`` within any."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number of a text."""
        number = super().convert(value, param, ctx)
        if not isfinite(number):
            self.fail(f"{value!r} is not a finite number", param, ctx)
        return number


def _duration(text: str) -> timedelta:
    try:
        return timedelta(microseconds=read_duration(text))
    except OverflowError as error:
        raise ValueError("is longer than any supported time") from error


def _positive_duration(text: str) -> timedelta:
    found = _duration(text)
    if not found:
        raise ValueError("must be more than 0")
    return found


def read_when(text: str, now: float | None = None) -> datetime:
    """Parse a time; a duration means that long ago, a time without zone is local.

    Raises:
        ValueError: It is not a time.
    """
    stamp = time.time() if now is None else now
    try:
        found = _moment(text, stamp)
        if found is None:
            ago = timedelta(microseconds=read_duration(text.strip().removeprefix("-")))
            found = datetime.fromtimestamp(stamp, UTC) - ago
    except (ValueError, OverflowError) as error:
        raise ValueError(f"is not {_FORM}") from error
    return found


def read_ahead(text: str, now: float | None = None) -> datetime:
    """Parse a time that is usually in the future: a duration means that long from now.

    Raises:
        ValueError: It is not a time.
    """
    stamp = time.time() if now is None else now
    try:
        found = _moment(text, stamp)
        if found is None:
            ahead = timedelta(microseconds=read_duration(text))
            found = datetime.fromtimestamp(stamp, UTC) + ahead
    except (ValueError, OverflowError) as error:
        raise ValueError(f"is not {_FORM_AHEAD}") from error
    return found


def read_due(text: str, now: float | None = None) -> datetime:
    """Parse the time at which a message is due; it is no duration.

    Raises:
        ValueError: It is not a time, or it is a time of today that is past.
    """
    stamp = time.time() if now is None else now
    try:
        found = _moment(text, stamp)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"is not a time such as {_TIMES}") from error
    if found is None:
        if _is_duration(text):
            raise ValueError(f"is a duration: write --delay {text.strip()}")
        raise ValueError(f"is not a time such as {_TIMES}")
    if _CLOCK.match(text.strip()) and found.timestamp() < stamp:
        # The next day may be meant, or a moment ago.
        raise ValueError(f"is past today: give the date too, as in {found:%Y-%m-%dT%H:%M}")
    return found


def _moment(text: str, stamp: float) -> datetime | None:
    """Return the moment that a text names; None if it may be a duration.

    Raises:
        ValueError, OverflowError: It looks like a time, and is none.
    """
    text = text.strip()
    if text == "now":
        return datetime.fromtimestamp(stamp, UTC)
    clock = _CLOCK.match(text)
    if clock is not None:
        hour, minute, second = (int(part or 0) for part in clock.groups())
        # Without zone, so that the offset is that of this time, not of now.
        today = datetime.fromtimestamp(stamp)  # noqa: DTZ006
        return today.replace(hour=hour, minute=minute, second=second, microsecond=0).astimezone()
    if text[:4].isdigit() and "-" in text:
        return datetime.fromisoformat(text).astimezone()
    return None


def _is_duration(text: str) -> bool:
    try:
        read_duration(text)
    except (ValueError, OverflowError):
        return False
    return True


def read_property(text: str) -> tuple[str, str]:
    """Return name and value of ``name=value``.

    Raises:
        ValueError: It has another form.
    """
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ValueError("is not NAME=VALUE")
    return name, value


def _name(text: str) -> str:
    try:
        return check_name(text)
    except InvalidName as error:
        raise ValueError(f"cannot be a name: {error.hint}") from error


def _group(text: str) -> str:
    try:
        return check_group(text)
    except InvalidName as error:
        raise ValueError(f"cannot be the name of a group: {error.hint}") from error


def _http(text: str) -> Address | None:
    return None if text == "off" else read_address(text)


DURATION: Final = _Type("duration", _duration)
POSITIVE_DURATION: Final = _Type("duration", _positive_duration)
SIZE: Final = _Type("size", read_size)
WHEN: Final = _Type("time", read_when)
AHEAD: Final = _Type("time", read_ahead)
DUE: Final = _Type("time", read_due)


def check_span(since: datetime | None, until: datetime | None, *, ahead: bool = False) -> None:
    """Check that a span of time is not empty.

    Args:
        since: Its beginning, if given.
        until: Its end, if given.
        ahead: Whether a duration means that long from now, as for ``AHEAD``; otherwise, ago.

    Raises:
        click.UsageError: The first time is not before the second.
    """
    if since is not None and until is not None and since >= until:
        first, second = (f"{one.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}" for one in (since, until))
        durations = (
            "10m means 10 minutes from now, so --until takes the longer one: --since 10m --until 1h"
            if ahead
            else "10m means 10 minutes ago, so --since takes the longer one: --since 1h --until 10m"
        )
        raise click.UsageError(
            f"--since ({first}) is the start and must be before --until ({second}); {durations}",
            click.get_current_context(),
        )


def read_place(host: str) -> click.ParamType:  # type: ignore[type-arg]  # generic since click 8.3
    """Return the type of ``PORT`` or ``HOST:PORT``; the host of a port alone is ``host``."""
    return _Type(
        "address", lambda text: read_address(f"{host}:{text}" if text.isdecimal() else text)
    )


HTTP: Final = _Type("address", _http)
"""Where a command listens for HTTP; None: nowhere."""
PROPERTY: Final = _Type("name=value", read_property)
NAME: Final = _Type("name", _name)
GROUP: Final = _Type("name", _group)
"""An existing group, which may be a broadcast instance."""
COUNT: Final = Whole(min=1)
OFFSET: Final = Whole(min=0)
QUEUE: Final = Whole(min=0)


def given(**values: Any) -> dict[str, Any]:
    """Return the options that were given."""
    return {name: value for name, value in values.items() if value is not None}


def check_one(*given: bool, of: str) -> None:
    """Check that exactly one of several ways to name something was given.

    Args:
        given: For each, whether it was given.
        of: Their names, for the error.

    Raises:
        click.UsageError: None was given, or more than one.
    """
    count = sum(given)
    if count != 1:
        only = "only one" if count else "one"
        raise click.UsageError(f"give {only} of {of}", click.get_current_context())


def unchangeable(name: str, why: str, *, flag: bool = False) -> Callable[[Any], Any]:
    """Return a hidden option that only explains why a setting cannot be changed."""

    def refuse(context: click.Context, _: click.Parameter, value: Any) -> None:
        if value:
            raise click.UsageError(why, context)

    return click.option(
        name,
        is_flag=flag,
        hidden=True,
        expose_value=False,
        callback=refuse,
        help=f"{why[0].upper()}{why[1:]}.",
    )


def ranges_of(texts: Sequence[str]) -> list[int]:
    """Return the offsets of arguments such as ``7`` and ``10-12``, sorted.

    Raises:
        click.UsageError: One has another form.
    """
    found: set[int] = set()
    for text in texts:
        found.update(range_of(text))
    return sorted(found)


def range_of(text: str) -> range:
    """Return the offsets of ``7`` or ``10-12``.

    Raises:
        click.UsageError: It has another form.
    """
    low, dash, high = text.partition("-")
    if not low.isdecimal() or (dash and not high.isdecimal()):
        raise click.UsageError(
            f"{text!r} is neither an offset, such as 7, nor a range, such as 10-12"
        )
    first, last = int(low), int(high or low)
    if last < first:
        raise click.UsageError(f"{text!r} is an empty range: write the lower offset first")
    if last - first >= 1_000_000:
        raise click.UsageError(f"{text!r} names more than a million offsets")
    if last >= 2**63:
        raise click.UsageError(f"{text!r} is above the highest possible offset")
    return range(first, last + 1)
