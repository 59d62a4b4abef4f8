"""The one place where access is granted: every handler calls it before it acts on a request.

The rights that a command needs are in ``wire.commands.TABLE``, an app's grants in the catalog.
Allowed checks are cached for each app until the app changes (a changed app is a new object), so the
hot path is two look-ups.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from ternmq.access import tokens
from ternmq.access.grants import Decision, covers, disjoint, judge, sees
from ternmq.broker.query.sight import EVERYTHING, LOOKS, Sight
from ternmq.model.errors import Forbidden, InvalidName, InvalidRequest, Unauthenticated
from ternmq.model.specs import BROADCAST_GROUP, INSTANCE_GROUPS, check_name
from ternmq.record.fact.control import App, Grant
from ternmq.wire.commands import TABLE, Command, Policy, Right, Scope

MAX_REMEMBERED: Final = 4096
"""Most checks cached for one app; at this number its cache is cleared. Refusals are not cached."""
MAX_IN_ALL: Final = 65_536
"""Most checks cached for all apps together, some 20 MB; at this number all caches are cleared."""
_LEAST_LOOKS: Final = 10
_SHOWN: Final = 60
_NOBODY: Final = tokens.seal("nobody", tokens.new_token(bytes(32)), now_us=0, salt=bytes(16))
"""Tokens are compared with this app's if their app is unknown, so that it takes the same time."""

Question = tuple[Command, str | None, str | None]


class _Known:
    """The allowed checks of one state of an app."""

    __slots__ = ("app", "sight", "yes")

    def __init__(self, app: App) -> None:
        self.app = app
        self.yes: set[Question] = set()
        self.sight: Sight | None = None


