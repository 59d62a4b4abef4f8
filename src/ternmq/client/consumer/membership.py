"""Memberships of groups of mode owned and exclusive: joins again, leaves, and says what is owned.

The broker keeps members in memory. So a client joins its groups again over each new connection,
before anything else is sent over it, and is told its queues then.
"""

from __future__ import annotations

import logging
import re
import socket
from collections import Counter
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


def member_name(instance: str) -> str:
    """Return the name of a client as a member: its instance, else the name of the machine."""
    return _NOT_IN_NAMES.sub("-", instance or socket.gethostname())[:_LONGEST]


class Memberships(Member):
    """The memberships of a client. Not thread-safe: call it from the client's loop.

    Args:
        session: The client's session.
        callbacks: What is called with the queues that are assigned; functions may be added.

    Attributes:
        name: The client's name as a member.
    """

    def __init__(self, session: Session, callbacks: list[OnAssigned]) -> None:
        self.name = member_name(session.options.instance)
        self._session = session
        self._callbacks = callbacks
        self._groups: dict[tuple[str, str], Source] = {}
        """The groups that this client is a member of."""
        self._users: Counter[tuple[str, str]] = Counter()
        """Consumers and loops over batches that run, of groups of all modes: a mode may change."""

    def joined(self, source: Source) -> None:
        """Note that the session has joined a group whose queues belong to members."""
        self._groups[source.topic, source.group] = source

    def forget(self, topic: str, group: str) -> None:
        """Note that the group has another mode now, or is gone."""
        self._groups.pop((topic, group), None)

    def used(self, topic: str, group: str) -> bool:
        """Return whether the client is a member of the group, and a consumer of it runs."""
        return (topic, group) in self._groups and self._users[topic, group] > 0

    def begin(self, source: Source) -> None:
        """Note that a consumer of the group begins."""
        if not source.broadcast:
            self._users[source.topic, source.group] += 1

    def end(self, source: Source) -> bool:
        """Note that a consumer has stopped to pull; leave the group if it was the last one.

        Returns:
            Whether the group was left.
        """
        place = source.topic, source.group
        self._users[place] -= 1
        if self._users[place] > 0:
            return False
        del self._users[place]
        if place not in self._groups:
            return False
        self.forget(*place)
        link = self._session.link
        if link is not None and link.usable and not self._session.closed:
            asked = control.GroupLeave(topic=source.topic, group=source.group)
            link.ask(Command.GROUP_LEAVE, control.encode(asked), _Unawaited(source))
        return True

    def opened(self, link: Link, *, resumed: bool) -> None:
        """Join all groups again."""
        del resumed  # the broker may have been restarted
        for source in self._groups.values():
            asked = source.join(self.name)
            link.ask(Command.GROUP_JOIN, control.encode(asked), _Unawaited(source))

    def pushed(self, push: Push) -> None:
        """Report the queues that were assigned; forget a group without members."""
        if push.command is Command.GROUP_CHANGED:
            changed = control.decode_answer(push.body, control.GroupChanged)
            if changed.gone or (changed.mode is not None and not changed.mode.assigns_queues):
                self.forget(changed.topic, changed.group)
            return
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
