"""A queue that serves apps in turns, and within an app its connections in turns.

However many items one app has, the next item of another app waits for one item of each app before
it, not for all of them.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

A = TypeVar("A")
M = TypeVar("M")
K = TypeVar("K")
T = TypeVar("T")


class FairQueue(Generic[A, M, K, T]):
    """Items of type ``T`` by app, member (a connection of it) and key. O(1). Not thread-safe."""

    def __init__(self) -> None:
        self._apps: OrderedDict[A, OrderedDict[M, OrderedDict[K, T]]] = OrderedDict()
        self._alone: tuple[A, M, K, T] | None = None
        """The only item of a queue that was empty before: the fast path, without dictionaries."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def put(self, app: A, member: M, key: K, item: T) -> None:
        """Append an item to its member's items, or replace the item that has its key."""
        if not self._count:
            self._alone = (app, member, key, item)
            self._count = 1
            return
        self._line_up()
        members = self._apps.get(app)
        if members is None:
            members = self._apps[app] = OrderedDict()
        items = members.get(member)
        if items is None:
            items = members[member] = OrderedDict()
        if key not in items:
            self._count += 1
        items[key] = item

    def _line_up(self) -> None:
        """Move the only item into the ordinary structure."""
        if self._alone is not None:
            app, member, key, item = self._alone
            self._alone = None
            self._apps[app] = OrderedDict({member: OrderedDict({key: item})})

    def get(self, app: A, member: M, key: K) -> T | None:
        """Return an item; None if there is none."""
        if not self._count:
            return None
        self._line_up()
        members = self._apps.get(app)
        items = members.get(member) if members is not None else None
        return items.get(key) if items is not None else None

    def keys_of(self, app: A, member: M) -> list[K]:
        """Return the keys of a member's items, oldest first."""
        self._line_up()
        members = self._apps.get(app)
        return list(members.get(member, ())) if members is not None else []

    def drop(self, app: A, member: M) -> list[T]:
        """Take all items of a member out; return them, oldest first."""
        self._line_up()
        members = self._apps.get(app)
        items = members.pop(member, None) if members is not None else None
        if members is not None and not members:
            del self._apps[app]
        if items is None:
            return []
        self._count -= len(items)
        return list(items.values())

    def pop(self) -> tuple[M, T]:
        """Take the next item out; return (member, item).

        Raises:
            KeyError: The queue is empty.
        """
        if self._alone is not None:
            _, member, _, item = self._alone
            self._alone = None
            self._count = 0
            return member, item
        if not self._apps:
            raise KeyError("the queue is empty")
        app, members = next(iter(self._apps.items()))
        member, items = next(iter(members.items()))
        _, item = items.popitem(last=False)
        self._count -= 1
        if items:
            members.move_to_end(member)
        else:
            del members[member]
        if members:
            self._apps.move_to_end(app)
        else:
            del self._apps[app]
        return member, item
