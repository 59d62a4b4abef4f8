"""The names that numbers in the journal's records stand for, of what is there and what is gone.

Numbers are never reused, so one answer fits every position: whoever reads on from a position needs
the names of all that is there now, and of all that went at or behind it. Loop only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
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

    O(names of that sort).

    Args:
        broker: The core.
        sort: What is asked for.
        position: Leave out what was gone before it.
        above: The number of the page before.
        limit: Of names.
    """
    there: Callable[[Broker], Iterator[Name]] = {
        Sort.TOPIC: _topics,
        Sort.GROUP: _groups,
        Sort.SESSION: _sessions,
    }[sort]
    found = [one for one in there(broker) if one.number > above]
    found += [
        Name(one.number, one.name, one.position, one.topic, one.client, one.address)
        for one in broker.views.gone.of_sort(sort, position)
        if one.number > above
    ]
    return nsmallest(limit, found)


def _topics(broker: Broker) -> Iterator[Name]:
    for number, topic in broker.views.catalog.topics.items():
        yield Name(number, topic.name)


def _groups(broker: Broker) -> Iterator[Name]:
    for number, topic in broker.views.catalog.topics.items():
        for group, subscription in topic.subscriptions.items():
            yield Name(group, subscription.name, 0, number)


def _sessions(broker: Broker) -> Iterator[Name]:
    for number, session in broker.views.sessions.by_number.items():
        info = session.info
        yield Name(number, info.app, 0, 0, info.client[:CLIENT_SHOWN], info.address)
