"""Replays: messages that a group receives again. Redrives are in `deadletters`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from ternmq.client.admin.places import queue_count, queue_meant
from ternmq.client.connection.session import Session
from ternmq.client.content.validation import check_id, flag, span_us, time_us, whole, wholes
from ternmq.client.declaration.topic import Topic, name_of
from ternmq.model.errors import InvalidRequest, ReplayTooLarge
from ternmq.model.specs import check_failing
from ternmq.model.words import counted
from ternmq.wire import control
from ternmq.wire.commands import Command

_SPANS: Final = 1000
_IDS: Final = 100
_EVER: Final = 2**63 - 1


@dataclass(slots=True, frozen=True)
class Replayed:
    """What a replay did, or would do (in a dry run).

    Attributes:
        again: Messages that are delivered again.
        unread: Messages that the group has not read yet: they are delivered as usual.
        expired: Offsets whose message is no longer kept.
        filtered: Messages that the group's filter excludes.
        missing: Ids for which no message is kept.
    """

    again: int = 0
    unread: int = 0
    expired: int = 0
    filtered: int = 0
    missing: tuple[str, ...] = ()


class Replay:
    """Requests replays from the broker. Not thread-safe: call it from the client's loop."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def replay(
        self,
        topic: str | Topic,
        group: str,
        *,
        offsets: range | Iterable[int] | None,
        since: datetime | None,
        until: datetime | None,
        ids: Iterable[str] | None,
        queue: int | None,
        dry_run: bool,
    ) -> Replayed:
        """Replay messages as ``Client.replay``."""
        topic = name_of(topic)
        check_failing(group)
        flag("dry_run", dry_run)
        if queue is not None:
            whole("queue", queue)
        timed = since is not None or until is not None
        count = sum([offsets is not None, timed, ids is not None])
        if count != 1:
            only = "only one" if count else "one"
            raise InvalidRequest(f"give {only} of offsets, ids, and a time (since, until or both)")
        found = Replayed()
        if ids is not None:
            if not isinstance(ids, Iterable):
                raise InvalidRequest(f"ids are a list of message ids, not {type(ids).__name__}")
            named = [
                check_id("an entry of ids", one) for one in ([ids] if isinstance(ids, str) else ids)
            ]
            for at in range(0, len(named), _IDS):
                asked = control.GroupReplay(
                    topic=topic, group=group, ids=named[at : at + _IDS], dry_run=dry_run
                )
                found = await self._ask(asked, found)
            return found
        if offsets is not None:
            named_spans = _spans(offsets)
            at = await queue_meant(self._session, topic, queue)
            spans = [
                control.ReplaySpan(queue=at, start=start, stop=stop) for start, stop in named_spans
            ]
        else:
            span_us(since, until)
            spans = await self._between(topic, queue, since, until)
        for at in range(0, len(spans), _SPANS):
            asked = control.GroupReplay(
                topic=topic, group=group, spans=spans[at : at + _SPANS], dry_run=dry_run
            )
            found = await self._ask(asked, found)
        return found

    async def _ask(self, asked: control.GroupReplay, found: Replayed) -> Replayed:
        """Send a request, and again for the part that the broker left for the next one."""
        while True:
            try:
                told = await self._session.control(
                    Command.GROUP_REPLAY, asked, control.GroupReplayed
                )
            except ReplayTooLarge as error:
                if not found.again:
                    raise
                begun = "would be" if asked.dry_run else "are"
                raise ReplayTooLarge(
                    f"{counted(found.again, 'message')} {begun} delivered again, then: "
                    f"{error.args[0]}"
                ) from error
            found = Replayed(
                found.again + sum([one.again for one in told.queues]),
                found.unread + sum([one.unread for one in told.queues]),
                found.expired + sum([one.expired for one in told.queues]),
                found.filtered + sum([one.filtered for one in told.queues]),
                (*found.missing, *told.missing),
            )
            if not told.rest:
                return found
            asked = control.GroupReplay(
                topic=asked.topic, group=asked.group, spans=told.rest, dry_run=asked.dry_run
            )

    async def _between(
        self, topic: str, queue: int | None, since: datetime | None, until: datetime | None
    ) -> list[control.ReplaySpan]:
        """Return the messages stored between two times, as offsets of the queues."""
        queues = range(await queue_count(self._session, topic)) if queue is None else [queue]
        spans: list[control.ReplaySpan] = []
        for number in queues:
            start = 0 if since is None else await self._offset_at(topic, number, "since", since)
            stop = _EVER if until is None else await self._offset_at(topic, number, "until", until)
            if start < stop:
                spans.append(control.ReplaySpan(queue=number, start=start, stop=stop))
        return spans

    async def _offset_at(self, topic: str, queue: int, what: str, when: datetime) -> int:
        asked = control.OffsetAt(topic=topic, queue=queue, time_us=time_us(what, when))
        found = await self._session.control(Command.OFFSET_AT, asked, control.OffsetFound)
        return found.offset


def _spans(offsets: range | Iterable[int]) -> Sequence[tuple[int, int]]:
    """Return offsets as spans, sorted.

    Raises:
        InvalidRequest: One is negative, too large for an offset, or not a number.
    """
    if isinstance(offsets, range) and offsets.step == 1:
        if not offsets:
            return []
        _check(offsets[0])
        _check(offsets[-1])
        return [(offsets.start, offsets.stop)]
    spans: list[tuple[int, int]] = []
    named = wholes("offsets", offsets)
    for offset in named:
        _check(offset)
    for offset in sorted(set(named)):
        if spans and spans[-1][1] == offset:
            spans[-1] = (spans[-1][0], offset + 1)
        else:
            spans.append((offset, offset + 1))
    return spans


def _check(offset: int) -> None:
    if not 0 <= whole("offsets", offset) < _EVER:
        raise InvalidRequest(f"offsets are whole numbers from 0 to 2**63 - 2, not {offset}")
