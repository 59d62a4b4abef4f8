"""The columnar batch: messages of one topic, with the same bytes on the wire and in the journal.

Everything about batches is imported from here. The modules, in reading order: ``layout`` (the
ruler, numbers), ``row``, ``encode`` (with ``columns`` and ``binary``),
``reader``, ``slice``, ``verify``. ``Batch``, ``Cutter`` and ``slice_batch`` expect bytes that
``verify`` accepted.
"""

from __future__ import annotations

from ternmq.record.batch.compress import Compression
from ternmq.record.batch.encode import encode, encode_bodies, encode_one
from ternmq.record.batch.layout import (
    HEADER,
    HEADER_BYTES,
    MAGIC,
    MAX_APPLICATION_ID_BYTES,
    MAX_COUNT,
    NUMPY_FROM,
    VERSION,
    BatchError,
    BatchFlag,
    Column,
    flags_of,
    topic_seed,
)
from ternmq.record.batch.reader import Batch
from ternmq.record.batch.row import Row
from ternmq.record.batch.slice import Cutter, slice_batch, uncompressed
from ternmq.record.batch.verify import verify

__all__ = [
    "HEADER", "HEADER_BYTES", "MAGIC", "MAX_APPLICATION_ID_BYTES", "MAX_COUNT", "NUMPY_FROM",
    "VERSION", "Batch", "BatchError", "BatchFlag", "Column", "Compression", "Cutter", "Row",
    "encode", "encode_bodies", "encode_one", "flags_of", "slice_batch", "topic_seed",
    "uncompressed", "verify",
]  # fmt: skip
