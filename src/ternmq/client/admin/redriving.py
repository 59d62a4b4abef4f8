"""Redrives dead letters to another topic: sends each there as a new message, then deletes it.

A new message has an id of its own that is made of the dead letter. If the program dies between the
send and the delete, the redrive is repeated, and the broker answers with the receipt of the first
message, as long as its deduplication remembers the id. The id contains the time of death: if the
dead letter is handed to its group instead, and dies again, it is another dead letter.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Final, cast

from ternmq.client.connection.session import Session
from ternmq.client.content.message import Message, Receipt
from ternmq.client.content.validation import MAX_ID_BYTES, Properties, check_message
from ternmq.model.errors import (
    InvalidRequest,
    MessageNotFound,
    OrderingKeyRequired,
    TopicNotOrdered,
    UnknownTopic,
)
from ternmq.model.specs import TopicSpec
from ternmq.record.batch.batch import Batch
from ternmq.record.batch.row import Row
from ternmq.wire import control
from ternmq.wire.commands import Command

HEADER: Final = "ternmq-redriven"
"""The header of a message that was a dead letter: topic/group/queue/offset of it."""

Send = Callable[[str, Sequence[Message]], Awaitable[Sequence[Receipt | Exception]]]
"""Sends messages to a topic; returns a receipt or an error for each."""
Delete = Callable[[Sequence[int], control.FailedSelect], Awaitable[Iterable[int]]]
"""Deletes those of some dead letters that match; returns the others."""


@dataclass(slots=True, frozen=True)
class Redriven:
    """The outcome of a redrive for one message.

    Attributes:
        queue: Number of its queue.
        offset: Its offset there.
        done: Whether it is delivered again or stored in the other topic (in a dry run: would be).
            False: it is not a dead letter, or see ``error``.
        receipt: Of the message in the other topic; its ``duplicate`` is true if an earlier redrive
            had sent it. None: it is redriven to its group, nothing was done, or it is a dry run.
        error: Why it could not be sent to the other topic (in a dry run: cannot be, as far as the
            settings of the topic show); it stays a dead letter.
        gone: It is stored in the other topic, but was not deleted: by then, it was not this dead
            letter any more. Somebody else redrove it to its group, which receives it, too, or
            deleted it.
    """

    queue: int
    offset: int
    done: bool
    receipt: Receipt | None = None
    error: Exception | None = None
    gone: bool = False


@dataclass(slots=True, frozen=True)
class Target:
    """A topic to which dead letters go.

    Attributes:
        name: Its name.
        spec: Its settings; None: the app does not see it, or the first message will make it.
    """

    name: str
    spec: TopicSpec | None

    def refusal(self, row: control.FailedMessage) -> Exception | None:
        """Return why it does not take a dead letter; None: its settings do not speak against it.

        A redriven message has no priority, and level 0 is there in every topic.
        """
        if self.spec is None or self.spec.ignore_ordering_keys:
            return None
        keyed = bool(_content(row).ordering_key)
        if keyed == self.spec.ordered:
            return None
        if keyed:
            return self.hinted(TopicNotOrdered(f"topic {self.name!r} is not ordered"))
        return self.hinted(OrderingKeyRequired(f"topic {self.name!r} is ordered"))

    def hinted(self, error: Exception) -> Exception:
        """Return an error of a send with the hint for who redrives: the messages are given."""
        if isinstance(error, TopicNotOrdered):
            error.hint = (
                "the dead letter has an ordering key: `ternmq topic set "
                f"{self.name} --ignore-ordering-keys` makes the topic accept and ignore it, or "
                "redrive to an ordered topic"
            )
        elif isinstance(error, OrderingKeyRequired):
            error.hint = (
                "the dead letter has no ordering key: redrive to a topic that is not ordered"
            )
        return error


async def find_target(session: Session, name: str) -> Target:
    """Return a topic to which dead letters go. It is not made, even if it is declared.

    Raises:
        UnknownTopic: It does not exist, and sends to it do not make it.
    """
    asked = control.TopicList(names=[name])
    found = await session.control(Command.TOPIC_LIST, asked, control.Topics)
    for info in found.topics:
        return Target(name, info.spec)
    if session.welcome is not None and session.welcome.create_topics:
        return Target(name, None)
    raise UnknownTopic(f"there is no topic {name!r}, or this app has no right on it")


def redriven_id(topic: str, group: str, queue: int, offset: int, died_us: int) -> str:
    """Return the id of the message that a dead letter becomes in another topic."""
    text = f"dl:{topic}:{group}:{queue}:{offset}:{died_us}"
    return text if len(text) <= MAX_ID_BYTES else f"dl:{sha256(text.encode()).hexdigest()}"


async def redrive_to(
    target: Target,
    topic: str,
    group: str,
    queue: int,
    offsets: Sequence[int],
    rows: Sequence[control.FailedMessage],
    *,
    send: Send,
    delete: Delete,
    dry_run: bool,
) -> list[Redriven]:
    """Redrive dead letters of one queue to another topic.

    Args:
        target: The other topic.
        topic: Their topic.
        group: Their group.
        queue: Their queue.
        offsets: Offsets that were asked for.
        rows: What the broker knows of them.
        send: Sends messages.
        delete: Deletes dead letters.
        dry_run: Only return what would happen.
    """
    letters = [row for row in rows if row.dead]
    told = {offset: Redriven(queue, offset, done=False) for offset in offsets}
    kept = [row for row in letters if row.message is not None]
    for row in letters:
        if row.message is None:
            lost = MessageNotFound(f"the content of {topic}/{queue}/{row.offset} is not kept")
            told[row.offset] = Redriven(queue, row.offset, done=False, error=lost)
    if dry_run:
        for row in kept:
            error = target.refusal(row) or _unfit(_content(row), _message(topic, group, row))
            told[row.offset] = Redriven(queue, row.offset, done=error is None, error=error)
        return [*told.values()]
    messages = [_message(topic, group, row) for row in kept]
    outcomes = await send(target.name, messages) if kept else ()
    sent: list[control.FailedMessage] = []
    for row, outcome in zip(kept, outcomes, strict=True):
        if isinstance(outcome, Exception):
            error = target.hinted(outcome)
            told[row.offset] = Redriven(queue, row.offset, done=False, error=error)
        else:
            sent.append(row)
            told[row.offset] = Redriven(queue, row.offset, done=True, receipt=outcome)
    if not sent:
        return [*told.values()]
    # Not one that was handed to its group meanwhile, and died again: that is another dead letter.
    died = [row.when_us for row in sent]
    same = control.FailedSelect(states=["dead"], since_us=min(died), until_us=max(died) + 1)
    for offset in await delete([row.offset for row in sent], same):
        told[offset] = replace(told[offset], gone=True)
    return [*told.values()]


def _content(row: control.FailedMessage) -> Row:
    assert row.message is not None
    return Batch(row.message.batch).row(row.message.row)


def _unfit(content: Row, message: Message) -> Exception | None:
    """Return why a message cannot be sent: with the header of a redrive, it may be too large."""
    properties = replace(content, headers=message.headers or {}, application_id=message.id or "")
    try:
        check_message(cast("Properties", properties))  # which only reads them
    except InvalidRequest as error:
        return error
    return None


def _message(topic: str, group: str, row: control.FailedMessage) -> Message:
    content = _content(row)
    return Message(
        content.body,
        key=content.key,
        ordering_key=content.ordering_key,
        tag=content.tag,
        headers={**content.headers, HEADER: f"{topic}/{group}/{row.queue}/{row.offset}"},
        content_type=content.content_type,
        id=redriven_id(topic, group, row.queue, row.offset, row.when_us),
    )
