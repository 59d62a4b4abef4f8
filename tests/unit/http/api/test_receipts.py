from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ternmq.http.api import receipts
from ternmq.http.api.detached import Place
from ternmq.model.errors import InvalidRequest

u16, u32, u64 = (st.integers(0, (1 << bits) - 1) for bits in (16, 32, 64))
places = st.builds(Place, u32, u16, u32, u64, u64)
PLACE = Place(1, 2, 3, 4, 5)


@given(places)
def test_a_receipt_comes_back(place: Place) -> None:
    text = receipts.pack(place, "orders", "billing")
    assert len(text) == receipts.LENGTH
    assert receipts.unpack(text, "orders", "billing") == place


def test_golden() -> None:
    assert receipts.pack(PLACE, "orders", "billing") == (
        "AQACAAMAAAAEAAAAAAAAAAUAAAAAAAAAAQAAAMkTgGs"
    )


@given(st.integers(0, receipts.LENGTH - 1), st.sampled_from("ABCDEFabcdef0123456789-_"))
def test_a_changed_one_is_refused(at: int, sign: str) -> None:
    text = receipts.pack(PLACE, "orders", "billing")
    changed = text[:at] + sign + text[at + 1 :]
    if changed != text:
        with pytest.raises(InvalidRequest):
            receipts.unpack(changed, "orders", "billing")


@pytest.mark.parametrize(("topic", "group"), [("orders", "other"), ("other", "billing")])
def test_it_is_for_its_group(topic: str, group: str) -> None:
    with pytest.raises(InvalidRequest, match="is no receipt of group"):
        receipts.unpack(receipts.pack(PLACE, "orders", "billing"), topic, group)


@pytest.mark.parametrize("text", ["", "x", "ü" * 43, "=" * 43, "a" * 44, 7, None, "a b" + "c" * 40])
def test_nonsense(text: object) -> None:
    with pytest.raises(InvalidRequest):
        receipts.unpack(text, "orders", "billing")
