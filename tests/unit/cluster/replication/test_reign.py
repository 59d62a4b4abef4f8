"""The rules of a primary: what is committed, who is answered, who becomes and stays a member."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from ternmq.cluster.coordination.record import Leadership, Member, Writer, pack
from ternmq.cluster.replication.follower import Acknowledgement, Follower, Kind
from ternmq.cluster.replication.reign import Reign, StrangeAcknowledgement
from ternmq.cluster.replication.settings import CopySettings
from ternmq.model.types import Epoch, Position

SECOND = 1_000_000
EPOCH = Epoch(5)
BEGUN = Position(1000)
A, B, C = Member("a", 1), Member("b", 2), Member("c", 3)
SETTINGS = CopySettings()
LEASE = SETTINGS.lease_us


def record(*members: Member, version: int = 7, **changes: object) -> Leadership:
    made = Leadership(
        version=version,
        writer=Writer("a", 1, version),
        journal=99,
        epoch=EPOCH,
        primary="a",
        members=members,
    )
    return msgspec.structs.replace(made, **changes)


class World:
    """A reign of broker a, and its clock."""

    def __init__(self, *members: Member, settings: CopySettings = SETTINGS) -> None:
        self.now = 10 * SECOND
        self.end = Position(5000)
        self.reign = Reign("a", record(*members), BEGUN, settings, self.now)

    def comes(self, member: Member, kind: Kind = Kind.MEMBER) -> Follower:
        return self.reign.came(member.broker, member.incarnation, kind, self.now)

    def acks(
        self,
        follower: Follower,
        written: int,
        synced: int | None = None,
        *,
        late_us: int = 0,
        promise_us: int = LEASE,
    ) -> None:
        told = Acknowledgement(
            epoch=EPOCH,
            written=Position(written),
            synced=Position(written if synced is None else synced),
            sent_us=self.now - late_us,
            promise_us=promise_us,
        )
        self.reign.acknowledged(follower, told, self.now, self.end)

    def mark(self, durable: int | None = None) -> int:
        return self.reign.commit_mark(self.end if durable is None else Position(durable))

    def passes(self, seconds: float) -> None:
        """Let time pass, while the primary looks at its members as it should."""
        until = self.now + int(seconds * SECOND)
        while self.now < until:
            self.now = min(until, self.now + SECOND // 4)
            self.reign._looked_us = self.now

    def sleeps(self, seconds: float) -> None:
        """Let time pass while this process stands still."""
        self.now += int(seconds * SECOND)

    def strict(self) -> str:
        assert self.reign.takes_strict == (self.reign.copies > 1)
        return "taken" if self.reign.takes_strict else "refused"

    def wants(self) -> tuple[Member, ...] | None:
        """Return the members of the change that is due, which is not made."""
        under_way = self.reign._pending is not None
        change = self.reign.begin_change(self.now, self.end)
        if not under_way:
            self.reign.withdrawn()
        return None if change is None else change.members

    def sends(self) -> tuple[Member, ...]:
        change = self.reign.begin_change(self.now, self.end)
        assert change is not None
        assert change.replaces == self.reign.record.version
        return change.members

    def grown(self) -> Follower:
        """Return a follower that was made a member."""
        follower = self.comes(B)
        self.acks(follower, self.end)
        self.reign.learned(record(*self.sends(), version=self.reign.record.version + 1))
        return follower


# -- the commit mark ------------------------------------------------------------------------------


def test_alone_what_is_durable_is_committed_from_the_epoch_on() -> None:
    world = World(A)
    assert world.mark(BEGUN - 1) == 0
    assert world.mark(BEGUN) == BEGUN
    assert world.mark(3000) == 3000


def test_the_mark_is_the_least_of_the_disk_and_every_member() -> None:
    world = World(A, B, C)
    b, c = world.comes(B), world.comes(C)
    assert world.mark() == 0
    world.acks(b, 4000)
    assert world.mark() == 0
    world.acks(c, 3000)
    assert world.mark() == 3000
    assert world.mark(2500) == 3000, "it never falls"
    world.acks(c, 4500)
    assert world.mark() == 4000
    assert world.mark(3500) == 4000


def test_nothing_is_committed_before_all_hold_the_epoch() -> None:
    world = World(A, B)
    b = world.comes(B)
    world.acks(b, BEGUN - 1)
    assert world.mark() == 0
    world.acks(b, BEGUN)
    assert world.mark() == BEGUN


def test_another_life_of_a_member_is_not_the_member() -> None:
    world = World(A, B)
    world.acks(world.comes(Member("b", 77)), 5000)
    assert world.mark() == 0


def test_a_member_that_acknowledges_its_disk_is_one_in_every_life() -> None:
    world = World(A, Member("b", 0))
    first = world.comes(B, Kind.SYNCED)
    world.acks(first, 4000, 2000)
    assert world.mark() == 2000
    world.reign.went(first)
    again = world.comes(Member("b", 77), Kind.SYNCED)
    world.acks(again, 4800, 4500)
    assert world.mark() == 4500


def test_an_acknowledgement_that_comes_twice_or_late_takes_nothing_back() -> None:
    world = World(A, B)
    b = world.comes(B)
    world.acks(b, 4000)
    world.acks(b, 3000, late_us=SECOND)
    assert world.mark() == 4000


@pytest.mark.parametrize(
    "wrong",
    [
        {"epoch": Epoch(4)},
        {"epoch": Epoch(6)},
        {"written": Position(5001)},
        {"synced": Position(4001)},
        {"sent_us": 10 * SECOND + 1},
    ],
)
def test_what_a_follower_cannot_have_is_not_believed(wrong: dict[str, int]) -> None:
    world = World(A, B)
    b = world.comes(B)
    right = Acknowledgement(
        epoch=EPOCH,
        written=Position(4000),
        synced=Position(4000),
        sent_us=world.now,
        promise_us=LEASE,
    )
    told = replace(right, **wrong)  # type: ignore[arg-type]
    with pytest.raises(StrangeAcknowledgement):
        world.reign.acknowledged(b, told, world.now, world.end)
    assert (world.mark(), b.granted_us) == (0, None)


# -- the lease ------------------------------------------------------------------------------------


def test_alone_answers_may_leave_at_any_time() -> None:
    world = World(A)
    world.passes(1000)
    assert world.reign.may_answer(world.now)


def test_answers_leave_while_every_member_has_promised() -> None:
    world = World(A, B, C)
    b, c = world.comes(B), world.comes(C)
    world.acks(b, 4000)
    assert not world.reign.may_answer(world.now)
    world.acks(c, 4000, late_us=SECOND)
    assert world.reign.may_answer(world.now)
    world.passes(1.6)
    assert world.reign.may_answer(world.now)
    world.passes(0.1)  # 2.7 s after c was asked
    assert not world.reign.may_answer(world.now)
    world.acks(c, 4000)
    assert world.reign.may_answer(world.now)


def test_who_wakes_up_after_the_lease_is_silent() -> None:
    world = World(A)
    world.grown()
    assert world.reign.may_answer(world.now)
    world.passes(100)
    assert not world.reign.may_answer(world.now)


def test_what_a_member_has_promised_counts_not_what_it_is_asked_for() -> None:
    world = World(A, B)
    b = world.comes(B)
    world.reign.heed(CopySettings(lease_us=10 * SECOND, silent_us=5 * SECOND))
    world.acks(b, 4000, promise_us=SECOND)  # it does not know yet, or has not stored it
    world.passes(0.8)
    assert world.reign.may_answer(world.now)
    world.passes(0.1)
    assert not world.reign.may_answer(world.now)
    world.acks(b, 4000, promise_us=10 * SECOND)
    world.passes(8.9)
    assert world.reign.may_answer(world.now)


def test_a_shorter_promise_ends_no_longer_one() -> None:
    world = World(A, B)
    b = world.comes(B)
    world.acks(b, 4000, promise_us=10 * SECOND)
    world.reign.heed(CopySettings(lease_us=SECOND, silent_us=SECOND // 2))
    world.passes(1)
    world.acks(b, 4000, promise_us=SECOND)
    world.passes(7.9)
    assert world.reign.may_answer(world.now)
    world.passes(0.1)  # 9 s after the longer promise
    assert not world.reign.may_answer(world.now)


def test_silence_is_judged_by_the_newest_setting() -> None:
    world = World(A, B)
    world.acks(world.comes(B), world.end)
    world.passes(1)
    assert world.wants() is None
    world.reign.heed(CopySettings(lease_us=SECOND, silent_us=600_000))
    assert world.wants() == (A,)
    world.reign.heed(SETTINGS)
    assert world.wants() is None


# -- growing --------------------------------------------------------------------------------------


def test_one_that_has_caught_up_counts_before_it_is_recorded() -> None:
    world = World(A)
    assert world.mark(3000) == 3000
    b = world.comes(B)
    assert world.wants() is None
    world.acks(b, 3000)
    world.sends()
    assert world.mark(4000) == 3000, "b has no more, and may be recorded by now"
    world.acks(b, 3500)
    assert world.mark(4000) == 3500
    assert world.strict() == "refused"
    world.reign.learned(record(A, B, version=8))
    assert world.strict() == "taken"


@pytest.mark.parametrize(("durable", "held"), [(5000, 4999), (5000, 0), (BEGUN - 1, BEGUN - 1)])
def test_one_without_the_epoch_or_what_is_committed_does_not_join(durable: int, held: int) -> None:
    world = World(A)
    world.mark(durable)
    world.acks(world.comes(B), held)
    assert world.wants() is None


def test_one_that_is_far_behind_does_not_join() -> None:
    world = World(A)
    world.end = Position(BEGUN + SETTINGS.near_bytes)
    b = world.comes(B)
    world.acks(b, BEGUN)
    assert world.wants() is None
    world.acks(b, BEGUN + 1)
    assert world.wants() == (A, B)


def test_a_backup_never_joins() -> None:
    world = World(A)
    world.acks(world.comes(B, Kind.BACKUP), 5000)
    assert world.wants() is None


def test_one_that_left_or_is_silent_does_not_join() -> None:
    world = World(A)
    b = world.comes(B)
    world.acks(b, 5000)
    world.reign.went(b)
    assert world.wants() is None
    world.acks(world.comes(C), 5000)
    world.passes(2)
    assert world.wants() is None


def test_a_new_life_takes_the_place_of_the_old_one() -> None:
    world = World(A, B)
    world.acks(world.comes(B), 5000)
    world.acks(world.comes(Member("b", 77)), 5000)
    assert world.wants() == (A, Member("b", 77))


def test_an_old_life_that_seems_to_be_there_does_not_displace_the_new_one() -> None:
    """Its connection is half open, and its last word is not two seconds old."""
    world = World(A)
    old = world.grown()
    new = world.comes(Member("b", 77))
    world.acks(old, 5000)
    world.acks(new, 5000)
    world.reign.learned(record(*world.sends(), version=20))
    assert world.reign.record.members == (A, Member("b", 77))
    for _ in range(6):
        world.passes(0.25)
        world.acks(new, 5000)
        assert world.wants() is None


def test_an_old_life_whose_connection_came_late_does_not_keep_the_new_one_out() -> None:
    """The primary was stopped, and took both connections in the wrong order."""
    world = World(A)
    new = world.comes(Member("b", 77))
    old = world.comes(B)
    world.acks(new, 5000)
    assert world.wants() is None
    world.reign.went(old)
    assert world.wants() == (A, Member("b", 77))


def test_one_that_may_join_counts_from_the_decision_on() -> None:
    """Nothing can be committed between the check and the change."""
    world = World(A)
    assert world.mark(BEGUN) == BEGUN
    world.acks(world.comes(B), BEGUN)
    assert world.sends() == (A, B)
    assert world.mark(5000) == BEGUN


def test_a_change_that_was_not_sent_is_withdrawn() -> None:
    world = World(A)
    world.acks(world.comes(B), 5000)
    world.sends()
    world.reign.withdrawn()
    assert world.reign.required() == frozenset()
    assert world.sends() == (A, B)


def test_the_reason_of_a_change_fits_the_record() -> None:
    members = [
        Member(f"broker-with-a-long-name-{at}.example.internal".ljust(100, "x"), at + 9)
        for at in range(40)
    ]
    world = World(A, *members)
    world.passes(2)
    change = world.reign.begin_change(world.now, world.end)
    assert change is not None
    assert change.members == (A,)
    pack(record(*change.members, version=8, why=change.why))


def test_a_full_set_still_loses_members() -> None:
    world = World(A, *[Member(f"m{at}", at + 9) for at in range(63)])
    for at in range(1, 63):
        world.acks(world.comes(Member(f"m{at}", at + 9)), 5000)
    world.passes(1.9)
    for at in range(1, 63):
        world.acks(world.comes(Member(f"m{at}", at + 9)), 5000)
    for broker in ("x", "y"):
        world.acks(world.comes(Member(broker, 5)), 5000)
    world.passes(0.1)
    members = world.wants()
    assert members is not None
    assert len(members) == 64
    assert "m0" not in {one.broker for one in members}
    assert "x" in {one.broker for one in members}


def test_one_change_at_a_time() -> None:
    world = World(A)
    world.acks(world.comes(B), 5000)
    world.sends()
    world.acks(world.comes(C), 5000)
    assert world.wants() is None
    world.reign.learned(record(A, B, version=8))
    assert world.wants() == (A, B, C)


# -- shrinking ------------------------------------------------------------------------------------


def test_a_silent_member_counts_until_the_swap_is_known() -> None:
    world = World(A)
    world.grown()
    world.passes(1.9)
    assert world.wants() is None
    world.passes(0.1)
    world.end = Position(6000)
    assert world.strict() == "taken"
    assert world.sends() == (A,)
    assert world.strict() == "refused", "there may be one copy by now"
    assert world.mark() == 5000
    assert not world.reign.may_answer(world.now + SECOND)
    world.reign.learned(record(A, B, version=8))  # as it was: the swap may still come
    assert world.mark() == 5000
    world.reign.learned(record(A, version=9))
    assert world.mark() == 6000
    assert world.reign.may_answer(world.now + SECOND)


def test_a_member_that_never_came_is_taken_out_after_a_while() -> None:
    world = World(A, B)
    world.passes(1.9)
    assert world.wants() is None
    world.passes(0.1)
    assert world.wants() == (A,)


def test_a_primary_that_stood_still_takes_nobody_out_for_it() -> None:
    """What it did not hear meanwhile says nothing about the members."""
    world = World(A)
    b = world.grown()
    world.sleeps(30)
    assert world.wants() is None
    world.passes(1.9)
    assert world.wants() is None
    world.acks(b, 5000)
    world.passes(1.9)
    assert world.wants() is None
    world.passes(0.1)
    assert world.wants() == (A,)


def test_a_connection_that_breaks_again_and_again_is_no_sign_of_life() -> None:
    world = World(A)
    b = world.grown()
    for _ in range(4):
        world.reign.went(b)
        world.passes(0.5)
        assert world.comes(B) is b
    assert world.wants() == (A,)


def test_words_that_are_late_are_no_sign_of_life() -> None:
    world = World(A)
    b = world.grown()
    for _ in range(4):
        world.passes(1)
        world.acks(b, world.end, late_us=3 * SECOND)
    assert world.wants() == (A,)


def test_one_that_acknowledges_nothing_new_is_taken_out() -> None:
    world = World(A)
    b = world.grown()
    world.passes(60)
    world.acks(b, 5000)
    assert world.wants() is None, "there was nothing to acknowledge"
    world.end = Position(6000)
    for _ in range(5):
        assert world.wants() is None
        world.passes(0.45)
        world.acks(b, 5000)
    assert world.wants() == (A,)


def test_one_that_stays_far_behind_is_taken_out() -> None:
    world = World(A)
    b = world.grown()
    for second in range(11):
        world.end = Position(6000 + SETTINGS.far_bytes + second)
        world.acks(b, 5000 + second)
        assert (world.wants() == (A,)) is (second == 10)
        world.passes(1)


def test_a_member_that_goes_on_after_its_connection_broke_stays() -> None:
    world = World(A)
    b = world.grown()
    again = world.comes(B)
    world.reign.went(b)  # the old connection ends after the new one came
    world.passes(1)
    world.acks(again, 5000)
    world.passes(1.9)
    assert world.wants() is None
    assert world.reign.may_answer(world.now)


# -- the end of a reign ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change", [{"epoch": Epoch(6), "primary": "b"}, {"epoch": Epoch(6)}, {"primary": "b"}]
)
def test_a_record_of_another_reign_ends_it(change: dict[str, object]) -> None:
    world = World(A, B)
    b = world.comes(B)
    world.acks(b, 3000)
    assert world.mark() == 3000
    world.reign.learned(record(A, B, version=8, **change))
    world.acks(b, 4000)
    assert world.reign.deposed
    assert world.mark() == 3000
    assert not world.reign.may_answer(world.now)
    assert world.strict() == "refused"
    assert world.wants() is None


def test_a_change_by_an_operator_does_not_end_it() -> None:
    world = World(A)
    world.acks(world.comes(B), 5000)
    world.sends()
    world.reign.learned(record(A, version=8, why="writes closed"))  # our swap was refused
    assert not world.reign.deposed
    assert world.reign.required() == frozenset()
    assert world.wants() == (A, B)


def test_an_older_record_says_nothing() -> None:
    world = World(A, B)
    world.reign.learned(record(A, version=6, epoch=Epoch(4), primary="c"))
    assert not world.reign.deposed
    assert world.reign.required() == {B}


def test_word_of_a_higher_epoch_ends_it() -> None:
    world = World(A)
    world.reign.heard_of(EPOCH)
    assert not world.reign.deposed
    world.reign.heard_of(Epoch(6))
    assert world.reign.deposed


def test_processes_that_are_gone_are_forgotten_unless_they_count() -> None:
    world = World(A)
    for number in range(100):
        world.reign.went(world.comes(Member("x", number + 10)))
    assert len(world.reign._followers) == 0
    world.reign.went(world.grown())
    assert len(world.reign._followers) == 1
    world.reign.learned(record(A, version=20))
    assert len(world.reign._followers) == 0


def test_a_silent_member_must_go_before_it_may_stand() -> None:
    with pytest.raises(ValueError, match="less than the lease"):
        CopySettings(lease_us=SECOND, silent_us=SECOND)
