"""Apps in turns, and within an app its connections."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ternmq.server.engine.fairqueue import FairQueue


def test_another_apps_item_waits_for_one_not_for_all():
    queue: FairQueue[str, str, int, tuple[str, int]] = FairQueue()
    for connection in "xyz":
        for key in range(1000):
            queue.put("evil", connection, key, (connection, key))
    queue.put("good", "g", 1, ("g", 1))
    queue.put("good", "g", 2, ("g", 2))
    taken = [queue.pop()[1] for _ in range(6)]
    assert taken == [("x", 0), ("g", 1), ("y", 0), ("g", 2), ("z", 0), ("x", 1)]


def test_keys_are_found_replaced_and_dropped():
    queue: FairQueue[str, str, int, str] = FairQueue()
    queue.put("a", "x", 1, "one")
    queue.put("a", "x", 2, "two")
    queue.put("a", "x", 1, "again")
    assert len(queue) == 2
    assert queue.get("a", "x", 1) == "again"
    assert queue.get("a", "y", 1) is None
    assert queue.get("b", "x", 1) is None
    assert queue.keys_of("a", "x") == [1, 2]
    assert queue.keys_of("b", "x") == []
    assert queue.drop("a", "x") == ["again", "two"]
    assert queue.drop("a", "x") == []
    assert not queue
    with pytest.raises(KeyError):
        queue.pop()


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3), st.integers(0, 5)) | st.none())
)
def test_nobody_is_passed_over(steps):
    """Between two items of an app, every other app that waited all the time has its turn."""
    queue: FairQueue[str, int, int, tuple[str, int, int]] = FairQueue()
    inside: dict[tuple[str, int, int], None] = {}
    since: dict[str, Counter[str]] = {}
    for step in steps:
        if step is not None:
            app, member, key = step
            if not any(one[0] == app for one in inside):
                since[app] = Counter()
            queue.put(app, member, key, step)
            inside[step] = None
        elif inside:
            _, taken = queue.pop()
            del inside[taken]
            for app, seen in since.items():
                if app != taken[0]:
                    seen[taken[0]] += 1
                    assert max(seen.values()) <= 2
            since.pop(taken[0], None)
            if any(one[0] == taken[0] for one in inside):
                since[taken[0]] = Counter()
        assert len(queue) == len(inside)
