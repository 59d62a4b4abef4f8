"""Measures a broker group of two processes on this machine; see ``runner``.

    python bench/replication.py             everything, five rounds each
    python bench/replication.py failover    some of it
    python bench/replication.py --quick     a smoke run, nothing is written

Both brokers, the coordinator (a file of SQLite) and the clients share the machine and its disk:
each message is written twice there, and synced twice. ``sends`` compares with a broker that is
alone, in the same round. A pause is the longest time between two answers that a client got which
sends one message after the other.
"""

from __future__ import annotations

import sys
import time
import urllib.request
from functools import partial
from pathlib import Path
from typing import Final

from broker_kit import CLIENTS as BROKER_CLIENTS
from broker_kit import client, figures_of, ready, started
from core_kit import Figures, Measurement, Settings, Target, folder
from core_machine import raw_disk
from group_kit import BrokerGroup, brokers, free_port
from runner import Suite, run

import ternmq.sync

CLIENTS: Final = Path(__file__).with_name("replication_clients.py")
SECONDS: Final = 5.0
KILLS: Final = 4


def sends(settings: Settings, *, connections: int, in_flight: int) -> Figures:
    """Send for some seconds to a broker that is alone, and to a pair."""
    load = {"connections": connections, "in_flight": in_flight}
    seconds = 1.0 if settings.quick else SECONDS
    found: Figures = {"raw_p50_ms": raw_disk(settings)["synced_1_kib_p50_us"] / 1e3}
    for kind, names in (("alone", ("a",)), ("pair", ("a", "b"))):
        with folder(settings) as path, brokers(path, *names) as group:
            one = client(group.url, "sends", BROKER_CLIENTS, seconds=seconds, **load)
            found |= {f"{kind}_{name}": value for name, value in one.items()}
            for role, name in zip(("primary", "replica"), names, strict=False):
                found[f"{kind}_{role}_peak_mib"] = group.running[name].peak_mib()
    found["share"] = found["pair_sends_per_s"] / found["alone_sends_per_s"]
    found["more_p50_ms"] = found["pair_p50_ms"] - found["alone_p50_ms"]
    found["replica_memory_share"] = found["pair_replica_peak_mib"] / found["pair_primary_peak_mib"]
    return found


