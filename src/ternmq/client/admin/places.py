"""Selection of messages of a topic: offsets of one queue, or messages that were listed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol, TypeVar, runtime_checkable

from ternmq.client.connection.session import Session
from ternmq.client.content.validation import whole
from ternmq.model.errors import InvalidRequest
from ternmq.wire import control
from ternmq.wire.commands import Command


class OfTopic(Protocol):
    """A message that knows its topic."""

    @property
    def topic(self) -> str:
        """Its topic."""


@runtime_checkable
class Placed(Protocol):
    """A message with its place."""

    @property
    def queue(self) -> int:
        """Number of its queue."""

    @property
    def offset(self) -> int:
        """Its offset there."""

    @property
    def message(self) -> OfTopic | None:
        """Its content, if it is still kept."""


MOST_NAMED: Final = 1_000_000
"""Most messages that one call names: more would keep the client's loop busy for long."""
Named = TypeVar("Named", bound="int | Placed")


async def queue_count(session: Session, topic: str) -> int:
    """Return the number of queues of a topic; 1 if it does not exist: the broker will refuse it."""
    asked = control.TopicList(names=[topic])
    found = await session.control(Command.TOPIC_LIST, asked, control.Topics)
    return len(found.topics[0].queues) if found.topics else 1


async def queue_meant(session: Session, topic: str, queue: int | None) -> int:
    """Return the queue of an offset; None: the only one.

    Raises:
        InvalidRequest: None, and the topic has several: the message is ambiguous.
    """
    if queue is not None:
        return whole("queue", queue)
    count = await queue_count(session, topic)
    if count > 1:
        raise InvalidRequest(
            f"topic {topic!r} has {count} queues, and an offset belongs to one of them: name the "
            f"queue, such as queue=0"
        )
    return 0


async def by_queue(
    session: Session, topic: str, named: Iterable[Named], queue: int | None
) -> dict[int, dict[int, Named]]:
    """Return the named messages by queue and offset, both in ascending order.

    Args:
        session: The client's session.
        topic: The topic.
        named: Offsets, or messages of that topic that were listed.
        queue: Queue of the offsets; None: the only one. Messages have their own.

    Raises:
        InvalidRequest: It is neither; the queue is ambiguous, or a message is of another queue or
            topic; there are more than ``MOST_NAMED``.
    """
    given: object = named
    if not isinstance(given, Iterable) or isinstance(given, str | bytes):
        raise InvalidRequest(
            "offsets are whole numbers, such as [3, 5], or messages that were listed, not "
            f"{type(named).__name__}"
        )
    if queue is not None:
        whole("queue", queue)
    meant = queue
    found: dict[int, dict[int, Named]] = {}
    if isinstance(given, range) and given[MOST_NAMED:]:  # len() may be too small for it
        raise _too_many()
    for count, one in enumerate(named):
        if count >= MOST_NAMED:
            raise _too_many()
        # The test of a protocol takes microseconds.
        if not isinstance(one, int) and isinstance(one, Placed):
            at, offset = one.queue, one.offset
            _check(one, topic, queue)
        else:
            offset = whole("offsets", one)
            if meant is None:
                meant = await queue_meant(session, topic, None)
            at = meant
        found.setdefault(at, {})[offset] = one
    return {at: dict(sorted(found[at].items())) for at in sorted(found)}


def _too_many() -> InvalidRequest:
    return InvalidRequest(
        f"more than {MOST_NAMED:,} messages are named: call this for some at a time"
    )


def _check(one: Placed, topic: str, queue: int | None) -> None:
    if one.message is not None and one.message.topic != topic:
        raise InvalidRequest(
            f"message {one.queue}/{one.offset} is of topic {one.message.topic!r}, not {topic!r}"
        )
    if queue is not None and one.queue != queue:
        raise InvalidRequest(
            f"message {one.queue}/{one.offset} is of queue {one.queue}, not {queue}: leave out "
            f"queue=: a listed message contains its queue"
        )
