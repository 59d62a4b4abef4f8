"""Handlers whose annotations are text, as a module of an application has them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any, Optional, ParamSpec, TypeVar, Union

import msgspec
from typing_extensions import TypeAliasType

import ternmq
import ternmq.sync

if TYPE_CHECKING:
    from decimal import Decimal as Money
    from os import PathLike as Delivered

P = ParamSpec("P")
T = TypeVar("T")


@dataclass
class Order:
    number: int


Alias = TypeAliasType("Alias", Order)


@dataclass
class Basket:
    money: list[Money]


class Plain:
    """No field of it is known."""


Positive = Annotated[int, msgspec.Meta(gt=0)]


def logged(function: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[T]]:
    @wraps(function)
    async def call(*args: P.args, **kwargs: P.kwargs) -> T:
        return await function(*args, **kwargs)

    return call


async def alias(order: Alias) -> None: ...
async def optional(order: Optional[Order], delivery: Optional[ternmq.Delivery] = None) -> None: ...  # noqa: UP045
async def union(order: Union[Order, int], delivery: ternmq.Delivery | None) -> None: ...  # noqa: UP007
async def generic(orders: list[Order]) -> None: ...
async def constrained(number: Positive, delivery: Annotated[ternmq.Delivery, "mine"]) -> None: ...
async def quoted(orders: list["Order"]) -> None: ...  # noqa: UP037
async def untyped(order, delivery): ...
async def anything(order: Any, delivery: Any) -> None: ...
async def returns_money(order: Order) -> Money | None: ...
async def left_alone(order: Order, times: int = 3, *, money: Money | None = None) -> None: ...
async def default_untyped(order: Order, times=3): ...
async def delivery_default(delivery: ternmq.Delivery, times: int = 3) -> None: ...


def blocking(order: Order, delivery: ternmq.sync.Delivery) -> None: ...
def either(order: Order, delivery: ternmq.Delivery | ternmq.sync.Delivery) -> None: ...


@logged
async def decorated(order: Order, delivery: ternmq.Delivery) -> None: ...


class Service:
    async def method(self, order: Order, delivery: ternmq.Delivery) -> None: ...

    async def __call__(self, order: Order) -> None: ...

    def plain(self, order: Order) -> None: ...

    @staticmethod
    async def alone(order: Order) -> None: ...

    @classmethod
    async def of_class(cls, order: Order) -> None: ...


async def settings(factor: int, order: Order) -> None: ...


# -- what cannot be resolved


async def only_for_the_checker(money: Money) -> None: ...
async def within(orders: list[Money] | None) -> None: ...
async def misspelt(order: Ordre) -> None: ...  # type: ignore[name-defined] # noqa: F821
async def no_such_member(order: ternmq.Ordre) -> None: ...  # type: ignore[name-defined]
async def second_default(order: Order, delivery: Delivered[str] | None = None) -> None: ...
async def second(order: Order, delivery: Delivered[str]) -> None: ...


class Misspelt:
    async def __call__(self, order: Ordre) -> None: ...  # type: ignore[name-defined] # noqa: F821

    async def method(self, order: Ordre) -> None: ...  # type: ignore[name-defined] # noqa: F821


@logged
async def decorated_misspelt(order: Ordre) -> None: ...  # type: ignore[name-defined] # noqa: F821


async def before_its_type(later: Later) -> None: ...


def local() -> Callable[..., Any]:
    @dataclass
    class Local:
        number: int

    async def on_local(local: Local) -> None: ...

    return on_local


def captured() -> tuple[Callable[..., Any], type]:
    @dataclass
    class Local:
        number: int

    async def on_local(local: Local) -> None:
        assert isinstance(local, Local)

    return on_local, Local


try:
    from ternmq.client.handler.signature import signature_of

    signature_of(before_its_type)
except ternmq.InvalidHandler as error:
    DECLARED_TOO_EARLY: Exception | None = error
else:
    DECLARED_TOO_EARLY = None


@dataclass
class Later:
    number: int


# -- what is no handler


def gives(order: Order) -> Any:
    yield order


async def gives_async(order: Order) -> Any:
    yield order


async def keyword(order: Order, *, factor: int) -> None: ...
async def three(order: Order, delivery: ternmq.Delivery, factor: int) -> None: ...
async def reversed_(delivery: ternmq.Delivery, order: Order) -> None: ...
async def two_bodies(order: Order, number: int) -> None: ...
async def any_number(*args: Any) -> None: ...
async def none_at_all() -> None: ...
async def blocking_in_async(order: Order, delivery: ternmq.sync.Delivery) -> None: ...
async def only_blocking_in_async(delivery: ternmq.sync.Delivery) -> None: ...
def async_in_def(order: Order, delivery: ternmq.Delivery) -> None: ...
def only_async_in_def(delivery: ternmq.Delivery | None) -> None: ...


class Own(ternmq.Delivery):
    """Deliveries are not of this class."""


async def of_own_class(order: Order, delivery: Own) -> None: ...
