"""Consumers in a process of their own, to be killed and paused.

``python -m tests.fault.server.worker PORT RECORD NUMBER TOPIC GROUP``; it goes on until it is
killed.
"""

from __future__ import annotations

import argparse
import signal
from pathlib import Path

from tests.fault.server.broker import Address
from tests.fault.server.desk import Plan
from tests.fault.server.load import Load

PULL = 4
HANDLE_S = 0.05


def given_and_plan(about: str | None) -> tuple[argparse.Namespace, Plan]:
    """Return the arguments of such a process, and what it does."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("ports")
    parser.add_argument("record", type=Path)
    parser.add_argument("number", type=int)
    parser.add_argument("topic")
    parser.add_argument("group")
    given = parser.parse_args()
    plan = Plan(
        producers=0,
        consumers=((given.topic, given.group),),
        faults=False,
        pull=PULL,
        handle_s=HANDLE_S,
    )
    return given, plan


def main() -> None:
    """Consume."""
    given, plan = given_and_plan(__doc__)
    with Load(Address("127.0.0.1", int(given.ports)), given.record, plan, number=given.number):
        signal.pause()


if __name__ == "__main__":
    main()
