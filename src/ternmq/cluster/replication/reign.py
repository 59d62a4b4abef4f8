"""The reign of a primary: whose acknowledgements count, what is committed, who is a member.

A *configuration* is a version of the leadership record. The rule on which everything else is built:
an answer needs every member of every configuration that can be the recorded one. While a change of
the record is on its way, or its outcome is unknown, the old and the new members count.

    alone ---- a follower catches up: it counts, then the swap is sent ----> two copies
    two copies -- a member is silent: it counts until the swap without it is known --> alone

The source of the rules is PacificA (Microsoft Research, MSR-TR-2008-25), with a compare-and-set on
the record in the place of its configuration manager. ``tests/model`` explores them state by state.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ternmq.cluster.coordination.record import MAX_MEMBERS, MAX_WHY, Leadership, Member
from ternmq.cluster.replication.follower import Acknowledgement, Follower, Kind
from ternmq.cluster.replication.settings import CopySettings
from ternmq.model.types import Epoch, Position


class StrangeAcknowledgement(Exception):
    """A follower acknowledged what it cannot have; its connection must be closed."""


@dataclass(frozen=True, slots=True)
class Change:
    """A change of the members that the primary asks the coordinator for.

    Attributes:
        replaces: Version of the record that it replaces.
        members: The members that the record is to have, the primary included.
        why: For people: what led to it.
    """

    replaces: int
    members: tuple[Member, ...]
    why: str


class Reign:
    """What the primary of one epoch knows and decides. Not thread-safe: for the broker's loop.

    Times are µs of a clock of this machine that nobody sets, and that goes on while the machine
    sleeps (CLOCK_BOOTTIME): a lease is over when the machine wakes up.

    Args:
        me: Name of this broker.
        record: The leadership record that made this broker primary.
        begun: End of this reign's EPOCH record in the journal.
        settings: How followers are judged.
        now_us: When the reign began.

    Attributes:
        record: The newest known state of the leadership record.
        deposed: Whether another reign has begun, or may have: nothing is answered any more.
    """

    def __init__(
        self, me: str, record: Leadership, begun: Position, settings: CopySettings, now_us: int
    ) -> None:
        self._me = me
        self.record = record
        self._begun = begun
        self._settings = settings
        self._looked_us = self._awake_us = now_us
        self._followers: dict[tuple[str, int], Follower] = {}
        self._newest: dict[str, int] = {}
        self._pending: frozenset[Member] | None = None
        self._committed = Position(0)
        self.deposed = False

    @property
    def epoch(self) -> Epoch:
        """The epoch of this reign."""
        return self.record.epoch

    def heed(self, settings: CopySettings) -> None:
        """Judge the followers by other settings from now on.

        What they have promised stays as it is: each acknowledgement has stated it.
        """
        self._settings = settings

    # -- followers --------------------------------------------------------------------------------

    def came(self, broker: str, incarnation: int, kind: Kind, now_us: int) -> Follower:
        """Take a process as a follower. One that comes again is the same: it still has its bytes.

        So a connection that breaks again and again does not make a silent member a new one.
        """
        self._newest[broker] = incarnation
        follower = self._followers.get((broker, incarnation))
        if follower is not None and follower.kind is kind:
            follower.connections += 1
            return follower
        follower = Follower(broker, incarnation, kind, now_us)
        self._followers[broker, incarnation] = follower
        return follower

    def went(self, follower: Follower) -> None:
        """Note that a connection has ended. A member counts until it is out of the record."""
        follower.connections -= 1
        self._forget()

    def acknowledged(
        self, follower: Follower, told: Acknowledgement, now_us: int, end: Position
    ) -> None:
        """Note what a follower has.

        Args:
            follower: Who says it.
            told: What it says.
            now_us: The time.
            end: End of the journal here; nobody can have more.

        Raises:
            StrangeAcknowledgement: It speaks of another epoch, or of bytes or times that this
                primary has not sent. Nothing was changed.
        """
        if told.epoch != self.epoch:
            raise StrangeAcknowledgement(f"it acknowledges epoch {told.epoch}, not {self.epoch}")
        if not told.synced <= told.written <= end:
            raise StrangeAcknowledgement(
                f"it acknowledges {told.synced} synced, {told.written} written; the journal ends "
                f"at {end}"
            )
        if told.sent_us > now_us:
            raise StrangeAcknowledgement(f"it returns the time {told.sent_us}, which is to come")
        follower.acknowledged(told)

    # -- what is committed ------------------------------------------------------------------------

    def required(self) -> frozenset[Member]:
        """Return the members, but for this broker, of all configurations that may be recorded."""
        members = frozenset(self.record.members) | (self._pending or frozenset())
        return frozenset(one for one in members if one.broker != self._me)

    def commit_mark(self, durable: Position) -> Position:
        """Return the commit mark; it never falls, and is 0 until it covers this reign's EPOCH.

        Args:
            durable: Position up to which this broker's disk has the journal.
        """
        if self.deposed:
            return self._committed
        mark = min([durable, *[self._held(one) for one in self.required()]])
        if mark >= self._begun:
            self._committed = max(self._committed, mark)
        return self._committed

    def may_answer(self, now_us: int) -> bool:
        """Return whether answers and messages may leave now.

        All whose acknowledgement counts have promised not to stand for primary. Ask it where they
        leave, so that a process that was stopped for a while says nothing when it wakes up.
        """
        return not self.deposed and all(
            any(each.promises(now_us) for each in self._of(one)) for one in self.required()
        )

    @property
    def copies(self) -> int:
        """Number of copies that are recorded, whatever becomes of a change on its way; 0: deposed.

        This broker's is one of them.
        """
        if self.deposed:
            return 0
        return min(len(self.record.members), len(self._pending or self.record.members))

    @property
    def takes_strict(self) -> bool:
        """Whether at least two copies are recorded, whatever becomes of a change on its way."""
        return self.copies > 1

    # -- the members ------------------------------------------------------------------------------

    @property
    def changes(self) -> bool:
        """Whether a change of the members is on its way."""
        return self._pending is not None

    def begin_change(self, now_us: int, end: Position) -> Change | None:
        """Begin a change of the members, if one is due: from now on old and new members count.

        Only one change is on its way at a time. Call this a few times a second. If it was not
        called for long, this process stood still, and nobody is taken out for what it did not hear.

        Returns:
            What to ask the coordinator for; it ends by ``learned``, or by ``withdrawn``.
        """
        if now_us - self._looked_us > self._settings.silent_us // 2:
            self._awake_us = now_us
        self._looked_us = now_us
        if self.deposed or self._pending is not None:
            return None
        members = list(self.record.members)
        why: list[str] = []
        for one in self.record.members:
            if one.broker != self._me and (fails := self._fails(one, now_us, end)):
                members.remove(one)
                why.append(f"without {one.broker}: {fails}")
        for follower in self._followers.values():
            if self._may_join(follower, now_us, end):
                others = [one for one in members if one.broker != follower.broker]
                if len(others) < MAX_MEMBERS:
                    members = [*others, follower.member]
                    why.append(f"with {follower.broker}: it has caught up")
        if not why:
            return None
        self._pending = frozenset(members)
        return Change(self.record.version, tuple(members), "; ".join(why)[:MAX_WHY])

    def withdrawn(self) -> None:
        """End a change that was certainly never sent: what the coordinator was not asked for."""
        self._pending = None

    def learned(self, record: Leadership) -> None:
        """Take note of the record: as this broker changed it, or as it was read.

        A version that is not newer than the known one decides nothing: a change that was given up
        may still come. A newer one does, whoever wrote it.
        """
        if record.version <= self.record.version:
            return
        if record.epoch != self.record.epoch or record.primary != self._me:
            self.deposed = True
            return
        self.record = record
        self._pending = None
        self._forget()

    def heard_of(self, epoch: Epoch) -> None:
        """Note that somebody leads, led or follows another epoch: a higher one ends this reign."""
        if epoch > self.epoch:
            self.deposed = True

    # -- inside -----------------------------------------------------------------------------------

    def _of(self, member: Member) -> Iterator[Follower]:
        """Yield the processes that a member may be: one, or all lives of a synced one."""
        for one in self._followers.values():
            if one.member == member:
                yield one

    def _held(self, member: Member) -> Position:
        return max([one.held for one in self._of(member)], default=Position(0))

    def _fails(self, member: Member, now_us: int, end: Position) -> str:
        """Return why a recorded member must go; empty if it may stay."""
        reasons = [one.fails(now_us, end, self._settings) for one in self._of(member)]
        if now_us - self._awake_us < self._settings.silent_us or not all(reasons):
            return ""
        return reasons[-1] if reasons else "it has not come"

    def _may_join(self, follower: Follower, now_us: int, end: Position) -> bool:
        """Return whether a follower holds this reign's EPOCH and all that is committed."""
        return (
            follower.kind is not Kind.BACKUP
            and follower.broker != self._me
            and self._newest.get(follower.broker) == follower.incarnation
            and follower.member not in self.record.members
            and not follower.silent(now_us, self._settings)
            and follower.promises(now_us)
            and follower.held >= max(self._committed, self._begun)
            and end - follower.held < self._settings.near_bytes
        )

    def _forget(self) -> None:
        """Forget processes that are gone and do not count."""
        required = self.required()
        for key, one in list(self._followers.items()):
            if not one.connections and one.member not in required:
                del self._followers[key]
        for broker, incarnation in list(self._newest.items()):
            if (broker, incarnation) not in self._followers:
                # It may have been an old life whose connection came late.
                del self._newest[broker]
                self._newest.update(one for one in self._followers if one[0] == broker)
