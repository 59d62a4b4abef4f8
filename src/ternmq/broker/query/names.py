"""The names of the numbers in the journal's records, of existing and of removed objects.

Numbers are never reused, so one list serves every position: a reader that goes on from a position
needs the names of everything that exists now, and of everything removed at or after that position.

Not thread-safe: call it from the broker's loop.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import merge
from typing import Final, NamedTuple

from ternmq.broker.catalog.gone import Sort
from ternmq.broker.containers.sortedkeys import SortedKeys
from ternmq.broker.query.held import Held
from ternmq.record.fact.state import CLIENT_SHOWN

LOOKS: Final = 500
"""Most numbers that one page examines: this takes less than a millisecond."""


class Name(NamedTuple):
    """The name of a number; which other fields are set depends on the sort."""

    number: int
    name: str
    """Name of a topic or group; for a session, its app."""
    gone: int = 0
    topic: int = 0
    client: str = ""
    address: str = ""


class NamePage(NamedTuple):
    """A page of names, sorted by number."""

    found: list[Name]
    next: int | None
    """Number above which the next page begins; None: this is the last page."""


def names(
    held: Held, sort: Sort, position: int, above: int, limit: int, looks: int = LOOKS
) -> NamePage:
    """Return names of a sort with a number above ``above``, sorted by number.

    O(page): numbers that are examined and left out count towards the end of the page as well.

    Args:
        held: The journal and what is computed from it.
        sort: Topics, groups or sessions.
        position: Leave out what was removed before this position.
        above: The last number of the page before.
        limit: Most names returned.
        looks: Most numbers examined.
    """
    there, name_of = _there(held, sort)
    gone = held.views.gone
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


def _there(held: Held, sort: Sort) -> tuple[SortedKeys[int], Callable[[int], Name]]:
    """Return the numbers of what exists, and a function that makes the name of one."""
    catalog, sessions = held.views.catalog, held.views.sessions

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
