"""Ids of transactions, written and read."""

from __future__ import annotations

import pytest

from ternmq.model.errors import InvalidRequest
from ternmq.model.transaction_ids import transaction_id, transaction_number


@pytest.mark.parametrize(
    ("number", "id_"), [(1, "t-1"), (0x1F3, "t-1f3"), (2**64 - 1, "t-" + "f" * 16)]
)
def test_there_and_back(number: int, id_: str) -> None:
    assert transaction_id(number) == id_
    assert transaction_number(id_) == number


@pytest.mark.parametrize(
    "wrong", ["", "t-", "t-g", "1f3", "t-1F3", "t-1 ", " t-1", "t-" + "f" * 17, 7, None, b"t-1"]
)
def test_what_is_none(wrong: object) -> None:
    with pytest.raises(InvalidRequest, match="looks like 't-1f3'"):
        transaction_number(wrong)
