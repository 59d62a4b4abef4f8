"""Bodies of batch sessions: what is not complete is never decoded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ternmq.client.content.codecs import Codecs
from ternmq.client.content.items import (
    ITEMS,
    Item,
    Items,
    Row,
    Session,
    form_of,
    pack,
    pack_item,
    packed_bytes,
    unpack,
)
from ternmq.model.errors import DecodeError

JSON = "application/json"
GOLDEN = Path(__file__).parents[3] / "golden" / "items_v1.bin"


@dataclass
class Order:
    id: int
    note: str = "none"


class Model(pydantic.BaseModel):
    id: int


ROWS = [
    Row("order-1", "new", "application/json", {"region": "eu"}, b'{"id":1}'),
    Row("", "", "text/plain", {}, "grün".encode()),
    Row("order-3", "", "", {}, b"\xff\x00"),
]


def body_of(*rows: Row, session: str = "s.0") -> bytes:
    return pack(session, [pack_item(one) for one in rows])


def orders(count: int) -> bytes:
    rows = [Row(f"k{n}", "", "application/json", {}, b'{"id":%d}' % n) for n in range(1, count + 1)]
    return body_of(*rows)


def test_the_bytes_are_those_of_version_1() -> None:
    """A change of them is another content type: see ``ITEMS``."""
    assert body_of(*ROWS, session="import-7.0") == GOLDEN.read_bytes()
    assert unpack(GOLDEN.read_bytes()) == Session("import-7.0", 3, ROWS)


def test_any_reader_of_msgpack_can_see_what_it_is() -> None:
    assert msgspec.msgpack.decode(GOLDEN.read_bytes()) == [
        "import-7.0", 3,
        [
            ["order-1", "new", "application/json", {"region": "eu"}, b'{"id":1}'],
            ["", "", "text/plain", {}, "grün".encode()],
            ["order-3", "", "", {}, b"\xff\x00"],
        ],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [
        (list[Order], [Order(1), Order(2)]),
        (Sequence[Order], [Order(1), Order(2)]),
        (tuple[Order, ...], (Order(1), Order(2))),
        (list[Model], [Model(id=1), Model(id=2)]),
        (list[Order] | None, [Order(1), Order(2)]),
        (Order | list[Order], [Order(1), Order(2)]),
        (Annotated[list[Order], "said"], [Order(1), Order(2)]),
        (Annotated[list[Order], msgspec.Meta(min_length=2)], [Order(1), Order(2)]),
        (list[dict[str, int]], [{"id": 1}, {"id": 2}]),
        (list[bytes], [b'{"id":1}', b'{"id":2}']),
        (list, [{"id": 1}, {"id": 2}]),
        (Any, [{"id": 1}, {"id": 2}]),
        (object, [{"id": 1}, {"id": 2}]),
    ],
)
def test_a_type_with_items_gets_all_of_them(kind: Any, wanted: object) -> None:
    found = Codecs().decode(orders(2), ITEMS, kind)
    assert found == wanted
    assert type(found) is type(wanted)


def test_decoded_items_have_all_their_fields() -> None:
    """msgspec would leave out the defaults when they are encoded again."""
    (found,) = Codecs().decode(orders(1), ITEMS, list[Order])
    assert msgspec.json.encode(found) == b'{"id":1,"note":"none"}'


def test_items_have_session_size_and_properties() -> None:
    found: Items[Any] = Codecs().decode(GOLDEN.read_bytes(), ITEMS, Items)
    assert (found.session, found.size, len(found)) == ("import-7.0", 3, 3)
    assert list(found) == [{"id": 1}, "grün", b"\xff\x00"]
    assert found[0] == {"id": 1}
    assert list(found[1:]) == ["grün", b"\xff\x00"]
    assert found.keys == ["order-1", "", "order-3"]
    assert found.entries[0] == Item({"id": 1}, "order-1", "new", {"region": "eu"}, JSON)
    typed: Items[Order] = Codecs().decode(orders(2), ITEMS, Items[Order])
    assert list(typed) == [Order(1), Order(2)]
    assert repr(typed) == "<Items of session 's.0', 2>"


def test_a_body_for_bytes_stays_as_it_is() -> None:
    assert Codecs().decode(orders(2), ITEMS, bytes) == orders(2)


def test_items_are_decoded_by_registered_codecs() -> None:
    codecs = Codecs()
    codecs.register("text/x-upper", encode=bytes, decode=lambda body, kind: body.decode().upper())
    body = body_of(Row("", "", "text/x-upper", {}, b"a"), Row("", "", "text/plain", {}, b"a"))
    assert codecs.decode(body, ITEMS, list[str]) == ["A", "a"]


def test_a_registered_codec_of_the_content_type_replaces_this_one() -> None:
    codecs = Codecs()
    codecs.register(ITEMS, encode=bytes, decode=lambda body, kind: len(body))
    assert codecs.decode(b"123", ITEMS, int) == 3


ROW = ["", "", "", {}, b""]


@pytest.mark.parametrize(
    ("told", "why"),
    [
        (["s", 2, [ROW]], "states 2 items and has 1"),
        (["s", 1, [ROW, ROW]], "states 1 item and has 2"),
        (["s", 0, []], "no items"),
        (["", 1, [ROW]], "no name"),
        (["s", -1, [ROW]], "states -1 items"),
        (["s", 1.0, [ROW]], "float"),
        (["s", True, [ROW]], "bool"),
        ([7, 1, [ROW]], "str"),
        (["s", 1], "length 3"),
        (["s", 1, [ROW], 1], "length 3"),
        (["s", 1, [ROW[:4]]], "length 5"),
        (["s", 1, [[*ROW, 1]]], "length 5"),
        (["s", 1, [["", "", "", {}, "text"]]], "bytes"),
        (["s", 1, [["", "", "", {"a": 1}, b""]]], "str"),
        (["s", 1, [[None, "", "", {}, b""]]], "str"),
        (["s", 1, [["", "", ITEMS, {}, b""]]], "is a session"),
        ({"session": "s", "size": 1, "rows": [ROW]}, "array"),
        (None, "array"),
    ],
)
def test_another_form_is_not_decoded(told: object, why: str) -> None:
    with pytest.raises(DecodeError, match=why):
        Codecs().decode(msgspec.msgpack.encode(told), ITEMS, list[bytes])


def test_bytes_behind_it_or_missing_ones_are_noticed() -> None:
    body = orders(3)
    for cut in range(len(body)):
        with pytest.raises(DecodeError):
            unpack(body[:cut])
    for more in (b"\x00", b"\xc0", body):
        with pytest.raises(DecodeError, match="trailing"):
            unpack(body + more)


@given(
    st.text(min_size=1, max_size=8),
    st.lists(
        st.builds(
            Row,
            st.text(max_size=5),
            st.text(max_size=5),
            st.sampled_from(["", "text/plain", JSON]),
            st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=2),
            st.binary(max_size=40),
        ),
        min_size=1,
        max_size=40,
    ),
)
def test_every_session_comes_back_and_its_length_was_known(session: str, rows: list[Row]) -> None:
    items = [pack_item(one) for one in rows]
    body = pack(session, items)
    assert unpack(body) == Session(session, len(rows), rows)
    assert packed_bytes(session, len(items), sum(map(len, items))) == len(body)


@pytest.mark.parametrize("count", [15, 16, 127, 128, 65_535, 65_536])
def test_the_length_is_known_at_each_width_of_the_numbers(count: int) -> None:
    item = pack_item(Row("", "", "", {}, b""))
    assert packed_bytes("s", count, count * len(item)) == len(pack("s", [item] * count))


@given(st.data())
def test_a_bent_session_is_refused_or_complete(data: st.DataObject) -> None:
    """Whatever happens to the bytes: an error of ours, or as many items as are stated."""
    body = bytearray(GOLDEN.read_bytes() if data.draw(st.booleans()) else orders(20))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(body) - 1))
        how = data.draw(st.sampled_from(["flip", "cut", "put", "drop"]))
        if how == "flip":
            body[at] = data.draw(st.integers(0, 255))
        elif how == "cut" and at:
            del body[at:]
        elif how == "put":
            body[at:at] = data.draw(st.binary(min_size=1, max_size=4))
        elif len(body) > 1:
            del body[at]
    try:
        found = Codecs().decode(bytes(body), ITEMS, Items[bytes])
    except DecodeError:
        return
    stated = msgspec.msgpack.decode(bytes(body))
    assert found.size == len(found) == len(found.keys) == stated[1] == len(stated[2])


@given(st.binary(max_size=200))
def test_any_bytes_are_refused_or_complete(body: bytes) -> None:
    try:
        found = unpack(body)
    except DecodeError:
        return
    assert found.size == len(found.rows) > 0


def test_a_deep_nest_is_refused() -> None:
    with pytest.raises(DecodeError):
        unpack(b"\x93\xa1s\x01" + b"\x91" * 100_000 + b"\xc0")


@pytest.mark.parametrize("kind", [Order, int, str, dict[str, int], set[Order], tuple[Order, Order]])
def test_a_handler_of_one_value_does_not_get_a_session(kind: Any) -> None:
    with pytest.raises(DecodeError, match=r"session s\.0 of 2 items") as caught:
        Codecs().decode(orders(2), ITEMS, kind)
    assert "list[Order]" in (caught.value.hint or "")


def test_an_item_that_cannot_be_decoded_is_named() -> None:
    body = body_of(ROWS[0], Row("", "", JSON, {}, b'{"id":"x"}'))
    with pytest.raises(DecodeError, match=r"item 2 of 2 of session s\.0: .* `\$\.id`"):
        Codecs().decode(body, ITEMS, list[Order])
    with pytest.raises(DecodeError, match="no codec is registered for 'x/y'"):
        Codecs().decode(body_of(Row("", "", "x/y", {}, b"")), ITEMS, list[Order])


def test_one_type_for_sessions_and_single_messages() -> None:
    kind: Any = Order | list[Order]
    codecs = Codecs()
    codecs.check(kind)
    assert codecs.decode(b'{"id":1}', JSON, kind) == Order(1)
    assert codecs.decode(orders(2), ITEMS, kind) == [Order(1), Order(2)]


def test_limits_on_the_length_hold() -> None:
    kind: Any = Annotated[list[Order], msgspec.Meta(max_length=2)]
    with pytest.raises(DecodeError, match="length <= 2"):
        Codecs().decode(orders(3), ITEMS, kind)


@pytest.mark.parametrize(
    ("body", "content_type"),
    [(b"[]", JSON), (b"x", "text/plain"), (b"{}", ""), (b"\x90", "application/msgpack")],
)
def test_items_are_made_of_sessions_only(body: bytes, content_type: str) -> None:
    with pytest.raises(DecodeError):
        Codecs().decode(body, content_type, Items[Order])


def test_a_type_is_checked_before_messages_come() -> None:
    class Unknown:
        pass

    codecs = Codecs()
    for good in (Items, Items[Order], Items[Any], Items[object], Items[Model], list[Order]):
        codecs.check(good)
    for bad in (Items[Unknown], list[Unknown], Items[Order] | Order):
        with pytest.raises(TypeError, match="cannot be decoded"):
            codecs.check(bad)


def test_types_that_cannot_be_hashed_have_a_form() -> None:
    form = form_of(Annotated[list[Order], []])
    assert form is not None
    assert form.element is Order
