"""The tables of the archive, and what their columns mean.

A change of a table's columns raises its version, here and in ``docs/reference/tables.md``; each row
stores the version that wrote it.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from ternmq.pipeline.tables.datafile import TableSpec

INSTANT: Final = pa.timestamp("us", tz="UTC")

ARCHIVE: Final = TableSpec(
    name="archive",
    version=1,
    schema=pa.schema(
        [
            ("topic", pa.string()),
            ("topic_number", pa.int64()),
            ("queue", pa.int32()),
            ("offset", pa.int64()),
            ("message_id", pa.string()),
            ("producer_id", pa.int64()),
            ("sequence", pa.int64()),
            ("key", pa.string()),
            ("ordering_key", pa.string()),
            ("tag", pa.string()),
            ("content_type", pa.string()),
            ("application_id", pa.string()),
            ("born_time", INSTANT),
            ("stored_time", INSTANT),
            ("position", pa.int64()),
            # After the columns for look-up: DuckDB uses no bloom filter of a column after a map.
            ("headers", pa.map_(pa.string(), pa.string())),
            ("body", pa.binary()),
            ("body_crc", pa.int64()),
            ("day", pa.date32()),
            ("schema_version", pa.int32()),
        ]
    ),
    partition_by=("topic", "day"),
    bounds=("topic_number", "queue", "offset", "stored_time", "born_time", "position"),
)
"""One row for each message. ``topic_number`` distinguishes a topic from a deleted one of the same
name; ``body_crc`` is the CRC32C of the body; ``day`` is that of the stored time, in UTC;
``producer_id`` and ``sequence`` are unsigned numbers in signed columns, ``message_id`` is the text
of both. Empty texts and headers are null."""

GAPS: Final = TableSpec(
    name="archive_gaps",
    version=1,
    schema=pa.schema(
        [
            ("topic", pa.string()),
            ("topic_number", pa.int64()),
            ("queue", pa.int32()),
            ("start", pa.int64()),
            ("stop", pa.int64()),
            ("cause", pa.string()),
            ("noted_time", INSTANT),
            ("schema_version", pa.int32()),
        ]
    ),
)
"""Rows ``[start, stop)`` that never reached the archive. ``cause``: ``before`` (they were gone when
the archive began with that queue) or ``expired`` (retention removed them first)."""

ERASED: Final = TableSpec(
    name="erased",
    version=1,
    schema=pa.schema(
        [
            ("topic", pa.string()),
            ("topic_number", pa.int64()),
            ("queue", pa.int32()),
            ("offset", pa.int64()),
            ("message_id", pa.string()),
            ("stored_time", INSTANT),
            ("request", pa.string()),
            ("reason", pa.string()),
            ("erased_time", INSTANT),
            ("schema_version", pa.int32()),
        ]
    ),
)
"""Messages that were removed from the archive on request: only the fact that they existed. Neither
key nor body, nor anything derived from them, is stored here."""
