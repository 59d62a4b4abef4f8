"""What whoever asks for a list may see of it, and how much is looked at for one page.

A list goes through the names that lie under the patterns of who asks, and no others: an app that
may use five of 40,000 topics is shown them at the price of five. What lies under a pattern and is
not to be seen all the same (a deny) is looked at and left out; a page ends after so many looks.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from typing import Final, NamedTuple

from ternmq.broker.sortedkeys import SortedKeys

LOOKS: Final = 1000
"""Topics and groups that one page looks at, at most: about a millisecond for five grants."""

Patterns = tuple[str, ...]
"""Names, and beginnings of names with ``*`` behind; none covers another, in the order of names."""


def _always(*names: str) -> bool:
    del names
    return True


class Sight(NamedTuple):
    """What may be seen."""

    topics: Patterns
    """Topics outside are not looked at."""
    groups: Patterns
    """Topics whose groups may be seen; groups on topics outside are not looked at."""
    sees_topic: Callable[[str], bool] = _always
    sees_group: Callable[[str, str], bool] = _always
    """Takes topic and group."""
    looks: int = LOOKS


EVERYTHING: Final = Sight(("*",), ("*",))


def names_under(
    patterns: Patterns, names: SortedKeys[str], there: Container[str], after: str
) -> Iterator[str]:
    """Yield the names above one that a pattern covers, in order.

    Args:
        patterns: See ``Patterns``.
        names: All names.
        there: The same, to look one up.
        after: Names above this one only.
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
