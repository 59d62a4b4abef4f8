"""A journal cut at any byte: the tasks together read each record once, whatever bodies hold."""

from __future__ import annotations

import tempfile
from bisect import bisect_left
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ternmq.sync
from ternmq.journal.disk.memory import MemoryDisk
from ternmq.journal.disk.real import RealDisk
from ternmq.journal.log.journal import Journal
from ternmq.journal.log.scan import parse, scan
from ternmq.journal.reader import starts
from ternmq.journal.reader.page import PageRead
from ternmq.journal.reader.starts import RecordStarts
from ternmq.record.fact.header import HEADER_BYTES, MAGIC, VERSION, Header, Kind, crc_of, framed
from ternmq.record.page.frames import Frames
from ternmq.spark.broker.connecting import Broker, addresses
from ternmq.spark.journal.broker import BrokerJournal
from ternmq.spark.journal.files import FileJournal
from ternmq.testing import broker

SEGMENT = 16 << 10
LEFT_OUT = {int(Kind.SEGMENT), int(Kind.PAD)}


def record(position, kind=Kind.MARK, size=8, crc=7):
    """Return a valid record for a position."""
    made = framed(Header(0, MAGIC, 0, VERSION, kind, 0, position, 0, 5, 1, crc), bytes(size))
    assert parse(made, 0, position) is not None
    return made


def own(position, count):
    """Return records for the very place where they are, each chained to the one before."""
    made, crc = b"", 7
    for _ in range(count):
        one = record(position + len(made), crc=crc)
        made, crc = made + one, crc_of(one)
    return made


KINDS = st.sampled_from([Kind.MARK, Kind.STATE, Kind.MESSAGES, Kind.CONFIG, Kind.SEGMENT])
PIECE = st.one_of(
    st.binary(max_size=100).map(lambda data: lambda at: data),
    st.integers(1, 12).map(lambda count: lambda at: own(at, count)),
    st.tuples(KINDS, st.integers(0, 300)).map(lambda one: lambda at: record(at, one[0], one[1])),
    # A record for another place, or a header alone, or the beginning of one.
    st.integers(-4000, 4000).map(lambda away: lambda at: record(max(0, at + away))),
    st.integers(4, HEADER_BYTES + 4).map(lambda size: lambda at: record(at)[:size]),
    # A header that says that its record goes on behind the body's end.
    st.integers(100, 9000).map(lambda size: lambda at: record(at, size=size)[:HEADER_BYTES]),
    st.integers(0, 7).map(lambda size: lambda at: bytes(size)),  # the rest is not aligned
    st.integers(0, 5000).map(lambda size: lambda at: bytes(size)),
)
BODIES = st.lists(st.lists(PIECE, max_size=6), max_size=24)


