"""Bodies to bytes and back."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypedDict, cast

import msgspec
import pydantic
import pytest

from ternmq.client.content.codecs import JSON, MSGPACK, TEXT, Codecs
from ternmq.model.errors import DecodeError, EncodeError, InvalidRequest


@dataclass
class Point:
    x: int
    y: int = 0


class Pair(msgspec.Struct):
    a: int
    b: str


class Named(TypedDict):
    name: str


class Model:
    """Looks like a pydantic model."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Model) and other.name == self.name

    __hash__ = None  # type: ignore[assignment]

    def model_dump(self, mode: str) -> dict[str, str]:
        assert mode == "json"
        return {"name": self.name}

    def model_dump_json(self) -> str:
        return f'{{"name":"{self.name}"}}'

    @classmethod
    def model_validate(cls, value: Any) -> Model:
        return cls(value["name"])

    @classmethod
    def model_validate_json(cls, data: bytes) -> Model:
        return cls.model_validate(msgspec.json.decode(data))


@pytest.mark.parametrize(
    ("body", "content_type", "kind"),
    [
        (b"\xff\x00", "", bytes),
        ("grüße", TEXT, str),
        ({"a": [1, None]}, JSON, dict),
        ([1, 2], JSON, list[int]),
        (Point(1, 2), JSON, Point),
        (Pair(1, "x"), JSON, Pair),
        ({"name": "n"}, JSON, Named),
        (Model("m"), JSON, Model),
        ([Model("m")], JSON, list[Model]),
        (datetime(2026, 1, 1, tzinfo=UTC), JSON, datetime),
        (7, JSON, int),
        (None, JSON, type(None)),
    ],
)
def test_round_trips(body: object, content_type: str, kind: Any) -> None:
    codecs = Codecs()
    data, named = codecs.encode(body)
    assert named == content_type
    assert codecs.decode(data, named, kind) == body
    if content_type == JSON:
        data, named = codecs.encode(body, MSGPACK)
        assert named == MSGPACK
        assert codecs.decode(data, named, kind) == body


def test_views_become_bytes() -> None:
    assert Codecs().encode(memoryview(b"abc")[1:]) == (b"bc", "")
    assert Codecs().encode(bytearray(b"x")) == (b"x", "")


def test_without_an_annotation_the_content_type_says_what_comes_out() -> None:
    codecs = Codecs()
    assert codecs.decode(b"x") == b"x"
    assert codecs.decode(b"x", TEXT) == "x"
    assert codecs.decode(b"[1]", JSON) == [1]
    assert codecs.decode(b"\x91\x01", MSGPACK) == [1]
    assert codecs.decode(b"x", "image/png") == b"x"


def test_bytes_without_content_type_are_taken_for_what_is_wanted() -> None:
    codecs = Codecs()
    assert codecs.decode(b'{"x":1}', "", Point) == Point(1)
    assert codecs.decode(b"text", "", str) == "text"
    assert codecs.decode(b'{"x":1}', TEXT, Point) == Point(1)
    assert codecs.decode(b'{"x":1}', JSON, str) == '{"x":1}'


@pytest.mark.parametrize(
    ("body", "content_type", "kind"),
    [
        (b"{", JSON, dict),
        (b'{"x":"one"}', JSON, Point),
        (b"\xff", TEXT, str),
        (b"\xff", "", str),
        (b"\xc1", MSGPACK, list),
        (b"[" * 100_000, JSON, list),
        (b"x", "image/png", Point),
        (b'{"nom":1}', JSON, Model),
    ],
)
def test_what_cannot_be_decoded_is_a_decode_error(
    body: bytes, content_type: str, kind: Any
) -> None:
    with pytest.raises(DecodeError):
        Codecs().decode(body, content_type, kind)


def test_what_cannot_be_encoded_is_an_encode_error() -> None:
    codecs = Codecs()
    with pytest.raises(EncodeError):
        codecs.encode(object())
    with pytest.raises(EncodeError, match="no codec"):
        codecs.encode({"a": 1}, "application/xml")
    with pytest.raises(EncodeError):
        codecs.encode(7, TEXT)
    with pytest.raises(EncodeError):
        codecs.encode("\ud800")


@pytest.mark.parametrize("returned", [None, 7, "text", ["x"]])
def test_a_codec_that_returns_no_bytes(returned: Any) -> None:
    codecs = Codecs()
    codecs.register("x/y", encode=lambda body: returned, decode=lambda data, kind: data)
    text = f"encoded as x/y: its codec returned {type(returned).__name__}, not bytes"
    with pytest.raises(EncodeError, match=text):
        codecs.encode("abc", "x/y")


def test_a_codec_may_return_what_is_like_bytes() -> None:
    codecs = Codecs()
    codecs.register(
        "x/y", encode=lambda body: cast("bytes", bytearray(b"z")), decode=lambda data, kind: data
    )
    encoded, _ = codecs.encode("abc", "x/y")
    assert (encoded, type(encoded)) == (b"z", bytes)


