"""The longest turn of the loop while STATE is written, segments are sealed, retries wait, or go.

A turn is what a shell does between two looks at its sockets: some commands, the tick, the upkeep
within its millisecond, the flush, what a finished sync lets go. Some retries come due now and then;
after two thirds of the turns two hours pass at once, so that all the others do. In the second
measurement rows wait for a year, and the journal is larger than it may be: segment after segment is
looked through for what is owed, which is copied forward, and goes. What blocks (syncs, jobs) runs
between the turns, outside of the clock. The clock is the thread's CPU time with the
collector on: its pauses belong to the turn in which they happen.
"""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

from core_kit import (
    MIB,
    START_US,
    Figures,
    Measurement,
    Producer,
    Rig,
    Settings,
    Target,
    folder,
    freeze,
    gather,
    thaw,
)
from core_machine import percentile

from ternmq.broker.start import Options
from ternmq.journal.cache.cold import WouldBlock
from ternmq.journal.log.retention import RetentionSpec
from ternmq.model.specs import SubscriptionSpec
from ternmq.model.types import DAY_US, SECOND_US
from ternmq.record.fact.facts import Outcome
from ternmq.wire.bodies import Settle

_TOPIC: Final = "orders"
_LIVE: Final = "live"
_OPTIONS: Final = Options(segment_bytes=16 * MIB, reserve_bytes=16 * MIB)
_RETRIES: Final = 1_000_000
_TURNS: Final = 6000
_OWED: Final = 200_000
_MOVING_TURNS: Final = 12_000
_MOST_MIB: Final = 64
_SENDS: Final = 64
_T = TypeVar("_T")
_PARTS: Final = ("commands", "tick", "upkeep", "flush", "committed", "finished", "collector")


class _Turn:
    """CPU time of one turn, part by part."""

    __slots__ = ("_at", "parts", "sealed", "state")

    def __init__(self) -> None:
        self.parts: dict[str, int] = dict.fromkeys(_PARTS, 0)
        self.state = False
        self.sealed = False
        self._at = 0

    def begin(self) -> None:
        self._at = time.thread_time_ns()

    def end(self, part: str) -> None:
        now = time.thread_time_ns()
        self.parts[part] += now - self._at
        self._at = now

    def total_ms(self) -> float:
        """Return the time of the turn; the collector's is in the other parts already."""
        return sum([ns for part, ns in self.parts.items() if part != "collector"]) / 1e6


class _Collector:
    """Adds the collector's pauses to the turn they happen in."""

    def __init__(self) -> None:
        self.turn: _Turn | None = None
        self._at = 0

    def __call__(self, phase: str, _info: dict[str, int]) -> None:
        if phase == "start":
            self._at = time.thread_time_ns()
        elif self.turn is not None:
            self.turn.parts["collector"] += time.thread_time_ns() - self._at


def longest_turn(settings: Settings) -> Figures:
    """Drive turns with load over a million waiting retries; report the longest."""
    retries = settings.scaled(_RETRIES, 5000)
    with folder(settings) as path:
        options = (
            _OPTIONS
            if not settings.quick
            else Options(segment_bytes=MIB, reserve_bytes=MIB, state_records=2000)
        )
        rig = Rig(path, options, sync=False)
        rig.join()
        rig.topic(_TOPIC, ["failing"], spec=SubscriptionSpec(window=60_000))
        _let_wait(rig, retries, 60 * SECOND_US)
        rig.topic(_LIVE, ["g"])
        waiting = rig.broker.views.progress[1, 1, 0]
        assert waiting.failures.waiting_rows == retries
        freeze()
        turns = _drive(rig, settings.scaled(_TURNS, 60))
        sets = rig.broker.writer.sets_written
        rig.close()
        thaw()
    return _figures(turns, sets)


def longest_turn_of_retention(settings: Settings) -> Figures:
    """Drive turns with load while retention is at work on rows that are owed."""
    owed = settings.scaled(_OWED, 5000)
    with folder(settings) as path:
        unit = MIB // 16 if settings.quick else MIB
        options = Options(
            segment_bytes=16 * unit,
            reserve_bytes=16 * unit,
            retention=RetentionSpec(max_bytes=_MOST_MIB * unit),
        )
        rig = Rig(path, options, sync=False)
        rig.join()
        rig.topic(_TOPIC, ["failing"], spec=SubscriptionSpec(window=60_000))
        _let_wait(rig, owed, 365 * DAY_US)
        rig.topic(_LIVE, ["g"])
        freeze()
        turns = _drive(rig, settings.scaled(_MOVING_TURNS, 60))
        moving, sets = rig.upkeep.moving, rig.broker.writer.sets_written
        figures: Figures = {
            "removed_segments": moving.removed_segments,
            "moved_rows": moving.owed_copies.copied_rows,
        }
        rig.close()
        thaw()
    return {**_figures(turns, sets), **figures}


