"""What scheduled messages cost: to schedule one, to cancel it, to deliver it; memory and start."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Final

from core_kit import (
    MIB,
    START_US,
    Figures,
    Measurement,
    Producer,
    Rig,
    Settings,
    Stopwatch,
    Target,
    folder,
    freeze,
    thaw,
)
from core_machine import drop_caches, resident_bytes

from ternmq.broker.start import Options
from ternmq.model.specs import Limits
from ternmq.model.types import DAY_US, SECOND_US
from ternmq.record.batch.batch import Row

_TOPIC: Final = "reminders"
_OPTIONS: Final = Options(
    segment_bytes=64 * MIB, reserve_bytes=16 * MIB, limits=Limits(scheduled_rows=20_000_000)
)
_BLOCK: Final = 250
_SINGLES: Final = 20_000
_PENDING: Final = 1_000_000
_MANY: Final = 10_000_000
_SPREAD_DAYS: Final = 600
_FAR: Final = (DAY_US // 8, _SPREAD_DAYS * DAY_US)
_NEAR: Final = (30 * 60 * SECOND_US, 59 * 60 * SECOND_US)
"""Below the horizon, an hour ahead: such rows are in memory in the order of their due times."""
_STATE_MIB: Final = 512
_BURST: Final = 100_000
_BURST_OF: Final = 1000


def singles(settings: Settings) -> Figures:
    """Schedule messages of 1 KiB, one a batch; cancel a quarter of them; deliver the others."""
    producer = Producer(_TOPIC)
    body = bytes(range(256)) * 4
    count = settings.scaled(_SINGLES, 500)
    due_us = START_US + 600 * SECOND_US
    batches = [producer.rows([Row(body=body, due_us=due_us + at)]) for at in range(count)]
    with folder(settings) as path:
        rig = Rig(path, _OPTIONS)
        rig.topic(_TOPIC, ["g"])
        broker = rig.broker
        freeze()
        watches = {"schedule_us": Stopwatch(), "cancel_us": Stopwatch(), "fulfil_us": Stopwatch()}
        for at in range(0, count, _BLOCK):
            some = batches[at : at + _BLOCK]
            watches["schedule_us"].start()
            for batch in some:
                broker.send(rig.now_us, _TOPIC, batch)
            watches["schedule_us"].stop(len(some))
            rig.turn()
            sequences = range(at, at + len(some), 4)
            watches["cancel_us"].start()
            for sequence in sequences:
                broker.cancel_scheduled(rig.now_us, _TOPIC, producer.number, sequence)
            watches["cancel_us"].stop(len(sequences))
            rig.turn()
        rig.now_us = due_us + count
        _fulfil(rig, watches["fulfil_us"])
        rig.close()
        thaw()
    return {name: watch.each_us() for name, watch in watches.items()}


def _fulfil(rig: Rig, watch: Stopwatch) -> None:
    """Deliver all that is due, and measure the time of a row."""
    broker = rig.broker
    left = broker.views.schedule.rows
    more = True
    while more:
        before = broker.fulfilling.fulfilled_rows
        watch.start()
        more = broker.tick(rig.now_us)
        watch.stop(broker.fulfilling.fulfilled_rows - before)
        rig.turn(passed_us=0)
    if broker.fulfilling.fulfilled_rows != left:
        raise RuntimeError(f"{broker.fulfilling.fulfilled_rows} of {left} rows were delivered")


def burst(settings: Settings) -> Figures:
    """Deliver messages of batches of 1,000 that are due within a second, in any order."""
    chance = random.Random(4)
    producer = Producer(_TOPIC)
    count = settings.scaled(_BURST, 2000)
    begin_us = START_US + 600 * SECOND_US
    watch = Stopwatch()
    with folder(settings) as path:
        rig = Rig(path, _OPTIONS)
        rig.topic(_TOPIC, ["g"])
        for _ in range(0, count, _BURST_OF):
            times = [begin_us + chance.randrange(SECOND_US) for _ in range(_BURST_OF)]
            batch = producer.rows([Row(body=b"x" * 100, due_us=one) for one in times])
            rig.broker.send(rig.now_us, _TOPIC, batch)
            rig.turn()
        freeze()
        rig.now_us = begin_us + SECOND_US
        _fulfil(rig, watch)
        rig.close()
        thaw()
    return {"fulfil_us": watch.each_us()}


def _schedule(rig: Rig, count: int, due: tuple[int, int] | None) -> None:
    """Send messages in batches of 500, due at random times in a range; None: not scheduled."""
    chance = random.Random(3)
    producer = Producer(_TOPIC)
    for at in range(0, count, 500):
        times = [
            0 if due is None else rig.now_us + chance.randrange(*due)
            for _ in range(min(500, count - at))
        ]
        rig.broker.send(
            rig.now_us, _TOPIC, producer.rows([Row(body=b"x" * 20, due_us=one) for one in times])
        )
        rig.turn()


def _resident(settings: Settings, count: int, due: tuple[int, int] | None) -> int:
    with folder(settings) as path:
        rig = Rig(path, _OPTIONS)
        rig.topic(_TOPIC)
        before = resident_bytes()
        _schedule(rig, count, due)
        freeze()
        used = resident_bytes() - before
        rig.close()
    return used


def memory(settings: Settings) -> Figures:
    """Hold a million messages that are due within 600 days, beside as many plain ones; and near."""
    count = settings.scaled(_PENDING, 1000)
    plain = _resident(settings, count, None)
    pending = _resident(settings, count, _FAR)
    near = _resident(settings, count, _NEAR)
    return {
        "resident_mib": pending / MIB,
        "resident_beyond_plain_mib": (pending - plain) / MIB,
        "resident_a_row_bytes": (pending - plain) / count,
        "near_beyond_plain_mib": (near - plain) / MIB,
        "near_a_row_bytes": (near - plain) / count,
    }


def start(settings: Settings) -> Figures:
    """Start with ten million pending messages."""
    count = settings.scaled(_MANY, 2000)
    with folder(settings) as path:
        rig = Rig(path, _OPTIONS)
        rig.topic(_TOPIC)
        _schedule(rig, count, _FAR)
        rig.broker.close(rig.now_us)
        rig.close()
        return _started(path, count)


def _started(path: Path, count: int) -> Figures:
    cold = drop_caches()
    before = resident_bytes()
    begin, used = time.perf_counter(), time.thread_time()
    rig = Rig(path, _OPTIONS)
    figures: Figures = {
        "start_s": time.perf_counter() - begin,
        "start_cpu_s": time.thread_time() - used,
        "start_cold": float(cold),
        "resident_mib": (resident_bytes() - before) / MIB,
    }
    if rig.broker.views.schedule.rows != count:
        raise RuntimeError(f"{rig.broker.views.schedule.rows} of {count} rows are pending")
    rig.close()
    return figures


def state_share(settings: Settings) -> Figures:
    """Schedule 5,000 messages of 1 KiB a second, each due within 10 s, and weigh STATE."""
    chance = random.Random(5)
    size = settings.scaled(_STATE_MIB, 4) * MIB
    body = bytes(range(256)) * 4
    producer = Producer(_TOPIC)
    options = _OPTIONS if not settings.quick else Options(segment_bytes=MIB, state_bytes=MIB)
    with folder(settings) as path:
        rig = Rig(path, options, sync=False)
        rig.topic(_TOPIC)
        broker, journal = rig.broker, rig.broker.journal
        freeze()
        while journal.end < size:
            for _ in range(5):
                due_us = rig.now_us + chance.randrange(SECOND_US, 10 * SECOND_US)
                batch = producer.rows([Row(body=body, due_us=due_us)])
                broker.send(rig.now_us, _TOPIC, batch)
            broker.tick(rig.now_us)
            rig.turn()
        thaw()
        figures: Figures = {
            "delivered": broker.fulfilling.fulfilled_rows,
            "pending": broker.views.schedule.rows,
            "journal_mib": journal.end / MIB,
            "state_sets": broker.writer.sets_written - 1,
            "state_share": broker.writer.bytes_written / journal.end,
        }
        rig.close()
    return figures


MEASUREMENTS: Final = (
    Measurement(
        "schedule-single",
        "one scheduled message of 1 KiB: schedule it, cancel it, deliver it",
        singles,
        (Target("schedule_us", 10.0), Target("cancel_us", 8.0), Target("fulfil_us", 15.0)),
        {"block": _BLOCK, "body_bytes": 1024, "messages": _SINGLES},
    ),
    Measurement(
        "scheduled-burst",
        "deliver messages of batches of 1,000, due within a second in any order",
        burst,
        (),
        {"messages": _BURST, "batch": _BURST_OF, "body_bytes": 100},
    ),
    Measurement(
        "scheduled-1000000",
        "a million messages due within 600 days, or within the hour: memory",
        memory,
        (Target("resident_beyond_plain_mib", 50.0),),
        {"messages": _PENDING, "days": _SPREAD_DAYS},
    ),
    Measurement(
        "scheduled-10000000",
        "ten million messages due within 600 days: start",
        start,
        (Target("start_s", 3.0),),
        {"messages": _MANY, "days": _SPREAD_DAYS},
    ),
    Measurement(
        "scheduled-state",
        "what STATE takes of the journal while messages are scheduled and come due within 10 s",
        state_share,
        (Target("state_share", 0.05),),
        {"body_bytes": 1024, "a_second": 5000, "journal_mib": _STATE_MIB},
    ),
)
