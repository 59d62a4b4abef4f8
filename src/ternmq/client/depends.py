"""How a parameter says that it is given what a function returns."""

from __future__ import annotations

import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

Provider = Callable[..., Any]
"""A function whose result is given to whoever depends on it."""


@dataclass(frozen=True, slots=True)
class Depends:
    """Marks a parameter of a handler, or of another provider, as given by a provider.

    ::

        async def session() -> AsyncIterator[Session]:
            async with Session(engine) as one, one.begin():
                yield one                        # what comes after runs when the handler is done

        @client.handler("orders", group="billing")
        async def on_order(order: Order, db: Annotated[Session, ternmq.Depends(session)]) -> None:

    A provider is a function, or a generator that yields once. It is called once for each message,
    however many depend on it; a handler that raises raises at its ``yield``. Its own parameters are
    others that it depends on, and the delivery, by annotation. An ``async def`` handler takes
    both kinds of provider, and calls a ``def`` one in the loop; a ``def`` handler takes ``def``
    providers, which run in its thread.

    Attributes:
        provider: The function.
    """

    provider: Provider


def depends_in(annotation: Any) -> Depends | None:
    """Return the mark of an annotation, ``Annotated[T, Depends(...)]``; None without one."""
    while type(annotation).__name__ == "TypeAliasType":
        annotation = annotation.__value__
    if typing.get_origin(annotation) is not Annotated:
        return None
    marks = [one for one in typing.get_args(annotation)[1:] if isinstance(one, Depends)]
    if marks:
        return marks[-1]
    return depends_in(typing.get_args(annotation)[0])
