"""What a primary knows of a process that copies its journal."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from ternmq.cluster.coordination.record import Member
from ternmq.cluster.replication.settings import CopySettings, trusted_us
from ternmq.model.types import Epoch, Position


class Kind(Enum):
    """What a follower may become."""

    MEMBER = "member"
    """A member, as soon as it has caught up."""
    SYNCED = "synced"
    """A member that acknowledges what its disk has, so that it stays one over its restarts."""
    BACKUP = "backup"
    """Never a member: a backup, or a copy that is asynchronous by its settings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledgement:
    """What a follower says that it has.

    Attributes:
        epoch: The epoch that it follows.
        written: Position up to which its file has the bytes.
        synced: Position up to which its disk has them.
        sent_us: The newest time of the primary's clock that the primary sent to it.
        promise_us: Time for which it does not stand for primary, from when it said this.
    """

    epoch: Epoch
    written: Position
    synced: Position
    sent_us: int
    promise_us: int


class Follower:
    """A process that copies the journal. Not thread-safe; call it from the broker's loop.

    Args:
        broker: Its name.
        incarnation: Of its process.
        kind: What it may become.
        now_us: When it came.

    Attributes:
        held: Position up to which it has acknowledged, as its kind counts.
        granted_us: When its last promise began at the latest, by the primary's clock. None: it has
            promised nothing yet.
        connections: Number of its open connections: the old one may end after the new one came.
    """

    def __init__(self, broker: str, incarnation: int, kind: Kind, now_us: int) -> None:
        self.broker = broker
        self.incarnation = incarnation
        self.kind = kind
        self.held = Position(0)
        self.granted_us: int | None = None
        self.connections = 1
        self._trusted_until_us: int | None = None
        self._came_us = now_us
        self._behind_since_us: int | None = None
        self._far_since_us: int | None = None

    @property
    def member(self) -> Member:
        """How the leadership record names it if it is a member."""
        return Member(self.broker, 0 if self.kind is Kind.SYNCED else self.incarnation)

    def acknowledged(self, told: Acknowledgement) -> None:
        """Believe what it says; the caller has checked the epoch and that the bytes exist."""
        held = told.synced if self.kind is Kind.SYNCED else told.written
        if held > self.held:
            self.held = held
            self._behind_since_us = None
        if self.granted_us is None or told.sent_us > self.granted_us:
            self.granted_us = told.sent_us
        # By what it has promised, not by what it was asked for. A shorter promise ends no longer
        # one: whoever has given both keeps both.
        until_us = told.sent_us + trusted_us(told.promise_us)
        self._trusted_until_us = max(until_us, self._trusted_until_us or until_us)

    def promises(self, now_us: int) -> bool:
        """Return whether it surely does not stand for primary now."""
        return self._trusted_until_us is not None and now_us < self._trusted_until_us

    def silent(self, now_us: int, settings: CopySettings) -> bool:
        """Return whether nothing new came: what is late by so much does not count as new."""
        heard_us = self._came_us if self.granted_us is None else self.granted_us
        return now_us - heard_us >= settings.silent_us

    def fails(self, now_us: int, end: Position, settings: CopySettings) -> str:
        """Return why it must not be a member any more; empty if it may be.

        Call it a few times a second: how long the follower is behind counts from the first call
        that finds it so.
        """
        if self.kind is Kind.BACKUP:
            return "it is a copy that nobody waits for"
        if self.silent(now_us, settings):
            return "it is silent"
        if self.held >= end:
            self._behind_since_us = None
        elif self._behind_since_us is None:
            self._behind_since_us = now_us
        elif now_us - self._behind_since_us >= settings.silent_us:
            return "it acknowledges nothing new"
        if end - self.held <= settings.far_bytes:
            self._far_since_us = None
        elif self._far_since_us is None:
            self._far_since_us = now_us
        elif now_us - self._far_since_us >= settings.far_us:
            return f"it is {end - self.held:,} bytes behind"
        return ""
