"""What deliveries cost where there are many keys, or many groups."""

from __future__ import annotations

import random
from collections import deque
from functools import partial
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

from ternmq.broker.gate.replies import PullReply
from ternmq.broker.start import Options
from ternmq.model.specs import Mode, SubscriptionSpec
from ternmq.record.batch.batch import Row
from ternmq.record.fact.facts import Outcome
from ternmq.wire.bodies import Settle

_OPTIONS: Final = Options(segment_bytes=64 * MIB, reserve_bytes=16 * MIB)
_TOPIC: Final = "orders"
_PULL: Final = 32
_KEYS: Final = (10, 1_000, 100_000)
_GROUPS: Final = 70


# ---------------------------------------------------------------------------------------- ordered


def ordered(settings: Settings, *, keys: int) -> Figures:
    """Pull and settle rows of an ordered topic: with one pull in flight, and with eight."""
    figures = _in_order(settings, Mode.ORDERED, keys, 1)
    eight = _in_order(settings, Mode.ORDERED, keys, 8)
    figures |= {f"{name}_8_in_flight": one for name, one in eight.items()}
    return figures


def locked(settings: Settings) -> Figures:
    """Pull and settle rows of a queue that is locked."""
    return _in_order(settings, Mode.QUEUE_LOCK, 1_000, 1)


def _in_order(settings: Settings, mode: Mode, keys: int, in_flight: int) -> Figures:
    rng = random.Random(keys)
    producer = Producer(_TOPIC, keyed=True)
    count = settings.scaled(100_000, 2000)
    known = [f"customer-{number}" for number in range(keys)]
    with folder(settings) as path:
        rig = Rig(path, _OPTIONS)
        rig.join()
        rig.topic(_TOPIC, [], ordered=True)
        broker, session = rig.broker, rig.session
        broker.administration.subscribe(rig.now_us, _TOPIC, "g", SubscriptionSpec(mode=mode))
        for at in range(0, count, _PULL):
            rows = [Row(body=b"x" * 100, ordering_key=rng.choice(known)) for _ in range(_PULL)]
            broker.send(rig.now_us, _TOPIC, producer.rows(rows))
            if at % 16_000 == 0:
                rig.turn()
        rig.turn()
        freeze()
        clock = Stopwatch()
        held: deque[PullReply] = deque()
        left = settings.scaled(50_000, 1000)
        rows_done = pulls = 0
        while left > 0:
            clock.start()
            while len(held) < in_flight:
                reply = broker.pull(rig.now_us, session, _TOPIC, "g", _PULL)
                if reply is None:
                    break
                gather(broker, reply)
                held.append(reply)
            assert held, "an ordered pull found nothing though nothing is in flight"
            oldest = held.popleft()
            asked = Settle(_TOPIC, "g", 0, oldest.epoch, oldest.lease, Outcome.DONE)
            broker.settle(rig.now_us, session, asked)
            clock.stop()
            pulls += 1
            done = sum([stop - start for start, stop, _, _ in oldest.runs])
            rows_done += done
            left -= done
            if pulls % 32 == 0:
                rig.turn()
        rig.close()
        thaw()
    return {
        "pull_and_settle_us": clock.each_us(),
        "each_row_us": clock.total_ns / 1000 / rows_done,
        "rows_a_pull": rows_done / pulls,
    }


# ------------------------------------------------------------------------------------- many groups


def groups(settings: Settings) -> Figures:
    """Let 70 groups read one topic in pulls of 32, and one group: bytes and CPU a delivery."""
    many = _groups(settings, settings.scaled(_GROUPS, 5), single=True)
    one = _groups(settings, 1, single=True)
    many_batch = _groups(settings, settings.scaled(_GROUPS, 5), single=False)
    one_batch = _groups(settings, 1, single=False)
    return {
        "delivery_us": many["whole"],
        "delivery_one_group_us": one["whole"],
        "against_one_group": many["whole"] / one["whole"],
        "pull_and_settle_us": many["delivery"] * _PULL,
        "pull_and_settle_one_group_us": one["delivery"] * _PULL,
        "delivery_of_batches_us": many_batch["whole"],
        "delivery_of_batches_one_group_us": one_batch["whole"],
        "against_one_group_of_batches": many_batch["whole"] / one_batch["whole"],
        "deliveries_per_s": 1e6 / many["whole"],
        "bytes_per_message_and_group": many["fact_bytes"],
        "message_bytes": many["message_bytes"],
        "message_bytes_one_group": one["message_bytes"],
    }


