"""What a handler's signature says, and what is refused where it is declared."""

from __future__ import annotations

import functools
from typing import Annotated, Any, Optional, Union

import pytest

import ternmq
import ternmq.sync
from ternmq.client.content.codecs import Codecs
from ternmq.client.handler.signature import Signature, signature_of
from tests.unit.client import annotated as a


def shape(function: Any) -> tuple[Any, bool, bool]:
    found = signature_of(function)
    return found.kind, found.body, found.delivery


@pytest.mark.parametrize(
    ("function", "kind", "delivery"),
    [
        (a.alias, a.Order, False),
        (a.optional, Optional[a.Order], True),  # noqa: UP045
        (a.union, Union[a.Order, int], True),  # noqa: UP007
        (a.generic, list[a.Order], False),
        (a.constrained, a.Positive, True),
        (a.quoted, list[a.Order], False),
        (a.untyped, Any, True),
        (a.anything, Any, True),
        (a.returns_money, a.Order, False),
        (a.left_alone, a.Order, False),
        (a.default_untyped, a.Order, False),
        (a.blocking, a.Order, True),
        (a.either, a.Order, True),
        (a.decorated, a.Order, True),
        (a.Service(), a.Order, False),
        (a.Service().method, a.Order, True),
        (a.Service().plain, a.Order, False),
        (a.Service.alone, a.Order, False),
        (a.Service.of_class, a.Order, False),
        (functools.partial(a.settings, 3), a.Order, False),
        (functools.partial(a.Service().method), a.Order, True),
        (functools.partial(a.decorated), a.Order, True),
        (lambda order: order, Any, False),
        ([].append, Any, False),
    ],
)
def test_annotations_are_resolved(function: Any, kind: Any, delivery: bool) -> None:
    assert shape(function) == (kind, True, delivery)


def test_a_delivery_alone() -> None:
    found = signature_of(a.delivery_default)
    assert found == Signature("delivery_default", True, None, body=False, delivery=True)


@pytest.mark.parametrize(
    ("function", "is_async"),
    [
        (a.alias, True),
        (a.decorated, True),
        (a.Service(), True),
        (a.Service().method, True),
        (functools.partial(a.Service()), True),
        (functools.partial(a.settings, 3), True),
        (a.blocking, False),
        (a.Service().plain, False),
        ([].append, False),
    ],
)
def test_what_is_awaited(function: Any, is_async: bool) -> None:
    assert signature_of(function).is_async is is_async


def test_a_type_of_a_function_is_resolved_when_the_handler_uses_it() -> None:
    function, kind = a.captured()
    assert shape(function) == (kind, True, False)


@pytest.mark.parametrize(
    ("function", "handler", "parameter", "unknown"),
    [
        (a.only_for_the_checker, "only_for_the_checker", "money", "Money"),
        (a.within, "within", "orders", "Money"),
        (a.misspelt, "misspelt", "order", "Ordre"),
        (a.no_such_member, "no_such_member", "order", "Ordre"),
        (a.second_default, "second_default", "delivery", "Delivered"),
        (a.second, "second", "delivery", "Delivered"),
        (a.Misspelt(), "Misspelt", "order", "Ordre"),
        (a.Misspelt().method, "method", "order", "Ordre"),
        (functools.partial(a.misspelt), "misspelt", "order", "Ordre"),
        (a.decorated_misspelt, "decorated_misspelt", "order", "Ordre"),
        (a.local(), "on_local", "local", "Local"),
    ],
)
@pytest.mark.parametrize("connect", [ternmq.connect, ternmq.sync.connect])
def test_an_annotation_that_cannot_be_resolved(
    connect: Any, function: Any, handler: str, parameter: str, unknown: str
) -> None:
    with pytest.raises(ternmq.InvalidHandler, match="cannot be resolved") as caught:
        connect("ternmq://localhost:1").handler("orders", group="billing")(function)
    said = str(caught.value)
    assert f"handler {handler}: " in said
    assert f"its parameter {parameter!r} " in said
    assert unknown in said
    assert "TYPE_CHECKING" in said


