"""What a follower takes of a stream: the records of a journal, and nothing else."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from ternmq.cluster.replication.incoming import BadStream, Incoming, NewerRecord, Piece
from ternmq.journal.disk.memory import MemoryDisk
from ternmq.journal.log.scan import scan
from ternmq.journal.log.segment import segment_name
from ternmq.model.types import Epoch, Position
from ternmq.record.fact.header import (
    FLAG_SKIPPABLE,
    HEADER_BYTES,
    MAGIC,
    VERSION,
    Header,
    Kind,
    framed,
    header_of,
)
from tests.unit.journal.kit import SEGMENT, filled

EPOCH = Epoch(1)


def stream_of(disk: MemoryDisk) -> list[bytes]:
    """Return the records of a journal as they are streamed."""
    found: list[bytes] = []
    for record in scan(disk, 0):
        base = record.position - record.position % SEGMENT
        length = HEADER_BYTES if record.kind == Kind.PAD else record.length
        found.append(disk.open(segment_name(base)).pread(length, record.position - base))
    return found


@pytest.fixture(scope="module")
def records() -> list[bytes]:
    found = stream_of(filled(900, size=200))
    kinds = [header_of(one).kind for one in found]
    assert kinds.count(Kind.SEGMENT) > 2
    pads = [header_of(one).length for one in found if header_of(one).kind == Kind.PAD]
    assert len(pads) > 1
    assert max(pads) > HEADER_BYTES
    return found


def incoming(**changes: object) -> Incoming:
    given: dict[str, object] = {
        "segment_size": SEGMENT, "end": Position(0), "last_crc": 0, "last_epoch": Epoch(0),
        "followed": EPOCH,
    }  # fmt: skip
    return Incoming(**(given | changes))  # type: ignore[arg-type]


def taken(one: Incoming, data: bytes, epoch: Epoch = EPOCH) -> list[Piece]:
    return one.take(one.end, epoch, data)


def refused(one: Incoming, data: bytes, epoch: Epoch = EPOCH) -> BadStream:
    """Return the error for bytes that are not taken; nothing changes for them."""
    before = one.end, one.last_crc, one.last_epoch
    with pytest.raises(BadStream) as caught:
        taken(one, data, epoch)
    assert (one.end, one.last_crc, one.last_epoch) == before
    return caught.value


def written(disk: MemoryDisk, pieces: list[Piece]) -> None:
    for position, data in pieces:
        base = position - position % SEGMENT
        name = segment_name(base)
        file = disk.open(name, create=True)
        file.pwrite(data, position - base)


def chunks(records: list[bytes], chance: random.Random) -> Iterator[bytes]:
    at = 0
    while at < len(records):
        count = chance.choice((1, 1, 2, 7, 50, 400))
        yield b"".join(records[at : at + count])
        at += count


@pytest.mark.parametrize("seed", range(5))
def test_a_copy_has_the_records_of_the_journal(records: list[bytes], seed: int) -> None:
    copy, one = MemoryDisk(), incoming()
    for chunk in chunks(records, random.Random(seed)):
        pieces = taken(one, chunk)
        assert b"".join(piece.data for piece in pieces) == chunk
        written(copy, pieces)
    assert stream_of(copy) == records
    last = list(scan(copy, 0))[-1]
    assert (one.end, one.last_crc, one.last_epoch) == (last.end, last.crc, last.epoch)


def test_it_goes_on_in_the_middle(records: list[bytes]) -> None:
    one = incoming()
    taken(one, b"".join(records[:100]))
    again = incoming(end=one.end, last_crc=one.last_crc, last_epoch=one.last_epoch)
    taken(again, b"".join(records[100:]))
    assert again.end > one.end


def test_an_empty_copy_begins_with_a_later_segment(records: list[bytes]) -> None:
    """The primary has removed those before."""
    at = [header_of(one).kind for one in records].index(Kind.SEGMENT, 1)
    base = Position(header_of(records[at]).position)
    one = incoming(end=base, last_crc=None)
    refused(one, records[at + 1])
    taken(one, b"".join(records[at : at + 40]))
    refused(one, records[at])
    with pytest.raises(ValueError, match="no segment begins"):
        incoming(end=Position(base + 8), last_crc=None)


def test_no_byte_may_differ(records: list[bytes]) -> None:
    """Each bit of a header, and some of the bodies."""
    chance = random.Random(1)
    before = incoming()
    taken(before, b"".join(records[:60]))
    for record in (records[60], records[61]):
        for at in range(len(record)):
            damaged = bytearray(record)
            damaged[at] ^= 1 << chance.randrange(8)
            if bytes(damaged) == record:
                continue
            if record is records[60]:
                refused(before, bytes(damaged))
            else:
                refused(before, records[60] + bytes(damaged))


def test_no_record_may_be_missing_twice_or_in_another_order(records: list[bytes]) -> None:
    one = incoming()
    taken(one, b"".join(records[:20]))
    for wrong in ([21], [19], [20, 20], [20, 22], [21, 20], [0]):
        refused(one, b"".join(records[at] for at in wrong))
    for less in (1, 8, HEADER_BYTES):
        refused(one, records[20][:-less])
        refused(one, records[20] + records[21][:-less])
    taken(one, records[20])


def test_bytes_for_another_position_or_epoch(records: list[bytes]) -> None:
    one = incoming()
    taken(one, records[0])
    for position in (0, one.end + 8, one.end - 8):
        with pytest.raises(BadStream, match="the copy ends at"):
            one.take(Position(position), EPOCH, records[1])
    for epoch in (Epoch(0), Epoch(2)):
        assert "is followed" in str(refused(one, records[1], epoch))


def made(one: Incoming, kind: int, size: int, **changes: int) -> bytes:
    """Return a record that would be the next one, but for the changes."""
    header = Header(
        crc=0, magic=MAGIC, length=0, version=VERSION, kind=kind, flags=0, position=one.end,
        durable=0, time_us=1, epoch=EPOCH, prev_crc=one.last_crc or 0,
    )  # fmt: skip
    return framed(header._replace(**changes), bytes(size))


def test_records_that_do_not_fit_the_journal(records: list[bytes]) -> None:
    one = incoming()
    taken(one, b"".join(records[:20]))
    taken(one, made(one, Kind.MESSAGES, 64))
    assert "no record begins" in str(
        refused(one, made(one, Kind.MESSAGES, 64, position=one.end + 8))
    )
    assert "epoch 0" in str(refused(one, made(one, Kind.MESSAGES, 64, epoch=0)))
    assert "epoch 2" in str(refused(one, made(one, Kind.MESSAGES, 64, epoch=2)))
    assert "follow" in str(refused(one, made(one, Kind.MESSAGES, 64, prev_crc=7)))
    assert "SEGMENT" in str(refused(one, made(one, Kind.SEGMENT, 64)))
    assert "fill" in str(refused(one, made(one, Kind.PAD, 0)))
    left = SEGMENT - one.end % SEGMENT
    assert "bytes at" in str(refused(one, made(one, Kind.MESSAGES, left)))
    assert "bytes at" in str(refused(one, made(one, Kind.MESSAGES, left - HEADER_BYTES - 8)))


def test_a_segment_begins_with_its_own_record(records: list[bytes]) -> None:
    first = next(at for at, one in enumerate(records) if at and header_of(one).kind == Kind.SEGMENT)
    one = incoming()
    taken(one, b"".join(records[:first]))
    assert one.end % SEGMENT == 0
    assert "SEGMENT" in str(refused(one, made(one, Kind.MESSAGES, 64)))
    assert "SEGMENT" in str(refused(one, made(one, Kind.SEGMENT, 32)))
    taken(one, records[first])


def test_a_journal_with_other_segments(records: list[bytes]) -> None:
    refused(incoming(segment_size=2 * SEGMENT), records[0])


def test_records_of_a_newer_version() -> None:
    one = incoming()
    taken(one, stream_of(filled(1))[0])
    with pytest.raises(NewerRecord):
        taken(one, made(one, 250, 64))
    with pytest.raises(NewerRecord):
        taken(one, made(one, Kind.MESSAGES, 64, version=2))
    taken(one, made(one, 250, 64, flags=FLAG_SKIPPABLE))


@pytest.mark.parametrize("seed", range(3))
def test_rubbish_is_refused(records: list[bytes], seed: int) -> None:
    chance = random.Random(seed)
    one = incoming()
    taken(one, b"".join(records[:20]))
    for _ in range(300):
        data = bytearray(b"".join(records[20:24]))
        for _ in range(chance.randrange(1, 4)):
            at = chance.randrange(len(data))
            data[at : at + chance.choice((0, 1, 8, 100))] = chance.randbytes(
                chance.choice((0, 1, 8))
            )
        if bytes(data) != b"".join(records[20:24]):
            refused(one, bytes(data))
