"""The facts of stored batches that the index and deduplication keep.

The broker computes them here when it applies a record, and ``feed`` when it rebuilds the
index from the journal: one formula, so both always have the same result.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from functools import lru_cache
from typing import Final, NamedTuple

from xxhash import xxh3_64_intdigest

from ternmq.record.batch.batch import HEADER, Batch
from ternmq.record.batch.layout import (
    APPLICATION_ID_HASH,
    CONSTANT,
    KEY_HASH,
    TAG_CODES,
    TAG_DICTIONARY,
    U32,
    U32_PAIR,
    start_at,
)
from ternmq.record.batch.reader import tags_of
from ternmq.record.fact.moved import Moved

_TAGGED: Final = 1 << TAG_CODES
_KEYED: Final = 1 << KEY_HASH
_NAMED: Final = 1 << APPLICATION_ID_HASH
_LOOKED_AT: Final = _TAGGED | _KEYED | _NAMED
_ONE_KEY: Final = _KEYED << CONSTANT
_KEYS_START_AT: Final = start_at(0, KEY_HASH)
"""It is the first column, so this does not depend on the flags."""
_KEPT_DICTIONARIES: Final = 256
_KEPT_BYTES: Final = 1024
"""Largest dictionary of tags whose mask is kept: all of them take 256 KiB."""
_NOTHING: Final = b""
_new: Final = tuple.__new__


class BatchFacts(NamedTuple):
    """The facts of one stored batch.

    Attributes:
        producer_id: Producer id of its rows' message ids.
        first_sequence: Sequence of its first row.
        rows: Number of its rows, also those that were left out.
        crc: CRC of the batch, as its producer computed it.
        tag_mask: Bloom of the tags, see ``mask_of``; 0 without any.
        key_hashes: u64 per row, 0 for a row without key; empty when no row has one.
        ids: Hashes of application ids: u128 (low, high) per row, likewise.
    """

    producer_id: int
    first_sequence: int
    rows: int
    crc: int
    tag_mask: int
    key_hashes: bytes
    ids: bytes


class CopyFacts(NamedTuple):
    """The facts of the copies in one MOVED record, in the order of its rows.

    Attributes:
        topic: Topic number.
        queue: Number within the topic.
        offsets: u64 per row.
        producers: u64 per row; with ``sequences``, the ids under which the messages were sent.
        sequences: u64 per row.
        key_hashes: As in ``BatchFacts``.
        ids: As in ``BatchFacts``.
    """

    topic: int
    queue: int
    offsets: array[int]
    producers: array[int]
    sequences: array[int]
    key_hashes: bytes
    ids: bytes


def mask_of(tags: Iterable[str]) -> int:
    """Return the mask with one bit for each tag: bit ``xxh3_64(tag) % 64``."""
    mask = 0
    for tag in tags:
        if tag:
            mask |= 1 << (xxh3_64_intdigest(tag.encode()) & 63)
    return mask


def facts_of(batch: bytes) -> BatchFacts:
    """Return the facts of a stored batch; about 1 us.

    It reads the columns by their layout: a ``Batch`` would take 5 us, and a start computes the
    facts of each batch of the last segment.
    """
    _, crc, _, _, _, _, flags, rows, producer_id, first_sequence, _ = HEADER.unpack_from(batch)
    mask, keys, ids = 0, _NOTHING, _NOTHING
    if flags & _LOOKED_AT:
        if flags & _KEYED:
            start = U32.unpack_from(batch, _KEYS_START_AT)[0]
            if flags & _ONE_KEY:
                keys = batch[start : start + 8] * rows
            else:
                keys = batch[start : start + 8 * rows]
        if flags & _TAGGED:
            # The next column begins where the dictionary ends: the bodies are always present.
            start, stop = U32_PAIR.unpack_from(batch, start_at(flags, TAG_DICTIONARY))
            dictionary = batch[start:stop]
            if stop - start <= _KEPT_BYTES:
                mask = _mask_of_dictionary(dictionary)
            else:  # a tag of its own for each message: it will not come again
                mask = mask_of(tags_of(dictionary))
        if flags & _NAMED:
            start = U32.unpack_from(batch, start_at(flags, APPLICATION_ID_HASH))[0]
            ids = batch[start : start + 16 * rows]
    return _new(BatchFacts, (producer_id, first_sequence, rows, crc, mask, keys, ids))


@lru_cache(_KEPT_DICTIONARIES)
def _mask_of_dictionary(dictionary: bytes) -> int:
    """Return the mask of a column of tags; most batches of a topic have one of a few."""
    return mask_of(tags_of(dictionary))


def facts_of_moved(moved: Moved) -> CopyFacts:
    """Return the facts of the copies in a MOVED record; about 3 us for each piece."""
    offsets, producers, sequences = array("Q"), array("Q"), array("Q")
    keys: list[bytes] = []
    ids: list[bytes] = []
    for piece in moved.pieces:
        batch = Batch(piece.batch)
        start, count = piece.row_start, piece.row_count
        stop = start + count
        first = batch.first_sequence
        offsets.extend(range(piece.first_offset, piece.first_offset + count))
        producers.extend([batch.producer_id] * count)
        sequences.extend(range(first + start, first + stop))
        keys.append(batch.key_hash_bytes()[8 * start : 8 * stop] or bytes(8 * count))
        ids.append(batch.application_id_hash_bytes()[16 * start : 16 * stop] or bytes(16 * count))
    return CopyFacts(
        moved.topic,
        moved.queue,
        offsets,
        producers,
        sequences,
        _unless_blank(keys),
        _unless_blank(ids),
    )


def _unless_blank(hashes: list[bytes]) -> bytes:
    joined = b"".join(hashes)
    return joined if any(joined) else _NOTHING
