"""The primary of a broker group: followers come and go, and C moves with their acknowledgements.

A turn of the core, with followers::

    requests -> journal.flush -> tail -> each follower's connection     (Copies.written)
                              -> the sync begins
    a sync has ended          -> C moves -> answers leave               (Copies.synced)
    an ACK comes              -> C moves -> answers leave

The shell of a ``Reign``, which decides everything. Whoever owns it (the node) calls ``tick`` and
asks the coordinator for the changes of members that it is given.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from msgspec import UNSET

from ternmq.cluster.coordination.record import Leadership, Member
from ternmq.cluster.replication.follower import Acknowledgement, Kind
from ternmq.cluster.replication.outgoing import Outgoing, Wanted
from ternmq.cluster.replication.reign import Change, Reign
from ternmq.cluster.replication.settings import FIRST_LEASE_US, CopySettings
from ternmq.cluster.replication.tail import Portion, Tail
from ternmq.journal.log.checkpoint import Checkpoint
from ternmq.journal.log.pieces import Match, MatchRead, PieceRead
from ternmq.model.errors import (
    Busy,
    NotPrimary,
    RefusedError,
    ShuttingDown,
    TernMQError,
    Unauthenticated,
)
from ternmq.model.secret import Secret
from ternmq.model.types import NO_POSITION, Epoch, Position
from ternmq.model.version import __version__
from ternmq.record.fact.header import VERSION
from ternmq.server.engine.copies import Errand
from ternmq.server.engine.engine import Core
from ternmq.server.replication.link import Link
from ternmq.wire.bodies import Marks
from ternmq.wire.control import Follow, Followed, Resign
from ternmq.wire.stream import common_version

if TYPE_CHECKING:
    import asyncio

log = logging.getLogger("ternmq.server.replication")

MAX_LINKS: Final = 100
"""Most connections of followers: more is a mistake, such as one that connects in a loop."""
_PATIENCE_US: Final = 10_000_000
"""A follower that acknowledges nothing for so long, or for two leases, is cut off."""
_FROZEN_US: Final = 1_000_000
"""Time without a tick that shows that the process did not run."""


@dataclass(frozen=True, slots=True)
class FollowerFigures:
    """A follower's connection, for lists and metrics.

    Attributes:
        broker: Name of the follower.
        incarnation: Of its process.
        kind: What it may become.
        address: Where it connects from.
        member: Whether it is a recorded member.
        held: Position up to which it has acknowledged, as its kind counts.
        synced: Position up to which its disk has the journal.
        applied: Position up to which its state has the journal.
        behind_bytes: How far ``held`` is behind the end of the journal.
        heard_us: Time since its last acknowledgement.
    """

    broker: str
    incarnation: int
    kind: Kind
    address: str
    member: bool
    held: Position
    synced: Position
    applied: Position
    behind_bytes: int
    heard_us: int


class Primary:
    """The followers of a primary. Not thread-safe: call it from the broker's loop.

    It takes over the commit mark of the core's journal. Make it before clients are served: nothing
    is committed before this reign's EPOCH is, at every member. ``follow`` goes to
    ``Hub.take_follower``.

    Attributes:
        reign: The reign.
        outdated: Why this journal must not be that of the primary: a member has more that was
            committed. Empty: no member says so.

    Args:
        core: The broker; its journal has this reign's EPOCH, on the disk.
        reign: The reign.
        group: Name of the broker group.
        broker: Name of this broker.
        journal_number: Number of the group's journal.
        token: The token of the cluster; not empty.
        settings: How followers are judged.
        now_us: A clock in µs that nobody sets and that goes on while the machine sleeps; the one
            by which the reign was begun.
        on_change: Called in ``tick`` with a change of the members that the coordinator is to be
            asked for. Its outcome comes by ``learned`` or ``withdrawn``.
        on_deposed: Called once when the reign has ended: another one has begun.
    """

    def __init__(
        self,
        core: Core,
        reign: Reign,
        *,
        group: str,
        broker: str,
        journal_number: int,
        token: Secret,
        settings: CopySettings,
        now_us: Callable[[], int],
        on_change: Callable[[Change], None],
        on_deposed: Callable[[str], None],
    ) -> None:
        if not token:
            raise ValueError("a cluster has a token")
        self.reign = reign
        self.outdated = ""
        self._core = core
        self._journal = journal = core.broker.journal
        self._group = group
        self._broker = broker
        self._number = journal_number
        self._token = token
        self._settings = settings
        self._now_us = now_us
        self._on_change = on_change
        self._on_deposed = on_deposed
        self._links: set[Link] = set()
        self._shut = self._deposed = self._closed = False
        self._synchronous = True
        self._ticked_us = self._awake_us = now_us()
        self._tail = Tail(journal.written, settings.tail_bytes)
        self._sent_end = journal.written
        journal.sink = self._tail.add
        journal.share_commits()
        core.copies = self
        self.acknowledged()

    # -- followers --------------------------------------------------------------------------------

    def follow(self, transport: asyncio.Transport, follow: Follow, id_: int, address: str) -> None:
        """Take over a connection whose first frame was FOLLOW: it is refused, or it follows.

        Args:
            transport: The connection; nothing was written to it, and nothing may be read from it
                before the answer.
            follow: The follower's FOLLOW.
            id_: The id of its frame.
            address: The other side's address, for logs and lists.
        """
        link = Link(self, transport, follow, id_, address, self._core.loop)
        self._links.add(link)
        try:
            self._check(follow)
        except TernMQError as error:
            link.refuse(error)
            return
        below: list[Checkpoint] = []  # what is not in memory
        for one in follow.checkpoints:
            asked = Checkpoint(Position(one.position), Epoch(one.epoch), one.crc)
            if asked.position < self._tail.begin:
                below.append(asked)
            elif not below and (match := self._tail.match(asked)) is not None:
                self._begin(link, match)
                return
        journal = self._journal
        job = MatchRead(
            self._core.disk, journal.segment_size, journal.first, journal.written, below
        )
        self._core.read_beside(Errand(job, partial(self._compared, link, job)))

    def _check(self, follow: Follow) -> None:
        """Return if a process may follow.

        Raises:
            TernMQError: It may not.
        """
        if Secret(follow.token) != self._token:
            raise Unauthenticated("the token is not that of the cluster")
        if follow.group != self._group:
            raise RefusedError(
                f"this broker belongs to the broker group {self._group}, not to {follow.group}"
            )
        if follow.journal not in {0, self._number}:
            raise RefusedError(
                f"the folder of {follow.broker} has a journal of another broker group: start "
                "it with the folder that it had, or with an empty one"
            )
        if follow.broker == self._broker:
            raise RefusedError(
                f"two brokers of the group have the name {self._broker}: give one another name"
            )
        common_version(follow.versions)
        if self._closed or self._core.failure is not None:
            raise ShuttingDown("the primary stops")
        self.reign.heard_of(Epoch(follow.told))
        if self.reign.deposed:
            self._see_whether_deposed(f"{follow.broker} was told of epoch {follow.told}")
            raise NotPrimary(f"{self._broker} is not the primary any more")
        if follow.lacking == self.reign.epoch:
            self._check_to_lead(follow)
        if len(self._links) > MAX_LINKS:
            raise Busy(f"{MAX_LINKS} followers are connected")

    def _check_to_lead(self, follow: Follow) -> None:
        """End the reign if it is a member that says that this journal lacks what was committed.

        Another's word does not count: it could not take over.

        Raises:
            NotPrimary: The reign has ended.
        """
        incarnation = 0 if follow.kind == "synced" else follow.incarnation
        if Member(follow.broker, incarnation) not in self.reign.record.members:
            return
        self.outdated = f"{follow.broker} has messages that were answered and are missing here"
        self.reign.deposed = True
        self._see_whether_deposed(self.outdated)
        raise NotPrimary(f"{self._broker} is not the primary any more: {self.outdated}")

    def _compared(self, link: Link, job: MatchRead, error: Exception | None) -> None:
        """Begin the stream, or refuse it, when the histories were compared."""
        if link.closed:
            return
        if error is not None:
            log.error("the histories cannot be compared for the %s: %s", link, error)
            link.refuse(Busy("the journal cannot be read"))
            return
        if self.reign.deposed or self._closed:
            link.refuse(NotPrimary(f"{self._broker} is not the primary any more"))
            return
        found = job.found
        if found is not None and found.position < self._journal.first:
            found = None  # it was removed meanwhile
        self._begin(link, found)

    def _begin(self, link: Link, found: Match | None) -> None:
        """Begin the stream behind the newest record that both journals have."""
        journal, follow, now_us = self._journal, link.follow, self._now_us()
        start = journal.first if found is None else found.end
        version = common_version(follow.versions)
        followed = Followed(
            version=version,
            broker=self._broker,
            journal=self._number,
            epoch=self.reign.epoch,
            record_version=VERSION,
            segment_bytes=journal.segment_size,
            first=journal.first,
            end=journal.written,
            matched=NO_POSITION if found is None else found.position,
            start=start,
            lease_us=FIRST_LEASE_US if version == 1 else self._settings.lease_us,
            silent_us=self._settings.silent_us,
            now_us=now_us,
            software=f"ternmq {__version__}",
            compress="zstd" if version > 1 and _compresses(follow) else UNSET,
        )
        kind = Kind(follow.kind) if self._synchronous else Kind.BACKUP
        follower = self.reign.came(follow.broker, follow.incarnation, kind, now_us)
        for other in list(self._links):
            if other.follower is follower:
                other.cut("it came again")
        outgoing = Outgoing(self._tail, start, self._settings.window_bytes)
        link.begin(follower, outgoing, followed)
        self._note_unsent()

    # -- the links, see ``Owner`` ------------------------------------------------------------------

    def now_us(self) -> int:
        """Return the time of the primary's clock."""
        return self._now_us()

    def marks(self, now_us: int) -> Marks:
        """Return how far this primary is."""
        journal = self._journal
        return Marks(
            epoch=self.reign.epoch,
            end=journal.written,
            durable=journal.durable,
            commit=journal.committed,
            first=journal.first,
            broker_time_us=self._core.time_us(),
            sent_at=now_us,
            lease_ms=self._settings.lease_us // 1000,
        )

    def acknowledge(self, link: Link, told: Acknowledgement, sent_us: int) -> None:
        """Take an acknowledgement; see ``Owner``."""
        follower, outgoing = link.follower, link.outgoing
        assert follower is not None
        assert outgoing is not None
        self.reign.acknowledged(follower, told, sent_us, outgoing.sent)

    def acknowledged(self) -> None:
        """Move the commit mark, and let what waits for the lease leave if it may."""
        if self._core.failure is None:
            mark = self.reign.commit_mark(self._journal.durable)
            needed = self._core.broker.ledger.copies.needed
            self._core.commit(mark, strict=self.reign.copies >= max(2, needed))
            if self._shut and self.may_answer():
                self._core.touch()

    def read(self, link: Link, wanted: Wanted) -> None:
        """Read a piece in the read thread."""
        journal = self._journal
        job = PieceRead(
            self._core.disk, journal.segment_size, wanted.position, journal.written, wanted.most
        )
        self._core.read_beside(Errand(job, partial(self._was_read, link, job)))

    def _was_read(self, link: Link, job: PieceRead, error: Exception | None) -> None:
        if error is not None:
            self._look_at(job.position)
            link.cut(f"its next piece cannot be read: {error}")
            return
        link.was_read(Portion(job.position, job.data, job.end))

    def _look_at(self, position: Position) -> None:
        """Have records looked at that a follower was to get: they may be damaged here."""
        if self._core.look_at is not None:
            self._core.look_at(position)

    def lost(self, link: Link) -> None:
        """Forget a link."""
        self._links.discard(link)
        self._note_unsent()
        if link.follower is not None:
            self.reign.went(link.follower)
            if link.follower.held < self._tail.begin:
                # It was sent what a thread reads. Perhaps it cannot take that, since it is damaged.
                self._look_at(link.follower.held)

    # -- the core, see ``Copies`` ------------------------------------------------------------------

    def written(self) -> None:
        """Send what was written to the followers that keep up."""
        if self._tail.end == self._sent_end:
            return
        self._sent_end = self._tail.end
        for link in self._links:
            link.pump()

    def synced(self) -> None:
        """Move the commit mark."""
        self.acknowledged()

    def may_answer(self) -> bool:
        """Return whether anything may leave to clients now."""
        may = not self._closed and self.reign.may_answer(self._now_us())
        self._shut = not may
        return may

    # -- the owner --------------------------------------------------------------------------------

    def tick(self) -> None:
        """Send MARKS that are due, cut off who is silent, begin a change of the members.

        Call it every 100 to 250 ms.
        """
        if self._closed:
            return
        now_us = self._now_us()
        patience_us = max(_PATIENCE_US, 2 * self._settings.lease_us)
        if now_us - self._ticked_us > _FROZEN_US:
            self._awake_us = now_us  # what came meanwhile is read first
        self._ticked_us = now_us
        for link in list(self._links):
            if now_us - max(link.heard_us, self._awake_us) > patience_us:
                link.cut("it acknowledges nothing")
            link.look(now_us)
        self._note_unsent()
        change = self.reign.begin_change(now_us, self._journal.written)
        if change is not None:
            log.info("the members are to change: %s", change.why)
            self._on_change(change)

    def learned(self, record: Leadership) -> None:
        """Take note of the leadership record: as this broker changed it, or as it was read."""
        self.reign.learned(record)
        self._see_whether_deposed(f"{record.primary} is the primary of epoch {record.epoch}")
        self.acknowledged()

    def withdrawn(self) -> None:
        """Note that the change that was begun was certainly never sent."""
        self.reign.withdrawn()
        self.acknowledged()

    def resign(self, why: str, to: str = "") -> None:
        """End the reign: nothing is answered from here on, and a member may stand at once.

        Args:
            why: For people.
            to: The broker that is to take over; empty: whichever stands first.
        """
        if self._closed:
            return
        self._deposed = self.reign.deposed = True  # before a member can know
        log.warning("this broker resigns as primary of epoch %d: %s", self.reign.epoch, why)
        told = Resign(epoch=self.reign.epoch, why=_printable(why), to=to)
        for link in list(self._links):
            link.resign(told)

    def heed(self, settings: CopySettings) -> None:
        """Judge the followers by other settings from now on; the next MARKS tell them the lease.

        The sizes of the tail and of the window stay what they are.
        """
        self._settings = settings
        self.reign.heed(settings)

    def need(self, copies: int) -> None:
        """Set how many copies answers about new messages need; 1: those that are members."""
        if copies != self._core.broker.ledger.copies.needed:
            self._core.broker.ledger.copies.needed = copies
            self.acknowledged()

    def wait_for_copies(self, *, synchronous: bool) -> None:
        """Set whether followers may be members. On a change all of them come again."""
        if synchronous == self._synchronous:
            return
        self._synchronous = synchronous
        for link in list(self._links):
            link.cut("the setting copy has changed")

    def close(self) -> None:
        """Close all connections of followers. Nothing leaves to clients after that."""
        if self._closed:
            return
        self._closed = True
        self._journal.sink = None
        for link in list(self._links):
            link.cut("the primary stops")

    def figures(self) -> list[FollowerFigures]:
        """Return the followers that are connected, by name."""
        now_us, end = self._now_us(), self._journal.written
        found: list[FollowerFigures] = []
        for link in self._links:
            one = link.follower
            if one is not None and not link.closed:
                found.append(
                    FollowerFigures(
                        broker=one.broker,
                        incarnation=one.incarnation,
                        kind=one.kind,
                        address=link.address,
                        member=one.member in self.reign.record.members,
                        held=one.held,
                        synced=link.synced,
                        applied=link.applied,
                        behind_bytes=max(0, end - one.held),
                        heard_us=max(0, now_us - link.heard_us),
                    )
                )
        return sorted(found, key=lambda one: (one.broker, one.incarnation))

    def _note_unsent(self) -> None:
        """Note what must stay in the journal, because it is still to be sent to a follower."""
        sent = [
            (one.outgoing.sent, one.follow.broker)
            for one in self._links
            if one.outgoing is not None and not one.closed
        ]
        self._core.broker.ledger.copies.unsent = min(sent, default=None)

    def _see_whether_deposed(self, why: str) -> None:
        if self.reign.deposed and not self._deposed:
            self._deposed = True
            log.warning("this broker is not the primary any more: %s", why)
            self._on_deposed(why)


def _compresses(follow: Follow) -> bool:
    """Return whether a stream is compressed: never one for whose acknowledgement answers wait."""
    return (
        follow.kind == Kind.BACKUP.value
        and follow.compress is not UNSET
        and "zstd" in follow.compress
    )


def _printable(why: str) -> str:
    """Return a text as it may be sent: one line of at most 500 characters."""
    return "".join(one if one.isprintable() else " " for one in why[:500])