class Authoriser:
    """Checks tokens and rights. Not thread-safe: call it from the broker's loop.

    Args:
        apps: The catalog's apps by name: the live dictionary.
        required: False: no tokens are required, and every request is allowed. Only for brokers that
            listen on loopback alone (``settings`` checks that).
    """

    def __init__(self, apps: Mapping[str, App], *, required: bool = True) -> None:
        self._apps = apps
        self._required = required
        self._known: dict[str, _Known] = {}
        self._remembered = 0

    def authenticate(self, app: str, token: str) -> None:
        """Return if the token is the app's.

        Raises:
            Unauthenticated: it is not, or there is no such app; the text does not reveal which.
        """
        if not self._required:
            return
        if not app:
            raise Unauthenticated("this broker requires an app and its token")
        if not token:
            raise Unauthenticated(f"app {_shown(app)} gave no token, and this broker requires one")
        known = self._apps.get(app)
        right = len(token) <= tokens.LONGEST and tokens.matches(known or _NOBODY, token)
        if known is not None and right:
            return
        why = tokens.miscopied(token)
        if why is not None:
            raise Unauthenticated(why)
        raise Unauthenticated(f"app {_shown(app)} is not known, or the token is wrong")

    def check(
        self, app: str, command: Command, topic: str | None = None, group: str | None = None
    ) -> None:
        """Return if the app may use the command for the topic and group.

        Args:
            app: The app of the connection's HELLO.
            command: A command that clients can send.
            topic: The request's topic; required for the scopes topic and group. For the scope
                topics, call this once for each of the request's topics.
            group: The request's group; required for the scope group.

        Raises:
            Forbidden: a grant is missing, or there is a deny; the text names it.
            Unauthenticated: the app was deleted.
        """
        if not self._required:
            return
        question = (command, topic, group)
        try:
            known = self._state(app)
            if question in known.yes:
                return
            self._judge(known.app, command, topic, group)
        except (Forbidden, Unauthenticated) as error:
            error.about = (topic, group)
            raise
        if len(known.yes) >= MAX_REMEMBERED:
            self._remembered -= len(known.yes)
            known.yes.clear()
        if self._remembered >= MAX_IN_ALL:
            self._known.clear()
            self._remembered = 0
            known = self._state(app)
        known.yes.add(question)
        self._remembered += 1

    def may(self, app: str, command: Command) -> bool:
        """Return whether an app may use a command for the broker as a whole."""
        try:
            self.check(app, command)
        except (Forbidden, Unauthenticated):
            return False
        return True

    def check_left(self, app: str, grants: Sequence[Grant] = ()) -> None:
        """Return if an app that may manage everything remains after a change. O(apps).

        Args:
            app: The app that is to be changed or deleted.
            grants: Its grants after the change.

        Raises:
            InvalidRequest: It is the last such app: apps could not be made or changed any more.
        """
        known = self._apps.get(app)
        if not self._required or known is None or not _manages(known.grants) or _manages(grants):
            return
        if not any(_manages(one.grants) for one in self._apps.values() if one is not known):
            raise InvalidRequest(
                f"app {_shown(app)} is the last one with manage:*, and nobody could make or change "
                "apps without it: give another app manage:* first"
            )

    def operates(self, app: str, command: Command) -> bool:
        """Return whether an app may use a command for objects (transactions) of other apps."""
        return TABLE[command].policy.operators and self.may(app, Command.CLIENT_LIST)

    def check_some(self, app: str, command: Command) -> None:
        """Return if the app may use the command for at least one topic; for a request without one.

        Raises:
            Forbidden: it has no grant of the right at all.
            Unauthenticated: the app was deleted.
        """
        if self._required:
            _judge_some(self._state(app).app, command)

    def sight(self, app: str) -> Sight:
        """Return which topics and groups lists for the app show.

        Raises:
            Unauthenticated: the app was deleted.
        """
        if not self._required:
            return EVERYTHING
        known = self._state(app)
        if known.sight is None:
            grants = known.app.grants
            given = [one for one in grants if not one.deny]
            rights = {Right.CONSUME.value, Right.MANAGE.value}
            known.sight = Sight(
                disjoint([one.topic for one in given]),
                disjoint([one.topic for one in given if one.right in rights]),
                partial(self.sees_topic, app),
                partial(self.sees_group, app),
                max(_LEAST_LOOKS, LOOKS * 5 // max(5, len(grants))),
            )
        return known.sight

    def sees_topic(self, app: str, topic: str) -> bool:
        """Return whether lists for the app contain the topic: the app has some right on it."""
        if not self._required:
            return True
        found = self._apps.get(app)
        return found is not None and sees(found.grants, topic)

    def sees_group(self, app: str, topic: str, group: str) -> bool:
        """Return whether lists for the app contain the group: it may consume with or manage it."""
        if not self._required:
            return True
        found = self._apps.get(app)
        group = _granted(group)
        return found is not None and any(
            judge(found.grants, right.value, topic, group) is Decision.ALLOWED
            for right in (Right.CONSUME, Right.MANAGE)
        )

    def _state(self, name: str) -> _Known:
        app = self._apps.get(name)
        if app is None:
            self.forget(name)
            raise Unauthenticated(f"app {_shown(name)} is not there any more")
        known = self._known.get(name)
        if known is None or known.app is not app:
            self.forget(name)
            known = self._known[name] = _Known(app)
        return known

    def forget(self, name: str) -> None:
        """Drop an app's cached checks: it was deleted or changed."""
        known = self._known.pop(name, None)
        if known is not None:
            self._remembered -= len(known.yes)

    def _judge(self, app: App, command: Command, topic: str | None, group: str | None) -> None:
        policy = TABLE[command].policy
        scope = policy.scope
        if scope is Scope.NOTHING:
            return
        if scope is Scope.ANY_TOPIC:
            _judge_some(app, command)
            return
        if scope is Scope.BROKER:
            topic = group = None
        elif not topic or (scope is Scope.GROUP and not group):
            raise Forbidden(f"{command.name} names no {scope.value}")
        elif scope is not Scope.GROUP:
            group = None
        else:
            group = _granted(group or "")
        denied: Right | None = None
        for right in policy.rights:
            verdict = judge(app.grants, right.value, topic, group)
            if verdict is Decision.ALLOWED:
                return
            if verdict is Decision.DENIED:
                denied = right
        what = _place(policy, topic, group)
        if denied is not None:
            raise Forbidden(
                f"app {_shown(app.name)} is denied to {denied.value} {what}; "
                "`ternmq app show` shows what denies it"
            )
        rights = " or ".join([right.value for right in policy.rights])
        remedy = _remedy(app.name, policy, topic, group)
        raise Forbidden(f"app {_shown(app.name)} has no grant to {rights} {what}{remedy}")


def _granted(group: str) -> str:
    """Return the group that a grant must cover: of a broadcast instance, ``$broadcast``."""
    return BROADCAST_GROUP if group.startswith(INSTANCE_GROUPS) else group


def _judge_some(app: App, command: Command) -> None:
    """Return if the app may use the command for at least one topic.

    A grant does not count if one deny covers all of it.

    Raises:
        Forbidden: It may not.
    """
    rights = [right.value for right in TABLE[command].policy.rights]
    denies = [one for one in app.grants if one.deny]
    given = [one for one in app.grants if one.right in rights and not one.deny]
    left = [one for one in given if not any(_cancels(deny, one) for deny in denies)]
    if left:
        return
    if given:
        raise Forbidden(
            f"app {_shown(app.name)} is denied to {' or '.join(rights)} to every topic of its "
            "grants; `ternmq app show` shows what denies it"
        )
    needed = ", which a checker needs" if command is Command.CHECKER_OFFER else ""
    remedy = _remedy(app.name, TABLE[command].policy, "TOPIC", None)
    raise Forbidden(
        f"app {_shown(app.name)} has no grant to {' or '.join(rights)} to any topic{needed}{remedy}"
    )


def _cancels(deny: Grant, grant: Grant) -> bool:
    """Return whether a deny covers all of a grant."""
    return (
        deny.right == grant.right
        and covers(deny.topic, grant.topic)
        and covers(deny.group, grant.group)
    )


def _manages(grants: Sequence[Grant]) -> bool:
    return judge(grants, Right.MANAGE.value, None, None) is Decision.ALLOWED


def _place(policy: Policy, topic: str | None, group: str | None) -> str:
    if policy.scope is Scope.BROKER:
        return "every topic and group ('*'), which this needs"
    if Right.PRODUCE in policy.rights:
        return f"to topic {_shown(topic or '')}"
    if group is None:
        return f"topic {_shown(topic or '')} for every group ('*')"
    return f"topic {_shown(topic or '')} for group {_shown(group)}"


def _remedy(app: str, policy: Policy, topic: str | None, group: str | None) -> str:
    """Return the command line that gives the right; empty if a name is not allowed.

    The names come from requests, and users may paste this text into a shell.
    """
    try:
        for name in (app, topic, group):
            if name is not None and name != BROADCAST_GROUP:
                check_name(name)
    except InvalidName:
        return ""
    place = "'*'" if topic is None else topic if group is None else f"{topic}:{group}"
    if group == BROADCAST_GROUP:
        return f"; `ternmq app set {app} --grant '{policy.rights[0].value}:{place}'` gives it"
    return f"; `ternmq app set {app} --grant {policy.rights[0].value}:{place}` gives it"


def _shown(name: str) -> str:
    """Return a name from a request, quoted and cut, for a line of a log."""
    return repr(name if len(name) <= _SHOWN else name[:_SHOWN] + "...")
