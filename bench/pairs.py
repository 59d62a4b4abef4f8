"""Compares two versions of the tree, in pairs; writes ``results/rounds/NAME.json``.

    git worktree add ../before HEAD~1
    python bench/pairs.py --before ../before --name empty-turns --text "what was changed" pull

A pair is a run of each, one directly after the other, the other way round every second time; the
ratio is taken pair by pair, so that what drifts (the disk, a neighbour) drifts for both. Broker and
clients are those of each version. The broker's CPU time per message tells more than the rate, which
a busy neighbour changes from one second to the next.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from broker_kit import BrokerProcess, broker, broker_at, client
from broker_scale import CLIENTS as SCALE_CLIENTS
from broker_scale import TOPICS
from core_kit import Figures, Settings, folder
from core_machine import load_average, machine, raw_disk, versions
from runner import RESULTS
from start import start as start_figures

HERE: Final = Path(__file__).resolve().parent.parent


def sends(seconds: float) -> Figures:
    """Single sends of 1 KiB, 16 connections x 16."""
    with broker(Settings()) as one:
        before = one.cpu_s()
        found = client(one.url, "sends", connections=16, in_flight=16, seconds=seconds)
        used = one.cpu_s() - before
    count = found["sends_per_s"] * (seconds + 0.5)
    return {**found, "broker_cpu_us_each": used * 1e6 / count}


def send_alone(seconds: float) -> Figures:
    """Single sends of 1 KiB, one at a time on one connection."""
    with broker(Settings()) as one:
        client(one.url, "sends", connections=1, in_flight=1, seconds=0.3)  # not counted
        before = one.cpu_s()
        found = client(one.url, "sends", connections=1, in_flight=1, seconds=seconds)
        used = one.cpu_s() - before
    count = found["sends_per_s"] * (seconds + 0.5)
    return {**found, "broker_cpu_us_each": used * 1e6 / count}


def _bulk(verb: str, count: int, of: int, *, backlog: int = 0) -> Figures:
    with broker(Settings()) as one:
        if backlog:
            client(one.url, "send_many", count=backlog, of=1000)
        before, own = one.cpu_s(), _clients_s()
        found = client(one.url, verb, count=count, of=of)
        return {
            **found,
            "broker_cpu_us_each": (one.cpu_s() - before) * 1e6 / count,
            "client_cpu_us_each": (_clients_s() - own) * 1e6 / count,
        }


def _clients_s() -> float:
    """Return the CPU time of client processes that have ended, their start included."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def send_many(seconds: float) -> Figures:
    """100-byte messages by send_many, in calls of 10,000."""
    return _bulk("send_many", int(600_000 * seconds), 10_000)


def pull(seconds: float) -> Figures:
    """100-byte messages pulled by 1,000 and acknowledged."""
    count = int(400_000 * seconds)
    return _bulk("pull", count, 1000, backlog=count + 10_000)


def pull_32(seconds: float) -> Figures:
    """100-byte messages pulled by 32 and acknowledged."""
    count = int(32_000 * seconds)
    return _bulk("pull", count, 32, backlog=count + 10_000)


def process(seconds: float) -> Figures:
    """100-byte messages, each in process()."""
    count = int(100_000 * seconds)
    return _bulk("process", count, 1000, backlog=count + 10_000)


def handler(seconds: float) -> Figures:
    """100-byte messages by an async handler."""
    count = int(100_000 * seconds)
    return _bulk("handler", count, 1000, backlog=count + 10_000)


def hot_topic(seconds: float) -> Figures:
    """The sends of sends-256 to a topic alone, and beside 40,000 others, in turn."""
    with (
        folder(Settings()) as path,
        broker_at(path / "alone") as alone,
        broker_at(path / "beside", kill=True) as beside,
    ):
        topics = TOPICS if seconds >= 1 else 300
        client(beside.url, "make_topics", SCALE_CLIENTS, count=topics)
        rates: dict[int, list[float]] = {alone.pid: [], beside.pid: []}
        used = dict.fromkeys(rates, 0.0)
        for number in range(4):
            for one in (alone, beside) if number % 2 == 0 else (beside, alone):
                used[one.pid] += _sends_of(one, seconds, rates[one.pid])
        each = {pid: used[pid] * 1e6 / (sum(rates[pid]) * (seconds + 0.5)) for pid in rates}
        shares = [b / a for a, b in zip(rates[alone.pid], rates[beside.pid], strict=True)]
        return {
            "sends_share_of_alone": statistics.median(shares),
            "cpu_share_of_alone": each[alone.pid] / each[beside.pid],
            "broker_cpu_us_each_alone": each[alone.pid],
            "broker_cpu_us_each": each[beside.pid],
            "resident_mib": beside.resident_mib(),
        }


