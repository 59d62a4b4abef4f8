"""Makes a topic when a batch for it comes, if the broker makes topics at their first use."""

from __future__ import annotations

from ternmq.model.specs import check_name
from ternmq.server.desk.desk import Desk
from ternmq.wire.commands import Command
from ternmq.wire.port import Caller


def may_make_topic(desk: Desk, topic: str) -> bool:
    """Return whether a topic does not exist, and the broker makes topics at their first use."""
    return desk.settings.create_topics and topic not in desk.core.broker.views.catalog.by_name


def make_topic(
    desk: Desk, caller: Caller, now_us: int, command: Command, topic: str, batch: bytes
) -> bool:
    """Make a topic of the settings' kind that fits a batch; False: it exists, or may not be made.

    Args:
        desk: State shared by all callers.
        caller: Who sends the batch.
        now_us: Now, in broker time.
        command: With which the batch came; for the audit log.
        topic: Name of the topic.
        batch: The batch; if it has ordering keys, the topic is ordered.

    Raises:
        InvalidName: The name is not one of a topic.
        InvalidRequest: The broker has as many topics as it may have.
        DiskFull, Busy: The topic cannot be made now.
    """
    if not may_make_topic(desk, topic):
        return False
    broker = desk.core.broker
    spec = broker.sending.made_by(desk.settings.topic_spec(check_name(topic)), batch)
    broker.administration.create_topic(now_us, spec)
    desk.audit.changed(caller.app, caller.address, command, topic)
    return True
