"""Mutants: rules of replication that are broken, one at a time; a run must find each.

A rule of a core is broken in the core. Where the rule is one of the process around it, it is broken
in this package, whose roles follow those of ``ternmq.server.node``.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import msgspec
from google_crc32c import value as crc32c

from ternmq.broker import standby
from ternmq.cluster.coordination import group as coordination
from ternmq.cluster.coordination import loss, resolving
from ternmq.cluster.coordination.port import Refused, Swapped, Unknown
from ternmq.cluster.coordination.record import Leadership, Reach, pack
from ternmq.cluster.replication import following, forcing, incoming, mending, reign, standing
from ternmq.cluster.replication.follower import Acknowledgement, Follower
from ternmq.journal.copy import copy as copying
from ternmq.journal.mending.patch import SoundRecord
from ternmq.journal.mending.scrub import joint
from ternmq.journal.recovery import cutting, ending, recovery
from ternmq.model.types import Position
from ternmq.record.fact.header import CRC, HEADER_BYTES, MAGIC, Kind, header_of
from tests.sim.group import broker, leading
from tests.sim.group.case import ROTATION
from tests.sim.group.copying import Replica

_HEAD: Final = struct.Struct("<IIBB")
"""Magic, length, version, kind of a record, behind its CRC."""
Patch = tuple[Any, str, Any]
"""An object, the name of what is replaced, and what takes its place."""
MUTANTS: Final[dict[str, Callable[[], list[Patch]]]] = {}


def _mutant(make: Callable[[], list[Patch]]) -> Callable[[], list[Patch]]:
    MUTANTS[make.__name__] = make
    return make


@contextmanager
def planted(name: str) -> Iterator[None]:
    """Break a rule for a while."""
    patches = MUTANTS[name]()
    before = [(where, what, vars(where)[what]) for where, what, _ in patches]
    try:
        for where, what, other in patches:
            setattr(where, what, other)
        yield
    finally:
        for where, what, old in before:
            setattr(where, what, old)


# -- the commit rule -----------------------------------------------------------------------------


@_mutant
def answer_before_the_ack() -> list[Patch]:
    """Nobody but the primary counts."""
    return [(reign.Reign, "required", lambda self: frozenset())]


@_mutant
def answer_before_the_sync() -> list[Patch]:
    """What was written counts as on the primary's disk."""

    def commit(self: leading.Reigning) -> None:
        self.journal.durable = self.journal.written
        old(self)

    old = leading.Reigning.commit
    return [(leading.Reigning, "commit", commit)]


@_mutant
def shrink_acted_on_at_once() -> list[Patch]:
    """A member that is taken out does not count before that is known."""

    def required(self: Any) -> Any:
        members = self._pending or frozenset(self.record.members)
        return frozenset(one for one in members if one.broker != self._me)

    return [(reign.Reign, "required", required)]


@_mutant
def joiner_counted_late() -> list[Patch]:
    """A joiner counts when the change is known, not when it is sent."""

    def required(self: Any) -> Any:
        return frozenset(one for one in self.record.members if one.broker != self._me)

    return [(reign.Reign, "required", required)]


@_mutant
def joiner_not_checked() -> list[Patch]:
    """A follower joins with whatever it has."""

    def may_join(self: Any, follower: Follower, now_us: int, end: Position) -> bool:
        del end
        return (
            follower.broker != self._me
            and self._newest.get(follower.broker) == follower.incarnation
            and follower.member not in self.record.members
            and follower.promises(now_us)
        )

    return [(reign.Reign, "_may_join", may_join)]


@_mutant
def joiner_without_epoch() -> list[Patch]:
    """A joiner needs what is committed, but not the EPOCH of the reign."""
    old = reign.Reign._may_join

    def may_join(self: Any, follower: Follower, now_us: int, end: Position) -> bool:
        begun, self._begun = self._begun, self._committed
        try:
            return old(self, follower, now_us, end)
        finally:
            self._begun = begun

    return [(reign.Reign, "_may_join", may_join)]


@_mutant
def committed_before_the_epoch() -> list[Patch]:
    """The commit mark of a reign begins before its EPOCH is committed."""
    old = reign.Reign.__init__

    def init(self: Any, *args: Any) -> None:
        old(self, *args)
        self._begun = Position(1)

    return [(reign.Reign, "__init__", init)]


