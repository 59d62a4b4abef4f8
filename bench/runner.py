"""Runs measurements, judges them against their targets, keeps them as JSON.

Every round runs in a process of its own, so that no measurement inherits another's memory. What is
written: the machine, the versions, the settings, all values of every figure, their spread, the
load, and what the raw disk did within the same minute. Nothing is quoted without that.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from core_kit import ROUNDS, Figures, Measurement, Settings, spread
from core_machine import load_average, machine, pace_ms, raw_disk, versions

RESULTS: Final = Path(__file__).parent / "results"
_RAW_AGAIN_S: Final = 60.0
_SLOWED: Final = 1.15
"""A machine that takes so many times its shortest time for a plain loop is slowed by others."""
_TRIES: Final = 6
"""With ``--steady``: most times that the number of rounds is run."""
_PATIENCE_S: Final = 20.0
"""With ``--steady``: longest that a round waits for its beginning."""


@dataclass(frozen=True)
class Suite:
    """Measurements that are kept in one file.

    Attributes:
        script: What runs them.
        about: For the help.
        measurements: In their order.
        versions: Of what it measures besides.
    """

    script: Path
    about: str
    measurements: Sequence[Measurement]
    versions: Callable[[], dict[str, str]] = dict

    @property
    def results(self) -> Path:
        """Where the JSON goes."""
        return RESULTS / f"{self.script.stem}.json"


def run(suite: Suite, arguments: Sequence[str] | None = None) -> int:
    """Run what the command line asks for; return the exit status."""
    asked = _parse(suite, arguments)
    settings = Settings(
        quick=asked.quick,
        journal_mib=_journal_mib(asked),
        data=asked.data,
        rounds=asked.rounds or (1 if asked.quick else ROUNDS),
    )
    by_name = {one.name: one for one in suite.measurements}
    if asked.list:
        for one in suite.measurements:
            print(f"{one.name:20} {one.about}")
        return 0
    if asked.round is not None:
        print(json.dumps(by_name[asked.round].run(settings)))
        return 0
    unknown = [name for name in asked.names if name not in by_name]
    if unknown:
        print(f"no measurement {', '.join(unknown)}; --list names them", file=sys.stderr)
        return 2
    chosen = [by_name[name] for name in asked.names] or list(suite.measurements)
    out = asked.out or (None if asked.quick else suite.results)
    results: dict[str, dict[str, object]] = {}
    for name, result in _measure(suite, chosen, settings, steady=asked.steady):
        results[name] = result
        if out is not None:  # at once: what was measured is kept if the rest is stopped
            _write(suite, out, {name: result}, settings)
    missed = [
        f"{name} {figure}"
        for name, result in results.items()
        for figure, value in _figures_of(result).items()
        if value.get("met") is False
    ]
    if missed:
        print(f"missed: {', '.join(missed)}")
    return 0


def _parse(suite: Suite, arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=suite.about)
    parser.add_argument("names", nargs="*", help="measurements; none: all")
    parser.add_argument("--list", action="store_true", help="name the measurements")
    parser.add_argument("--quick", action="store_true", help="a smoke run, nothing is written")
    parser.add_argument("--large", action="store_true", help="a journal of 10 GB for the starts")
    parser.add_argument("--journal-mib", type=int, help="size of that journal (1024)")
    parser.add_argument("--rounds", type=int, help="rounds of each measurement (5)")
    parser.add_argument(
        "--steady", action="store_true", help="repeat rounds in which others slowed the machine"
    )
    parser.add_argument("--data", type=Path, help="a folder on the disk to measure (temporary)")
    parser.add_argument("--out", type=Path, help="where the JSON goes (bench/results)")
    parser.add_argument("--round", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def _journal_mib(asked: argparse.Namespace) -> int:
    if asked.journal_mib is not None:
        return int(asked.journal_mib)
    return 4 if asked.quick else 10 * 1024 if asked.large else 1024


def _measure(
    suite: Suite, chosen: Sequence[Measurement], settings: Settings, *, steady: bool
) -> Iterator[tuple[str, dict[str, object]]]:
    raw: dict[str, float] = {}
    raw_at = -_RAW_AGAIN_S
    shortest = min([pace_ms() for _ in range(5)])
    for one in chosen:
        rounds = min(settings.rounds, one.rounds or settings.rounds)
        load = load_average()
        found: list[tuple[float, Figures]] = []
        for _ in range(rounds * (_TRIES if steady else 1)):
            if time.monotonic() - raw_at >= _RAW_AGAIN_S:
                raw = raw_disk(settings)
                raw_at = time.monotonic()
            before = _steady(_SLOWED * shortest) if steady else pace_ms()
            figures = _round(suite, one, settings)
            paces = (before, pace_ms())
            shortest = min(shortest, *paces)
            found.append((max(paces), figures))
            if sum(pace <= _SLOWED * shortest for pace, _ in found) >= rounds:
                break
        # By the machine's pace, never by what was measured; in the order of time.
        slowest = sorted(pace for pace, _ in found)[rounds - 1]
        kept = [each for each in found if each[0] <= slowest][:rounds]
        left_out = [each for each in found if each not in kept]
        judged = _judge(one, [figures for _, figures in kept])
        _show(one, judged)
        yield (
            one.name,
            {
                "about": one.about,
                "settings": one.options,
                "rounds": rounds,
                "load_before": load,
                "raw_disk": raw,
                "pace_ms": {
                    "steady": steady,
                    "shortest": round(shortest, 1),
                    "rounds": [round(pace, 1) for pace, _ in kept],
                    "slowed": sum(pace > _SLOWED * shortest for pace, _ in kept),
                    "left_out": [
                        {"pace_ms": round(pace, 1), "figures": figures}
                        for pace, figures in left_out
                    ],
                },
                "figures": judged,
            },
        )


def _steady(bound_ms: float) -> float:
    """Wait for a moment in which the pace is within the bound, not for ever; return the pace."""
    until = time.monotonic() + _PATIENCE_S
    while (pace := pace_ms()) > bound_ms and time.monotonic() < until:
        time.sleep(0.2)
    return pace


def _round(suite: Suite, one: Measurement, settings: Settings) -> Figures:
    """Run a round in a process of its own and return its figures."""
    command = [sys.executable, str(suite.script), "--round", one.name]
    if settings.quick:
        command.append("--quick")
    command += ["--journal-mib", str(settings.journal_mib)]
    if settings.data is not None:
        command += ["--data", str(settings.data)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    figures: Figures = json.loads(done.stdout.splitlines()[-1])
    return figures


def _judge(one: Measurement, rounds: Sequence[Figures]) -> dict[str, dict[str, object]]:
    targets = {target.figure: target for target in one.targets}
    judged: dict[str, dict[str, object]] = {}
    # A round may lack a figure: syncs are counted only where perf came in time.
    for figure in dict.fromkeys(figure for figures in rounds for figure in figures):
        values = [figures[figure] for figures in rounds if figure in figures]
        middle = statistics.median(values)
        judged[figure] = {
            "median": round(middle, 3),
            "spread": round(spread(values), 3),
            "values": [round(value, 3) for value in values],
        }
        target = targets.get(figure)
        if target is not None:
            judged[figure]["target"] = ("at least " if target.at_least else "at most ") + str(
                target.bound
            )
            judged[figure]["met"] = target.met(middle)
    return judged


def _show(one: Measurement, figures: dict[str, dict[str, object]]) -> None:
    print(f"{one.name}: {one.about}")
    for name, figure in figures.items():
        verdict = ""
        if "met" in figure:
            verdict = f"   {'met' if figure['met'] else 'MISSED'}: {figure['target']}"
        print(f"    {name:40} {figure['median']:>14,}   spread {figure['spread']}{verdict}")
    sys.stdout.flush()


def _figures_of(result: dict[str, object]) -> dict[str, dict[str, object]]:
    figures = result["figures"]
    assert isinstance(figures, dict)
    return figures


def _write(
    suite: Suite, out: Path, results: dict[str, dict[str, object]], settings: Settings
) -> None:
    """Write the figures; measurements that were not run now keep what is there."""
    kept: dict[str, object] = {}
    if out.exists():
        kept = json.loads(out.read_text()).get("measurements", {})
    stamp = {
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": machine(),
        "versions": versions() | suite.versions(),
        "journal_mib": settings.journal_mib,
        "load_after": load_average(),
    }
    for name, result in results.items():
        kept[name] = {**stamp, **result}
    order = [one.name for one in suite.measurements]
    out.parent.mkdir(parents=True, exist_ok=True)
    sorted_ = {name: kept[name] for name in order if name in kept}
    out.write_text(json.dumps({"measurements": sorted_}, indent=1) + "\n")
