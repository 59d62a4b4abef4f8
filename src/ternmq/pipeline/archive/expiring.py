"""Removes the old messages of one topic from the archive.

Files with nothing else leave the table without being read; files that other topics share are
rewritten without the topic's rows.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from ternmq.pipeline.archive.rewrite import may_have, queues_in, rewritten
from ternmq.pipeline.tables.datafile import DataFile
from ternmq.pipeline.tables.retention import oldest_kept
from ternmq.pipeline.tables.table import Table, deciding_anew


def expire_topic(table: Table, now_us: int, keep_days: int, topic: str) -> list[DataFile]:
    """Remove the messages of a topic that are older than ``keep_days``; return the replaced files.

    They stay in the folder until they are cleaned up.

    Args:
        table: The archive.
        now_us: Now, µs since 1970.
        keep_days: Days to keep besides today; 0 or more.
        topic: Name of the topic.
    """
    oldest = oldest_kept(now_us, keep_days)

    def others(rows: pa.RecordBatch) -> pa.Array:
        return pc.not_equal(rows.column("topic"), topic)

    def attempt() -> list[DataFile]:
        old: list[DataFile] = []
        new: list[DataFile] = []
        for one in table.files():
            if one.partition["day"] >= oldest or not may_have(one, topic):
                continue
            topics = {name for name, _, _ in queues_in(table.folder, one)}
            if topic in topics:
                old.append(one)
                new += rewritten(table.folder, [one], others) if len(topics) > 1 else []
        table.commit(new, old)
        return old

    table.refresh()
    return deciding_anew(table, attempt)
