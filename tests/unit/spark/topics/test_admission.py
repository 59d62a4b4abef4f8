from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ternmq.spark.broker.offsets import OffsetRange, TopicQueue
from ternmq.spark.topics.admission import shares, split

places = st.builds(TopicQueue, st.sampled_from("abc"), st.integers(0, 3))
backlogs = st.dictionaries(places, st.integers(0, 10**12), max_size=12)


@given(backlogs, st.integers(1, 10**12))
def test_shares_are_within_what_is_there_and_starve_nobody(backlog, most):
    found = shares(backlog, most)
    waiting = {place for place, rows in backlog.items() if rows}
    assert set(found) == waiting
    assert all(1 <= found[place] <= backlog[place] for place in found)
    total = sum(backlog.values())
    assert sum(found.values()) == min(total, max(most, len(waiting)))


@given(backlogs, st.integers(1, 10**12))
def test_shares_are_in_proportion(backlog, most):
    found = shares(backlog, most)
    total = sum(backlog.values())
    if total > most >= 4 * len(found) and all(
        most * rows >= total for rows in backlog.values() if rows
    ):
        for place, rows in found.items():
            assert abs(rows - most * backlog[place] / total) <= 1 + 1e-3


def test_the_order_of_queues_does_not_matter():
    one = {TopicQueue("a", 0): 10, TopicQueue("a", 1): 10, TopicQueue("b", 0): 10}
    other = dict(reversed(one.items()))
    assert shares(one, 20) == shares(other, 20)


spans = st.lists(
    st.builds(
        lambda start, rows: OffsetRange("a", 0, start, start + rows),
        st.integers(0, 10**9),
        st.integers(0, 10**4),
    ),
    max_size=5,
)


@given(spans, st.integers(1, 10**4), st.integers(0, 40))
def test_tasks_cover_the_spans_and_no_more(whole, most, least):
    found = split(whole, most, least)
    assert all(0 < span.rows <= most for span in found)
    joined: list[OffsetRange] = []
    left = iter(found)
    for span in whole:
        at = span.start
        while at < span.stop:
            piece = next(left)
            assert piece.start == at
            at = piece.stop
        joined.append(span)
    assert next(left, None) is None
    total = sum(span.rows for span in whole)
    assert len(found) >= min(least, total) or len([s for s in whole if s.rows]) >= least
