"""Results as lines for people and as JSON that is kept."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.model.explore import Result
from tests.model.invariants import Kind
from tests.model.run import Run
from tests.mutants.report import machine


@dataclass(frozen=True, slots=True)
class Outcome:
    """A run that was explored.

    Attributes:
        name: Of the run or the mutant.
        run: What was explored.
        judged: The invariants that counted.
        result: What came out.
        expected: ``none``: no violation up to the end; ``violation``: one.
    """

    name: str
    run: Run
    judged: Sequence[Kind]
    result: Result
    expected: str

    def good(self) -> bool:
        """Return whether it came out as expected."""
        if self.expected == "violation":
            return self.result.found is not None
        return self.result.exhausted and self.result.found is None

    def line(self) -> str:
        """Return it as a line of a table."""
        result = self.result
        if result.found is not None:
            verdict = f"violation: {result.found.kind}"
        else:
            verdict = "exhausted, none" if result.exhausted else "NOT EXHAUSTED, none"
        surprise = "" if self.good() else "  UNEXPECTED"
        return (
            f"{self.name:<40} {bounds(self.run):<28} {result.states:>10,} states  "
            f"depth {result.depth:>2}  {result.seconds:7.1f} s  {verdict}{surprise}"
        )

    def plain(self) -> dict[str, object]:
        """Return it for JSON."""
        result = self.result
        run = asdict(self.run)
        run["broken"] = list(self.run.broken.names())
        found = result.found
        return {
            "name": self.name,
            "run": run,
            "judged": list(self.judged),
            "expected": self.expected,
            "as_expected": self.good(),
            "exhausted": result.exhausted,
            "states": result.states,
            "depth": result.depth,
            "seconds": round(result.seconds, 1),
            "cpu_seconds": round(result.cpu_seconds, 1),
            "violation": found.kind if found is not None else None,
            "trace": [step.text for step in found.trace] if found is not None else None,
        }


def bounds(run: Run) -> str:
    """Return what may happen in a run: brokers, messages/crashes/changes, what is switched on."""
    features = [
        name
        for name in ("resigns", "marks", "synced_acks", "switches", "forces")
        if getattr(run, name)
    ]
    counts = f"{run.brokers} brokers {run.messages}/{run.crashes}/{run.changes}"
    return " ".join([counts, *features])


def write(path: Path, outcomes: Sequence[Outcome]) -> None:
    """Write what was explored, and on which machine, as JSON."""
    content = {
        "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": machine(),
        "processes": 1,
        "as_expected": all(one.good() for one in outcomes),
        "runs": [one.plain() for one in outcomes],
    }
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
