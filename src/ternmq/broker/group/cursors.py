"""The cursors of group queues in STATE: entries of HELD."""

from __future__ import annotations

from collections.abc import Iterable

from ternmq.broker.group.mode import GroupMode
from ternmq.broker.group.progress import Progress
from ternmq.record.fact.state import CURSOR


def encode_page(queues: Iterable[Progress]) -> bytes:
    """Return the cursors of group queues, packed for STATE."""
    return b"".join(
        [
            CURSOR.pack(
                progress.group, progress.topic, progress.queue, progress.round, progress.cursor,
                progress.mode.number, 0,
            )
            for progress in queues
        ]
    )  # fmt: skip


def load_entry(progress: Progress, cursor: int, round_: int, stamp: int, mode: GroupMode) -> None:
    """Load a cursor as it was at ``stamp``."""
    progress.cursor, progress.round = cursor, round_
    if progress.mode is not mode:
        progress.mode, progress.order = mode, mode.new_order()
    progress.admission.load_main(stamp)