def test_another_codec_can_be_registered() -> None:
    codecs = Codecs()
    codecs.register(
        "application/x-upper",
        encode=lambda body: str(body).upper().encode(),
        decode=lambda data, kind: kind(data.decode().lower()),
    )
    assert codecs.encode("abc", "application/x-upper") == (b"ABC", "application/x-upper")
    assert codecs.decode(b"ABC", "application/x-upper", str) == "abc"
    with pytest.raises(InvalidRequest):
        codecs.register("", encode=lambda body: b"", decode=lambda data, kind: None)


@pytest.mark.parametrize(
    ("encode", "decode", "text"),
    [
        (3, lambda body, kind: body, r"encode is a function encode\(body\), not 3"),
        (bytes, None, r"decode is a function decode\(body, kind\), not None"),
        (bytes, lambda body: body, r"decode is called as decode\(body, kind\), .* takes \(body\)"),
        (lambda: b"", lambda body, kind: body, r"encode is called as encode\(body\), .* \(\)"),
    ],
)
def test_a_codec_that_cannot_be_called_is_refused(encode: Any, decode: Any, text: str) -> None:
    codecs = Codecs()
    with pytest.raises(InvalidRequest, match=text):
        codecs.register("text/csv", encode=encode, decode=decode)
    with pytest.raises(EncodeError, match="no codec is registered"):
        codecs.encode(["a"], "text/csv")


def test_codecs_may_have_more_arguments_that_are_optional_or_tell_none() -> None:
    codecs = Codecs()
    codecs.register("a/a", encode=msgspec.json.encode, decode=lambda body, *kinds, **more: body)
    codecs.register("a/b", encode=bytes, decode=getattr)


class Price(pydantic.BaseModel):
    cents: float
    list_: list[float] = []


class Bare(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(ser_json_inf_nan="constants")
    cents: float


class Spelled(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(ser_json_inf_nan="strings")
    cents: float


@dataclass
class Place:
    name: str | None
    at: tuple[float, ...]


class Inner(msgspec.Struct):
    place: Place


NAN, INFINITE = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("body", "path"),
    [
        (NAN, "the body is"),
        (-INFINITE, "the body is"),
        ({"a": [1.0, {"b": INFINITE}]}, r"\$\.a\[1\]\.b is"),
        (Place("x", (1.0, NAN)), r"\$\.at\[1\] is"),
        ([Inner(Place(None, (NAN,)))], r"\$\[0\]\.place\.at\[0\] is"),
        (Price(cents=NAN), r"\$\.cents is"),
        (Price(cents=1, list_=[NAN]), r"\$\.list_\[0\] is"),
        (Bare(cents=INFINITE), r"\$\.cents is"),
        ({"price": Price(cents=NAN)}, r"\$\.price\.cents is"),
    ],
)
def test_json_has_no_nan_and_no_infinity(body: object, path: str) -> None:
    with pytest.raises(EncodeError, match=f"JSON cannot represent NaN or infinity, and {path}"):
        Codecs().encode(body)


def test_null_is_no_nan() -> None:
    codecs = Codecs()
    assert codecs.encode(None) == (b"null", JSON)
    assert codecs.encode({"a": None, "b": "null NaN"})[0] == b'{"a":null,"b":"null NaN"}'
    assert codecs.encode(Place(None, (1.5,)))[0] == b'{"name":null,"at":[1.5]}'
    assert codecs.encode(Spelled(cents=NAN))[0] == b'{"cents":"NaN"}'
    data, _ = codecs.encode([NAN], MSGPACK)
    (back,) = codecs.decode(data, MSGPACK, list[float])
    assert math.isnan(back)  # msgpack has it


@pytest.mark.parametrize("content_type", [JSON, MSGPACK])
def test_a_body_that_cannot_be_decoded_names_the_field(content_type: str) -> None:
    codecs = Codecs()
    body, _ = codecs.encode({"cents": "secret", "list_": [1, "x", "y", "z"]}, content_type)
    for kind, prefix in ((Price, "$"), (list[Price], "$[0]")):
        sent = body if kind is Price else codecs.encode([codecs.decode(body, content_type)],
                                                        content_type)[0]  # fmt: skip
        with pytest.raises(DecodeError) as told:
            codecs.decode(sent, content_type, kind)
        text = str(told.value)
        assert "Input should be a valid number" in text
        assert "at `$.cents`; " in text
        assert "at `$.list_[1]`" in text
        assert "and 1 more" in text
        assert ("`$[0]`" in text) == (prefix == "$[0]")
        assert "\n" not in text
        assert "secret" not in text
    with pytest.raises(DecodeError, match=r"Expected `int`, got `str` - at `\$\.x`"):
        codecs.decode(codecs.encode({"x": "1"}, content_type)[0], content_type, Point)


@pytest.mark.parametrize("kind", [5, "Order", math.inf])
def test_what_is_not_a_type_is_named_and_not_the_message(kind: Any) -> None:
    with pytest.raises(TypeError, match="cannot be decoded"):
        Codecs().decode_at(("orders", 0, 7), b"{}", JSON, kind)
    with pytest.raises(DecodeError, match="message 0/7 of orders"):
        Codecs().decode_at(("orders", 0, 7), b"{", JSON, dict)
