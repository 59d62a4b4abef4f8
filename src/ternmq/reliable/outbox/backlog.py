"""What is sent when, and what becomes of it: decisions over rows and times, without I/O.

Order: of each ordering key, the next row is sent after the one before was answered. While the first
row of a key is refused or waits, the rows behind it are held. So with any number of compensators at
once, the first copies of a key's messages arrive in order: each of them sends row n + 1 only after
row n was answered, or found row n gone, and then somebody's copy of it was answered.
"""

from __future__ import annotations

import enum
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from ternmq.client.content.message import Receipt
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
LONG_S: Final = 10.0
"""A topic that waits longer has its rows held, so that they do not stand in the way of others."""
_FIRST_WAIT_S: Final = 0.5
_LONGEST_WAIT_S: Final = 30.0
_FIRST_REFUSED_S: Final = 1.0
_LONGEST_REFUSED_S: Final = 60.0
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
        tries: How often it was refused.
        wait_s: How long it waits.
        error: Why.
    """

    row: Row
    fate: Fate
    tries: int = 0
    wait_s: float = 0.0
    error: str = ""


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
        attempts: How often a row is refused before it has failed.
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
        """Number of a row -> how often it was refused here."""

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
            return Change(row, Fate.SENT)
        self._left.add(key)
        error = _text(outcome)
        tries = row.tries + 1
        if is_of_the_broker(outcome):
            return Change(row, Fate.AWAY, tries, error=error)
        if _may_pass(outcome):
            self._wait(row.topic, now_s)
            return Change(row, Fate.LATER, tries, error=error)
        refusals = self._refusals[row.seq] = self._refusals.get(row.seq, 0) + 1
        failed = isinstance(outcome, _FINAL) or refusals >= self._attempts
        if row.ordering_key:
            self._keys[key] = min(row.seq, self._keys.get(key, row.seq))
        if failed:
            del self._refusals[row.seq]
            return Change(row, Fate.FAILED, tries, error=error)
        wait_s = min(_LONGEST_REFUSED_S, _FIRST_REFUSED_S * 2 ** (refusals - 1))
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
    if isinstance(error, TopicNotDurable):
        return False
    return isinstance(error, _PASSING) or (isinstance(error, TernMQError) and error.retriable)


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:_ERROR_TEXT]
