"""The tables of the archive, and what their columns mean.

A change of a table's columns raises its version; each row stores the version that wrote it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pyarrow as pa

from ternmq.pipeline.tables.spec import INSTANT, VERSION, Column, TableSpec, unsigned

TEXTS: Final = pa.map_(pa.string(), pa.string())
PLACE: Final = (
    Column("topic", pa.string(), "name of the topic"),
    Column(
        "topic_number",
        pa.int64(),
        "number of the topic; it distinguishes a topic from a deleted one of the same name",
    ),
    Column("queue", pa.int32(), "number of the queue"),
    Column("offset", pa.int64(), "offset in the queue"),
)
"""The columns that identify a message."""
ID: Final = Column("message_id", pa.string(), "`producer:sequence`, as receipts show it")

ARCHIVE: Final = TableSpec(
    name="archive",
    version=2,
    columns=(
        # The logs of converted tables have files without it, so it cannot be declared as required.
        replace(PLACE[0], about="name of the topic; never null", null=True),
        *PLACE[1:],
        ID,
        unsigned("producer_id", "first half of the id"),
        unsigned("sequence", "second half of the id"),
        Column("key", pa.string(), "the key", null=True),
        Column("ordering_key", pa.string(), "the ordering key", null=True),
        Column("tag", pa.string(), "the tag", null=True),
        Column("content_type", pa.string(), "the content type", null=True),
        Column("application_id", pa.string(), "the id that the sender gave the message", null=True),
        Column(
            "born_time", INSTANT, "time at which the sender sent the message, by the sender's clock"
        ),
        Column("stored_time", INSTANT, "time at which the broker stored the message"),
        Column("position", pa.int64(), "position of the message's record in the journal"),
        # After the columns for look-up: DuckDB uses no bloom filter of a column after a map.
        Column("headers", TEXTS, "the headers", null=True),
        Column("body", pa.binary(), "the body"),
        Column("body_crc", pa.int64(), 'CRC32C of the body, as `crc` of `format("ternmq")`'),
        Column("day", pa.date32(), "day of `stored_time`, in UTC"),
        VERSION,
    ),
    partition_by=("day",),
    bounds=("topic", "topic_number", "queue", "offset", "stored_time", "born_time", "position"),
)
"""One row for each message. Version 1 was also partitioned by topic."""

GAPS: Final = TableSpec(
    name="archive_gaps",
    version=2,
    columns=(
        *PLACE[:3],
        Column("start", pa.int64(), "offset of the first missing message"),
        Column("stop", pa.int64(), "offset after the last one"),
        Column(
            "cause",
            pa.string(),
            "`before`: the messages were no longer kept when the archive started with this queue; "
            "`expired`: retention removed them before they were archived",
        ),
        Column("noted_time", INSTANT, "time at which the gap was recorded"),
        VERSION,
    ),
)
"""Rows ``[start, stop)`` that never reached the archive."""

ERASED: Final = TableSpec(
    name="erased",
    version=2,
    columns=(
        *PLACE,
        ID,
        Column("stored_time", INSTANT, "time at which the broker stored the message"),
        Column("request", pa.string(), "name of the request"),
        Column("reason", pa.string(), "reason of the request"),
        Column("erased_time", INSTANT, "time at which the message was erased"),
        VERSION,
    ),
)
"""Messages that were removed from the archive on request: only the fact that they existed. Neither
key nor body, nor anything derived from them, is stored here."""
