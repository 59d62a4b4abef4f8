"""Measures a broker process as its users meet it, and keeps the figures as JSON; see ``runner``.

    python bench/broker.py                  everything, five rounds each
    python bench/broker.py sends-256 ...    some of it
    python bench/broker.py --quick          a smoke run

Broker and clients are processes of their own on one machine. Rows with a sync are judged beside
what the raw disk does in the same round (``raw_p50_us``, ``raw_p99_us``).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

import broker_lists
import broker_scale
from broker_kit import broker, client, figures_of, ready, started
from core_kit import Figures, Measurement, Settings, Target
from core_machine import raw_disk
from runner import Suite, run

# ------------------------------------------------------------------------------------------ sending


def sends(settings: Settings, *, connections: int, in_flight: int) -> Figures:
    """Single sends of 1 KiB, each answered after its sync."""
    raw = raw_disk(settings)
    seconds = 1.0 if settings.quick else 6.0
    with broker(settings) as one:
        before = one.cpu_s()
        found = client(
            one.url, "sends", connections=connections, in_flight=in_flight, seconds=seconds
        )
        used = one.cpu_s() - before
    raw_p50_ms = raw["synced_1_kib_p50_us"] / 1e3
    raw_p99_ms = raw["synced_1_kib_p99_us"] / 1e3
    found |= {"raw_p50_ms": raw_p50_ms, "raw_p99_ms": raw_p99_ms}
    found["broker_cpu_us_each"] = used * 1e6 / (found["sends_per_s"] * (seconds + 0.5))
    if connections * in_flight > 1:
        wanted = min(50_000.0, 0.8 * connections * in_flight / ((raw_p50_ms + 1.0) / 1e3))
        found["wanted_per_s"] = wanted
        found["share_of_wanted"] = found["sends_per_s"] / wanted
        found["p99_over_raw_ms"] = found["p99_ms"] - raw_p99_ms
    else:
        found["p50_over_raw_ms"] = found["p50_ms"] - raw_p50_ms
    return found


def bulk(settings: Settings, *, verb: str, count: int, of: int) -> Figures:
    """One producer process."""
    with broker(settings) as one:
        return client(one.url, verb, count=settings.scaled(count, of * 2), of=of)


def consume(settings: Settings, *, verb: str, count: int, of: int) -> Figures:
    """One consumer process over a backlog of messages of 100 bytes."""
    wanted = settings.scaled(count, 5000)
    with broker(settings) as one:
        client(one.url, "send_many", count=wanted + 3 * max(of, 1000), of=1000)
        before = one.cpu_s()
        found = client(one.url, verb, count=wanted, of=of)
        found["broker_cpu_us_each"] = (one.cpu_s() - before) * 1e6 / wanted
        return found


# --------------------------------------------------------------------------------------- end to end


def end_to_end(settings: Settings, *, per_s: int) -> Figures:
    """From ``send_soon`` in one process to the handler in another."""
    raw = raw_disk(settings)
    seconds = 1.5 if settings.quick else 8.0
    with (
        broker(settings) as one,
        started(one.url, "consume_paced", seconds=seconds + 3) as consumer,
    ):
        ready(consumer)
        sent = client(one.url, "produce_paced", per_s=per_s, seconds=seconds)
        found = figures_of(consumer)
    raw_p50_ms = raw["synced_1_kib_p50_us"] / 1e3
    raw_p99_ms = raw["synced_1_kib_p99_us"] / 1e3
    return {
        **found,
        **sent,
        "raw_p50_ms": raw_p50_ms,
        "raw_p99_ms": raw_p99_ms,
        "p50_over_raw_ms": found["p50_ms"] - raw_p50_ms,
        "p99_over_raw_ms": found["p99_ms"] - raw_p99_ms,
    }


def idle_polls(settings: Settings, *, polls: int) -> Figures:
    """What pulls cost that wait for nothing, and how soon one of them is woken."""
    seconds = 1.0 if settings.quick else 10.0
    with broker(settings) as one, started(one.url, "idle", polls=polls, seconds=seconds) as polling:
        ready(polling)
        before, began = one.cpu_s(), time.perf_counter()
        time.sleep(seconds * 0.9)  # a measurement's span, nothing is waited for
        share = (one.cpu_s() - before) / (time.perf_counter() - began)
        found = figures_of(polling)
        found["broker_core_share"] = share
        found["resident_mib"] = one.resident_mib()
    return found


def _one(
    name: str,
    about: str,
    measure: Callable[..., Figures],
    targets: tuple[Target, ...] = (),
    **options: object,
) -> Measurement:
    return Measurement(name, about, partial(measure, **options), targets, options)


SUITE: Final = Suite(
    Path(__file__),
    "Measure a broker process and its clients.",
    (
        _one(
            "sends-256", "single sends of 1 KiB, each answered after its sync; 16 connections x 16",
            sends, (Target("share_of_wanted", 1.0, at_least=True), Target("p99_over_raw_ms", 20.0)),
            connections=16, in_flight=16,
        ),
        _one(
            "sends-1", "the same, one at a time on one connection",
            sends, (Target("p50_over_raw_ms", 0.5),), connections=1, in_flight=1,
        ),
        _one(
            "send-many", "100-byte messages, ready, by send_many", bulk,
            (Target("messages_per_s", 500_000.0, at_least=True),),
            verb="send_many", count=1_000_000, of=10_000,
        ),
        _one(
            "send-soon", "100-byte messages by send_soon", bulk,
            (Target("messages_per_s", 150_000.0, at_least=True),),
            verb="send_soon", count=300_000, of=100,
        ),
        _one(
            "pull", "100-byte messages pulled and acknowledged", consume,
            (Target("messages_per_s", 300_000.0, at_least=True),),
            verb="pull", count=1_000_000, of=1000,
        ),
        _one(
            "process", "100-byte messages, each in process()", consume,
            (Target("messages_per_s", 80_000.0, at_least=True),),
            verb="process", count=200_000, of=1000,
        ),
        _one(
            "handler", "100-byte messages by an async handler", consume,
            (Target("messages_per_s", 80_000.0, at_least=True),),
            verb="handler", count=200_000, of=1000,
        ),
        _one(
            "end-to-end", "5,000 messages a second, durable, from send to handler", end_to_end,
            (Target("p50_over_raw_ms", 2.0), Target("p99_over_raw_ms", 5.0)), per_s=5000,
        ),
        _one(
            "idle-polls", "1,000 pulls that wait, and one of them woken", idle_polls,
            (Target("broker_core_share", 0.01), Target("woken_p50_ms", 5.0)), polls=1000,
        ),
        *broker_scale.MEASUREMENTS,
        *broker_lists.MEASUREMENTS,
    ),
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(run(SUITE))
