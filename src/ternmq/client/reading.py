"""Reading a topic without a group."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from ternmq.client.chunk import chunks_of
from ternmq.client.codecs import Codecs
from ternmq.client.delivery import Delivery
from ternmq.client.lookup import to_us
from ternmq.client.session import Session
from ternmq.model.errors import InvalidRequest, UnknownTopic
from ternmq.wire import bodies, control
from ternmq.wire.commands import Command

_ROWS: Final = 1000
_WAIT: Final = 20.0


@dataclass(slots=True, frozen=True)
class Span:
    """From where to where: offsets, times, or the words ``earliest`` and ``latest``."""

    start: int | datetime | str
    stop: int | datetime | None
    follow: bool

    def __post_init__(self) -> None:
        if isinstance(self.start, str) and self.start not in {"earliest", "latest"}:
            raise InvalidRequest(
                f"start is an offset, a time, earliest or latest, not {self.start!r}"
            )
        for place in (self.start, self.stop):
            if isinstance(place, int) and place < 0:
                raise InvalidRequest(f"{place} is no offset")
            if isinstance(place, datetime):
                to_us(place)


async def read(
    session: Session, codecs: Codecs, topic: str, queue: int | None, span: Span
) -> AsyncIterator[Delivery]:
    """Yield the messages of a topic; see ``Client.read``."""
    asked = control.TopicList(names=[topic])
    topics = (await session.control(Command.TOPIC_LIST, asked, control.Topics)).topics
    if not topics:
        raise UnknownTopic(f"there is no topic {topic!r}, or this app has no right on it")
    infos = topics[0].queues
    if queue is None and span.follow and len(infos) > 1:
        raise InvalidRequest(f"topic {topic!r} has {len(infos)} queues: state which to follow")
    for number in range(len(infos)) if queue is None else (queue,):
        info = infos[number] if 0 <= number < len(infos) else control.QueueInfo(first=0, next=0)
        async for delivery in _read_queue(session, codecs, topic, number, info, span):
            yield delivery


async def _read_queue(
    session: Session,
    codecs: Codecs,
    topic: str,
    queue: int,
    info: control.QueueInfo,
    span: Span,
) -> AsyncIterator[Delivery]:
    offset = await _place(session, topic, queue, info, span.start)
    if span.stop is not None:
        stop = await _place(session, topic, queue, info, span.stop)
    else:
        stop = 2**63 if span.follow else info.next
    while offset < stop:
        wait_ms = int(_WAIT * 1000) if span.follow or span.stop is not None else 0
        if offset < info.next:
            wait_ms = 0
        most = min(_ROWS, stop - offset)
        body = await session.ask(
            Command.READ,
            bodies.pack_read(bodies.Read(topic, queue, offset, most, 0, wait_ms)),
            session.options.timeout + wait_ms / 1000,
        )
        rows = bodies.unpack_rows(body)
        if rows.stop <= rows.start:
            if not span.follow:
                return
            continue
        run = bodies.Run(rows.start, rows.stop - rows.start, 1, 1)
        for chunk in chunks_of(queue, rows.records, [run]):
            for index in range(chunk.count):
                yield Delivery(topic, chunk, index, None, codecs)
        offset = rows.stop


async def _place(
    session: Session, topic: str, queue: int, info: control.QueueInfo, place: int | datetime | str
) -> int:
    """Return the offset that a place means."""
    if isinstance(place, int):
        return place
    if isinstance(place, datetime):
        asked = control.OffsetAt(topic=topic, queue=queue, time_us=to_us(place))
        return (await session.control(Command.OFFSET_AT, asked, control.OffsetFound)).offset
    return info.first if place == "earliest" else info.next
