"""What the connector asks of a broker: a Protocol, so that its decisions can be tried without one.

Calls block, may be made from one thread at a time, reconnect by themselves with bounded tries, and
raise a ``TernMQError``. A port is made where it is used (driver or worker) and never travels.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from ternmq.spark.offsets import Place


@dataclass(slots=True, frozen=True)
class TopicFacts:
    """A topic.

    Attributes:
        name: Its name.
        queues: How many it has.
        ordered: Every message needs an order key.
        ignores_keys: It is not ordered, and takes messages with order keys all the same.
        body_bytes: Of the largest body that the broker takes; None: it does not say.
    """

    name: str
    queues: int
    ordered: bool
    ignores_keys: bool = False
    body_bytes: int | None = None


@dataclass(slots=True, frozen=True)
class QueueState:
    """What a queue keeps: rows ``[first, next)``, durable ones.

    Attributes:
        at: The first offset stored at or after the time that was asked for; ``next`` if all are
            older. None: no time was asked for.
        stop: Rows from the start that was asked for up to here have the bytes that were asked for,
            or less; exact to a batch, and one batch at least. None: not asked, or the broker cannot
            say.
        bytes: From that start to ``next``. None: likewise.
    """

    place: Place
    first: int
    next: int
    at: int | None = None
    stop: int | None = None
    bytes: int | None = None


class Budget(NamedTuple):
    """A question: up to where do the rows from ``start`` on have ``max_bytes``?"""

    start: int
    max_bytes: int


@dataclass(slots=True, frozen=True)
class Fetched:
    """Records of kind MESSAGES that hold the rows ``[start, stop)``; the queue keeps more.

    A record may hold rows before ``start`` and behind ``stop``.
    """

    records: bytes
    start: int
    stop: int
    first: int
    next: int


class Outgoing(NamedTuple):
    """A batch on its way; ``queue`` None: the broker chooses."""

    topic: str
    queue: int | None
    batch: bytes
    rows: int


class CommittedError(Exception):
    """The transaction is committed: nothing can be added to it, its commit may be repeated."""


class Transaction(NamedTuple):
    """A transaction that its writer named."""

    writer: str
    batch_id: int


@dataclass(slots=True, frozen=True)
class JournalPage:
    """Whole records, in order; the next page begins at ``next``.

    Attributes:
        oldest: The oldest position that is kept.
        end: Up to here everything is durable.
    """

    records: bytes
    next: int
    oldest: int
    end: int


class Port(Protocol):
    """See the module."""

    def topics(self, names: Sequence[str] | None) -> list[TopicFacts]:
        """Return topics by name, None for all that this app may see; missing ones are left out."""

    def ranges(
        self,
        topics: Sequence[str],
        *,
        times_us: Mapping[Place, int] | None = None,
        budgets: Mapping[Place, Budget] | None = None,
    ) -> list[QueueState]:
        """Return every queue of these topics; topics that are not there are left out."""

    def fetch(
        self, topic: str, queue: int, start: int, stop: int, wait_ms: int
    ) -> Iterator[Fetched]:
        """Yield the rows ``[start, stop)``, piece by piece; an empty piece when none came in time.

        Raises:
            OffsetExpired: The next rows are older than what is kept.
            UnknownTopic, UnknownQueue: It is gone.
        """

    def group_offsets(self, group: str, topics: Sequence[str]) -> dict[Place, int]:
        """Return where a group goes on; queues of topics that it does not consume are left out."""

    def commit_group(self, topic: str, group: str, offsets: Mapping[int, int]) -> None:
        """Say how far a group is, by queue; it never goes back. A missing group is made."""

    def send(self, batches: Iterable[Outgoing], in_flight: int) -> Iterator[int]:
        """Store batches; yield how many rows are durable, for each in order."""

    def prepare(
        self, batches: Iterable[Outgoing], transaction: Transaction, part: str, in_flight: int
    ) -> Iterator[int]:
        """Store batches that nobody sees; yield the prepared id of each, in order, when durable.

        Raises:
            CommittedError: It was committed: this is a repetition.
        """

    def commit_prepared(self, transaction: Transaction, ids: Sequence[int], digest: int) -> bool:
        """Make prepared batches visible, all at once; return False if that was done before.

        What was prepared and is not listed is dropped.

        Raises:
            TransactionConflict: It was committed with another digest.
        """

    def abort_prepared(self, transaction: Transaction, ids: Sequence[int]) -> None:
        """Drop prepared batches; refused if the transaction was committed."""

    def close(self) -> None:
        """End the connection; may be called again."""
