"""A handler's signature: its parameters, and the value that each of them receives.

A handler takes the body, decoded according to its annotation, and the delivery if it wants it::

    async def on_order(order: Order) -> None: ...
    async def on_order(order: Order, delivery: ternmq.Delivery) -> None: ...
    async def on_order(delivery: ternmq.Delivery) -> None: ...
    def on_order(order: Order, delivery: ternmq.sync.Delivery) -> None: ...   # runs in a thread

All of it is decided once, where the handler is declared, so that a mistake is an error there, not
at the first message:

* A string annotation (``from __future__ import annotations``) is evaluated with the globals, the
  closure and the type parameters of the function. One that cannot be evaluated is refused.
* The delivery has the annotated type: ``ternmq.Delivery`` in an ``async def``, which awaits its
  methods, ``ternmq.sync.Delivery`` in a ``def``, where they block.
* A parameter annotated as ``Annotated[T, ternmq.Depends(provider)]``, or with a ``Depends`` as
  its default, receives the provider's result (``injection``), at any position.
* A second parameter with a default is not passed, unless it is annotated as a delivery. Further
  ones are never passed. Their annotations, and that of the result, are ignored.

The fields of a type are checked when the client runs and all modules are imported
(``Codecs.check``).
"""

from __future__ import annotations

import functools
import inspect
import types
import typing
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final

from ternmq.client.consumer.delivery import Delivery
from ternmq.client.handler.blocking import BlockingDelivery
from ternmq.client.handler.depends import Depends, depends_in
from ternmq.model.errors import InvalidHandler
from ternmq.model.words import article

Function = Callable[..., Any]
"""A handler, as it was written."""

_UNRESOLVED: Final = (
    "import or define the type where the module can see it at run time: not under `if "
    "TYPE_CHECKING`, not inside a function, above the handler"
)
_SPELLED: Final[dict[type, str]] = {
    Delivery: "ternmq.Delivery",
    BlockingDelivery: "ternmq.sync.Delivery",
}


@dataclass(slots=True, frozen=True)
class Signature:
    """How a handler is called.

    Attributes:
        name: Name of the function, for logs and errors.
        is_async: Whether it is awaited in the client's loop; else it runs in a thread.
        kind: Type that the body is decoded to; ``Any``: according to its content type.
        body: Whether it takes the body.
        delivery: Whether it takes the delivery, after the body.
        injected: The parameters that receive a provider's result, by name.
        named: Names of the parameters for body and delivery that follow an injected one, and are
            therefore passed by name.
    """

    name: str
    is_async: bool
    kind: Any
    body: bool
    delivery: bool
    injected: Mapping[str, Depends] = field(default_factory=dict)
    named: tuple[str, ...] = ()


def signature_of(function: Function) -> Signature:
    """Return how a handler is to be called.

    Raises:
        InvalidHandler: It cannot be called with a body, a delivery, or both; or an annotation
            cannot be resolved, or names the delivery of the other kind of function.
    """
    name = name_of(function)
    called = _called(function, name)
    is_async = inspect.iscoroutinefunction(called) or inspect.iscoroutinefunction(function)
    reader = Annotations(innermost(function), name)
    injected = injected_of(function, reader, name)
    given = _parameters(function, name, injected)
    behind = _behind_injected(function, name, injected)
    own = Delivery if is_async else BlockingDelivery
    kinds = [reader.read(one) for one in given[:2]]
    first, second = kinds[0], kinds[1] if len(kinds) > 1 else inspect.Parameter.empty
    needed = [one for one in given if one.default is one.empty]
    if names_delivery(first):
        check_delivery(name, given[0].name, first, own)
        if len(needed) > 1:
            raise InvalidHandler(
                f"handler {name}: the body comes before the delivery, and parameter "
                f"{needed[1].name!r} is neither"
            )
        named = tuple(one.name for one in given[:1] if one.name in behind)
        return Signature(
            name, is_async, None, body=False, delivery=True, injected=injected, named=named
        )
    if len(needed) > 2:
        raise InvalidHandler(
            f"handler {name} must take a body, a delivery, or both in this order; its parameter "
            f"{needed[2].name!r} gets no value"
        )
    delivery = names_delivery(second)
    if delivery:
        check_delivery(name, given[1].name, second, own)
    elif len(needed) == 2:
        if not any(second is one for one in (inspect.Parameter.empty, Any, object)):
            raise InvalidHandler(
                f"handler {name}: its second parameter is the delivery; {given[1].name!r} is "
                f"annotated as {_shown(second)}, not {_SPELLED[own]}"
            )
        delivery = True
    kind = Any if first is inspect.Parameter.empty else first
    named = tuple(one.name for one in given[: 1 + delivery] if one.name in behind)
    return Signature(
        name, is_async, kind, body=True, delivery=delivery, injected=injected, named=named
    )


