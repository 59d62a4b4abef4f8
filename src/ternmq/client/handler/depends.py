"""Parameters that receive the result of another function."""

from __future__ import annotations

import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

Provider = Callable[..., Any]
"""A function whose result is passed to the parameters that depend on it."""


@dataclass(frozen=True, slots=True)
class Depends:
    """Marks a parameter of a handler, or of another provider, as the result of a provider.

    ::

        async def session() -> AsyncIterator[Session]:
            async with Session(engine) as one, one.begin():
                yield one                        # what comes after runs when the handler is done

        @client.handler("orders", group="billing")
        async def on_order(order: Order, db: Annotated[Session, ternmq.Depends(session)]) -> None:

    A provider is a function, or a generator that yields once. It is called once for each message,
    however many parameters depend on it; an error of the handler is raised at its ``yield``. Its
    own parameters may depend on other providers, or take the delivery, by annotation. An
    ``async def`` handler accepts both kinds of provider, and calls a ``def`` provider in the loop;
    a ``def`` handler accepts only ``def`` providers, which run in its thread.

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
