"""The retry policies and modes of the groups that a client consumes for, kept up to date.

The log text of a failure (which attempt of how many, whether the message is a dead letter now)
needs the policy. A policy that may have changed, because the broker reported a change or the
connection was replaced, is dropped and requested again at once.

The mode says which messages wait for one another. The broker reports a change of it before it
answers pulls in the new mode; after a replaced connection, it answers the request for the group
before pulls that come later.
"""

from __future__ import annotations

import logging
from typing import Final

from ternmq.client.connection.link import Link
from ternmq.client.connection.session import Member, Session
from ternmq.model.errors import TernMQError
from ternmq.model.specs import Mode, RetryPolicy, SubscriptionSpec
from ternmq.wire import control
from ternmq.wire.commands import Command
from ternmq.wire.session import Push

log: Final = logging.getLogger("ternmq")

_PAUSE: Final = 1.0
_MOST: Final = 1000
"""Most groups whose policies are kept: those that were joined last."""

Group = tuple[str, str]
"""Topic and group."""


class Policies(Member):
    """Retry policies of joined groups. Not thread-safe: call it from the client's loop."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._known: dict[Group, RetryPolicy] = {}
        self._modes: dict[Group, Mode] = {}
        self._asked: dict[Group, _Ask | None] = {}
        """Joined groups, the latest last, each with the request that is under way."""

    def of(self, topic: str, group: str) -> RetryPolicy | None:
        """Return a group's policy; None: not known."""
        return self._known.get((topic, group))

    def mode(self, topic: str, group: str) -> Mode | None:
        """Return a group's mode; None: the group was not joined."""
        return self._modes.get((topic, group))

    def joined(self, topic: str, group: str, spec: SubscriptionSpec) -> None:
        """Store a policy and a mode from the answer to a join."""
        self._asked.pop((topic, group), None)
        self._asked[topic, group] = None
        self._known[topic, group] = spec.policy
        self._modes[topic, group] = spec.mode
        if len(self._asked) > _MOST:
            oldest = next(iter(self._asked))
            del self._asked[oldest]
            self._known.pop(oldest, None)
            self._modes.pop(oldest, None)

    def opened(self, link: Link, *, resumed: bool) -> None:
        """Request all policies over a new connection."""
        del resumed
        self._known.clear()  # a change meanwhile was not reported to this client
        for group in self._asked:
            self._ask(group, link)

    def pushed(self, push: Push) -> None:
        """Request the policy of a group that was changed."""
        if push.command is not Command.GROUP_CHANGED:
            return
        changed = control.decode_answer(push.body, control.GroupChanged)
        group = changed.topic, changed.group
        self._known.pop(group, None)
        if changed.mode is not None and group in self._modes:
            self._modes[group] = changed.mode
        if changed.gone:
            self._asked.pop(group, None)
            self._modes.pop(group, None)
        elif group in self._asked and self._session.link is not None:
            self._ask(group, self._session.link)

    def _ask(self, group: Group, link: Link) -> None:
        ask = self._asked[group] = _Ask(self, group)
        topic, name = group
        asked = control.GroupList(topic=topic, group=name, limit=1)
        link.ask(Command.GROUP_LIST, control.encode(asked), ask)

    def told(self, ask: _Ask, answer: control.Groups) -> None:
        """Store the answer to a request; only the latest request for a group counts."""
        if self._asked.get(ask.group) is not ask:
            return
        self._asked[ask.group] = None
        for info in answer.groups:
            self._known[info.topic, info.group] = info.spec.policy
            self._modes[info.topic, info.group] = info.spec.mode

    def failed(self, ask: _Ask, error: TernMQError) -> None:
        """Handle a refused request: send it again if the refusal is temporary."""
        log.debug("the retry policy of group %s on %s is not known: %s", ask.group[1],
                  ask.group[0], error)  # fmt: skip
        if error.retriable:
            self._session.loop.call_later(_PAUSE, self._again, ask)

    def _again(self, ask: _Ask) -> None:
        link = self._session.link
        if self._asked.get(ask.group) is ask and link is not None:
            self._ask(ask.group, link)


class _Ask:
    """A GROUP_LIST for one group, as ``link.Asker``."""

    __slots__ = ("_policies", "group")

    def __init__(self, policies: Policies, group: Group) -> None:
        self._policies = policies
        self.group = group

    def answered(self, body: bytes) -> None:
        """Pass the answer on."""
        self._policies.told(self, control.decode_answer(body, control.Groups))

    def refused(self, error: TernMQError) -> None:
        """Pass the refusal on."""
        self._policies.failed(self, error)

    def lost(self) -> None:
        """Do nothing: the next connection requests all of them."""