def _groups(settings: Settings, count: int, *, single: bool) -> Figures:
    """Return microseconds a delivery (with its share of the send, and without) and the bytes."""
    producer = Producer(_TOPIC)
    turns = settings.scaled(6000 // (count + 10), 5)
    body = b"x" * 100
    names = [f"g{number}" for number in range(count)]
    sending, delivering = Stopwatch(), Stopwatch()
    with folder(settings) as path:
        rig = Rig(path, _OPTIONS)
        rig.join()
        rig.topic(_TOPIC, names)
        broker, session, journal = rig.broker, rig.session, rig.broker.journal
        rig.turn()
        freeze()
        message_bytes = fact_bytes = 0
        for _ in range(turns):
            batches = (
                [producer.single(body) for _ in range(_PULL)]
                if single
                else [producer.many([body] * _PULL)]
            )
            begin = journal.end
            sending.start()
            for batch in batches:
                broker.send(rig.now_us, _TOPIC, batch)
            sending.stop(_PULL)
            message_bytes += journal.end - begin
            rig.turn(upkeep=False)
            begin = journal.end
            delivering.start()
            for name in names:
                reply = broker.pull(rig.now_us, session, _TOPIC, name, _PULL)
                assert reply is not None
                gather(broker, reply)
                asked = Settle(_TOPIC, name, 0, reply.epoch, reply.lease, Outcome.DONE)
                broker.settle(rig.now_us, session, asked)
            delivering.stop(_PULL * count)
            fact_bytes += journal.end - begin
            rig.turn(upkeep=False)
        rig.close()
        thaw()
    deliveries = turns * _PULL * count
    return {
        "whole": (sending.total_ns + delivering.total_ns) / deliveries / 1000,
        "delivery": delivering.each_us(),
        "fact_bytes": fact_bytes / deliveries,
        "message_bytes": message_bytes / (turns * _PULL),
    }


# ----------------------------------------------------------------------------------------- filters

_FILTER: Final = "region = 'eu' AND amount >= 100"
_BATCH: Final = 256
_ROOM: Final = 500


def header_filter(settings: Settings) -> Figures:
    """Pull and settle rows through a header filter; every row has three headers of its own."""
    figures: Figures = {}
    for name, passing in (("", 0.1), ("_none_pass", 0.0), ("_all_pass", 1.0)):
        figures |= _filtered(settings, name, passing)
    return figures


def _filtered(settings: Settings, name: str, passing: float) -> Figures:
    rng = random.Random(7)
    producer = Producer(_TOPIC)
    count = settings.scaled(200_000, 4000) // _BATCH * _BATCH
    with folder(settings) as path:
        rig = Rig(path, _OPTIONS)
        rig.join()
        rig.topic(_TOPIC, [])
        broker, session = rig.broker, rig.session
        spec = SubscriptionSpec(filter=_FILTER)
        broker.administration.subscribe(rig.now_us, _TOPIC, "g", spec)
        expected = 0
        for at in range(0, count, _BATCH):
            rows = []
            for number in range(at, at + _BATCH):
                passes = rng.random() < passing
                expected += passes
                amount = rng.randrange(100, 10_000) if passes else rng.randrange(100)
                headers = {"region": "eu", "amount": str(amount), "request": f"r-{number}"}
                rows.append(Row(body=b"x" * 100, headers=headers))
            broker.send(rig.now_us, _TOPIC, producer.rows(rows))
            if at % 16_000 < _BATCH:
                rig.turn()
        rig.turn()
        progress = broker.views.catalog.subscription(_TOPIC, "g").queues[0]
        freeze()
        clock = Stopwatch()
        done = pulls = 0
        while max(progress.cursor, progress.scan) < count:
            clock.start()
            reply = broker.pull(rig.now_us, session, _TOPIC, "g", _ROOM)
            if reply is not None:
                gather(broker, reply)
                asked = Settle(_TOPIC, "g", 0, reply.epoch, reply.lease, Outcome.DONE)
                broker.settle(rig.now_us, session, asked)
                done += sum([stop - start for start, stop, _, _ in reply.runs])
            clock.stop()
            pulls += 1
            if pulls % 32 == 0:
                rig.turn()
        assert done == expected
        rig.close()
        thaw()
    return {
        f"rows{name}_per_s": count * 1e9 / clock.total_ns,
        f"row{name}_us": clock.total_ns / 1000 / count,
    }


MEASUREMENTS: Final = (
    *(
        Measurement(
            f"ordered-{keys}",
            f"ordered pull and settle of 32 rows, {keys:,} keys, batches of 32",
            partial(ordered, keys=keys),
            options={"keys": keys, "pull": _PULL, "rows": 100_000},
        )
        for keys in _KEYS
    ),
    Measurement(
        "locked",
        "pull and settle of 32 rows of a locked queue, batches of 32",
        locked,
        (Target("pull_and_settle_us", 12.0),),
        {"pull": _PULL, "rows": 100_000},
    ),
    Measurement(
        "header-filter",
        "rows through a header filter with two tests, batches of 256, pulls of 500; 10 % pass",
        header_filter,
        (Target("rows_per_s", 300_000, at_least=True),),
        {"filter": _FILTER, "batch": _BATCH, "pull": _ROOM, "headers": 3, "rows": 200_000},
    ),
    Measurement(
        "groups-70",
        "70 groups read one topic in pulls of 32: CPU a delivery (send included), fact bytes",
        groups,
        (Target("bytes_per_message_and_group", 8.0), Target("against_one_group", 0.5)),
        {"groups": _GROUPS, "pull": _PULL, "body_bytes": 100},
    ),
)
