"""Records of released versions stay readable, and this version still writes the same bytes.

``tests/golden/records_v1.bin`` is a small journal (segments of 8 KiB, one after another) with at
least one record of every kind; ``records_v1.json`` says what stands in it. ``python -m
tests.unit.record.test_records_golden`` writes the files if they are missing. Files that are there
are never written again: they are what a released version wrote.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from ternmq.journal.disk.memory import MemoryDisk
from ternmq.journal.log.journal import Journal
from ternmq.journal.log.scan import RawRecord, scan
from ternmq.journal.log.segment import segment_name
from ternmq.journal.state.sets import StateKey, StateWriter
from ternmq.model.specs import Exhausted, Mode, RetryPolicy, Start, SubscriptionSpec, TopicSpec
from ternmq.model.types import Position
from ternmq.record.fact import control, facts, messages, moved, replay, transactions
from ternmq.record.fact.facts import Cause, CursorMoved, Extended, Move, Outcome, Pulled, Settled
from ternmq.record.fact.header import KNOWN_KINDS, Kind
from ternmq.record.fact.moved import FailureEntry, Moved, MovedFailure, Piece
from ternmq.record.fact.replay import Cause as Replay
from ternmq.record.fact.replay import Replayed
from ternmq.record.fact.stateset import HEAD
from ternmq.record.fact.transactions import Part, Prepared, Resolution, Resolved, Why
from tests.unit.journal.kit import commit

FOLDER = Path(__file__).parents[2] / "golden"
BYTES = FOLDER / "records_v1.bin"
FIELDS = FOLDER / "records_v1.json"
SEGMENT = 8192
TIME_US = 1_700_000_000_000_001
BATCH = bytes(range(97))

SPEC = SubscriptionSpec(
    mode=Mode.ORDERED,
    tags="paid || refunded",
    start=Start.LATEST,
    retry=RetryPolicy(
        enabled=False,
        first_us=5,
        factor=1.5,
        cap_us=77,
        jitter=0.25,
        attempts=3,
        exhausted=Exhausted.HOLD,
    ),
    lease_us=123_456,
    window=77,
    paused=True,
)

ONE_RUN = Pulled(1, 2, 3, 4, 5, TIME_US + 30_000_000, 40, [(8, 40, 1, 1)])
KEYED = Pulled(
    1, 2, 3, 4, 6, TIME_US, 99, [(50, 52, 2, 3), (60, 61, 65_535, 1)], [(40, 50)],
    [(70, 72), (80, 81)], (1, 2**64 - 1, 3, 4, 5, 6),
)  # fmt: skip
DONE = Settled(1, 2, 3, 4, 5, 1, 7, Outcome.DONE, Cause.CONSUMER, 0, [(8, 40, 1, 1)])
RETRY = Settled(
    1, 2, 3, 4, 6, 1, 7, Outcome.RETRY, Cause.CONSUMER, TIME_US + 1, [(50, 51, 2, 3)], [4096],
    "kaputt: ü".encode(),
)  # fmt: skip
ENDED = [
    Settled(1, 2, 3, 4, 6, 1, 7, Outcome.DEAD, Cause.TIME, TIME_US, [(51, 52, 16, 20)], [0]),
    Settled(1, 2, 3, 4, 6, 1, 7, Outcome.HELD, Cause.EXHAUSTED, TIME_US, [(60, 61, 3, 3)], [8]),
    Settled(1, 2, 3, 4, 6, 1, 7, Outcome.RELEASED, Cause.KEY, 0, [(70, 72, 1, 2), (80, 81, 1, 1)]),
]
MOVED = Moved(
    2,
    3,
    (Piece(8, TIME_US - 5, 3, 2, b"0123456789"), Piece(60, TIME_US - 4, 0, 1, bytes(8))),
    (
        MovedFailure(
            1, 2, 3, 60, TIME_US, (FailureEntry(TIME_US - 9, 4, 1, 1, 0, b"why"), FailureEntry(
                TIME_US, 4, 2, 4, 8, b"")),
        ),
    ),
)  # fmt: skip
REPLAYED = Replayed(
    1, 2, 3, 4, 8, Replay.REPLAY, [(50, 51, 1, 3), (60, 62, 1, 0)], [(90, 92)], [7, 1 << 63, 9]
)
REDRIVEN = Replayed(1, 2, 3, 0, 9, Replay.REDRIVE, [(51, 52, 1, 20)])
PREPARED = Prepared(2, 3, 9, 2**64 - 1, 5, 17, 6, "writer-ü", "3/0", "shop", BATCH)
COMMITTED = Resolved(
    9, 2**64 - 1, 2**64 - 2, 11, 5, Resolution.COMMITTED, Why.WRITER, "writer-ü", "shop",
    (Part(4096, 8, 1 << 63, 2, 3, 6, 216), Part(8192, 0, 0, 2, 1, 5, 320)), (512, 1024, 2048),
)  # fmt: skip
ROLLED_BACK = Resolved(10, 1, 0, 0, 5, Resolution.ROLLED_BACK, Why.EXPIRED, "w", "s", (), (512,))
COUNTS = control.pack_counts(
    control.Counts(
        7,
        2,
        (
            control.Count(
                TIME_US - TIME_US % control.BUCKET_US,
                1000,
                3,
                5,
                1010,
                True,
                (control.SequenceRange(7, 10),),
                1,
            ),
        ),
    )
)
JOINED = control.Joined(4, "shop", "c-1", "10.0.0.1:5", 77, "0.1", TIME_US)
CONFIGS: list[control.Config] = [
    control.TopicCreated(2, TopicSpec(name="orders", queues=4, ordered=True, retention_us=99)),
    control.Subscribed(1, "billing", 2, SPEC, [0, 1, 2, 3]),
    control.TopicChanged(2, TopicSpec(name="orders", ordered=True, keep_until_consumed=False)),
    control.SubscriptionChanged(1, 2, SubscriptionSpec()),
    control.Unsubscribed(1, 2),
    control.TopicDeleted(2),
    control.App(
        "shop", "the shop team", bytes(range(16)), bytes(range(32)),
        (control.Grant("produce", "orders.*"), control.Grant("consume", "orders", "b*", True)),
        TIME_US,
    ),
    control.AppDeleted("shop"),
    control.Hold("spark.archive", 4096, "archive", "pipeline", TIME_US - 5, TIME_US),
    control.HoldDeleted("spark.archive"),
]  # fmt: skip


class _Source:
    """Two objects for a STATE set."""

    def state_keys(self, begin: int) -> Iterator[StateKey]:
        del begin
        yield StateKey(1)
        yield StateKey(9, 1, 2, 3, 4)

    def state_changed(self, key: StateKey) -> int:
        del key
        return 1 << 63

    def state_encode(self, key: StateKey) -> bytes:
        return b"object %d" % key.type

    def state_written(self, key: StateKey) -> None:
        del key


def written() -> bytes:
    """Write the journal anew, as this version does."""
    disk = MemoryDisk()
    journal = Journal.create(disk, segment_size=SEGMENT, time_us=TIME_US)
    commit(journal)
    bodies: list[tuple[Kind, bytes]] = [(Kind.CONFIG, control.pack(one)) for one in CONFIGS]
    bodies += [
        (Kind.JOINED, control.pack(JOINED)),
        (Kind.MESSAGES, messages.pack(2, 3, 8, 5, BATCH, ())),
        (Kind.MESSAGES, messages.pack(2, 3, 13, 3, BATCH, ((0, 2), (4, 5)))),
        (Kind.PULLED, facts.pack_pulled([ONE_RUN])),
        (Kind.PULLED, facts.pack_pulled([KEYED, ONE_RUN])),
        (Kind.EXTENDED, facts.pack_extended([Extended(1, 2, 3, 4, 5, 1, TIME_US + 60)])),
        (Kind.SETTLED, facts.pack_settled([DONE])),
        (Kind.SETTLED, facts.pack_settled([RETRY])),
        (Kind.ENDED, facts.pack_settled(ENDED)),
    ]
    bodies += [
        (Kind.CURSOR, facts.pack_cursor(CursorMoved(1, 2, 3, move, 500, 8))) for move in Move
    ]
    bodies += [
        (Kind.MOVED, moved.pack(MOVED)),
        (Kind.PREPARED, transactions.pack_prepared(PREPARED)),
        (Kind.RESOLVED, transactions.pack_resolved(COMMITTED)),
        (Kind.RESOLVED, transactions.pack_resolved(ROLLED_BACK)),
        (Kind.LEFT, control.pack(control.Left(4, "closed"))),
        (Kind.COUNTS, COUNTS),
        (Kind.ALARM, control.pack(control.Alarm("clock", "the wall clock is 7 s ahead"))),
        (Kind.REPLAY, replay.pack(REPLAYED)),
        (Kind.REPLAY, replay.pack(REDRIVEN)),
    ]
    for at, (kind, body) in enumerate(bodies):
        journal.append(kind, body, TIME_US + at, flags=at % 2)
    commit(journal)
    writer = StateWriter(journal, _Source(), chunk_bytes=1)
    writer.begin(TIME_US)
    assert writer.step(TIME_US, lambda: True)
    commit(journal)
    journal.mark(TIME_US)
    while journal.end < SEGMENT:  # the last of them does not fit: PAD, and the next segment
        journal.append(Kind.COUNTS, bytes(1000), TIME_US)
    journal.close(TIME_US)
    data = disk.open(segment_name(0)).pread(SEGMENT, 0)
    return data + disk.open(segment_name(SEGMENT)).pread(journal.end - SEGMENT, 0)


def records(data: bytes) -> list[RawRecord]:
    """Read a journal that consists of these bytes."""
    disk = MemoryDisk()
    for base in range(0, len(data), SEGMENT):
        part = data[base : base + SEGMENT]
        disk.allocate(segment_name(base), SEGMENT)
        disk.open(segment_name(base)).pwrite(part, 0)
    return list(scan(disk, Position(0)))


def _state(body: bytes) -> list[Any]:
    return [*HEAD.unpack_from(body), body[HEAD.size :].hex()]


DECODERS: dict[int, Callable[[bytes], Any]] = {
    Kind.SEGMENT: control.SEGMENT.unpack_from,
    Kind.PAD: lambda body: None,
    Kind.EPOCH: control.EPOCH.unpack_from,
    Kind.MARK: control.MARK.unpack_from,
    Kind.STATE: _state,
    Kind.MESSAGES: messages.unpack,
    Kind.PULLED: lambda body: list(facts.unpack_pulled(body)),
    Kind.EXTENDED: lambda body: list(facts.unpack_extended(body)),
    Kind.ENDED: lambda body: list(facts.unpack_settled(body)),
    Kind.SETTLED: lambda body: list(facts.unpack_settled(body)),
    Kind.CURSOR: facts.unpack_cursor,
    Kind.MOVED: moved.unpack,
    Kind.PREPARED: transactions.unpack_prepared,
    Kind.RESOLVED: transactions.unpack_resolved,
    Kind.CONFIG: control.unpack_config,
    Kind.JOINED: control.unpack_joined,
    Kind.LEFT: control.unpack_left,
    Kind.COUNTS: control.unpack_counts,
    Kind.ALARM: control.unpack_alarm,
    Kind.REPLAY: replay.unpack,
}


def described(data: bytes) -> Any:
    """Say what stands in a journal, as JSON reads it back."""
    found = [
        {
            "position": record.position,
            "kind": Kind(record.kind).name,
            "flags": record.flags,
            "epoch": record.epoch,
            "time_us": record.time_us,
            "durable": record.durable,
            "crc": record.crc,
            "body": DECODERS[record.kind](record.body),
        }
        for record in records(data)
    ]
    return json.loads(msgspec.json.encode(found))


def test_what_version_1_wrote_is_still_read() -> None:
    assert described(BYTES.read_bytes()) == json.loads(FIELDS.read_text())


def test_the_same_bytes_are_still_written() -> None:
    assert written() == BYTES.read_bytes()


def test_every_kind_is_there() -> None:
    assert {record.kind for record in records(BYTES.read_bytes())} == KNOWN_KINDS
    assert set(DECODERS) == KNOWN_KINDS


def main() -> None:
    """Write the golden files if they are missing."""
    if BYTES.exists() or FIELDS.exists():
        raise SystemExit(f"{BYTES} is there: it stays as it is")
    BYTES.write_bytes(written())
    FIELDS.write_text(json.dumps(described(BYTES.read_bytes()), indent=1) + "\n")


if __name__ == "__main__":
    main()
