"""Pydantic models as bodies: the field names they are written with, and unions of them.

Pydantic is not imported here: an application that has models has imported it.
"""

from __future__ import annotations

import dataclasses
import functools
import sys
import typing
from collections.abc import Callable, Iterator
from typing import Any, Final

NO_UNION: Final = (
    "{told}; make all its members pydantic models, or msgspec.Structs with a tag "
    "(`class Cat(msgspec.Struct, tag=True)`), or take one class that has a field for each"
)


class UnionDecoder:
    """Decodes a type that contains a union of pydantic models, discriminated or not.

    Args:
        kind: The type, which msgspec does not support.
        refusal: The error of msgspec.
        before: Makes of the bytes the value to validate; None: they are JSON.

    Raises:
        TypeError: Pydantic cannot decode it either: it has no models, or other members as well.
    """

    def __init__(
        self, kind: Any, refusal: TypeError, before: Callable[[bytes], object] | None
    ) -> None:
        told = str(refusal)
        if "union" not in told:
            raise refusal
        if not any(_is_model(one) for one in _parts(kind, set())):
            raise TypeError(NO_UNION.format(told=told)) from refusal
        try:
            self._adapter = sys.modules["pydantic"].TypeAdapter(kind)
        except Exception as error:
            # Types of the user are inspected here: pydantic's errors have no common root.
            raise TypeError(NO_UNION.format(told=told)) from error
        self._before = before

    def decode(self, body: bytes) -> object:
        """Return the value; raises pydantic's ValidationError, or what ``before`` raises."""
        value: object
        if self._before is None:
            value = self._adapter.validate_json(body)
        else:
            value = self.validate(self._before(body))
        return value

    def validate(self, given: object) -> object:
        """Return the value made from an already decoded one; raises as ``decode``."""
        value: object = self._adapter.validate_python(given)
        return value


def dumped_with(model: object) -> dict[str, bool]:
    """Return the arguments for dumping a model so that the same class can read the result.

    There are none for a model that configures its own names (``serialize_by_alias``), and for one
    whose class reads neither form.
    """
    kind: Any = type(model)
    return _dumped_with(kind)


@functools.lru_cache(maxsize=1024)
def _dumped_with(kind: Any) -> dict[str, bool]:
    models = [one for one in _parts(kind, set()) if _is_model(one)]
    if any("serialize_by_alias" in getattr(one, "model_config", {}) for one in models):
        return {}
    if all(_goes_back(one, by_alias=False) for one in models):
        return {}
    if all(_goes_back(one, by_alias=True) for one in models):
        return {"by_alias": True}
    return {}


def _goes_back(model: Any, *, by_alias: bool) -> bool:
    """Return whether a model reads each of its fields by the name it writes."""
    config = getattr(model, "model_config", {})
    named = config.get("populate_by_name") or config.get("validate_by_name")
    aliased = config.get("validate_by_alias", True)
    for name, field in getattr(model, "model_fields", {}).items():
        read = {name} if named or field.validation_alias is None else set()
        if aliased and field.validation_alias is not None:
            choices = getattr(field.validation_alias, "choices", [field.validation_alias])
            read.update(one for one in choices if isinstance(one, str))
        if ((by_alias and field.serialization_alias) or name) not in read:
            return False
    return True


def _is_model(kind: object) -> bool:
    return isinstance(kind, type) and hasattr(kind, "model_validate")


def _parts(kind: Any, seen: set[int]) -> Iterator[Any]:
    """Yield a type and all types it contains, as far as they can be found."""
    kind = getattr(kind, "__value__", kind) if type(kind).__name__ == "TypeAliasType" else kind
    if id(kind) in seen:
        return
    seen.add(id(kind))
    yield kind
    inner: list[Any] = list(typing.get_args(kind))
    if _is_model(kind):
        inner += [field.annotation for field in getattr(kind, "model_fields", {}).values()]
    elif isinstance(kind, type) and (
        dataclasses.is_dataclass(kind) or typing.is_typeddict(kind) or hasattr(kind, "_fields")
    ):
        inner += typing.get_type_hints(kind, include_extras=True).values()
    for one in inner:
        yield from _parts(one, seen)
