"""What is sent: every message can be told to be right, or invented, from its identity alone.

The identity of a message is (producer, sequence); its body is made from it. Whoever reads a body
finds the identity in its head and can make the whole body again.
"""

from __future__ import annotations

import hashlib
from typing import Final, NamedTuple

from ternmq.model.specs import Durability, Mode, RetryPolicy, SubscriptionSpec, TopicSpec
from ternmq.model.types import SECOND_US
from ternmq.record.batch.batch import Compression, Row, encode, topic_seed

Identity = tuple[int, int]

ORDERS: Final = "orders"
LEDGER: Final = "ledger"
QUICK: Final = "quick"
TOPICS: Final = {
    ORDERS: TopicSpec(name=ORDERS),
    LEDGER: TopicSpec(name=LEDGER, queues=2, ordered=True),
    QUICK: TopicSpec(name=QUICK, durability=Durability.FAST),
}
ATTEMPTS: Final = 3
FIRST_DELAY_US: Final = SECOND_US // 5
JITTER: Final = 0.2
POLICY: Final = RetryPolicy(
    attempts=ATTEMPTS, first_us=FIRST_DELAY_US, cap_us=SECOND_US, jitter=JITTER
)
LEASE_US: Final = 4 * SECOND_US
GROUPS: Final = {
    ORDERS: {
        "billing": SubscriptionSpec(retry=POLICY, lease_us=LEASE_US),
        "audit": SubscriptionSpec(retry=POLICY, lease_us=LEASE_US),
    },
    LEDGER: {"books": SubscriptionSpec(mode=Mode.ORDERED, retry=POLICY, lease_us=LEASE_US)},
    QUICK: {"watch": SubscriptionSpec(retry=POLICY, lease_us=LEASE_US)},
}
KEYS: Final = 8
_WITH_ID: Final = 5
_SEEDS: Final = {name: topic_seed(name) for name in TOPICS}


class Attempt(NamedTuple):
    """A send as it was tried: everything that its batch is made of."""

    topic: str
    producer: int
    first: int
    rows: int
    born_us: int
    packed: bool
    """Bodies compressed."""
    again: Identity | None = None
    """An older message sent again under a new sequence; its application id gives it away."""

    def identities(self) -> list[Identity]:
        """Return the identity of every row."""
        if self.again is not None:
            return [self.again]
        return [(self.producer, self.first + row) for row in range(self.rows)]


def body(identity: Identity) -> bytes:
    """Return the body of a message: 16 bytes to 3 KiB."""
    producer, sequence = identity
    head = b"%d:%d:" % (producer, sequence)
    noise = hashlib.blake2b(head).digest()
    size = (
        16 + noise[0] + (noise[1] << 2 if noise[2] < 64 else 0) + (noise[1] << 3) * (noise[3] < 24)
    )
    return (head + noise * (size // 64 + 1))[: max(size, len(head))]


def identity_of(data: bytes) -> Identity | None:
    """Return whose body this is; None if nobody's."""
    parts = data.split(b":", 2)
    if len(parts) != 3 or not (parts[0].isdigit() and parts[1].isdigit()):
        return None
    identity = int(parts[0]), int(parts[1])
    return identity if data == body(identity) else None


def has_application_id(topic: str, identity: Identity) -> bool:
    """Tell whether the message was given an id by its application."""
    return topic == ORDERS and identity[1] % _WITH_ID == 0


def ordering_key(attempt: Attempt) -> str:
    """Return the key of a batch: one for all its rows, so that they belong to one queue."""
    return f"key-{attempt.first % KEYS}" if attempt.topic == LEDGER else ""


def batch_of(attempt: Attempt) -> bytes:
    """Return the batch; the same bytes for the same attempt, in any process."""
    key = ordering_key(attempt)
    rows = [
        Row(
            body=body(identity),
            key=f"{identity[0]}-{identity[1] % 50}" if attempt.topic != QUICK else "",
            ordering_key=key,
            tag="even" if identity[1] % 2 == 0 else "",
            application_id=(
                f"{identity[0]}-{identity[1]}"
                if has_application_id(attempt.topic, identity)
                else ""
            ),
        )
        for identity in attempt.identities()
    ]
    return encode(
        rows,
        topic_seed=_SEEDS[attempt.topic],
        producer_id=attempt.producer,
        first_sequence=attempt.first,
        born_us=attempt.born_us,
        compression=Compression.LZ4 if attempt.packed else Compression.NONE,
        keyed=attempt.topic == LEDGER,
    )
