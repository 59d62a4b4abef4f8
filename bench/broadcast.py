"""Measures broadcast on a broker process: when have a hundred instances a message?

    python bench/broadcast.py            five rounds
    python bench/broadcast.py --quick    a smoke run, nothing is written

A hundred clients in one process are instances of one topic. Single messages are sent to it, two in
a second. ``all_have_it_worst_ms`` is the time from the send of a message until the last of the
clients has it in hand, of the slowest message.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from broker_kit import client, figures_of, ready, started
from core_kit import Figures, Measurement, Settings, Target, folder
from runner import Suite, run
from schedule import broker

CLIENTS: Final = Path(__file__).with_name("broadcast_clients.py")
INSTANCES: Final = 100
MESSAGES: Final = 20


def received(settings: Settings) -> Figures:
    """Send messages to many instances."""
    clients = settings.scaled(INSTANCES, 10)
    messages = settings.scaled(MESSAGES, 2)
    with folder(settings) as path, broker(path / "data") as one:
        client(one.url, "prepare", CLIENTS)
        with started(
            one.url, "instances", CLIENTS, clients=clients, messages=messages
        ) as consumers:
            ready(consumers)
            one.tell("reset")
            client(one.url, "send", CLIENTS, messages=messages)
            found = figures_of(consumers)
        longest = one.longest()
    return {
        **found,
        "longest_turn_cpu_ms": longest["cpu_ms"],
        "longest_turn_ms": longest["wall_ms"],
    }


SUITE: Final = Suite(
    Path(__file__),
    "Measure broadcast.",
    (
        Measurement(
            "received", "a message for a hundred broadcast instances", received,
            (Target("all_have_it_worst_ms", 1000.0), Target("longest_turn_cpu_ms", 20.0)),
            {"instances": INSTANCES, "messages": MESSAGES},
        ),
    ),
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(run(SUITE))
