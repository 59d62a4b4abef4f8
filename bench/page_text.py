"""The text of the page: what is measured, the figures, what they do not say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final

from page_plots import PEER_NAMES, Results, ms, rate, ratio

_HEAD: Final = """\
# Benchmarks

Made by `make docs` from `bench/results/*.json`, which `make bench` writes: change nothing here.
Broker and clients are processes of their own on one machine; every send that is counted was
answered after its sync. Each row is the median of the rounds, and the dots of the plots are all of
them. `make bench` measures your own machine with the same programs, `make bench-large` what wants
15 GB of disk.

"""
_SPREAD: Final = """\
## How far to trust this

- **Two cores, shared.** Broker, clients, the kernel's network and disk work, and whatever else the
  host of this virtual machine runs, share two cores. A client that needs a core takes it from the
  broker: on a machine with more, most rates here are higher. They are what one small machine gives.
- **Spread** is (largest - smallest) / median of the rounds. Above 0.2, read one digit, not two.
- **The disk decides.** What waits for a sync is shown beside a raw write of 1 KiB and `fdatasync`,
  measured in the same round on the same disk. A virtual disk may answer a sync from a cache of its
  host; then all brokers here look quicker than on a disk of your own, by the same time a sync.
- **Loopback**: no network is between them. Add your round trip to every latency.
- A single send on one connection is one request. Sends that wait at the same time on one connection
  leave together, as one batch: that is the library's work, and part of what is measured.

"""
_PEERS: Final = """\
## Beside others

The same loads, in the same rounds, in an order that chance makes, each with the settings that its
documentation gives for durability: Redis with `appendonly yes` and `appendfsync always` (redis-py
with hiredis; what is in flight on a connection is a pipeline), RabbitMQ with durable queues,
persistent messages and publisher confirms (aio-pika), once with a classic and once with a quorum
queue of one replica. All clients are Python, because that is what this broker's users write: much
of what is measured is the client, so the servers' own CPU time a message stands beside it. Redis
and RabbitMQ do other things besides, and have run in production for many years; this has not.

"""


_PROFILES: Final = """\
## What profiles led to

`bench/broker_profile.py` says where a broker's time goes (`bench/results/profiles`), and
`bench/pairs.py` what a change is worth: two versions in turn, the ratio pair by pair.

"""


_MISSES: Final = {
    ("broker", "cold-backlog"): """\
