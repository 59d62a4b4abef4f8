"""Failed rows are listed by pages, each of them a bounded piece of work."""

from __future__ import annotations

from functools import partial

import pytest

from ternmq.broker.query.messages import LISTED_WORK, Queries
from ternmq.model.specs import Limits, RetryPolicy
from ternmq.record.fact.facts import Outcome
from tests.unit.broker.kit import SECOND, World, waiting

ROWS = 300


def failing(times: int, reason: str = "because", outcome: Outcome = Outcome.RETRY) -> World:
    """Return a broker with rows that failed so many times."""
    world = World(Limits(pull_messages=ROWS), segment_bytes=8 << 20)
    world.topic("t")
    world.group("t", "g", retry=RetryPolicy(first_us=SECOND, factor=1.0, attempts=100, jitter=0.0))
    session = world.join()
    world.send("t", ROWS)
    for time in range(times):
        pulled = world.pull(session, "t", "g", ROWS)
        assert pulled is not None
        last = time == times - 1
        world.settle(session, "t", "g", pulled, outcome if last else Outcome.RETRY, reason=reason)
        if not last:
            world.pass_time(SECOND)
    return world


@pytest.mark.parametrize(("times", "dead"), [(1, False), (7, False), (7, True)])
def test_a_page_of_failed_rows_is_bounded_and_all_come(times: int, dead: bool) -> None:
    world = failing(times, outcome=Outcome.DEAD if dead else Outcome.RETRY)
    queries = Queries(world.broker.ledger)
    ask = queries.dead_letters if dead else queries.waiting
    offsets: list[int] = []
    more = True
    while more:
        after = offsets[-1] if offsets else -1
        page = waiting(partial(ask, "t", "g", 0, after=after, limit=ROWS))
        assert page.rows
        assert len(page.rows) <= LISTED_WORK // (2 + times) + 1
        assert all(len(row.failures) == times for row in page.rows)
        offsets += [row.offset for row in page.rows]
        more = page.more
    assert offsets == list(range(ROWS))


def test_a_page_reads_little_where_the_records_are_large() -> None:
    world = failing(3, reason="x" * 4000)
    page = waiting(lambda: Queries(world.broker.ledger).waiting("t", "g", 0, limit=ROWS))
    assert 1 <= len(page.rows) <= (LISTED_WORK << 9) // (3 * 4000) + 1
    assert page.more


def test_the_last_page_says_so() -> None:
    world = failing(1)
    page = Queries(world.broker.ledger).waiting("t", "g", 0, after=ROWS - 3, limit=2)
    assert ([row.offset for row in page.rows], page.more) == ([ROWS - 2, ROWS - 1], False)
    page = Queries(world.broker.ledger).waiting("t", "g", 0, after=ROWS - 3, limit=1)
    assert ([row.offset for row in page.rows], page.more) == ([ROWS - 2], True)
