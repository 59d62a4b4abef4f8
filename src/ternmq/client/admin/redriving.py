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
from typing import Final

from ternmq.client.content.message import Message, Receipt
from ternmq.client.content.validation import MAX_ID_BYTES
from ternmq.model.errors import MessageNotFound
from ternmq.record.batch.batch import Batch
from ternmq.wire import control

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
        error: Why it could not be sent to the other topic; it stays a dead letter.
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


def redriven_id(topic: str, group: str, queue: int, offset: int, died_us: int) -> str:
    """Return the id of the message that a dead letter becomes in another topic."""
    text = f"dl:{topic}:{group}:{queue}:{offset}:{died_us}"
    return text if len(text) <= MAX_ID_BYTES else f"dl:{sha256(text.encode()).hexdigest()}"


async def redrive_to(
    target: str,
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

    Raises:
        TernMQError: None of them could be sent; all stay dead letters.
    """
    letters = [row for row in rows if row.dead]
    told = {offset: Redriven(queue, offset, done=False) for offset in offsets}
    kept = [row for row in letters if row.message is not None]
    for row in letters:
        if row.message is None:
            lost = MessageNotFound(f"the content of {topic}/{queue}/{row.offset} is not kept")
            told[row.offset] = Redriven(queue, row.offset, done=False, error=lost)
    if dry_run or not kept:
        return [*told.values()] if not dry_run else _dry(told, kept)
    outcomes = await send(target, [_message(topic, group, row) for row in kept])
    errors = [one for one in outcomes if isinstance(one, Exception)]
    if len(errors) == len(outcomes):
        raise errors[0]
    sent: list[control.FailedMessage] = []
    for row, outcome in zip(kept, outcomes, strict=True):
        if isinstance(outcome, Exception):
            told[row.offset] = Redriven(queue, row.offset, done=False, error=outcome)
        else:
            sent.append(row)
            told[row.offset] = Redriven(queue, row.offset, done=True, receipt=outcome)
    # Not one that was handed to its group meanwhile, and died again: that is another dead letter.
    died = [row.when_us for row in sent]
    same = control.FailedSelect(states=["dead"], since_us=min(died), until_us=max(died) + 1)
    for offset in await delete([row.offset for row in sent], same):
        told[offset] = replace(told[offset], gone=True)
    return [*told.values()]


def _dry(told: dict[int, Redriven], kept: Sequence[control.FailedMessage]) -> list[Redriven]:
    for row in kept:
        told[row.offset] = Redriven(row.queue, row.offset, done=True)
    return [*told.values()]


def _message(topic: str, group: str, row: control.FailedMessage) -> Message:
    assert row.message is not None
    content = Batch(row.message.batch).row(row.message.row)
    return Message(
        content.body,
        key=content.key,
        ordering_key=content.ordering_key,
        tag=content.tag,
        headers={**content.headers, HEADER: f"{topic}/{group}/{row.queue}/{row.offset}"},
        content_type=content.content_type,
        id=redriven_id(topic, group, row.queue, row.offset, row.when_us),
    )
