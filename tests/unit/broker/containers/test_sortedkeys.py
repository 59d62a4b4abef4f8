"""Keys in order: against a sorted set, whatever is added and taken out."""

from __future__ import annotations

from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from ternmq.broker.containers import sortedkeys
from ternmq.broker.containers.sortedkeys import SortedKeys

KEYS = st.integers(0, 60)


@given(st.lists(st.tuples(st.booleans(), KEYS), max_size=200), KEYS)
def test_they_are_those_of_a_set_in_order(steps: list[tuple[bool, int]], place: int) -> None:
    with patch.object(sortedkeys, "BLOCK_KEYS", 4):
        keys: SortedKeys[int] = SortedKeys()
        known: set[int] = set()
        for adds, key in steps:
            if adds:
                keys.add(key)
                known.add(key)
            else:
                keys.discard(key)
                known.discard(key)
            assert len(keys) == len(known)
        assert list(keys) == sorted(known)
        assert list(keys.behind(place)) == [key for key in sorted(known) if key > place]
        assert list(keys.at_or_behind(place)) == [key for key in sorted(known) if key >= place]


def test_many_names_come_in_order() -> None:
    names = [f"{number * 7919 % 5000:05d}" for number in range(5000)]
    keys = SortedKeys(names)
    assert list(keys) == sorted(names)
    assert list(keys.behind("04997")) == ["04998", "04999"]
    assert list(keys.behind("")) == sorted(names)
