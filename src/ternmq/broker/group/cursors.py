"""The cursors of group queues in STATE: entries of HELD."""

from __future__ import annotations

from collections.abc import Iterable

from ternmq.broker.group.mode import GroupMode
from ternmq.broker.group.progress import GroupQueue
from ternmq.record.fact.state import CURSOR


def encode_page(queues: Iterable[GroupQueue]) -> bytes:
    """Return the cursors of group queues, packed for STATE."""
    return b"".join(
        [
            CURSOR.pack(
                held.group, held.topic, held.queue, held.round, held.cursor,
                held.mode.number, 0,
            )
            for held in queues
        ]
    )  # fmt: skip


def load_entry(held: GroupQueue, cursor: int, round_: int, stamp: int, mode: GroupMode) -> None:
    """Load a cursor as it was at ``stamp``."""
    held.cursor, held.round = cursor, round_
    if held.mode is not mode:
        held.mode, held.order = mode, mode.new_order()
    held.admission.load_main(stamp)
