"""The members of a group whose queues belong to members, and which queue belongs to whom.

All of it is volatile: after a start of the broker the clients join again. What keeps the order of a
queue is its lock, which is recorded.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

from ternmq.broker.catalog.levels import LevelTurns

NOBODY: Final = 0
"""The owner of a queue that has none; sessions have numbers from 1 on."""
NEVER: Final = -1


class GroupMember:
    """A session that joined the group and has not left it."""

    __slots__ = ("label", "level_turns", "name", "queues", "turn", "unsaid")

    def __init__(self, name: str, client: str) -> None:
        self.name = name or client
        """Name that configured assignments compare."""
        self.label = f"{name}/{client}" if name else client
        """How listings show it."""
        self.queues: list[int] = []
        """Numbers of its queues, ascending."""
        self.turn = 0
        """Number of the queue that its next pull tries first."""
        self.level_turns: LevelTurns | None = None
        """The turns of its pulls on a topic with levels, in place of ``turn``; see ``turns``."""
        self.unsaid = True
        """Whether the member does not know its queues yet."""


class Owners:
    """Members of a group, in the order in which they joined, and the owner of each queue.

    Not thread-safe: call it from the broker's loop.

    Attributes:
        members: The members, by session.
        of: The session that owns each queue, or ``NOBODY``.
        since_us: Time of the first change of the members that the owners do not reflect.
        armed_us: Time at which the owners are computed again. Both are ``NEVER`` if they reflect
            all changes.
    """

    __slots__ = ("armed_us", "members", "of", "since_us")

    def __init__(self) -> None:
        self.members: dict[int, GroupMember] = {}
        self.of: list[int] = []
        self.since_us = NEVER
        self.armed_us = NEVER

    @property
    def held(self) -> int:
        """Number of queues that belong to a member."""
        return sum([len(one.queues) for one in self.members.values()])

    def unowned(self, count: int) -> int:
        """Return how many of ``count`` queues belong to nobody. O(queues)."""
        return count - len(self.of) + self.of.count(NOBODY)

    def owner(self, queue: int) -> int:
        """Return the session that owns a queue, or ``NOBODY``."""
        return self.of[queue] if queue < len(self.of) else NOBODY

    def turns(self, session: int, levels: int) -> LevelTurns | None:
        """Return the turns of a member on a topic with levels; None: it is no member.

        They are its own: of pulls of all members, each sixteenth may always be that of another.
        """
        member = self.members.get(session)
        if member is None:
            return None
        if member.level_turns is None:
            member.level_turns = LevelTurns(levels)
        return member.level_turns

    def order(self, session: int, order: Sequence[int] | None) -> list[int]:
        """Return the queues of a session in the order in which its pull tries them.

        ``order`` is the order of all queues, if the topic has levels; else the queues take turns.
        """
        member = self.members.get(session)
        if member is None or not member.queues:
            return []
        if order is not None:
            return [queue for queue in order if self.owner(queue) == session]
        begin = bisect_left(member.queues, member.turn)
        return member.queues[begin:] + member.queues[:begin]

    def took(self, session: int, queue: int) -> None:
        """Note that a pull of a session got rows of a queue: the next one tries another first."""
        self.members[session].turn = queue + 1

    def assign(self, of: list[int]) -> list[int]:
        """Set the owner of each queue; return the members that do not know their queues now."""
        self.of = of
        self.since_us = self.armed_us = NEVER
        queues: dict[int, list[int]] = {}
        for queue, session in enumerate(of):
            queues.setdefault(session, []).append(queue)
        unsaid: list[int] = []
        for session, member in self.members.items():
            mine = queues.get(session, [])
            if member.unsaid or member.queues != mine:
                member.queues, member.unsaid = mine, False
                unsaid.append(session)
        return unsaid

    def leave(self, session: int) -> bool:
        """Remove a member; return whether it was one. Its queues belong to nobody."""
        member = self.members.pop(session, None)
        if member is None:
            return False
        for queue in member.queues:
            self.of[queue] = NOBODY
        return True
