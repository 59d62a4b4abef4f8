"""Reading a topic without a group."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from ternmq.client.connection.backoff import Backoff
from ternmq.client.connection.session import BeganAnew, Session
from ternmq.client.consumer.chunk import chunks_of
from ternmq.client.consumer.delivery import Delivery
from ternmq.client.content.codecs import Codecs
from ternmq.client.content.validation import time_us, whole
from ternmq.model.errors import (
    CannotConnect,
    ConnectionLost,
    InvalidRequest,
    NotPrimary,
    UnknownQueue,
    UnknownTopic,
)
from ternmq.wire import bodies, control
from ternmq.wire.commands import Command

_ROWS: Final = 1000
_LAST_OFFSET: Final = 2**63 - 1
_WAIT: Final = 20.0
_LACKING_MS: Final = 2000
"""Longest wait for rows that another broker had, before the primary is asked."""
_UNTIL_THERE: Final = Backoff(0.1, 1.0)


@dataclass(slots=True, frozen=True)
class ReadRange:
    """The range to read: offsets, times, or the words ``earliest`` and ``latest``."""

    start: int | datetime | str
    stop: int | datetime | None
    follow: bool

    def __post_init__(self) -> None:
        if isinstance(self.start, str) and self.start not in {"earliest", "latest"}:
            raise InvalidRequest(
                "start is an offset, a datetime with a time zone, 'earliest' or 'latest', not "
                f"{self.start!r:.80}"
            )
        if self.start is None:
            raise InvalidRequest(
                "start is an offset, a datetime with a time zone, 'earliest' or 'latest', not None"
            )
        for name, place in (("start", self.start), ("stop", self.stop)):
            if place is None or (name == "start" and isinstance(place, str)):
                continue
            if isinstance(place, datetime):
                time_us(name, place)
            elif isinstance(place, bool) or not isinstance(place, int):
                ends = ", 'earliest' or 'latest'" if name == "start" else ""
                raise InvalidRequest(
                    f"{name} is an offset, a datetime with a time zone{ends}; not "
                    f"{type(place).__name__}"
                )
            elif not 0 <= whole(name, place) <= _LAST_OFFSET:
                raise InvalidRequest(f"{name} is an offset or a time, not {place}")


async def read(
    session: Session, codecs: Codecs, topic: str, queue: int | None, span: ReadRange
) -> AsyncIterator[Delivery]:
    """Yield the messages of a topic as ``Client.read``."""
    await session.ready()
    anew = session.anew
    infos = await _queues(session, topic)
    if not infos:
        raise UnknownTopic(f"there is no topic {topic!r}, or this app has no right on it")
    if queue is not None and not 0 <= queue < len(infos):
        there = "queue 0 only" if len(infos) == 1 else f"queues 0 to {len(infos) - 1}"
        raise UnknownQueue(f"topic {topic!r} has {there}, not {queue}")
    if queue is None and span.follow and len(infos) > 1:
        raise InvalidRequest(
            f"topic {topic!r} has {len(infos)} queues: name the one to follow, such as queue=0"
        )
    if span.follow:
        number = 0 if queue is None else queue
        reader = _Reader(session, codecs, topic, number, infos[number], span, anew)
        async for delivery in _followed(reader):
            yield delivery
        return
    for number in range(len(infos)) if queue is None else (queue,):
        reader = _Reader(session, codecs, topic, number, infos[number], span)
        async for delivery in reader.rows():
            yield delivery


async def _followed(reader: _Reader) -> AsyncIterator[Delivery]:
    """Yield the messages of a queue as they come, also after the broker lost its data."""
    session, topic, number = reader.session, reader.topic, reader.queue
    while True:
        try:
            async for delivery in reader.rows():
                yield delivery
            return
        except BeganAnew:
            # Everything stored there is new. Offsets restart at 0; topics exist after their use.
            anew = session.anew
            infos = await _until_there(session, topic, number)
            span = ReadRange("earliest", reader.span.stop, follow=True)
            reader = replace(reader, info=infos[number], span=span, anew=anew)


async def _until_there(session: Session, topic: str, number: int) -> list[control.QueueInfo]:
    """Wait for a queue of a topic; return the topic's queues."""
    pauses = _UNTIL_THERE.pauses()
    while True:
        try:
            infos = await _queues(session, topic)
        except (CannotConnect, ConnectionLost, NotPrimary):
            infos = []  # it is gone again; the session reconnects by itself
        if number < len(infos):
            return infos
        await asyncio.sleep(next(pauses))


async def _queues(session: Session, topic: str) -> list[control.QueueInfo]:
    """Return a topic's queues; none if it does not exist."""
    asked = control.TopicList(names=[topic])
    topics = (await session.control(Command.TOPIC_LIST, asked, control.Topics)).topics
    return topics[0].queues if topics else []


@dataclass(slots=True, frozen=True)
class _Reader:
    """Reads a queue. ``anew``: as in ``Session.ask``."""

    session: Session
    codecs: Codecs
    topic: str
    queue: int
    info: control.QueueInfo
    span: ReadRange
    anew: int | None = None

    async def rows(self) -> AsyncIterator[Delivery]:
        """Yield its messages.

        Raises:
            BeganAnew: The broker has lost its data since.
        """
        session, topic, queue, span, info = (
            self.session, self.topic, self.queue, self.span, self.info,
        )  # fmt: skip
        offset = await _place(session, topic, queue, info, span.start)
        if span.stop is not None:
            stop = await _place(session, topic, queue, info, span.stop)
        else:
            stop = 2**63 if span.follow else info.next
        lacks = False
        """The broker lacks a row that was there: another one, which was asked before, had it."""
        while offset < stop:
            await session.ready()
            wait_ms = int(_WAIT * 1000) if span.follow or span.stop is not None else 0
            if offset < info.next:
                wait_ms = _LACKING_MS if lacks else 0
            most = min(_ROWS, stop - offset)
            body = await session.ask(
                Command.READ,
                bodies.pack_read(bodies.Read(topic, queue, offset, most, 0, wait_ms)),
                session.options.timeout + wait_ms / 1000,
                anew=self.anew,
            )
            rows = bodies.unpack_rows(body)
            if rows.stop <= rows.start:
                there = offset < info.next and session.only_reads
                if there and (not lacks or await session.elsewhere()):
                    lacks = True
                    continue
                if not span.follow:
                    return
                continue
            lacks = False
            run = bodies.Run(rows.start, rows.stop - rows.start, 1, 1)
            for chunk in chunks_of(queue, rows.records, [run]):
                for index in range(chunk.count):
                    yield Delivery(topic, chunk, index, None, self.codecs)
            offset = rows.stop


async def _place(
    session: Session, topic: str, queue: int, info: control.QueueInfo, place: int | datetime | str
) -> int:
    """Return the offset of a place."""
    if isinstance(place, int):
        return place
    if isinstance(place, datetime):
        asked = control.OffsetAt(topic=topic, queue=queue, time_us=time_us("start or stop", place))
        return (await session.control(Command.OFFSET_AT, asked, control.OffsetFound)).offset
    return info.first if place == "earliest" else info.next
