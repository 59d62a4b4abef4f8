"""Where the time of the core goes in measurements; writes ``results/profiles/NAME.txt``.

    python bench/core_profile.py schedule-single transaction-single

A measurement of ``core.py`` runs once, and the stretches that it times are profiled by ``cProfile``
with the CPU clock of the thread. What a profile distorts: see ``broker_profile.py``.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import sys
import time

from core import SUITE
from core_kit import Settings, Stopwatch
from profile_report import report
from runner import RESULTS


def main() -> int:
    """Run what the command line asks for."""
    by_name = {one.name: one for one in SUITE.measurements}
    parser = argparse.ArgumentParser(description="Profile measurements of the core.")
    parser.add_argument("names", nargs="+", metavar="NAME", choices=by_name)
    parser.add_argument("--quick", action="store_true", help="a smoke run, nothing is written")
    asked = parser.parse_args()
    for name in asked.names:
        one = by_name[name]
        profile = Stopwatch.profile = cProfile.Profile(time.thread_time_ns, 1e-9)
        figures = one.run(Settings(quick=asked.quick))
        text = report(name, one.about, figures, pstats.Stats(profile), "broker_profile.py")
        if not asked.quick:
            (RESULTS / "profiles" / f"{name}.txt").write_text(text)
        print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
