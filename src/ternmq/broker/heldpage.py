"""Group queues that stand in STATE together: where their cursors are, and what changed of them.

The cursors of 64 groups and 16 queues are one object, so that 40,000 groups are some hundred
objects to go through for a set, not 40,000. What a group is owed stands in shards, objects of their
own; where nothing is owed the page says so without a look at each of its group queues.

Ruler of an entry::

     0  u32 group, u32 topic, u32 queue, u32 round
    16  u64 cursor
    24  u32 ordered, u32 0
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from ternmq.broker.discarded import Discarded
from ternmq.broker.figures import Figures
from ternmq.broker.lines import Lines

if TYPE_CHECKING:
    from ternmq.broker.groupqueue import GroupQueue

ENTRY: Final = struct.Struct("<IIIIQII")


class HeldPage:
    """Positions that tell what there is to look at when a set is written."""

    __slots__ = ("changed", "discarded", "figures", "idle_at", "touched")

    def __init__(self, figures: Figures | None = None, discarded: Discarded | None = None) -> None:
        self.figures = Figures() if figures is None else figures
        """Of all group queues; a page leads to them, so that a group queue is no larger for it."""
        self.discarded = Discarded() if discarded is None else discarded
        """Where a group queue leaves what it forgets; likewise."""
        self.changed = 0
        """Newest record that moved a cursor of the page, or made or ended a group queue."""
        self.touched = 0
        """Newest record that said something of rows in hand, or of rows that failed."""
        self.idle_at = 0
        """BEGIN of the newest set whose look found that nothing is owed; 0: there is none."""

    def idle(self) -> bool:
        """Return whether what that look found is still so: there are groups, owed nothing."""
        return self.changed < self.idle_at and self.touched < self.idle_at


def encode_page(queues: Iterable[GroupQueue]) -> bytes:
    """Return the cursors of group queues."""
    return b"".join(
        [
            ENTRY.pack(
                held.group, held.topic, held.queue, held.round, held.cursor,
                held.lines is not None, 0,
            )
            for held in queues
        ]
    )  # fmt: skip


def load_entry(held: GroupQueue, cursor: int, round_: int, stamp: int, *, ordered: bool) -> None:
    """Take over a cursor as it was at ``stamp``."""
    held.cursor, held.round = cursor, round_
    if ordered and held.lines is None:
        held.lines = Lines()
    held.admission.load_main(stamp)
