"""A follower compares what it has with the primary's, cuts what differs, copies the rest."""

from __future__ import annotations

import pytest

from ternmq.cluster.coordination.loss import Loss
from ternmq.cluster.replication.following import (
    SYNC_BYTES,
    SYNC_US,
    Accepted,
    Following,
    OldEpoch,
)
from ternmq.cluster.replication.incoming import BadStream
from ternmq.cluster.replication.settings import CopySettings
from ternmq.cluster.replication.standing import Loyalty
from ternmq.journal.copy.copy import CommittedCut, Copy
from ternmq.journal.disk.memory import MemoryDisk
from ternmq.journal.log.checkpoint import end_if_held
from ternmq.journal.log.scan import scan
from ternmq.journal.log.segment import segment_name
from ternmq.journal.recovery.recovery import open_journal
from ternmq.model.errors import JournalFull
from ternmq.model.types import NO_POSITION, Epoch, Position
from ternmq.record.fact.header import HEADER_BYTES, Kind
from tests.unit.journal.kit import SEGMENT, body, commit

COPYING = CopySettings()
SENT_US = 5
LEASE_US = COPYING.lease_us
SECOND = 1_000_000


class Primary:
    """A journal on a disk, and what a primary says of it."""

    def __init__(self, disk: MemoryDisk, epoch: int) -> None:
        self.disk = disk
        self.journal, _ = open_journal(
            disk, wall_us=1, segment_size=SEGMENT, min_epoch=Epoch(epoch)
        )
        self.epoch = self.journal.epoch
        self._number = epoch * 1_000_000

    def append(self, count: int, size: int = 300) -> None:
        for _ in range(count):
            self._number += 1
            self.journal.append(Kind.MARK, body(self._number, size), 1)
            commit(self.journal)

    def accepts(self, copy: Copy | None) -> Accepted:
        journal = self.journal
        matched, start = Position(NO_POSITION), journal.first
        for one in [] if copy is None else copy.checkpoints():
            end = end_if_held(
                self.disk, one, first=journal.first, end=journal.end, segment_size=SEGMENT
            )
            if end is not None:
                matched, start = one.position, end
                break
        return Accepted(self.epoch, SEGMENT, journal.first, matched, start, SENT_US - 1, LEASE_US)

    def stream(self, start: Position) -> list[tuple[Position, bytes]]:
        """Return (position, bytes) of each record from a position on, as it is streamed."""
        found = []
        for record in scan(self.disk, start):
            base = Position(record.position - record.position % SEGMENT)
            length = HEADER_BYTES if record.kind == Kind.PAD else record.length
            data = self.disk.open(segment_name(base)).pread(length, record.position - base)
            found.append((record.position, data))
        return found


class Follower:
    """A copy, and what follows a primary with it."""

    def __init__(
        self,
        disk: MemoryDisk,
        primary: Primary,
        loyalty: Loyalty | None = None,
        loss: Loss | None = None,
    ) -> None:
        copy = Copy.open(disk)
        accepted = primary.accepts(copy)
        if copy is None:
            copy = Copy.make(disk, first=accepted.first, segment_size=SEGMENT, told=accepted.epoch)
        self.copy = copy
        self.loyalty = loyalty or Loyalty(COPYING, self.copy.told, 0)
        self.start = accepted.start
        self.following = Following(
            self.copy, self.loyalty, accepted, synced_only=False, now_us=0, loss=loss
        )

    def take(self, primary: Primary, at_a_time: int = 1) -> None:
        records = primary.stream(self.following.held)
        for number in range(0, len(records), at_a_time):
            some = records[number : number + at_a_time]
            data = b"".join([one for _, one in some])
            self.following.records(some[0][0], primary.epoch, data, 1)

    def mark(self, commit: int = 0, sent_us: int = SENT_US) -> None:
        self.following.marks(
            commit=Position(commit), durable=Position(0), end=Position(0), sent_us=sent_us,
            now_us=2,
        )  # fmt: skip


def copied(primary: Primary, at_a_time: int = 3) -> tuple[MemoryDisk, Follower]:
    disk = MemoryDisk()
    follower = Follower(disk, primary)
    follower.take(primary, at_a_time)
    follower.copy.sync_all()
    return disk, follower