@_mutant
def unknown_is_failed() -> list[Patch]:
    """A change of unknown outcome counts as one that failed."""

    async def decided(self: leading.Reigning, record: Leadership) -> None:
        outcome = await self.broker.records.change(record)
        if isinstance(outcome, Swapped):
            self.learned(record)
        else:
            self.reign.withdrawn()

    async def change(coordinator: Any, key: str, record: Leadership) -> Any:
        return await coordinator.swap(key, record.version - 1, pack(record))

    old = resolving.change

    async def some(coordinator: Any, key: str, record: Leadership) -> Any:
        do = old if record.version == 1 else change
        outcome = await do(coordinator, key, record)
        return Refused() if isinstance(outcome, Unknown) else outcome

    return [(leading.Reigning, "decided", decided), (coordination, "change", some)]


@_mutant
def a_change_withdrawn_for_another() -> list[Patch]:
    """A change that was never sent withdraws the one that began since."""
    return [(leading.Reigning, "withdraw", lambda self: self.reign.withdrawn())]


@_mutant
def acknowledged_more_than_was_written() -> list[Patch]:
    """A follower counts for a record more than it acknowledged."""

    def acknowledged(self: Follower, told: Acknowledgement) -> None:
        self.held = Position(max(self.held, told.written + 64))
        old(self, told)

    old = Follower.acknowledged
    return [(Follower, "acknowledged", acknowledged)]


# -- who leads -----------------------------------------------------------------------------------


@_mutant
def anyone_elected() -> list[Patch]:
    """Who is no member stands, too."""
    old = standing.succession

    def succession(record: Leadership, me: Any, *args: Any) -> Leadership:
        try:
            return old(record, me, *args)
        except standing.MayNotStand:
            wrong = msgspec.structs.replace(record, primary=me.broker)
            return old(wrong, me, *args)

    return [(broker, "succession", succession), (broker.Broker, "_may_stand", _impatient)]


def _impatient(self: Any) -> bool:
    record = self._record
    return (
        record is not None
        and record.primary != self.name
        and self.loyalty.may_stand(self.machine.now_us())
    )


@_mutant
def member_by_name() -> list[Patch]:
    """Another life of a member is a member."""
    old = standing.succession

    def succession(record: Leadership, me: Any, *args: Any) -> Leadership:
        members = tuple(me if one.broker == me.broker else one for one in record.members)
        return old(msgspec.structs.replace(record, members=members), me, *args)

    def may_stand(self: Any) -> bool:
        record = self._record
        return (
            record is not None
            and self.name in [one.broker for one in record.members]
            and record.primary != self.name
            and self.loyalty.may_stand(self.machine.now_us())
        )

    return [(broker, "succession", succession), (broker.Broker, "_may_stand", may_stand)]


@_mutant
def stands_without_stopping() -> list[Patch]:
    """Who stands goes on acknowledging until the swap is known."""

    async def follow(self: Any, record: Any) -> Any:
        """As it is, but the copy stays open and its stream goes on until the swap is done."""
        replica = Replica(self)
        replica.open()
        while True:
            record = self._record or record
            if record.primary == self.name:
                replica.close()
                return None
            await self._copy(replica, record)
            if self._may_stand():
                break
            await self.life.sleep(broker.AGAIN_US)
        stream = replica.stream
        if stream is not None:
            await stream.idle
        replica.sync_all()
        wanted = await self._stand()
        if stream is not None:
            stream.stop("it stood")
            await stream.idle
        replica.close()
        return wanted

    def may_stand(self: Any) -> bool:
        """A lease is nothing to wait for: the rule that is broken must be the one that counts."""
        record = self._record
        return (
            record is not None
            and self.me in record.members
            and record.primary != self.name
            and self.machine.now_us() // 1_000_000 % 15 == 0
        )

    return [(broker.Broker, "_follow", follow), (broker.Broker, "_may_stand", may_stand)]


@_mutant
def no_sync_before_the_swap() -> list[Patch]:
    """Who stands does not sync what it has."""
    return [(Replica, "sync_all", lambda self: None)]


@_mutant
def promises_forgotten() -> list[Patch]:
    """Which epochs there were is not remembered."""
    return [
        (standing.Loyalty, "hears_of", lambda self, epoch: None),
        (standing.Loyalty, "learns", lambda self, epoch, now_us: None),
    ]


@_mutant
def lease_not_asked() -> list[Patch]:
    """Answers leave whatever the members promised."""
    return [(reign.Reign, "may_answer", lambda self, now_us: not self.deposed)]


# -- a lease that changes ------------------------------------------------------------------------


