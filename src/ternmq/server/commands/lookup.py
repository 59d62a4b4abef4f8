"""The commands that look messages up, and those about messages that failed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from ternmq.access import Authoriser
from ternmq.broker.catalog.catalog import Topic
from ternmq.broker.group.rowstate import RowState
from ternmq.broker.query.messages import FailedRow, Queries
from ternmq.journal.index.tail import Place
from ternmq.journal.store.lookup import Cursor, Found, State
from ternmq.model.errors import InvalidRequest, MessageNotFound
from ternmq.model.printing import quoted
from ternmq.model.types import Position
from ternmq.record.batch.batch import Batch, Compression, slice_batch
from ternmq.record.fact.facts import Cause, LeasedRun, Outcome
from ternmq.record.fact.moved import FailureEntry
from ternmq.server.commands.control import Answer, ControlCommands
from ternmq.server.commands.rows import SMALL_BYTES
from ternmq.server.desk.desk import Desk
from ternmq.wire import control
from ternmq.wire.commands import Command
from ternmq.wire.port import Caller

PAGE_BYTES: Final = 1 << 20
"""Most bytes of messages on one page; its first message may be larger."""
READ_BYTES: Final = 2 << 20
"""Most bytes that are read for a page of failed messages: some are small parts of large batches."""
_MESSAGE_ID: Final = re.compile("[0-9a-f]{1,16}:[0-9a-f]{1,16}")
_CURSOR: Final = re.compile("[0-9]{1,19}[.][0-9]{1,9}[.][0-9]{1,20}")


class LookupCommands(ControlCommands):
    """Handlers that find messages, and list, retry and delete failed ones.

    Not thread-safe: call it from the broker's loop.
    """

    def __init__(self, desk: Desk, authoriser: Authoriser, queries: Queries) -> None:
        super().__init__(desk, authoriser, queries)
        self.handlers |= {
            Command.FIND: self.control(Command.FIND, control.Find, self.find),
            Command.OFFSET_AT: self.control(Command.OFFSET_AT, control.OffsetAt, self.offset_at),
            Command.FAILED_LIST: self.control(
                Command.FAILED_LIST, control.FailedList, self.list_failed
            ),
            Command.FAILED_RETRY: self.control(
                Command.FAILED_RETRY, control.FailedRetry, self.retry_failed
            ),
            Command.FAILED_DELETE: self.control(
                Command.FAILED_DELETE, control.FailedDelete, self.delete_failed
            ),
        }

    def find(self, caller: Caller, asked: control.Find) -> Answer:
        """FIND: look messages up by id, application id, key or offset."""
        stated = [asked.id, asked.application_id, asked.key, asked.offset]
        if sum([one is not None for one in stated]) != 1:
            raise InvalidRequest("state one of id, application_id, key, offset")
        queries = self._queries
        topic = self._broker.views.catalog.topic(asked.topic)
        following = ""
        below = self._broker.journal.durable
        if asked.key is not None:
            page = queries.by_key(
                asked.topic,
                asked.key,
                since_us=asked.since_us,
                until_us=asked.until_us,
                limit=asked.limit,
                after=_cursor(asked.after) if asked.after else None,
            )
            found = page.found
            if page.next is not None:
                below, following = page.next.below, _text(page.next)
        elif asked.id is not None:
            found = [queries.by_id(*message_id(asked.id))]
            if found[0].topic != topic.number:
                raise MessageNotFound(f"no message {asked.id} is kept in {asked.topic!r}")
        elif asked.application_id is not None:
            found = [queries.by_application_id(asked.topic, asked.application_id)]
        else:
            assert asked.offset is not None
            found = [queries.by_offset(asked.topic, asked.queue, asked.offset)]
        told: list[control.FoundMessage] = []
        room = PAGE_BYTES
        for one in found:
            message = _message(topic, one)
            room -= len(message.batch)
            if told and room < 0:  # only a page by key has so many
                following = _text(Cursor(found[len(told) - 1].place, below))
                break
            told.append(message)
        # What is not in its queue may be so by a record that is not durable yet.
        stored = all(one.state is State.STORED for one in found[: len(told)])
        position = 0 if stored else self._broker.journal.end
        return control.FoundPage(found=told, next=following), position

    def offset_at(self, caller: Caller, asked: control.OffsetAt) -> Answer:
        """OFFSET_AT: return the first offset stored at or after a time."""
        offset = self._queries.offset_at(asked.topic, asked.queue, asked.time_us)
        return control.OffsetFound(offset=offset), 0

    def list_failed(self, caller: Caller, asked: control.FailedList) -> Answer:
        """FAILED_LIST: waiting rows or dead letters with their content; or the state of one row."""
        if asked.offset is not None:
            return self._standing(asked, asked.offset), self._broker.journal.end
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
                message = _message(topic, found)
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
        )

    def retry_failed(self, caller: Caller, asked: control.FailedRetry) -> Answer:
        """FAILED_RETRY: deliver waiting or held rows again now."""
        _few(asked.offsets)
        reply = self._broker.operating.retry_now(
            self._core.now_us(), asked.topic, asked.group, asked.queue, asked.offsets
        )
        return _done(reply.settled, asked.offsets), reply.position

    def delete_failed(self, caller: Caller, asked: control.FailedDelete) -> Answer:
        """FAILED_DELETE: delete waiting or dead rows."""
        _few(asked.offsets)
        reply = self._broker.operating.delete_failures(
            self._core.now_us(), asked.topic, asked.group, asked.queue, asked.offsets
        )
        return _done(reply.settled, asked.offsets), reply.position


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


def _message(topic: Topic, found: Found) -> control.FoundMessage:
    """Return a message as a look-up answers it; a large uncompressed batch is cut to its row."""
    row, batch = found.row, found.batch
    if len(batch) > SMALL_BYTES and Batch(batch).compression is Compression.NONE:
        row, batch = 0, slice_batch(batch, row, row + 1, topic.seed)
    return control.FoundMessage(
        topic=topic.spec.name,
        queue=found.queue,
        offset=found.offset,
        stored_us=found.stored_us,
        row=row,
        batch=batch,
        state=found.state.value,
        due_us=found.due_us,
    )


def _text(cursor: Cursor) -> str:
    """Return a cursor as text, for ``next`` of an answer."""
    return f"{cursor.place.position}.{cursor.place.row}.{cursor.below}"


def is_message_id(text: str) -> bool:
    """Return whether a text looks like a message id of the broker."""
    return _MESSAGE_ID.fullmatch(text) is not None


def message_id(text: str) -> tuple[int, int]:
    """Return (producer, sequence) of a message's id; raises InvalidRequest if it is none."""
    if not is_message_id(text):
        raise InvalidRequest(f"{quoted(text)} is not a message id; an id looks like 9f3c...:1a")
    producer, _, sequence = text.partition(":")
    return int(producer, 16), int(sequence, 16)


def _cursor(text: str) -> Cursor:
    if _CURSOR.fullmatch(text) is None:
        raise InvalidRequest("after must be the `next` of the previous page")
    position, row, below = [int(part) for part in text.split(".")]
    return Cursor(Place(Position(position), row), Position(below))


def _few(offsets: list[int]) -> None:
    if not 0 < len(offsets) <= control.MAX_FAILED:
        raise InvalidRequest(f"name 1 to {control.MAX_FAILED} offsets")


def _done(settled: Sequence[LeasedRun], offsets: list[int]) -> control.FailedDone:
    done: set[int] = set()
    for start, stop, *_ in settled:
        done.update(range(start, stop))
    missing = [offset for offset in offsets if offset not in done]
    return control.FailedDone(done=len(done), missing=missing)
