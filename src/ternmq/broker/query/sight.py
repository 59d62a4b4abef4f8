"""What the requester of a list may see, and how much is examined for one page.

A list covers only names that match the requester's patterns: an app that may use five of 40,000
topics gets a list at the cost of five. Names that match a pattern but are denied are examined and
left out; a page ends when it has examined ``looks`` names.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from typing import Final, NamedTuple

from ternmq.broker.containers.sortedkeys import SortedKeys

LOOKS: Final = 1000
"""Most topics and groups that one page examines: about a millisecond with five grants."""

Patterns = tuple[str, ...]
"""Names, and prefixes of names ending in ``*``; none covers another; in the order of names."""


def _always(*names: str) -> bool:
    del names
    return True


class Sight(NamedTuple):
    """What a requester may see."""

    topics: Patterns
    """Topics outside are not examined."""
    groups: Patterns
    """Topics whose groups may be seen; groups of topics outside are not examined."""
    sees_topic: Callable[[str], bool] = _always
    sees_group: Callable[[str, str], bool] = _always
    """Called with topic and group."""
    looks: int = LOOKS


EVERYTHING: Final = Sight(("*",), ("*",))


def names_under(
    patterns: Patterns, names: SortedKeys[str], there: Container[str], after: str
) -> Iterator[str]:
    """Yield the names after ``after`` that a pattern covers, in order.

    Args:
        patterns: See ``Patterns``.
        names: All names.
        there: The same names, for membership tests.
        after: Yield only names after this one.
    """
    for pattern in patterns:
        if not pattern.endswith("*"):
            if pattern > after and pattern in there:
                yield pattern
            continue
        beginning = pattern[:-1]
        found = names.behind(after) if after >= beginning else names.at_or_behind(beginning)
        for name in found:
            if not name.startswith(beginning):
                break
            yield name
