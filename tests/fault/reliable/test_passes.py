"""Order and loss over passes of compensators, deterministically: see ``passes``."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ternmq.model.errors import (
    Busy,
    CannotConnect,
    ConnectionLost,
    Forbidden,
    MessageTooLarge,
    SendTimeout,
)
from tests.fault.reliable.passes import Passes, once

ERRORS = (CannotConnect, ConnectionLost, SendTimeout, Busy, Forbidden, MessageTooLarge)


@pytest.fixture
def passes(tmp_path) -> Iterator[Passes]:
    with Passes(tmp_path) as made:
        yield made


@pytest.mark.parametrize("error", ERRORS)
def test_a_row_waits_for_the_answer_to_the_one_before(passes, error):
    """Whatever the answer was: the broker may be back in the middle of a pass."""
    passes.write("k1", key="k")
    passes.write("k2", key="k")
    passes.write("other", key="other")
    passes.broker.answers = once(error("no"), "k1")
    one = passes.compensator()
    assert one.lead()
    one.scan()
    assert passes.broker.stored == ["other"]
    assert passes.left() == ["k1", "k2"]
    passes.pass_time(2)
    one.scan()
    if error is MessageTooLarge:
        assert passes.left() == ["k1", "k2"], "an operator decides"
    else:
        one.scan()  # what was held with it
        assert passes.broker.stored == ["other", "k1", "k2"]
        assert passes.left() == []


def test_a_row_that_was_not_sent_is_not_overtaken_when_its_topic_waits_no_more(passes):
    """The first part of a wave fails, so the second is left out; the pass lasts longer than that.

    Then the next row of a key that was left out must wait, too.
    """
    large = b"x" * (3 << 20)
    passes.write("first", key="first", body=large)
    passes.write("k1", key="k", body=large)
    passes.write("z1", topic="zoo", body=large)
    passes.write("k2", key="k")

    def answers(topic, message):
        if topic == "zoo":
            passes.pass_time(1)
        return SendTimeout("no answer") if message.id == "first" else None

    passes.broker.answers = answers
    one = passes.compensator()
    assert one.lead()
    one.scan()
    assert passes.broker.asked == [["first"], ["z1"]]
    passes.broker.answers = lambda topic, message: None
    one.scan()
    assert [id_ for id_ in passes.broker.stored if id_[0] == "k"] == ["k1", "k2"]


@pytest.mark.parametrize("back_s", [1, 60, 3000, 86_400])
def test_a_database_clock_that_is_set_back_changes_no_order(passes, back_s):
    """A row that was tried is tried again, or blocks its key: the next one does not overtake it."""
    passes.write("k1", key="k")
    passes.write("k2", key="k")
    passes.broker.answers = once(SendTimeout("no answer"), "k1")
    one = passes.compensator()
    assert one.lead()
    one.scan()
    passes.pass_time(1)
    passes.ms -= back_s * 1000
    one.scan()
    assert passes.broker.stored == ["k1", "k2"]
    assert passes.left() == []


def test_a_row_that_commits_late_under_a_small_number_is_sent(passes):
    """Its transaction began first; rows behind it were read, sent and deleted meanwhile."""
    passes.write("x", "y", "z", key="k")
    one = passes.compensator()
    assert one.lead()
    passes.write("after", key="other", seq=900)
    one.scan()
    assert passes.left() == []
    passes.write("late", key="late", seq=5)
    passes.write("later", key="late", seq=901)
    one.scan()
    assert passes.broker.stored[-2:] == ["late", "later"]
    assert passes.left() == []


def test_rows_are_there_until_they_are_answered(passes):
    """Nobody could send them again, if this process died while it waits."""
    refs = passes.write("own", by_writer=True)
    passes.write("k1", key="k")
    seen = []

    def answers(topic, message):
        seen.append(message.id in passes.left())

    passes.broker.answers = answers
    assert passes.own_rows().send(refs) == []
    one = passes.compensator()
    assert one.lead()
    one.scan()
    assert seen == [True, True]
    assert passes.left() == []


def test_one_of_two_leads_until_it_does_not_renew(passes):
    one, two = passes.compensator("one"), passes.compensator("two")
    assert one.lead()
    assert not two.lead()
    passes.pass_time(5)
    assert one.lead()
    passes.pass_time(9)
    assert not two.lead()
    passes.pass_time(2)
    assert two.lead()
    assert not one.lead()
    two.give_back()
    assert one.lead()


@pytest.mark.parametrize("jump_s", [3600, -3600])
def test_a_database_clock_that_jumps_leaves_no_lease_stuck(passes, jump_s):
    """Forth: another one takes it at once, and the holder notices. Back: nobody waits an hour."""
    one, two = passes.compensator("one"), passes.compensator("two")
    assert one.lead()
    passes.ms += jump_s * 1000
    assert two.lead()
    assert not one.lead()
    passes.pass_time(11)
    passes.ms -= jump_s * 1000
    assert one.lead()
    passes.write("k1", "k2", key="k")
    one.scan()
    assert passes.broker.stored == ["k1", "k2"]


def test_a_page_that_was_read_before_a_freeze_is_thrown_away(passes):
    """The leader is frozen within a pass; another one leads, and the first sends nothing more."""
    large = b"x" * (3 << 20)
    passes.write("a", key="a", body=large)
    passes.write("b", key="b", body=large)
    one, two = passes.compensator("one"), passes.compensator("two")
    assert one.lead()

    def answers(topic, message):
        if message.id == "a":
            passes.pass_time(60)
            assert two.lead()

    passes.broker.answers = answers
    one.scan()
    assert passes.broker.asked == [["a"]]
    two.scan()
    assert passes.broker.stored == ["a", "b"]
    assert passes.left() == []
    assert passes.stats.duplicates == 0
