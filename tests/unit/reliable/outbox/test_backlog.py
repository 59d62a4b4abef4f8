"""What is sent when: order of keys, blocked keys and topics, waits and failures."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ternmq
from ternmq.model.errors import DueTooFar, EncodeError, OutcomeUnknown, ProtocolError
from ternmq.reliable.outbox.backlog import LONG_S, Backlog, Fate
from ternmq.reliable.outbox.rows import Row

STORED = ternmq.Receipt("orders", 0, 1, True, False, 1, 1)


def row(
    seq: int, key: str = "", topic: str = "orders", tries: int = 0, error: str | None = None
) -> Row:
    return Row(
        seq, 0, not key, tries, 0, 0, f"id-{seq}", topic, None, "", key, "", "", {}, 0, None, None,
        1, error, b"",
    )  # fmt: skip


def backlog() -> Backlog:
    return Backlog(attempts=5, chance=random.Random(1))


def numbers(waves: Sequence[Sequence[Row]]) -> list[list[int]]:
    return [[one.seq for one in wave] for wave in waves]


def test_rows_without_a_key_go_together_and_those_of_a_key_one_after_the_other() -> None:
    plan = backlog().plan([row(1), row(2, "a"), row(3, "b"), row(4, "a"), row(5), row(6, "a")], 0)
    assert numbers(plan.waves) == [[1, 2, 3, 5], [4], [6]]
    assert not plan.hold


def test_equal_keys_of_two_topics_are_two_keys() -> None:
    plan = backlog().plan([row(1, "a"), row(2, "a", "payments")], 0)
    assert numbers(plan.waves) == [[1, 2]]


def test_a_key_waits_behind_its_refused_row() -> None:
    it = backlog()
    first, second, other = row(1, "a"), row(2, "a"), row(3, "b")
    change = it.answered(first, ternmq.UnknownQueue("no queue 7"), 0)
    assert (change.fate, change.tries, change.wait_s) == (Fate.REFUSED, 1, 1.0)
    assert "UnknownQueue" in change.error
    assert it.is_waiting(second, 0)
    assert not it.is_waiting(other, 0)
    plan = it.plan([second, other], 0)
    assert numbers(plan.waves) == [[3]]
    assert [ref.seq for ref in plan.hold] == [2]
    assert plan.doubtful == [1]
    # The row itself goes again when its wait is over, and frees its key once it is stored.
    plan = it.plan([row(1, "a", tries=1), second], 1)
    assert numbers(plan.waves) == [[1]]
    it.answered(row(1, "a", tries=1), STORED, 1)
    assert numbers(it.plan([second], 1).waves) == [[2]]


def test_a_row_that_committed_late_under_a_smaller_number_passes_a_blocked_one() -> None:
    it = backlog()
    it.answered(row(5, "a"), ternmq.UnknownQueue("no"), 0)
    assert numbers(it.plan([row(4, "a"), row(6, "a")], 0).waves) == [[4]]


def test_a_row_fails_after_five_refusals_with_longer_and_longer_waits() -> None:
    it = backlog()
    waits = []
    for tries in range(4):
        change = it.answered(row(1, tries=tries), ternmq.Forbidden("no right"), 0)
        assert change.fate is Fate.REFUSED
        waits.append(change.wait_s)
    assert waits == [1, 2, 4, 8]
    change = it.answered(row(1, tries=4), ternmq.Forbidden("no right"), 0)
    assert (change.fate, change.tries) == (Fate.FAILED, 5)


@pytest.mark.parametrize(
    "error",
    [
        ternmq.MessageTooLarge("20 MiB"),
        ternmq.InvalidName("a b"),
        ternmq.IdConflict("another message"),
        EncodeError("no"),
        DueTooFar("in 800 days"),
    ],
)
def test_what_no_time_mends_fails_at_once(error) -> None:
    it = backlog()
    assert it.answered(row(1, "a"), error, 0).fate is Fate.FAILED
    assert it.is_waiting(row(2, "a"), 0)  # an operator decides about the key


def test_tries_without_an_answer_do_not_count_as_refusals() -> None:
    it = backlog()
    later = it.answered(row(1, tries=20), ternmq.SendTimeout("?"), 0)
    assert (later.fate, later.tries) == (Fate.LATER, 21)
    lost = row(1, tries=21, error=later.error)
    assert it.answered(lost, ternmq.Forbidden("no right"), 9).fate is Fate.REFUSED


@pytest.mark.parametrize(
    ("error", "tries", "fate"),
    [
        ("Forbidden: no right", 4, Fate.FAILED),
        ("Forbidden: no right", 3, Fate.REFUSED),
        ("TopicNotDurable: it is fast", 4, Fate.FAILED),
        ("SendTimeout: no answer", 4, Fate.REFUSED),
        ("CannotConnect: no broker", 4, Fate.REFUSED),
        ("Busy: later", 4, Fate.REFUSED),
        ("ValueError: of a codec", 4, Fate.REFUSED),
        (None, 0, Fate.REFUSED),
    ],
)
def test_refusals_by_other_processes_count(error, tries, fate) -> None:
    """That of the process that wrote the row, or of the compensator before."""
    change = backlog().answered(row(1, tries=tries, error=error), ternmq.Forbidden("no right"), 0)
    assert (change.fate, change.tries) == (fate, tries + 1)


def test_refusals_are_remembered_over_a_lost_answer() -> None:
    it = backlog()
    for tries in range(4):
        it.answered(row(1, tries=tries, error="Forbidden: no"), ternmq.Forbidden("no"), 0)
    it.answered(row(1, tries=4, error="Forbidden: no"), ternmq.SendTimeout("?"), 0)
    last = it.answered(row(1, tries=5, error="SendTimeout: ?"), ternmq.Forbidden("no"), 9)
    assert last.fate is Fate.FAILED


def test_any_number_of_attempts_has_a_wait() -> None:
    it = Backlog(attempts=10_000)
    assert (
        it.answered(row(1, tries=5_000, error="Forbidden: no"), ternmq.Forbidden("no"), 0).wait_s
        == 60.0
    )


@pytest.mark.parametrize(
    "error",
    [ternmq.CannotConnect("away"), ternmq.ConnectionLost("away"), ternmq.Unauthenticated("no"),
     ternmq.ClientClosed("closed"), ProtocolError("bytes")],
)  # fmt: skip
def test_a_broker_that_is_away_blocks_nothing(error) -> None:
    it = backlog()
    assert it.answered(row(1, "a"), error, 0).fate is Fate.AWAY
    assert numbers(it.plan([row(1, "a"), row(2, "b")], 0).waves) == [[1, 2]]


@pytest.mark.parametrize(
    "error", [ternmq.Busy("later"), ternmq.DiskFull("full"), ternmq.SendTimeout("?"),
              OutcomeUnknown("?"), ternmq.BufferFull("full"), ternmq.StrictNeedsReplica("one copy")]
)  # fmt: skip
def test_a_topic_that_is_busy_waits_and_others_go_on(error) -> None:
    it = backlog()
    now = 100.0
    for least in (0.5, 1, 2, 4, 8, 16, 30, 30):
        change = it.answered(row(1), error, now)
        assert change.fate is Fate.LATER
        it.answered(row(2), error, now)  # of the same send: counts once
        assert it.is_waiting(row(3), now + least * 0.99)
        assert not it.is_waiting(row(3, topic="payments"), now)
        now += least * 1.26
        assert not it.is_waiting(row(3), now)
    it.answered(row(1), STORED, now)
    it.answered(row(2), error, now)
    assert not it.is_waiting(row(3), now + 0.7)  # it begins anew


def test_rows_behind_one_that_was_not_stored_wait_though_another_of_the_topic_was() -> None:
    it = backlog()
    it.plan([row(1, "a"), row(2), row(3, "a"), row(4)], 0)
    it.answered(row(1, "a"), ternmq.Busy("later"), 0)
    it.answered(row(2), STORED, 0)  # the topic works
    assert it.is_waiting(row(3, "a"), 0)
    assert not it.is_waiting(row(4), 0)
    assert numbers(it.plan([row(1, "a"), row(3, "a")], 0).waves) == [[1], [3]]


def test_rows_of_a_topic_that_waits_long_are_held_and_released() -> None:
    it = backlog()
    now = 0.0
    while (wait := it._topics.get("orders")) is None or wait.wait_s < LONG_S:
        it.answered(row(1), ternmq.Busy("later"), now)
        assert it.to_release(now + 40) == []  # short waits hold nothing
        now += 40
    now -= 40
    plan = it.plan([row(2), row(3, topic="payments")], now)
    assert [ref.seq for ref in plan.hold] == [2]
    assert it.to_release(now) == []
    now += 40
    assert it.to_release(now) == ["orders"]
    assert it.to_release(now) == []
    it.answered(row(2), ternmq.Busy("later"), now)
    it.plan([row(2)], now)
    it.answered(row(2), STORED, now)
    assert it.to_release(now) == ["orders"]


def test_a_compensator_that_takes_over_begins_with_what_the_table_says() -> None:
    it = backlog()
    it.answered(row(9, "z"), ternmq.Forbidden("no"), 0)
    it.take_over([("orders", "a", 3)])
    plan = it.plan([row(3, "a", tries=1), row(4, "a"), row(10, "z")], 0)
    assert numbers(plan.waves) == [[3, 10]]
    assert [ref.seq for ref in plan.hold] == [4]


def test_a_key_is_free_once_an_operator_discarded_its_row() -> None:
    it = backlog()
    it.take_over([("orders", "a", 3), ("orders", "b", 4)])
    assert it.still_blocking([3, 4], [4]) == [("orders", "a")]
    plan = it.plan([row(5, "a"), row(6, "b")], 0)
    assert numbers(plan.waves) == [[5]]


class Rows:
    """A table with what a compensator does to it, and what arrives at the broker."""

    def __init__(self, keys: Sequence[str]) -> None:
        self.backlog = backlog()
        self.rows = {seq: row(seq, key) for seq, key in enumerate(keys)}
        self.state = dict.fromkeys(self.rows, "sending")
        self.arrived: list[int] = []

    def release(self, chosen: Callable[[Row], bool]) -> None:
        for seq, one in self.state.items():
            if one == "held" and chosen(self.rows[seq]):
                self.state[seq] = "sending"

    def scan(self, now: float, answer: Callable[[], ternmq.Receipt | Exception]) -> None:
        for topic in self.backlog.to_release(now):
            self.release(lambda one, topic=topic: one.topic == topic)  # type: ignore[misc]
        page = [self.rows[seq] for seq, one in self.state.items() if one == "sending"]
        plan = self.backlog.plan(page, now)
        for ref in plan.hold:
            self.state[ref.seq] = "held"
        for wave in plan.waves:
            sent = [one for one in wave if not self.backlog.is_waiting(one, now)]
            for one, outcome in [(one, answer()) for one in sent]:
                self.answered(one, outcome, now)

    def answered(self, one: Row, outcome: ternmq.Receipt | Exception, now: float) -> None:
        if outcome is STORED or isinstance(outcome, ternmq.SendTimeout):
            self.arrived.append(one.seq)  # the answer may be what was lost
        change = self.backlog.answered(one, outcome, now)
        one.tries = change.tries
        if change.fate is Fate.SENT:
            del self.state[one.seq]
            self.release(lambda other: other.ordering_key == one.ordering_key)
        elif change.fate is Fate.FAILED:
            self.state[one.seq] = "failed"


@given(st.data())
def test_the_first_copies_of_a_key_arrive_in_order_whatever_the_broker_answers(data) -> None:
    """With any answers, over many passes, by one compensator."""
    table = Rows(data.draw(st.lists(st.sampled_from(["", "a", "b"]), min_size=1, max_size=12)))
    answers = st.sampled_from([STORED, STORED, ternmq.Busy("later"), ternmq.Forbidden("no"),
                               ternmq.SendTimeout("lost")])  # fmt: skip
    for turn in range(30):
        table.scan(turn * 5.0, lambda: data.draw(answers))
    for key in "ab":
        of_key = [seq for seq, one in table.rows.items() if one.ordering_key == key]
        firsts = [seq for seq in dict.fromkeys(table.arrived) if seq in of_key]
        assert firsts == sorted(firsts)
        failed = [seq for seq in of_key if table.state.get(seq) == "failed"]
        assert len(failed) <= 1  # nothing passes it
        assert all(seq <= failed[0] for seq in firsts if failed)
