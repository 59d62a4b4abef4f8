"""Control requests as bytes, after a check of the fields that callers gave."""

from __future__ import annotations

import typing
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from ternmq.client.content.validation import text
from ternmq.model.errors import InvalidRequest
from ternmq.wire import control

_GIVEN_AS: Final[Mapping[str, str]] = {"ids": "prepared or ids", "application_id": "id"}
"""Fields whose arguments have other names."""
_KINDS: Final = ((bool, "True or False"), (int, "a whole number"), (float, "a number"),
                 (str, "a str"), (list, "a list"))  # fmt: skip


def encoded(request: msgspec.Struct) -> bytes:
    """Return the body of a request that the broker can read.

    Raises:
        InvalidRequest: A field has a value of the wrong type, or out of its bounds; the text names
            the argument.
    """
    try:
        body = control.encode(request)
        control.decode(body, type(request))
    except (TypeError, InvalidRequest) as error:
        found = _wrong(request)
        if found is None:
            raise InvalidRequest(f"this {type(request).__name__} cannot be sent: {error}") from None
        raise InvalidRequest(found) from None
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
        given = _GIVEN_AS.get(name, name.removesuffix("_us"))
        for one in value if isinstance(value, list | tuple) else (value,):
            if isinstance(one, str):
                try:
                    text(given, one)
                except InvalidRequest as error:
                    return str(error.args[0])
        try:
            msgspec.convert(msgspec.to_builtins(value), hint)
        except msgspec.ValidationError as error:
            told = str(error).partition(" - at ")[0]
            return f"{given} is {_spoken(hint)}, not {_shown(value)} ({told})"
        except (TypeError, ValueError, OverflowError):
            return f"{given} is {_spoken(hint)}, not {_shown(value)}"
    return None


def _spoken(hint: Any) -> str:
    parts = _parts(hint)
    return next((told for kind, told in _KINDS if kind in parts), "of another type")


def _parts(hint: Any) -> set[Any]:
    """Return the plain types that a hint allows."""
    origin = typing.get_origin(hint)
    if origin is None:
        return {hint}
    if origin is list:
        return {list}
    found = {one for part in typing.get_args(hint) for one in _parts(part) if isinstance(one, type)}
    return found - {type(None)}


def _shown(value: object) -> str:
    """Return a value for an error text: a small one itself, else its type."""
    if isinstance(value, str | int | float | bool | None):
        return f"{value!r}"[:80]
    if isinstance(value, list) and value:
        kinds = dict.fromkeys(type(one).__name__ for one in value)
        return f"one of {', '.join(kinds)}"
    return type(value).__name__