def same(primary: Primary, disk: MemoryDisk) -> bool:
    return [(one.position, one.crc) for one in scan(disk, primary.journal.first)] == [
        (one.position, one.crc) for one in scan(primary.disk, primary.journal.first)
    ]


@pytest.mark.parametrize("at_a_time", [1, 7, 1000])
def test_an_empty_copy_gets_all(at_a_time: int) -> None:
    primary = Primary(MemoryDisk(), 3)
    primary.append(100)
    disk, follower = copied(primary, at_a_time)
    assert follower.following.held == primary.journal.end == follower.copy.end
    assert same(primary, disk)


def test_a_copy_that_is_a_beginning_goes_on() -> None:
    primary = Primary(MemoryDisk(), 1)
    primary.append(50)
    disk, follower = copied(primary)
    follower.copy.close()
    primary.append(40)
    again = Follower(disk, primary)
    assert again.start == again.copy.end
    assert not again.following.compares
    again.take(primary)
    assert same(primary, disk)


@pytest.mark.parametrize("common", [0, 1, 30, 60])
@pytest.mark.parametrize("own", [1, 45])
@pytest.mark.parametrize("at_a_time", [1, 1000])
def test_what_another_reign_wrote_is_cut(common: int, own: int, at_a_time: int) -> None:
    old = Primary(MemoryDisk(), 1)
    old.append(common)
    new_disk, follower = copied(old)
    follower.copy.close()
    new = Primary(new_disk, 2)  # it was promoted
    new.append(35)
    old.append(own)  # and nobody was answered for these
    old.journal.close()
    back = Follower(old.disk, new)
    end = back.copy.end
    back.take(new, at_a_time)
    assert back.following.parted is not None
    assert back.following.parted <= end
    assert not back.following.compares
    assert back.copy.end == new.journal.end
    assert same(new, old.disk)


def test_nothing_is_acknowledged_that_was_not_compared() -> None:
    old = Primary(MemoryDisk(), 1)
    old.append(60)
    new_disk, follower = copied(old)
    follower.copy.close()
    new = Primary(new_disk, 2)
    new.append(1)
    old.append(30)
    old.journal.close()
    back = Follower(old.disk, new)
    back.mark()
    first = back.following.ack(3)
    assert first is not None
    assert first.written == back.start < back.copy.end
    assert first.synced <= first.written
    back.take(new)
    ack = back.following.ack(3)
    assert ack is not None
    assert ack.written == new.journal.end


def test_a_cut_below_the_commit_mark_is_refused_and_nothing_is_written() -> None:
    old = Primary(MemoryDisk(), 1)
    old.append(20)
    new_disk, follower = copied(old)
    follower.copy.close()
    new = Primary(new_disk, 2)
    new.append(5)
    old.append(20)
    old.journal.close()
    copy = Copy.open(old.disk)
    assert copy is not None
    copy.tell(committed=copy.end)  # somebody was answered for all of it
    copy.sync_all()
    copy.close()
    back = Follower(old.disk, new)
    end = back.copy.end
    with pytest.raises(ValueError, match="is committed"):
        back.take(new)
    assert back.copy.end == end


def parted_below_the_mark() -> tuple[Position, Primary, MemoryDisk]:
    """Return where histories part, the new primary, and a disk with more that was answered."""
    old = Primary(MemoryDisk(), 1)
    old.append(20)
    parted = old.journal.end
    new_disk, follower = copied(old)
    follower.copy.close()
    new = Primary(new_disk, 2)  # by force
    new.append(5)
    old.append(20)
    old.journal.close()
    copy = Copy.open(old.disk)
    assert copy is not None
    copy.tell(committed=copy.end)
    copy.sync_all()
    copy.close()
    return parted, new, old.disk


@pytest.mark.parametrize("below", [0, 1])
def test_what_an_operator_gave_up_is_cut_and_kept_aside(below: int) -> None:
    parted, new, disk = parted_below_the_mark()
    back = Follower(disk, new, loss=Loss(Epoch(2), Position(parted - 300 * below)))
    end = back.copy.end
    back.take(new)
    assert (back.following.parted, back.following.given_up) == (parted, end)
    assert same(new, disk)
    assert back.copy.committed <= parted
    assert disk.names("repair")
    back.mark(commit=new.journal.end)
    assert back.copy.committed == new.journal.end


