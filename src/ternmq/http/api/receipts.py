"""Receipts of leased messages: what a settle over HTTP needs, as one opaque word.

Ruler, before base64url without padding (43 characters)::

     0  u8 version (1), u8 0, u16 queue, u32 epoch
     8  u64 lease, u64 offset
    24  u32 topic number
    28  u32 crc32c of bytes 0..28 and the names of topic and group

The checksum finds receipts that were cut or are used for another group. It is no signature: who may
consume in a group may settle what is leased there.
"""

from __future__ import annotations

import base64
import binascii
from struct import Struct
from typing import Final

from google_crc32c import value as crc32c

from ternmq.http.api.detached import Place
from ternmq.model.errors import InvalidRequest

_VERSION: Final = 1
_PLACE: Final = Struct("<BBHIQQI")
_SUM: Final = Struct("<I")
LENGTH: Final = 43


def pack(place: Place, topic: str, group: str) -> str:
    """Return the receipt of a leased message."""
    data = _PLACE.pack(
        _VERSION, 0, place.queue, place.epoch, place.lease, place.offset, place.topic
    )
    whole = data + _SUM.pack(_sum(data, topic, group))
    return base64.urlsafe_b64encode(whole).rstrip(b"=").decode()


def unpack(text: object, topic: str, group: str) -> Place:
    """Return the place that a receipt names.

    Raises:
        InvalidRequest: It is no receipt, or one of another topic or group.
    """
    if not isinstance(text, str) or len(text) != LENGTH:
        raise InvalidRequest(f"a receipt has {LENGTH} characters: {str(text)[:60]!r} has not")
    try:
        whole = base64.b64decode(text.encode("ascii") + b"=", altchars=b"-_", validate=True)
    except (binascii.Error, UnicodeEncodeError) as error:
        raise InvalidRequest(f"{text!r} is no receipt") from error
    data = whole[: _PLACE.size]
    if _sum(data, topic, group) != _SUM.unpack(whole[_PLACE.size :])[0]:
        raise InvalidRequest(
            f"{text!r} is no receipt of group {group!r} on topic {topic!r}, or was changed"
        )
    version, _, queue, epoch, lease, offset, number = _PLACE.unpack(data)
    if version != _VERSION:
        raise InvalidRequest(f"a receipt of version {version}: a newer version made it")
    return Place(number, queue, epoch, lease, offset)


def _sum(data: bytes, topic: str, group: str) -> int:
    return int(crc32c(b"\0".join((data, topic.encode(), group.encode()))))
