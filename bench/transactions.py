"""Measures transactions with check-back on a broker process; see ``runner``.

    python bench/transactions.py            everything, five rounds each
    python bench/transactions.py sending-1  some of it
    python bench/transactions.py --quick    a smoke run, nothing is written

A transaction is what a user writes: ``async with client.transaction(...)``, a send, and for
``moving`` the ack of another message. It is timed from the ``async with`` to its end, where the
commit is durable. The raw disk is measured in the same round (``raw_p50_ms``).
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Final

from broker_kit import broker, client
from core_kit import Figures, Measurement, Settings, Target
from core_machine import raw_disk
from runner import Suite, run

CLIENTS: Final = Path(__file__).with_name("transaction_clients.py")
SECONDS: Final = 6.0
BACKLOG: Final = 120_000


def transactions(settings: Settings, *, verb: str, connections: int, in_flight: int) -> Figures:
    """Open and commit transactions for some seconds."""
    raw_p50_ms = raw_disk(settings)["synced_1_kib_p50_us"] / 1e3
    seconds = 1.0 if settings.quick else SECONDS
    with broker(settings) as one:
        if verb == "moving":
            client(one.url, "send_many", count=settings.scaled(BACKLOG, 10_000), of=1000)
        before = one.cpu_s()
        found = client(
            one.url, verb, CLIENTS, connections=connections, in_flight=in_flight, seconds=seconds
        )
        used = one.cpu_s() - before
    found["raw_p50_ms"] = raw_p50_ms
    found["broker_cpu_us_each"] = used * 1e6 / (found["transactions_per_s"] * (seconds + 0.5))
    if connections * in_flight == 1:
        found["p50_over_two_raw_ms"] = found["p50_ms"] - 2 * raw_p50_ms
    return found


def _one(
    verb: str, about: str, targets: tuple[Target, ...], connections: int, in_flight: int
) -> Measurement:
    return Measurement(
        f"{verb}-{connections * in_flight}",
        about,
        partial(transactions, verb=verb, connections=connections, in_flight=in_flight),
        targets,
        {"connections": connections, "in_flight": in_flight, "body_bytes": 1024},
    )


SUITE: Final = Suite(
    Path(__file__),
    "Measure transactions.",
    (
        _one(
            "sending", "transactions that send one message of 1 KiB, one at a time",
            (Target("p50_over_two_raw_ms", 1.0),), 1, 1,
        ),
        _one(
            "sending", "the same, on 16 connections with 16 at a time each",
            (Target("transactions_per_s", 5000.0, at_least=True),), 16, 16,
        ),
        _one(
            "moving", "transactions that send one message and ack another, one at a time",
            (), 1, 1,
        ),
        _one("moving", "the same, on 16 connections with 16 at a time each", (), 16, 16),
    ),
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(run(SUITE))