@pytest.mark.parametrize(
    ("epoch", "beyond"),
    [
        (2, 8),  # the loss that was accepted begins behind
        (3, 0),  # another reign began with it than the one that is followed
        (1, 0),  # the copy has records of that reign: it was told so since
    ],
)
def test_nothing_else_is_cut_below_the_commit_mark(epoch: int, beyond: int) -> None:
    parted, new, disk = parted_below_the_mark()
    back = Follower(disk, new, loss=Loss(Epoch(epoch), Position(parted + beyond)))
    end = back.copy.end
    with pytest.raises(CommittedCut):
        back.take(new)
    assert back.copy.end == end
    assert not disk.names("repair")


def test_the_commit_mark_is_not_told_beyond_what_was_compared() -> None:
    old = Primary(MemoryDisk(), 1)
    old.append(20)
    new_disk, follower = copied(old)
    follower.copy.close()
    new = Primary(new_disk, 2)
    new.append(50)
    old.append(20)
    old.journal.close()
    back = Follower(old.disk, new)
    back.mark(commit=new.journal.end)
    assert back.copy.committed == back.start
    back.take(new)  # else this could not be cut
    back.mark(commit=new.journal.end)
    assert back.copy.committed == new.journal.end


def test_an_epoch_below_one_that_was_told_is_not_followed() -> None:
    primary = Primary(MemoryDisk(), 4)
    loyalty = Loyalty(COPYING, Epoch(5), 0)
    with pytest.raises(OldEpoch):
        Follower(MemoryDisk(), primary, loyalty)


def test_the_epoch_that_is_followed_is_remembered() -> None:
    primary = Primary(MemoryDisk(), 4)
    _, follower = copied(primary)
    assert follower.loyalty.told == 4
    follower.mark()
    follower.copy.sync_all()
    assert follower.copy.stated.told == 4


def test_an_ack_promises_not_to_stand() -> None:
    primary = Primary(MemoryDisk(), 1)
    _, follower = copied(primary)
    late_us = COPYING.lease_us + 1
    assert follower.loyalty.may_stand(late_us)
    follower.mark()
    assert follower.following.ack(late_us) is not None
    assert not follower.loyalty.may_stand(late_us + 1)
    assert follower.loyalty.may_stand(2 * late_us)


def test_an_ack_is_sent_for_what_is_new() -> None:
    primary = Primary(MemoryDisk(), 1)
    primary.append(3)
    disk = MemoryDisk()
    follower = Follower(disk, primary)
    first = follower.following.ack(1)
    assert first is not None
    assert (first.written, first.sent_us) == (0, SENT_US - 1)
    follower.mark()
    assert follower.following.ack(1) is not None
    assert follower.following.ack(1) is None
    follower.mark(sent_us=SENT_US + 1)  # the lease goes on, though nothing is new
    again = follower.following.ack(1)
    assert again is not None
    assert again.sent_us == SENT_US + 1
    follower.take(primary)
    ack = follower.following.ack(1)
    assert ack is not None
    assert (ack.written, ack.synced) == (primary.journal.end, 0)
    follower.copy.sync_all()
    synced = follower.following.ack(1)
    assert synced is not None
    assert synced.synced == primary.journal.end


def test_a_follower_of_synced_bytes_acknowledges_nothing_before_the_epoch_is_stored() -> None:
    primary = Primary(MemoryDisk(), 3)
    primary.append(3)
    _, first = copied(primary)
    accepted = primary.accepts(first.copy)._replace(epoch=Epoch(7))

    def following() -> Following:
        return Following(first.copy, first.loyalty, accepted, synced_only=True, now_us=0)

    one = following()
    one.marks(commit=Position(0), durable=Position(0), end=Position(0), sent_us=SENT_US, now_us=1)
    assert first.copy.stated.told == 3
    assert one.ack(1) is None
    assert one.wants_sync(1)
    first.copy.sync_all()
    assert first.copy.stated.told == 7
    one.synced(1)
    assert one.ack(1) is not None
    again = following()  # a connection later there is nothing to store
    assert not again.wants_sync(1)
    assert again.ack(1) is not None


