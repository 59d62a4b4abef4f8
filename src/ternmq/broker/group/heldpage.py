"""Pages of group queues: STATE stores their cursors as one object.

A page has the cursors of 64 groups and 16 queues, so that a set goes through some hundred objects
for 40,000 groups, not 40,000. Owed rows are stored in shards, objects of their own; a page whose
groups are owed nothing is recognised without visiting each of its group queues.
"""

from __future__ import annotations

from typing import Any

from ternmq.broker.containers.discarded import Discarded
from ternmq.broker.group.figures import Figures


class HeldPage:
    """Positions of the newest changes of a page: they decide what a set has to examine."""

    __slots__ = ("changed", "discarded", "figures", "given_changed", "gives", "idle_at", "touched")

    def __init__(
        self, figures: Figures[Any] | None = None, discarded: Discarded | None = None
    ) -> None:
        self.figures: Figures[Any] = Figures() if figures is None else figures
        """Figures of all group queues; kept here so that a group queue needs no reference."""
        self.discarded = Discarded() if discarded is None else discarded
        """Takes the containers that a group queue discards; kept here for the same reason."""
        self.changed = 0
        """Newest record that moved a cursor of the page, or created or ended a group queue."""
        self.gives = False
        """Whether any of its group queues may have something in GIVEN."""
        self.given_changed = 0
        """Newest record that changed what a group of the page was given before; see ``given``."""
        self.touched = 0
        """Newest record that changed rows of its group queues."""
        self.idle_at = 0
        """BEGIN of the newest set that found nothing owed in the page; 0: none did."""

    def note_given(self, position: int) -> None:
        """Note that a record changed what a group of the page was given before."""
        self.gives = True
        self.given_changed = position

    def idle(self) -> bool:
        """Return whether the finding of ``idle_at`` still holds: its groups are owed nothing."""
        return self.changed < self.idle_at and self.touched < self.idle_at
