"""Producers or consumers of all topics in a process of their own, to be killed.

``python -m tests.fault.server.crew PORT RECORD NUMBER ROLE``; it goes on until it is killed. Each
process has another number, so whoever takes a killed one's place sends under names of its own.
"""

from __future__ import annotations

import argparse
import signal
from pathlib import Path
from typing import Final

from tests.fault.server.broker import Address
from tests.fault.server.desk import Plan
from tests.fault.server.load import Load

ROLES: Final = {
    "producers": Plan(producers=2, window=8, consumers=(), pause_s=0.05),
    "consumers": Plan(producers=0, pull=16, handle_s=0.02),
}


def main() -> None:
    """Send, or consume."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("port", type=int)
    parser.add_argument("record", type=Path)
    parser.add_argument("number", type=int)
    parser.add_argument("role", choices=ROLES)
    given = parser.parse_args()
    address, number = Address("127.0.0.1", given.port), given.number
    with Load(address, given.record, ROLES[given.role], number=number, seed=number):
        signal.pause()


if __name__ == "__main__":
    main()
