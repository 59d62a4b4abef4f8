"""The text of the page: what is measured, the figures, what they do not say."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from statistics import median
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

Each round of a load takes one broker and client after the other, in an order that chance makes,
each on an empty folder. All have the same message sizes, connections, and number of messages under
way; one topic or queue, no replica. The clock is the client's wall clock, every message is made
inside it, and the first part of each load is not counted. Each broker is set up to answer a send
after a sync, and the syncs are counted. RabbitMQ has no such setting for its classic queue: where
the count is 0, its answers waited for none.


- **Redis**: `appendonly yes`, `appendfsync always`; streams. redis-py with hiredis, where what is
  under way on a connection is one pipeline; rueidis.
- **RabbitMQ**: durable queues, persistent messages, publisher confirms; a classic queue, and a
  quorum queue of one member. aio-pika; amqp091-go.
- **NATS**: JetStream in files, `sync_interval: always`. nats.go.
- **Kafka**: one node in KRaft mode, one partition, `acks=all`, `log.flush.interval.messages=1`. Its
  Java client, with a `batch.size` of 256 KiB, and `linger.ms=0` where each send is awaited, else 1.
- **RocketMQ**: `SYNC_FLUSH`, one queue. Its Java client; 1,000 under way are one batch.

What differs: answers to acknowledgements are awaited where there are any (this broker, Redis, NATS,
Kafka's `commitSync`). AMQP has none, and RocketMQ's consumers tell the broker their offset every
5 s. In `end-to-end` nobody awaits them before the next message. Syncs are those of the broker's
process (`fsync`, `fdatasync`, `msync`, `sync_file_range`) while a load runs, its warming included,
per message, counted by `perf`. Java's machines compile as they run: a longer load would be kinder
to Kafka and RocketMQ. Python clients of Kafka, NATS and RocketMQ are not measured, nor clusters.
All these brokers do other things besides, and have run in production for many years; this one has
not. Where messages are counted (`bulk`, `consume`, and before memory and disk are read), slower
brokers get fewer of them: each has seconds to do (`shares` in the results file).

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
    ("core", "transaction-single"): """\
`core` transaction-single: a transaction writes two records, each with its own facts, where a send
writes one (6.5 us here, in the same run). Of the time of both calls, applying the two records to
the index, deduplication and the transactions takes 31 %, packing them 12 %, deciding what is
committed 6 %, appending 5 %, the time of the question 4 %; the rest are checks and limits. No
function takes more than 5 % by itself (`bench/results/profiles/transaction-single.txt`).
""",
}
"""What is known of an aim that is missed."""


_INSTRUCTIONS: Final = """## Instructions of two versions

`bench/instructions.py` counts the instructions that two versions execute for the same work, client
and broker together, on a disk in memory (valgrind). On a machine with neighbours, time differs by a
fifth from run to run; these numbers differ by about a hundredth, so they show changes that time
cannot show. They do not show what the kernel and the disk do. The spread is (largest - smallest) /
median of the samples of one version, the larger of both.

"""


def page(
    results: Results,
    rounds: Sequence[Mapping[str, Any]],
    drawn: AbstractSet[str],
    counted: Sequence[Mapping[str, Any]] = (),
) -> str:
    """Return the page."""
    parts = [_HEAD, _machine(results)]
    if "throughput" in drawn:
        parts += ["## Rates\n\n", _image("throughput", "Messages a second")]
    if "latency" in drawn:
        parts += ["## Latencies\n\n", _image("latency", "Time until an answer")]
    parts.append(_SPREAD)
    if "peers" in results:
        parts += [_PEERS, _peers(results), _footprint(results), "\n"]
        parts += [_image(name, PEER_TITLES[name]) for name in PEER_TITLES if name in drawn]
    parts += ["## Every figure with an aim\n\n", _aims(results), "\n"]
    if rounds:
        parts += [
            _rounds(rounds),
            _image("rounds", "Ratios of each pair") if "rounds" in drawn else "",
        ]
    if counted:
        parts.append(_instructions(counted))
    return "".join(parts).rstrip() + "\n"


PEER_LOADS: Final = ("sends-256", "sends-1", "bulk", "consume", "end-to-end", "footprint")
_ENOUGH: Final = 3
"""Rounds that a load needs before anyone may compare."""
PEER_TITLES: Final = {
    "peers-sends-256": "Durable sends, 256 in flight",
    "peers-sends-1": "One durable send at a time",
    "peers-bulk": "Durable messages, at most 1,000 under way",
    "peers-consume": "Messages taken and acknowledged",
    "peers-end-to-end": "From due to received at 2,000 a second",
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
| load | broker (client) | rate | p50 | p99 | spread | broker's CPU each | syncs each | raw sync |
|---|---|---|---|---|---|---|---|---|
"""
_FOOTPRINT: Final = """\
| broker | start | idle | under load | 1,000 topics, a message each | disk per 100-byte message |
|---|---|---|---|---|---|
"""


