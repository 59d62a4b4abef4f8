"""What operators ask of the table of an inbox, and remove from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ternmq.reliable.database.port import Database, Work
from ternmq.reliable.inbox.table import CLEAN_ROWS, InboxTable

CLEAN_S: Final = 60.0
"""How often an application with an inbox removes rows."""
CLEAN_TASK: Final = "ternmq-inbox"
"""Name of the task that does it."""

_CONSUMERS: Final = (
    "SELECT consumer, count(*), min(until_ms), "
    "sum(CASE WHEN until_ms < :now_ms THEN 1 ELSE 0 END) FROM {inbox} "
    "GROUP BY consumer ORDER BY consumer"
)
_OVER: Final = "SELECT count(*) FROM {inbox} WHERE until_ms < :now_ms"
_TICK: Final = "SELECT tick FROM {lease} WHERE name = :name"


@dataclass(slots=True, frozen=True)
class ConsumerRows:
    """The rows of one group of a topic.

    Attributes:
        topic: Its topic.
        group: The group.
        rows: How many there are.
        over: How many of them are past their time, and are removed next.
        first_until_ms: When the time of the first one is over, or was, in ms since 1970.
    """

    topic: str
    group: str
    rows: int
    over: int
    first_until_ms: int


@dataclass(slots=True, frozen=True)
class Overview:
    """The table at one moment.

    Attributes:
        now_ms: That moment, by the database's clock, in ms since 1970.
        consumers: Rows by topic and group, sorted.
        cleaned_ms: The minute in which rows were removed last by an application, in ms since 1970;
            None: never.
    """

    now_ms: int
    consumers: Sequence[ConsumerRows]
    cleaned_ms: int | None

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return sum([one.rows for one in self.consumers])

    @property
    def over(self) -> int:
        """How many rows are past their time."""
        return sum([one.over for one in self.consumers])


def overview(table: InboxTable, work: Work) -> Overview:
    """Return how the table stands. O(rows): all of them are counted."""
    now_ms = table.now_ms(work)
    consumers = []
    for name, rows, first_ms, over in work.run(table.fill(_CONSUMERS), {"now_ms": now_ms}).rows:
        topic, _, group = table.dialect.text_of(name).rpartition("/")
        consumers.append(ConsumerRows(topic, group, int(rows), int(over), int(first_ms)))
    task = {"name": table.dialect.text(f"task:{CLEAN_TASK}")}
    ticks = [int(tick) for [tick] in work.run(table.fill(_TICK), task).rows if int(tick) >= 0]
    cleaned_ms = round(ticks[0] * CLEAN_S * 1000) if ticks else None
    return Overview(now_ms, consumers, cleaned_ms)


def over(table: InboxTable, work: Work) -> int:
    """Return how many rows are past their time."""
    [[count]] = work.run(table.fill(_OVER), {"now_ms": table.now_ms(work)}).rows
    return int(count)


def clean(table: InboxTable, database: Database, now_ms: int | None = None) -> int:
    """Delete rows whose time is over, in transactions of 1,000 rows; return how many.

    Args:
        table: Their table.
        database: Where it is.
        now_ms: The time, in ms since 1970; None: the database's clock.
    """
    if now_ms is None:
        with database.reading() as work:
            now_ms = table.now_ms(work)
    deleted = 0
    while True:
        # A transaction each: on SQLite, handlers have their turn in between.
        with database.writing() as work:
            count = table.clean(work, now_ms)
        deleted += count
        if count < CLEAN_ROWS:
            return deleted
