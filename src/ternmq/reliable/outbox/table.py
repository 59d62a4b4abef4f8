"""Statements on the table of the outbox."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from ternmq.reliable.database.dialect import Dialect
from ternmq.reliable.database.lease import Lease
from ternmq.reliable.database.port import Result, Values, Work
from ternmq.reliable.database.statements import Statements
from ternmq.reliable.database.tables import State
from ternmq.reliable.outbox.rows import COLUMNS, Ref, Row, row_of

PAGE_ROWS: Final = 500
"""Most rows of a page, and of one statement."""
INLINE_BYTES: Final = 64 * 1024
"""Bodies up to this size are read with their rows; larger ones each by itself."""
_GIVEN: Final = (
    "by_writer", "id", "topic", "queue", "message_key", "ordering_key", "tag", "content_type",
    "headers", "priority", "due_ms", "expires_ms", "items", "body",
)  # fmt: skip
_AHEAD_MS: Final = 3_600_000
_SKEW_MS: Final = 60_000


class Table(Statements):
    """The table of the outbox in one database. Immutable."""

    def __init__(self, dialect: Dialect, schema: str = "") -> None:
        super().__init__(dialect, schema)
        # A small table would be read whole, and each change wait for the row that any open
        # transaction of an application has inserted.
        self._by_number = " FORCE INDEX (PRIMARY)" if dialect.name == "mysql" else ""

    # -- the application's transaction ------------------------------------------------------------

    def insertion(
        self, rows: Sequence[Values], *, digits: bool = False
    ) -> tuple[str, dict[str, object]]:
        """Return a statement that inserts rows, and its values; at most ``PAGE_ROWS``.

        ``digits``: as in ``Attached``; only MySQL reads them.
        """
        clock = self.dialect.name == "mysql"  # it has no such default
        columns = [*_GIVEN, "written_ms"] if clock else _GIVEN
        places: list[str] = []
        values: dict[str, object] = {}
        for number, row in enumerate(rows):
            named = []
            for name in _GIVEN:
                value, place = row[name], f":{name}_{number}"
                if digits and isinstance(value, bytes):
                    value, place = value.hex(), f"UNHEX({place})"
                named.append(place)
                values[f"{name}_{number}"] = value
            places.append(f"({', '.join([*named, '{now_ms}'] if clock else named)})")
        returning = " RETURNING seq" if self.dialect.returning else ""
        return self.fill(
            f"INSERT INTO {{outbox}} ({', '.join(columns)}) VALUES {', '.join(places)}{returning}"
        ), values

    def numbers(self, result: Result, count: int) -> list[int]:
        """Return the numbers of the rows that ``insertion`` inserted; empty: not told."""
        if self.dialect.returning:
            return [int(row[0]) for row in result.rows]
        if not result.last:
            return []
        first = result.last
        if self.dialect.last_of_many == "last":
            first -= count - 1
        return list(range(first, first + count))

    # -- reading ----------------------------------------------------------------------------------

    def page(
        self,
        work: Work,
        *,
        resend_after_ms: int,
        limit: int = PAGE_ROWS,
        lease: Lease | None = None,
    ) -> list[Row]:
        """Return the first rows that may be sent, by number.

        It begins at the first row each time, never behind what was read: a transaction may commit
        late under a small number. One statement sees one state of the table: who sees a row sees
        those that were committed before it was written. The clock may have been set back: nothing
        waits for it more than an hour.

        Args:
            work: Runs the statement.
            resend_after_ms: How long rows are left to the process that wrote them.
            limit: Most rows.
            lease: If another one took it, the page is empty: a row may be left out that the other
                one has noted as refused, and those behind it must not be sent.
        """
        values: dict[str, object] = {"resend_after": resend_after_ms, "limit": limit}
        led = ""
        if lease is not None:
            led = (
                "AND EXISTS (SELECT 1 FROM {lease} "
                "WHERE name = :name AND holder = :holder AND epoch = :epoch) "
            )
            values |= {
                "name": self.dialect.text(lease.name), "holder": self.dialect.text(lease.holder),
                "epoch": lease.epoch,
            }  # fmt: skip
        found = work.run(
            self.fill(
                f"SELECT CASE WHEN length(body) <= {INLINE_BYTES} THEN body END, "
                f"{', '.join(COLUMNS)} FROM {{outbox}} "
                f"WHERE state = {State.SENDING:d} "
                f"AND (next_ms <= {{now_ms}} OR next_ms > {{now_ms}} + {_AHEAD_MS}) "
                "AND (by_writer = 0 OR written_ms < {now_ms} - :resend_after "
                f"OR written_ms > {{now_ms}} + {_SKEW_MS}) {led}"
                "ORDER BY seq LIMIT :limit"
            ),
            values,
        )
        return [row_of(self.dialect, row[1:], row[0]) for row in found.rows]

    def rows(self, work: Work, limit: int) -> list[Row]:
        """Return the first rows of all states, with their bodies, by number."""
        found = work.run(
            self.fill(
                f"SELECT body, {', '.join(COLUMNS)} FROM {{outbox}} ORDER BY seq LIMIT :limit"
            ),
            {"limit": limit},
        )
        return [row_of(self.dialect, row[1:], row[0]) for row in found.rows]

    def own(self, work: Work, refs: Sequence[Ref]) -> list[Row]:
        """Return those of some rows that are committed and still to be sent, by number."""
        names, values = listed([ref.seq for ref in refs])
        found = work.run(
            self.fill(
                f"SELECT CASE WHEN length(body) <= {INLINE_BYTES} THEN body END, "
                f"{', '.join(COLUMNS)} FROM {{outbox}} "
                f"WHERE state = {State.SENDING:d} AND seq IN ({names}) ORDER BY seq"
            ),
            values,
        )
        wanted = set(refs)
        rows = [row_of(self.dialect, row[1:], row[0]) for row in found.rows]
        return [row for row in rows if row.ref in wanted]

    def unsent(self, work: Work, refs: Sequence[Ref]) -> list[Ref]:
        """Return those of some rows that are committed and not stored yet, nor given up."""
        if not refs:
            return []
        names, values = listed([ref.seq for ref in refs[:PAGE_ROWS]])
        found = work.run(
            self.fill(
                f"SELECT seq, id FROM {{outbox}} WHERE seq IN ({names}) "
                f"AND state IN ({State.SENDING:d}, {State.HELD:d})"
            ),
            values,
        )
        wanted = set(refs)
        rows = [Ref(int(seq), bytes(id_).decode()) for seq, id_ in found.rows]
        return [ref for ref in rows if ref in wanted]

    def is_unsent_up_to(self, work: Work, seq: int) -> bool:
        """Return whether a row up to a number waits to be sent, whoever wrote it."""
        found = work.run(
            self.fill(
                "SELECT seq FROM {outbox} WHERE seq <= :seq "
                f"AND state IN ({State.SENDING:d}, {State.HELD:d}) LIMIT 1"
            ),
            {"seq": seq},
        )
        return bool(found.rows)

    def read_body(self, work: Work, row: Row) -> bool:
        """Read the body of a row that is large; return False if the row is gone."""
        if row.body is not None:
            return True
        found = work.run(
            self.fill("SELECT body FROM {outbox} WHERE seq = :seq AND id = :id"),
            {"seq": row.seq, "id": row.id.encode()},
        ).rows
        if found:
            row.body = bytes(found[0][0])
        return bool(found)

    # -- what became of rows ----------------------------------------------------------------------

    def delete(self, work: Work, refs: Iterable[Ref]) -> int:
        """Delete rows; return how many there were."""
        begin = "DELETE FROM {outbox}"
        if self._by_number:  # MySQL takes a hint only in its other form
            begin = f"DELETE gone FROM {{outbox}} AS gone{self._by_number}"
        return self._each(work, f"{begin} WHERE ", refs)

    def keep(self, work: Work, refs: Iterable[Ref], *, resent: bool) -> int:
        """Mark rows as sent; return how many there were.

        If they are ``resent``, by another process than the one that wrote them, a try is counted.
        """
        return self._each(
            work,
            f"UPDATE {{outbox}}{self._by_number} SET state = {State.SENT:d}, next_ms = {{now_ms}}, "
            f"tries = tries + {resent:d}, error = NULL WHERE state <> {State.SENT:d} AND ",
            refs,
        )

    def hold(self, work: Work, refs: Iterable[Ref]) -> int:
        """Mark rows as held; return how many there were."""
        return self._each(
            work,
            f"UPDATE {{outbox}}{self._by_number} SET state = {State.HELD:d}, by_writer = 0 "
            f"WHERE state = {State.SENDING:d} AND ",
            refs,
        )

    def refused(
        self, work: Work, row: Row, *, tries: int, wait_ms: int, error: str, failed: bool
    ) -> bool:
        """Note that a row was not sent; from now on, the compensator sends it.

        Return False if the row is not there any more, or has failed already.

        Without a wait, no time is written: if the clock were set back, the row would wait for it,
        and the next ones of its key would not.
        """
        state = State.FAILED if failed else State.SENDING
        again = "{now_ms} + :wait" if wait_ms else ":wait"
        done = work.run(
            self.fill(
                f"UPDATE {{outbox}}{self._by_number} SET state = {state:d}, by_writer = 0, "
                f"tries = :tries, next_ms = {again}, error = :error "
                f"WHERE seq = :seq AND id = :id AND state = {State.SENDING:d}"
            ),
            {"tries": tries, "wait": wait_ms, "error": error, "seq": row.seq,
             "id": row.id.encode()},
        )  # fmt: skip
        return done.count > 0

    def again(self, work: Work, refs: Iterable[Ref]) -> int:
        """Have rows that failed be sent again, as if they were new; return how many there were."""
        return self._each(
            work,
            f"UPDATE {{outbox}} SET state = {State.SENDING:d}, by_writer = 0, tries = 0, "
            f"next_ms = 0, error = NULL WHERE state = {State.FAILED:d} AND ",
            refs,
        )

    def _each(self, work: Work, begin: str, refs: Iterable[Ref]) -> int:
        count = 0
        left = list(refs)
        while left:
            some, left = left[:PAGE_ROWS], left[PAGE_ROWS:]
            names, values = listed([ref.seq for ref in some])
            ids, more = listed([ref.id.encode() for ref in some], "id")
            statement = f"{begin} seq IN ({names}) AND id IN ({ids})"
            count += work.run(self.fill(statement), {**values, **more}).count
        return count

    # -- blocked keys and topics ------------------------------------------------------------------

    def blocked_keys(self, work: Work) -> list[tuple[str, str, int]]:
        """Return topic, ordering key and number of the first row that was refused, of each key."""
        text = self.dialect.text_of
        found = work.run(
            self.fill(
                "SELECT topic, ordering_key, min(seq) FROM {outbox} WHERE ordering_key <> :none "
                f"AND (state = {State.FAILED:d} OR (state = {State.SENDING:d} AND tries > 0)) "
                "GROUP BY topic, ordering_key"
            ),
            {"none": self.dialect.text("")},
        )
        return [(text(topic), text(key), int(seq)) for topic, key, seq in found.rows]

    def blocking(self, work: Work, numbers: Sequence[int]) -> list[int]:
        """Return those of some rows that were refused and are still there."""
        names, values = listed(numbers[:PAGE_ROWS])
        found = work.run(
            self.fill(
                f"SELECT seq FROM {{outbox}} WHERE seq IN ({names}) "
                f"AND (state = {State.FAILED:d} OR (state = {State.SENDING:d} AND tries > 0))"
            ),
            values,
        )
        return [int(row[0]) for row in found.rows]

    def release(self, work: Work, topic: str = "", key: str | None = None) -> int:
        """Have held rows be sent, those of a topic and of a key of it, or all; return how many."""
        chosen = f"state = {State.HELD:d}"
        values: dict[str, object] = {}
        if topic:
            chosen += " AND topic = :topic"
            values["topic"] = self.dialect.text(topic)
        if key is not None:
            chosen += " AND ordering_key = :key"
            values["key"] = self.dialect.text(key)
        statement = f"UPDATE {{outbox}} SET state = {State.SENDING:d} WHERE {chosen}"
        return work.run(self.fill(statement), values).count

    def clean(self, work: Work, keep_ms: int, limit: int = 1000) -> int:
        """Delete rows that were sent at least so long ago; return how many, at most ``limit``."""
        found = work.run(
            self.fill(
                f"SELECT seq, id FROM {{outbox}} WHERE state = {State.SENT:d} "
                "AND next_ms < {now_ms} - :keep ORDER BY seq LIMIT :limit"
            ),
            {"keep": keep_ms, "limit": limit},
        )
        return self.delete(work, [Ref(int(seq), bytes(id_).decode()) for seq, id_ in found.rows])


def listed(values: Sequence[object], name: str = "seq") -> tuple[str, dict[str, object]]:
    """Return the names of values in a list of SQL, and the values."""
    named = {f"{name}_{number}": value for number, value in enumerate(values)}
    return ", ".join([f":{one}" for one in named]), named
