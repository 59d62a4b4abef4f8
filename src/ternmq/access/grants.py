"""What grants cover.

A pattern is a name, or the beginning of names with a ``*`` behind it: ``orders.*`` covers
``orders.eu`` and neither ``orders`` nor ``ordersx``; ``*`` covers every name. There are no other
wildcards and no regular expressions, since those are what people get wrong.

A request is about one topic, or one group on a topic, or, where it names none, about **all** of
them. It is allowed when one grant covers all that it is about, and refused when any deny touches
any part of it. So reading a topic without a group, or deleting it, needs a grant for every group of
it, and who is denied one group of a topic cannot delete the topic.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence

from ternmq.record.control import Grant


class Verdict(enum.Enum):
    """What the grants say of a request."""

    ALLOWED = "allowed"
    MISSING = "missing"
    DENIED = "denied"


def covers(pattern: str, name: str | None) -> bool:
    """Return whether a pattern covers a name; None stands for every name there is."""
    if pattern == "*":
        return True
    if name is None:
        return False
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern


def touches(pattern: str, name: str | None) -> bool:
    """Return whether a pattern covers some of what a name stands for."""
    return name is None or covers(pattern, name)


def judge(grants: Sequence[Grant], right: str, topic: str | None, group: str | None) -> Verdict:
    """Return what the grants say. O(grants).

    Args:
        grants: Of one app.
        right: ``produce``, ``consume``, ``manage`` or ``audit``.
        topic: None: every topic.
        group: None: every group, or none in particular.
    """
    verdict = Verdict.MISSING
    for grant in grants:
        if grant.right != right:
            continue
        if grant.deny:
            if touches(grant.topic, topic) and touches(grant.group, group):
                return Verdict.DENIED
        elif covers(grant.topic, topic) and covers(grant.group, group):
            verdict = Verdict.ALLOWED
    return verdict


def disjoint(patterns: Iterable[str]) -> tuple[str, ...]:
    """Return the patterns, in the order of names, without those that another one covers."""
    found: list[str] = []
    for pattern in sorted(set(patterns), key=_by_beginning):
        if not (found and found[-1].endswith("*") and pattern.startswith(found[-1][:-1])):
            found.append(pattern)
    return tuple(found)


def _by_beginning(pattern: str) -> tuple[str, bool]:
    open_ = pattern.endswith("*")
    return pattern[:-1] if open_ else pattern, not open_


def sees(grants: Sequence[Grant], topic: str) -> bool:
    """Return whether some right on a topic, or on some group of it, was granted.

    A deny hides the topic only from the right that it is about, and only if it is about every
    group.
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
