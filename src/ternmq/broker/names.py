"""The names that numbers in the journal's records stand for, of what is there and what is gone.

Numbers are never reused, so one answer fits every position: whoever reads on from a position needs
the names of all that is there now, and of all that went at or behind it. Loop only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import nsmallest
from typing import Final, NamedTuple

from ternmq.broker.broker import Broker
from ternmq.broker.gone import Sort

CLIENT_SHOWN: Final = 8


class Name(NamedTuple):
    """A number's name; what of the fields means something depends on the sort."""

    number: int
    name: str
    """Of a topic or group; the app of a session."""
    gone: int = 0
    topic: int = 0
    client: str = ""
    address: str = ""


def names(broker: Broker, sort: Sort, position: int, above: int, limit: int) -> list[Name]:
    """Return names of a sort with a number above one, by number, at most ``limit``.

    O(names of that sort), some 0.1 us each; what is told of takes 1 us.

    Args:
        broker: The core.
        sort: What is asked for.
        position: Leave out what was gone before it.
        above: The number of the page before.
        limit: Of names.
    """
    if sort is Sort.TOPIC:
        return _pages(_topics, broker, sort, position, above, limit)
    if sort is Sort.GROUP:
        return _pages(_groups, broker, sort, position, above, limit)
    return _pages(_sessions, broker, sort, position, above, limit)


_There = Callable[[Broker], "tuple[Iterable[int], Callable[[int], Name]]"]
"""Returns the numbers of what is there, and what makes a name of one."""


def _pages(
    there: _There, broker: Broker, sort: Sort, position: int, above: int, limit: int
) -> list[Name]:
    numbers, name_of = there(broker)
    gone = {one.number: one for one in broker.views.gone.of_sort(sort, position)}
    wanted = nsmallest(limit, [number for number in (*numbers, *gone) if number > above])
    found: list[Name] = []
    for number in wanted:
        one = gone.get(number)
        if one is None:
            found.append(name_of(number))
        else:
            found.append(Name(number, one.name, one.position, one.topic, one.client, one.address))
    return found


def _topics(broker: Broker) -> tuple[Iterable[int], Callable[[int], Name]]:
    topics = broker.views.catalog.topics
    return topics, lambda number: Name(number, topics[number].name)


def _groups(broker: Broker) -> tuple[Iterable[int], Callable[[int], Name]]:
    topics = broker.views.catalog.topics
    topic_of = {group: number for number, topic in topics.items() for group in topic.subscriptions}

    def name_of(group: int) -> Name:
        number = topic_of[group]
        return Name(group, topics[number].subscriptions[group].name, 0, number)

    return topic_of, name_of


def _sessions(broker: Broker) -> tuple[Iterable[int], Callable[[int], Name]]:
    sessions = broker.views.sessions.by_number

    def name_of(number: int) -> Name:
        info = sessions[number].info
        return Name(number, info.app, 0, 0, info.client[:CLIENT_SHOWN], info.address)

    return sessions, name_of
