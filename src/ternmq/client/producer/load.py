"""Loads, each of which becomes one batch, and the lanes in which they wait."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from typing import ClassVar, NamedTuple, Protocol, cast

from ternmq.client.connection.options import Options
from ternmq.client.producer.outgoing import Outgoing
from ternmq.model.errors import TernMQError
from ternmq.record.batch.batch import Row, encode, encode_bodies, encode_one
from ternmq.wire import bodies


class LoadOwner(Protocol):
    """Receives the broker's answer to a load that was sent: the producer."""

    def answered(self, load: Load, body: bytes) -> None:
        """Handle the answer: the load is stored."""

    def wants_again(self, load: Load, error: TernMQError) -> None:
        """Handle a refusal: the load is to be sent again, or given up."""


class Unclaimed(NamedTuple):
    """A message that was not stored, without a caller that waits for it.

    Attributes:
        message: The message.
        holder: The future that the application has for it; None: none.
        error: Why it was not stored.
    """

    message: Outgoing
    holder: object
    error: TernMQError


class Lane:
    """Loads to one topic (and queue), in order. Not thread-safe: call it from the client's loop.

    Attributes:
        topic: Name of the topic.
        seed: Seed of the topic's batches.
        queue: Number of the queue; None: the broker chooses.
        limits: Limits of a load.
        prefix: First bytes of each SEND.
        loads: Loads that were not sent yet.
        open: The last load, if messages may still join it.
        keyed: Whether the topic is ordered: a load is sent after the previous one was answered, so
            that a load that is refused for now is not overtaken.
        alone: Whether the number of queues is still unknown, so that a load has one message: those
            with other keys might belong to other queues.
        dirty: Whether its loads are looked at in the next ``SendCore.to_send``.
        under_way: Number of loads that were sent and are not finished.
        moved: Loop time at which a load of this lane was stored last.
        scheduled: Whether its messages have due times: all of a batch do, or none.
        later: The lane of messages with due times that would else take this one; made at first use.
        level: The priority of its messages: all of a batch have the same.
    """

    __slots__ = (
        "alone", "dirty", "keyed", "later", "level", "limits", "loads", "moved", "open", "prefix",
        "queue", "scheduled", "seed", "topic", "under_way",
    )  # fmt: skip

    def __init__(self, topic: str, seed: int, queue: int | None, limits: Options) -> None:
        self.topic = topic
        self.seed = seed
        self.queue = queue
        self.limits = limits
        self.prefix = bodies.send_prefix(topic, queue)
        self.loads: deque[Load] = deque()
        self.open: Load | None = None
        self.keyed = False
        self.alone = False
        self.under_way = 0
        self.dirty = False
        self.moved = 0.0
        self.scheduled = False
        self.later: Lane | None = None
        self.level = 0


class Load(ABC):
    """Messages that become one batch, and its state. Only for the client's loop.

    Attributes:
        lane: The lane that it waits in.
        owner: Gets its answer; set before it is sent.
        count: Number of messages.
        size_bytes: Size of their bodies and properties, plus ``MESSAGE_BYTES`` for each.
        frame: Body of the SEND, once it was made: sent again unchanged.
        deadline: Loop time at which it is given up.
        timeout: Seconds that it has in all.
        patient: Until it is sent, its timeout starts again whenever its lane has a load stored.
        asked: Whether an answer is due on the current connection.
        resting: Whether it was refused for now, and waits for a timer.
        uncertain: Whether it may be stored: a connection was lost before its answer.
        in_window: Whether the window counts its bytes.
        left: Loop time at which it was sent first.
        ahead_bytes: Bytes of unanswered sends at that time, its own included.
        over: Whether all its messages have their outcome.
        expiring: Whether one of its messages may expire.
    """

    __slots__ = (
        "ahead_bytes", "asked", "born_us", "count", "deadline", "expiring", "first_sequence",
        "frame", "in_window", "lane", "last_error", "left", "over", "owner", "resting",
        "size_bytes", "timeout", "tries", "uncertain",
    )  # fmt: skip
    owner: LoadOwner
    one_way: ClassVar[bool] = False
    patient: ClassVar[bool] = False

    def __init__(self, lane: Lane, deadline: float, timeout: float) -> None:
        self.lane = lane
        self.deadline = deadline
        self.timeout = timeout
        self.count = 0
        self.size_bytes = 0
        self.first_sequence = 0
        self.born_us = 0
        self.frame = b""
        self.tries = 0
        self.last_error: TernMQError | None = None
        self.left = 0.0
        self.ahead_bytes = 0
        self.asked = self.resting = self.uncertain = self.over = self.in_window = False
        self.expiring = False

    def join(
        self,
        message: Outgoing,
        deadline: float,
        timeout: float,
        *,
        one_way: bool = False,
    ) -> bool:
        """Add a message if it can leave with this load; return whether it was added."""
        return False

    @abstractmethod
    def contents(self) -> Sequence[Outgoing] | Sequence[bytes]:
        """Return its messages; bare bytes for messages that have only a body."""

    @abstractmethod
    def encode(self, producer_id: int) -> bytes:
        """Return the batch; ``first_sequence`` and ``born_us`` are set."""

    @abstractmethod
    def stored(self, receipt: bodies.Receipt, producer_id: int) -> Sequence[Unclaimed]:
        """Report to all senders that it is stored; return refused messages nobody waits for."""

    @abstractmethod
    def failed(self, error: TernMQError) -> Sequence[Unclaimed]:
        """Report the error to all senders; return the messages that nobody waits for."""

    # -- Asker

    def answered(self, body: bytes) -> None:
        """Pass the answer on to the owner."""
        self.owner.answered(self, body)

    def refused(self, error: TernMQError) -> None:
        """Pass the refusal on to the owner, which sends it again or gives it up."""
        self.owner.wants_again(self, error)

    def lost(self) -> None:  # noqa: B027 - nothing is left to be done by any load
        """Do nothing: ``SendCore.lost`` handles all loads of a connection at once."""


def encode_messages(
    load: Load, messages: Sequence[Outgoing], producer_id: int, *, plain: bool
) -> bytes:
    """Return the batch of these messages; ``plain``: they have only bodies."""
    lane = load.lane
    if lane.scheduled or lane.level or load.expiring:
        plain = False
    elif len(messages) == 1:
        (one,) = messages
        if not (one.headers or one.content_type or one.application_id):
            return encode_one(
                one.body,
                topic_seed=lane.seed,
                producer_id=producer_id,
                first_sequence=load.first_sequence,
                born_us=load.born_us,
                key=one.key.encode(),
                ordering_key=one.ordering_key.encode(),
                tag=one.tag.encode(),
                keyed=lane.keyed,
            )
    if plain:
        return encode_bodies(
            [message.body for message in messages],
            topic_seed=lane.seed,
            producer_id=producer_id,
            first_sequence=load.first_sequence,
            born_us=load.born_us,
            keyed=lane.keyed,
        )
    return encode(
        cast("Sequence[Row]", messages),
        topic_seed=lane.seed,
        producer_id=producer_id,
        first_sequence=load.first_sequence,
        born_us=load.born_us,
        keyed=lane.keyed,
    )
