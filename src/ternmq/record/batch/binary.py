"""Packing, cutting and decoding ``binary`` columns: strings and bytes in Arrow's layout.

``n + 1`` i32 offsets into the bytes that follow, the first 0, none below the one before.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Sequence

from ternmq.record.batch.layout import I32_PAIR, NUMPY_FROM, U32_PAIR


def pack_offsets(values: Sequence[bytes]) -> bytes:
    """Return the offsets of a column of these values.

    Raises:
        ValueError: The values have 2 GiB or more together.
    """
    try:
        return struct.pack(
            f"<{len(values) + 1}i", *itertools.accumulate(map(len, values), initial=0)
        )
    except struct.error as error:
        raise ValueError("a column comes to 2 GiB or more") from error


def pack_binary(values: Sequence[bytes]) -> bytes:
    """Return a column of these values; raises as ``pack_offsets`` does."""
    return b"".join((pack_offsets(values), *values))


def pack_one(value: bytes) -> bytes:
    """Return a column of one value."""
    return I32_PAIR.pack(0, len(value)) + value


def pack_dictionary(entries: Sequence[bytes]) -> bytes:
    """Return a tag dictionary: the number of entries, and their column."""
    return U32_PAIR.pack(len(entries), 0) + pack_binary(entries)


def decode_texts(content: bytes, offsets: tuple[int, ...]) -> list[str]:
    """Return the texts between the offsets.

    Raises:
        UnicodeDecodeError: A text is not UTF-8.
    """
    if content.isascii():
        text = content.decode()
        return [text[a:b] for a, b in itertools.pairwise(offsets)]
    return [content[a:b].decode() for a, b in itertools.pairwise(offsets)]


def binary_end(data: bytes, start: int, entries: int) -> int:
    """Return the end of a column that begins at ``start`` and has ``entries`` entries."""
    (last,) = struct.unpack_from("<i", data, start + 4 * entries)
    end: int = start + 4 * (entries + 1) + last
    return end


def slice_binary(data: bytes, place: int, count: int, start: int, stop: int) -> bytes:
    """Return the entries ``[start, stop)`` of the column at ``place``, which has ``count``."""
    rows = stop - start
    base = place + 4 * (count + 1)
    offsets: bytes
    if rows >= NUMPY_FROM:
        import numpy as np  # imported here: see NUMPY_FROM

        old = np.frombuffer(data, "<i4", rows + 1, place + 4 * start)
        first, last = int(old[0]), int(old[-1])
        offsets = (old - old[0]).astype("<i4").tobytes()
    else:
        olds = struct.unpack_from(f"<{rows + 1}i", data, place + 4 * start)
        first, last = int(olds[0]), int(olds[-1])
        offsets = struct.pack(f"<{rows + 1}i", *[old - first for old in olds])
    return offsets + data[base + first : base + last]
