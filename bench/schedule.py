"""Measures scheduled messages on a broker process: how late they are, and many at one time.

    python bench/schedule.py            five rounds of each
    python bench/schedule.py lateness   only the lateness
    python bench/schedule.py --quick    a smoke run, nothing is written

``lateness``: messages come due at 5,000/s. ``late_*``: from the time at which each is due to the
time of its record; ``received_late_*``: until a consumer has it in hand.

``burst``: a million messages are due within one second, in any order (``burst-mixed``), or all at
the same time (``burst-same``). It is measured how long it takes until all are stored in their
queues, the p99 of single sends at a pace beside it, compared with the same sends to the same broker
just before, and the longest callback of the broker's loop, in CPU time of its thread (others share
the machine) and by the wall clock.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Final

from broker_kit import ServerProcess, client, figures_of, ready, started
from broker_lists import SERVER, Asker, Watched
from broker_lists_server import TOKEN
from core_kit import Figures, Measurement, Settings, Target, folder
from core_machine import raw_disk
from runner import Suite, run
from schedule_clients import TOPIC

from ternmq.record.batch.batch import Row, encode, topic_seed
from ternmq.wire import bodies
from ternmq.wire.commands import Command

CLIENTS: Final = Path(__file__).with_name("schedule_clients.py")
PER_S: Final = 5_000
SECONDS: Final = 20
BURST: Final = 1_000_000
LIVE_PER_S: Final = 500
LIVE_S: Final = 10.0
OF: Final = 1000
_REST: Final = b"x" * 92


class Broker(Watched):
    """A broker whose turns are timed."""

    def __init__(self, process: Popen[str]) -> None:
        super().__init__(process)
        self.url = f"ternmq://admin:{TOKEN.replace(' ', '%20')}@127.0.0.1:{self.port}"
        self.server = ServerProcess(process.pid)


@contextmanager
def broker(path: Path) -> Iterator[Broker]:
    """Run a broker on a folder of its own for the length of a ``with`` block."""
    command = [sys.executable, str(SERVER), str(path), "serve", "100"]
    with Popen(command, stdin=PIPE, stdout=PIPE, text=True) as process:
        try:
            yield Broker(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(120)


def _in_us(seconds: float) -> int:
    return int((time.time() + seconds) * 1e6)


def fill(url: str, port: int, count: int, begin_us: int, spread_us: int, *, mixed: bool) -> Figures:
    """Schedule messages, 1,000 in a batch, due within ``spread_us`` from ``begin_us`` on.

    The batches are made here, without the client library: that would take minutes.

    Args:
        url: The broker, as for ``ternmq.connect``.
        port: Its port.
        count: Number of messages.
        begin_us: When the first is due, µs since the Unix epoch.
        spread_us: 0: all are due at the same time.
        mixed: Whether they are due in any order; else in the order of sending, evenly.
    """
    client(url, "prepare", CLIENTS)
    chance = random.Random(4)
    seed = topic_seed(TOPIC)
    began = time.perf_counter()
    with Asker(port, "admin") as asker:
        for at in range(0, count, OF):
            some = range(at, min(at + OF, count))
            due = [
                begin_us + (chance.randrange(spread_us) if mixed else number * spread_us // count)
                for number in some
            ]
            batch = encode(
                [Row(one.to_bytes(8, "little") + _REST, due_us=one) for one in due],
                topic_seed=seed, producer_id=1, first_sequence=at, born_us=1,
            )  # fmt: skip
            asker.ask_raw(Command.SEND, bodies.pack_send(TOPIC, None, batch))
    took = time.perf_counter() - began
    if time.time() * 1e6 > begin_us:
        raise RuntimeError(f"the first came due before the last was scheduled, in {took:.1f} s")
    return {"scheduled_per_s": count / took}


def lateness(settings: Settings) -> Figures:
    """Let messages come due at a pace, with a consumer."""
    count = settings.scaled(PER_S * SECONDS, PER_S // 2)
    raw = raw_disk(settings)
    with folder(settings) as path, broker(path / "data") as one:
        begin_us = _in_us(5.0 if settings.quick else 20.0)
        found = fill(one.url, one.port, count, begin_us, count * 1_000_000 // PER_S, mixed=False)
        one.tell("reset")
        with started(one.url, "receive", CLIENTS, count=count) as consumer:
            ready(consumer)
            used = one.server.cpu_s()
            found |= figures_of(consumer)
            used = one.server.cpu_s() - used
        longest = one.longest()
        found |= client(one.url, "stored", CLIENTS)
    if found["stored"] != count:
        raise RuntimeError(f"{found['stored']} of {count} messages were stored")
    return {
        **found,
        "broker_cpu_us_each": used * 1e6 / count,
        "longest_turn_cpu_ms": longest["cpu_ms"],
        "longest_turn_ms": longest["wall_ms"],
        "raw_p99_ms": raw["synced_1_kib_p99_us"] / 1e3,
    }


def _burst(settings: Settings, *, mixed: bool) -> Figures:
    count = settings.scaled(BURST, 5_000)
    seconds = 1.0 if settings.quick else LIVE_S
    raw = raw_disk(settings)
    with folder(settings) as path, broker(path / "data") as one:
        begin_us = _in_us(15.0 if settings.quick else 50.0)
        found = fill(one.url, one.port, count, begin_us, 1_000_000 if mixed else 0, mixed=mixed)
        calm = client(
            one.url, "live", CLIENTS, per_s=LIVE_PER_S, seconds=seconds, begin_us=_in_us(0.5)
        )
        with (
            started(one.url, "drained", CLIENTS, begin_us=begin_us) as watcher,
            started(
                one.url, "live", CLIENTS, per_s=LIVE_PER_S, seconds=seconds, begin_us=begin_us
            ) as sender,
        ):
            ready(watcher)
            ready(sender)
            if time.time() * 1e6 > begin_us:
                raise RuntimeError("the messages came due before everybody was ready")
            time.sleep(begin_us / 1e6 - time.time())
            one.tell("reset")
            used = one.server.cpu_s()
            beside = figures_of(sender)
            found |= figures_of(watcher)
            used = one.server.cpu_s() - used
        longest = one.longest()
        found |= client(one.url, "stored", CLIENTS)
    if found["stored"] != count:
        raise RuntimeError(f"{found['stored']} of {count} messages were stored")
    return {
        "drained_s": found.pop("drained_s"),
        "p99_times_calm": beside["p99_ms"] / calm["p99_ms"],
        "longest_turn_cpu_ms": longest["cpu_ms"],
        "longest_turn_ms": longest["wall_ms"],
        **{f"beside_{name}": value for name, value in beside.items()},
        **{f"calm_{name}": value for name, value in calm.items()},
        **found,
        "broker_cpu_us_each": used * 1e6 / count,
        "raw_p99_ms": raw["synced_1_kib_p99_us"] / 1e3,
    }


def burst_mixed(settings: Settings) -> Figures:
    """Let a million messages come due within a second, in any order."""
    return _burst(settings, mixed=True)


def burst_same(settings: Settings) -> Figures:
    """Let a million messages come due at one time."""
    return _burst(settings, mixed=False)


_NEVER_WRONG: Final = (Target("stored_early", 0.0), Target("out_of_order", 0.0))
_BURST: Final = (
    Target("drained_s", 60.0), Target("p99_times_calm", 3.0), Target("longest_turn_cpu_ms", 20.0),
    *_NEVER_WRONG,
)  # fmt: skip
_OPTIONS: Final[dict[str, object]] = {
    "messages": BURST, "body_bytes": 100, "live_per_s": LIVE_PER_S, "live_body_bytes": 1024,
    "live_seconds": LIVE_S,
}  # fmt: skip
SUITE: Final = Suite(
    Path(__file__),
    "Measure scheduled messages.",
    (
        Measurement(
            "lateness", "5,000 messages/s come due, with a consumer", lateness,
            (Target("late_p99_ms", 50.0), Target("early", 0.0), *_NEVER_WRONG),
            {"per_s": PER_S, "seconds": SECONDS, "body_bytes": 100},
        ),
        Measurement(
            "burst-mixed", "a million messages due within a second, in any order", burst_mixed,
            _BURST, _OPTIONS,
        ),
        Measurement(
            "burst-same", "a million messages due at one time", burst_same,
            _BURST, _OPTIONS,
        ),
    ),
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(run(SUITE))
