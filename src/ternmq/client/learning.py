"""The retry policies of the groups that a client consumes for, kept up to date.

What the log says of a failure (which attempt of how many, whether the message is a dead letter
now) needs the policy. A policy that may have changed, since the broker said so or the connection
was another for a while, is not known any more, and is asked for at once.
"""

from __future__ import annotations

import logging
from typing import Final

from ternmq.client.link import Link
from ternmq.client.session import Member, Session
from ternmq.model.errors import TernMQError
from ternmq.model.specs import RetryPolicy
from ternmq.wire import control
from ternmq.wire.commands import Command
from ternmq.wire.session import Push

log: Final = logging.getLogger("ternmq")

_PAUSE: Final = 1.0
_MOST: Final = 1000
"""Of so many groups the policies are kept, those that were joined last."""

Group = tuple[str, str]
"""Topic and group."""


class Policies(Member):
    """Retry policies by topic and group, of those that were joined. Loop only."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._known: dict[Group, RetryPolicy] = {}
        self._asked: dict[Group, _Ask | None] = {}
        """Groups that were joined, the latest last, with the question that is under way."""

    def of(self, topic: str, group: str) -> RetryPolicy | None:
        """Return a group's policy; None: it is not known."""
        return self._known.get((topic, group))

    def joined(self, topic: str, group: str, policy: RetryPolicy) -> None:
        """The broker said a policy as it is."""
        self._asked.pop((topic, group), None)
        self._asked[topic, group] = None
        self._known[topic, group] = policy
        if len(self._asked) > _MOST:
            oldest = next(iter(self._asked))
            del self._asked[oldest]
            self._known.pop(oldest, None)

    def opened(self, link: Link, *, resumed: bool) -> None:
        """See ``session.Member``."""
        del resumed
        self._known.clear()  # whoever changed one meanwhile has not told us
        for group in self._asked:
            self._ask(group, link)

    def pushed(self, push: Push) -> None:
        """See ``session.Member``."""
        if push.command is not Command.GROUP_CHANGED:
            return
        changed = control.decode_answer(push.body, control.GroupChanged)
        group = changed.topic, changed.group
        self._known.pop(group, None)
        if changed.gone:
            self._asked.pop(group, None)
        elif group in self._asked and self._session.link is not None:
            self._ask(group, self._session.link)

    def _ask(self, group: Group, link: Link) -> None:
        ask = self._asked[group] = _Ask(self, group)
        topic, name = group
        asked = control.GroupList(topic=topic, group=name, limit=1)
        link.ask(Command.GROUP_LIST, control.encode(asked), ask)

    def told(self, ask: _Ask, answer: control.Groups) -> None:
        """The answer to a question came; only that to the last one about a group counts."""
        if self._asked.get(ask.group) is not ask:
            return
        self._asked[ask.group] = None
        for info in answer.groups:
            self._known[info.topic, info.group] = info.spec.policy

    def failed(self, ask: _Ask, error: TernMQError) -> None:
        """A question was refused: it is asked again where that may pass."""
        log.debug("the retry policy of group %s on %s is not known: %s", ask.group[1],
                  ask.group[0], error)  # fmt: skip
        if error.retriable:
            self._session.loop.call_later(_PAUSE, self._again, ask)

    def _again(self, ask: _Ask) -> None:
        link = self._session.link
        if self._asked.get(ask.group) is ask and link is not None:
            self._ask(ask.group, link)


class _Ask:
    """A GROUP_LIST for one group."""

    __slots__ = ("_policies", "group")

    def __init__(self, policies: Policies, group: Group) -> None:
        self._policies = policies
        self.group = group

    def answered(self, body: bytes) -> None:
        """See ``link.Asker``."""
        self._policies.told(self, control.decode_answer(body, control.Groups))

    def refused(self, error: TernMQError) -> None:
        """See ``link.Asker``."""
        self._policies.failed(self, error)

    def lost(self) -> None:
        """See ``link.Asker``: the next connection asks for all of them."""