def _let_wait(rig: Rig, count: int, from_us: int) -> None:
    """Make rows wait for their retry, due at times spread over an hour from then on."""
    producer = Producer(_TOPIC)
    rng = random.Random(5)
    broker = rig.broker
    body = [b"x" * 16] * 500
    left = count
    while left > 0:
        broker.send(rig.now_us, _TOPIC, producer.many(body))
        rig.turn(passed_us=10, upkeep=False)
        reply = broker.pull(rig.now_us, rig.session, _TOPIC, "failing", 500)
        assert reply is not None
        for start, stop, _, _ in reply.runs:
            for at in range(start, stop, 20):
                asked = Settle(
                    _TOPIC, "failing", 0, reply.epoch, reply.lease, Outcome.RETRY,
                    ((at, min(at + 20, stop)),), from_us + rng.randrange(3600 * SECOND_US),
                )  # fmt: skip
                broker.settle(rig.now_us, rig.session, asked)
        left -= 500
        rig.turn(passed_us=10, upkeep=False)


def _drive(rig: Rig, count: int) -> list[_Turn]:
    broker, upkeep, journal = rig.broker, rig.upkeep, rig.broker.journal
    producer = Producer(_LIVE, 8)
    rng = random.Random(6)
    turns: list[_Turn] = []
    collector = _Collector()
    gc.callbacks.append(collector)
    job = None
    rig.now_us = max(rig.now_us, START_US + 50 * SECOND_US)
    try:
        for number in range(count):
            rig.now_us += 5_000
            if number == count * 2 // 3:
                rig.now_us += 2 * 3600 * SECOND_US  # all that waits comes due at once
            now = rig.now_us
            batches = [producer.single(b"x" * 100) for _ in range(_SENDS)]
            turn = _Turn()
            segment = journal.end // journal.segment_size
            sync = journal.next_sync()
            collector.turn = turn
            turn.begin()
            for batch in batches:
                broker.send(now, _LIVE, batch)
            for topic, group in ((_LIVE, "g"), (_LIVE, "g"), (_TOPIC, "failing")):
                reply = _answer(partial(broker.pull, now, rig.session, topic, group, 32), turn)
                if reply is None:
                    continue
                if topic == _LIVE:
                    _answer(partial(gather, broker, reply), turn)
                bad = number % 8 == 0 or topic == _TOPIC
                asked = Settle(
                    topic, group, 0, reply.epoch, reply.lease,
                    Outcome.RETRY if bad else Outcome.DONE,
                    delay_us=rng.randrange(60 * SECOND_US) if bad else None,
                    reason="the till is closed" if bad else "",
                )  # fmt: skip
                broker.settle(now, rig.session, asked)
            turn.end("commands")
            broker.tick(now)
            turn.end("tick")
            stop = time.perf_counter_ns() + 1_000_000
            upkeep.step(now, lambda stop=stop: time.perf_counter_ns() < stop)  # type: ignore[misc]
            turn.end("upkeep")
            journal.flush()
            turn.end("flush")
            if sync is not None:
                journal.synced(sync)
                broker.committed()
                broker.woken_pulls(now)
            turn.end("committed")
            if job is not None:
                upkeep.finished(job, None)
            turn.end("finished")
            collector.turn = None
            turn.state = broker.writer.active
            turn.sealed = journal.end // journal.segment_size != segment
            turns.append(turn)
            job = upkeep.next_job()
            if job is not None:
                job.run()
    finally:
        gc.callbacks.remove(collector)
    return turns


def _answer(ask: Callable[[], _T], turn: _Turn) -> _T:
    """Return what a command answers, with the clock stopped while the disk is read for it."""
    while True:
        try:
            return ask()
        except WouldBlock as blocked:
            turn.end("commands")
            blocked.job.run()
            turn.begin()


def _figures(turns: list[_Turn], sets: int) -> Figures:
    totals = [turn.total_ms() for turn in turns]
    worst = max(turns, key=_Turn.total_ms)
    figures: Figures = {
        "longest_ms": max(totals),
        "p99_9_ms": percentile(totals, 0.999),
        "p99_ms": percentile(totals, 0.99),
        "p50_ms": percentile(totals, 0.5),
        "longest_without_upkeep_ms": max(
            [turn.total_ms() - turn.parts["upkeep"] / 1e6 for turn in turns]
        ),
        "longest_collector_ms": max([turn.parts["collector"] for turn in turns]) / 1e6,
        "longest_at_a_seal_ms": max(
            [turn.total_ms() for turn in turns if turn.sealed], default=0.0
        ),
        "over_20_ms": sum([total > 20 for total in totals]),
        "over_5_ms": sum([total > 5 for total in totals]),
        "state_sets": sets,
        "seals": sum([turn.sealed for turn in turns]),
        "worst_turn_number": turns.index(worst),
        "worst_turn_in_state": float(worst.state),
        "worst_turn_sealed": float(worst.sealed),
    }
    for part, spent in worst.parts.items():
        figures[f"worst_turn_{part}_ms"] = spent / 1e6
    return figures


MEASUREMENTS: Final = (
    Measurement(
        "longest-turn",
        "CPU of the longest turn: 1 M waiting retries, STATE sets, seals, the collector included",
        longest_turn,
        (Target("longest_ms", 20.0),),
        {"retries": _RETRIES, "turns": _TURNS, "sends_a_turn": _SENDS, "segment_mib": 16},
    ),
    Measurement(
        "longest-turn-retention",
        "CPU of the longest turn: retention at work, 200,000 owed rows are copied forward",
        longest_turn_of_retention,
        (Target("longest_ms", 20.0),),
        {
            "owed": _OWED,
            "turns": _MOVING_TURNS,
            "sends_a_turn": _SENDS,
            "segment_mib": 16,
            "journal_mib": _MOST_MIB,
        },
    ),
)
