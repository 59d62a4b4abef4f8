"""What is sent when, and what becomes of it: decisions over rows and times, without I/O.

Order: of each ordering key, the next row is sent after the one before was answered. While the first
row of a key is refused or waits, the rows behind it are held. So with any number of compensators at
once, the first copies of a key's messages arrive in order: each of them sends row n + 1 only after
row n was answered, or found row n gone, and then somebody's copy of it was answered.

The next row of a key waits for the answer, not for the row before it to be deleted: ``Answered``
keeps rows that are stored at the broker until they are deleted together. Why order holds:

* A row is deleted only after its answer, so "found gone" still means "answered". Which of the
  answered rows are deleted first does not matter, nor who deletes them: another compensator that
  has the same rows in hand gets *duplicate*, and finds nothing to delete.
* No page is read while there are such rows. So none of them is taken for a new one, whatever its
  number: SQLite gives a number again after a rollback, and a delete names number and id.
* If the process dies before, or loses its lease, the rows are sent again, under the same ids, from
  the first to the last, and only then the next row of the key: whose first copy, too, comes after
  those of all rows before it. The broker recognises the copies. Beyond its window it stores them
  again, in their order, behind the first ones: an inbox suppresses them. ``NOTE_ROWS`` and
  ``NOTE_S`` limit how many there are.
* If the database cannot be asked, the rows stay in memory, and are deleted before the next page is
  read; so an outage of the database, however long, repeats nothing.
* A refusal is written down at once, since another compensator must find it: it hides the row for a
  while. It is forgotten if it cannot be written, and the row is sent again. A compensator whose
  lease another one took writes none, holds no rows and reads no page: the row of the lease says so
  in the same transaction, or statement. So whoever reads a page knows of each row that it lacks.
* A row that had been refused releases the rows behind it in the transaction that deletes it.

Rows of one key never share a batch, although a batch keeps their order: the broker stores a batch
without those of its rows that it refuses (an id that belongs to another message, or to one that was
cancelled), and the client leaves out those that it refuses (a body that is too large, a time that
is too far). Then the rows behind a refused one would be stored before it.
"""

from __future__ import annotations

import enum
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from ternmq.client.content.message import Receipt
from ternmq.model import errors
from ternmq.model.errors import (
    BufferFull,
    CannotConnect,
    ClientClosed,
    ConnectionLost,
    DueTooFar,
    EncodeError,
    IdConflict,
    InvalidName,
    MessageTooLarge,
    OutcomeUnknown,
    ProtocolError,
    SendTimeout,
    StrictNeedsReplica,
    TernMQError,
    TopicNotDurable,
    Unauthenticated,
)
from ternmq.reliable.outbox.rows import Ref, Row

ATTEMPTS: Final = 5
"""How often a row is refused before it has failed."""
NOTE_ROWS: Final = 500
"""Most rows that are answered and not deleted yet; those of one answer may exceed it."""
NOTE_S: Final = 0.1
"""How long a row that is answered stays, if nothing else has it deleted before."""
LONG_S: Final = 10.0
"""A topic that waits longer has its rows held, so that they do not stand in the way of others."""
_FIRST_WAIT_S: Final = 0.5
_LONGEST_WAIT_S: Final = 30.0
_FIRST_REFUSED_S: Final = 1.0
_LONGEST_REFUSED_S: Final = 60.0
_MOST_DOUBLINGS: Final = 6
_BROKER: Final = (CannotConnect, ConnectionLost, Unauthenticated, ClientClosed, ProtocolError)
"""The broker is away, or accepts nobody: it is no matter of the topic."""
_PASSING: Final = (SendTimeout, OutcomeUnknown, BufferFull, StrictNeedsReplica)
_FINAL: Final = (MessageTooLarge, InvalidName, IdConflict, EncodeError, DueTooFar)
"""What no time mends."""
_ERROR_TEXT: Final = 1000

Key = tuple[str, str]
"""Topic and ordering key."""


class Fate(enum.Enum):
    """What becomes of a row that was sent."""

    SENT = enum.auto()
    """It is stored at the broker."""
    AWAY = enum.auto()
    """No broker answers: it stays as it is."""
    LATER = enum.auto()
    """It is tried again with its topic; perhaps it is stored."""
    REFUSED = enum.auto()
    """It is tried again after a wait of its own."""
    FAILED = enum.auto()
    """It is tried no more: an operator decides."""


