"""Mutants: rules of replication that are broken, one at a time; a run must find each.

A rule of a core is broken in the core. Where the rule is one of the process around it, it is broken
in this package, whose roles follow those of ``ternmq.server.node``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from ternmq.cluster.coordination import group as coordination
from ternmq.cluster.coordination import resolving
from ternmq.cluster.coordination.port import Refused, Swapped, Unknown
from ternmq.cluster.coordination.record import Leadership
from ternmq.cluster.replication import following, incoming, reign, standing
from ternmq.cluster.replication.follower import Acknowledgement, Follower
from ternmq.journal.copy import copy as copying
from ternmq.journal.recovery import ending
from ternmq.model.types import Position
from tests.sim.group import broker, leading

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
    return [(reign.Reign, "required", lambda self: frozenset())]


@_mutant
def answer_before_the_sync() -> list[Patch]:
    def commit(self: leading.Reigning) -> None:
        self.journal.durable = self.journal.written
        old(self)

    old = leading.Reigning.commit
    return [(leading.Reigning, "commit", commit)]


@_mutant
def shrink_acted_on_at_once() -> list[Patch]:
    def required(self: Any) -> Any:
        members = self._pending or frozenset(self.record.members)
        return frozenset(one for one in members if one.broker != self._me)

    return [(reign.Reign, "required", required)]


@_mutant
def joiner_counted_late() -> list[Patch]:
    def required(self: Any) -> Any:
        return frozenset(one for one in self.record.members if one.broker != self._me)

    return [(reign.Reign, "required", required)]


@_mutant
def joiner_not_checked() -> list[Patch]:
    def may_join(self: Any, follower: Follower, now_us: int, end: Position) -> bool:
        del end
        return (
            follower.broker != self._me
            and self._newest.get(follower.broker) == follower.incarnation
            and follower.member not in self.record.members
            and follower.promises(now_us, self._settings)
        )

    return [(reign.Reign, "_may_join", may_join)]


@_mutant
def joiner_without_epoch() -> list[Patch]:
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
    old = reign.Reign.__init__

    def init(self: Any, *args: Any) -> None:
        old(self, *args)
        self._begun = Position(1)

    return [(reign.Reign, "__init__", init)]


@_mutant
def unknown_is_failed() -> list[Patch]:
    async def decided(self: leading.Reigning, record: Leadership) -> None:
        outcome = await self.broker.records.change(record)
        if isinstance(outcome, Swapped):
            self.learned(record)
        else:
            self.reign.withdrawn()

    async def change(coordinator: Any, key: str, record: Leadership) -> Any:
        from ternmq.cluster.coordination.record import pack

        return await coordinator.swap(key, record.version - 1, pack(record))

    old = resolving.change

    async def some(coordinator: Any, key: str, record: Leadership) -> Any:
        do = old if record.version == 1 else change
        outcome = await do(coordinator, key, record)
        return Refused() if isinstance(outcome, Unknown) else outcome

    return [(leading.Reigning, "decided", decided), (coordination, "change", some)]


@_mutant
def a_change_withdrawn_for_another() -> list[Patch]:
    return [(leading.Reigning, "withdraw", lambda self: self.reign.withdrawn())]


@_mutant
def acknowledged_more_than_was_written() -> list[Patch]:
    def acknowledged(self: Follower, told: Acknowledgement) -> None:
        self.held = Position(max(self.held, told.written + 64))
        if self.granted_us is None or told.sent_us > self.granted_us:
            self.granted_us = told.sent_us

    return [(Follower, "acknowledged", acknowledged)]


# -- who leads -----------------------------------------------------------------------------------


@_mutant
def anyone_elected() -> list[Patch]:
    old = standing.succession

    def succession(record: Leadership, me: Any, *args: Any) -> Leadership:
        try:
            return old(record, me, *args)
        except standing.MayNotStand:
            import msgspec

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
    old = standing.succession

    def succession(record: Leadership, me: Any, *args: Any) -> Leadership:
        members = tuple(me if one.broker == me.broker else one for one in record.members)
        import msgspec

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
    async def follow(self: Any, record: Any) -> Any:
        """As it is, but the copy stays open and its stream goes on until the swap is done."""
        replica = broker.Replica(self)
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
        await replica.stream.idle
        replica.sync_all()
        wanted = await self._stand()
        replica.stream.stop("it stood")
        await replica.stream.idle
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
    return [(broker.Replica, "sync_all", lambda self: None)]


@_mutant
def promises_forgotten() -> list[Patch]:
    return [(standing.Loyalty, "may_follow", lambda self, epoch: True)]


@_mutant
def lease_not_asked() -> list[Patch]:
    return [(reign.Reign, "may_answer", lambda self, now_us: not self.deposed)]


@_mutant
def lease_of_the_follower_too_short() -> list[Patch]:
    def may_stand(self: Any, now_us: int, *, ahead: int = 0) -> bool:
        return bool(now_us - self._promised_us >= self._settings.lease_us // 3)

    return [(standing.Loyalty, "may_stand", may_stand)]


# -- the stream and the copy ---------------------------------------------------------------------


@_mutant
def checksum_not_checked() -> list[Patch]:
    import struct

    def crc(data: bytes) -> int:
        return int(struct.unpack_from("<I", _SEEN[-1], _AT[-1])[0]) if _SEEN else len(data)

    old = incoming.Incoming._checked

    def checked(self: Any, data: bytes, at: int, *args: Any) -> Any:
        _SEEN.append(data)
        _AT.append(at)
        try:
            return old(self, data, at, *args)
        finally:
            _SEEN.pop()
            _AT.pop()

    return [(incoming, "crc32c", crc), (incoming.Incoming, "_checked", checked)]


_SEEN: list[bytes] = []
_AT: list[int] = []


@_mutant
def chain_not_checked() -> list[Patch]:
    old = incoming.Incoming._checked

    def checked(
        self: Any, data: bytes, at: int, position: Any, last_crc: Any, last_epoch: Any
    ) -> Any:
        del last_crc
        return old(self, data, at, position, None, last_epoch)

    return [(incoming.Incoming, "_checked", checked)]


@_mutant
def begun_behind_another_history() -> list[Patch]:
    def leads_to(self: copying.Copy, first: Position, matched: Position) -> bool:
        del matched
        return self.end >= first

    return [(copying.Copy, "leads_to", leads_to)]


@_mutant
def acknowledged_before_it_was_compared() -> list[Patch]:
    return [
        (following.Following, "held", property(lambda self: max(self._incoming.end, self._copy.end)))
    ]


@_mutant
def committed_beyond_what_was_compared() -> list[Patch]:
    def tell(self: Any) -> None:
        self._copy.tell(committed=min(self.commit, self._copy.end), told=self._loyalty.told)

    return [(following.Following, "_tell", tell)]


@_mutant
def cut_without_zeros() -> list[Patch]:
    from ternmq.journal.recovery import recovery

    def clear(disk: Any, end: ending.Ending) -> int:
        return recovery._keep_spares(disk, end)

    return [(recovery, "clear", clear)]


@_mutant
def copy_note_before_the_bytes() -> list[Patch]:
    def run(self: copying.CopySyncJob) -> None:
        self.copy_file.write(self.note)
        for file in self.files:
            file.sync()
        if self.folder is not None:
            self.folder.sync_folder("journal")

    return [(copying.CopySyncJob, "run", run)]


@_mutant
def durable_taken_from_the_records_of_a_copy() -> list[Patch]:
    old = ending._walk

    def walk(disk: Any, bases: Any, size: Any, start: Any, note: Any) -> Any:
        found = old(disk, bases, size, start, None)
        return dataclasses.replace(found, copy=note)

    return [(ending, "_walk", walk)]


@_mutant
def cut_forgotten() -> list[Patch]:
    old = copying.cut_note

    def note(stated: Any, at: Any) -> Any:
        return dataclasses.replace(old(stated, at), synced=stated.synced, cut_to=None)

    return [(copying, "cut_note", note)]


@_mutant
def commit_mark_at_the_local_disk() -> list[Patch]:
    return [(reign.Reign, "commit_mark", lambda self, durable: durable)]

