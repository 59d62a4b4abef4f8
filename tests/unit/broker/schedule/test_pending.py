"""The horizon moves in pieces, and tells which topics got rows."""

from __future__ import annotations

from ternmq.broker.schedule.pending import HORIZON_US, Schedule
from ternmq.model.types import HOUR_US
from ternmq.record.batch.batch import Row, encode
from ternmq.record.fact.messages import Messages
from ternmq.record.fact.schedule import NO_QUEUE

SEGMENT = 1 << 20
_PAGE = 1024


def scheduled(schedule: Schedule, topic: int, *due_us: int) -> None:
    """Schedule a row of a topic for each due time, in one record."""
    batch = encode(
        [Row(body=b"row", due_us=one) for one in due_us],
        topic_seed=1, producer_id=1, first_sequence=0, born_us=1,
    )  # fmt: skip
    fact = Messages(topic, NO_QUEUE, schedule.next_entry, len(due_us), (), batch)
    schedule.apply_scheduled(64 * schedule.next_entry, 1, fact)


def opened() -> Schedule:
    schedule = Schedule(SEGMENT)
    schedule.finish(range(9), 0)
    assert schedule.horizon_us == HORIZON_US
    return schedule


def test_a_load_tells_of_each_topic_that_got_rows_once() -> None:
    schedule = opened()
    scheduled(schedule, 1, *[3 * HOUR_US] * _PAGE)
    scheduled(schedule, 2, 3 * HOUR_US, 2 * HOUR_US)
    scheduled(schedule, 3, 9 * HOUR_US)
    scheduled(schedule, 4, 2 * HOUR_US)
    assert schedule.load(4 * HOUR_US, 1)
    assert schedule.take_loaded(9) == [], "the load is not over"
    assert schedule.next_due_us(schedule.topics[1]) is None
    assert schedule.load(4 * HOUR_US, 1)
    assert not schedule.load(4 * HOUR_US, 1)
    assert [one.topic for one in schedule.take_loaded(2)] == [1, 2]
    assert schedule.loaded
    assert [one.topic for one in schedule.take_loaded(2)] == [4]
    assert schedule.take_loaded(2) == []
    assert schedule.next_due_us(schedule.topics[2]) == 2 * HOUR_US


def test_a_row_that_is_scheduled_during_a_load_belongs_to_it() -> None:
    schedule = opened()
    scheduled(schedule, 1, *[3 * HOUR_US] * _PAGE, 3 * HOUR_US)
    assert schedule.load(4 * HOUR_US, 1)
    scheduled(schedule, 2, 2 * HOUR_US)
    scheduled(schedule, 3, HORIZON_US - 1, 5 * HOUR_US)
    while schedule.load(4 * HOUR_US, 1):
        pass
    assert [one.topic for one in schedule.take_loaded(9)] == [1, 2]


def test_a_load_tells_of_no_topic_that_is_gone() -> None:
    schedule = opened()
    scheduled(schedule, 1, 2 * HOUR_US)
    scheduled(schedule, 2, 2 * HOUR_US)
    while schedule.load(4 * HOUR_US, 1):
        pass
    schedule.drop_topic(1)
    assert [one.topic for one in schedule.take_loaded(9)] == [2]
    assert not schedule.loaded


def test_a_start_has_loaded_what_is_near() -> None:
    schedule = Schedule(SEGMENT)
    scheduled(schedule, 1, 1 + HORIZON_US // 2)
    schedule.finish(range(9), 0)
    assert not schedule.loaded
    assert schedule.next_due_us(schedule.topics[1]) == 1 + HORIZON_US // 2