def _sends_of(one: BrokerProcess, seconds: float, rates: list[float]) -> float:
    before = one.cpu_s()
    found = client(one.url, "sends", connections=16, in_flight=16, seconds=seconds)
    rates.append(found["sends_per_s"])
    return one.cpu_s() - before


def start(seconds: float) -> Figures:
    """Start of a broker, its memory when idle, commands of the command line; see start.py."""
    return start_figures(Settings(quick=seconds < 1))


LOADS: Final[dict[str, Callable[[float], Figures]]] = {
    "sends-256": sends, "sends-1": send_alone, "send-many": send_many,
    "pull": pull, "pull-32": pull_32,
    "process": process, "handler": handler, "hot-topic": hot_topic, "start": start,
}  # fmt: skip


def run(tree: Path, load: str, seconds: float) -> Figures:
    """Run a load with what a tree holds."""
    environment = {**os.environ, "PYTHONPATH": str(tree / "src")}
    script = tree / "bench" / "pairs.py"  # the tree's own: the kit imports modules of the broker
    command = [sys.executable, str(script), "--one", load, "--seconds", str(seconds)]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    found: Figures = json.loads(done.stdout.splitlines()[-1])
    return found


def compare(before: Path, after: Path, load: str, pairs: int, seconds: float) -> dict[str, object]:
    """Return all values of both versions, and the ratios after / before of each pair."""
    runs: dict[str, list[Figures]] = {"before": [], "after": []}
    trees = {"before": before, "after": after}
    for tree in trees.values():
        run(tree, load, 0.5)  # not counted: what is compiled and read the first time
    for number in range(pairs):
        for name in ("before", "after") if number % 2 == 0 else ("after", "before"):
            runs[name].append(run(trees[name], load, seconds))
    figures: dict[str, object] = {}
    for figure in runs["before"][0]:
        old = [one[figure] for one in runs["before"]]
        new = [one[figure] for one in runs["after"]]
        ratios = [b / a for a, b in zip(old, new, strict=True)]
        figures[figure] = {
            "before": [round(value, 3) for value in old],
            "after": [round(value, 3) for value in new],
            "ratios": [round(value, 3) for value in ratios],
            "median_ratio": round(statistics.median(ratios), 3),
        }
        print(
            f"{load} {figure}: before {statistics.median(old):,.3f}, after "
            f"{statistics.median(new):,.3f}, ratio {statistics.median(ratios):.3f} "
            f"({min(ratios):.3f} to {max(ratios):.3f})",
            flush=True,
        )
    return {"about": (LOADS[load].__doc__ or "").strip(), "seconds": seconds, "figures": figures}


def commit_of(tree: Path) -> str:
    """Return the commit of a tree, and whether it was changed since."""
    done = subprocess.run(
        ["git", "-C", str(tree), "describe", "--always", "--dirty", "--abbrev=10"],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    return done.stdout.strip()


def main() -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description="Compare two versions of the tree in pairs.")
    parser.add_argument("loads", nargs="*", metavar="LOAD", help=f"of {', '.join(LOADS)}")
    parser.add_argument("--before", type=Path, help="a tree")
    parser.add_argument("--after", type=Path, default=HERE, help="another (this one)")
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=2.0, help="about how long a run is (2)")
    parser.add_argument("--name", help="of the file in results/rounds; none: nothing is written")
    parser.add_argument("--text", default="", help="what was changed, and what came of it")
    parser.add_argument(
        "--figure", default="broker_cpu_us_each", help="what the change is about (that)"
    )
    parser.add_argument("--one", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        print(json.dumps(LOADS[asked.one](asked.seconds)))
        return 0
    if asked.before is None:
        parser.error("--before is needed")
    result: dict[str, object] = {
        "text": asked.text,
        "figure": asked.figure,
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": machine(),
        "versions": versions(),
        "before": commit_of(asked.before),
        "after": commit_of(asked.after),
        "load_before": load_average(),
        "raw_disk": raw_disk(Settings()),
        "pairs": asked.pairs,
    }
    result["loads"] = {
        load: compare(asked.before.resolve(), asked.after, load, asked.pairs, asked.seconds)
        for load in asked.loads or LOADS
    }
    if asked.name:
        out = RESULTS / "rounds" / f"{asked.name}.json"
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(result, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