@dataclass(slots=True, frozen=True)
class Change:
    """What is noted of a row.

    Attributes:
        tries: How often it was sent in vain.
        wait_s: How long it waits.
        error: Why.
        frees: It is stored, and rows of its key may be held behind it: they are released.
    """

    row: Row
    fate: Fate
    tries: int = 0
    wait_s: float = 0.0
    error: str = ""
    frees: bool = False


class Answered:
    """Rows that were answered, and are not written down yet. Not thread-safe."""

    def __init__(self) -> None:
        self.changes: list[Change] = []
        """In the order of their answers."""
        self._due_s = 0.0
        self._at_once = False

    def add(self, changes: Sequence[Change], now_s: float) -> None:
        """Take what became of rows."""
        if not self.changes:
            self._due_s = now_s + NOTE_S
        self.changes += changes
        self._at_once |= any(change.fate is not Fate.SENT or change.frees for change in changes)

    def is_due(self, now_s: float) -> bool:
        """Return whether they must be written down before another row is sent."""
        if not self.changes:
            return False
        return self._at_once or len(self.changes) >= NOTE_ROWS or now_s >= self._due_s

    def written(self) -> None:
        """Forget them: they are written down."""
        self.changes = []
        self._at_once = False

    def not_written(self) -> None:
        """Keep those that are stored at the broker: the database could not be asked.

        Others are forgotten: when the database is back, another compensator may have blocked or
        sent them.
        """
        self.changes = [change for change in self.changes if change.fate is Fate.SENT]


@dataclass(slots=True)
class Plan:
    """What is done with a page.

    Attributes:
        waves: Rows to send. Those of one wave go out together; the next one after its answers.
        hold: Rows whose key or topic is blocked.
        doubtful: Numbers of blocking rows that may be gone: an operator discards them.
    """

    waves: list[list[Row]] = field(default_factory=list)
    hold: list[Ref] = field(default_factory=list)
    doubtful: list[int] = field(default_factory=list)


@dataclass(slots=True)
class _Wait:
    until_s: float
    wait_s: float


