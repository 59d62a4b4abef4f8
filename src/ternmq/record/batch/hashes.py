"""The hashes in batches; which hash is used is part of the format.

``xxh3_64`` with seed 0 for keys, ordering keys and bodies; ``xxh3_128`` with seed 0 for application
ids. Both are computed over bytes (UTF-8 for text). The hash of an absent (empty) text is 0, so that
a row without a key is recognised without reading the key column.

The producer computes them; the broker indexes and routes by them and does not compute them again.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from xxhash import xxh3_64_intdigest, xxh3_128_digest, xxh3_128_intdigest

NO_HASH: Final = 0
"""Hash of an absent text."""

NO_APPLICATION_ID: Final = bytes(16)
_LOW_64: Final = 2**64 - 1


def key_hash(key: bytes) -> int:
    """Return the u64 by which a key or an ordering key is indexed; 0 for an empty one."""
    return xxh3_64_intdigest(key) if key else NO_HASH


def body_hash(body: bytes) -> int:
    """Return the u64 that distinguishes two bodies with one application id; not 0 if empty."""
    return xxh3_64_intdigest(body)


def application_id_hash(application_id: bytes) -> tuple[int, int]:
    """Return (low, high) u64 of an application id's hash; (0, 0) for an empty one."""
    if not application_id:
        return (NO_HASH, NO_HASH)
    digest = xxh3_128_intdigest(application_id)
    return (digest & _LOW_64, digest >> 64)


def key_hash_column(keys: Sequence[bytes]) -> bytes:
    """Return the u64 column of many keys, little-endian."""
    return struct.pack(f"<{len(keys)}Q", *map(key_hash, keys))


def body_hash_column(bodies: Sequence[bytes]) -> bytes:
    """Return the u64 column of many bodies, little-endian."""
    return struct.pack(f"<{len(bodies)}Q", *map(xxh3_64_intdigest, bodies))


def application_id_hash_column(application_ids: Sequence[bytes]) -> bytes:
    """Return the 16-byte column of many application ids: u64 low, u64 high, little-endian."""
    # The digest is big-endian, high half first: reversed, it has the layout's order.
    return b"".join(
        [xxh3_128_digest(one)[::-1] if one else NO_APPLICATION_ID for one in application_ids]
    )
