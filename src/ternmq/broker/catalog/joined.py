"""Groups that have members, and how many members and ownerless queues there are in all of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ternmq.broker.catalog.owners import Owners
from ternmq.broker.containers.sortedkeys import SortedKeys


class _Share(NamedTuple):
    members: int
    unowned: int


class JoinedGroups:
    """All groups with members, by number. As members, it is volatile.

    Not thread-safe: call it from the broker's loop.

    Attributes:
        members: Members of all groups; a session counts once for each group.
        unowned: Queues of these groups that belong to none of the members.
    """

    __slots__ = ("_numbers", "_shares", "members", "unowned")

    def __init__(self) -> None:
        self._numbers: SortedKeys[int] = SortedKeys()
        self._shares: dict[int, _Share] = {}
        self.members = 0
        self.unowned = 0

    def __len__(self) -> int:
        return len(self._shares)

    def note(self, group: int, owners: Owners) -> None:
        """Take over how many members and ownerless queues a group has. O(its queues)."""
        if not owners.members:
            self.discard(group)
            return
        before = self._shares.get(group)
        if before is None:
            self._numbers.add(group)
            before = _Share(0, 0)
        now = self._shares[group] = _Share(len(owners.members), owners.unowned(len(owners.of)))
        self.members += now.members - before.members
        self.unowned += now.unowned - before.unowned

    def discard(self, group: int) -> None:
        """Forget a group that has no members any more; any other number changes nothing."""
        share = self._shares.pop(group, None)
        if share is not None:
            self._numbers.discard(group)
            self.members -= share.members
            self.unowned -= share.unowned

    def discard_all(self, groups: Mapping[int, object]) -> None:
        """Forget those of these groups that have members."""
        for group in self._shares.keys() & groups.keys():
            self.discard(group)

    def from_on(self, group: int) -> Iterator[int]:
        """Yield the numbers from one on, ascending. Not valid after a change."""
        return self._numbers.at_or_behind(group)
