"""How long a promotion takes with the views of the follower, beside a start with the same journal.

The journal is that of ``core_start``, and becomes a copy. A follower has applied it up to 2 MiB
before its end. What is measured begins when it stops to acknowledge, and ends with the EPOCH of the
new reign on the disk: the last sync, the rest of the records, the opening. A broker that has no
views recovers instead. The change of the record in the coordinator is not part of it.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from core_kit import MIB, START_US, Figures, Measurement, Settings, Target, spread
from core_start import keep, made_journal, options_of, put_back

from ternmq.broker.standby import Standby
from ternmq.broker.start import collector_paused, open_broker
from ternmq.journal.copy.copy import Copy
from ternmq.journal.disk.real import RealDisk
from ternmq.journal.log.scan import Scanner
from ternmq.model.types import Position

_LEFT_BYTES: Final = 2 * MIB
_KINDS: Final = ("views", "recovery")


def promotion(settings: Settings) -> Figures:
    """Promote the copy with views and by a recovery, in turns; return the runs in the middle."""
    found: dict[str, list[Figures]] = {kind: [] for kind in _KINDS}
    with made_journal(settings) as (path, made):
        keep(path, int(made["journal_bytes"]))
        for number in range(settings.rounds):
            for kind in _KINDS if number % 2 else reversed(_KINDS):
                put_back(path)
                command = [sys.executable, __file__, str(path), kind]
                command += ["quick"] if settings.quick else []
                done = subprocess.run(command, check=True, capture_output=True, text=True)
                found[kind].append(json.loads(done.stdout.splitlines()[-1]))
    figures: Figures = {}
    for kind, runs in found.items():
        runs.sort(key=lambda one: one["s"])
        figures |= {f"{kind}_{name}": value for name, value in runs[len(runs) // 2].items()}
        figures[f"{kind}_worst_s"] = runs[-1]["s"]
        figures[f"{kind}_spread"] = spread([one["s"] for one in runs])
    return {**figures, **made}


def promote(path: Path, settings: Settings, kind: str) -> Figures:
    """Promote once, in this process."""
    options = options_of(settings)
    disk = RealDisk(path)
    disk.lock()
    copy = Copy.open(disk, reserve_bytes=options.reserve_bytes)
    assert copy is not None
    end, bound = copy.end, _boundary(disk, copy)
    standby = Standby(disk, options.limits, segment_size=copy.segment_size, first=copy.first)
    if kind == "views":
        with collector_paused():
            standby.load(bound)
    began, used = time.perf_counter(), time.process_time()
    copy.sync_all()
    ending = copy.ending()
    copy.close()
    ready = None
    if kind == "views":
        with collector_paused():
            standby.catch_up(end)
        ready = standby.ready(ending)
    started = open_broker(
        disk, wall_us=START_US, chance=random.Random(1), options=options, ready=ready
    )
    figures: Figures = {
        "s": time.perf_counter() - began,
        "cpu_s": time.process_time() - used,
        "left_bytes": float(end - bound) if ready is not None else 0.0,
    }
    held = started.broker.views.progress[1, 1, 0].failures
    figures["owed_found"] = float(held.waiting_rows + held.dead_rows)
    return figures


def _boundary(disk: RealDisk, copy: Copy) -> Position:
    """Return the end of the first record that ends less than ``_LEFT_BYTES`` before the end."""
    wanted = max(copy.first + 1, copy.end - _LEFT_BYTES)
    base = Position(wanted - wanted % copy.segment_size)
    for record in Scanner(disk, base, segment_size=copy.segment_size, stop=copy.end):
        if record.end >= wanted:
            return record.end
    return copy.end


MEASUREMENTS: Final = (
    Measurement(
        "promotion",
        "a follower with its views becomes the primary, beside a recovery of the same journal",
        promotion,
        (Target("views_s", 1.0),),
        {"left_bytes": _LEFT_BYTES},
        rounds=1,
    ),
)


def _main() -> None:
    path, kind, *words = sys.argv[1:]
    print(json.dumps(promote(Path(path), Settings(quick="quick" in words), kind)))


if __name__ == "__main__":
    _main()