class Backlog:
    """Decides for the rows of one database. Not thread-safe.

    Args:
        attempts: How often a row is refused before it has failed. Refusals that another process
            has written into the row count.
        chance: For the jitter of waits.
    """

    def __init__(self, attempts: int = ATTEMPTS, chance: random.Random | None = None) -> None:
        self._attempts = attempts
        self._chance = chance or random.Random()  # noqa: S311 - no secret
        self._topics: dict[str, _Wait] = {}
        self._keys: dict[Key, int] = {}
        """Blocked key -> number of the row that blocks it."""
        self._held: set[str] = set()
        """Topics of which rows are held because of the topic."""
        self._left: set[Key] = set()
        """Keys of which a row of the present page was not sent or stored: those behind it wait."""
        self._refusals: dict[int, int] = {}
        """Number of a row -> how often it was refused, here and before."""

    def take_over(self, keys: Sequence[tuple[str, str, int]]) -> None:
        """Begin with the keys that are blocked in the table: topic, key, number of the first row.

        Rows that are held are released before; those of blocked keys are held again as the pages
        meet them.
        """
        self._topics = {}
        self._held = set()
        self._refusals = {}
        self._keys = {(topic, key): seq for topic, key, seq in keys}

    def plan(self, rows: Sequence[Row], now_s: float) -> Plan:
        """Return what is done with a page of rows, which are in the order of their numbers.

        ``now_s`` is the one that ``to_release`` was given before the page was read: else the wait
        of a topic might end in between, and a row go before those of its key that are still held.
        """
        plan = Plan()
        self._left.clear()
        depth: dict[Key, int] = {}
        for row in rows:
            wait = self._topics.get(row.topic)
            if wait is not None and wait.until_s > now_s:
                if wait.wait_s >= LONG_S:
                    plan.hold.append(row.ref)
                    self._held.add(row.topic)
                continue
            if not row.ordering_key:
                _put(plan.waves, 0, row)
                continue
            key = row.topic, row.ordering_key
            blocking = self._keys.get(key)
            if blocking is not None and row.seq > blocking:
                plan.hold.append(row.ref)
                plan.doubtful.append(blocking)
                continue
            wave = depth.get(key, 0)
            depth[key] = wave + 1
            _put(plan.waves, wave, row)
        return plan

    def still_blocking(self, asked: Sequence[int], found: Sequence[int]) -> list[Key]:
        """Unblock the keys whose blocking rows are gone; return them: their rows are released."""
        gone = set(asked) - set(found)
        freed = [key for key, seq in self._keys.items() if seq in gone]
        for key in freed:
            del self._keys[key]
        return freed

    def answered(self, row: Row, outcome: Receipt | Exception, now_s: float) -> Change:
        """Return what becomes of a row; a key or topic is blocked, or unblocked."""
        key = row.topic, row.ordering_key
        if isinstance(outcome, Receipt):
            if self._keys.get(key) == row.seq:
                del self._keys[key]
            self._topics.pop(row.topic, None)
            self._refusals.pop(row.seq, None)
            return Change(row, Fate.SENT, frees=bool(row.ordering_key) and row.tries > 0)
        self._left.add(key)
        error = _text(outcome)
        tries = row.tries + 1
        if is_of_the_broker(outcome):
            return Change(row, Fate.AWAY, tries, error=error)
        if _may_pass(outcome):
            self._wait(row.topic, now_s)
            return Change(row, Fate.LATER, tries, error=error)
        refusals = self._refusals.get(row.seq, _refusals_before(row)) + 1
        self._refusals[row.seq] = refusals
        failed = isinstance(outcome, _FINAL) or refusals >= self._attempts
        if row.ordering_key:
            self._keys[key] = min(row.seq, self._keys.get(key, row.seq))
        if failed:
            del self._refusals[row.seq]
            return Change(row, Fate.FAILED, tries, error=error)
        doublings = min(refusals - 1, _MOST_DOUBLINGS)
        wait_s = min(_LONGEST_REFUSED_S, _FIRST_REFUSED_S * 2**doublings)
        return Change(row, Fate.REFUSED, tries, wait_s, error)

    def is_waiting(self, row: Row, now_s: float) -> bool:
        """Return whether a row must not be sent now, since the page was planned.

        Those of its key that are behind it in the page wait as well, even if its topic does not any
        more when it is their turn.
        """
        wait = self._topics.get(row.topic)
        waits = wait is not None and wait.until_s > now_s
        if row.ordering_key:
            key = row.topic, row.ordering_key
            waits = waits or key in self._left or row.seq > self._keys.get(key, row.seq)
            if waits:
                self._left.add(key)
        return waits

    def to_release(self, now_s: float) -> list[str]:
        """Return the topics whose held rows are released before the next page is read.

        All rows of a topic: one that is still held might belong to the key of one that is not.
        """
        ready = [
            topic for topic in self._held
            if (wait := self._topics.get(topic)) is None or wait.until_s <= now_s
        ]  # fmt: skip
        self._held.difference_update(ready)
        return ready

    def _wait(self, topic: str, now_s: float) -> None:
        wait = self._topics.get(topic)
        if wait is not None and wait.until_s > now_s:
            return  # another row of the same try
        length = _FIRST_WAIT_S if wait is None else min(_LONGEST_WAIT_S, wait.wait_s * 2)
        jitter = 1 + self._chance.random() / 4
        self._topics[topic] = _Wait(now_s + length * jitter, length)


def _put(waves: list[list[Row]], number: int, row: Row) -> None:
    if number == len(waves):
        waves.append([])
    waves[number].append(row)


def is_of_the_broker(error: Exception) -> bool:
    """Return whether an error is no matter of the message or its topic: no broker answers."""
    return isinstance(error, _BROKER)


def _may_pass(error: Exception) -> bool:
    """Return whether time may mend an error, or it is not known whether the message is stored."""
    return _passes(type(error))


def _passes(kind: type[Exception]) -> bool:
    if issubclass(kind, TopicNotDurable):
        return False
    return issubclass(kind, _PASSING) or (issubclass(kind, TernMQError) and kind.retriable)


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:_ERROR_TEXT]


def _refusals_before(row: Row) -> int:
    """Return how often other processes had a row refused, at most.

    The row has one count for all tries. It counts refusals if the last one was a refusal: where
    answers were lost before it, a compensator that takes over gives up earlier.
    """
    name = (row.error or "").partition(":")[0]
    kind = getattr(errors, name, None)
    if not isinstance(kind, type) or not issubclass(kind, TernMQError):
        return 0
    return 0 if issubclass(kind, _BROKER) or _passes(kind) else row.tries
