"""The commands that look messages up."""

from __future__ import annotations

import re
from typing import Final

from ternmq.access import Authoriser
from ternmq.broker.catalog.catalog import Topic
from ternmq.broker.query.messages import Queries
from ternmq.journal.index.tail import Place
from ternmq.journal.store.lookup import Cursor, Found, State
from ternmq.model.errors import InvalidRequest, MessageNotFound
from ternmq.model.printing import quoted
from ternmq.model.types import Position
from ternmq.record.batch.batch import Batch, Compression, slice_batch
from ternmq.server.commands.control import Answer, ControlCommands
from ternmq.server.commands.rows import SMALL_BYTES
from ternmq.server.desk.desk import ReadingDesk
from ternmq.wire import control
from ternmq.wire.commands import Command
from ternmq.wire.port import Caller

PAGE_BYTES: Final = 1 << 20
"""Most bytes of messages on one page; its first message may be larger."""
_MESSAGE_ID: Final = re.compile("[0-9a-f]{1,16}:[0-9a-f]{1,16}")
_CURSOR: Final = re.compile("[0-9]{1,19}[.][0-9]{1,9}[.][0-9]{1,20}")


class LookupCommands(ControlCommands):
    """Handlers that find messages.

    Not thread-safe: call it from the broker's loop.
    """

    def __init__(self, desk: ReadingDesk, authoriser: Authoriser, queries: Queries) -> None:
        super().__init__(desk, authoriser, queries)
        self.handlers |= {
            Command.FIND: self.control(Command.FIND, control.Find, self.find),
            Command.OFFSET_AT: self.control(Command.OFFSET_AT, control.OffsetAt, self.offset_at),
        }

    def find(self, caller: Caller, asked: control.Find) -> Answer:
        """FIND: look messages up by id, application id, key or offset."""
        stated = [asked.id, asked.application_id, asked.key, asked.offset]
        if sum([one is not None for one in stated]) != 1:
            raise InvalidRequest("state one of id, application_id, key, offset")
        queries = self._queries
        topic = self._broker.views.catalog.topic(asked.topic)
        following = ""
        below = self._broker.journal.committed
        if asked.key is not None:
            page = queries.by_key(
                asked.topic,
                asked.key,
                since_us=asked.since_us,
                until_us=asked.until_us,
                limit=asked.limit,
                after=cursor_of(asked.after) if asked.after else None,
            )
            found = page.found
            if page.next is not None:
                below, following = page.next.below, cursor_text(page.next)
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
            message = message_of(topic, one)
            room -= len(message.batch)
            if told and room < 0:  # only a page by key has so many
                following = cursor_text(Cursor(found[len(told) - 1].place, below))
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


def message_of(topic: Topic, found: Found) -> control.FoundMessage:
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


def cursor_text(cursor: Cursor) -> str:
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


def cursor_of(text: str) -> Cursor:
    """Return the cursor of a text of ``cursor_text``; raises InvalidRequest if it is none."""
    if _CURSOR.fullmatch(text) is None:
        raise InvalidRequest("after must be the `next` of the previous page")
    position, row, below = [int(part) for part in text.split(".")]
    return Cursor(Place(Position(position), row), Position(below))
