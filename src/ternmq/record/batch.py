"""The columnar batch: messages of one topic, as they travel, rest in the journal and meet Arrow.

Everything about batches is imported from here. Where it is, in reading order: ``batch_layout`` (the
ruler, numbers), ``row``, ``batch_encode`` (with ``batch_columns`` and ``batch_binary``),
``batch_reader``, ``batch_slice``, ``batch_verify``. ``Batch`` and ``slice_batch`` trust what
``verify`` accepted.
"""

from __future__ import annotations

from ternmq.record.batch_encode import encode, encode_bodies, encode_one
from ternmq.record.batch_layout import (
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
from ternmq.record.batch_reader import Batch
from ternmq.record.batch_slice import slice_batch, uncompressed
from ternmq.record.batch_verify import verify
from ternmq.record.compress import Compression
from ternmq.record.row import Row

__all__ = [
    "HEADER", "HEADER_BYTES", "MAGIC", "MAX_APPLICATION_ID_BYTES", "MAX_COUNT", "NUMPY_FROM",
    "VERSION", "Batch", "BatchError", "BatchFlag", "Column", "Compression", "Row",
    "encode", "encode_bodies", "encode_one", "flags_of", "slice_batch", "topic_seed",
    "uncompressed", "verify",
]  # fmt: skip
