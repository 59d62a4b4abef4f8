"""Whether something is there at all."""

from __future__ import annotations

from ternmq.client.client import Client
from ternmq.model.errors import UnknownGroup
from ternmq.wire.control import GroupInfo


async def group_of(client: Client, topic: str, group: str) -> GroupInfo | None:
    """Return a group on a topic, None if it does not consume it.

    Raises:
        UnknownTopic: There is no such topic.
    """
    await client.admin.topic(topic)
    try:
        return await client.admin.group(topic, group)
    except UnknownGroup:
        return None