def failover(settings: Settings) -> Figures:
    """Kill the primary again and again; find how long nothing is answered."""
    worst: list[float] = []
    failed = 0.0
    with folder(settings) as path, brokers(path, "a", "b") as group:
        leads, follows = "a", "b"
        for _ in range(1 if settings.quick else KILLS):
            with started(group.url, "pauses", CLIENTS, seconds=8) as sending:
                ready(sending)
                time.sleep(1)
                group.kill(leads)
                group.wait(follows, 1)
                told = figures_of(sending)
            worst.append(told["longest_pause_s"])
            failed += told["failed"]
            group.start(leads)
            group.wait(follows, 2)
            leads, follows = follows, leads
    return {"median_s": sorted(worst)[len(worst) // 2], "worst_s": max(worst), "failed": failed}


def switch(settings: Settings) -> Figures:
    """Hand over to and fro while a client sends."""
    count = 1 if settings.quick else KILLS
    worst: list[float] = []
    failed = 0.0
    with folder(settings) as path, brokers(path, "a", "b") as group:
        leads, follows = "a", "b"
        for _ in range(count):
            with started(group.url, "pauses", CLIENTS, seconds=5) as sending:
                ready(sending)
                time.sleep(1)
                group.switch(follows)
                group.wait(follows, 2)
                told = figures_of(sending)
            worst.append(told["longest_pause_s"])
            failed += told["failed"]
            leads, follows = follows, leads
    return {"median_s": sorted(worst)[len(worst) // 2], "worst_s": max(worst), "failed": failed}


def replica_dies(settings: Settings) -> Figures:
    """Kill the replica while a client sends."""
    with (
        folder(settings) as path,
        brokers(path, "a", "b") as group,
        started(group.url, "pauses", CLIENTS, seconds=6) as sending,
    ):
        ready(sending)
        time.sleep(1)
        group.kill("b")
        told = figures_of(sending)
    return {"worst_s": told["longest_pause_s"], "failed": told["failed"]}


def catch_up(settings: Settings, *, size: int, mib: int) -> Figures:
    """Start an empty replica beside a primary with some data, while a client sends."""
    mib = 32 if settings.quick else mib
    with folder(settings) as path, brokers(path, "a", "b") as group:
        group.kill("b")
        group.wait("a", 1)
        client(group.url, "fill", CLIENTS, mib=mib, size=size)
        calm = client(group.url, "pauses", CLIENTS, seconds=2)
        bytes_ = sum(one.stat().st_blocks * 512 for one in (path / "a/data/journal").iterdir())
        with started(group.url, "pauses", CLIENTS, seconds=max(3.0, mib / 100)) as sending:
            ready(sending)
            began = time.perf_counter()
            group.start("b")
            group.wait("a", 2)
            took = time.perf_counter() - began
            live = figures_of(sending)
    return {
        "mib_per_s": mib / took,
        "took_s": took,
        "journal_mib": bytes_ / (1 << 20),
        "p99_times_calm": live["p99_ms"] / calm["p99_ms"],
    }


def backup(settings: Settings, *, kind: int) -> Figures:
    """Let an empty backup copy what there is, as it is and compressed, in turns."""
    mib = 16 if settings.quick else 256
    found: Figures = {}
    with folder(settings) as path:
        group = BrokerGroup(path, ("a",))
        try:
            group.start("a")
            group.wait("a", 1)
            client(group.url, "fill", CLIENTS, mib=mib, size=1024, kind=kind)
            with ternmq.sync.connect(group.url) as admin:
                for name, compressed in (("plain", False), ("compressed", True)):
                    found |= _backup(group, admin, name, compressed=compressed)
        finally:
            group.close()
    found["wire_share"] = found["compressed_wire_mib"] / found["plain_wire_mib"]
    found["more_cpu_ms_per_mib"] = sum(
        (found[f"compressed_{one}_cpu_s"] - found[f"plain_{one}_cpu_s"]) * 1e3 / mib
        for one in ("primary", "backup")
    )
    return found


def _backup(
    group: BrokerGroup, admin: ternmq.sync.Client, name: str, *, compressed: bool
) -> Figures:
    """Start an empty backup, and wait until it has everything."""
    http = f"127.0.0.1:{free_port()}"
    primary = group.running["a"]
    used = primary.cpu_s()
    began = time.perf_counter()
    group.start(name, http=http, follower="backup", compress_stream=str(compressed).lower())
    begun = group.running[name].cpu_s()
    while True:
        status = admin.admin.status()
        copied = [one for one in status.broker_group.followers if one.broker == name]
        if copied and copied[0].connected and not copied[0].behind_bytes:
            break
        if time.perf_counter() - began > 120:
            raise TimeoutError(f"{name} is still behind: {status.broker_group}")
        time.sleep(0.02)
    took = time.perf_counter() - began
    text = urllib.request.urlopen(f"http://{http}/metrics").read().decode()
    saved = next(
        float(line.split()[1])
        for line in text.splitlines()
        if line.startswith("ternmq_copy_saved_bytes_total ")
    )
    figures: Figures = {
        f"{name}_took_s": took,
        f"{name}_primary_cpu_s": primary.cpu_s() - used,
        f"{name}_backup_cpu_s": group.running[name].cpu_s() - begun,
        f"{name}_wire_mib": (status.journal_end - status.journal_first - saved) / (1 << 20),
    }
    group.running.pop(name).process.kill()
    return figures


def _sends(
    about: str, targets: tuple[Target, ...], connections: int, in_flight: int
) -> Measurement:
    return Measurement(
        f"sends-{connections * in_flight}",
        about,
        partial(sends, connections=connections, in_flight=in_flight),
        targets,
        {"connections": connections, "in_flight": in_flight, "body_bytes": 1024},
    )


SUITE: Final = Suite(
    Path(__file__),
    "Measure a broker group.",
    (
        _sends(
            "single sends of 1 KiB, on 16 connections with 16 at a time each, beside one broker",
            (Target("share", 0.5, at_least=True), Target("replica_memory_share", 1.2)), 16, 16,
        ),
        _sends("the same, one at a time", (Target("more_p50_ms", 0.4),), 1, 1),
        Measurement(
            "failover", "kill -9 of the primary until the next answer", failover,
            (Target("worst_s", 4.5), Target("failed", 0.0)), {"kills": KILLS, "lease_s": 3.0},
        ),
        Measurement(
            "switch", "an ordered change of the primary: the longest pause", switch,
            (Target("worst_s", 1.0), Target("failed", 0.0)), {"switches": KILLS},
        ),
        Measurement(
            "replica-dies", "kill -9 of the replica: the longest pause", replica_dies,
            (Target("worst_s", 2.5), Target("failed", 0.0)), {"silent_s": 2.0},
        ),
        Measurement(
            "catch-up-1024", "an empty replica catches up, messages of 1 KiB",
            partial(catch_up, size=1024, mib=512),
            (Target("mib_per_s", 150.0, at_least=True), Target("p99_times_calm", 3.0)),
            {"body_bytes": 1024},
        ),
        Measurement(
            "catch-up-100", "the same, messages of 100 bytes",
            partial(catch_up, size=100, mib=128),
            (Target("mib_per_s", 80.0, at_least=True),), {"body_bytes": 100},
        ),
        Measurement(
            "backup-json", "a backup copies messages of JSON, as they are and compressed",
            partial(backup, kind=1), (Target("wire_share", 0.5),), {"body_bytes": 1024},
        ),
        Measurement(
            "backup-random", "the same, of random bytes",
            partial(backup, kind=2), (Target("wire_share", 1.0),), {"body_bytes": 1024},
        ),
    ),
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(run(SUITE))
