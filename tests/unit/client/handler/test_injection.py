"""Nothing is paid for middleware and dependencies that are not there."""

from __future__ import annotations

import ternmq
from ternmq.client.handler.composing import compose


def test_a_handler_without_any_is_called_as_it_is():
    client = ternmq.connect()

    @client.handler("orders", group="g")
    async def handle(body: bytes, delivery: ternmq.Delivery) -> None: ...

    (declared,) = client._declarations
    composed = compose(declared, client._declarations.middlewares)
    assert composed.declared is declared
    assert composed.declared.function is handle
    assert composed.outside == ()


def test_parameters_that_are_not_annotated_are_no_dependencies():
    client = ternmq.connect()

    @client.handler("orders", group="g")
    async def handle(body, delivery, other=3, *rest, more=4, **others) -> None: ...

    (declared,) = client._declarations
    assert (declared.signature.injected, declared.signature.named) == ({}, ())
