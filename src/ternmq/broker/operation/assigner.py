"""Which member of a group owns which queue. Pure functions; a member is the number of its session.

Members are always listed in the order in which they joined. An owner of 0 is nobody.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ternmq.broker.catalog.owners import NOBODY
from ternmq.model.assignments import Assignment


def average(count: int, members: Sequence[int], owners: Sequence[int]) -> list[int]:
    """Return the owner of each queue so that members own equally many, and few queues move.

    The quota of a member is ``count // members``; as many members as queues are left over own one
    more: first those that own more than the quota now. Each member keeps its lowest queues up to
    its quota; the others go to the members below theirs, the lowest queue to the first of them.
    O(queues + members).

    Args:
        count: Number of queues.
        members: The members.
        owners: The owner of each queue up to now; it may be shorter than ``count``.
    """
    if not members:
        return [NOBODY] * count
    before = [*owners[:count], *[NOBODY] * (count - len(owners))]
    held = dict.fromkeys(members, 0)
    for owner in before:
        if owner in held:
            held[owner] += 1
    quota, extra = divmod(count, len(members))
    left = dict.fromkeys(members, quota)
    many = [member for member in members if held[member] > quota]
    few = [member for member in members if held[member] <= quota]
    for member in (many + few)[:extra]:
        left[member] += 1
    after = [NOBODY] * count
    for queue, owner in enumerate(before):
        if left.get(owner):
            left[owner] -= 1
            after[queue] = owner
    receivers = (member for member in members for _ in range(left[member]))
    return [owner or next(receivers) for owner in after]


def configured(count: int, members: Mapping[int, str], assign: Iterable[Assignment]) -> list[int]:
    """Return the owner of each queue as the settings of the group say; others belong to nobody.

    Of the entries for a queue, the first that fits a member counts; of the members that it fits,
    the one that joined first. O(entries x members + queues named).

    Args:
        count: Number of queues.
        members: The members, each with its name.
        assign: The entries.
    """
    owners = [NOBODY] * count
    for entry in assign:
        owner = next((one for one, name in members.items() if entry.fits(name)), NOBODY)
        for queue in entry.queues:
            if queue < count and not owners[queue]:
                owners[queue] = owner
    return owners


def exclusive(count: int, members: Sequence[int]) -> list[int]:
    """Return the owner of each queue: the member that joined first."""
    return [members[0] if members else NOBODY] * count
