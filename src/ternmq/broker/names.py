"""The names that numbers in the journal's records stand for, of what is there and what is gone.

Numbers are never reused, so one answer fits every position: whoever reads on from a position needs
the names of all that is there now, and of all that went at or behind it. Loop only.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import merge
from typing import Final, NamedTuple

from ternmq.broker.gone import Sort
from ternmq.broker.ledger import Ledger
from ternmq.broker.sortedkeys import SortedKeys

CLIENT_SHOWN: Final = 8
LOOKS: Final = 500
"""Numbers that one page looks at: below a millisecond."""


class Name(NamedTuple):
    """A number's name; what of the fields means something depends on the sort."""

    number: int
    name: str
    """Of a topic or group; the app of a session."""
    gone: int = 0
    topic: int = 0
    client: str = ""
    address: str = ""


class NamePage(NamedTuple):
    """Names by number."""

    found: list[Name]
    next: int | None
    """Go on above this number; None: there are no others."""


def names(
    ledger: Ledger, sort: Sort, position: int, above: int, limit: int, looks: int = LOOKS
) -> NamePage:
    """Return names of a sort with a number above one, by number, at most ``limit``.

    O(page): what is looked at and left out counts for the end of the page as well.

    Args:
        ledger: The journal and what is computed from it.
        sort: What is asked for.
        position: Leave out what was gone before it.
        above: The number of the page before.
        limit: Of names.
        looks: Numbers that are looked at, at most.
    """
    there, name_of = _there(ledger, sort)
    gone = ledger.views.gone
    found: list[Name] = []
    last = above
    for number in merge(there.behind(above), gone.numbers(sort).behind(above)):
        if len(found) == limit or looks == 0:
            return NamePage(found, last)
        looks -= 1
        last = number
        one = gone.entries.get((int(sort), number))
        if one is None:
            found.append(name_of(number))
        elif one.position >= position:
            found.append(Name(number, one.name, one.position, one.topic, one.client, one.address))
    return NamePage(found, None)


def _there(ledger: Ledger, sort: Sort) -> tuple[SortedKeys[int], Callable[[int], Name]]:
    """Return the numbers of what is there, and what makes a name of one."""
    catalog, sessions = ledger.views.catalog, ledger.views.sessions

    def topic(number: int) -> Name:
        return Name(number, catalog.topics[number].name)

    def group(number: int) -> Name:
        one = catalog.groups[number]
        return Name(number, one.name, 0, one.topic.number)

    def session(number: int) -> Name:
        info = sessions.by_number[number].info
        return Name(number, info.app, 0, 0, info.client[:CLIENT_SHOWN], info.address)

    if sort is Sort.TOPIC:
        return catalog.topic_numbers, topic
    if sort is Sort.GROUP:
        return catalog.group_numbers, group
    return sessions.numbers, session
