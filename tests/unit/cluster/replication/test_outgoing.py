"""What followers are sent: whatever happens in which order, it is the journal."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ternmq.cluster.replication.incoming import Incoming
from ternmq.cluster.replication.outgoing import MARKS_EVERY_US, Outgoing, Wanted
from ternmq.cluster.replication.tail import Portion, Tail
from ternmq.journal.disk.memory import MemoryDisk
from ternmq.journal.log.checkpoint import Checkpoint
from ternmq.journal.log.journal import Journal
from ternmq.journal.log.pieces import PieceRead
from ternmq.journal.log.scan import scan
from ternmq.model.types import Epoch, Position
from ternmq.record.fact.header import HEADER_BYTES, Kind
from tests.unit.cluster.replication.test_incoming import stream_of, written
from tests.unit.journal.kit import SEGMENT, body, make_spares, open_views

EPOCH = Epoch(1)


class Primary:
    """A journal with its tail, and what a follower of it has."""

    def __init__(self, *, tail_bytes: int, window: int) -> None:
        self.disk = MemoryDisk()
        self.journal: Journal = open_views(self.disk)[0]
        make_spares(self.journal)
        self.tail = Tail(self.journal.written, tail_bytes)
        self.journal.sink = self.tail.add
        self.outgoing = Outgoing(self.tail, Position(0), window)
        self.window = window
        self.copy = MemoryDisk()
        self.incoming = Incoming(
            segment_size=SEGMENT, end=Position(0), last_crc=0, last_epoch=Epoch(0), followed=EPOCH
        )
        self.wanted: Wanted | None = None
        self.largest = 80  # SEGMENT

    def append(self, size: int) -> None:
        self.journal.append(Kind.COUNTS, body(0, size), 2000)
        self.largest = max(self.largest, (size + 55) & -8)

    def flush(self) -> None:
        self.journal.flush()
        make_spares(self.journal)

    def send(self) -> None:
        """Send what may be sent; the follower takes it."""
        while (step := self.outgoing.next()) is not None:
            if isinstance(step, Wanted):
                assert self.wanted is None
                self.wanted = step
            else:
                assert step.data
                for_copy = self.incoming.take(step.position, EPOCH, step.data)
                written(self.copy, for_copy)
                assert self.incoming.end == step.end == self.outgoing.sent
        assert self.outgoing.in_flight <= max(self.window, self.largest)

    def read(self) -> None:
        """Let the thread end its read."""
        if self.wanted is not None:
            at, most = self.wanted.position, self.wanted.most
            job = PieceRead(self.disk, SEGMENT, at, self.journal.written, most)
            job.run()
            self.wanted = None
            self.outgoing.was_read(Portion(at, job.data, job.end))

    def acknowledge(self) -> None:
        self.outgoing.acknowledged(self.incoming.end)

    def catch_up(self) -> None:
        for _ in range(10_000):
            self.acknowledge()
            self.send()
            self.read()
            if self.incoming.end == self.journal.written:
                return
        raise AssertionError("the follower does not come to the end")


STEPS = st.lists(
    st.one_of(
        st.integers(9, 3000), st.sampled_from(["flush", "send", "read", "acknowledge", "flush"])
    ),
    max_size=200,
)


@settings(max_examples=150, deadline=None)
@given(STEPS, st.sampled_from([1, 300, 5000, 1 << 20]), st.sampled_from([64, 500, 4000, 1 << 20]))
def test_a_follower_gets_the_journal(steps, tail_bytes, window):
    one = Primary(tail_bytes=tail_bytes, window=window)
    for step in steps:
        if isinstance(step, int):
            one.append(step)
        else:
            getattr(one, step)()
    one.flush()
    one.catch_up()
    assert stream_of(one.copy) == stream_of(one.disk)
    assert one.outgoing.sent == one.journal.written
    one.acknowledge()
    assert one.outgoing.in_flight == 0


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.integers(9, 3000), min_size=1, max_size=60),
    st.integers(1, 9),
    st.integers(1, 4000),
    st.integers(1, 20_000),
)
def test_the_tail_is_the_journal_from_each_record_on(sizes, every, most, tail_bytes):
    one = Primary(tail_bytes=tail_bytes, window=1)
    for count, size in enumerate(sizes):
        one.append(size)
        if count % every == 0:
            one.flush()
    one.flush()
    records = list(scan(one.disk, 0))
    stream = b"".join(stream_of(one.disk))
    places, at = {}, 0
    for record in records:
        places[record.position] = at
        at += HEADER_BYTES if record.kind == Kind.PAD else record.length
    places[one.journal.written] = at
    assert one.tail.begin in places
    assert one.tail.held_bytes >= min(one.tail.end - one.tail.begin, 1)
    for record in records:
        portion = one.tail.piece(record.position, most)
        if record.position < one.tail.begin:
            assert portion is None
            name = Checkpoint(record.position, Epoch(record.epoch), record.crc)
            assert one.tail.match(name) is None
            continue
        assert portion is not None
        assert portion.position == record.position
        assert portion.end in places
        assert len(portion.data) <= max(most, one.largest, 80)
        at = places[record.position]
        assert portion.data == stream[at : places[portion.end]]
        name = Checkpoint(record.position, Epoch(record.epoch), record.crc)
        assert one.tail.match(name) == (record.position, record.end)
        for other in (name._replace(crc=record.crc ^ 1), name._replace(epoch=Epoch(2))):
            assert one.tail.match(other) is None
        for beside in (record.position + 8, record.position - 8, one.tail.end, 1 << 60):
            assert one.tail.match(name._replace(position=Position(beside))) is None
    nothing = one.tail.piece(one.tail.end)
    assert nothing is not None
    assert nothing.data == b""


def test_what_a_turn_wrote_is_sent_without_a_copy():
    one = Primary(tail_bytes=1 << 20, window=1 << 20)
    one.catch_up()
    one.acknowledge()
    got: list[bytes] = []
    add = one.tail.add

    def sink(position: Position, data: bytes) -> None:
        got.append(data)
        add(position, data)

    one.journal.sink = sink
    one.append(100)
    one.append(100)
    one.flush()
    portion = one.outgoing.next()
    assert isinstance(portion, Portion)
    assert portion.data is got[0]


def test_a_window_that_is_full_waits_for_an_acknowledgement():
    one = Primary(tail_bytes=1 << 20, window=500)
    one.catch_up()
    one.acknowledge()
    for _ in range(10):
        one.append(100)
        one.flush()
    one.send()
    sent = one.outgoing.sent
    assert sent < one.journal.written
    one.send()
    assert one.outgoing.sent == sent
    one.acknowledge()
    one.send()
    assert one.outgoing.sent > sent


def test_what_was_not_wanted_is_refused():
    one = Primary(tail_bytes=1, window=500)
    with pytest.raises(ValueError, match="not wanted"):
        one.outgoing.was_read(Portion(Position(0), b"x", Position(1)))
    with pytest.raises(ValueError, match="the tail ends"):
        one.tail.add(Position(0), b"x")


def test_marks():
    one = Primary(tail_bytes=1, window=500)
    assert one.outgoing.marks_due(5)
    one.outgoing.marked(5)
    assert not one.outgoing.marks_due(4 + MARKS_EVERY_US)
    assert one.outgoing.marks_due(5 + MARKS_EVERY_US)
