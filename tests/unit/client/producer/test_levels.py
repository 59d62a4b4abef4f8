"""The lanes of a topic with levels: a batch has one priority, and a queue of its level."""

from __future__ import annotations

import pytest

from ternmq.client.connection.address import parse
from ternmq.client.connection.options import Options
from ternmq.client.producer.lanes import TopicFacts, TopicLanes
from ternmq.client.producer.load import Lane
from ternmq.client.producer.outgoing import Outgoing
from ternmq.model.errors import InvalidRequest, UnknownQueue
from ternmq.record.batch.hashes import key_hash

SIX = TopicFacts(queues=6, levels=3)


def topic(facts: TopicFacts | None = SIX) -> TopicLanes:
    made = TopicLanes("t", Options(address=parse("ternmq://localhost")))
    if facts is not None:
        made.learn(facts)
    return made


def lane(of: TopicLanes, priority: int, queue: int | None = None, key: str = "") -> Lane:
    message = Outgoing(b"", key, "", "", {}, "", "", None, queue)
    message.priority = priority
    return of.lane_of(message)


def test_each_priority_has_a_lane_in_which_the_broker_chooses_the_queue() -> None:
    one = topic()
    found = [lane(one, priority) for priority in (0, 1, 2)]
    assert [(each.queue, each.level) for each in found] == [(None, 0), (None, 1), (None, 2)]
    assert len(set(found)) == 3
    assert found == [lane(one, priority) for priority in (0, 1, 2)]


def test_a_key_has_a_queue_in_each_level() -> None:
    one = topic()
    for priority in range(3):
        home = lane(one, priority, key="k")
        index = key_hash(b"k") % 2
        assert (home.queue, home.level) == (3 * index + priority, priority)
        assert home is lane(one, priority, queue=home.queue)


def test_a_queue_of_another_level_is_refused() -> None:
    one = topic()
    assert lane(one, 1, queue=4).level == 1
    for priority, queue in ((0, 4), (2, 4), (1, 0)):
        with pytest.raises(InvalidRequest, match=f"queue {queue} of topic 't' is of level"):
            lane(one, priority, queue=queue)
    with pytest.raises(UnknownQueue, match="has queues 0 to 5, not 6"):
        lane(one, 0, queue=6)
    assert one.of_queue(4, None).queue == 4
    with pytest.raises(InvalidRequest, match="is of level 1"):
        one.of_queue(4)


def test_a_priority_that_the_topic_does_not_have_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="has 3 levels: priority is 0 to 2, not 3"):
        lane(topic(), 3)
    for facts in (TopicFacts(), TopicFacts(queues=4)):
        with pytest.raises(InvalidRequest, match=r"has no levels, so leave priority=1 out"):
            lane(topic(facts), 1)


def test_whether_a_missing_topic_has_a_level_is_left_to_the_broker() -> None:
    one = topic(TopicFacts(there=False))
    first = lane(one, 1)
    assert (first.queue, first.level) == (None, 1)
    assert lane(one, 1) is first
    assert lane(one, 2).level == 2
    assert lane(one, 0).level == 0
    assert first in one.every()
    with pytest.raises(InvalidRequest, match=r"does not exist yet, .* leave out queue="):
        lane(one, 1, queue=0)
    one.facts = None
    assert lane(one, 1) is one.undecided


def test_with_outdated_facts_a_message_waits_for_new_ones() -> None:
    """The topic may have been made anew, with other levels."""
    assert lane(topic(None), 5).queue is None
    for facts, priority, queue in ((TopicFacts(), 1, None), (SIX, 3, None), (SIX, 0, 4)):
        one = topic(facts)
        one.facts = None
        assert lane(one, priority, queue) is one.undecided
