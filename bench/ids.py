"""Measures numbers of a broker process: eight processes that take a million each, and one number.

    python bench/ids.py            five rounds of each
    python bench/ids.py buffered   only how long a number takes that is there
    python bench/ids.py --quick    a smoke run, nothing is written

``processes``: all begin at one moment, with the blocking client. ``seconds`` is the time until the
last one is done. A run in which a number comes twice fails. ``fallbacks`` came from reserves,
because the broker did not answer within 50 ms: the machine has fewer cores than processes.

``buffered``: one process; of each thousand numbers, how long one took, the median.
"""

from __future__ import annotations

import contextlib
import sys
import time
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any, Final

from broker_kit import client, figures_of, ready
from core_kit import Figures, Measurement, Settings, Target, folder
from runner import Suite, run
from schedule import broker

CLIENTS: Final = Path(__file__).with_name("ids_clients.py")
PROCESSES: Final = 8
EACH: Final = 1_000_000


def check_unique(runs: list[list[int]]) -> None:
    """Check that ranges do not overlap.

    Raises:
        RuntimeError: They do: a number was taken twice.
    """
    stop = 0
    for first, end in sorted(runs):
        if first < stop:
            raise RuntimeError(f"number {first} was taken twice")
        stop = end


def processes(settings: Settings) -> Figures:
    """Let eight processes take numbers at the same time."""
    count = settings.scaled(EACH, 5_000)
    with folder(settings) as path, broker(path / "data") as one, contextlib.ExitStack() as stack:
        client(one.url, "prepare", CLIENTS)
        command = [sys.executable, str(CLIENTS), "take", one.url, f"count={count}"]
        takers = [
            stack.enter_context(Popen(command, stdin=PIPE, stdout=PIPE, text=True))
            for _ in range(PROCESSES)
        ]
        for taker in takers:
            ready(taker)
        begin_us = int(time.time() * 1e6)
        for taker in takers:
            assert taker.stdin is not None
            taker.stdin.write("go\n")
            taker.stdin.flush()
        found: list[dict[str, Any]] = [dict(figures_of(taker, 600.0)) for taker in takers]
    check_unique([one_run for each in found for one_run in each["runs"]])
    seconds = (max(each["ended_us"] for each in found) - begin_us) / 1e6
    return {
        "seconds": seconds,
        "numbers_per_s": PROCESSES * count / seconds,
        "slowest_s": max(each["seconds"] for each in found),
        "fallbacks": float(sum(each["fallbacks"] for each in found)),
        "blocks": float(sum(each["blocks"] for each in found)),
    }


def buffered(settings: Settings) -> Figures:
    """Take numbers that are there."""
    with folder(settings) as path, broker(path / "data") as one:
        client(one.url, "prepare", CLIENTS)
        return client(one.url, "buffered", CLIENTS)


SUITE: Final = Suite(
    Path(__file__),
    "Measure numbers of topics.",
    (
        Measurement(
            "processes", "eight processes that take a million numbers each", processes,
            (Target("seconds", 60.0),),
            {"processes": PROCESSES, "each": EACH},
        ),
        Measurement(
            "buffered", "a number of the block that a process has", buffered,
            (Target("each_us", 2.0),),
        ),
    ),
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(run(SUITE))
