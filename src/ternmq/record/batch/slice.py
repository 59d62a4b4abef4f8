"""Cutting rows out of a batch, and decompressing its bodies; rows are not decoded."""

from __future__ import annotations

from ternmq.record.batch.binary import binary_end, pack_binary, slice_binary
from ternmq.record.batch.columns import Columns
from ternmq.record.batch.layout import (
    BODIES,
    CONSTANT,
    CONSTANT_MASK,
    KEYED,
    SLICE,
    TAG_DICTIONARY,
    U32_PAIR,
    WIDTHS,
)
from ternmq.record.batch.reader import Batch


def slice_batch(batch: bytes, start: int, stop: int, topic_seed: int) -> bytes:
    """Return rows ``[start, stop)`` as a batch with the SLICE flag and a CRC of its own.

    Ids and born time stay the same; constant columns and the tag dictionary are copied whole. If
    all rows are requested, the batch itself is returned.

    Args:
        batch: A batch that ``verify`` accepted.
        start: First row.
        stop: Row after the last.
        topic_seed: Result of ``topic_seed`` for the topic's name.

    Raises:
        ValueError: The batch is compressed, or the rows are not a non-empty part of it.
    """
    whole = Batch(batch)
    if whole.compression:
        raise ValueError("a compressed batch can only be passed on whole")
    if not 0 <= start < stop <= whole.count:
        raise ValueError(f"rows {start} to {stop} of {whole.count}")
    if stop - start == whole.count:
        return batch
    return _part(whole, start, stop, topic_seed)


def uncompressed(batch: bytes, topic_seed: int) -> bytes:
    """Return a batch with uncompressed bodies, so that ``slice_batch`` can cut it.

    A compressed batch gets the SLICE flag and a new CRC; any other is returned unchanged.

    Args:
        batch: A batch that ``verify`` accepted.
        topic_seed: Result of ``topic_seed`` for the topic's name.

    Raises:
        BatchError: The compressed bodies are damaged.
    """
    whole = Batch(batch)
    if not whole.compression:
        return batch
    return _part(whole, 0, whole.count, topic_seed)


def _part(whole: Batch, start: int, stop: int, topic_seed: int) -> bytes:
    """Return rows ``[start, stop)`` as a slice, with uncompressed bodies."""
    batch = whole.data
    part = Columns(stop - start)
    flags = whole.flags
    constants = flags >> CONSTANT & CONSTANT_MASK
    for column in range(BODIES + 1):
        if not flags >> column & 1:
            continue
        place = whole.start(column)
        width = WIDTHS.get(column)
        if column == TAG_DICTIONARY:
            (entries, _) = U32_PAIR.unpack_from(batch, place)
            part.add(column, batch[place : binary_end(batch, place + 8, entries)])
        elif constants >> column & 1:
            end = place + width if width else binary_end(batch, place, 1)
            part.constant(column, batch[place:end])
        elif column == BODIES and whole.compression:
            part.add(column, pack_binary(whole.bodies()[start:stop]))
        elif width:
            part.add(column, batch[place + width * start : place + width * stop])
        else:
            part.add(column, slice_binary(batch, place, whole.count, start, stop))
    part.flags |= flags & KEYED | SLICE
    return part.batch(topic_seed, whole.producer_id, whole.first_sequence + start, whole.born_us)
