"""Measures failed messages on a broker process: queries over a million, a redrive of many.

    python bench/failures.py            five rounds of each
    python bench/failures.py query      only the query
    python bench/failures.py --quick    a smoke run, nothing is written

``query``: half of a million messages are dead letters, half wait for a retry. A client asks for the
newest hundred, and for messages by state, attempts, time, key and id, five times each. Its times
are those that the client sees, with all its requests. ``slowest_ms`` is the largest of the medians,
``worst_ms`` the slowest of all.

``redrive``: 100,000 dead letters are redriven at full rate. Beside it single messages are sent at a
pace; their p99 is compared with the same sends to the same broker just before.

``poison``: a handler that does nothing takes messages from a backlog; one in a hundred always fails
and is delivered four times. ``kept`` is the rate of the others, as a share of the rate without
failures, just before and just after. The client logs no failures.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Final

from broker_kit import client, figures_of, ready, started
from broker_lists import Asker
from core_kit import Figures, Measurement, Settings, Target, folder
from core_machine import raw_disk
from failures_clients import KEYS, POISON_ATTEMPTS, TOPIC
from runner import Suite, run
from schedule import Broker, broker

from ternmq.record.batch.batch import Row, encode, topic_seed
from ternmq.wire import bodies
from ternmq.wire.commands import Command

CLIENTS: Final = Path(__file__).with_name("failures_clients.py")
FAILED: Final = 1_000_000
REDRIVEN: Final = 100_000
HANDLED: Final = 60_000
POISON_EVERY: Final = 100
LIVE_PER_S: Final = 500
CALM_S: Final = 10.0
OF: Final = 1000
_BODY: Final = b"x" * 100


def fill(one: Broker, count: int, dead: int) -> Figures:
    """Send messages, 1,000 in a batch, and let all of them fail; see ``failures_clients.fail``."""
    client(one.url, "prepare", CLIENTS)
    seed = topic_seed(TOPIC)
    with Asker(one.port, "admin") as asker:
        for at in range(0, count, OF):
            rows = [
                Row(_BODY, key=f"key-{number % KEYS}", application_id=f"payment-{number}")
                for number in range(at, min(at + OF, count))
            ]
            batch = encode(rows, topic_seed=seed, producer_id=1, first_sequence=at, born_us=1)
            asker.ask_raw(Command.SEND, bodies.pack_send(TOPIC, None, batch))
    # `client` would give up after two minutes.
    with started(one.url, "fail", CLIENTS, count=count, dead=dead) as consumer:
        return figures_of(consumer, 600.0)


def query(settings: Settings) -> Figures:
    """Ask for some of a million failed messages."""
    count = settings.scaled(FAILED, 5_000)
    with folder(settings) as path, broker(path / "data") as one:
        found = fill(one, count, OF // 2)
        resident = one.server.resident_mib()
        one.server.rest()  # what the filling left to do is no query's
        one.tell("reset")
        found |= client(one.url, "query", CLIENTS, count=count)
        longest = one.longest()
    return {
        **found,
        "longest_turn_cpu_ms": longest["cpu_ms"],
        "longest_turn_ms": longest["wall_ms"],
        "resident_mib": resident,
    }


def redrive(settings: Settings) -> Figures:
    """Redrive many dead letters beside live traffic."""
    count = settings.scaled(REDRIVEN, 2_000)
    calm_s = 1.0 if settings.quick else CALM_S
    raw = raw_disk(settings)
    with folder(settings) as path, broker(path / "data") as one:
        found = fill(one, count, OF)
        one.server.rest()
        begin_us = int((time.time() + 1.0) * 1e6)
        calm = client(one.url, "live", CLIENTS, per_s=LIVE_PER_S, seconds=calm_s, begin_us=begin_us)
        begin_us = int((time.time() + 10.0) * 1e6)
        with (
            started(one.url, "redrive", CLIENTS, count=count, begin_us=begin_us) as operator,
            # As long as a redrive takes about: what comes after it would hide what it costs.
            started(
                one.url, "live", CLIENTS,
                per_s=LIVE_PER_S, seconds=0.5 if settings.quick else BESIDE_S, begin_us=begin_us,
            ) as sender,
        ):  # fmt: skip
            ready(operator)
            ready(sender)
            if time.time() * 1e6 > begin_us:
                raise RuntimeError("the redrive began before everybody was ready")
            one.tell("reset")
            found |= figures_of(operator)
            beside = figures_of(sender)
        longest = one.longest()
    return {
        **found,
        "p99_times_calm": beside["p99_ms"] / calm["p99_ms"],
        "longest_turn_cpu_ms": longest["cpu_ms"],
        "longest_turn_ms": longest["wall_ms"],
        **{f"beside_{name}": value for name, value in beside.items()},
        **{f"calm_{name}": value for name, value in calm.items()},
        "raw_p99_ms": raw["synced_1_kib_p99_us"] / 1e3,
    }


def poison(settings: Settings) -> Figures:
    """Handle messages of which one in a hundred always fails."""
    with folder(settings) as path, broker(path / "data") as one:
        return client(
            one.url, "poison", CLIENTS, count=settings.scaled(HANDLED, 2_000), every=POISON_EVERY
        )


BESIDE_S: Final = 0.6
"""Length of the traffic beside a redrive: shorter than the redrive, so that all of it is beside."""
SUITE: Final = Suite(
    Path(__file__),
    "Measure failed messages.",
    (
        Measurement(
            "query", "queries over a million failed messages", query,
            (Target("slowest_ms", 1000.0), Target("longest_turn_cpu_ms", 20.0)),
            {"failed": FAILED, "body_bytes": 100, "looks": 5},
        ),
        Measurement(
            "redrive", "a redrive of 100,000 dead letters beside live traffic", redrive,
            (Target("p99_times_calm", 2.0), Target("longest_turn_cpu_ms", 20.0)),
            {"redriven": REDRIVEN, "live_per_s": LIVE_PER_S, "live_body_bytes": 1024},
        ),
        Measurement(
            "poison", "a handler for messages of which one in a hundred always fails", poison,
            (Target("kept", 0.9, at_least=True),),
            {"messages": HANDLED, "every": POISON_EVERY, "attempts": POISON_ATTEMPTS},
        ),
    ),
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(run(SUITE))
