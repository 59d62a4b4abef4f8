"""STATE: the frames of a set of objects; ``state`` has the objects.

Ruler of the body::

     0  u64 begin   position of the set's BEGIN record (0 in BEGIN itself)
     8  u8  part    1 BEGIN, 2 CHUNK, 3 DIRECTORY, 4 END
     9  u8 0, u16 0
    12  u32 count   of the entries that follow
    16  CHUNK:     count x (24-byte key, u32 length, u32 0, payload, zero padding to 8)
        DIRECTORY: count x (24-byte key, u64 position of the chunk)
        END:       count x u64 position of a DIRECTORY record, then u64 smallest position named

A key is u32 type, u32, u32, u32, u64; the views define what it names.
"""

from __future__ import annotations

import struct
from typing import Final

from ternmq.record.fact.header import HEADER_BYTES

HEAD: Final = struct.Struct("<QBBHI")
KEY: Final = struct.Struct("<IIIIQ")
OBJECT: Final = struct.Struct("<24sII")
"""An entry of CHUNK, in front of its payload."""
NAMED: Final = struct.Struct("<24sQ")
"""An entry of DIRECTORY."""
POSITION: Final = struct.Struct("<Q")

BEGIN: Final = 1
CHUNK: Final = 2
DIRECTORY: Final = 3
END: Final = 4

assert (HEAD.size, KEY.size, HEADER_BYTES) == (16, 24, 48)