def name_of(function: Function) -> str:
    """Return a handler's name for logs and errors."""
    while isinstance(function, functools.partial):
        function = function.func
    name = getattr(function, "__name__", None)
    return str(name) if name is not None else type(function).__name__


def place_of(function: Function) -> str:
    """Return where a handler is defined: ``shop.consumers.on_order (shop/consumers.py:12)``."""
    inner = innermost(function)
    module = getattr(inner, "__module__", None) or "?"
    name = getattr(inner, "__qualname__", None) or name_of(function)
    code = getattr(inner, "__code__", None)
    where = f" ({code.co_filename}:{code.co_firstlineno})" if code is not None else ""
    return f"{module}.{name}{where}"


def innermost(function: Function) -> Function:
    """Return the wrapped function that was written with ``def``, to which annotations belong."""
    seen: set[int] = set()
    while id(function) not in seen:
        seen.add(id(function))
        if isinstance(function, functools.partial):
            function = function.func
        elif inspect.ismethod(function):
            function = function.__func__
        elif hasattr(function, "__wrapped__"):
            function = function.__wrapped__
        elif not inspect.isroutine(function) and not isinstance(function, type):
            function = getattr(type(function), "__call__", function)  # noqa: B004
    return function


def _called(function: Function, name: str) -> Function:
    """Return the function that runs when a handler is called.

    Raises:
        InvalidHandler: Calling it would not handle a message.
    """
    if not callable(function):
        raise InvalidHandler(f"a handler is a function, not {article(type(function).__name__)}")
    called = function
    while isinstance(called, functools.partial):
        called = called.func
    if isinstance(called, type):
        raise InvalidHandler(
            f"{name} is a class: declare one of its instances, or a function, as the handler"
        )
    if not inspect.isroutine(called):
        called = getattr(called, "__call__", called)  # noqa: B004
    if inspect.isgeneratorfunction(called) or inspect.isasyncgenfunction(called):
        raise InvalidHandler(
            f"handler {name} contains a yield: a call would make a generator and not run it"
        )
    return called


def parameters_of(function: Function, name: str) -> list[inspect.Parameter]:
    """Return the parameters of a function.

    Raises:
        InvalidHandler: They cannot be determined.
    """
    try:
        return list(inspect.signature(function).parameters.values())
    except NameError as error:  # from 3.14 on, annotations are evaluated at access
        raise InvalidHandler(
            f"handler {name}: an annotation cannot be resolved: {error}; {_UNRESOLVED}"
        ) from error
    except (TypeError, ValueError) as error:
        raise InvalidHandler(f"handler {name}: its parameters cannot be read: {error}") from error


def injected_of(function: Function, reader: Annotations, name: str) -> dict[str, Depends]:
    """Return the parameters that receive a provider's result.

    Raises:
        InvalidHandler: An annotation cannot be resolved, or a parameter is by position only.
    """
    found: dict[str, Depends] = {}
    for one in parameters_of(function, name):
        depends = one.default if isinstance(one.default, Depends) else None
        if depends is None and one.default is one.empty and not _is_starred(one):
            depends = depends_in(reader.read(one))
        if depends is None:
            continue
        if one.kind not in {one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY}:
            raise InvalidHandler(
                f"handler {name}: parameter {one.name!r} is injected by its name, but is "
                f"positional-only"
            )
        found[one.name] = depends
    return found


def _behind_injected(function: Function, name: str, injected: Collection[str]) -> set[str]:
    """Return the names of the parameters from the first injected one on."""
    names = [one.name for one in parameters_of(function, name)]
    first = min((names.index(one) for one in injected), default=len(names))
    return set(names[first:])


def _is_starred(parameter: inspect.Parameter) -> bool:
    return parameter.kind in {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD}


def _parameters(
    function: Function, name: str, injected: Collection[str]
) -> list[inspect.Parameter]:
    """Return the parameters that are passed by position, at least one.

    Raises:
        InvalidHandler: They are not those of a handler.
    """
    found = [one for one in parameters_of(function, name) if one.name not in injected]
    for one in found:
        if one.kind is one.KEYWORD_ONLY and one.default is one.empty:
            raise InvalidHandler(
                f"handler {name}: its parameter {one.name!r} gets no value: it is keyword-only "
                f"and has no default"
            )
    given = [one for one in found if one.kind in {one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD}]
    if not given:
        any_number = any(one.kind is one.VAR_POSITIONAL for one in found)
        hint = "; a decorator keeps what it wraps by functools.wraps" if any_number else ""
        raise InvalidHandler(
            f"handler {name} must take a body, a delivery, or both in this order{hint}"
        )
    qualified = getattr(function, "__qualname__", "")
    of_class = "." in qualified and not qualified.rpartition(".")[0].endswith("<locals>")
    if of_class and inspect.isfunction(function) and given[0].name in {"self", "cls"}:
        raise InvalidHandler(
            f"handler {name} is a method without its object: declare the bound one, as in "
            f"client.handler(...)(service.{name})"
        )
    return given


