"""Explore the model.

``python -m tests.model explore [NAME ...]``
    the named runs, all of them by default, or the run that the options describe
``python -m tests.model mutants [NAME ...]``
    the runs with a broken rule, behind the same bounds with the rules intact (but for named runs)
``python -m tests.model trace NAME``
    the shortest way to the violation of a mutant, with the states between

Exit code 0 if everything came out as it must, 1 if not, 3 if a limit ended a run before.
"""

from __future__ import annotations

import argparse
import gc
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from tests.model import kept, trace
from tests.model.explore import explore
from tests.model.invariants import HARM, KINDS, Kind
from tests.model.kept import Outcome
from tests.model.mutants import MUTANTS, Mutant
from tests.model.run import Broken, Run
from tests.model.runs import RUNS

_INCONCLUSIVE = 3
_BOUNDS = ("brokers", "messages", "crashes", "changes")
_FEATURES = ("resigns", "marks", "synced_acks", "switches", "forces")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = _parser()
    options = parser.parse_args(arguments)
    known = {"explore": list(RUNS), "mutants": [one.name for one in MUTANTS]}
    if unknown := sorted({*getattr(options, "names", ())} - {*known.get(options.command, ())}):
        there = ", ".join(known[options.command])
        parser.error(f"no such name: {', '.join(unknown)}; there are {there}")
    work: Callable[[argparse.Namespace], int] = options.work
    return work(options)


def explore_runs(options: argparse.Namespace) -> int:
    """Explore runs with the rules intact, or the one that the options describe."""
    own = {name: getattr(options, name) for name in (*_BOUNDS, *_FEATURES)}
    own = {name: value for name, value in own.items() if value is not None}
    if own or options.broken:
        broken = replace(Broken(), **dict.fromkeys(options.broken, True))
        runs = {"own": replace(Run(), **own, broken=broken)}
    else:
        runs = {name: RUNS[name] for name in options.names or RUNS}
    judged = HARM if options.harm else KINDS
    outcomes = [_told(name, run, judged, "none", options) for name, run in runs.items()]
    for one in outcomes:
        _print_trace(one)
    return _ended(outcomes, options)


def explore_mutants(options: argparse.Namespace) -> int:
    """Explore mutants, and their bounds with the rules intact."""
    chosen = [one for one in MUTANTS if not options.names or one.name in options.names]
    outcomes = []
    if not options.no_control:
        controls = dict.fromkeys(one.control() for one in chosen)
        outcomes += [
            _told("(control: rules intact)", run, KINDS, "none", options)
            for run in controls
            if run not in RUNS.values()
        ]
    outcomes += [_mutant(one, options) for one in chosen]
    return _ended(outcomes, options)


def print_trace(options: argparse.Namespace) -> int:
    """Print the shortest way to the violation of a mutant."""
    for one in MUTANTS:
        if one.name == options.name and not one.harmless:
            _print_trace(_mutant(one, options))
    return 0


def _mutant(one: Mutant, options: argparse.Namespace) -> Outcome:
    return _told(one.name, one.run, one.judged, "none" if one.harmless else "violation", options)


def _told(
    name: str, run: Run, judged: Sequence[Kind], expected: str, options: argparse.Namespace
) -> Outcome:
    def progress(depth: int, states: int, new: int) -> None:
        print(f"\r{name}: depth {depth}, {states:,} states, {new:,} new ", end="", file=sys.stderr)

    result = explore(
        run,
        judged=judged,
        most_states=options.most_states,
        most_seconds=options.most_seconds,
        progress=progress if sys.stderr.isatty() or options.progress else None,
    )
    outcome = Outcome(name, run, judged, result, expected)
    print(outcome.line(), flush=True)
    return outcome


def _print_trace(outcome: Outcome) -> None:
    if outcome.result.found is not None:
        print("\n".join(trace.lines(outcome.run, outcome.result.found)))


def _ended(outcomes: Sequence[Outcome], options: argparse.Namespace) -> int:
    if options.json is not None:
        kept.write(options.json, outcomes)
    wrong = [one for one in outcomes if not one.good()]
    if not wrong:
        return 0
    limited = all(one.result.found is None and not one.result.exhausted for one in wrong)
    return _INCONCLUSIVE if limited else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tests.model", description="model of replication")
    commands = parser.add_subparsers(dest="command", required=True)
    limits = argparse.ArgumentParser(add_help=False)
    limits.add_argument("--most-states", type=float, default=math.inf, help="end a run then")
    limits.add_argument("--most-seconds", type=float, default=math.inf, help="end a run then")
    limits.add_argument("--progress", action="store_true", help="print each depth")
    limits.add_argument("--json", type=Path, default=None, help="write what came out to a file")

    exploring = commands.add_parser("explore", parents=[limits])
    exploring.set_defaults(work=explore_runs)
    exploring.add_argument("names", nargs="*", metavar="NAME")
    for name in _BOUNDS:
        exploring.add_argument(f"--{name}", type=int, default=None)
    for name in _FEATURES:
        exploring.add_argument(f"--{name.replace('_', '-')}", action="store_true", default=None)
    exploring.add_argument(
        "--broken", action="append", default=[], choices=Broken.__slots__, metavar="RULE"
    )
    exploring.add_argument(
        "--harm", action="store_true", help="judge by what a client would notice"
    )

    mutants = commands.add_parser("mutants", parents=[limits])
    mutants.set_defaults(work=explore_mutants)
    mutants.add_argument("names", nargs="*", metavar="NAME")
    mutants.add_argument("--no-control", action="store_true", help="leave out the rules intact")

    tracing = commands.add_parser("trace", parents=[limits])
    tracing.set_defaults(work=print_trace)
    tracing.add_argument("name", choices=[one.name for one in MUTANTS if not one.harmless])
    return parser


if __name__ == "__main__":
    gc.disable()  # what is explored has no cycles; looking for them takes a third of the time
    sys.exit(main())
