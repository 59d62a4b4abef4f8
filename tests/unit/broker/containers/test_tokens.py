"""Values by token beside a dict of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ternmq.broker.containers.tokens import Tokens


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 600)), max_size=200), st.integers(1, 5))
def test_the_same_as_a_dict(steps: list[tuple[bool, int]], times: int) -> None:
    tokens: Tokens[str] = Tokens()
    model: dict[int, str] = {}
    last = 0
    for adds, number in steps * times:
        if adds:
            last += 1 + number
            tokens.add(last, str(last))
            model[last] = str(last)
        elif model:
            gone = list(model)[number % len(model)]
            assert tokens.pop(gone) == model.pop(gone)
            assert gone not in tokens
            assert tokens.get(gone) is None
            with pytest.raises(KeyError):
                tokens.pop(gone)
        assert len(tokens) == len(model)
        assert list(tokens) == list(model)
        assert list(tokens.values()) == list(model.values())
        if model:
            assert tokens.first() == next(iter(model.values()))
    assert all(one in tokens and tokens.get(one) == str(one) for one in model)


def test_no_piece_is_large_or_empty() -> None:
    tokens: Tokens[int] = Tokens()
    for token in range(10_000):
        tokens.add(token, token)
        if token >= 3_000:
            tokens.pop(token - 3_000)
    pieces = tokens._pieces
    assert max(map(len, pieces.values())) <= 256
    assert all(pieces.values())
    for token in list(tokens):
        tokens.pop(token)
    assert len(pieces) == 1
    tokens.add(20_000, 0)
    assert len(pieces) == 1
    assert len(pieces) <= 3_000 // 256 + 2
