"""Broadcast instances: groups of mode broadcast, by number and by the session of their client."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ternmq.broker.containers.sortedkeys import SortedKeys
from ternmq.model.specs import Instance


class Instances:
    """All broadcast instances. The catalog keeps it as groups come, change and go.

    Not thread-safe: call it from the broker's loop.
    """

    __slots__ = ("_by_session", "_numbers", "_session_of", "left")

    def __init__(self) -> None:
        self._numbers: SortedKeys[int] = SortedKeys()
        self._session_of: dict[int, int] = {}
        """Number of the group -> the session of its client; 0: none."""
        self._by_session: dict[int, dict[int, None]] = {}
        self.left = 0
        """Number of instances without a client: their places are kept for some days."""

    def __len__(self) -> int:
        return len(self._session_of)

    def put(self, group: int, instance: Instance) -> None:
        """Note a group, or that another session is its client."""
        self._leave(group)
        self._numbers.add(group)
        self._session_of[group] = instance.session
        if instance.session:
            self._by_session.setdefault(instance.session, {})[group] = None
        else:
            self.left += 1

    def discard(self, group: int) -> None:
        """Forget a group that is gone; any other number changes nothing."""
        if group in self._session_of:
            self._leave(group)
            self._numbers.discard(group)
            del self._session_of[group]

    def discard_all(self, groups: Mapping[int, object]) -> None:
        """Forget those of these groups that are instances."""
        for group in self._session_of.keys() & groups.keys():
            self.discard(group)

    def of_session(self, session: int) -> list[int]:
        """Return the numbers of the groups whose client has this session, oldest first."""
        return list(self._by_session.get(session, ()))

    def behind(self, group: int) -> Iterator[int]:
        """Yield the numbers above a number, in order."""
        return self._numbers.behind(group)

    def _leave(self, group: int) -> None:
        session = self._session_of.get(group)
        if session == 0:
            self.left -= 1
        elif session is not None:
            mine = self._by_session[session]
            del mine[group]
            if not mine:
                del self._by_session[session]
