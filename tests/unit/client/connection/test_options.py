"""Options that are refused before a connection is made."""

from __future__ import annotations

import pytest

from ternmq.access import tokens
from ternmq.client.connection.connecting import options_of
from ternmq.client.connection.options import LONGEST_TOKEN
from ternmq.model.errors import InvalidRequest


def test_a_text_that_is_longer_than_a_token_is_refused() -> None:
    """The broker would only say that the greeting is too large a frame."""
    assert LONGEST_TOKEN == tokens.LONGEST
    longest = "x" * LONGEST_TOKEN
    assert options_of(None, "app", longest, 1.0, 1.0).token == longest
    with pytest.raises(InvalidRequest, match="the token has 70,000 characters") as refused:
        options_of(None, "app", "x" * 70_000, 1.0, 1.0)
    assert "xxx" not in str(refused.value)
