"""Plans a replay: queues of the archive with selected messages, their number, the transactions."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
import pyarrow.parquet as pq

from ternmq.model.errors import UnknownTopic
from ternmq.pipeline.archive.commit import ArchivedQueue
from ternmq.pipeline.archive.rewrite import may_have, queues_in, topics_in
from ternmq.pipeline.archive.schema import ARCHIVE
from ternmq.pipeline.replay.select import Counted, Reading, Selection
from ternmq.pipeline.tables.folder import Folder
from ternmq.pipeline.tables.table import Table

_ROWS: Final = 16_384
_BYTES: Final = 32 << 20


class Source(msgspec.Struct, frozen=True):
    """A queue of the archive with selected rows.

    Attributes:
        topic: Name of the topic.
        topic_number: Its number.
        queue: The queue.
        files: Paths, in the order of their rows, with the first and last selected offset of each.
        rows: Number of selected rows.
        stop: Offset after the last selected row.
        window: Offsets per transaction.
        queues: Queues of the topic, as far as the archive knows.
        first_us: When the first selected row was stored, µs since 1970.
        last_us: When the last one was.
    """

    topic: str
    topic_number: int
    queue: int
    files: tuple[tuple[str, int, int], ...]
    rows: int
    stop: int
    window: int
    queues: int
    first_us: int
    last_us: int

    def writer(self, name: str) -> str:
        """Return the writer of its transactions."""
        return f"replay/{name}/{self.topic_number}-{self.queue}"


def plan(tables: Folder, selection: Selection) -> list[Source]:
    """Return the queues of the archive with selected rows, and the number of these.

    Raises:
        TableError: There is no archive.
        UnknownTopic: The archive has no message of the topic.
        OptionError: A condition or expression fails.
    """
    table = Table.open(tables, ARCHIVE, create=False)
    every = [one for one in table.files() if may_have(one, selection.topic)]
    queues: dict[int, int] = {}
    for topic, number, queue in (at for one in every for at in queues_in(table.folder, one)):
        if topic == selection.topic:
            queues[number] = max(queues.get(number, 0), queue + 1)
    if not queues:
        raise _not_archived(table, selection.topic)
    reading = Reading(table.folder, selection)
    try:
        counted = reading.counts([one for one in every if selection.may_be_in(one)])
    finally:
        reading.close()
    counted.sort(key=lambda one: (one.topic_number, one.queue, one.first))
    found: list[Source] = []
    for (number, queue), some in itertools.groupby(
        counted, key=lambda one: (one.topic_number, one.queue)
    ):
        kept = list(some)
        row_bytes = _row_bytes(table.folder, {one.path for one in kept})
        place = ArchivedQueue(selection.topic, number, queue)
        found.append(_source(place, kept, queues[number], row_bytes))
    return found


def _row_bytes(folder: Folder, paths: Iterable[str]) -> int:
    """Return the bytes per row of the row group with the largest rows."""
    most = 0
    for path in paths:
        with folder.open(path) as source:
            known = pq.ParquetFile(source).metadata
        for number in range(known.num_row_groups):
            group = known.row_group(number)
            most = max(most, group.total_byte_size // max(1, group.num_rows))
    return most


def _source(place: ArchivedQueue, some: Sequence[Counted], queues: int, row_bytes: int) -> Source:
    rows = sum(one.rows for one in some)
    most = max(1, min(_ROWS, _BYTES // max(1, row_bytes)))
    spans = [(one.path, one.first, one.last) for one in some]
    stop = max(last for _, _, last in spans) + 1
    # A window of offsets that probably holds ``most`` selected rows.
    window = max(most, most * (stop - spans[0][1]) // max(1, rows))
    return Source(
        *place, tuple(spans), rows, stop, window, queues,
        min(one.first_us for one in some), max(one.last_us for one in some),
    )  # fmt: skip


def _not_archived(table: Table, topic: str) -> UnknownTopic:
    from difflib import get_close_matches  # for a wrong name only

    error = UnknownTopic(f"the archive has no message of topic {topic!r}")
    names = topics_in(table.folder, table.files())
    near = get_close_matches(topic, names, n=1, cutoff=0.6)
    if near:
        error.hint = f"did you mean {near[0]}?"
    else:
        error.hint = f"it has messages of {', '.join(names[:10])}" if names else "it is empty"
    return error


def places(tables: Folder, selection: Selection, sources: Sequence[Source]) -> dict[int, list[int]]:
    """Return the offsets of the selected rows, by queue; used to replay to a group."""
    table = Table.open(tables, ARCHIVE, create=False)
    paths = {path for one in sources for path, _, _ in one.files}
    wanted = {(one.topic_number, one.queue) for one in sources}
    reading = Reading(table.folder, selection)
    found: dict[int, list[int]] = {}
    try:
        # A file may have rows of a deleted topic of the same name, too.
        files = [one for one in table.files() if one.path in paths]
        for number, queue, offset in reading.offsets(files):
            if (number, queue) in wanted:
                found.setdefault(queue, []).append(offset)
    finally:
        reading.close()
    return found