@_mutant
def shorter_lease_acted_on_at_once() -> list[Patch]:
    """A promise lasts as long as the newest one, although a longer one was given before."""

    def promises(self: standing.Loyalty, now_us: int, promise_us: int) -> None:
        self.until_us = now_us + promise_us
        self._free = False

    return [(standing.Loyalty, "promises", promises)]


@_mutant
def own_lease_trusted() -> list[Patch]:
    """The primary relies on what it asks for, not on what a member has promised."""
    old = reign.Reign.acknowledged

    def acknowledged(
        self: reign.Reign, follower: Follower, told: Acknowledgement, now_us: int, end: Position
    ) -> None:
        wrong = dataclasses.replace(told, promise_us=self._settings.lease_us)
        old(self, follower, wrong, now_us, end)

    return [(reign.Reign, "acknowledged", acknowledged)]


@_mutant
def promise_not_stored() -> list[Patch]:
    """Another life of a member does not know what the former one has promised."""
    return [(standing.Loyalty, "remembers", lambda self, promise_us: None)]


# -- the stream and the copy ---------------------------------------------------------------------


@_mutant
def checksum_not_checked() -> list[Patch]:
    """A follower takes records that are damaged."""
    old = incoming.Incoming._checked

    def checked(self: Any, data: bytes, at: int, *args: Any) -> Any:
        """Check a record after its CRC was made right."""
        _, length, _, kind = _HEAD.unpack_from(data, at + 4)
        covered = HEADER_BYTES if kind == Kind.PAD else length
        right = bytearray(data)
        CRC.pack_into(right, at, crc32c(data[at + 4 : at + covered]))
        return old(self, bytes(right), at, *args)

    return [(incoming.Incoming, "_checked", checked)]


@_mutant
def chain_not_checked() -> list[Patch]:
    """A follower takes records that do not follow the one before."""
    old = incoming.Incoming._checked

    def checked(
        self: Any, data: bytes, at: int, position: Any, last_crc: Any, last_epoch: Any
    ) -> Any:
        del last_crc
        return old(self, data, at, position, None, last_epoch)

    return [(incoming.Incoming, "_checked", checked)]


@_mutant
def begun_behind_another_history() -> list[Patch]:
    """A copy goes on with a segment, whatever is before it."""

    def leads_to(self: copying.Copy, first: Position, matched: Position) -> bool:
        del matched
        return self.end >= first

    return [(copying.Copy, "leads_to", leads_to)]


@_mutant
def acknowledged_before_it_was_compared() -> list[Patch]:
    """What the copy has counts before it was compared."""
    return [
        (
            following.Following,
            "held",
            property(lambda self: max(self._incoming.end, self._copy.end)),
        )
    ]


@_mutant
def committed_beyond_what_was_compared() -> list[Patch]:
    """A commit mark covers what was not compared."""

    def tell(self: Any) -> None:
        self._copy.tell(committed=min(self.commit, self._copy.end), told=self._loyalty.told)

    return [(following.Following, "_tell", tell)]


@_mutant
def cut_without_zeros() -> list[Patch]:
    """What is cut stays behind the end."""

    def clear(disk: Any, end: ending.Ending) -> int:
        return recovery._keep_spares(disk, end)

    return [(recovery, "clear", clear)]


@_mutant
def copy_note_before_the_bytes() -> list[Patch]:
    """COPY is written before the bytes are synced."""

    def run(self: copying.CopySyncJob) -> None:
        self.copy_file.write(self.note)
        for file in self.files:
            file.sync()
        if self.folder is not None:
            self.folder.sync_folder("journal")

    return [(copying.CopySyncJob, "run", run)]


@_mutant
def durable_taken_from_the_records_of_a_copy() -> list[Patch]:
    """What the primary's disk had counts as durable here."""
    old = ending._walk

    def walk(disk: Any, bases: Any, size: Any, start: Any, note: Any) -> Any:
        found = old(disk, bases, size, start, None)
        return dataclasses.replace(found, copy=note)

    return [(ending, "_walk", walk)]


@_mutant
def commit_mark_at_the_local_disk() -> list[Patch]:
    """The commit mark is what the primary's disk has."""
    return [(reign.Reign, "commit_mark", lambda self, durable: durable)]


# -- a loss that an operator accepts -------------------------------------------------------------


@_mutant
def loss_not_accepted_by_others() -> list[Patch]:
    """Nobody cuts below its commit mark, whatever an operator accepted."""
    return [(loss.Loss, "promised", lambda self, committed, last, followed: committed)]


