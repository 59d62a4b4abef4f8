"""How long a start takes at the worst point, and how fast records are replayed.

The journal is made by a real broker on the real disk: single messages of 100 bytes, pulled in 32s
and settled; one row in so many fails and waits a day for its retry, until a million are owed; sets
of STATE are written as they come due. Broker time runs at 40,000 messages a second, so that the
deduplication window holds the newest million batches. It ends in the middle of a set, just before
its END: all since the set before must be replayed. Then the broker is dropped as a kill would.

Before every start the files that the start before changed are put back, and the system forgets
what it holds of files (as root).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
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
    Target,
    folder,
    spread,
)
from core_machine import drop_caches, resident_bytes

from ternmq.broker.start import Options
from ternmq.journal.state.sets import DEFAULT_INTERVAL_BYTES, DEFAULT_INTERVAL_RECORDS
from ternmq.model.specs import SubscriptionSpec
from ternmq.model.types import DAY_US, SECOND_US
from ternmq.record.fact.facts import Outcome
from ternmq.wire.bodies import Settle

_TOPIC: Final = "orders"
_GROUP: Final = "billing"
_OWED: Final = 1_000_000
_DEDUP: Final = 1_000_000
_A_TURN: Final = 512
_A_SECOND: Final = 40_000
_MESSAGE_BYTES: Final = 256
"""Journal bytes of a message, its share of PULLED and SETTLED included; roughly."""


def options_of(settings: Settings) -> Options:
    """Return the options of the broker that makes and opens the journal."""
    if settings.quick:
        return Options(segment_bytes=MIB, reserve_bytes=MIB, state_records=5000)
    return Options()


# ------------------------------------------------------------------------------------ the journal


def make(path: Path, settings: Settings) -> Figures:
    """Make the journal; return what it holds."""
    size = settings.journal_mib * MIB
    owed = settings.scaled(_OWED, 500)
    rig = Rig(path, options_of(settings), sync=False)
    rig.join()
    rig.topic(_TOPIC, [_GROUP], spec=SubscriptionSpec(window=60_000))
    _fill(rig, size, owed)
    _end_in_a_set(rig, settings)
    held = rig.broker.views.progress[1, 1, 0]
    figures: Figures = {
        "journal_bytes": rig.broker.journal.written,
        "messages": rig.broker.views.catalog.topics[1].queues[0].next,
        "owed_rows": held.failures.waiting_rows + held.failures.dead_rows + held.leased_rows,
        "dedup_entries": len(rig.broker.views.dedup),
        "state_sets": rig.broker.writer.sets_written - 1,
        "state_share": rig.broker.writer.bytes_written / rig.broker.journal.end,
        "to_replay_bytes": rig.broker.journal.written - rig.broker.writer.complete[-2].begin,
    }
    rig.close()
    os.sync()
    return figures


def _fill(rig: Rig, size: int, owed: int) -> None:
    """Send, pull, settle until the journal has its size; one row in ``apart`` fails."""
    producer = Producer(_TOPIC)
    broker, journal = rig.broker, rig.broker.journal
    held = broker.views.progress[1, 1, 0]
    apart = max(2, int(size / _MESSAGE_BYTES * 0.97 / owed))
    passed_us = _A_TURN * SECOND_US // _A_SECOND
    body = b"order 0123456789 " * 6
    body = body[:100]
    next_bad = 0
    while journal.end < size:
        now = rig.now_us
        for _ in range(_A_TURN):
            broker.send(now, _TOPIC, producer.single(body))
        rig.turn(passed_us=passed_us)
        while (reply := broker.pull(now, rig.session, _TOPIC, _GROUP, 32)) is not None:
            lease = (_TOPIC, _GROUP, 0, reply.epoch, reply.lease)
            start, stop = reply.runs[0][0], reply.runs[-1][1]
            bad = [at for at in range(max(start, next_bad), stop) if at % apart == 0]
            if bad and held.failures.waiting_rows < owed:
                some = tuple([(at, at + 1) for at in bad])
                asked = Settle(*lease, Outcome.RETRY, some, DAY_US, "no answer")
                broker.settle(now, rig.session, asked)
                next_bad = bad[-1] + 1
            if len(bad) < stop - start:
                broker.settle(now, rig.session, Settle(*lease, Outcome.DONE))


def _end_in_a_set(rig: Rig, settings: Settings) -> None:
    """Go on with load until a set was begun at its due time and lacks only what ends it.

    The set's last piece (with DIRECTORY and END) is appended but never written: the kill.
    """
    producer = Producer(_TOPIC, 9)
    broker, writer = rig.broker, rig.broker.writer
    body = b"x" * 100
    while writer.active or not writer.due():
        for _ in range(_A_TURN):
            broker.send(rig.now_us, _TOPIC, producer.single(body))
        if not writer.active and writer.due():
            break
        rig.turn()
        rig.pull_settle(_TOPIC, _GROUP, 256)
    broker.pull(rig.now_us, rig.session, _TOPIC, _GROUP, 256)
    rig.turn(upkeep=False)
    writer.begin(rig.now_us)
    while True:
        left = iter(range(200 if not settings.quick else 2))
        if writer.step(rig.now_us, lambda left=left: next(left, None) is not None):  # type: ignore[misc]
            return
        for _ in range(64 if not settings.quick else 4):
            broker.send(rig.now_us, _TOPIC, producer.single(body))
        rig.turn(upkeep=False)


# ---------------------------------------------------------------------------------------- a start


@contextmanager
def made_journal(settings: Settings) -> Iterator[tuple[Path, Figures]]:
    """Make the journal in a process of its own (its memory is not the start's)."""
    with folder(settings) as path:
        command = [sys.executable, __file__, str(path), "make", str(settings.journal_mib)]
        command += ["quick"] if settings.quick else []
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        made: Figures = json.loads(done.stdout.splitlines()[-1])
        yield path, made


def keep(path: Path, written: int) -> None:
    """Lay a copy of what a start changes aside: the segment in which the journal ends."""
    kept = path / "kept"
    (kept / "index").mkdir(parents=True)
    names = [name for name in os.listdir(path / "journal") if int(name[:20]) <= written]
    shutil.copy(path / "journal" / max(names), kept / max(names))
    for name in os.listdir(path / "index"):
        os.link(path / "index" / name, kept / "index" / name)  # never changed, only removed


def put_back(path: Path) -> None:
    """Put back what a start has changed."""
    kept = path / "kept"
    for name in os.listdir(kept):
        if name.endswith(".seg"):
            shutil.copy(kept / name, path / "journal" / name)
    shutil.rmtree(path / "index")
    (path / "index").mkdir()
    for name in os.listdir(kept / "index"):
        os.link(kept / "index" / name, path / "index" / name)


def start(settings: Settings) -> Figures:
    """Start five times with the journal; return the run in the middle, and the time of each."""
    starts: list[Figures] = []
    with made_journal(settings) as (path, made):
        keep(path, int(made["journal_bytes"]))
        for _ in range(settings.rounds):
            put_back(path)
            command = [sys.executable, __file__, str(path), "open", str(settings.journal_mib)]
            command += ["quick"] if settings.quick else []
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            starts.append(json.loads(done.stdout.splitlines()[-1]))
    each = [one["start_s"] for one in starts]
    starts.sort(key=lambda one: one["start_s"])
    return {
        **starts[len(starts) // 2],
        **{f"start_{number}_s": taken for number, taken in enumerate(each, 1)},
        "start_spread": spread(each),
        **made,
    }


def open_once(path: Path, settings: Settings) -> Figures:
    """Start with a cold cache; return what it took."""
    cold = drop_caches()
    before = resident_bytes()
    begin, used = time.perf_counter(), time.thread_time()
    rig = Rig(path, options_of(settings))
    taken, cpu = time.perf_counter() - begin, time.thread_time() - used
    held = rig.broker.views.progress[1, 1, 0]
    figures: Figures = {
        "start_s": taken,
        "start_cpu_s": cpu,
        "start_cold": float(cold),
        "resident_mib": (resident_bytes() - before) / MIB,
        "records_walked": rig.started.report.record_count,
        "owed_found": held.failures.waiting_rows + held.failures.dead_rows + held.leased_rows,
        "dedup_found": len(rig.broker.views.dedup),
    }
    rig.close()
    return figures


# ----------------------------------------------------------------------------------------- replay


def replay(settings: Settings) -> Figures:
    """Start with journals without a STATE set: all records are replayed."""
    count = settings.scaled(200_000, 2000)
    singles = _replay(settings, count, pulls=False)
    mixed = _replay(settings, count, pulls=True)
    return {
        "messages_per_s": singles["records_per_s"],
        "messages_mb_per_s": singles["mb_per_s"],
        "pulled_and_settled_per_s": mixed["records_per_s"],
    }


def _replay(settings: Settings, count: int, *, pulls: bool) -> Figures:
    options = Options(segment_bytes=64 * MIB, reserve_bytes=MIB, state_records=1 << 40,
                      state_bytes=1 << 40)  # fmt: skip
    producer = Producer(_TOPIC)
    with folder(settings) as path:
        rig = Rig(path, options, sync=False)
        rig.join()
        rig.topic(_TOPIC, [_GROUP])
        if pulls:
            rig.broker.send(rig.now_us, _TOPIC, producer.many([b"x"] * (count // 2)))
            rig.turn(upkeep=False)
            for at in range(count // 2):
                rig.pull_settle(_TOPIC, _GROUP, 1)
                if at % 1000 == 0:
                    rig.turn(upkeep=False)
        else:
            for at in range(count):
                rig.broker.send(rig.now_us, _TOPIC, producer.single(b"x" * 100))
                if at % 1000 == 0:
                    rig.turn(upkeep=False)
        rig.turn(upkeep=False)
        rig.close()
        begin = time.thread_time()
        again = Rig(path, options)
        taken = time.thread_time() - begin
        records, end = again.started.report.record_count, again.broker.journal.end
        again.close()
    return {"records_per_s": records / taken, "mb_per_s": end / taken / 1e6}


MEASUREMENTS: Final = (
    Measurement(
        "replay",
        "a start that replays every record (the scan, the repair and the index included)",
        replay,
        options={"records": 200_000, "body_bytes": 100},
    ),
    Measurement(
        "start",
        "start at the worst point: 1 GB (--large 10 GB) of 100-byte singles, leases and settles",
        start,
        (Target("start_s", 3.0),),
        {
            "owed_rows": _OWED,
            "dedup_entries": _DEDUP,
            "messages_per_broker_second": _A_SECOND,
            "state_bytes": DEFAULT_INTERVAL_BYTES,
            "state_records": DEFAULT_INTERVAL_RECORDS,
            "start_us": START_US,
        },
        rounds=1,
    ),
)


def _main() -> None:
    path, verb, mib, *words = sys.argv[1:]
    settings = Settings(quick="quick" in words, journal_mib=int(mib))
    figures = {"make": make, "open": open_once}[verb](Path(path), settings)
    print(json.dumps(figures))


if __name__ == "__main__":
    _main()
