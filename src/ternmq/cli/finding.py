"""Whether something is there at all."""

from __future__ import annotations

import click

from ternmq.cli.connection import Administers
from ternmq.cli.problems import not_found
from ternmq.model.errors import UnknownGroup, UnknownTopic
from ternmq.wire.control import GroupInfo


async def group_of(client: Administers, topic: str, group: str) -> GroupInfo | None:
    """Return a group on a topic, None if it does not consume it.

    Raises:
        UnknownTopic: There is no such topic.
    """
    await client.admin.topic(topic)
    try:
        return await client.admin.group(topic, group)
    except UnknownGroup:
        return None


async def known(client: Administers, topic: str, group: str, queue: int | None) -> int:
    """See that a group consumes a topic that has such a queue; return how many queues it has."""
    info = await client.admin.group(topic, group)
    if queue is not None and queue >= len(info.queues):
        raise not_found(f"topic {topic!r} has no queue {queue}: it has {len(info.queues)}")
    return len(info.queues)


async def only_queue(client: Administers, topic: str) -> int:
    """Return the queue that an offset is of if none is named.

    Raises:
        click.UsageError: There are several.
    """
    try:
        count = len((await client.admin.topic(topic)).queues)
    except UnknownTopic:
        return 0  # an archive may have it still; else the next request says so
    check_only(topic, count)
    return 0


def check_only(topic: str, count: int) -> None:
    """See that an offset without a queue is clear: the topic has one.

    Raises:
        click.UsageError: There are several.
    """
    if count > 1:
        raise click.UsageError(
            f"{topic} has {count} queues: say which with --queue", click.get_current_context()
        )