def test_a_type_that_is_defined_below_its_handler() -> None:
    assert "define the type" in str(a.DECLARED_TOO_EARLY)
    assert shape(a.before_its_type) == (a.Later, True, False)


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (a.gives, "contains a yield"),
        (a.gives_async, "contains a yield"),
        (a.keyword, "its parameter 'factor' gets no value"),
        (a.three, "its parameter 'factor' gets no value"),
        (a.reversed_, "the body comes before the delivery"),
        (a.two_bodies, "'number' is annotated as int, not ternmq.Delivery"),
        (a.any_number, "functools.wraps"),
        (a.none_at_all, "a body, a delivery, or both"),
        (a.Order, "Order is a class"),
        (functools.partial(a.Order), "Order is a class"),
        (a.Service.method, "a method without its object"),
        (7, "not an int"),
        (a.blocking_in_async, "a ternmq.Delivery, whose methods are awaited"),
        (a.only_blocking_in_async, "a ternmq.Delivery, whose methods are awaited"),
        (a.async_in_def, "a ternmq.sync.Delivery, whose methods block, not a ternmq.Delivery"),
        (a.only_async_in_def, "a ternmq.sync.Delivery, whose methods block"),
        (a.of_own_class, "not an Own"),
    ],
)
def test_what_is_no_handler(function: Any, says: str) -> None:
    with pytest.raises(ternmq.InvalidHandler) as caught:
        signature_of(function)
    assert says in str(caught.value)


# -- what bodies are decoded to


@pytest.mark.parametrize(
    "kind",
    [Any, object, bytes, str, None, int, a.Order, list[a.Order], a.Positive, dict[str, a.Order]],
)
def test_types_that_bodies_are_decoded_to(kind: Any) -> None:
    Codecs().check(kind)


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        (a.Basket, "name 'Money' is not defined"),
        (list[a.Basket], "name 'Money' is not defined"),
        (a.Plain, "a Plain cannot be decoded"),
        (dict[str, list[a.Plain]], "a Plain cannot be decoded"),
        (a.Order | a.Basket, "cannot be decoded"),
        (Annotated[int, ["no", "hash"]], "cannot be decoded"),
    ],
)
def test_types_that_no_body_is_decoded_to(kind: Any, says: str) -> None:
    with pytest.raises(TypeError) as caught:
        Codecs().check(kind)
    assert says in str(caught.value)


def test_a_codec_of_the_application_may_know_any_type() -> None:
    codecs = Codecs()
    codecs.register("application/x-plain", encode=bytes, decode=lambda _, __: a.Plain())
    codecs.check(a.Plain)


# -- one handler for a topic and group


@pytest.mark.parametrize("connect", [ternmq.connect, ternmq.sync.connect])
@pytest.mark.parametrize("tags", [{}, {"tags": "paid"}])
def test_two_handlers_of_one_topic_and_group(connect: Any, tags: Any) -> None:
    client = connect("ternmq://localhost:1")
    client.handler("orders", group="billing")(a.alias)
    client.handler("orders", group="mailing")(a.alias)
    client.handler("refunds", group="billing")(a.alias)
    with pytest.raises(ternmq.InvalidHandler) as caught:
        client.handler("orders", group="billing", **tags)(a.generic)
    said = str(caught.value)
    assert (
        "topic 'orders' has a handler for group 'billing': tests.unit.client.annotated.alias"
        in said
    )
    assert "annotated.py:" in said
    assert "annotated.generic" in said


def test_a_handler_that_is_refused_takes_no_place() -> None:
    client = ternmq.connect("ternmq://localhost:1")
    with pytest.raises(ternmq.InvalidHandler):
        client.handler("orders", group="billing")(a.misspelt)
    client.handler("orders", group="billing")(a.alias)
