"""Defaults of decoded dataclasses, stored in the objects.

msgspec leaves a field of a dataclass that was not in the body to the class, which has the default
as an attribute. But when it encodes the object, it writes only what is stored in the object. So a
message that is decoded and sent on would lose these fields. The same holds for classes of attrs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple, Protocol

import msgspec
import msgspec.inspect


class Fields(NamedTuple):
    """The fields of a dataclass, or of a class of attrs."""

    names: tuple[str, ...]
    defaults: tuple[tuple[str, object], ...]
    """Names and defaults of those that an object may lack."""


Classes = Mapping[type, Fields]


class Decoder(Protocol):
    """Decodes bodies as values of one type."""

    def decode(self, body: bytes, /) -> Any:
        """Return the value; raises an error if the body has none."""


class CompletingDecoder:
    """Decodes a type that contains classes with defaults.

    Args:
        decoder: A decoder of msgspec.
        classes: What ``classes_in`` returns for the type.
    """

    def __init__(self, decoder: Decoder, classes: Classes) -> None:
        self._decoder = decoder
        self._classes = classes

    def decode(self, body: bytes) -> object:
        """Return the value; raises as the decoder does."""
        value: object = self._decoder.decode(body)
        _complete(value, self._classes)
        return value


def classes_in(kind: object) -> Classes:
    """Return the classes in a type; none if their objects have all their fields anyway."""
    found: dict[type, Fields] = {}
    for one in _classes(msgspec.inspect.type_info(kind), set()):
        class_: type = getattr(one.cls, "__origin__", one.cls)
        lacking = one.fields if class_.__dictoffset__ else ()  # slots have their defaults
        defaults = [
            (field.name, field.default)
            for field in lacking
            if field.default is not msgspec.NODEFAULT
        ]
        found[class_] = Fields(tuple(field.name for field in one.fields), tuple(defaults))
    return found if any(one.defaults for one in found.values()) else {}


def _classes(found: object, seen: set[int]) -> Iterator[msgspec.inspect.DataclassType]:
    """Yield the dataclasses, and the classes of attrs, in a type."""
    if id(found) in seen:
        return
    seen.add(id(found))
    if isinstance(found, msgspec.inspect.DataclassType):
        yield found
    if isinstance(found, tuple):
        for one in found:
            yield from _classes(one, seen)
    elif isinstance(found, msgspec.inspect.Type | msgspec.inspect.Field):
        for name in found.__struct_fields__:
            yield from _classes(getattr(found, name), seen)


_LEAVES: Final = frozenset({str, int, float, bool, type(None), bytes})


def _complete(value: object, classes: Classes) -> None:
    """Store missing fields in a value, and in the values in it."""
    class_ = value.__class__
    if class_ in _LEAVES:
        return
    parts: Iterable[object] = ()
    if class_ in classes:
        names, defaults = classes[class_]
        for name, default in defaults:
            value.__dict__.setdefault(name, default)  # also of a frozen dataclass
        parts = [getattr(value, name) for name in names]
    elif isinstance(value, dict):
        parts = value.values()
    elif isinstance(value, list | tuple | set | frozenset):
        parts = value
    elif isinstance(value, msgspec.Struct):
        parts = [getattr(value, name) for name in value.__struct_fields__]
    for one in parts:
        _complete(one, classes)
