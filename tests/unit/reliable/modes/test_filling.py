"""Sessions while they fill."""

from __future__ import annotations

import pytest

from ternmq.client.content.items import Row, pack_item, unpack
from ternmq.model.errors import MessageTooLarge
from ternmq.reliable.modes.filling import Filling

MOST = 1 << 20


def item(body: bytes) -> bytes:
    return pack_item(Row("", "", "", {}, body))


def bodies(body: bytes) -> list[bytes]:
    return [row.body for row in unpack(body).rows]


def test_sessions_are_numbered_and_hold_what_was_added() -> None:
    filling = Filling("h", 2)
    assert filling.seal() is None
    seen = []
    for number in range(5):
        filling.add(item(b"%d" % number), MOST)
        if filling.full:
            packed = filling.seal()
            assert packed is not None
            seen.append((packed.name, packed.size, bodies(packed.body)))
            filling.sent()
    rest = filling.seal()
    assert rest is not None
    assert seen == [("h.0", 2, [b"0", b"1"]), ("h.1", 2, [b"2", b"3"])]
    assert (rest.name, rest.size, bodies(rest.body)) == ("h.2", 1, [b"4"])


def test_a_sealed_session_stays_the_same_until_it_is_sent() -> None:
    filling = Filling("h", 20)
    filling.add(item(b"1"), MOST)
    states = [filling.sealed]
    first = filling.seal()
    states.append(filling.sealed)
    assert filling.seal() is first
    filling.sent()
    states.append(filling.sealed)
    assert states == [False, True, False]
    assert (len(filling), filling.session) == (0, "h.1")


def test_an_item_that_does_not_fit_changes_nothing() -> None:
    filling = Filling("h", 20)
    filling.add(item(b"1"), MOST)
    with pytest.raises(MessageTooLarge, match="with this item") as caught:
        filling.add(item(bytes(MOST)), MOST)
    assert "flush()" in (caught.value.hint or "")
    filling.add(item(b"2"), MOST)
    packed = filling.seal()
    assert packed is not None
    assert bodies(packed.body) == [b"1", b"2"]


def test_an_item_that_never_fits_is_told_so() -> None:
    with pytest.raises(MessageTooLarge) as caught:
        Filling("h", 20).add(item(bytes(MOST)), MOST)
    assert "alone" in (caught.value.hint or "")


def test_the_limit_is_exact() -> None:
    def filled(most: int) -> bytes:
        filling = Filling("h", 50)
        for _ in range(20):  # more than a short array has
            filling.add(item(bytes(100)), most)
        packed = filling.seal()
        assert packed is not None
        return packed.body

    size = len(filled(MOST))
    assert len(filled(size)) == size
    with pytest.raises(MessageTooLarge, match=f"{size} bytes .* accepts {size - 1}"):
        filled(size - 1)
