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
Broker and clients are separate processes on one machine. Every send that is counted was answered
after its sync. Each load runs several times: in *rounds*. A row of a table has the median of the
rounds; the plots show each round as a dot. `make bench` measures your own machine with the same
programs. `make bench-large` runs the measurements that need 15 GB of disk.

"""
_SPREAD: Final = """\
## How far to trust this

- **Two shared cores.** Broker, clients, the kernel's work for network and disk, and everything
  else that the host of this virtual machine runs, share two cores. A client that uses a core
  takes it from the broker. So most rates are higher on a machine with more cores. These are the
  rates of one small machine.
- **Spread** is (largest - smallest) / median of the rounds. If it is above 0.2, only the first
  digit of the figure is reliable.
- **The disk determines** everything that waits for a sync. So such a figure is shown beside the
  time of a raw write of 1 KiB with `fdatasync`, measured in the same round on the same disk. A
  virtual disk may answer a sync from a cache of its host. Then all brokers here look quicker than
  on your own disk, by the same time for each sync.
- **Loopback**: there is no network between client and broker. Add your round trip to every
  latency.
- A single send on one connection is one request. Sends that wait at the same time on one
  connection are sent together, as one batch. The client library does this, so it is part of what
  is measured.

"""
_PEERS: Final = """\
## Beside others

Each round of a load runs the brokers with their clients one after the other, in random order, each
on an empty folder. All have the same message sizes, number of connections, and number of messages
in flight (sent and not yet answered). There is one topic or queue, and no replica. Times are
measured with the client's wall clock, and include the time to make each message. The first part of
each load is not counted. Each broker is configured to answer a send after a sync, and the syncs
are counted. RabbitMQ has no such setting for its classic queue: if the count is 0, its answers did
not wait for a sync.

- **Redis**: `appendonly yes`, `appendfsync always`; streams. Clients: redis-py with hiredis (the
  messages in flight on a connection are one pipeline), and rueidis.
- **RabbitMQ**: durable queues, persistent messages, publisher confirms; a classic queue, and a
  quorum queue of one member. Clients: aio-pika, amqp091-go.
- **NATS**: JetStream in files, `sync_interval: always`. Client: nats.go.
- **Kafka**: one node in KRaft mode, one partition, `acks=all`, `log.flush.interval.messages=1`.
  Client: Kafka's own in Java, with a `batch.size` of 256 KiB; `linger.ms` is 0 if the client waits
  for the answer to each send, otherwise 1.
- **RocketMQ**: `SYNC_FLUSH`, one queue. Client: RocketMQ's own in Java; 1,000 messages in flight
  are one batch.

