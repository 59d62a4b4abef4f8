"""Where ids belong; the databases are in tests/integration/reliable."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ternmq.model.errors import InvalidRequest
from ternmq.reliable.inbox.shards import check_names, shard_of

NAMES = st.lists(
    st.text("abcdefghijklmnopqrstuvwxyz0123456789-", min_size=1, max_size=8),
    min_size=1, max_size=6, unique=True,
)  # fmt: skip


def test_an_id_has_the_same_shard_in_every_version() -> None:
    found = [shard_of(f"order-{number}".encode(), ("a", "b", "c")) for number in range(12)]
    assert "".join(found) == PINNED


PINNED = "caacacaaaacc"
"""As long as rows are kept that were written with it, the function cannot change."""


@given(NAMES, st.binary(min_size=1, max_size=128))
def test_the_order_of_the_names_does_not_count(names: list[str], id_: bytes) -> None:
    assert shard_of(id_, names) == shard_of(id_, names[::-1])


@given(NAMES, st.binary(min_size=1, max_size=128))
def test_a_shard_less_moves_only_its_own_ids(names: list[str], id_: bytes) -> None:
    home = shard_of(id_, names)
    for gone in names:
        left = [name for name in names if name != gone]
        if left and gone != home:
            assert shard_of(id_, left) == home


@pytest.mark.parametrize("names", [("a", "b"), ("eu-1", "eu-2", "eu-3"), ("0", "1", "2", "3", "4")])
def test_ids_are_spread_evenly(names: tuple[str, ...]) -> None:
    counts = Counter(shard_of(f"order-{number}".encode(), names) for number in range(100_000))
    assert set(counts) == set(names)
    mean = 100_000 / len(names)
    assert all(0.95 * mean <= count <= 1.05 * mean for count in counts.values()), counts


@pytest.mark.parametrize("names", [[], [""], ["a b"], ["a:b"], ["ä"], ["x" * 33], [1]])
def test_names_that_are_refused(names: list[object]) -> None:
    with pytest.raises(InvalidRequest):
        check_names(names)
