"""The connector's view of a broker: a Protocol, so that decisions can be tested without a broker.

Calls block, reconnect by themselves a limited number of times, and raise a ``TernMQError``. Not
thread-safe. A port is created where it is used (driver or worker) and never sent elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from ternmq.spark.broker.offsets import OffsetRange, TopicQueue


@dataclass(slots=True, frozen=True)
class TopicFacts:
    """A topic.

    Attributes:
        name: Its name.
        queues: Number of queues.
        ordered: Whether every message needs an order key.
        ignores_keys: Whether it is not ordered but accepts messages with order keys.
        body_bytes: Size of the largest body that the broker accepts; None: not known.
        levels: Number of levels of priority. Queue ``n`` is of level ``n % levels``.
    """

    name: str
    queues: int
    ordered: bool
    ignores_keys: bool = False
    body_bytes: int | None = None
    levels: int = 1


@dataclass(slots=True, frozen=True)
class QueueState:
    """The state of a queue: it keeps the durable rows ``[first, next)``.

    Attributes:
        number: Number of the topic; a topic that is made again has another one.
        at: The first offset stored at or after the requested time; ``next`` if all are older.
            None: no time was requested.
        stop: The rows from the requested start up to here have at most the requested bytes;
            rounded to whole batches, at least one. None: not requested, or the broker cannot
            compute it.
        bytes: Size of the rows from that start to ``next``. None: likewise.
    """

    place: TopicQueue
    number: int
    first: int
    next: int
    at: int | None = None
    stop: int | None = None
    bytes: int | None = None


class Budget(NamedTuple):
    """A request: up to which offset do the rows from ``start`` on have ``max_bytes``?"""

    start: int
    max_bytes: int


@dataclass(slots=True, frozen=True)
class Fetched:
    """Records of kind MESSAGES with the rows ``[start, stop)``; the queue keeps ``[first, next)``.

    A record may also hold rows before ``start`` and from ``stop`` on.
    """

    records: bytes
    start: int
    stop: int
    first: int
    next: int


class Outgoing(NamedTuple):
    """A batch to send; ``queue`` None: the broker chooses."""

    topic: str
    queue: int | None
    batch: bytes
    rows: int


class CommittedError(Exception):
    """The transaction is committed: it takes no more batches, but its commit may be repeated."""


class Transaction(NamedTuple):
    """A transaction with a name given by its writer."""

    writer: str
    batch_id: int


@dataclass(slots=True, frozen=True)
class JournalPage:
    """Whole records, in order; the next page begins at ``next``.

    Attributes:
        oldest: The oldest position that the journal has.
        end: Everything below is durable.
    """

    records: bytes
    next: int
    oldest: int
    end: int


class Port(Protocol):
    """Access to a broker. Not thread-safe."""

    def topics(self, names: Sequence[str] | None) -> list[TopicFacts]:
        """Return topics by name, None for all that this app may see; unknown ones are left out."""

    def ranges(
        self,
        topics: Sequence[str],
        *,
        times_us: Mapping[TopicQueue, int] | None = None,
        budgets: Mapping[TopicQueue, Budget] | None = None,
    ) -> list[QueueState]:
        """Return every queue of these topics; topics that do not exist are left out."""

    def fetch(self, span: OffsetRange, start: int, wait_ms: int) -> Iterator[Fetched]:
        """Yield the rows of a range from ``start`` on, in pieces; an empty one after ``wait_ms``.

        Raises:
            OffsetExpired: The next rows were removed by retention.
            UnknownTopic, UnknownQueue: The queue does not exist any more, or the topic of this name
                has another number than the range.
        """

    def group_offsets(self, group: str, topics: Sequence[str]) -> dict[TopicQueue, int]:
        """Return where a group continues; queues of topics it does not consume are left out."""

    def commit_group(self, topic: str, group: str, offsets: Mapping[int, int]) -> None:
        """Commit a group's offsets, by queue; they never go back. A missing group is created."""

    def send(self, batches: Iterable[Outgoing], in_flight: int) -> Iterator[int]:
        """Store batches; yield the number of durable rows of each, in order."""

    def prepare(
        self, batches: Iterable[Outgoing], transaction: Transaction, part: str, in_flight: int
    ) -> Iterator[int]:
        """Store invisible batches; yield the prepared id of each, in order, when it is durable.

        Raises:
            CommittedError: The transaction was committed before: this is a repetition.
        """

    def commit_prepared(self, transaction: Transaction, ids: Sequence[int], digest: int) -> bool:
        """Make prepared batches visible, all at once; return False if that was done before.

        Prepared batches that are not listed are dropped.

        Raises:
            TransactionConflict: It was committed with another digest.
        """

    def abort_prepared(self, transaction: Transaction, ids: Sequence[int]) -> None:
        """Drop prepared batches; refused if the transaction was committed."""

    def close(self) -> None:
        """Close the connection; may be called again."""
