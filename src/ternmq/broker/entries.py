"""What the index wants to know of a stored batch, besides where it stands."""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from ternmq.broker.filter import mask_of
from ternmq.record.batch import HEADER, Batch, Column

_TAGGED = 1 << Column.TAG_CODES
_KEYED = 1 << Column.KEY_HASH
_NAMED = 1 << Column.APPLICATION_ID_HASH
_LOOKED_AT = _TAGGED | _KEYED | _NAMED
_NOTHING = b""
_ID: Final = struct.Struct("<QQ")


class BatchFacts(NamedTuple):
    """Of one stored batch."""

    producer_id: int
    first_sequence: int
    rows: int
    crc: int
    tag_mask: int
    key_hashes: bytes
    ids: bytes


def facts_of(batch: bytes) -> BatchFacts:
    """Return what index and deduplication keep of a batch; below 1 us without tags and keys."""
    _, crc, _, _, _, _, flags, rows, producer_id, first_sequence, _ = HEADER.unpack_from(batch)
    if not flags & _LOOKED_AT:
        return BatchFacts(producer_id, first_sequence, rows, crc, 0, _NOTHING, _NOTHING)
    reader = Batch(batch)
    mask = mask_of(reader.tag_dictionary()) if flags & _TAGGED else 0
    hashes = reader.key_hash_bytes() if flags & _KEYED else _NOTHING
    ids = _NOTHING
    if flags & _NAMED:
        ids = b"".join([_ID.pack(low, high) for low, high in reader.application_ids()])
    return BatchFacts(producer_id, first_sequence, rows, crc, mask, hashes, ids)