def fill(disk, bodies):
    """Return a journal with a record for each body."""
    journal = Journal.create(disk, segment_size=SEGMENT, reserve_bytes=0)
    for pieces in bodies:
        body = b""
        for piece in pieces:
            body += piece(journal.end + HEADER_BYTES + len(body))
        journal.append(Kind.STATE, body[: SEGMENT // 3], 10)
        journal.flush()
        journal.sync_now()
        while (job := journal.wants_spare()) is not None:
            job.run()
            journal.spare_ready(job)
    return journal


def written(disk):
    return [one.position for one in scan(disk, 0, segment_size=SEGMENT)]


def of_folder(port, start, stop):
    return [at for page in port.pages(start, stop) for at in page.positions().tolist()]


def of_broker(disk, found, start, stop, end, most=1 << 20):
    """Read pages as the broker makes them for a task; only the first begins at any byte."""
    positions = []
    anywhere = found
    while start < stop:
        page = PageRead(disk, SEGMENT, start, end, most, with_bodies=False, starts=anywhere)
        page.run()
        while not page.begun:
            page.run()
        assert page.error is None
        frames = Frames(page.records).below(stop)
        frames.check()
        positions += frames.positions().tolist()
        start, anywhere = max(start + 1, page.next), None
    return positions


@pytest.mark.row("R5")
@settings(max_examples=12, deadline=None)
@given(BODIES, st.sampled_from([64, 1 << 10, 1 << 20]))
def test_every_byte_is_a_cut(bodies, step):
    """Each byte is a task: it reads the record that begins there, and no other."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(starts, "STEP", step)
        disk = RealDisk(folder)
        end = fill(disk, bodies).end
        known = written(disk)
        port = FileJournal(folder)
        shown = {one.position for one in scan(disk, 0, segment_size=SEGMENT)
                 if one.kind not in LEFT_OUT}  # fmt: skip
        asked = RecordStarts(disk, SEGMENT)
        for byte in range(end):
            # The port's own search is the same; it is tried where a record begins.
            at = bisect_left(known, byte)
            first = known[at] if at < len(known) else end
            assert asked.at_or_after(byte, end) == first
            if first == byte:
                assert of_folder(port, byte, byte + 1) == ([byte] if byte in shown else [])
                assert of_broker(disk, asked, byte, byte + 1, end) == [byte]
        port.close()


@pytest.mark.row("R5")
@settings(max_examples=60, deadline=None)
@given(
    BODIES,
    st.lists(st.floats(0, 1), max_size=30),
    st.sampled_from([64, 1 << 10, 1 << 20]),
    st.sampled_from([1, 300, 4096, 1 << 20]),
)
def test_tasks_together_read_each_record_once(bodies, cuts, step, most):
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(starts, "STEP", step)
        patch.setattr(starts, "PIECE", 2 * step)
        disk = RealDisk(folder)
        end = fill(disk, bodies).end
        edges = sorted({0, end, *(int(one * end) for one in cuts)})
        port = FileJournal(folder)
        apart = [at for start, stop in pairwise(edges) for at in of_folder(port, start, stop)]
        port.close()
        known = list(scan(disk, 0, segment_size=SEGMENT))
        assert apart == [one.position for one in known if one.kind not in LEFT_OUT]
        found = RecordStarts(disk, SEGMENT)
        apart = [
            at
            for start, stop in pairwise(edges)
            for at in of_broker(disk, found, start, stop, end, most)
        ]
        assert apart == [one.position for one in known]


@pytest.mark.row("R5")
def test_every_byte_of_a_brokers_messages_is_a_cut():
    """Through a connection, at a broker that stores bodies full of records for their own place."""
    marker = b"<here it begins>"
    disk = MemoryDisk()
    with broker(manual=False, disk=disk) as one, ternmq.sync.connect(one.url) as client:
        port = BrokerJournal(Broker(addresses("url", f"127.0.0.1:{one.port}", tls=False, ca="")))
        client.send("orders", marker + bytes(600))
        tricked, begin = [], port.bounds().end
        for _ in range(12):
            end = port.bounds().end
            image = disk.image()["journal/" + f"{0:020d}.seg"]
            newest = image.rindex(marker)
            head = newest - max(at for at in of_port(port, 0, end) if at < newest)
            first = end + head + len(marker)
            pad = bytes(-first % 8)
            client.send("orders", marker + pad + own(first + len(pad), 10))
            image = disk.image()["journal/" + f"{0:020d}.seg"]
            at = image.rindex(marker) + len(marker) + len(pad)
            tricked += [at] if parse(image, at, at) is not None else []
        assert len(tricked) > 2, "the others were stored behind a record of the broker's own"
        end = port.bounds().end
        whole = of_port(port, begin, end)
        for at in tricked[:2]:
            for byte in range(at - 200, at + 600):
                assert of_port(port, byte, byte + 1) == [one for one in whole if one == byte]
        for step in (37, 777):
            edges = [*range(begin, end, step), end]
            assert [at for a, b in pairwise(edges) for at in of_port(port, a, b)] == whole
        port.close()


def of_port(port, start, stop):
    return [at for page in port.pages(start, stop) for at in page.positions().tolist()]
