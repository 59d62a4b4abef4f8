"""What operators ask of the table of the outbox, and change in it.

A compensator that runs meanwhile sees a change at its next look: it finds that the row that blocked
an ordering key is gone, or is to be sent again. Rows that are released although their key is still
blocked are held again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ternmq.reliable.database.port import Work
from ternmq.reliable.database.tables import State
from ternmq.reliable.outbox.rows import COLUMNS, Row, row_of
from ternmq.reliable.outbox.table import PAGE_ROWS, Table, listed

_MOST_KEYS: Final = 10
"""Keys whose held rows are released one by one; of more, those of their topics are."""
_COLUMNS: Final = ", ".join(COLUMNS)


@dataclass(slots=True, frozen=True)
class Holder:
    """Who has the lease of the compensator.

    Attributes:
        name: Host, process and a random number.
        epoch: How often the lease changed its holder.
        left_ms: How long it lasts if it is not renewed; 0 or less: it has ended.
    """

    name: str
    epoch: int
    left_ms: int


@dataclass(slots=True, frozen=True)
class Overview:
    """The table at one moment, by the database's clock.

    Attributes:
        rows: State -> number of rows.
        oldest_ms: Age of the first row that is to be sent; None: there is none.
        holder: Who has the lease of the compensator, or had it last; None: nobody, or it was given
            back.
    """

    rows: Mapping[State, int]
    oldest_ms: int | None
    holder: Holder | None


def overview(table: Table, work: Work) -> Overview:
    """Return how the table stands. O(rows): all of them are counted."""
    counted = work.run(table.fill("SELECT state, count(*) FROM {outbox} GROUP BY state"), {}).rows
    # Numbers are given in the order of the INSERTs, so the first row is the oldest one, or nearly.
    oldest = work.run(
        table.fill(
            f"SELECT {{now_ms}} - written_ms FROM {{outbox}} WHERE state = {State.SENDING:d} "
            "ORDER BY seq LIMIT 1"
        ),
        {},
    ).rows
    rows = dict.fromkeys(State, 0) | {State(int(state)): int(count) for state, count in counted}
    return Overview(rows, max(0, int(oldest[0][0])) if oldest else None, holder(table, work))


def holder(table: Table, work: Work) -> Holder | None:
    """Return who has the lease of the compensator, or had it last; None: nobody."""
    found = work.run(
        table.fill("SELECT holder, epoch, until_ms - {now_ms} FROM {lease} WHERE name = :name"),
        {"name": table.dialect.text("compensator")},
    ).rows
    for name, epoch, left in found:
        if name:
            return Holder(table.dialect.text_of(name), int(epoch), int(left))
    return None


def select(
    table: Table, work: Work, *, state: State | None = None, topic: str = "", limit: int
) -> list[Row]:
    """Return the first rows of a state and a topic, without bodies; by default, of all."""
    chosen, values = ["1 = 1"], dict[str, object](limit=limit)
    if state is not None:
        chosen.append(f"state = {state:d}")
    if topic:
        chosen.append("topic = :topic")
        values["topic"] = table.dialect.text(topic)
    found = work.run(
        table.fill(
            f"SELECT {_COLUMNS} FROM {{outbox}} WHERE {' AND '.join(chosen)} "
            "ORDER BY seq LIMIT :limit"
        ),
        values,
    )
    return [row_of(table.dialect, row, None) for row in found.rows]


def named(table: Table, work: Work, numbers: Sequence[int]) -> list[Row]:
    """Return those of some rows that are there, at most ``PAGE_ROWS``, without bodies."""
    if not numbers:
        return []
    names, values = listed(numbers[:PAGE_ROWS])
    found = work.run(
        table.fill(f"SELECT {_COLUMNS} FROM {{outbox}} WHERE seq IN ({names}) ORDER BY seq"), values
    )
    return [row_of(table.dialect, row, None) for row in found.rows]


def read(table: Table, work: Work, number: int) -> Row | None:
    """Return a row with its body; None: there is none."""
    for row in named(table, work, [number]):
        if table.read_body(work, row):
            return row
    return None


def resend(table: Table, work: Work, rows: Sequence[Row]) -> int:
    """Have rows that failed be sent again, and those that were held behind them; return how many.

    Rows of another state stay as they are. ``work`` is a transaction: of one key, the rows behind
    must not be seen before the first one.

    Args:
        table: Their table.
        work: A transaction.
        rows: At most ``PAGE_ROWS``.
    """
    failed = [row for row in rows if row.state == State.FAILED]
    count = table.again(work, [row.ref for row in failed])
    _release(table, work, failed)
    return count


def discard(table: Table, work: Work, rows: Sequence[Row]) -> int:
    """Delete rows that are not sent, and release those that were held behind them.

    Returns how many were deleted. A row that is not failed may be under way, and arrive.

    Args:
        table: Their table.
        work: A transaction.
        rows: At most ``PAGE_ROWS``.
    """
    unsent = [row for row in rows if row.state != State.SENT]
    count = table.delete(work, [row.ref for row in unsent])
    _release(table, work, unsent)
    return count


def _release(table: Table, work: Work, rows: Sequence[Row]) -> None:
    keys = dict.fromkeys([(row.topic, row.ordering_key) for row in rows if row.ordering_key])
    if len(keys) <= _MOST_KEYS:
        for topic, key in keys:
            table.release(work, topic, key)
        return
    for topic in dict.fromkeys([topic for topic, _ in keys]):
        table.release(work, topic)
