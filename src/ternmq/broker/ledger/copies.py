"""What the copies of the journal at other brokers mean for what clients send."""

from __future__ import annotations

from ternmq.model.errors import ReadOnly, StrictNeedsReplica
from ternmq.model.specs import Durability, TopicSpec
from ternmq.model.types import Position


class Copies:
    """What the copies allow here, and what they still need. Set by the reign.

    Attributes:
        strict: Whether at least two copies are recorded, so that strict topics take messages.
        read_only: Why the broker group takes no new messages; empty: it does.
        unsent: The follower that has got least, and the position from which on it still has to be
            sent the journal; None: no follower is connected.
    """

    __slots__ = ("read_only", "strict", "unsent")

    def __init__(self) -> None:
        self.strict = False
        self.read_only = ""
        self.unsent: tuple[Position, str] | None = None

    def check(self, spec: TopicSpec) -> None:
        """Refuse a new message for a topic, if it cannot be taken now.

        Raises:
            ReadOnly: The broker group takes none.
            StrictNeedsReplica: The topic is strict, and two copies are not sure.
        """
        if self.read_only:
            raise ReadOnly(self.read_only)
        if spec.durability is Durability.STRICT and not self.strict:
            raise StrictNeedsReplica(f"topic {spec.name} is strict, and there is only one copy now")
