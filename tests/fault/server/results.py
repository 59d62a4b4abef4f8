"""Figures of a run that are kept: ``FAULT_RESULTS=folder`` names where they go.

Nothing here judges. A figure is worth something on the machine that it says it was made on.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.fault.processes import ROOT, environment

_SERVE = "import ternmq.cli.main, ternmq.cli.broker.server"


def keep(name: str, figures: Mapping[str, object]) -> None:
    """Write figures to the file of this name, with the time and the machine."""
    folder = os.environ.get("FAULT_RESULTS")
    if folder is None:
        return
    told = {
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": f"{os.cpu_count()} cores, {platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "load": round(os.getloadavg()[0], 2),
        **figures,
    }
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    (path / f"{name}.json").write_text(json.dumps(told, indent=1) + "\n")


def spread(values: Sequence[float]) -> dict[str, object]:
    """Return values in their order, with the middle and the worst."""
    return {
        "median": round(statistics.median(values), 3),
        "worst": round(max(values), 3),
        "values": [round(value, 3) for value in values],
    }


def start_up_s() -> dict[str, float]:
    """Return what a start costs before the journal is opened: the interpreter, then the imports.

    Tests write no byte code, so that the sources that they run may be compiled at every start;
    an installed broker's are not. Both are told; nothing is measured when nothing is kept.
    """
    if "FAULT_RESULTS" not in os.environ:
        return {}
    with tempfile.TemporaryDirectory() as cache:
        cached = {**os.environ, "PYTHONPYCACHEPREFIX": cache}
        cached.pop("PYTHONDONTWRITEBYTECODE", None)
        bare = environment()
        _took(_SERVE, cached)
        return {
            "interpreter": _took("pass", bare),
            "interpreter_and_imports": _took(_SERVE, cached),
            "interpreter_and_imports_uncached": _took(_SERVE, bare),
        }


def _took(code: str, variables: Mapping[str, str]) -> float:
    """Return the wall time of running some code in a process, the middle of five."""
    took = []
    for _ in range(5):
        began = time.monotonic()
        subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=variables, check=True)
        took.append(time.monotonic() - began)
    return round(statistics.median(took), 3)
