"""The runs without a broken rule that are explored to the end, by name."""

from __future__ import annotations

from typing import Final

from tests.model.run import Run

RUNS: Final[dict[str, Run]] = {
    "two": Run(brokers=2, messages=1, crashes=2, changes=3),
    "two-messages": Run(brokers=2, messages=2, crashes=2, changes=3),
    "two-marks": Run(brokers=2, messages=1, crashes=2, changes=3, marks=True),
    "two-resigns": Run(brokers=2, messages=1, crashes=2, changes=3, resigns=True),
    "two-switches": Run(brokers=2, messages=1, crashes=2, changes=3, switches=True),
    "two-synced": Run(brokers=2, messages=1, crashes=2, changes=3, synced_acks=True, switches=True),
    "two-forces": Run(brokers=2, messages=1, crashes=2, changes=3, marks=True, forces=True),
    "three-crash": Run(brokers=3, messages=1, crashes=1, changes=2),
    "three-changes": Run(brokers=3, messages=1, crashes=0, changes=3),
    "three-resigns": Run(brokers=3, messages=1, crashes=0, changes=3, resigns=True),
    "three-switches": Run(brokers=3, messages=1, crashes=0, changes=3, switches=True),
    "three-synced": Run(brokers=3, messages=1, crashes=1, changes=2, synced_acks=True),
}
