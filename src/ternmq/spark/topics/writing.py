"""Batch and streaming writes, without Spark: stage, then commit.

Each task stores its rows as *prepared* batches, which are invisible, and returns their ids to the
driver. The driver commits all of them with one request that names the writer and the batch: at that
moment they become visible, all at once. No repetition has a second effect:

* a task that runs twice leaves prepared batches that no commit lists; they are dropped in time;
* rows prepared for a committed transaction are refused, but still counted in the digest;
* a repeated commit (its answer was lost, or Spark was restarted before it stored that the batch was
  done) names a transaction that the broker knows, with the same digest: no effect;
* a commit with another digest has other content under the same name, and is refused;
* an abort after the commit was applied is refused. That is correct: Spark aborts a batch if the
  answer to its commit was lost, and then runs it again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ternmq.model.errors import OptionError, TernMQError, UnknownTopic
from ternmq.spark.broker.bulk_port import connect as connect_bulk
from ternmq.spark.broker.connecting import Broker
from ternmq.spark.broker.port import CommittedError, Port, TopicFacts, Transaction
from ternmq.spark.topics.columns import named
from ternmq.spark.topics.options import WriteOptions
from ternmq.spark.topics.stage import Stage

if TYPE_CHECKING:
    import pyarrow as pa

log: Final = logging.getLogger("ternmq.spark")

BATCH: Final = 0
"""Batch id of a batch write: its ``writerId`` names one write."""


@dataclass(frozen=True, slots=True)
class Task:
    """The identity of a task.

    Attributes:
        query: Id of the streaming query; empty in a batch write.
        batch_id: Number of the batch.
        part: ``partition/attempt``.
    """

    query: str
    batch_id: int
    part: str


@dataclass(frozen=True, slots=True)
class Staged:
    """A task's result for the driver: what it stored, and for which transaction."""

    transaction: Transaction
    ids: tuple[int, ...]
    rows: int
    bytes: int
    digest: int


@dataclass(frozen=True)
class Writing:
    """Writes rows and commits them. Is sent to workers.

    Attributes:
        options: Options of the writer.
        columns: The columns to write.
        connect: Creates a port.
    """

    options: WriteOptions
    columns: tuple[str, ...]
    connect: Callable[[Broker], Port] = connect_bulk

    def check(self) -> None:
        """Check that the topic exists, before anything is computed.

        Raises:
            UnknownTopic: It does not.
        """
        if not self.options.topic:
            return
        port = self.connect(self.options.broker)
        try:
            _Facts(port)(self.options.topic)
        finally:
            port.close()

    def write(self, tables: Iterable[pa.RecordBatch], task: Task) -> Staged:
        """Store the rows of a task; runs on a worker.

        Raises:
            OptionError: The writer of the transaction is not known.
            TernMQError: The rows are not stored; Spark runs the task, or the batch, again.
        """
        transaction = Transaction(self.options.writer or task.query, task.batch_id)
        if self.options.exactly_once and not transaction.writer:
            raise OptionError(
                "option writerId: tasks of this Spark do not know the id of their query; "
                "set writerId"
            )
        port = self.connect(self.options.broker)
        try:
            stage = Stage(self.options, self.columns, _Facts(port))
            batches = stage.batches(map(named, tables))
            ids: list[int] = []
            if self.options.exactly_once:
                try:
                    ids += port.prepare(batches, transaction, task.part, self.options.in_flight)
                except CommittedError:
                    # Spark repeats a batch that is already visible. Only the digest of all rows is
                    # still needed, to show that they are the same ones.
                    ids.clear()
                    for _ in batches:
                        pass
            else:
                for _ in port.send(batches, self.options.in_flight):
                    pass
        finally:
            port.close()
        return Staged(transaction, tuple(ids), stage.rows, stage.bytes, stage.digest)

    def commit(self, told: Sequence[Staged | None], batch_id: int = BATCH) -> None:
        """Make the rows of all tasks visible, at once; runs on the driver.

        Raises:
            TransactionConflict: Other content was committed under this name.
            TernMQError: Whether they are visible is not known; Spark runs the batch again.
        """
        staged = [one for one in told if one is not None]
        if not self.options.exactly_once or not any(one.rows for one in staged):
            return
        transaction = _one_of(staged, batch_id)
        ids = [number for one in staged for number in one.ids]
        digest = sum(one.digest for one in staged) % 2**64
        rows = sum(one.rows for one in staged)
        port = self.connect(self.options.broker)
        try:
            fresh = port.commit_prepared(transaction, ids, digest)
        finally:
            port.close()
        log.info(
            "transaction %s/%d: %d rows %s", transaction.writer, transaction.batch_id, rows,
            "are visible" if fresh else "were visible already",
        )  # fmt: skip

    def abort(self, told: Sequence[Staged | None], batch_id: int = BATCH) -> None:
        """Drop the rows of all tasks unless they are visible; on the driver. Errors are logged."""
        staged = [one for one in told if one is not None]
        if not self.options.exactly_once or not staged:
            return
        port = self.connect(self.options.broker)
        try:
            transaction = _one_of(staged, batch_id)
            port.abort_prepared(transaction, [number for one in staged for number in one.ids])
        except TernMQError as error:
            log.warning("batch %d is not rolled back: %s", batch_id, error)
        finally:
            port.close()


def _one_of(staged: Sequence[Staged], batch_id: int) -> Transaction:
    """Return the transaction of tasks.

    Raises:
        OptionError: They do not all name the same one, or name another batch.
    """
    named = {one.transaction for one in staged}
    if len(named) != 1:
        raise OptionError(f"option writerId: tasks of one batch name several writers: {named}")
    (transaction,) = named
    if transaction.batch_id != batch_id:
        raise OptionError(
            f"option writerId: tasks say batch {transaction.batch_id}, Spark commits {batch_id}: "
            f"this Spark numbers batches in another way"
        )
    return transaction


class _Facts:
    """Facts of topics; each is requested once."""

    def __init__(self, port: Port) -> None:
        self._port = port
        self._known: dict[str, TopicFacts] = {}

    def __call__(self, topic: str) -> TopicFacts:
        """Return the facts of a topic.

        Raises:
            UnknownTopic: It does not exist.
        """
        found = self._known.get(topic)
        if found is None:
            there = {one.name: one for one in self._port.topics([topic])}
            if topic not in there:
                raise UnknownTopic(f"there is no topic {topic!r}, or this app has no right on it")
            found = self._known[topic] = there[topic]
        return found
