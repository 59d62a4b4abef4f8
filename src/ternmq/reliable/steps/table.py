"""Statements on the tables of orderly sessions, and the rows of their wake-ups in the outbox."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from ternmq.client.producer.outgoing import Outgoing
from ternmq.reliable.database.dialect import Dialect
from ternmq.reliable.database.port import Values, Work
from ternmq.reliable.database.statements import Statements
from ternmq.reliable.database.tables import State as RowState
from ternmq.reliable.ids.text import text_id
from ternmq.reliable.libraries.refusals import is_taken
from ternmq.reliable.libraries.standing import MARK
from ternmq.reliable.modes.numbering import SESSION, SIZE, TURN
from ternmq.reliable.outbox.rows import values_of
from ternmq.reliable.outbox.table import Table as OutboxTable
from ternmq.reliable.steps.course import ACTIVE, ENDED, Change, Standing, State
from ternmq.reliable.steps.item import Item

CLEAN_ROWS: Final = 100
"""Most sessions that are deleted in one transaction."""
_COLUMNS: Final = "size, state, stored, step, tries, turn, since_ms, next_ms, error"
_THIS: Final = "WHERE consumer = :consumer AND session = :session"
_ITEM: Final = "number, id, message_key, tag, content_type, headers, body"
_LOCKED: Final = {"postgresql": " FOR UPDATE", "mysql": " FOR UPDATE", "sqlite": ""}
"""SQLite has one lock, which a transaction for writing has from its beginning."""
_FREE: Final = {name: f"{clause} SKIP LOCKED" if clause else "" for name, clause in _LOCKED.items()}
_LOCK_WAIT: Final = {
    "postgresql": (
        "SELECT current_setting('lock_timeout')",
        f"SELECT set_config('lock_timeout', :wait, true), set_config('{MARK}', '1', true)",
    ),
    "mysql": (
        "SELECT @@SESSION.innodb_lock_wait_timeout",
        "SET SESSION innodb_lock_wait_timeout = :wait",
    ),
}
"""Reads, and sets, how long statements wait for a row. In PostgreSQL with the mark of the
transaction, for ``standing``."""
_OF_TOPIC: Final = "substr(consumer, 1, :length) = :part"
_OF_GROUP: Final = "substr(consumer, length(consumer) - :length + 1) = :part"
_OR_NOTHING: Final = {"postgresql": " ON CONFLICT DO NOTHING", "sqlite": " ON CONFLICT DO NOTHING"}


@dataclass(slots=True, frozen=True)
class Consumer:
    """A group that does the steps of sessions.

    Attributes:
        topic: Where the items are sent.
        group: The group.
    """

    topic: str
    group: str

    @property
    def name(self) -> str:
        """What its rows have; names have no ``/``."""
        return f"{self.topic}/{self.group}"

    @property
    def steps_topic(self) -> str:
        """The topic of its wake-ups."""
        return f"{self.topic}.{self.group}.steps"


def consumer_of(name: str) -> Consumer:
    """Return the consumer with this name."""
    topic, _, group = name.partition("/")
    return Consumer(topic, group)


class SequenceTable(Statements):
    """The tables of orderly sessions in one database. Immutable."""

    def __init__(self, dialect: Dialect, schema: str = "") -> None:
        super().__init__(dialect, schema)
        self._outbox = OutboxTable(dialect, schema)

    def _of(self, consumer: Consumer, session: str) -> dict[str, object]:
        return {"consumer": self.dialect.text(consumer.name), "session": session.encode()}

    # -- sessions ---------------------------------------------------------------------------------

    def find(
        self, work: Work, consumer: Consumer, session: str, *, lock: bool = False
    ) -> Standing | None:
        """Return the row of a session; None: there is none.

        Args:
            work: Runs the statement.
            consumer: Of the session.
            session: Its name.
            lock: Keep others from changing it until the end of the transaction.
        """
        clause = _LOCKED[self.dialect.name] if lock else ""
        found = work.run(
            self.fill(f"SELECT {_COLUMNS} FROM {{sequence}} {_THIS}{clause}"),
            self._of(consumer, session),
        )
        return _standing(found.rows[0]) if found.rows else None

    def find_free(self, work: Work, consumer: Consumer, session: str) -> Standing | None:
        """Return the row of a session and lock it; None: there is none, or another one has it."""
        found = work.run(
            self.fill(f"SELECT {_COLUMNS} FROM {{sequence}} {_THIS}{_FREE[self.dialect.name]}"),
            self._of(consumer, session),
        )
        return _standing(found.rows[0]) if found.rows else None

    def insert(self, work: Work, consumer: Consumer, session: str, standing: Standing) -> bool:
        """Insert the row of a session; return whether there was none.

        If another transaction has inserted it and is open, this waits for its end.
        """
        statement = self.fill(
            f"INSERT INTO {{sequence}} (consumer, session, {_COLUMNS}) VALUES (:consumer, "
            ":session, :size, :state, :stored, :step, :tries, :turn, :since_ms, :next_ms, :error)"
            f"{_OR_NOTHING.get(self.dialect.name, '')}"
        )
        values = {**self._of(consumer, session), **_values(standing)}
        if self.dialect.name != "mysql":
            return work.run(statement, values).count == 1
        try:
            work.run(statement, values)
        except Exception as error:
            if is_taken(error):  # the transaction goes on
                return False
            raise
        return True

    @contextmanager
    def waiting(self, work: Work, wait_s: float) -> Iterator[None]:
        """Limit how long the statements of a block wait for a row; afterwards all is as before.

        An error of the database follows (``refusals.waited_in_vain``). SQLite waits when its
        transaction begins.
        """
        if self.dialect.name == "sqlite":
            yield
            return
        read, write = _LOCK_WAIT[self.dialect.name]
        [[before]] = work.run(read, {}).rows
        if self.dialect.name == "postgresql":
            work.run(write, {"wait": str(max(1, round(wait_s * 1000)))})
            yield
            work.run(write, {"wait": str(before)})  # after an error, the rollback does it
            return
        work.run(write, {"wait": max(1, math.ceil(wait_s))})
        try:
            yield
        except BaseException:
            # A connection that is lost needs no setting, and the first error is the one to raise.
            with suppress(Exception):
                work.run(write, {"wait": before})
            raise
        work.run(write, {"wait": before})

    def change(self, work: Work, consumer: Consumer, session: str, change: Change) -> bool:
        """Change the row of a session; return whether it was as the change says it was before.

        If another transaction has changed it and is open, this waits for its end.
        """
        before = change.before
        assert before is not None
        values = {
            **self._of(consumer, session), **_values(change.after),
            "old_state": int(before.state), "old_step": before.step, "old_tries": before.tries,
            "old_turn": before.turn, "old_stored": before.stored,
        }  # fmt: skip
        del values["size"]
        return work.run(
            self.fill(
                "UPDATE {sequence} SET state = :state, stored = :stored, step = :step, "
                "tries = :tries, turn = :turn, since_ms = :since_ms, next_ms = :next_ms, "
                f"error = :error {_THIS} AND state = :old_state AND step = :old_step "
                "AND tries = :old_tries AND turn = :old_turn AND stored = :old_stored"
            ),
            values,
        ).count == 1  # fmt: skip

    def wake(
        self, work: Work, consumer: Consumer, session: str, standing: Standing, due_us: int = 0
    ) -> None:
        """Insert the row of the wake-up that counts: the outbox sends it after the commit.

        Args:
            work: The transaction.
            consumer: Of the session.
            session: Its name.
            standing: The session; its turn is that of the wake-up.
            due_us: When it is due, in broker time; 0: at once.
        """
        headers = {SESSION: session, SIZE: str(standing.size), TURN: str(standing.turn)}
        message = Outgoing(b"", session, "", "", headers, "", "", None)
        message.due_us = due_us
        row = values_of(
            self.dialect, consumer.steps_topic, message, text_id(), by_writer=False
        )  # fmt: skip
        work.run(*self._outbox.insertion([row]))

    # -- items ------------------------------------------------------------------------------------

    def item(self, work: Work, consumer: Consumer, session: str, number: int) -> Item | None:
        """Return an item; None: it is not there."""
        found = work.run(
            self.fill(f"SELECT {_ITEM} FROM {{sequence_item}} {_THIS} AND number = :number"),
            {**self._of(consumer, session), "number": number},
        )
        return self._item(found.rows[0]) if found.rows else None

    def insert_item(self, work: Work, consumer: Consumer, session: str, item: Item) -> None:
        """Insert an item."""
        text = self.dialect.text
        headers = msgspec.msgpack.encode(dict(item.headers)) if item.headers else None
        work.run(
            self.fill(
                f"INSERT INTO {{sequence_item}} (consumer, session, {_ITEM}) VALUES (:consumer, "
                ":session, :number, :id, :message_key, :tag, :content_type, :headers, :body)"
            ),
            {
                **self._of(consumer, session), "number": item.number, "id": item.id.encode(),
                "message_key": text(item.key), "tag": text(item.tag),
                "content_type": text(item.content_type), "headers": headers, "body": item.body,
            },
        )  # fmt: skip

    def numbers(self, work: Work, consumer: Consumer, session: str) -> list[int]:
        """Return the numbers of the items that are there, in order."""
        found = work.run(
            self.fill(f"SELECT number FROM {{sequence_item}} {_THIS} ORDER BY number"),
            self._of(consumer, session),
        )
        return [int(row[0]) for row in found.rows]

    def items(self, work: Work, consumer: Consumer, session: str) -> list[Item]:
        """Return the items that are there, in order."""
        found = work.run(
            self.fill(f"SELECT {_ITEM} FROM {{sequence_item}} {_THIS} ORDER BY number"),
            self._of(consumer, session),
        )
        return [self._item(row) for row in found.rows]

    def _item(self, row: Sequence[Any]) -> Item:
        number, id_, key, tag, content_type, headers, body = row
        text = self.dialect.text_of
        return Item(
            int(number), bytes(id_).decode(), text(key), text(tag), text(content_type),
            {} if headers is None else msgspec.msgpack.decode(bytes(headers)), bytes(body),
        )  # fmt: skip

    # -- many sessions ----------------------------------------------------------------------------

    def count(self, work: Work, consumer: Consumer) -> dict[State, int]:
        """Return how many sessions of a consumer each state has, except those that have ended."""
        found = work.run(
            self.fill(
                "SELECT state, count(*) FROM {sequence} WHERE consumer = :consumer "
                f"AND state NOT IN ({_listed(ENDED)}) GROUP BY state"
            ),
            {"consumer": self.dialect.text(consumer.name)},
        )
        return {State(int(state)): int(count) for state, count in found.rows}

    def overdue(self, work: Work, consumer: Consumer, late_ms: int, limit: int) -> list[str]:
        """Return sessions whose wake-up was due so long ago, the oldest first."""
        found = work.run(
            self.fill(
                "SELECT session FROM {sequence} WHERE consumer = :consumer "
                f"AND state IN ({_listed(ACTIVE)}) AND next_ms < {{now_ms}} - :late "
                "ORDER BY next_ms LIMIT :limit"
            ),
            {"consumer": self.dialect.text(consumer.name), "late": late_ms, "limit": limit},
        )
        return [bytes(row[0]).decode() for row in found.rows]

    def is_waiting(self, work: Work, consumer: Consumer, late_ms: int) -> bool:
        """Return whether wake-ups that were written so long ago wait in the outbox."""
        found = work.run(
            self.fill(
                "SELECT 1 FROM {outbox} "
                f"WHERE state IN ({RowState.SENDING:d}, {RowState.HELD:d}) "
                "AND topic = :topic AND written_ms < {now_ms} - :late LIMIT 1"
            ),
            {"topic": self.dialect.text(consumer.steps_topic), "late": late_ms},
        )
        return bool(found.rows)

    def ended(self, work: Work, consumer: Consumer, keep_ms: int) -> list[str]:
        """Return sessions that ended so long ago; at most ``CLEAN_ROWS``."""
        found = work.run(
            self.fill(
                "SELECT session FROM {sequence} WHERE consumer = :consumer "
                f"AND state IN ({_listed(ENDED)}) AND next_ms < {{now_ms}} - :keep "
                f"ORDER BY next_ms LIMIT {CLEAN_ROWS}"
            ),
            {"consumer": self.dialect.text(consumer.name), "keep": keep_ms},
        )
        return [bytes(row[0]).decode() for row in found.rows]

    def delete(self, work: Work, consumer: Consumer, session: str) -> bool:
        """Delete a session that has ended, with its items; return whether it was there."""
        values: Values = self._of(consumer, session)
        found = work.run(
            self.fill(f"DELETE FROM {{sequence}} {_THIS} AND state IN ({_listed(ENDED)})"), values
        )
        if found.count:
            work.run(self.fill(f"DELETE FROM {{sequence_item}} {_THIS}"), values)
        return found.count == 1

    def select(
        self,
        work: Work,
        *,
        states: Sequence[State] = (),
        topic: str | None = None,
        group: str | None = None,
        session: str | None = None,
        limit: int = 100,
    ) -> list[tuple[Consumer, str, Standing]]:
        """Return sessions, those first that have been in their state longest.

        Args:
            work: Runs the statement.
            states: Only those in these; empty: in any.
            topic: Only those of this topic; None: of any.
            group: Only those of this group; None: of any.
            session: Only those with this name; None: with any.
            limit: Most of them.
        """
        chosen = ["1 = 1"]
        named: dict[str, object] = {"limit": limit}
        if states:
            chosen.append(f"state IN ({_listed(states)})")
        if topic is not None and group is not None:
            chosen.append("consumer = :consumer")
            named["consumer"] = self.dialect.text(Consumer(topic, group).name)
        elif topic is not None or group is not None:
            # Names may contain % and _, which LIKE would take for patterns.
            chosen.append(_OF_TOPIC if group is None else _OF_GROUP)
            part = f"{topic}/" if group is None else f"/{group}"
            named |= {"part": self.dialect.text(part), "length": len(part)}  # names are ASCII
        if session is not None:
            chosen.append("session = :session")
            named["session"] = session.encode()
        found = work.run(
            self.fill(
                f"SELECT consumer, session, {_COLUMNS} FROM {{sequence}} "
                f"WHERE {' AND '.join(chosen)} ORDER BY next_ms, consumer, session LIMIT :limit"
            ),
            named,
        )
        return [
            (consumer_of(self.dialect.text_of(row[0])), bytes(row[1]).decode(), _standing(row[2:]))
            for row in found.rows
        ]


def _standing(row: Sequence[Any]) -> Standing:
    size, state, stored, step, tries, turn, since_ms, next_ms, error = row
    return Standing(
        int(size), State(int(state)), int(stored), int(step), int(tries), int(turn), int(since_ms),
        int(next_ms), error,
    )  # fmt: skip


def _values(standing: Standing) -> dict[str, object]:
    return {
        "size": standing.size, "state": int(standing.state), "stored": standing.stored,
        "step": standing.step, "tries": standing.tries, "turn": standing.turn,
        "since_ms": standing.since_ms, "next_ms": standing.next_ms, "error": standing.error,
    }  # fmt: skip


def _listed(states: Sequence[State]) -> str:
    return ", ".join([str(int(state)) for state in states])
