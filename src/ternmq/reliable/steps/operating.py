"""What operators ask of orderly sessions, and change in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from ternmq.reliable.database.port import Work
from ternmq.reliable.steps import course
from ternmq.reliable.steps.course import Change, Refused, Standing, State
from ternmq.reliable.steps.item import Item
from ternmq.reliable.steps.table import Consumer, SequenceTable

Decision = Literal["resume", "skip", "cancel", "undo"]
"""What an operator decides; "undo": cancel, and undo what was done."""

NEED: Final = (State.STOPPED, State.UNDO_STOPPED, State.INCOMPLETE)
"""States that need an operator."""


@dataclass(slots=True, frozen=True)
class Session:
    """A session, as operators see it.

    Attributes:
        consumer: Whose it is.
        name: Its name.
        standing: Where it stands.
        missing: Numbers of the items that have not come, in order.
        items: The items that have come, if they were asked for.
    """

    consumer: Consumer
    name: str
    standing: Standing
    missing: Sequence[int]
    items: Sequence[Item] = ()


def select(
    table: SequenceTable,
    work: Work,
    *,
    states: Sequence[State] = (),
    topic: str | None = None,
    group: str | None = None,
    name: str | None = None,
    limit: int = 100,
) -> list[Session]:
    """Return sessions, those first that have been in their state longest; see ``select``."""
    found = table.select(
        work, states=states, topic=topic, group=group, session=name, limit=limit
    )  # fmt: skip
    return [
        Session(whose, session, standing, _missing(table, work, whose, session, standing))
        for whose, session, standing in found
    ]


def read(table: SequenceTable, work: Work, consumer: Consumer, name: str) -> Session | None:
    """Return a session with its items; None: there is none."""
    standing = table.find(work, consumer, name)
    if standing is None:
        return None
    items = table.items(work, consumer, name)
    there = {item.number for item in items}
    missing = [number for number in range(1, standing.size + 1) if number not in there]
    return Session(consumer, name, standing, missing, items)


def decide(
    table: SequenceTable, work: Work, consumer: Consumer, name: str, decision: Decision
) -> Standing | Refused | None:
    """Carry an operator's decision out, and return the session; None: there is none.

    A session that is to go on gets a wake-up, as a row of the outbox: a process with an outbox on
    this database sends it. If a step of the session is being done, this waits for its end.

    Args:
        table: Of the sessions.
        work: A transaction.
        consumer: Whose session it is.
        name: Its name.
        decision: What to do.
    """
    standing = table.find(work, consumer, name, lock=True)
    if standing is None:
        return None
    now_ms = table.now_ms(work)
    found: Change | Refused
    if decision == "resume":
        found = course.resumed(standing, now_ms)
    elif decision == "skip":
        found = course.skipped(standing, now_ms)
    else:
        found = course.cancelled(standing, now_ms, undo=decision == "undo")
    if isinstance(found, Refused):
        return found
    changed = table.change(work, consumer, name, found)
    assert changed, "the row is locked"
    if found.wake_ms is not None:
        table.wake(work, consumer, name, found.after)
    return found.after


def _missing(
    table: SequenceTable, work: Work, consumer: Consumer, name: str, standing: Standing
) -> list[int]:
    if standing.stored == standing.size:
        return []
    there = set(table.numbers(work, consumer, name))
    return [number for number in range(1, standing.size + 1) if number not in there]
