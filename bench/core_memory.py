"""What 40,000 topics with one message each take: memory, a STATE set, a start."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final

from core_kit import MIB, Figures, Measurement, Producer, Rig, Settings, Target, folder, freeze
from core_machine import drop_caches, resident_bytes

from ternmq.broker.start import Options

_OPTIONS: Final = Options(segment_bytes=64 * MIB, reserve_bytes=16 * MIB)
_TOPICS: Final = 40_000


def topics(settings: Settings) -> Figures:
    """Make the topics, each with a group and a message; write a STATE set; start again."""
    count = settings.scaled(_TOPICS, 200)
    with folder(settings) as path:
        before = resident_bytes()
        rig = Rig(path, _OPTIONS)
        rig.join()
        making = time.thread_time_ns()
        for number in range(count):
            name = f"service.orders.{number:05}"
            rig.topic(name, ["billing"])
            rig.broker.send(rig.now_us, name, Producer(name, number + 1).single(b"x" * 100))
            if number % 2000 == 1999:
                rig.turn(upkeep=False)
        making = time.thread_time_ns() - making
        rig.turn(upkeep=False)
        freeze()
        resident = resident_bytes() - before
        figures: Figures = {
            "resident_mib": resident / MIB,
            "resident_a_topic_bytes": resident / count,
            "making_a_topic_us": making / count / 1000,
            "descriptors": len(os.listdir("/proc/self/fd")),
        }
        figures |= _state_set(rig, "first_set")
        for number in range(0, count, 100):
            name = f"service.orders.{number:05}"
            rig.broker.send(
                rig.now_us, name, Producer(name, number + 1, start=1).single(b"x" * 100)
            )
        rig.turn(upkeep=False)
        figures |= _state_set(rig, "next_set")
        rig.close()
        del rig
        figures |= _start(path)
    return figures


def _state_set(rig: Rig, name: str) -> Figures:
    """Write a set in steps of a millisecond; return what it took and its longest step."""
    writer, journal = rig.broker.writer, rig.broker.journal
    before = writer.bytes_written
    steps = total = longest = 0
    ended = False
    while not ended:
        begin = time.thread_time_ns()
        if not writer.active:
            writer.begin(rig.now_us)
        stop = time.perf_counter_ns() + 1_000_000
        ended = writer.step(rig.now_us, lambda stop=stop: time.perf_counter_ns() < stop)  # type: ignore[misc]
        taken = time.thread_time_ns() - begin
        total += taken
        longest = max(longest, taken)
        steps += 1
        journal.flush()
        rig.sync()
        rig.jobs()
    return {
        f"{name}_ms": total / 1e6,
        f"{name}_longest_step_ms": longest / 1e6,
        f"{name}_steps": steps,
        f"{name}_mib": (writer.bytes_written - before) / MIB,
    }


def _start(path: Path) -> Figures:
    cold = drop_caches()
    begin, used = time.perf_counter(), time.thread_time()
    rig = Rig(path, _OPTIONS)
    figures = {
        "start_s": time.perf_counter() - begin,
        "start_cpu_s": time.thread_time() - used,
        "start_cold": float(cold),
    }
    rig.close()
    return figures


MEASUREMENTS: Final = (
    Measurement(
        "topics-40000",
        "40,000 topics, each with a group and a message: memory, STATE, start",
        topics,
        (Target("resident_mib", 400.0), Target("start_s", 5.0), Target("descriptors", 200)),
        {"topics": _TOPICS},
    ),
)