class Annotations:
    """Evaluates the annotations of one function."""

    def __init__(self, function: Function, name: str) -> None:
        self._name = name
        self._globals: dict[str, Any] = getattr(function, "__globals__", {})
        self._locals: dict[str, Any] = {}
        code = getattr(function, "__code__", None)
        cells = getattr(function, "__closure__", None) or ()
        for variable, cell in zip(code.co_freevars if code is not None else (), cells, strict=True):
            try:
                self._locals[variable] = cell.cell_contents
            except ValueError:  # it is assigned later
                continue
        for parameter in getattr(function, "__type_params__", ()):
            self._locals[parameter.__name__] = parameter

    def read(self, parameter: inspect.Parameter) -> Any:
        """Return the value of a parameter's annotation; empty without one.

        Raises:
            InvalidHandler: It cannot be resolved.
        """
        annotation = parameter.annotation
        if annotation is parameter.empty:
            return annotation

        def probe() -> None: ...

        probe.__annotations__ = {"it": annotation}
        try:
            hints = typing.get_type_hints(probe, self._globals, self._locals, include_extras=True)
            found = _value(hints["it"])
            _resolve_aliases(found)
            if not _is_type(found):
                raise TypeError("it is not a type")  # noqa: TRY301 - raised below, as the others
        except Exception as error:
            # This evaluates code of the user: any error is possible.
            raise InvalidHandler(
                f"handler {self._name}: the annotation {_shown(annotation)} of its parameter "
                f"{parameter.name!r} cannot be resolved: {error}; {_UNRESOLVED}"
            ) from error
        return found


def _is_type(found: object) -> bool:
    """Return whether an annotation is a type; others are a mistake, such as an instance."""
    if found is None or callable(found) or typing.get_origin(found) is not None:
        return True
    return type(found).__module__ in {"typing", "typing_extensions"}  # TypeVar and special forms


def _value(annotation: Any) -> Any:
    """Return the type that an alias (``type Order = ...``) stands for; anything else as it is."""
    while type(annotation).__name__ == "TypeAliasType":  # in `typing` from 3.12 on
        annotation = annotation.__value__
    return annotation


def _bare(annotation: Any) -> Any:
    """Return the type inside an ``Annotated`` or an alias."""
    annotation = _value(annotation)
    while typing.get_origin(annotation) is Annotated:
        annotation = _value(typing.get_args(annotation)[0])
    return annotation


def _resolve_aliases(annotation: Any) -> None:
    """Evaluate every alias in an annotation; it may use an undefined name.

    Raises:
        NameError: It does.
    """
    seen: set[int] = set()
    left = [annotation]
    while left:
        one = _bare(left.pop())
        if id(one) not in seen:
            seen.add(id(one))
            left += typing.get_args(one)


def _members(annotation: Any) -> list[Any]:
    """Return the members of a union; anything else alone."""
    annotation = _bare(annotation)
    if typing.get_origin(annotation) in {typing.Union, types.UnionType}:
        return [one for part in typing.get_args(annotation) for one in _members(part)]
    return [annotation]


def names_delivery(annotation: Any) -> bool:
    """Return whether a parameter with this annotation takes the delivery."""
    return any(
        isinstance(one, type) and issubclass(one, Delivery | BlockingDelivery)
        for one in _members(annotation)
    )


def check_delivery(
    name: str, parameter: str, annotation: Any, own: type[Delivery | BlockingDelivery]
) -> None:
    """Refuse an annotation with the wrong kind of delivery."""
    if any(one is own for one in _members(annotation)):
        return
    sort = "an `async def`" if own is Delivery else "a `def`, which runs in a thread"
    verbs = "are awaited" if own is Delivery else "block"
    raise InvalidHandler(
        f"handler {name} is {sort}: its parameter {parameter!r} is a {_SPELLED[own]}, whose "
        f"methods {verbs}, not {article(_shown(annotation))}"
    )


def _shown(annotation: Any) -> str:
    """Return an annotation as it is written."""
    if isinstance(annotation, str):
        return repr(annotation)
    if isinstance(annotation, type) and not typing.get_args(annotation):
        return _SPELLED.get(annotation, annotation.__qualname__)
    return repr(annotation)
