"""Control requests as bytes, after a check of the fields that callers gave."""

from __future__ import annotations

import enum
import re
import typing
from collections.abc import Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

import msgspec

from ternmq.client.content.validation import text
from ternmq.model.errors import InvalidRequest
from ternmq.wire import control

_GIVEN_AS: Final[Mapping[tuple[type[msgspec.Struct], str], str]] = {
    (control.TransactionCommit, "ids"): "prepared",
    (control.Find, "application_id"): "id",
}
"""Fields whose arguments have other names."""
_KINDS: Final = ((bool, "True or False"), (int, "a whole number"), (float, "a number"),
                 (str, "a str"), (list, "a list"))  # fmt: skip
_TEXTS_IN_JSON: Final = (bytes, bytearray, datetime, date, time, timedelta, Decimal, UUID)
"""Types that would be sent as texts, and taken for ones."""
_SHOWN_BITS: Final = 64
"""Longer numbers are not shown: Python does not print those of more than 4,300 digits."""


def encoded(request: msgspec.Struct) -> bytes:
    """Return the body of a request that the broker can read.

    Raises:
        InvalidRequest: A field has a value of the wrong type, or out of its bounds; the text names
            the argument.
    """
    try:
        body = control.encode(request)
        changed = control.decode(body, type(request)) != request
    except (TypeError, InvalidRequest) as error:
        found = _wrong(request)
        if found is None:
            raise InvalidRequest(f"this {type(request).__name__} cannot be sent: {error}") from None
        raise InvalidRequest(found) from None
    if changed:  # also where a tuple becomes a list, which is nothing wrong
        found = _wrong(request)
        if found is not None:
            raise InvalidRequest(found)
    return body


def _wrong(request: msgspec.Struct) -> str | None:
    """Return a description of the first invalid field."""
    hints = typing.get_type_hints(type(request), include_extras=True)
    for name in request.__struct_fields__:
        value, hint = getattr(request, name), hints[name]
        if isinstance(value, msgspec.Struct):
            found = _wrong(value)
            if found is not None:
                return found
            continue
        if isinstance(value, enum.Enum) and not isinstance(value, _classes(hint)):
            return f"{name} is {_spoken(hint)}, not {_shown(value)}"
        given = _GIVEN_AS.get((type(request), name), name.removesuffix("_us"))
        entries = value if isinstance(value, list | tuple) else (value,)
        for one in entries:
            if isinstance(one, msgspec.Struct):
                found = _wrong(one)
                if found is not None:
                    return found
            if isinstance(one, str):
                try:
                    text(given, one)
                except InvalidRequest as error:
                    return str(error.args[0])
        try:
            msgspec.convert(msgspec.to_builtins(value, builtin_types=_TEXTS_IN_JSON), hint)
        except (TypeError, ValueError, OverflowError):  # msgspec's own error is a ValueError
            return (
                _outside(given, value, hint)
                or _entry(given, value, hint)
                or f"{given} is {_spoken(hint)}, not {_shown(value)}"
            )
    return None


def _outside(given: str, value: object, hint: Any) -> str | None:
    """Return which bound a value of the right type does not keep; None if that is not the cause."""
    if isinstance(value, list | tuple):
        found = (_outside(given, one, part) for part in _items(hint) for one in value)
        return next((told for told in found if told is not None), None)
    kinds = _parts(hint)
    if type(value) not in (kinds | {int} if float in kinds else kinds):
        return None
    for bound in _bounds(hint):
        if isinstance(value, int | float):
            if bound.ge is not None and value < bound.ge:
                return f"{given} must be {bound.ge} or more, not {_shown(value)}"
            if bound.le is not None and value > bound.le:
                return f"{given} must be at most {bound.le}, not {_shown(value)}"
        elif isinstance(value, str):
            most = bound.max_length
            if bound.min_length is not None and len(value) < bound.min_length:
                return f"{given} is empty"
            if most is not None and len(value) > most:
                return f"{given} has {len(value)} characters, at most {most} are allowed"
            if bound.pattern is not None and not re.search(bound.pattern, value):
                return f"{given} has characters that are not allowed: {value!r:.80}"
    return None


def _entry(given: str, value: object, hint: Any) -> str | None:
    """Return which entry of a list has a wrong type, or that there are too many; else None."""
    if not isinstance(value, list | tuple):
        return None
    kinds = {kind for part in _items(hint) for kind in _parts(part)}
    for one in value:
        if kinds and type(one) not in kinds:
            return f"an entry of {given} is {_spoken_of(kinds)}, not {_shown(one)}"
    most = next((one.max_length for one in _bounds_of_list(hint) if one.max_length), None)
    if most is not None and len(value) > most:
        return f"{given} has {len(value)} entries, at most {most} are allowed"
    return None


def _bounds_of_list(hint: Any) -> list[msgspec.Meta]:
    """Return the bounds of a list itself, which may be optional."""
    if typing.get_origin(hint) is list:
        return []
    inner = [one for part in typing.get_args(hint) for one in _bounds_of_list(part)]
    return [one for one in typing.get_args(hint) if isinstance(one, msgspec.Meta)] + inner


def _items(hint: Any) -> list[Any]:
    """Return the hints of the entries of a hint's lists."""
    if typing.get_origin(hint) is list:
        return list(typing.get_args(hint))
    return [one for part in typing.get_args(hint) for one in _items(part)]


def _bounds(hint: Any) -> list[msgspec.Meta]:
    """Return the bounds in a hint, those of entries of lists excepted."""
    if typing.get_origin(hint) is list:
        return []
    inner = [one for part in typing.get_args(hint) for one in _bounds(part)]
    return [one for one in typing.get_args(hint) if isinstance(one, msgspec.Meta)] + inner


def _spoken(hint: Any) -> str:
    if typing.get_origin(hint) is typing.Literal:
        return f"one of {', '.join(map(repr, typing.get_args(hint)))}"
    return _spoken_of(_parts(hint))


def _spoken_of(kinds: set[Any]) -> str:
    return next((told for kind, told in _KINDS if kind in kinds), "of another type")


def _parts(hint: Any) -> set[Any]:
    """Return the plain types that a hint allows."""
    origin = typing.get_origin(hint)
    if origin is None:
        return {hint}
    if origin is list:
        return {list}
    found = {one for part in typing.get_args(hint) for one in _parts(part) if isinstance(one, type)}
    return found - {type(None)}


def _classes(hint: Any) -> tuple[type, ...]:
    """Return the classes that a hint allows."""
    return tuple(part for part in _parts(hint) if isinstance(part, type))


def _shown(value: object) -> str:
    """Return a value for an error text: a small one itself, else its type."""
    if isinstance(value, int) and value.bit_length() > _SHOWN_BITS:
        return "a number of more than 64 bits"
    if isinstance(value, str | int | float | bool | None):
        return f"{value!r}"[:80]
    if isinstance(value, list) and value:
        kinds = dict.fromkeys(type(one).__name__ for one in value)
        return f"one of {', '.join(kinds)}"
    return type(value).__name__
