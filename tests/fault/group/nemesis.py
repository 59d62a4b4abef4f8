"""Which faults a run has, in which order, and for how long: all of it follows from a seed.

Nothing here touches a process: see ``hands``. A step is one fault, or one of the network or of the
coordinator with another fault inside it. The faults of a step end in the order in which they began.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator
from enum import StrEnum
from itertools import islice
from typing import Final, NamedTuple


class Kind(StrEnum):
    """What is done."""

    KILL = "kill"
    STOP = "stop"
    POWER = "power"
    """The power is cut: what was not synced is gone."""
    FULL = "full"
    """The disk is full."""
    SLOW = "slow"
    """Every write to the disk waits for a moment."""
    FROZEN = "frozen"
    """The disk does not answer."""
    CUT = "cut"
    """The link between the brokers is cut."""
    THERE = "there"
    """Nothing arrives at the primary from its follower."""
    BACK = "back"
    """Nothing arrives at the follower."""
    FLAP = "flap"
    """The link is cut every three seconds, and comes back at once."""
    SWITCH = "switch"
    """An operator has the other broker take over."""
    AWAY = "away"
    """The coordinator does not answer."""


class Role(StrEnum):
    """Whom it hits."""

    PRIMARY = "primary"
    REPLICA = "replica"
    BOTH = "both"


class Fault(NamedTuple):
    """One fault."""

    kind: Kind
    role: Role

    def __str__(self) -> str:
        return f"{self.kind}({self.role})"


class Step(NamedTuple):
    """Faults that are there together.

    Attributes:
        gap_s: Time between two of them.
        for_s: Time from the last one until the first ends.
        whole: Whether there are two copies again before the next step.
    """

    number: int
    faults: tuple[Fault, ...]
    gap_s: float
    for_s: float
    whole: bool

    def __str__(self) -> str:
        names = " + ".join(map(str, self.faults))
        after = "" if self.whole else ", then the next one at once"
        return f"{self.number}: {names} for {self.for_s:.1f} s, gap {self.gap_s:.1f} s{after}"


_ONE: Final = (Role.PRIMARY, Role.REPLICA)
DISKS: Final = (Kind.POWER, Kind.FULL, Kind.SLOW, Kind.FROZEN)
LINKS: Final = (Kind.CUT, Kind.THERE, Kind.BACK, Kind.FLAP)
_AROUND: Final = (*(Fault(kind, Role.BOTH) for kind in LINKS[:3]), Fault(Kind.AWAY, Role.BOTH))
"""Faults that may have another one inside them."""
DECK: Final = (
    *(Fault(kind, role) for kind in (Kind.KILL, Kind.POWER) for role in Role),
    *(Fault(Kind.STOP, role) for role in _ONE),
    *(Fault(kind, role) for kind in DISKS[1:] for role in _ONE),
    *(Fault(kind, Role.BOTH) for kind in LINKS),
    Fault(Kind.SWITCH, Role.BOTH),
    Fault(Kind.AWAY, Role.BOTH),
)
"""Every fault once."""
_NESTED: Final = 0.3
_AT_ONCE: Final = 0.25


def steps(seed: int, most_s: float) -> Iterator[Step]:
    """Yield steps without end; each fault of ``DECK`` comes before one of them comes again.

    Args:
        seed: Of everything.
        most_s: Longest time of a fault.
    """
    chance = random.Random(seed)
    number = 0
    while True:
        for fault in chance.sample(DECK, len(DECK)):
            number += 1
            inside = fault.kind not in (*LINKS, Kind.AWAY, Kind.SWITCH)
            faults: tuple[Fault, ...] = (fault,)
            if inside and chance.random() < _NESTED:
                faults = (chance.choice(_AROUND), fault)
            gap_s = round(chance.uniform(0.0, 2.0), 1)
            for_s = round(chance.uniform(0.3, most_s), 1)
            # A broker whose disk fails ends by itself, a moment later.
            whole = fault.kind in DISKS or chance.random() >= _AT_ONCE
            yield Step(number, faults, gap_s, for_s, whole)


def plan(seed: int, count: int, most_s: float) -> list[Step]:
    """Return the first steps."""
    return list(islice(steps(seed, most_s), count))


def planned(steps: Iterable[Step]) -> Counter[str]:
    """Return how often each fault is in the plan."""
    return Counter(str(fault) for step in steps for fault in step.faults)
