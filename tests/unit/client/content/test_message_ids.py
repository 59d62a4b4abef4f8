"""Ids of messages: written, read, and told from other texts."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ternmq
from ternmq.client.content.message import message_id

NUMBERS = st.integers(0, 2**64 - 1)


@given(NUMBERS, NUMBERS)
def test_there_and_back(producer: int, sequence: int) -> None:
    text = message_id(producer, sequence)
    found = ternmq.parse_id(text)
    assert (found.producer, found.sequence, str(found)) == (producer, sequence, text)


@pytest.mark.parametrize("text", ["", ":", "1:", ":1", "order-7", "1:G", "1:2:3", "1:2\n", 7, None])
def test_what_is_no_id(text: Any) -> None:
    with pytest.raises(ternmq.InvalidRequest, match="is not a message id"):
        ternmq.parse_id(text)
