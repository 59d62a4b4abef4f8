"""Measures inboxes: a handler with one, beside the same handler with a transaction of its own.

    python bench/inbox.py                 everything, five rounds each
    python bench/inbox.py sqlite memory   some of it
    python bench/inbox.py --quick         a smoke run, nothing is written

Both handlers run in the same round, in turns, on messages that were sent before; one process, four
messages at a time (on SQLite, which has one writer, one at a time). ``share`` is messages a second
with the inbox, over those without. In memory, the handler has nothing to do.
"""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path
from typing import Final

from broker_kit import broker, client
from core_kit import Figures, Measurement, Settings, Target
from database_kit import NAMES, database
from runner import Suite, run

CLIENTS: Final = Path(__file__).with_name("inbox_clients.py")
MESSAGES: Final = 1_500
IN_MEMORY: Final = 20_000


def effects(settings: Settings, *, name: str) -> Figures:
    """Compare handlers that write a business row."""
    count = settings.scaled(MESSAGES, 60)
    with broker(settings) as one, database(settings, name) as url:
        os.environ["TERNMQ_BENCH_DATABASE"] = url
        try:
            return client(one.url, "effects", CLIENTS, count=count)
        finally:
            del os.environ["TERNMQ_BENCH_DATABASE"]


def memory(settings: Settings) -> Figures:
    """Compare handlers that do nothing."""
    with broker(settings) as one:
        return client(one.url, "memory", CLIENTS, count=settings.scaled(IN_MEMORY, 500))


SUITE: Final = Suite(
    Path(__file__),
    "Measure inboxes.",
    (
        *[
            Measurement(
                name, f"a handler with an inbox and a business row, on {name}",
                partial(effects, name=name), (Target("share", 0.6, at_least=True),),
                {"messages": MESSAGES, "body_bytes": 100},
            )
            for name in NAMES
        ],
        Measurement(
            "memory", "a handler that does nothing, with an inbox in memory", memory,
            (Target("share", 0.8, at_least=True),), {"messages": IN_MEMORY, "body_bytes": 100},
        ),
    ),
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(run(SUITE))
