"""Pydantic models as bodies: the same class goes both ways, and unions of models are decoded."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import attrs
import msgspec
import pydantic
import pytest
from pydantic import AliasChoices, AliasPath, ConfigDict, Field
from pydantic.alias_generators import to_camel

from ternmq.client.content.codecs import JSON, MSGPACK, Codecs
from ternmq.model.errors import DecodeError


class Aliased(pydantic.BaseModel):
    number: int = Field(alias="orderNumber")


class Generated(pydantic.BaseModel):
    model_config = ConfigDict(alias_generator=to_camel)
    order_number: int


class ByName(pydantic.BaseModel):
    model_config = ConfigDict(populate_by_name=True)
    number: int = Field(alias="orderNumber")


class Stated(pydantic.BaseModel):
    model_config = ConfigDict(serialize_by_alias=True)
    number: int = Field(alias="orderNumber")


class WrittenOnly(pydantic.BaseModel):
    number: int = Field(serialization_alias="orderNumber")


class Choices(pydantic.BaseModel):
    number: int = Field(
        validation_alias=AliasChoices(AliasPath("order", "no"), "no"), serialization_alias="no"
    )


class Within(pydantic.BaseModel):
    orders: list[Aliased]
    last: Aliased | None = None


class Tree(pydantic.BaseModel):
    number: int = Field(alias="orderNumber")
    below: list[Tree] = []


class Listed(pydantic.RootModel[list[Aliased]]):
    pass


class Renamed(msgspec.Struct, rename="camel"):
    order_number: int


class Attrs(msgspec.Struct):
    aliased: Aliased


@dataclass
class Data:
    aliased: Aliased
    several: list[Aliased] = field(default_factory=list)


@attrs.define
class Defined:
    order_number: int = attrs.field(alias="orderNumber")


ONE = Aliased(orderNumber=1)
BODIES = [
    (ONE, {"orderNumber": 1}),
    (Generated.model_validate({"orderNumber": 1}), {"orderNumber": 1}),
    (ByName.model_validate({"number": 1}), {"number": 1}),
    (Stated(orderNumber=1), {"orderNumber": 1}),
    (WrittenOnly(number=1), {"number": 1}),
    (Choices.model_validate({"no": 1}), {"no": 1}),
    (Within(orders=[ONE]), {"orders": [{"orderNumber": 1}], "last": None}),
    (Tree(orderNumber=1, below=[Tree(orderNumber=2)]),
     {"orderNumber": 1, "below": [{"orderNumber": 2, "below": []}]}),
    (Listed([ONE]), [{"orderNumber": 1}]),
    (Data(ONE, [ONE]), {"aliased": {"orderNumber": 1}, "several": [{"orderNumber": 1}]}),
    (Attrs(ONE), {"aliased": {"orderNumber": 1}}),
    (Renamed(1), {"orderNumber": 1}),
    (Defined(1), {"order_number": 1}),
]  # fmt: skip


@pytest.mark.parametrize(("body", "written"), BODIES, ids=lambda one: type(one).__name__)
@pytest.mark.parametrize("content_type", [JSON, MSGPACK])
def test_the_same_class_goes_both_ways(body: object, written: object, content_type: str) -> None:
    codecs = Codecs()
    data, named = codecs.encode(body, content_type)
    assert codecs.decode(data, named) == written
    assert codecs.decode(data, named, type(body)) == body


class Cat(pydantic.BaseModel):
    kind: Literal["cat"] = "cat"
    lives: int = Field(alias="livesLeft")


class Dog(pydantic.BaseModel):
    kind: Literal["dog"] = "dog"
    good: bool


@dataclass
class Owner:
    name: str
    pet: Annotated[Cat | Dog, Field(discriminator="kind")]


Pet = Annotated[Cat | Dog, Field(discriminator="kind")]
CAT, DOG = Cat(livesLeft=9), Dog(good=True)


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (Cat | Dog, CAT), (Cat | Dog, DOG), (Pet, CAT), (Pet, DOG), (list[Pet], [CAT, DOG]),
        (dict[str, Cat | Dog], {"a": DOG}), (Cat | Dog | None, None), (Owner, Owner("Ann", CAT)),
        (Cat | str, "a name"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("content_type", [JSON, MSGPACK])
def test_a_union_of_models_is_decoded(kind: Any, body: object, content_type: str) -> None:
    codecs = Codecs()
    codecs.check(kind)
    data, named = codecs.encode(body, content_type)
    assert codecs.decode(data, named, kind) == body


def test_a_body_that_is_no_member_says_where() -> None:
    codecs = Codecs()
    with pytest.raises(DecodeError, match=r"\$\.cat\.livesLeft"):
        codecs.decode(b'{"kind":"cat","livesLeft":"x"}', JSON, Pet)
    with pytest.raises(DecodeError, match="does not match any of the expected tags"):
        codecs.decode(b'{"kind":"cow"}', JSON, Pet)


class Struct(msgspec.Struct):
    a: int


class Other(msgspec.Struct):
    b: int


@pytest.mark.parametrize("kind", [Struct | Other, Struct | Data, Cat | Struct, list[Owner | Data]])
def test_a_union_that_nobody_decodes_names_the_way_out(kind: Any) -> None:
    if kind == list[Owner | Data]:
        Codecs().check(kind)  # pydantic takes dataclasses too, and there are models in them
        return
    with pytest.raises(TypeError, match="make all its members pydantic models"):
        Codecs().check(kind)


class TaggedCat(msgspec.Struct, tag="cat"):
    lives: int


class TaggedDog(msgspec.Struct, tag="dog"):
    good: bool


def test_tagged_structs_are_the_way_out() -> None:
    codecs = Codecs()
    codecs.check(TaggedCat | TaggedDog)
    assert codecs.decode(*codecs.encode(TaggedDog(good=True)), TaggedCat | TaggedDog) == TaggedDog(
        good=True
    )


@pytest.mark.parametrize(
    ("kind", "text"),
    [(Literal["a", "b"], "a"), (str | None, "null"), (str | int, "7"), (Cat | str, "a name")],
)
def test_text_is_decoded_as_what_text_may_be(kind: Any, text: str) -> None:
    codecs = Codecs()
    assert codecs.decode(*codecs.encode(text), kind) == text


def test_text_that_holds_json_is_decoded_as_json() -> None:
    codecs = Codecs()
    assert codecs.decode(b"7", "text/plain", int) == 7
    assert codecs.decode(b'{"kind":"dog","good":true}', "text/plain", Pet) == DOG
    with pytest.raises(DecodeError):
        codecs.decode(b"c", "text/plain", Literal["a", "b"])
