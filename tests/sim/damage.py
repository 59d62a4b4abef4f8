"""Damage at rest: bits that flip, records that go blank, a stale record behind the end.

What was durable and is damaged must stop the start, never be cut off in silence; what was never
durable may be cut, and then exactly there; a record that does not chain to the one before it is not
believed, however whole it is.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Mapping
from typing import Final

from google_crc32c import value as crc32c

from ternmq.broker.start import Started, open_broker
from ternmq.journal.index import idx_file
from ternmq.journal.log.scan import RawRecord
from ternmq.model.errors import CorruptJournal
from ternmq.record.fact.header import HEADER, HEADER_BYTES, MAGIC, VERSION, Kind
from tests.sim.checks import Known, check_views
from tests.sim.disk import ImageDisk
from tests.sim.tape import Violation

RECENT: Final = 40
"""Half of the damage is done to one of so many newest records: that is where D is decided."""
_HEAD_LENGTH_AT: Final = 12
_CHAIN_AT: Final = 40


def damage(known: Known, files: Mapping[str, bytes], end: int, chance: random.Random) -> str:
    """Damage one record of an image whose records end at ``end``, and start on that.

    Returns:
        What came of it: the name of a path.

    Raises:
        Violation: durable records were cut off, or the state is not what is left says.
    """
    first = min((int(name[8:28]) for name in files if name.endswith(".seg")), default=0)
    records = [one for one in known.tape.records if first <= one.position and one.end <= end]
    if len(records) < 2:
        return "damage: nothing to damage"
    newest = records[-RECENT:] if chance.random() < 0.5 else records
    hurt = chance.choice(newest)
    files = dict(files)
    _hurt(files, known.tape.segment_size, hurt, chance)
    durable = max(one.durable for one in records if one is not hurt)
    try:
        started = _start(files, known, chance)
    except CorruptJournal:
        return "damage: refused"
    report = started.report
    if not report.fresh and report.start > hurt.position:
        if report.valid_end != end:
            raise Violation(f"damage at {hurt.position} moved the end to {report.valid_end}")
        check_views(known, started, known.tape.count_below(end))
        return "damage: before what is read"
    if hurt.position < durable or (report.fresh and durable > 0):
        raise Violation(
            f"the {Kind(hurt.kind).name} at {hurt.position} was damaged, {durable} was durable; "
            f"it starts and ends at {report.valid_end}"
        )
    if report.valid_end != hurt.position:
        raise Violation(f"damaged at {hurt.position}, it ends at {report.valid_end}")
    check_views(known, started, known.tape.count_below(hurt.position))
    return "damage: cut"


def _hurt(files: dict[str, bytes], size: int, record: RawRecord, chance: random.Random) -> None:
    base = record.position - record.position % size
    name = f"journal/{base:020d}.seg"
    at = record.position - base
    length = HEADER_BYTES if record.kind == Kind.PAD else record.length
    data = bytearray(files[name])
    if chance.random() < 0.3:
        data[at : at + length] = bytes(length)
    else:
        data[at + chance.randrange(length)] ^= 1 << chance.randrange(8)
    files[name] = bytes(data)


def stale(known: Known, files: Mapping[str, bytes], end: int, chance: random.Random) -> str:
    """Put a whole record of another history behind the end, and start on that.

    Raises:
        Violation: it was believed.
    """
    size = known.tape.segment_size
    count = known.tape.count_below(end)
    offset = end % size
    length = HEADER_BYTES + 8
    if not count or not offset or size - offset < length + HEADER_BYTES:
        return "damage: no place for a stale record"
    last = known.tape.records[count - 1]
    body = struct.pack("<Q", 0)
    rest = HEADER.pack(
        0, MAGIC, length, VERSION, Kind.MARK, 0, end, 0, last.time_us, last.epoch, last.crc ^ 1
    )[4:]
    record = struct.pack("<I", crc32c(rest + body)) + rest + body
    name = f"journal/{end - offset:020d}.seg"
    data = bytearray(files[name])
    data[offset:] = bytes(size - offset)
    data[offset : offset + length] = record
    started = _start({**files, name: bytes(data)}, known, chance)
    if started.report.valid_end != end:
        raise Violation(f"a stale record at {end} is believed")
    return "damage: stale record"


def stale_index(known: Known, files: Mapping[str, bytes], chance: random.Random) -> str:
    """Turn an index file into one of another history, as a lost unlink brings it back.

    Such a file is whole, and the journal has records wherever it says; only the chain of CRCs tells
    that they are others.

    Raises:
        Violation: it was believed.
    """
    names = [name for name in files if name.startswith("index/") and _is_index(files[name])]
    if not names:
        return "damage: no index file"
    name = chance.choice(names)
    data = bytearray(files[name])
    (length,) = struct.unpack_from("<I", data, _HEAD_LENGTH_AT)
    data[_CHAIN_AT] ^= 1
    struct.pack_into("<I", data, 0, crc32c(bytes(data[4:length])))
    hurt = {**files, name: bytes(data)}
    disk = ImageDisk(hurt)
    open_broker(disk, wall_us=known.wall_us, chance=chance, options=known.options)
    if disk.image().get(name) == hurt[name]:
        raise Violation(f"{name} is of another history, and is believed")
    return "damage: stale index file"


def _is_index(data: bytes) -> bool:
    """Tell whether these are the bytes of a whole index file."""
    try:
        idx_file.Head.decode(data)
    except (idx_file.StaleRun, struct.error, ValueError):
        return False
    return True


def _start(files: Mapping[str, bytes], known: Known, chance: random.Random) -> Started:
    return open_broker(
        ImageDisk(files), wall_us=known.wall_us, chance=chance, options=known.options
    )
