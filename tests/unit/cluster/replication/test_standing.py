"""Who may stand for primary, when, and what the record then says."""

from __future__ import annotations

import msgspec
import pytest

from ternmq.cluster.coordination.record import Floor, Leadership, Member, Writer, Writes, pack
from ternmq.cluster.replication.settings import CopySettings
from ternmq.cluster.replication.standing import Loyalty, MayNotStand, handover, succession
from ternmq.model.types import Epoch, Position

SECOND = 1_000_000
LEASE = 3 * SECOND
A, B, C = Member("a", 1), Member("b", 2), Member("c", 3)
RECORD = Leadership(
    version=7,
    writer=Writer("a", 1, 3),
    journal=99,
    epoch=Epoch(5),
    primary="a",
    members=(A, B, C),
    floor=Floor(Epoch(5), Position(1000), 17),
    cut_below=Position(900),
    why="two copies",
    at_us=4,
    kept={"later": b"\x01"},
)


def loyal(told: int = 5) -> Loyalty:
    return Loyalty(CopySettings(), Epoch(told), 100 * SECOND)


def stands(me: Member, record: Leadership = RECORD) -> Leadership:
    writer = Writer(me.broker, me.incarnation or 9, 1)
    return succession(record, me, writer, Writes.CLOSED, "a is gone", 5)


# -- when -----------------------------------------------------------------------------------------


def test_nobody_stands_within_a_lease_of_its_last_promise() -> None:
    one = loyal()
    one.promises(110 * SECOND, LEASE)
    assert not one.may_stand(113 * SECOND - 1)
    assert one.may_stand(113 * SECOND)
    one.promises(114 * SECOND, LEASE)
    assert not one.may_stand(116 * SECOND)


def test_a_new_life_keeps_the_promise_of_the_old_one() -> None:
    assert not loyal().may_stand(103 * SECOND - 1)
    assert loyal().may_stand(103 * SECOND)


def test_the_longest_promise_is_kept_when_the_lease_gets_shorter() -> None:
    one = loyal()
    one.promises(110 * SECOND, 10 * SECOND)
    one.heed(CopySettings(lease_us=SECOND, silent_us=SECOND // 2))
    one.promises(111 * SECOND, SECOND)
    assert not one.may_stand(120 * SECOND - 1)
    assert one.may_stand(120 * SECOND)
    one.promises(120 * SECOND, SECOND)
    assert one.may_stand(121 * SECOND)
    one.learns(Epoch(6), 122 * SECOND)  # a new primary is given the lease of now
    assert one.may_stand(123 * SECOND)


def test_a_promise_to_one_that_resigned_is_no_longer_kept() -> None:
    one = loyal()
    one.promises(110 * SECOND, 60 * SECOND)
    one.released(Epoch(5))
    one.promises(111 * SECOND, SECOND)
    assert one.may_stand(112 * SECOND)


def test_a_new_life_keeps_the_longest_promise_that_the_disk_states() -> None:
    one = loyal()
    one.remembers(20 * SECOND)
    one.remembers(SECOND)
    assert not one.may_stand(120 * SECOND - 1)
    assert one.may_stand(120 * SECOND)


def test_a_primary_that_resigns_releases_all() -> None:
    one = loyal()
    one.promises(110 * SECOND, LEASE)
    one.released(Epoch(5))
    assert one.may_stand(110 * SECOND)
    one.hears_of(Epoch(6))
    one.promises(111 * SECOND, LEASE)  # to another primary
    one.released(Epoch(5))  # the word of the first comes again, late
    assert not one.may_stand(112 * SECOND)


def test_a_new_primary_is_given_a_lease_before_another_member_stands() -> None:
    one = loyal()
    one.promises(110 * SECOND, LEASE)
    one.learns(Epoch(5), 114 * SECOND)
    assert one.may_stand(114 * SECOND)
    one.learns(Epoch(6), 114 * SECOND)
    assert not one.may_stand(117 * SECOND - 1)
    assert one.may_stand(117 * SECOND)
    one.released(Epoch(6))
    one.learns(Epoch(7), 118 * SECOND)
    assert one.told == 7
    assert not one.may_stand(118 * SECOND)  # that the primary of epoch 6 resigned says nothing now


def test_who_has_less_waits_longer() -> None:
    one = loyal()
    assert not one.may_stand(103 * SECOND + 399_999, ahead=2)
    assert one.may_stand(103 * SECOND + 400_000, ahead=2)


def test_a_lower_epoch_than_one_that_was_told_is_not_followed() -> None:
    one = loyal(told=5)
    assert [one.may_follow(Epoch(at)) for at in (4, 5, 6)] == [False, True, True]
    one.hears_of(Epoch(8))
    one.hears_of(Epoch(6))
    assert [one.may_follow(Epoch(at)) for at in (7, 8)] == [False, True]


# -- who ------------------------------------------------------------------------------------------


def test_a_member_takes_over_without_the_old_primary() -> None:
    made = stands(B)
    assert (made.version, made.epoch, made.primary) == (8, 6, "b")
    assert made.members == (B, C)
    assert (made.writes, made.why, made.at_us) == (Writes.CLOSED, "a is gone", 5)
    assert made.writer == Writer("b", 2, 1)
    kept = ("journal", "floor", "cut_below", "kept")
    assert [getattr(made, one) for one in kept] == [getattr(RECORD, one) for one in kept]
    pack(made)


def test_the_recorded_primary_begins_a_new_reign_in_a_new_life() -> None:
    made = stands(Member("a", 77))
    assert (made.epoch, made.primary) == (6, "a")
    assert made.members == (Member("a", 77), B, C)
    pack(made)


@pytest.mark.parametrize("me", [Member("b", 77), Member("d", 4), Member("b", 0)])
def test_nobody_else_stands(me: Member) -> None:
    with pytest.raises(MayNotStand):
        stands(me)


def test_one_that_acknowledges_its_disk_stands_in_every_life() -> None:
    record = msgspec.structs.replace(RECORD, members=(A, Member("b", 0)))
    assert stands(Member("b", 0), record).members == (Member("b", 0),)


# -- in order -------------------------------------------------------------------------------------


def test_a_handover_keeps_the_old_primary() -> None:
    made = handover(RECORD, "c", Writer("a", 1, 4), "switch", 6)
    assert (made.version, made.epoch, made.primary) == (8, 6, "c")
    assert made.members == RECORD.members
    assert made.writes is RECORD.writes
    pack(made)


@pytest.mark.parametrize("to", ["a", "d"])
def test_a_handover_is_to_another_member(to: str) -> None:
    with pytest.raises(MayNotStand):
        handover(RECORD, to, Writer("a", 1, 4), "switch", 6)
