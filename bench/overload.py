"""Measures brokers that have too much to do, and what their healthy clients feel of it.

    python bench/overload.py            five rounds of each
    python bench/overload.py hostile    only the hostile app
    python bench/overload.py flood      only three times the load that is taken
    python bench/overload.py --quick    a smoke run, nothing is written

``overload`` (OVL-1): a broker with little memory, and consumers that do not keep up. In a memory
control group of 256 MB, where this machine lets one be made (``limited`` says so): a
backlog of a million messages, a restart with it, then 20 MB/s come in beside a group that is
frozen, comes back whenever it is cut off and freezes again, and one that takes a message a second.
What healthy consumers of the same topic feel is judged beside what they felt in the same round on
the same broker before: with the same 20 MB/s, without the rest.

``hostile``: an app with a right on one topic opens 48 connections beside a healthy app that sends
and consumes 200 messages a second. It asks for 8 reads of 8 MiB on each and reads nothing, and
comes back when it is cut off; or does not wait for that and comes again five times a second; or
sends, settles, looks up and pulls as fast as the broker takes it. What the healthy app feels is
judged beside what it felt in the same round on the same broker before and after. The hostile
clients stand for other machines, so they have the processor only while neither the broker nor the
healthy app wants it (Linux: ``SCHED_IDLE``). The round ends with a *control*: the same healthy load
beside a process that talks to nobody, has the processor on the same terms, and computes as much as
the hostile clients did (``_cores``, the most of any kind). What the healthy app feels there is no
matter of the broker.

``flood`` (OVL-2): a broker that has a tenth of a processor (``limited`` says whether it could be
held to that), so that clients on the same machine can ask for more than it does. It is measured
how many messages it takes when it always has some; then half as many come, for a minute three times
as many, and half as many again, whatever it answers. Applications try three times. Every outcome is
compared with what is stored. Judged: how much of the capacity is left while too much comes, how
long what is taken takes, and when the last send that came after the minute had to be tried again.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from broker_kit import BrokerProcess, ServerProcess, broker_at, client, figures_of, ready, started
from broker_kit import broker as broker_for
from control_group import ControlGroup, control_group, processor_group
from core_kit import Figures, Measurement, Settings, Target, folder
from core_machine import raw_disk
from overload_clients import HOSTILE
from runner import Suite, run

CLIENTS: Final = Path(__file__).with_name("overload_clients.py")
FLOOD: Final = Path(__file__).with_name("flood_clients.py")
SHARE: Final = 0.1
"""Of a processor, for the broker that is flooded."""
TIMEOUT_S: Final = 1.0
"""Of each try to send to it."""
CONTROL: Final = "control"
"""A process that computes, in the place of a hostile app."""
LIMIT: Final = 256 << 20
STALL_S: Final = 2
OPTIONS: Final[dict[str, object]] = {
    "limit_mib": LIMIT >> 20, "backlog": 1_000_000, "body_bytes": 400,
    "inflow_bytes_per_s": 20_000_000, "inflow_body_bytes": 4096, "stall_timeout_s": STALL_S,
    "healthy_consumers": 2,
}  # fmt: skip


@contextmanager
def broker(path: Path, group: ControlGroup | None) -> Iterator[BrokerProcess]:
    """Run a broker on a folder, in the group from its first instruction on."""
    given = {"STALL_TIMEOUT": f"{STALL_S}s", "SEGMENT": "16MiB"}
    prefix = [] if group is None else group.prefix
    with broker_at(path, prefix=prefix, given=given) as one:
        yield one


def traffic(one: BrokerProcess, seconds: float, number: int, *verbs: str) -> Figures:
    """Let 20 MB/s in, two healthy consumers beside it, and whoever else is named."""
    others = [started(one.url, verb, CLIENTS, seconds=seconds + 3) for verb in verbs]
    time.sleep(1.0 if verbs else 0.0)  # they are at it
    with started(
        one.url, "healthy", CLIENTS, seconds=seconds, consumers=2, number=number
    ) as consumers:
        ready(consumers)
        found = client(one.url, "inflow", CLIENTS, bytes_per_s=20_000_000, seconds=seconds)
        found |= figures_of(consumers)
    for other in others:
        with other:
            found |= figures_of(other)
    return found


def overload(settings: Settings) -> Figures:
    """One round."""
    seconds = 2.0 if settings.quick else 12.0
    raw = raw_disk(settings)
    with folder(settings) as path, control_group(LIMIT) as group:
        with broker(path / "data", group) as one:
            client(one.url, "prepare", CLIENTS)
            before = traffic(one, seconds, 1)
            filled = client(
                one.url, "fill", CLIENTS, count=settings.scaled(1_000_000, 20_000), size=400
            )
            peak = one.peak_mib()
        began = time.perf_counter()
        with broker(path / "data", group) as one:
            restart_s = time.perf_counter() - began
            cpu, at = one.cpu_s(), time.perf_counter()
            found = traffic(one, seconds, 2, "slow", "frozen")
            share = (one.cpu_s() - cpu) / (time.perf_counter() - at)
            again = one.peak_mib()
            ended = one.process.poll() is not None
        kills = group.oom_kills() if group is not None else int(ended)
    return {
        "p99_times_baseline": found["p99_ms"] / before["p99_ms"],
        "peak_mib": max(peak, again),
        "peak_filled_mib": peak,
        "peak_restarted_mib": again,
        "oom_kills": float(kills),
        **found,
        **{f"baseline_{name}": value for name, value in before.items()},
        **filled,
        "restart_s": restart_s,
        "broker_core_share": share,
        "limited": float(group is not None),
        "raw_p99_ms": raw["synced_1_kib_p99_us"] / 1e3,
    }


def hostile(settings: Settings) -> Figures:
    """One round: each kind of hostility, and the control, between two times of peace."""
    seconds = 1.5 if settings.quick else 8.0
    found: Figures = {}
    with broker_for(settings) as one:
        client(one.url, "bait", CLIENTS, rows=settings.scaled(20_000, 2_000))
        before = client(one.url, "shop", CLIENTS, seconds=seconds)
        for name in (*HOSTILE, CONTROL):
            given: dict[str, float] = {"kind": HOSTILE.index(name)} if name != CONTROL else {
                "cores": round(max(found[f"{kind}_cores"] for kind in HOSTILE), 3)
            }  # fmt: skip
            verb = "hostile" if name != CONTROL else "burn"
            with started(one.url, verb, CLIENTS, seconds=seconds + 4, **given) as other:
                ready(other)
                clock, broker_s = ServerProcess(other.pid), one.cpu_s()
                began, burnt_s = time.perf_counter(), clock.cpu_s()
                beside = client(one.url, "shop", CLIENTS, seconds=seconds)
                took = time.perf_counter() - began
                found[f"{name}_cores"] = (clock.cpu_s() - burnt_s) / took
                found[f"{name}_broker_cores"] = (one.cpu_s() - broker_s) / took
                found |= {f"{name}_{key}": value for key, value in figures_of(other).items()}
            after = client(one.url, "shop", CLIENTS, seconds=seconds)
            peace = (before["p99_ms"] + after["p99_ms"]) / 2
            found |= {
                f"{name}_p99_times": beside["p99_ms"] / peace,
                f"{name}_p99_ms": beside["p99_ms"],
                f"{name}_p50_ms": beside["p50_ms"],
                f"{name}_worst_ms": beside["worst_ms"],
                f"{name}_peace_p99_ms": peace,
            }
            before = after
        found["peak_mib"] = one.peak_mib()
    worst = max(found[f"{name}_p99_times"] for name in HOSTILE)
    return {"p99_times_worst": worst, **found}


def flood(settings: Settings) -> Figures:
    """One round: half of the load, three times the load, half of it."""
    raw = raw_disk(settings)
    with (
        folder(settings) as path,
        processor_group(SHARE) as group,
        broker_at(path / "data", prefix=[] if group is None else group.prefix) as one,
    ):
        found = client(
            one.url, "capacity", FLOOD, seconds=3.0 if settings.quick else 20.0, under_way=64
        )
        found = client(
            one.url, "flood", FLOOD, capacity=found["capacity_per_s"],
            seconds=4.0 if settings.quick else 60.0, timeout_s=TIMEOUT_S,
        ) | found  # fmt: skip
        found["peak_mib"] = one.peak_mib()
    found["limited"] = float(group is not None)
    return found | {"raw_p99_ms": raw["synced_1_kib_p99_us"] / 1e3}


SUITE: Final = Suite(
    Path(__file__),
    "Measure brokers that are overloaded.",
    (
        Measurement(
            "overload", "256 MB, 1 M backlog, a frozen and a slow group, 20 MB/s in", overload,
            (
                Target("p99_times_baseline", 2.0), Target("peak_mib", 200.0),
                Target("oom_kills", 0.0), Target("inflow_mb_s", 19.0, at_least=True),
            ),
            OPTIONS,
        ),
        Measurement(
            "hostile", "200 messages/s sent and consumed, beside an app of 48 connections", hostile,
            tuple([Target(f"{name}_p99_times", 2.0) for name in HOSTILE]),
            {"connections": 48, "reads_each": 8, "read_mib": 8, "messages_per_s": 200,
             "seconds": 8},
        ),
        Measurement(
            "flood",
            "three times the load that the broker can take, for 60 s, then half of that load",
            flood,
            (
                Target("goodput_share", 0.8, at_least=True),
                Target("accepted_p99_ms", TIMEOUT_S * 1.5e3), Target("recovery_s", 5.0),
                Target("lost", 0.0), Target("phantoms", 0.0),
            ),
            {"broker_core_share": SHARE, "body_bytes": 128 << 10, "clients": 4, "tries": 3,
             "timeout_s": TIMEOUT_S, "seconds": 60},
        ),
    ),
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(run(SUITE))
