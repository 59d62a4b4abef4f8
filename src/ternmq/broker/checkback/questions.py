"""What a question to a checker says, and the port through which it leaves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import msgspec


class Name(NamedTuple):
    """The name of a transaction, given by its client: a lost answer is asked for with it."""

    producer: int
    """Producer id of the client."""
    counter: int
    """The client's own number of the transaction."""


class Question(msgspec.Struct, frozen=True):
    """A question about an undecided transaction: commit, roll back, or unknown?"""

    transaction: int
    group: str
    query_id: str
    attempt: int
    """1 for the first question."""
    opened_us: int
    topics: Sequence[str]
    """Names of the topics of the prepared rows, sorted."""
    rows: int
    bytes: int
    """Of the records that hold the rows."""


class Askers(Protocol):
    """Brings questions to clients; the shell implements it."""

    def ask(self, session: int, question: Question) -> None:
        """Send a question to a client; the record of the question is durable."""
        ...


class TransactionState(msgspec.Struct, frozen=True):
    """What is known of a transaction with check-back, undecided or decided."""

    transaction: int
    outcome: str
    """``undecided``, ``parked``, ``committed`` or ``rolled-back``."""
    app: str
    group: str
    query_id: str = ""
    time_us: int = 0
    """When it was opened; of a decided one: when it was decided."""
    attempt: int = 0
    """Number of questions asked so far; of a decided one: the question that was answered, 0:
    none."""
    next_us: int = 0
    """When the next question is due; 0: none is."""
    topics: Sequence[str] = ()
    """Names of the topics of the prepared rows, sorted."""
    rows: int = 0
    """Prepared rows; of a decided one: rows that became messages or were scheduled."""
    due_rows: int = 0
    """Those of ``rows`` that have due times."""
    bytes: int = 0
    settled_rows: int = 0
    """Rows of groups that it settles."""
    moves: int = 0
    """Cursors that it moves."""
    why: str = ""
    """Who or what decided: ``client``, ``checker``, ``policy`` or ``operator``."""
    position: int = 0
    """What the answer depends on."""


class RowsPage(msgspec.Struct, frozen=True):
    """Some of the prepared rows of a transaction."""

    records: Sequence[bytes]
    """Each is made like a MESSAGES record: it has the position and time of the PREPARED, and its
    first offset is 2**64-1, since the rows have no offsets yet."""
    next: int
    """``after`` of the next page; 0: there is none."""
    position: int
    """What the answer depends on."""
