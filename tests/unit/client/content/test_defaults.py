"""A decoded object has all its fields, so it can be sent on as it is."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import attrs
import msgspec
import pytest

from ternmq.client.content.codecs import JSON, MSGPACK, Codecs

T = TypeVar("T")


@dataclass(frozen=True)
class Address:
    city: str = "Bern"
    zip_code: int | None = None


@dataclass
class Order:
    id: int
    card: str = "visa"
    to: Address = Address()
    stops: list[Address] = field(default_factory=list)


@dataclass(slots=True)
class Slotted:
    address: Address
    card: str = "visa"


@dataclass
class Express(Order):
    hour: int = 8


@dataclass
class Page(Generic[T]):
    rows: list[T]
    next: int = 0


class Envelope(msgspec.Struct):
    order: Order
    seen: dict[str, tuple[Address, ...]] = {}


@attrs.define(slots=False)
class Cart:
    id: int
    size: int = 1


CASES = [
    (Order, {"id": 1}, Order(1)),
    (Order, {"id": 1, "stops": [{}, {"city": "Ulm"}]},
     Order(1, stops=[Address(), Address("Ulm")])),
    (Express, {"id": 1}, Express(1)),
    (Slotted, {"address": {}}, Slotted(Address())),
    (Envelope, {"order": {"id": 1}, "seen": {"a": [{}]}},
     Envelope(Order(1), {"a": (Address(),)})),
    (list[Order], [{"id": 1}, {"id": 2, "card": "x"}], [Order(1), Order(2, "x")]),
    (Order | None, {"id": 1}, Order(1)),
    (Page[Order], {"rows": [{"id": 1}]}, Page([Order(1)])),
    (Cart, {"id": 1}, Cart(1)),
]  # fmt: skip


@pytest.mark.parametrize("content_type", [JSON, MSGPACK])
@pytest.mark.parametrize(("kind", "sent", "whole"), CASES)
def test_what_was_decoded_is_sent_on_with_all_its_fields(
    content_type: str, kind: Any, sent: object, whole: object
) -> None:
    codecs = Codecs()
    body, _ = codecs.encode(sent, content_type)
    found = codecs.decode(body, content_type, kind)
    assert found == whole
    assert codecs.encode(found, content_type) == codecs.encode(whole, content_type)


def test_types_without_defaults_cost_nothing() -> None:
    from ternmq.client.content.codecs import _json_decoder

    @dataclass
    class Plain:
        id: int

    for kind in (Plain, dict[str, Any], msgspec.defstruct("Made", [("a", int, 1)])):
        assert isinstance(_json_decoder(kind), msgspec.json.Decoder)