def _peers(results: Results) -> str:
    lines = [_PEER_TABLE]
    for load, one in results["peers"].items():
        if load == "footprint":
            continue
        figures = one["figures"]
        raw = ms(figures["raw_p50_ms"]["median"])
        for peer, label in PEER_NAMES.items():
            if f"{peer}_server_cpu_us_each" in figures:
                lines.append(f"| {load} | {label} | {_peer_row(figures, peer)} | {raw} |\n")
    lines += [_left_out(results), _few(results), "\n"]
    lines += [
        f"- **{load}**: {one['about']}{_pace(one)}{_load(one)}\n"
        for load, one in results["peers"].items()
    ]
    return "".join(lines)


def _peer_row(figures: Mapping[str, Any], peer: str) -> str:
    def shown(name: str, text: Callable[[float], str]) -> str:
        found = figures.get(f"{peer}_{name}")
        return text(found["median"]) if found else ""

    judged = figures.get(f"{peer}_per_s") or figures[f"{peer}_p50_ms"]
    return " | ".join([
        shown("per_s", lambda value: f"{rate(value)}/s"),
        shown("p50_ms", ms),
        shown("p99_ms", ms),
        ratio(judged["spread"]) if len(judged["values"]) > 1 else "one round",
        shown("server_cpu_us_each", lambda value: f"{value:.3g} us"),
        shown("syncs_each", lambda value: f"{value:.2g}"),
    ])  # fmt: skip


def _footprint(results: Results) -> str:
    one = results["peers"].get("footprint")
    if one is None:
        return ""
    figures = one["figures"]
    lines = ["\n", _FOOTPRINT]
    for peer, label in PEER_NAMES.items():
        if f"{peer}_start_s" not in figures:
            continue
        start, idle, loaded, topics, disk = (
            figures[f"{peer}_{name}"]["median"]
            for name in ("start_s", "idle_mib", "loaded_mib", "topics_s", "disk_bytes_each")
        )
        lines.append(
            f"| {label} | {start:.2g} s | {idle:.0f} MiB | {loaded:.0f} MiB | {topics:.2g} s | "
            f"{disk:.0f} B |\n"
        )
    return "".join(lines)


def _few(results: Results) -> str:
    """Return what is to be said of loads with too few rounds, and of loads without any."""
    loads = results["peers"]
    told = ""
    few = [name for name, one in loads.items() if _rounds_of(one) < _ENOUGH]
    if few:
        told += (
            f"\n**Not a ranking:** {', '.join(few)} had fewer than {_ENOUGH} rounds, on a machine "
            "that others used.\nThey show that each broker ran with these settings, and how often "
            "it synced; for rates and times,\nmeasure again on a quiet machine.\n"
        )
    absent = [name for name in PEER_LOADS if name not in loads]
    if absent:
        told += f"\nNot measured yet in this form: {', '.join(absent)}.\n"
    return told


def _rounds_of(one: Mapping[str, Any]) -> int:
    return max(len(figure["values"]) for figure in one["figures"].values())


def _left_out(results: Results) -> str:
    """Return what was not there when this was measured, and why."""
    found = {
        name: version
        for one in results["peers"].values()
        for name, version in one["versions"].items()
        if version.startswith("left out")
    }
    return "".join([f"\n{name}: {version}\n" for name, version in found.items()])


def _load(one: Mapping[str, Any]) -> str:
    """Return how many rounds there were, and what others did on the machine when they began."""
    rounds = _rounds_of(one)
    return (
        f" (rounds: {rounds}; others' load on the cores when they began: {one['load_before']:.1f})"
    )


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
    return "".join([*lines, *missed, _control(results), "\nWhat each does:\n\n", *rest])


def _control(results: Results) -> str:
    """Return what a healthy app feels beside a process that only computes; empty: not measured."""
    found = results.get("overload", {}).get("hostile", {"figures": {}})["figures"]
    if "control_p99_times" not in found:
        return ""
    times, milliseconds, cores = (
        found[f"control_{name}"]["median"] for name in ("p99_times", "p99_ms", "cores")
    )
    return (
        "\n`overload` hostile, the control: beside a process that talks to nobody and computes as\n"
        f"much as the hostile clients did ({cores:.2f} cores) the healthy app's p99 was\n"
        f"{times:.1f} times that of peace ({milliseconds:.1f} ms). So much of the figures above\n"
        "is no matter of the broker.\n"
    )


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


def _instructions(counted: Sequence[Mapping[str, Any]]) -> str:
    parts = [_INSTRUCTIONS]
    for kept in counted:
        parts.append(f"From `{kept['before']}` to `{kept['after']}`: {kept['text']}.\n\n")
        parts.append("| load | what one is | before | after | ratio | spread |\n")
        parts.append("|---|---|---|---|---|---|\n")
        for load, one in kept["instructions"].items():
            before, after = one["before"], one["after"]
            spread = max((max(some) - min(some)) / median(some) for some in (before, after))
            parts.append(
                f"| `{load}` | {one['about']} | {median(before):,.0f} | {median(after):,.0f} "
                f"| {one['ratio_of_medians']:.3f} | {spread:.3f} |\n"
            )
        parts.append("\n")
    return "".join(parts)
