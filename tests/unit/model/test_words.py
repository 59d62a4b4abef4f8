"""Numbers and names with the words that go with them."""

from __future__ import annotations

import pytest

from ternmq.model.words import article, counted, verb


@pytest.mark.parametrize(
    ("count", "told"),
    [
        (0, "0 messages are"),
        (1, "1 message is"),
        (2, "2 messages are"),
        (1234, "1,234 messages are"),
    ],
)
def test_a_number_has_its_words(count: int, told: str) -> None:
    assert f"{counted(count, 'message')} {verb(count, 'is', 'are')}" == told


@pytest.mark.parametrize(
    ("name", "told"),
    [("int", "an int"), ("str", "a str"), ("Order", "an Order"), ("UUID", "a UUID")],
)
def test_a_name_has_its_article(name: str, told: str) -> None:
    assert article(name) == told
