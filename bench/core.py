"""Measures the broker's core and keeps the figures as JSON; see ``runner``.

python bench/core.py                    everything, five rounds each
python bench/core.py append-single ...  some of it
python bench/core.py --quick            a smoke run: is everything still measurable?
python bench/core.py --large            starts with a journal of 10 GB instead of 1 GB
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import core_checked
import core_delivery
import core_memory
import core_operations
import core_promotion
import core_schedule
import core_start
import core_turns
from runner import Suite, run

SUITE: Final = Suite(
    Path(__file__),
    "Measure the broker's core.",
    (
        *core_operations.MEASUREMENTS,
        *core_delivery.MEASUREMENTS,
        *core_schedule.MEASUREMENTS,
        *core_checked.MEASUREMENTS,
        *core_memory.MEASUREMENTS,
        *core_start.MEASUREMENTS,
        *core_promotion.MEASUREMENTS,
        *core_turns.MEASUREMENTS,
    ),
)

if __name__ == "__main__":
    sys.exit(run(SUITE))