`broker` cold-backlog: how much longer sends take depends on how quick they are alone; on a slower
hour of this machine it was 2.5 times (4.5 to 11.0 ms). The broker's largest costs meanwhile are to
read pages, to write answers to the socket, and to copy what a pull takes into one answer
(`bench/results/profiles/backlog.txt`). Pulls of 256 and 512 KiB instead of 1 MiB were tried:
2.8 and 3.3 times, and 209 and 286 MB/s read. What is left is the reading client itself, which wants
the same two cores.
""",
}
"""What is known of an aim that is missed."""


def page(results: Results, rounds: Sequence[Mapping[str, Any]], drawn: AbstractSet[str]) -> str:
    """Return the page."""
    parts = [_HEAD, _machine(results)]
    if "throughput" in drawn:
        parts += ["## Rates\n\n", _image("throughput", "Messages a second")]
    if "latency" in drawn:
        parts += ["## Latencies\n\n", _image("latency", "Time until an answer")]
    parts.append(_SPREAD)
    if "peers" in results:
        parts += [_PEERS, _peers(results), "\n"]
        parts += [_image(name, PEER_TITLES[name]) for name in PEER_TITLES if name in drawn]
    parts += ["## Every figure with an aim\n\n", _aims(results), "\n"]
    if rounds:
        parts += [
            _rounds(rounds),
            _image("rounds", "Ratios of each pair") if "rounds" in drawn else "",
        ]
    return "".join(parts).rstrip() + "\n"


PEER_TITLES: Final = {
    "peers-sends-256": "Durable sends, 256 in flight",
    "peers-sends-1": "One durable send at a time",
    "peers-bulk": "Durable messages, 1,000 in flight",
    "peers-consume": "Messages taken and acknowledged",
}


def _image(name: str, text: str) -> str:
    return f"![{text}](benchmarks/{name}.svg)\n\n"


def _machine(results: Results) -> str:
    newest = max(
        (one for suite in results.values() for one in suite.values()), key=lambda one: one["at"]
    )
    oldest = min(one["at"] for suite in results.values() for one in suite.values())
    machine, versions = newest["machine"], newest["versions"]
    others = {
        name: version
        for suite in results.values()
        for one in suite.values()
        for name, version in one["versions"].items()
    }
    told = ", ".join(f"{name} {version}" for name, version in (others | versions).items())
    return (
        "| | |\n|---|---|\n"
        f"| machine | {machine['cpu']}, {machine['cores']} cores, "
        f"{machine['memory_mib'] / 1024:.0f} GiB, {machine['system']} {machine['kernel']} |\n"
        f"| measured | {oldest} to {newest['at']} |\n"
        f"| versions | {told} |\n\n"
    )


_PEER_TABLE: Final = """\
| load | broker | median | p50 | p99 | spread | server's CPU a message | raw fdatasync |
|---|---|---|---|---|---|---|---|
"""


def _peers(results: Results) -> str:
    lines = [_PEER_TABLE]
    for load, one in results["peers"].items():
        figures = one["figures"]
        raw = ms(figures["raw_p50_ms"]["median"])
        for peer, label in PEER_NAMES.items():
            if f"{peer}_per_s" not in figures:
                lines.append(f"| {load} | {label} | not installed | | | | | |\n")
                continue
            speed = figures[f"{peer}_per_s"]
            times = [
                ms(figures[f"{peer}_{name}"]["median"]) if f"{peer}_{name}" in figures else ""
                for name in ("p50_ms", "p99_ms")
            ]
            cpu = figures[f"{peer}_server_cpu_us_each"]["median"]
            lines.append(
                f"| {load} | {label} | {rate(speed['median'])}/s | {times[0]} | {times[1]} | "
                f"{ratio(speed['spread'])} | {cpu:.3g} us | {raw} |\n"
            )
    lines.append("\n")
    lines += [f"- **{load}**: {one['about']}\n" for load, one in results["peers"].items()]
    return "".join(lines)


def _aims(results: Results) -> str:
    lines = ["| measurement | figure | median | aim | | spread |\n|---|---|---|---|---|---|\n"]
    rest: list[str] = []
    for suite, measurements in results.items():
        for name, one in measurements.items():
            for figure, found in one["figures"].items():
                if "target" not in found:
                    continue
                verdict = "met" if found["met"] else "**missed**"
                lines.append(
                    f"| `{suite}` {name} | {figure} | {found['median']:,} | {found['target']} | "
                    f"{verdict} | {ratio(found['spread'])} |\n"
                )
            rest.append(f"- `{suite}` **{name}**: {one['about']}{_pace(one)}\n")
    missed = [
        f"\n{text}"
        for (suite, name), text in _MISSES.items()
        if name in results.get(suite, {})
        and not all(one.get("met", True) for one in results[suite][name]["figures"].values())
    ]
    return "".join([*lines, *missed, "\nWhat each does:\n\n", *rest])


def _pace(one: Mapping[str, Any]) -> str:
    """Return what is to be said of the machine's pace beside the rounds."""
    pace = one.get("pace_ms", {})
    parts = []
    if pace.get("left_out"):
        parts.append(f"{len(pace['left_out'])} slowed rounds were made again")
    if pace.get("slowed"):
        parts.append(f"beside {pace['slowed']} of its rounds the machine was slowed by others")
    return f" ({'; '.join(parts)})" if parts else ""


def _rounds(rounds: Sequence[Mapping[str, Any]]) -> str:
    parts = [_PROFILES]
    for kept in rounds:
        load = kept["load_before"]
        parts.append(
            f"- {kept['text']} (Others' load on the two cores when it began: {load:.1f}.)\n"
        )
        for load, one in kept["loads"].items():
            for figure in (
                "messages_per_s",
                "sends_per_s",
                "broker_cpu_us_each",
                "client_cpu_us_each",
            ):
                if figure not in one["figures"]:
                    continue
                found = one["figures"][figure]
                ratios = found["ratios"]
                parts.append(
                    f"  - {load}, {figure}: {ratio(found['median_ratio'])} times "
                    f"({ratio(min(ratios))} to {ratio(max(ratios))} in {len(ratios)} pairs)\n"
                )
    parts.append("\n")
    return "".join(parts)
