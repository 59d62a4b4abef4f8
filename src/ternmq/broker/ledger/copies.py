"""What the copies of the journal at other brokers mean for what clients send."""

from __future__ import annotations

from typing import Final

from ternmq.model.errors import ReadOnly, StrictNeedsReplica
from ternmq.model.marks import Rests, rests_of
from ternmq.model.specs import Durability, TopicSpec
from ternmq.model.types import Position

FAILOVER: Final = "failover"
COPIES: Final = "copies"
BEHIND: Final = "behind"
REASONS: Final = (FAILOVER, COPIES, BEHIND)
"""Why a broker group takes no new messages: a member took over for reads only; fewer copies than
the setting ``copies`` are recorded; every copy is too far behind."""


class Copies:
    """What the copies allow here, and what they still need. Set by the reign.

    Attributes:
        strict: Whether two copies, and as many as are ``needed``, are recorded, so that strict
            topics take messages.
        needed: Number of copies that answers about new messages need. 1: those that there are.
        read_only: Why the broker group takes no new messages; empty: it does.
        reason: The same in one word of ``REASONS``; empty: it does.
        unsent: The follower that has got least, and the position from which on it still has to be
            sent the journal; None: no follower is connected.
    """

    __slots__ = ("needed", "read_only", "reason", "strict", "unsent")

    def __init__(self) -> None:
        self.strict = False
        self.needed = 1
        self.read_only = self.reason = ""
        self.unsent: tuple[Position, str] | None = None

    def check(self, spec: TopicSpec) -> None:
        """Refuse a new message for a topic, if it cannot be taken now.

        Raises:
            ReadOnly: The broker group takes none.
            StrictNeedsReplica: The topic is strict, and two copies are not sure.
        """
        if self.read_only:
            raise ReadOnly(self.read_only)
        if self.strict:
            return
        if self.needed > 1:  # the reign has not said so yet
            raise ReadOnly(f"fewer than {self.needed} copies count, which the setting copies needs")
        if spec.durability is Durability.STRICT:
            raise StrictNeedsReplica(f"topic {spec.name} is strict, and there is only one copy now")

    def rests(self, durability: Durability) -> Rests:
        """Return the mark that the answer to a send waits for, by the durability of the topic."""
        if self.needed > 1 and durability is Durability.NORMAL:
            return Rests.COPIES
        return rests_of(durability)