@_mutant
def cut_below_what_was_accepted() -> list[Patch]:
    """With an accepted loss, a follower cuts where the stream begins."""
    old = following.Following._differing

    def differing(self: Any, position: Position, data: bytes, pieces: Any) -> Any:
        copy = self._copy
        first = self.parted is None and copy.first < position < copy.end
        if self._loss is not None and first and copy.committed > position:
            self.given_up = copy.committed
            copy.cut(position, accept_loss=True)
            self.parted = position
            return pieces
        return old(self, position, data, pieces)

    return [(following.Following, "_differing", differing)]


@_mutant
def loss_stated_too_late() -> list[Patch]:
    """The record says that the loss begins behind what the copy has."""
    old = forcing._cut_below

    def cut_below(record: Leadership, reach: Reach) -> Position:
        return Position(max(old(record, reach), reach.end + 4096))

    return [(forcing, "_cut_below", cut_below)]


@_mutant
def given_up_and_not_kept() -> list[Patch]:
    """What is cut is not kept aside."""
    return [(cutting, "keep_some", lambda disk, found, cut: [])]


# -- the views of a follower ---------------------------------------------------------------------


@_mutant
def applied_above_the_commit_mark() -> list[Patch]:
    """A follower applies all that it has."""
    return [(Replica, "bound", property(lambda self: self.copy.end))]


@_mutant
def views_kept_after_a_cut() -> list[Patch]:
    """A follower keeps views of what it has cut."""
    return [(Replica, "was_cut", lambda self, at: None)]


@_mutant
def follower_never_forgets() -> list[Patch]:
    """What ticks make a primary forget, a follower remembers."""
    return [(standby.Standby, "_sweep", lambda self, now_us: None)]


OF_VIEWS: Final = frozenset(
    {"applied_above_the_commit_mark", "views_kept_after_a_cut", "follower_never_forgets"}
)
"""Mutants that only cases of the kind ``applied`` notice."""
OF_LOSS: Final = frozenset(
    {
        "loss_not_accepted_by_others", "cut_below_what_was_accepted", "loss_stated_too_late",
        "given_up_and_not_kept",
    }
)  # fmt: skip
"""Mutants that only cases of the kind ``loss`` are likely to notice."""


# -- damaged bytes -------------------------------------------------------------------------------


@_mutant
def patched_without_linking_behind() -> list[Patch]:
    """The donor's records take the place of the damage when they reach a good record behind it."""

    def links(self: Any) -> bool:
        return joint(self._disk, self._size, self.next) is not None

    return [(mending.Mending, "_links", links)]


@_mutant
def patched_with_what_is_not_checked() -> list[Patch]:
    """The checksum of a donor's record is taken for right."""

    def take_one(self: Any, records: bytes, at: int) -> int:
        head = header_of(records[at : at + HEADER_BYTES].ljust(HEADER_BYTES, b"\0"))
        size = HEADER_BYTES if head.kind == Kind.PAD else max(head.length, HEADER_BYTES)
        data = records[at : at + size]
        if head.magic != MAGIC or head.position != self.next or len(data) < size:
            raise mending.BadDonor("no record")
        if self._incoming.last_crc is not None and head.prev_crc != self._incoming.last_crc:
            raise mending.BadDonor("another chain")
        end = Position(self.next + head.length)
        self._records.append(SoundRecord(self.next, end, data))
        self.next = self._incoming.end = end
        self._incoming.last_crc = head.crc
        if self.next >= self._limit:
            raise mending.BadDonor("no good record follows below the commit mark")
        return size

    return [(mending.Mending, "_take_one", take_one)]


OF_ROT: Final = frozenset({"patched_without_linking_behind", "patched_with_what_is_not_checked"})
"""Mutants that only cases of the kind ``rot`` notice."""
OF_LEASES: Final = frozenset(
    {"shorter_lease_acted_on_at_once", "own_lease_trusted", "promise_not_stored"}
)
"""Likewise, of the kind ``lease``."""
_USUAL: Final = tuple(one for one in ROTATION if one not in ("rot", "applied", "lease"))


def kind_of(name: str, number: int) -> str:
    """Return the kind of the next case that is to notice a mutant."""
    if name in OF_ROT:
        return "rot"
    if name in OF_VIEWS:
        return "applied"
    if name in OF_LEASES:
        return "lease"
    return "loss" if name in OF_LOSS else _USUAL[number % len(_USUAL)]