The brokers differ in these points. If a broker answers acknowledgements (TernMQ, Redis, NATS,
Kafka's `commitSync`), the consumer waits for the answer. AMQP has no such answers, and RocketMQ's
consumers report their offset to the broker every 5 s. In `end-to-end`, no consumer waits for such
an answer before it takes the next message. *Syncs each* is the number of syncs of the broker's
process (`fsync`, `fdatasync`, `msync`, `sync_file_range`) per message, counted by `perf` while a
load runs, including its first part. Java compiles programs while they run: with a longer load,
Kafka and RocketMQ would have better figures. Python clients of Kafka, NATS and RocketMQ are not
measured, and neither are clusters. The other brokers have further features, and have been used in
production for many years; TernMQ has not. If a load has a fixed number of messages (`bulk`,
`consume`, and the load before memory and disk are read), slower brokers get fewer messages, so that
each broker works for some seconds (`shares` in the results file).

"""


_FIGURES: Final = """\
The list below the table says what each measurement does. These are parts of the figures' names:

- `over_raw`: a time minus the time of a raw sync in the same round; `over_two_raw`: minus two.
- `times`, `against`, `share_of`, `of`: the ratio to the same load without the disturbance
  (`without`, `calm`, `baseline`, `alone`), or to what the name says (`one_group`, `parquet`).
  `share_of_wanted` is the ratio of the rate to the rate that is the aim with this disk.
- `turn_cpu_ms`: the CPU time of the longest turn of the broker's event loop.
- `kept`: the rate with bad messages, as a share of the rate without them.
- `goodput_share`: the rate of stored messages during the flood, as a share of the broker's
  capacity. `phantoms`: messages that were refused, but stored.
- `start_s`: the time of a start with this data; in `core`, without the start of the process.

"""


_PROFILES: Final = """\
## What profiles led to

`bench/broker_profile.py` measures how a broker spends its time (`bench/results/profiles`).
`bench/pairs.py` measures the effect of a change: it runs two versions in turn, and computes the
ratio of each pair.

"""


_MISSES: Final = {
    ("broker", "cold-backlog"): """\
`broker` cold-backlog: the ratio depends on how quick sends are without the reader. In an hour in
which this machine was slower, the ratio was 2.5 (4.5 to 11.0 ms). The largest costs of the broker
meanwhile are to read pages, to write answers to the socket, and to copy the messages of a pull
into one answer (`bench/results/profiles/backlog.txt`). With pulls of 256 and 512 KiB instead of 1
MiB, the ratio was 2.8 and 3.3, and 209 and 286 MB/s were read. The rest is the work of the reading
client itself, which needs the same two cores.
""",
    ("core", "transaction-single"): """\
`core` transaction-single: a transaction writes two records, each with its own facts, where a send
writes one (6.5 us in the same run). Of the time of both calls, applying the two records to the
index, deduplication and the transactions takes 31 %, packing them 12 %, deciding what is committed
6 %, appending 5 %, setting the time of the next question to a checker 4 %; the rest are checks and
limits. No function takes more than 5 % by itself
(`bench/results/profiles/transaction-single.txt`).
""",
    ("core", "schedule-single"): """\
`core` schedule-single: of the time of a send with a due time, 75 % is to schedule it (45 % to apply
the record to the schedule, the index and deduplication), and 18 % to check the batch
(`bench/results/profiles/schedule-single.txt`).
""",
    ("core", "pull-batch"): """\
`core` pull-batch: the machine was slow on the day of this measurement. On 22 November the same
calls took 8 us. The profile of `locked` has the same calls.
""",
    ("core", "locked"): """\
`core` locked: the same calls as `core` pull-batch, on an ordered topic, with one check more for
each pull. No function takes more than a tenth of the time by itself
(`bench/results/profiles/locked.txt`).
""",
    ("schedule", "burst-mixed"): """\
`schedule` burst-mixed: the neighbours of a message in its batch are due at other times, so each of
the million messages becomes a record of its own. Of the time of the core, 38 % is to read and cut
out the messages (each batch is read once for 64 of them), 38 % to record them (26 % to apply the
record to the queue, the index and the schedule), 10 % to find the next ones that are due
(`bench/results/profiles/scheduled-burst.txt`). In `burst-same`, where neighbours share a record,
the same number of messages takes less than a fifth of the time.
""",
}
"""What is known of an aim that is missed."""


_INSTRUCTIONS: Final = """## Instructions of two versions

`bench/instructions.py` counts the instructions that two versions execute for the same work, client
and broker together, on a disk in memory (valgrind). On a shared machine, times differ by a fifth
from run to run. The numbers of instructions differ by about a hundredth, so they show changes that
times cannot show. They do not include the work of the kernel and the disk. The spread is (largest
- smallest) / median of the samples of one version; the table has the larger spread of the two
versions.

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
    "peers-bulk": "Durable messages, at most 1,000 in flight",
    "peers-consume": "Messages consumed and acknowledged",
    "peers-end-to-end": "From the planned send to the consumer, at 2,000 messages a second",
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
    return f" (rounds: {rounds}; load of other work when they began: {one['load_before']:.1f})"


def _aims(results: Results) -> str:
    lines = [
        _FIGURES,
        "| measurement | figure | median | aim | | spread |\n|---|---|---|---|---|---|\n",
    ]
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
        "\n`overload` hostile, for comparison: beside a process that takes as much CPU as the\n"
        f"hostile clients ({cores:.2f} cores) but sends nothing, the p99 of the healthy app was\n"
        f"{times:.1f} times its p99 without other load ({milliseconds:.1f} ms). A ratio of 1\n"
        "means that the use of CPU alone explains nothing of the figures above.\n"
    )


def _pace(one: Mapping[str, Any]) -> str:
    """Return what is to be said of the machine's pace beside the rounds."""
    pace = one.get("pace_ms", {})
    parts = []
    if pace.get("left_out"):
        parts.append(f"{len(pace['left_out'])} slowed rounds were repeated")
    if pace.get("slowed"):
        parts.append(f"in {pace['slowed']} of its rounds, other work slowed the machine")
    return f" ({'; '.join(parts)})" if parts else ""


def _rounds(rounds: Sequence[Mapping[str, Any]]) -> str:
    parts = [_PROFILES]
    for kept in rounds:
        load = kept["load_before"]
        parts.append(f"- {kept['text']} (Load of other work when it began: {load:.1f}.)\n")
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
        parts.append("| load | unit | before | after | ratio | spread |\n")
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
