"""What the copies of the journal at other brokers mean for what clients send."""

from __future__ import annotations

from ternmq.model.errors import ReadOnly, StrictNeedsReplica
from ternmq.model.specs import Durability, TopicSpec


class Copies:
    """Whether two copies are sure, and whether new messages are taken. Set by the reign.

    Attributes:
        strict: Whether at least two copies are recorded, so that strict topics take messages.
        read_only: Why the broker group takes no new messages; empty: it does.
    """

    __slots__ = ("read_only", "strict")

    def __init__(self) -> None:
        self.strict = False
        self.read_only = ""

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