class Synced:
    """A follower of kind ``synced`` that has stored what it needs, and its clock."""

    def __init__(self, lease_us: int, *, states: bool = True) -> None:
        primary = Primary(MemoryDisk(), 3)
        primary.append(3)
        _, follower = copied(primary)
        self.copy, self.loyalty, self.now_us = follower.copy, follower.loyalty, 1
        self.accepted = primary.accepts(self.copy)._replace(lease_us=lease_us, states=states)
        self.following = self.follows()

    def follows(self) -> Following:
        return Following(
            self.copy, self.loyalty, self.accepted, synced_only=True, now_us=self.now_us
        )

    def asked(self, lease_us: int) -> int | None:
        """Let MARKS ask for a promise; return the one that is given."""
        self.following.marks(
            commit=Position(0), durable=Position(0), end=Position(0), sent_us=self.now_us,
            now_us=self.now_us, lease_us=lease_us,
        )  # fmt: skip
        ack = self.following.ack(self.now_us)
        return None if ack is None else ack.promise_us

    def syncs(self) -> None:
        assert self.following.wants_sync(self.now_us)
        self.copy.sync_all()
        self.following.synced(self.now_us)


def test_no_promise_is_longer_than_the_one_on_the_disk_of_a_synced_follower() -> None:
    one = Synced(SECOND)
    assert one.asked(SECOND) is None
    one.syncs()
    assert one.copy.stated.promise_ms == 1000
    assert not one.following.wants_sync(one.now_us)
    assert one.asked(SECOND) == SECOND
    one.now_us += 100
    assert one.asked(10 * SECOND) == SECOND, "the longer one is not stored yet"
    one.syncs()
    one.now_us += 100
    assert one.asked(10 * SECOND) == 10 * SECOND


def test_a_shorter_promise_is_stored_when_the_longer_one_has_ended() -> None:
    one = Synced(10 * SECOND)
    one.syncs()
    assert one.asked(10 * SECOND) == 10 * SECOND
    began_us = one.now_us
    one.now_us += SECOND
    assert one.asked(SECOND) == SECOND
    assert not one.following.wants_sync(one.now_us)
    assert one.copy.stated.promise_ms == 10_000
    one.now_us = began_us + 9 * SECOND - 1
    one.asked(SECOND)
    assert not one.following.wants_sync(one.now_us)
    one.now_us += 1  # what was promised ends when a promise of now would
    one.asked(SECOND)
    one.syncs()
    assert one.copy.stated.promise_ms == 1000


def test_while_a_shorter_promise_is_being_stored_no_longer_one_is_given() -> None:
    """A kill may leave either of them on the disk."""
    one = Synced(10 * SECOND)
    one.syncs()
    one.asked(10 * SECOND)
    one.now_us += 10 * SECOND
    one.asked(SECOND)
    job = one.copy.next_sync()
    assert job is not None
    assert one.copy.stated.promise_ms == 10_000
    one.now_us += 100
    assert one.asked(10 * SECOND) == SECOND
    job.run()
    one.copy.synced(job)
    one.following.synced(one.now_us)
    one.now_us += 100
    assert one.asked(10 * SECOND) == SECOND
    one.syncs()
    one.now_us += 100
    assert one.asked(10 * SECOND) == 10 * SECOND


def test_a_former_life_is_kept_to_its_word() -> None:
    one = Synced(60 * SECOND)
    one.syncs()
    assert one.asked(60 * SECOND) == 60 * SECOND
    again = Loyalty(COPYING, one.copy.told, 0)
    again.remembers(one.copy.promise_ms * 1000)
    one.loyalty, one.now_us = again, 5 * SECOND
    one.following = one.follows()
    assert one.asked(SECOND) == SECOND
    assert one.copy.promise_ms == 60_000, "this life may end, too, before the word of the first"
    assert not again.may_stand(60 * SECOND - 1)


def test_without_stated_promises_nothing_is_acknowledged_before_the_lease_is_stored() -> None:
    """In version 1 of the stream an acknowledgement cannot promise less."""
    one = Synced(3 * SECOND, states=False)
    one.copy.tell(promise_ms=1000)
    one.copy.sync_all()
    one.following = one.follows()
    assert one.asked(0) is None
    one.syncs()
    assert one.asked(0) == 3 * SECOND


