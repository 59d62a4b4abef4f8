"""How much of what, and settings that make a broker roll, write STATE and forget soon."""

from __future__ import annotations

import os
from typing import Final

KILLS: Final = int(os.environ.get("FAULT_CYCLES", "4"))
POWER_CUTS: Final = int(os.environ.get("FAULT_CYCLES", "2"))
SECONDS: Final = float(os.environ.get("FAULT_SECONDS", "20"))
LONG: Final = os.environ.get("FAULT_LONG") == "1"

SMALL: Final = {
    "segment": "3MiB",
    "state": "1MiB",
    "reserve": "3MiB",
    "log_level": "warning",
}
