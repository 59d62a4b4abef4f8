"""What one send, one pull and one settle cost: decide, record, apply; nothing of the disk.

Prepared batches go through ``Broker.send`` in blocks; between the blocks the turn ends (flush,
sync), outside of the clock. Figures with ``turn`` in their name have the flush inside: the write
into the page cache.
"""

from __future__ import annotations

from typing import Final

from core_kit import (
    MIB,
    Figures,
    Measurement,
    Producer,
    Rig,
    Settings,
    Stopwatch,
    Target,
    folder,
    freeze,
    gather,
    thaw,
)

from ternmq.broker.start import Options
from ternmq.record.fact.facts import Outcome
from ternmq.wire.bodies import Settle

_TOPIC: Final = "orders"
_GROUP: Final = "billing"
_OPTIONS: Final = Options(segment_bytes=64 * MIB, reserve_bytes=16 * MIB)
_BLOCK: Final = 250
"""Sends between two ends of a turn."""
_PULL: Final = 32


def _appends(
    settings: Settings, batches: list[bytes], block: int, warm: int
) -> tuple[float, float]:
    """Return the microseconds of a send alone, and with its share of the turn's flush."""
    with folder(settings) as path:
        rig = Rig(path, _OPTIONS)
        rig.topic(_TOPIC, [_GROUP])
        send = rig.broker.send
        journal = rig.broker.journal
        freeze()
        alone, whole = Stopwatch(), Stopwatch()
        for at in range(0, len(batches), block):
            now = rig.now_us
            some = batches[at : at + block]
            whole.start()
            alone.start()
            for batch in some:
                send(now, _TOPIC, batch)
            alone.stop(len(some))
            journal.flush()
            whole.stop(len(some))
            if at + len(some) <= warm:
                alone, whole = Stopwatch(), Stopwatch()
            rig.turn()
        rig.close()
        thaw()
    return alone.each_us(), whole.each_us()


def append_single(settings: Settings) -> Figures:
    """Send messages of 1 KiB, one a batch."""
    producer = Producer(_TOPIC)
    body = bytes(range(256)) * 4
    count = settings.scaled(20_000, 500)
    batches = [producer.single(body) for _ in range(count)]
    alone, whole = _appends(settings, batches, _BLOCK, count // 10)
    return {"send_us": alone, "send_and_turn_us": whole}


def append_batch(settings: Settings) -> Figures:
    """Send batches of 500 messages: of 100 bytes, and of 1 KiB."""
    producer = Producer(_TOPIC)
    count = settings.scaled(1000, 20)
    small = [producer.many([b"x" * 100] * 500) for _ in range(count)]
    alone, whole = _appends(settings, small, 20, count // 10)
    large = [producer.many([b"x" * 1024] * 500) for _ in range(count // 10)]
    alone_large, _ = _appends(settings, large, 5, count // 100)
    return {"send_us": alone, "send_and_turn_us": whole, "send_of_1_kib_rows_us": alone_large}


def _pulls(settings: Settings, batches: list[bytes], pulls: int) -> Figures:
    """Store the batches, then pull 32 rows, gather their records, settle them, and so on."""
    with folder(settings) as path:
        rig = Rig(path, _OPTIONS)
        rig.join()
        rig.topic(_TOPIC, [_GROUP])
        for at, batch in enumerate(batches):
            rig.broker.send(rig.now_us, _TOPIC, batch)
            if at % 1000 == 999:
                rig.turn()
        rig.turn()
        freeze()
        broker, session = rig.broker, rig.session
        both, pulling = Stopwatch(), Stopwatch()
        warm = pulls // 10
        for at in range(0, pulls, 25):
            now = rig.now_us
            replies = []
            if at == warm - warm % 25:
                both, pulling = Stopwatch(), Stopwatch()
            both.start()
            pulling.start()
            for _ in range(25):
                reply = broker.pull(now, session, _TOPIC, _GROUP, _PULL)
                assert reply is not None
                gather(broker, reply)
                replies.append(reply)
            pulling.stop(25)
            for reply in replies:
                asked = Settle(_TOPIC, _GROUP, 0, reply.epoch, reply.lease, Outcome.DONE)
                broker.settle(now, session, asked)
            both.stop(25)
            rig.turn()
        rig.close()
        thaw()
    return {
        "pull_and_settle_us": both.each_us(),
        "pull_us": pulling.each_us(),
        "settle_us": both.each_us() - pulling.each_us(),
    }


def pull_batch(settings: Settings) -> Figures:
    """Pull and settle 32 rows out of stored batches of 32."""
    producer = Producer(_TOPIC)
    pulls = settings.scaled(2500, 50)
    return _pulls(settings, [producer.many([b"x" * 100] * _PULL) for _ in range(pulls)], pulls)


def pull_singles(settings: Settings) -> Figures:
    """Pull and settle 32 rows out of stored singles."""
    producer = Producer(_TOPIC)
    pulls = settings.scaled(2500, 50)
    batches = [producer.single(b"x" * 100) for _ in range(pulls * _PULL)]
    return _pulls(settings, batches, pulls)


MEASUREMENTS: Final = (
    Measurement(
        "append-single",
        "one message of 1 KiB: decide, record, apply",
        append_single,
        (Target("send_us", 8.0),),
        {"block": _BLOCK, "body_bytes": 1024},
    ),
    Measurement(
        "append-batch",
        "one batch of 500 messages of 100 bytes",
        append_batch,
        (Target("send_us", 40.0),),
        {"block": 20, "body_bytes": 100, "rows": 500},
    ),
    Measurement(
        "pull-batch",
        "shared pull of 32 out of one batch, its record gathered, and its settle",
        pull_batch,
        (Target("pull_and_settle_us", 10.0),),
        {"pull": _PULL, "in_flight": 25},
    ),
    Measurement(
        "pull-singles",
        "the same out of 32 singles",
        pull_singles,
        (Target("pull_and_settle_us", 10.0),),
        {"pull": _PULL, "in_flight": 25},
    ),
)