@pytest.mark.parametrize(("asked", "given"), [(3600 * SECOND, 60 * SECOND), (1, 1000)])
def test_a_promise_has_bounds_whatever_is_asked_for(asked: int, given: int) -> None:
    primary = Primary(MemoryDisk(), 1)
    _, follower = copied(primary)
    accepted = primary.accepts(follower.copy)._replace(lease_us=asked)
    following = Following(follower.copy, follower.loyalty, accepted, synced_only=False, now_us=0)
    ack = following.ack(1)
    assert ack is not None
    assert ack.promise_us == given
    following.marks(
        commit=Position(0), durable=Position(0), end=Position(0), sent_us=SENT_US, now_us=1,
        lease_us=asked,
    )  # fmt: skip
    ack = following.ack(1)
    assert ack is not None
    assert ack.promise_us == given


def test_what_is_written_is_synced_soon() -> None:
    primary = Primary(MemoryDisk(), 1)
    primary.append(3)
    follower = Follower(MemoryDisk(), primary)
    following = follower.following
    assert not following.wants_sync(1)
    follower.take(primary)
    assert not following.wants_sync(1 + SYNC_US - 1)
    assert following.wants_sync(1 + SYNC_US)
    follower.copy.sync_all()
    following.synced(1 + SYNC_US)
    assert not following.wants_sync(10 * SYNC_US)


def test_much_is_synced_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ternmq.cluster.replication.following.SYNC_BYTES", 1000)
    primary = Primary(MemoryDisk(), 1)
    primary.append(10)
    follower = Follower(MemoryDisk(), primary)
    follower.take(primary)
    assert SYNC_BYTES > 1000
    assert follower.following.wants_sync(2)


def test_an_answer_that_does_not_fit_the_copy_is_refused() -> None:
    primary = Primary(MemoryDisk(), 1)
    primary.append(10)
    _, follower = copied(primary)
    accepted = primary.accepts(follower.copy)
    for wrong in (
        accepted._replace(segment_bytes=2 * SEGMENT),
        accepted._replace(start=Position(accepted.start + 8)),
        accepted._replace(matched=Position(accepted.matched + 8)),
        accepted._replace(matched=Position(NO_POSITION), start=Position(accepted.start + 8)),
    ):
        with pytest.raises((BadStream, ValueError)):
            Following(follower.copy, follower.loyalty, wrong, synced_only=False, now_us=0)


def test_bytes_that_are_not_next_are_not_written() -> None:
    primary = Primary(MemoryDisk(), 1)
    primary.append(10)
    follower = Follower(MemoryDisk(), primary)
    records = primary.stream(Position(0))
    with pytest.raises(BadStream):
        follower.following.records(records[1][0], primary.epoch, records[1][1], 1)
    data = bytearray(b"".join([one for _, one in records]))
    data[-1] ^= 1
    with pytest.raises(BadStream):
        follower.following.records(Position(0), primary.epoch, bytes(data), 1)
    assert follower.copy.end == 0
    follower.take(primary)
    assert follower.copy.end == primary.journal.end


def test_a_copy_promoted_by_recovery_has_all() -> None:
    primary = Primary(MemoryDisk(), 1)
    primary.append(70)
    disk, follower = copied(primary)
    follower.copy.close()
    promoted = Primary(disk, 2)
    assert promoted.journal.first == primary.journal.first
    assert promoted.journal.end > primary.journal.end
    positions = [(one.position, one.crc) for one in scan(primary.disk, Position(0))]
    assert [(one.position, one.crc) for one in scan(disk, Position(0))][: len(positions)] == (
        positions
    )


def test_a_copy_that_has_failed_acknowledges_nothing() -> None:
    primary = Primary(MemoryDisk(), 1)
    primary.append(3)
    _, follower = copied(primary)
    follower.copy.failed(OSError("a sync failed"))
    follower.mark()
    assert follower.following.ack(3) is None


def test_bytes_for_which_there_is_no_room_yet_may_come_again() -> None:
    primary = Primary(MemoryDisk(), 1)
    primary.append(40)
    follower = Follower(MemoryDisk(), primary)
    copy, following = follower.copy, follower.following
    job = copy.wants_spare()
    assert job is not None  # it is at work
    records = primary.stream(Position(0))
    data = b"".join([one for _, one in records])
    with pytest.raises(JournalFull):
        following.records(Position(0), primary.epoch, data, 1)
    assert copy.spare_is_coming
    assert following.held == copy.end == 0
    job.run()
    copy.spare_ready(job)
    following.records(Position(0), primary.epoch, data, 1)
    assert following.held == copy.end == primary.journal.end
