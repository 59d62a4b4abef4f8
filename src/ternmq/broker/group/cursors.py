"""The cursors of group queues in STATE: entries of HELD, and of GIVEN, which belongs to them.

GIVEN has only the group queues that were given more than the rows from offset 0 to their cursor;
see `given`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from ternmq.broker.group.given import NOTHING, UNKNOWN, Given
from ternmq.broker.group.mode import GroupMode
from ternmq.broker.group.progress import Progress
from ternmq.record.fact.facts import SPAN, Span
from ternmq.record.fact.state import CURSOR, GIVEN_HEAD

_KNOWN: Final = 1


def encode_page(queues: Iterable[Progress]) -> bytes:
    """Return the cursors of group queues, packed for STATE."""
    return b"".join(
        [
            CURSOR.pack(
                progress.group, progress.topic, progress.queue, progress.round, progress.cursor,
                progress.mode.number, _KNOWN,
            )
            for progress in queues
        ]
    )  # fmt: skip


def load_entry(
    progress: Progress, cursor: int, round_: int, stamp: int, mode: GroupMode, known: int
) -> None:
    """Load a cursor as it was at ``stamp``."""
    progress.cursor, progress.round = cursor, round_
    if progress.mode is not mode:
        progress.mode, progress.order = mode, mode.new_order()
    progress.admission.load_main(stamp)
    if round_ and not known:
        # An older broker wrote it. It may have been reset from any offset, so that any row that is
        # stored by now may have been given to it.
        progress.given = UNKNOWN
        progress.page.gives = True


def encode_given(queues: Iterable[Progress]) -> bytes:
    """Return what group queues were given before, packed for STATE; empty if there is nothing."""
    parts: list[bytes] = []
    for progress in queues:
        given = progress.given
        if given == NOTHING:
            continue
        parts.append(
            GIVEN_HEAD.pack(
                progress.group, progress.topic, progress.queue, len(given.earlier),
                len(given.others), given.since,
            )
        )  # fmt: skip
        parts += [SPAN.pack(*span) for span in (*given.earlier, *given.others)]
    return b"".join(parts)


def given_entries(payload: bytes) -> Iterator[tuple[int, int, int, Given]]:
    """Yield the entries of GIVEN: group, topic, queue, what they were given before."""
    at = 0
    while at < len(payload):
        group, topic, queue, earlier, others, since = GIVEN_HEAD.unpack_from(payload, at)
        at += GIVEN_HEAD.size
        spans: list[Span] = []
        for _ in range(earlier + others):
            start, stop = SPAN.unpack_from(payload, at)
            spans.append((start, stop))
            at += SPAN.size
        yield group, topic, queue, Given(since, tuple(spans[:earlier]), tuple(spans[earlier:]))
