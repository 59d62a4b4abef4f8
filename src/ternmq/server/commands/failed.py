"""The commands about messages that failed: find, count, list, retry now, delete."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ternmq.access import Authoriser
from ternmq.broker.group.rowstate import RowState
from ternmq.broker.query.failed import FailedSearch, Matches
from ternmq.broker.query.failedpiece import FAILED_STATES, Selection
from ternmq.broker.query.messages import FailedRow, Queries
from ternmq.journal.store.lookup import Cursor, Found
from ternmq.model.errors import InvalidRequest, MessageNotFound
from ternmq.record.fact.facts import Cause, LeasedRun, Outcome
from ternmq.record.fact.moved import FailureEntry
from ternmq.server.commands.control import Answer, BrokerCommands, ControlCommands
from ternmq.server.commands.lookup import (
    PAGE_BYTES,
    cursor_of,
    cursor_text,
    is_message_id,
    message_id,
    message_of,
)
from ternmq.server.desk.desk import Desk, ReadingDesk
from ternmq.wire import control
from ternmq.wire.commands import Command
from ternmq.wire.port import Caller

READ_BYTES: Final = 2 << 20
"""Most bytes that are read for a page of failed messages: some are small parts of large batches."""


class FailedLists(ControlCommands):
    """Handlers that find, count and list failed messages.

    Not thread-safe: call it from the broker's loop.
    """

    def __init__(self, desk: ReadingDesk, authoriser: Authoriser, queries: Queries) -> None:
        super().__init__(desk, authoriser, queries)
        self._search = FailedSearch(desk.core.broker)
        self.handlers |= {
            Command.FAILED_QUERY: self.control(
                Command.FAILED_QUERY, control.FailedQuery, self.query
            ),
            Command.FAILED_LIST: self.control(
                Command.FAILED_LIST, control.FailedList, self.list_failed
            ),
        }

    def query(self, caller: Caller, asked: control.FailedQuery) -> Answer:
        """FAILED_QUERY: find or count the failed rows that match, piece by piece."""
        if asked.key is not None and asked.id is not None:
            raise InvalidRequest("state a key or an id, not both")
        found = self._found(asked)
        named = {state.value: count for state, count in found.counts.items()}
        answer = control.FailedFound(
            offsets=[] if asked.count else found.offsets,
            failed_us=[] if asked.count else found.failed_us,
            counts=control.FailedCounts(**named),
            next="" if found.after is None else _text(found.after),
        )
        return answer, self._broker.journal.end

    def _found(self, asked: control.FailedQuery) -> Matches:
        search, selection = self._search, selection_of(asked.select)
        at = asked.topic, asked.group, asked.queue, selection
        if asked.id is not None:
            message = self._message(asked.topic, asked.id)
            return Matches() if message is None else search.by_message(*at, message)
        if asked.key is not None:
            after = cursor_of(asked.after) if asked.after else None
            return search.by_key(*at, asked.key, after=after)
        above = _offset(asked.after) if asked.after else -1
        if asked.count:
            return search.count(*at, after=above)
        if asked.newest:
            return search.newest(*at, after=above, limit=asked.limit)
        return search.by_offset(*at, after=above, limit=asked.limit)

    def _message(self, topic: str, text: str) -> Found | None:
        """Return the message with a message id, or else the newest one with an application id."""
        number = self._broker.views.catalog.topic(topic).number
        found = None
        if is_message_id(text):
            try:
                found = self._queries.by_id(*message_id(text))
            except MessageNotFound:
                found = None
        if found is None or found.topic != number:
            try:
                found = self._queries.by_application_id(topic, text)
            except MessageNotFound:
                return None
        return found

    def list_failed(self, caller: Caller, asked: control.FailedList) -> Answer:
        """FAILED_LIST: waiting rows or dead letters with their content; or the state of one row."""
        if asked.offset is not None:
            return self._standing(asked, asked.offset), self._broker.journal.end
        if asked.offsets:
            page = self._queries.failed_rows(asked.topic, asked.group, asked.queue, asked.offsets)
        else:
            ask = self._queries.dead_letters if asked.dead else self._queries.waiting
            page = ask(asked.topic, asked.group, asked.queue, after=asked.after, limit=asked.limit)
        topic = self._broker.views.catalog.topic(asked.topic)
        told: list[control.FailedMessage] = []
        room, unread = PAGE_BYTES, READ_BYTES
        for row in page.rows:
            message = None
            try:
                found = self._queries.by_offset(topic.spec.name, asked.queue, row.offset)
            except MessageNotFound:
                pass  # its topic does not keep what its groups are owed
            else:
                unread -= len(found.batch)
                message = message_of(topic, found)
                room -= len(message.batch)
            if told and (room < 0 or unread < 0):
                break
            told.append(self._failed(asked.queue, row, message))
        more = page.more or len(page.rows) > len(told)
        return control.FailedPage(rows=told, more=more), self._broker.journal.end

    def _standing(self, asked: control.FailedList, offset: int) -> control.FailedPage:
        place, failures = self._queries.row(asked.topic, asked.group, asked.queue, offset)
        standing = control.RowStanding(
            state=place.state.value,
            attempts=place.attempts,
            deliveries=place.deliveries,
            behind=place.behind,
            retry_us=place.when_us,
            due=place.state is RowState.WAITING and place.when_us <= self._core.now_us(),
            failures=_failures(failures),
        )
        return control.FailedPage(rows=[], standing=standing)

    def _failed(
        self, queue: int, row: FailedRow, message: control.FoundMessage | None
    ) -> control.FailedMessage:
        return control.FailedMessage(
            queue=queue,
            offset=row.offset,
            attempts=row.attempts,
            deliveries=row.deliveries,
            when_us=row.when_us,
            held=row.held,
            failures=_failures(row.failures),
            message=message,
            dead=row.dead,
        )


class FailedCommands(BrokerCommands):
    """Handlers that retry and delete failed messages.

    Not thread-safe: call it from the broker's loop.
    """

    def __init__(self, desk: Desk, authoriser: Authoriser, queries: Queries) -> None:
        super().__init__(desk, authoriser, queries)
        self._search = FailedSearch(desk.core.broker)
        self.handlers |= {
            Command.FAILED_RETRY: self.control(
                Command.FAILED_RETRY, control.FailedRetry, self.retry_failed
            ),
            Command.FAILED_DELETE: self.control(
                Command.FAILED_DELETE, control.FailedDelete, self.delete_failed
            ),
        }

    def retry_failed(self, caller: Caller, asked: control.FailedRetry) -> Answer:
        """FAILED_RETRY: deliver waiting or held rows again now."""
        _few(asked.offsets)
        chosen = self._chosen(asked)
        if asked.dry_run:
            return self._dry(asked, chosen, frozenset({RowState.WAITING, RowState.HELD}))
        if not chosen:
            return control.FailedDone(done=0, missing=asked.offsets), self._broker.journal.end
        reply = self._broker.operating.retry_now(
            self._core.now_us(), asked.topic, asked.group, asked.queue, chosen
        )
        return _done(reply.settled, asked.offsets), reply.position

    def delete_failed(self, caller: Caller, asked: control.FailedDelete) -> Answer:
        """FAILED_DELETE: delete waiting or dead rows."""
        _few(asked.offsets)
        chosen = self._chosen(asked)
        if asked.dry_run:
            return self._dry(asked, chosen, frozenset(FAILED_STATES))
        if not chosen:
            return control.FailedDone(done=0, missing=asked.offsets), self._broker.journal.end
        reply = self._broker.operating.delete_failures(
            self._core.now_us(), asked.topic, asked.group, asked.queue, chosen
        )
        return _done(reply.settled, asked.offsets), reply.position

    def _chosen(self, asked: control.FailedRetry | control.FailedDelete) -> list[int]:
        """Return those of the named rows that match, all if nothing is required of them."""
        if asked.only is None:
            return asked.offsets
        return self._search.matching(
            asked.topic, asked.group, asked.queue, selection_of(asked.only), asked.offsets
        )

    def _dry(
        self,
        asked: control.FailedRetry | control.FailedDelete,
        chosen: list[int],
        states: frozenset[RowState],
    ) -> Answer:
        """Answer what would happen to rows, which is done to those in some states."""
        there = set(
            self._search.matching(asked.topic, asked.group, asked.queue, Selection(states), chosen)
        )
        missing = [offset for offset in asked.offsets if offset not in there]
        return control.FailedDone(done=len(there), missing=missing), self._broker.journal.end


def selection_of(select: control.FailedSelect) -> Selection:
    """Return a selection as the core has it."""
    states = frozenset(map(RowState, select.states)) if select.states else frozenset(FAILED_STATES)
    return Selection(states, select.since_us, select.until_us, select.attempts)


def _text(after: int | Cursor) -> str:
    return cursor_text(after) if isinstance(after, Cursor) else str(after)


def _offset(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 19) or int(text) >= 1 << 63:
        raise InvalidRequest("after must be the `next` of the previous answer")
    return int(text)


def _failures(entries: Sequence[FailureEntry]) -> list[control.FailureInfo]:
    return [
        control.FailureInfo(
            time_us=one.time_us,
            session=one.session,
            attempt=one.attempt,
            outcome=Outcome(one.outcome).name.lower(),
            cause=Cause(one.cause).name.lower(),
            reason=one.reason.decode(errors="replace"),
        )
        for one in entries
    ]


def _few(offsets: list[int]) -> None:
    if not 0 < len(offsets) <= control.MAX_FAILED:
        raise InvalidRequest(f"name 1 to {control.MAX_FAILED} offsets")


def _done(settled: Sequence[LeasedRun], offsets: list[int]) -> control.FailedDone:
    done: set[int] = set()
    for start, stop, *_ in settled:
        done.update(range(start, stop))
    missing = [offset for offset in offsets if offset not in done]
    return control.FailedDone(done=len(done), missing=missing)
