"""Consumers of a broker group in a process of their own, to be killed and paused.

``python -m tests.fault.group.worker PORT,PORT RECORD NUMBER TOPIC GROUP``; it goes on until it is
killed.
"""

from __future__ import annotations

import argparse
import signal
from pathlib import Path

from tests.fault.group.load import GroupLoad
from tests.fault.server.broker import Address
from tests.fault.server.desk import Plan
from tests.fault.server.worker import HANDLE_S, PULL


def main() -> None:
    """Consume."""
    parser = argparse.ArgumentParser(description=__doc__)
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
    addresses = [Address("127.0.0.1", int(port)) for port in given.ports.split(",")]
    with GroupLoad(addresses, given.record, plan, number=given.number):
        signal.pause()


if __name__ == "__main__":
    main()
