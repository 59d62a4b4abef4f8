"""Grants: which topics and groups they cover, and whether they allow a request.

A pattern is a name, or the beginning of names followed by ``*``: ``orders.*`` covers ``orders.eu``,
but neither ``orders`` nor ``ordersx``; ``*`` covers every name. There are no other wildcards and no
regular expressions, since people get those wrong.

A request is about one topic, or one group on a topic; if it names none, it is about **all** of
them. It is allowed if one grant covers everything that it is about, and refused if a deny touches
any part of that. So reading a topic without a group, or deleting a topic, needs a grant for all of
its groups, and an app that is denied one group of a topic cannot delete the topic.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence

from ternmq.record.fact.control import Grant


class Decision(enum.Enum):
    """The result of checking a request against grants."""

    ALLOWED = "allowed"
    MISSING = "missing"
    DENIED = "denied"


def covers(pattern: str, name: str | None) -> bool:
    """Return whether a pattern covers a name; None means all names."""
    if pattern == "*":
        return True
    if name is None:
        return False
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern


def touches(pattern: str, name: str | None) -> bool:
    """Return whether a pattern covers a name; for None (all names), whether it covers any."""
    return name is None or covers(pattern, name)


def judge(grants: Sequence[Grant], right: str, topic: str | None, group: str | None) -> Decision:
    """Return whether the grants allow a request. O(grants).

    Args:
        grants: All grants of one app.
        right: ``produce``, ``consume``, ``manage`` or ``audit``.
        topic: None: every topic.
        group: None: every group, or no specific one.
    """
    verdict = Decision.MISSING
    for grant in grants:
        if grant.right != right:
            continue
        if grant.deny:
            if touches(grant.topic, topic) and touches(grant.group, group):
                return Decision.DENIED
        elif covers(grant.topic, topic) and covers(grant.group, group):
            verdict = Decision.ALLOWED
    return verdict


def disjoint(patterns: Iterable[str]) -> tuple[str, ...]:
    """Return the patterns in the order of names, without those that another pattern covers."""
    found: list[str] = []
    for pattern in sorted(set(patterns), key=_by_beginning):
        if not (found and found[-1].endswith("*") and pattern.startswith(found[-1][:-1])):
            found.append(pattern)
    return tuple(found)


def _by_beginning(pattern: str) -> tuple[str, bool]:
    open_ = pattern.endswith("*")
    return pattern[:-1] if open_ else pattern, not open_


def sees(grants: Sequence[Grant], topic: str) -> bool:
    """Return whether the grants give any right on a topic, or on a group of it.

    A deny cancels only grants of the same right, and only if it covers every group or has the
    grant's own group pattern.
    """
    return any(
        not grant.deny
        and covers(grant.topic, topic)
        and not any(
            deny.deny
            and deny.right == grant.right
            and covers(deny.topic, topic)
            and deny.group in {"*", grant.group}
            for deny in grants
        )
        for grant in grants
    )
