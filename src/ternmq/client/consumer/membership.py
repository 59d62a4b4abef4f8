"""Memberships of groups of mode owned and exclusive: joins again, leaves, and says what is owned.

The broker keeps members in memory. So a client joins its groups again over each new connection,
before anything else is sent over it, and is told its queues then. It states no settings, and makes
no group: one that was deleted or has another mode meanwhile stays as it is. It also repeats a leave
that the broker has not confirmed, since a session that is resumed is still a member.
"""

from __future__ import annotations

import asyncio
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


def rejoin(topic: str, group: str, name: str) -> control.GroupJoin:
    """Return the request by which a client becomes a member again, whatever the settings are."""
    return control.GroupJoin(topic=topic, group=group, name=name, existing=True)


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
        self._groups: dict[tuple[str, str], None] = {}
        """The groups that this client is a member of, by topic and name."""
        self._leaving: dict[tuple[str, str], asyncio.Future[None]] = {}
        """The groups that it has left, until the broker confirms it, which ends the future."""
        self._users: Counter[tuple[str, str]] = Counter()
        """Consumers and loops over batches that run, of groups of all modes: a mode may change."""

    def joined(self, source: Source) -> None:
        """Note that the session has joined a group whose queues belong to members."""
        place = source.topic, source.group
        self._groups[place] = None
        self.left(*place)

    def forget(self, topic: str, group: str) -> None:
        """Note that the group has another mode now, or is gone."""
        self._groups.pop((topic, group), None)

    def used(self, topic: str, group: str) -> bool:
        """Return whether the client is a member of the group, and a consumer of it runs."""
        return (topic, group) in self._groups and self._users[topic, group] > 0

    def begin(self, source: Source) -> None:
        """Note that a consumer of the group begins."""
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
        self.leave(*place)
        link = self._session.link
        if link is not None and link.usable and not self._session.closed:
            self._ask_leave(link, place)
        return True

    def leave(self, topic: str, group: str) -> None:
        """Note that the client leaves a group; the broker has not confirmed it."""
        self.forget(topic, group)
        if (topic, group) not in self._leaving:
            self._leaving[topic, group] = self._session.loop.create_future()

    def left(self, topic: str, group: str) -> None:
        """Note that the broker has confirmed it, or that the client is a member again."""
        confirmed = self._leaving.pop((topic, group), None)
        if confirmed is not None and not confirmed.done():
            confirmed.set_result(None)

    async def confirmed(self, source: Source) -> None:
        """Wait until the broker has confirmed that the group was left, if it was."""
        confirmed = self._leaving.get((source.topic, source.group))
        if confirmed is not None:
            await asyncio.shield(confirmed)

    def opened(self, link: Link, *, resumed: bool) -> None:
        """Join all groups again; leave those again that were left without an answer."""
        if not resumed:
            for place in list(self._leaving):
                self.left(*place)  # a new session is no member
        for topic, group in self._groups:  # also if resumed: the broker may have been restarted
            asked = rejoin(topic, group, self.name)
            link.ask(
                Command.GROUP_JOIN, control.encode(asked), _Unawaited(topic, group, self.forget)
            )
        for place in self._leaving:
            self._ask_leave(link, place)

    def _ask_leave(self, link: Link, place: tuple[str, str]) -> None:
        asked = control.GroupLeave(topic=place[0], group=place[1])
        link.ask(
            Command.GROUP_LEAVE, control.encode(asked), _Unawaited(*place, self.left, self.left)
        )

    def pushed(self, push: Push) -> None:
        """Report the queues that were assigned; forget a group without members."""
        if push.command is Command.GROUP_CHANGED:
            changed = control.decode_answer(push.body, control.GroupChanged)
            if changed.gone or (changed.mode is not None and not changed.mode.assigns_queues):
                self.forget(changed.topic, changed.group)
            return
        if push.command is Command.TOPIC_CHANGED:
            topic = control.decode_answer(push.body, control.TopicChanged)
            for place in [one for one in self._groups if topic.gone and one[0] == topic.topic]:
                self.forget(*place)
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

    If a join is refused, the next pull is refused with NotOwner or the reason.

    Args:
        topic: The topic.
        group: The group.
        refused: Called with both if the request is refused.
        answered: Called with both if it is answered.
    """

    __slots__ = ("_answered", "_place", "_refused")

    def __init__(
        self,
        topic: str,
        group: str,
        refused: Callable[[str, str], None],
        answered: Callable[[str, str], None] | None = None,
    ) -> None:
        self._place = topic, group
        self._refused = refused
        self._answered = answered

    def answered(self, body: bytes) -> None:
        """Note it. A push says which queues are owned."""
        if self._answered is not None:
            self._answered(*self._place)

    def refused(self, error: TernMQError) -> None:
        """Note the refusal; of a broker that serves no more, do nothing, as if it was lost."""
        topic, group = self._place
        if error.refresh_routes:
            return
        log.debug("membership of group %s on %s: %s", group, topic, error)
        self._refused(topic, group)

    def lost(self) -> None:
        """Do nothing: the request is repeated over the next connection."""
