"""Checks whether topics, groups and queues exist."""

from __future__ import annotations

import click

from ternmq.cli.reach.connection import Administers
from ternmq.cli.terminal.problems import not_found
from ternmq.model.errors import UnknownGroup, UnknownTopic
from ternmq.wire.control import GroupInfo


async def group_of(client: Administers, topic: str, group: str) -> GroupInfo | None:
    """Return a group on a topic; None if it does not consume the topic.

    Raises:
        UnknownTopic: The topic does not exist.
    """
    await client.admin.topic(topic)
    try:
        return await client.admin.group(topic, group)
    except UnknownGroup:
        return None


async def known(client: Administers, topic: str, group: str, queue: int | None) -> int:
    """Check that a group consumes a topic, and that the queue exists; return the queue count."""
    return len((await known_group(client, topic, group, queue)).queues)


async def known_group(client: Administers, topic: str, group: str, queue: int | None) -> GroupInfo:
    """Return a group, after the checks of ``known``."""
    info = await client.admin.group(topic, group)
    if queue is not None and queue >= len(info.queues):
        raise not_found(f"topic {topic!r} has no queue {queue}: it has {len(info.queues)}")
    return info


async def only_queue(client: Administers, topic: str) -> int:
    """Return the queue of an offset without a queue: 0.

    Raises:
        click.UsageError: The topic has several queues.
    """
    try:
        count = len((await client.admin.topic(topic)).queues)
    except UnknownTopic:
        return 0  # the archive may still have it; otherwise the next request fails
    check_only(topic, count)
    return 0


def check_only(topic: str, count: int) -> None:
    """Check that an offset without a queue is clear: the topic has one queue.

    Raises:
        click.UsageError: It has several.
    """
    if count > 1:
        raise click.UsageError(
            f"{topic} has {count} queues: name one with --queue", click.get_current_context()
        )
