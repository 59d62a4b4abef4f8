"""The STATE objects of transactions.

CHECKED, PRODUCER_GROUPS; TRANSACTION, DUE_TIMES, WRITER, PREPARED_ROWS.
"""

from __future__ import annotations

from collections.abc import Iterator

from ternmq.broker.containers.stateobject import ALWAYS, StateType
from ternmq.broker.transaction.checked import CheckedTransactions
from ternmq.broker.transaction.duetimes import DueTimes
from ternmq.broker.transaction.preparedrows import PreparedRows
from ternmq.broker.transaction.producergroups import ProducerGroups
from ternmq.broker.transaction.undecided import Undecided
from ternmq.broker.transaction.writers import Writers
from ternmq.journal.state.sets import StateKey
from ternmq.model.types import Position
from ternmq.record.fact import state


class CheckedObjects(StateType):
    """CHECKED: pages of the contents of an undecided transaction with check-back."""

    def __init__(self, checked: CheckedTransactions) -> None:
        self._checked = checked

    def keys(self, begin: int) -> Iterator[StateKey]:
        del begin
        for number, page in sorted(self._checked.changed):
            yield StateKey(state.CHECKED, 0, 0, page, number)

    def load(self, key: StateKey, payload: bytes, stamp: Position) -> None:
        self._checked.load(key.d, key.c, payload, stamp)

    def encode(self, key: StateKey) -> bytes:
        return self._checked.encode(key.d, key.c)

    def changed(self, key: StateKey) -> int:
        return self._checked.changed.get((key.d, key.c), ALWAYS)


class ProducerGroupObjects(StateType):
    """PRODUCER_GROUPS: pages of producer groups, by a hash of their names."""

    def __init__(self, groups: ProducerGroups) -> None:
        self._groups = groups

    def keys(self, begin: int) -> Iterator[StateKey]:
        del begin
        for page in sorted(self._groups.changed):
            yield StateKey(state.PRODUCER_GROUPS, page)

    def load(self, key: StateKey, payload: bytes, stamp: Position) -> None:
        self._groups.load(key.a, payload, stamp)

    def encode(self, key: StateKey) -> bytes:
        return self._groups.encode(key.a)

    def changed(self, key: StateKey) -> int:
        return self._groups.changed.get(key.a, ALWAYS)


class TransactionObjects(StateType):
    """TRANSACTION: pages of the prepared batches of an undecided transaction."""

    def __init__(self, undecided: Undecided) -> None:
        self._undecided = undecided

    def keys(self, begin: int) -> Iterator[StateKey]:
        del begin
        for number, page in sorted(self._undecided.changed):
            yield StateKey(state.TRANSACTION, 0, 0, page, number)

    def load(self, key: StateKey, payload: bytes, stamp: Position) -> None:
        self._undecided.load(key.d, key.c, payload, stamp)

    def encode(self, key: StateKey) -> bytes:
        return self._undecided.encode(key.d, key.c)

    def changed(self, key: StateKey) -> int:
        return self._undecided.changed.get((key.d, key.c), ALWAYS)


class DueTimesObjects(StateType):
    """DUE_TIMES: the due times of a prepared batch of a writer."""

    def __init__(self, times: DueTimes) -> None:
        self._times = times

    def keys(self, begin: int) -> Iterator[StateKey]:
        """See ``StateType``."""
        del begin
        for number, ordinal in self._times.batches():
            yield StateKey(state.DUE_TIMES, 0, 0, ordinal, number)

    def load(self, key: StateKey, payload: bytes, stamp: Position) -> None:
        """See ``StateType``."""
        self._times.load(key.d, key.c, payload, stamp)

    def encode(self, key: StateKey) -> bytes:
        """See ``StateType``."""
        return self._times.encode(key.d, key.c)

    def changed(self, key: StateKey) -> int:
        """See ``StateType``."""
        times = self._times.of(key.d).get(key.c)
        return ALWAYS if times is None else times.position


class WriterObjects(StateType):
    """WRITER: a writer and its decisions."""

    def __init__(self, writers: Writers) -> None:
        self._writers = writers

    def keys(self, begin: int) -> Iterator[StateKey]:
        del begin
        for number in sorted(self._writers.by_number):
            yield StateKey(state.WRITER, number)

    def load(self, key: StateKey, payload: bytes, stamp: Position) -> None:
        self._writers.load(key.a, payload, stamp)

    def encode(self, key: StateKey) -> bytes:
        return self._writers.encode(key.a)

    def changed(self, key: StateKey) -> int:
        writer = self._writers.by_number.get(key.a)
        return ALWAYS if writer is None else writer.changed


class PreparedRowsObjects(StateType):
    """PREPARED_ROWS: pages of prepared rows that are messages."""

    def __init__(self, rows: PreparedRows) -> None:
        self._rows = rows

    def keys(self, begin: int) -> Iterator[StateKey]:
        del begin
        for segment, topics, queues in sorted(self._rows.changed):
            yield StateKey(state.PREPARED_ROWS, topics, queues, 0, segment)

    def load(self, key: StateKey, payload: bytes, stamp: Position) -> None:
        self._rows.load((key.d, key.a, key.b), payload, stamp)

    def encode(self, key: StateKey) -> bytes:
        return self._rows.encode((key.d, key.a, key.b))

    def changed(self, key: StateKey) -> int:
        return self._rows.changed.get((key.d, key.a, key.b), ALWAYS)
