"""What the error of an attempt means. No I/O."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

from ternmq.client.consumer.concluding import Reject, Retry, delay_us
from ternmq.client.content.reasons import error_text, reason_text
from ternmq.model.errors import DecodeError, InvalidHandler, OutsideTransaction
from ternmq.reliable.libraries.attached import ApplicationDatabase
from ternmq.reliable.libraries.refusals import asks_again, waited_in_vain
from ternmq.reliable.libraries.standing import NotCommitted
from ternmq.reliable.steps.course import Fault

AGAIN: Final = 3
"""How often a transaction is run again at once."""
MOST_ERROR: Final = 1000
"""Characters of an error that are kept."""


class Obstacle(enum.Enum):
    """An error that is not the step's."""

    AGAIN = "again"
    """The transaction may succeed at once."""
    ELSEWHERE = "elsewhere"
    """Another worker has the session at work."""
    DATABASE = "database"
    """The database cannot be reached, or used."""


@dataclass(slots=True, frozen=True)
class Failure:
    """An attempt that failed.

    Attributes:
        fault: How.
        error: Why, for people.
        after_ms: When the function wants to be called again; None: it does not say.
    """

    fault: Fault
    error: str
    after_ms: int | None = None


def judged(
    error: Exception, database: ApplicationDatabase, *, begun: bool, tries: int
) -> Obstacle | Failure:
    """Return what the error of an attempt means.

    Args:
        error: What was raised.
        database: Of the transaction.
        begun: The first statements have run: the function was called, or the commit failed.
        tries: How often the transaction was run again.
    """
    if tries < AGAIN and asks_again(error):
        return Obstacle.AGAIN
    if not begun and not isinstance(error, InvalidHandler | OutsideTransaction):
        return Obstacle.ELSEWHERE if waited_in_vain(error) else Obstacle.DATABASE
    if database.is_away(error):
        return Obstacle.DATABASE
    if isinstance(error, Retry):
        after_us = delay_us(error.after)
        after_ms = None if after_us is None else -(-after_us // 1000)
        return Failure(Fault.LATER, _cut(reason_text(error.reason) or "retry"), after_ms)
    if isinstance(error, Reject):
        return Failure(Fault.DEFINITE, _cut(reason_text(error.reason) or "rejected"))
    # What was not committed may be the database's doing, as after a deadlock that was caught.
    definite = isinstance(error, DecodeError | InvalidHandler) and not isinstance(
        error, NotCommitted
    )
    return Failure(Fault.DEFINITE if definite else Fault.FAILED, _cut(error_text(error)))


def _cut(text: str) -> str:
    """Return a text as the database can store it."""
    return text.replace("\0", "\\0").encode(errors="backslashreplace").decode()[:MOST_ERROR]
