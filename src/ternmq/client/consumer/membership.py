"""Memberships of groups of mode owned and exclusive: joins again, leaves, and says what is owned.

The broker keeps members in memory. So a client joins its groups again over each new connection,
before anything else is sent over it, and is told its queues then.
"""

from __future__ import annotations

import logging
import os
import re
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ternmq.client.connection.link import Link
from ternmq.client.connection.session import Member, Session
from ternmq.client.declaration.source import Source
from ternmq.model.errors import TernMQError
from ternmq.wire import control
from ternmq.wire.commands import Command
from ternmq.wire.session import Push

_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9._-]")
_LONGEST: Final = 64
log: Final = logging.getLogger("ternmq")


@dataclass(frozen=True, slots=True)
class AssignedQueues:
    """The queues of a group, of mode owned or exclusive, that this client owns now."""

    topic: str
    group: str
    queues: tuple[int, ...]
    """Numbers of all its queues, ascending; empty: none."""


OnAssigned = Callable[[AssignedQueues], None]


def member_name() -> str:
    """Return the name of this process as a member of groups.

    It is the environment variable ``TERNMQ_INSTANCE``, else the name of the machine.
    """
    name = os.environ.get("TERNMQ_INSTANCE") or socket.gethostname()
    return _NOT_IN_NAMES.sub("-", name)[:_LONGEST]


class _Known:
    """A group that this client is a member of."""

    __slots__ = ("source", "users")

    def __init__(self, source: Source) -> None:
        self.source = source
        self.users = 0
        """Consumers and loops over batches that run."""


class Memberships(Member):
    """The memberships of a client. Not thread-safe: call it from the client's loop.

    Args:
        session: The client's session.
        callbacks: What is called with the queues that are assigned; functions may be added.
    """

    def __init__(self, session: Session, callbacks: list[OnAssigned]) -> None:
        self._session = session
        self._callbacks = callbacks
        self._groups: dict[tuple[str, str], _Known] = {}

    def joined(self, source: Source) -> None:
        """Note that the session has joined a group whose queues belong to members."""
        place = source.topic, source.group
        known = self._groups.get(place)
        if known is None:
            self._groups[place] = _Known(source)
        else:
            known.source = source

    def forget(self, topic: str, group: str) -> None:
        """Note that the group has another mode now, or is gone."""
        self._groups.pop((topic, group), None)

    def used(self, topic: str, group: str) -> bool:
        """Return whether a consumer of the group runs."""
        known = self._groups.get((topic, group))
        return known is not None and known.users > 0

    def begin(self, source: Source) -> None:
        """Note that a consumer of the group begins."""
        known = self._groups.get((source.topic, source.group))
        if known is not None:
            known.users += 1

    def end(self, source: Source) -> bool:
        """Note that a consumer has stopped to pull; leave the group if it was the last one.

        Returns:
            Whether the group was left.
        """
        known = self._groups.get((source.topic, source.group))
        if known is None:
            return False
        known.users -= 1
        if known.users > 0:
            return False
        self.forget(source.topic, source.group)
        link = self._session.link
        if link is not None and link.usable and not self._session.closed:
            asked = control.GroupLeave(topic=source.topic, group=source.group)
            link.ask(Command.GROUP_LEAVE, control.encode(asked), _Unawaited(source))
        return True

    def opened(self, link: Link, *, resumed: bool) -> None:
        """Join all groups again."""
        del resumed  # the broker may have been restarted
        for known in self._groups.values():
            source = known.source
            asked = source.join(member_name())
            link.ask(Command.GROUP_JOIN, control.encode(asked), _Unawaited(source))

    def pushed(self, push: Push) -> None:
        """Report the queues that were assigned."""
        if push.command is not Command.QUEUES_ASSIGNED:
            return
        told = control.decode_answer(push.body, control.QueuesAssigned)
        log.info(
            "group %s on topic %s: this client owns %s", told.group, told.topic,
            f"queues {', '.join(map(str, told.queues))}" if told.queues else "no queue",
        )  # fmt: skip
        assigned = AssignedQueues(told.topic, told.group, tuple(told.queues))
        for callback in self._callbacks:
            try:
                callback(assigned)
            except Exception:  # of the application: the client goes on
                log.exception("a function that on_assigned was given failed")


class _Unawaited:
    """A GROUP_JOIN or GROUP_LEAVE that nobody waits for, as ``link.Asker``.

    If it is refused, the next pull is refused with NotOwner or the reason.
    """

    __slots__ = ("_source",)

    def __init__(self, source: Source) -> None:
        self._source = source

    def answered(self, body: bytes) -> None:
        """Do nothing: a push says which queues are owned."""

    def refused(self, error: TernMQError) -> None:
        """Log the refusal."""
        source = self._source
        log.debug("membership of group %s on %s: %s", source.group, source.topic, error)

    def lost(self) -> None:
        """Do nothing: the next connection joins again; a session without one leaves in the end."""
