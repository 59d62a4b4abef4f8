"""Look-up of messages: by id, offset, or key."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar

from ternmq.client.admin.places import queue_meant
from ternmq.client.connection.session import Session
from ternmq.client.content.codecs import Codecs
from ternmq.client.content.message import is_message_id, message_id
from ternmq.client.content.validation import check_id, check_positive, span_us, text, whole
from ternmq.client.declaration.topic import Topic, name_of
from ternmq.model.errors import InvalidRequest, MessageNotFound
from ternmq.record.batch.batch import Batch, Row
from ternmq.wire import control
from ternmq.wire.commands import Command

T = TypeVar("T")

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_PAGE: Final = 1000


@dataclass(slots=True, frozen=True)
class FoundMessage:
    """A stored message.

    Attributes:
        id: The broker's id of it.
        topic: Its topic.
        queue: Number of its queue; if it is in none: the queue that was asked for, or None.
        offset: Its offset there; None: it is in no queue.
        stored_at: When the broker stored it.
        born_at: When its sender sent it.
        row: Body and properties.
        value: The body, decoded according to its content type; as bytes, if it cannot be decoded.
        state: ``stored``: it is in its queue; ``scheduled``: it is not due yet; ``cancelled``: it
            was scheduled, and is not delivered.
        due_at: When it is or was due; None: it was sent without a due time.
    """

    id: str
    topic: str
    queue: int | None
    offset: int | None
    stored_at: datetime
    born_at: datetime
    row: Row
    value: Any
    state: str = "stored"
    due_at: datetime | None = None
    _codecs: Codecs = field(default_factory=Codecs, repr=False, compare=False)

    def __getstate__(self) -> tuple[object, ...]:
        # Codecs may be functions that cannot be pickled.
        return (
            self.id, self.topic, self.queue, self.offset, self.stored_at, self.born_at, self.row,
            self.value, self.state, self.due_at,
        )  # fmt: skip

    def __setstate__(self, state: tuple[object, ...]) -> None:
        for one, value in zip(fields(self), (*state, Codecs()), strict=True):
            object.__setattr__(self, one.name, value)

    def decode(self, kind: type[T]) -> T:
        """Return its body as a value of a type.

        Raises:
            DecodeError: The body cannot be decoded as that type.
        """
        if self.queue is None or self.offset is None:
            value: T = self._codecs.decode(self.body, self.content_type, kind)
            return value
        place = self.topic, self.queue, self.offset
        return self._codecs.decode_at(place, self.body, self.content_type, kind)

    @property
    def body(self) -> bytes:
        """Its body, as it was sent."""
        return self.row.body

    @property
    def key(self) -> str:
        """Its key."""
        return self.row.key

    @property
    def ordering_key(self) -> str:
        """Its ordering key; empty: none."""
        return self.row.ordering_key

    @property
    def tag(self) -> str:
        """Its tag; empty: none."""
        return self.row.tag

    @property
    def headers(self) -> Mapping[str, str]:
        """Its headers."""
        return self.row.headers

    @property
    def content_type(self) -> str:
        """Content type of its body; empty: not given."""
        return self.row.content_type

    @property
    def application_id(self) -> str:
        """The id that its sender gave it; empty: none."""
        return self.row.application_id

    @property
    def priority(self) -> int:
        """Its priority; 0: none."""
        return self.row.priority

    @property
    def expires_at(self) -> datetime | None:
        """When it expires, or expired; None: its sender stated none (its topic may have one)."""
        return of_us(self.row.expiry_us) if self.row.expiry_us else None


def found_message(found: control.FoundMessage, codecs: Codecs) -> FoundMessage:
    """Return a message that the broker found."""
    batch = Batch(found.batch)
    row = batch.row(found.row)
    try:
        value = codecs.decode(row.body, row.content_type)
    except Exception:  # noqa: BLE001 - a look-up returns the message, decodable or not
        value = row.body
    return FoundMessage(
        message_id(batch.producer_id, batch.first_sequence + found.row),
        found.topic,
        found.queue if found.queue >= 0 else None,
        found.offset if found.offset >= 0 else None,
        of_us(found.stored_us),
        of_us(batch.born_us),
        row,
        value,
        found.state,
        of_us(due_us) if (due_us := found.due_us or row.due_us) else None,
        codecs,
    )


class Lookup:
    """Requests messages from the broker. Not thread-safe: call it from the client's loop."""

    def __init__(self, session: Session, codecs: Codecs) -> None:
        self._session = session
        self._codecs = codecs

    async def get(
        self, topic: str | Topic, id_: str | None, queue: int | None, offset: int | None
    ) -> FoundMessage:
        """Return a message as ``Client.get``."""
        topic = name_of(topic)
        if queue is not None:
            whole("queue", queue)
        if id_ is not None:
            check_id("id", id_)
            if offset is not None:
                raise InvalidRequest("give either id= or offset=, not both")
            if queue is not None:
                raise InvalidRequest("queue= belongs to offset=; an id needs no queue")
            page = await self._named(topic, id_)
        elif offset is None:
            raise InvalidRequest("give id= or offset=")
        else:
            await self._session.ready()
            queue = await queue_meant(self._session, topic, queue)
            page = await self._find(control.Find(topic=topic, queue=queue, offset=offset))
        if not page.found:
            raise MessageNotFound(
                f"no message {offset if id_ is None else id_} is kept in {topic!r}"
            )
        return found_message(page.found[0], self._codecs)

    async def _named(self, topic: str, id_: str) -> control.FoundPage:
        """Return the message with an id of the broker, or else with an id of an application.

        An application's id may look like one of the broker.
        """
        if is_message_id(id_):
            with suppress(MessageNotFound):
                return await self._find(control.Find(topic=topic, id=id_))
        return await self._find(control.Find(topic=topic, application_id=id_))

    async def find(
        self,
        topic: str | Topic,
        key: str,
        since: datetime | None,
        until: datetime | None,
        limit: int,
    ) -> list[FoundMessage]:
        """Return messages as ``Client.find``."""
        topic = name_of(topic)
        check_positive("limit", limit)
        text("key", key)
        if not key:
            raise InvalidRequest("key is empty: give the key of the messages")
        since_us, until_us = span_us(since, until)
        found: list[FoundMessage] = []
        after = ""
        while len(found) < limit:
            page = await self._find(
                control.Find(
                    topic=topic,
                    key=key,
                    since_us=since_us,
                    until_us=until_us,
                    limit=min(limit - len(found), _PAGE),
                    after=after,
                )
            )
            found += [found_message(one, self._codecs) for one in page.found]
            after = page.next
            if not after:
                break
        return found

    async def _find(self, asked: control.Find) -> control.FoundPage:
        await self._session.ready()
        return await self._session.control(Command.FIND, asked, control.FoundPage)


def of_us(time_us: int) -> datetime:
    """Return a time of the broker as a datetime."""
    return _EPOCH + timedelta(microseconds=time_us)
